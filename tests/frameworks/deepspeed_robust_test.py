"""The adapter of DeepSpeed in one process: what it does if something is missing or fails."""

import contextlib
import gc
import os
import unittest
import weakref
from unittest import mock

import on_cpu

on_cpu.without_compiler()

import deepspeed  # noqa: E402
import torch  # noqa: E402
from deepspeed.runtime.pipe import schedule as schedules  # noqa: E402
from deepspeed.runtime.pipe.engine import PipelineEngine  # noqa: E402

import perseus  # noqa: E402
from deepspeed_worker import train  # noqa: E402
from observed import ALONE, OFF, ScratchTest  # noqa: E402
from works import works  # noqa: E402

MICROBATCHES = 4


def setUpModule():
    os.environ.update(ALONE)
    deepspeed.init_distributed(dist_backend="gloo")


def tearDownModule():
    torch.distributed.destroy_process_group()


class BackwardOnlyPass(schedules.BufferOpInstruction):
    """As zero bubble schedules of Megatron-DeepSpeed have it: the dgrad."""


class WeightPass(schedules.BufferOpInstruction):
    """The wgrad."""


class SplitSchedule(schedules.TrainSchedule):
    def steps(self):
        for commands in super().steps():
            split = []
            for command in commands:
                if type(command) is schedules.BackwardPass:
                    split.append(BackwardOnlyPass(command.buffer_id))
                    split.append(WeightPass(command.buffer_id))
                else:
                    split.append(command)
            yield split


class RobustTest(ScratchTest):
    def setUp(self):
        super().setUp()
        self.engine = train.engine(1, MICROBATCHES, 1)

    def attach(self, **options):
        handle = perseus.attach(self.engine, job_directory=self.scratch, **OFF, **options)
        self.addCleanup(handle.detach)
        return handle

    def test_every_probed_name(self):
        instructions = PipelineEngine._INSTRUCTION_MAP
        grid = type(self.engine.grid)

        def without(name):
            return {key: value for key, value in instructions.items() if key.__name__ != name}

        class NoMethod:
            """Instead of a method that became something else."""

        @contextlib.contextmanager
        def absent(name):
            attributes, modules = vars(self.engine), self.engine._modules
            with mock.patch.dict(attributes), mock.patch.dict(modules):
                attributes.pop(name, None)
                modules.pop(name, None)
                yield

        broken = {
            "train_batch": mock.patch.object(PipelineEngine, "train_batch", None),
            "micro_batches": mock.patch.object(self.engine, "micro_batches", "four"),
            "grid": absent("grid"),
            "device": absent("device"),
            "module": absent("module"),
            "pipe_parallel_size": mock.patch.object(self.engine.grid, "pipe_parallel_size", None),
            "_INSTRUCTION_MAP": mock.patch.object(PipelineEngine, "_INSTRUCTION_MAP", []),
            "ForwardPass": mock.patch.object(
                PipelineEngine, "_INSTRUCTION_MAP", without("ForwardPass")
            ),
            "BackwardPass": mock.patch.object(
                PipelineEngine, "_INSTRUCTION_MAP", without("BackwardPass")
            ),
            **{
                name: mock.patch.object(grid, name, NoMethod())
                for name in ("get_stage_id", "get_data_parallel_rank", "get_slice_parallel_rank")
            },
        }
        before = dict(vars(self.engine))
        for name, patch in broken.items():
            with self.subTest(name), patch, self.assertLogs("perseus") as logs:
                handle = perseus.attach(self.engine)
                self.assertFalse(handle.is_attached)
                self.assertEqual(len(logs.output), 1)
                self.assertIn(name, logs.output[0])
                self.assertIn(f"deepspeed {deepspeed.__version__}", logs.output[0])
                self.assertIn("perseus.instruction", logs.output[0])
        self.assertEqual(dict(vars(self.engine)), before)

    def test_an_engine_without_train_batch_is_of_no_framework(self):
        with mock.patch.object(PipelineEngine, "train_batch"):
            del PipelineEngine.train_batch
            with self.assertLogs("perseus") as logs:
                self.assertFalse(perseus.attach(self.engine).is_attached)
        self.assertIn("no supported framework", logs.output[0])

    @works("deepspeed", "exceptions")
    def test_an_exception_passes_and_the_step_is_abandoned(self):
        handle = self.attach()
        self.engine.train_batch(train.text(1))
        error = ValueError("of the data")

        def bad():
            yield from [next(train.text(1)) for _ in range(2)]
            raise error

        with self.assertRaises(ValueError) as caught:
            self.engine.train_batch(bad())
        self.assertIs(caught.exception, error)
        with self.assertRaisesRegex(AssertionError, "timer"):  # DeepSpeed accepts no step after that.
            self.engine.train_batch(train.text(1))
        self.assertEqual(handle.session.counters.steps, 1)
        self.assertEqual(handle.session.counters.steps_abandoned, 2)
        self.assertTrue(handle.is_attached)
        handle.detach()
        self.assertEqual(len(self.recorded()), 1)

    def test_an_error_of_perseus_detaches(self):
        handle = self.attach()
        self.engine.train_batch(train.text(1))
        with mock.patch.object(handle._recorder, "_microbatch", side_effect=RuntimeError("ours")):
            with self.assertLogs("perseus") as logs:
                loss = self.engine.train_batch(train.text(1))
        self.assertGreater(loss.item(), 0)
        self.assertIn("an error of Perseus", logs.output[0])
        self.assertEqual(len(logs.output), 1)
        self.assertFalse(handle.is_attached)
        self.engine.train_batch(train.text(1))

    def test_it_proves_itself(self):
        handle = self.attach()
        self.engine._INSTRUCTION_MAP[schedules.BackwardPass] = PipelineEngine._exec_backward_pass
        with self.assertLogs("perseus") as logs:
            self.engine.train_batch(train.text(1))
        self.assertIn("4 forwards, 0 backwards", logs.output[0])
        self.assertFalse(handle.is_attached)
        with self.assertNoLogs("perseus"):
            self.engine.train_batch(train.text(1))

    def test_an_unknown_instruction_is_a_warning(self):
        class FancyPass(schedules.PipeInstruction):
            pass

        instructions = {**PipelineEngine._INSTRUCTION_MAP, FancyPass: lambda engine: None}
        with mock.patch.object(PipelineEngine, "_INSTRUCTION_MAP", instructions):
            with self.assertLogs("perseus") as logs:
                handle = self.attach()
        self.assertIn("FancyPass", logs.output[0])
        self.assertTrue(handle.is_attached)

    @works("deepspeed", "split backward (dgrad, wgrad)")
    def test_dgrad_and_wgrad(self):
        instructions = {
            **PipelineEngine._INSTRUCTION_MAP,
            BackwardOnlyPass: PipelineEngine._exec_backward_pass,
            WeightPass: lambda engine, buffer_id: None,
        }
        split = SplitSchedule(MICROBATCHES, 1, 0)
        with mock.patch.object(PipelineEngine, "_INSTRUCTION_MAP", instructions):
            handle = self.attach()
        with mock.patch.object(self.engine, "_train_schedule", lambda: split):
            for _ in range(2):
                self.engine.train_batch(train.text(1))
        self.assertTrue(handle.is_attached)
        handle.detach()
        kinds = ("forward", "backward_input", "backward_weight")
        expected = [(kind, i) for i in range(MICROBATCHES) for kind in kinds]
        self.assertEqual(self.recorded(), [expected] * 2)

    def test_an_instruction_that_is_added_after_attach(self):
        class Note(schedules.PipeInstruction):
            """As an extension may add."""

        class Notes(schedules.PipeSchedule):
            def steps(self):
                yield [Note()]

            def num_pipe_buffers(self):
                return 1

        noted = []
        handle = self.attach()
        originals = PipelineEngine._INSTRUCTION_MAP
        with mock.patch.dict(originals, {Note: lambda engine: noted.append(engine)}):
            self.engine._exec_schedule(Notes(micro_batches=1, stages=1, stage_id=0))
        self.assertEqual(noted, [self.engine])
        self.assertTrue(handle.is_attached)

    def test_nothing_is_kept_alive(self):
        handle = self.attach()
        outputs = []
        original = self.engine.module.forward

        def forward(inputs):
            output = original(inputs)
            outputs.append(weakref.ref(output))
            return output

        with mock.patch.object(self.engine.module, "forward", forward):
            self.engine.train_batch(train.text(1))
        recorder = handle._recorder
        held = gc.get_referents(recorder, *vars(recorder).values())
        self.assertFalse([each for each in held if isinstance(each, torch.Tensor)])
        self.assertFalse([each for each in held if each is self.engine])
        # The engine itself keeps the last output and its buffers.
        self.assertLess(sum(output() is not None for output in outputs), MICROBATCHES)

    @works("deepspeed", "attached by the import hook")
    def test_without_a_change_of_the_program(self):
        self.check_unchanged_example("deepspeed", batch=1)


if __name__ == "__main__":
    unittest.main()

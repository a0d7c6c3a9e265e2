"""The adapter of Megatron-core in one process: what it does if something is missing or fails."""

import inspect
import os
import sys
import types
import unittest
import weakref
from unittest import mock

import on_cpu

on_cpu.without_cuda()

import megatron.core  # noqa: E402
import torch  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.pipeline_parallel import schedules  # noqa: E402

import perseus  # noqa: E402
from megatron_worker import BATCH, ORIGINALS, Job, train  # noqa: E402
from perseus.adapters import megatron as adapter  # noqa: E402
from observed import ALONE, OFF, ScratchTest  # noqa: E402
from works import works  # noqa: E402


def setUpModule():
    os.environ.update(ALONE)
    torch.distributed.init_process_group("gloo")


def tearDownModule():
    torch.distributed.destroy_process_group()


def group(rank, size):
    return types.SimpleNamespace(rank=lambda: rank, size=lambda: size)


class RobustTest(ScratchTest):
    @classmethod
    def setUpClass(cls):
        cls.job = Job(1)  # For this job, Megatron-core makes 17 process groups, with 51 threads.

    def attach(self):
        handle = perseus.attach("megatron", job_directory=self.scratch, **OFF)
        self.addCleanup(handle.detach)
        return handle

    def test_every_probed_name(self):
        def other(a, b):
            """Instead of a function whose parameters changed."""

        names = [*adapter._STEPS, "forward_step", "backward_step"]
        state = [
            "get_pipeline_model_parallel_rank", "get_pipeline_model_parallel_world_size",
            "get_tensor_model_parallel_rank", "get_tensor_model_parallel_world_size",
            "get_data_parallel_rank", "get_context_parallel_rank",
            "get_virtual_pipeline_model_parallel_rank",
        ]  # fmt: skip
        owners = [(schedules, name) for name in [*names, "parallel_state"]]
        owners += [(parallel_state, name) for name in state]
        for owner, name in owners:
            for value in [mock.DEFAULT] + [other] * (name in names):
                with self.subTest(name, value=value), mock.patch.object(owner, name, value):
                    if value is mock.DEFAULT:
                        delattr(owner, name)
                    with self.assertLogs("perseus") as logs:
                        handle = perseus.attach("megatron")
                    self.assertFalse(handle.is_attached)
                    self.assertEqual(len(logs.output), 1)
                    self.assertIn(name, logs.output[0])
                    self.assertIn(f"megatron-core {megatron.core.__version__}", logs.output[0])
        for name, value in ORIGINALS.items():
            self.assertIs(getattr(schedules, name, None), value)

    def test_it_cannot_be_imported(self):
        with mock.patch.dict(sys.modules, {"megatron.core.pipeline_parallel.schedules": None}):
            with self.assertLogs("perseus") as logs:
                self.assertFalse(perseus.attach("megatron").is_attached)
        self.assertIn("cannot be imported", logs.output[0])

    def test_one_process_has_one_attachment(self):
        handle = self.attach()
        again = self.attach()
        self.job.run_step(2)
        self.assertEqual(again.session.counters.steps, 1)
        self.assertTrue(handle.is_attached)

    @works("megatron-core", "no pipeline; exceptions")
    def test_an_exception_passes_and_the_step_is_abandoned(self):
        handle = self.attach()
        self.job.run_step(3)
        error = ValueError("of the model")
        for name in ("forward_step", "text"):
            with mock.patch.object(torch.autograd, "backward", side_effect=error) if name == "text" \
                    else mock.patch.object(train, "forward_step", side_effect=error):  # fmt: skip
                with self.assertRaises(ValueError) as caught:
                    self.job.run_step(3)
            self.assertIs(caught.exception, error)
        self.job.run_step(3)
        self.assertEqual(handle.session.counters.steps, 2)
        self.assertEqual(handle.session.counters.steps_abandoned, 2)
        handle.detach()
        step = [(kind, i) for i in range(3) for kind in ("forward", "backward")]
        self.assertEqual(self.recorded(), [step] * 2)

    def test_an_error_of_perseus_detaches(self):
        for name in ("_place", "_remember", "_recall", "_tensor", "_ranks"):
            owner = adapter if name == "_tensor" else adapter._Pipeline
            with self.subTest(name), mock.patch.object(owner, name, side_effect=RuntimeError("ours")):
                handle = self.attach()
                with self.assertLogs("perseus") as logs:
                    losses = self.job.run_step(2)
                self.assertEqual(len(losses), 2)
                self.assertEqual(len(logs.output), 1)
                self.assertIn("an error of Perseus", logs.output[0])
                self.assertFalse(handle.is_attached)

    def test_it_proves_itself(self):
        handle = self.attach()
        schedules.backward_step = ORIGINALS["backward_step"]
        with self.assertLogs("perseus") as logs:
            self.job.run_step(2)
        self.assertIn("2 forwards, 0 backwards", logs.output[0])
        self.assertFalse(handle.is_attached)

    def test_a_function_taken_too_early_is_a_warning(self):
        early = schedules.get_forward_backward_func()
        handle = self.attach()
        with mock.patch.object(schedules, "get_forward_backward_func", lambda: early):
            with self.assertLogs("perseus") as logs:
                self.job.run_step(2)
                self.job.run_step(2)
        self.assertEqual(len(logs.output), 1)
        self.assertIn("get_forward_backward_func", logs.output[0])
        self.assertIsNone(handle.session)

    @works("megatron-core", "refused: a pipeline of several modules")
    def test_a_pipeline_of_several_modules_is_refused(self):
        """The pipeline rank of one of its modules is not that of the whole pipeline."""
        one_module = types.SimpleNamespace(pp=group(1, 2), tp=group(0, 1), cp=group(0, 1))
        several = types.SimpleNamespace(module_to_grid_map={"encoder": None, "llm": None})
        for named in (
            {"p2p_communicator": several, "pg_collection": one_module},
            {"pg_collection": types.SimpleNamespace(module_collections={})},
        ):
            name, calls = adapter._STEPS[-1], []
            original = mock.Mock(side_effect=lambda **named: calls.append(named))
            with self.subTest(named), mock.patch.object(schedules, name, original):
                with mock.patch.object(adapter.Probe, "method"):  # A mock has no parameters.
                    handle = self.attach()
                with self.assertLogs("perseus") as logs:
                    for _ in range(2):
                        getattr(schedules, name)(num_microbatches=2, model=None, **named)
                self.assertEqual(len(logs.output), 1)
                self.assertIn("several modules share a pipeline", logs.output[0])
                self.assertEqual(len(calls), 2)
                self.assertFalse(handle.is_attached)

    @works("megatron-core", "whole steps only: overlapped forward and backward")
    def test_a_forward_that_overlaps_a_backward_is_a_warning(self):
        """The schedule of overlapped experts needs GPUs. Its place is taken by a function."""

        def combined(*arguments):
            return [], arguments[12]

        name = "combined_1f1b_schedule_for_no_pipelining"
        with mock.patch.object(schedules, name, combined), \
                mock.patch.object(self.job.config, "overlap_moe_expert_parallel_comm", True):  # fmt: skip
            handle = self.attach()
            with self.assertLogs("perseus") as logs:
                for _ in range(2):
                    self.job.run_step(2)
            handle.detach()
        self.assertEqual(len(logs.output), 1)
        self.assertIn("only whole steps", logs.output[0])
        self.assertEqual(self.recorded(), [[], []])

    def test_no_tensor_is_kept_alive(self):
        self.attach()
        outputs = []
        original = train.forward_step

        def forward_step(batches, stage):
            output, loss = original(batches, stage)
            outputs.append(weakref.ref(output))
            return output, loss

        with mock.patch.object(train, "forward_step", forward_step):
            self.job.run_step(3)
        self.assertEqual([output() for output in outputs], [None] * 3)

    def test_ranks(self):
        state = types.SimpleNamespace(
            get_pipeline_model_parallel_rank=lambda: 1,
            get_pipeline_model_parallel_world_size=lambda: 4,
            get_tensor_model_parallel_rank=lambda: 1,
            get_tensor_model_parallel_world_size=lambda: 2,
            get_context_parallel_rank=lambda: 3,
            get_data_parallel_rank=lambda: 5,
        )
        pipeline = adapter._Pipeline("megatron-core", state, {})
        pipeline._chunks = 2
        found = pipeline._ranks()
        self.assertEqual((found.pp_rank, found.pp_ranks, found.stages), (1, 4, (1, 5)))
        self.assertEqual((found.dp_rank, found.tp_rank), (5, 3 * 2 + 1))

        groups = types.SimpleNamespace(
            pp=group(2, 4), tp=group(0, 2), cp=group(1, 2), dp_cp=group(7, 8)
        )
        pipeline._groups = groups
        found = pipeline._ranks()
        self.assertEqual((found.pp_rank, found.stages), (2, (2, 6)))
        self.assertEqual((found.dp_rank, found.tp_rank), (3, 2))

    def test_outputs_that_other_code_replaces(self):
        """Then the oldest forward of the chunk counts."""
        handle = self.attach()
        original = schedules.forward_step

        def forward_step(*arguments, **named):
            output, tokens = original(*arguments, **named)
            return output * 1, tokens

        with mock.patch.object(schedules, "forward_step", forward_step):
            self.job.run_step(3)
        self.assertTrue(handle.is_attached)
        handle.detach()
        step = [(kind, i) for i in range(3) for kind in ("forward", "backward")]
        self.assertEqual(self.recorded(), [step])

    def test_the_id_of_a_freed_output_returns(self):
        """A tensor that has it is not that output."""
        pipeline = adapter._Pipeline("megatron-core", None, {})
        pipeline._waiting = [[]]
        outputs = [torch.zeros(1), torch.zeros(1)]
        for microbatch, output in enumerate(outputs):
            pipeline._remember((output, 1), (0, microbatch))
        # Python's memory manager decides when an id is used again. So the test moves the entry
        # instead.
        freed, later = outputs.pop(0), torch.zeros(1)
        pipeline._of_output[id(later)] = pipeline._of_output.pop(id(freed))
        del freed
        self.assertEqual(pipeline._recall(torch.zeros(1)), (0, 0))
        self.assertEqual(pipeline._recall(later), (0, 1))

    def test_signatures_stay(self):
        before = inspect.signature(ORIGINALS["forward_step"])
        self.attach()
        self.assertEqual(inspect.signature(schedules.forward_step), before)

    @works("megatron-core", "attached by the import hook")
    def test_without_a_change_of_the_program(self):
        self.check_unchanged_example("megatron", batch=BATCH)


if __name__ == "__main__":
    unittest.main()

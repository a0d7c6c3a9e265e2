"""What the adapter of torch.distributed.pipelining records and measures, in one process."""

import json
import os
import types
import unittest
import unittest.mock

import torch
from torch.distributed.pipelining import schedules as torch_schedules
from torch.utils.checkpoint import checkpoint

import tiny_gpt
from observed import hooks_of, read_log
from torch_one_process import MICROBATCHES, TorchTest
from works import works


class StepsTest(TorchTest):
    @works("torch", "evaluation between steps")
    def test_evaluation_between_steps_is_not_recorded(self):
        schedule = self.make("GPipe")
        handle = self.attach(schedule)
        inputs, targets = tiny_gpt.batch(0, MICROBATCHES)
        for _ in range(2):
            self.step(schedule)
            with torch.no_grad():
                schedule.eval(inputs, target=targets)
        self.assertEqual(handle.session.counters.steps, 2)
        handle.detach()
        self.assertEqual([len(step) for step in self.recorded()], [2 * MICROBATCHES] * 2)

    @works("torch", "several schedules of the same stages")
    def test_batch_ramp_up_with_a_second_schedule_of_the_same_stages(self):
        schedule = self.make("GPipe")
        stages = tiny_gpt.stages_of(schedule)
        larger = torch_schedules.ScheduleGPipe(stages[0], 6, loss_fn=tiny_gpt.loss_of)
        handles = [self.attach(schedule), self.attach(larger)]
        for _ in range(4):
            self.step(schedule)
        # As in a job that changes the batch, torch makes other buffers.
        stages[0]._inference_mode = None
        for _ in range(4):
            self.step(larger, 6)
        self.assertTrue(all(handle.is_attached for handle in handles))
        self.assertEqual(handles[1].session.counters.steps, 8)
        handles[0].detach()
        self.assertTrue(handles[1].is_attached)
        handles[1].detach()
        self.assertEqual([len(step) for step in self.recorded()], [8] * 4 + [12] * 4)
        self.assertEqual(hooks_of(stages[0]), [])

    @works("torch", "refused: a second pipeline on a rank")
    def test_another_pipeline_on_the_same_rank_is_refused_once(self):
        first, second = self.make(), self.make()
        handles = [self.attach(first), self.attach(second)]
        self.step(first)
        warnings = self.warnings_of(lambda: [self.step(second) for _ in range(2)])
        self.assertEqual(len(warnings), 1)
        self.assertIn("another attached pipeline", warnings[0])
        self.assertTrue(handles[0].is_attached)
        self.assertFalse(handles[1].is_attached)

    @works("torch", "a pipeline that is made again")
    def test_a_pipeline_that_is_made_again_takes_over(self):
        first = self.make()
        module = tiny_gpt.stages_of(first)[0].submod
        second = self.make(module=lambda *_: module)
        handles = [self.attach(first), self.attach(second)]
        self.step(first)
        self.step(second)
        self.assertFalse(handles[0].is_attached)
        self.assertEqual(handles[1].session.counters.steps, 1)

    def test_a_second_attachment_continues_the_record(self):
        schedule = self.make()
        for steps in (1, 6):
            handle = self.attach(schedule)
            for _ in range(steps):
                self.step(schedule)
            self.assertEqual(handle.session.counters.steps, steps)
            handle.detach()
        _, steps = read_log(self.scratch / "ranks" / "dp0-pp0-tp0.jsonl")
        self.assertEqual([step["step"] for step in steps], list(range(7)))

    @works("torch", "activation checkpointing, torch.compile of a stage")
    def test_activation_checkpointing_and_compiled_stages(self):
        class Checkpointed(tiny_gpt.StageModule):
            def forward(self, x):
                if self.embed is not None:
                    x = self.embed(x)
                x = checkpoint(self.block, x, use_reentrant=False)
                return x if self.head is None else self.head(x)

        def compiled(*arguments):
            return torch.compile(tiny_gpt.StageModule(*arguments), backend="eager")

        for module in (Checkpointed, compiled):
            with self.subTest(module=module.__name__):
                schedule = self.make("Interleaved1F1B", module=module)
                handle = self.attach(schedule)
                for _ in range(4):
                    self.step(schedule)
                self.assertTrue(handle.is_attached)
                self.assertEqual(handle.session.counters.instructions, 4 * 4 * MICROBATCHES)
                handle.detach()

    @works("torch", "several steps of the schedule in one step of the optimizer")
    def test_gradient_accumulation(self):
        def train(attached):
            schedule = self.make("Interleaved1F1B")
            handle = self.attach(schedule) if attached else None
            parameters = [p for s in tiny_gpt.stages_of(schedule) for p in s.submod.parameters()]
            optimizer = torch.optim.SGD(parameters, lr=0.1)
            losses = []
            for _ in range(2):
                optimizer.zero_grad()
                for accumulated in range(3):
                    losses += tiny_gpt.run_step(schedule, accumulated, MICROBATCHES)
                optimizer.step()
            return losses, [p.tolist() for p in parameters], handle

        losses, parameters, handle = train(True)
        self.assertEqual(handle.session.counters.steps, 6)
        handle.detach()
        self.assertEqual(train(False)[:2], (losses, parameters))
        self.assertEqual([len(step) for step in self.recorded()], [4 * MICROBATCHES] * 6)

    @works("torch", "found and said once: a step that is captured into a CUDA graph, and its replays")
    def test_cuda_graphs(self):
        """A fake capture, as this machine has no GPU: a replay runs no Python of the schedule."""
        schedule = self.make("GPipe")
        handle = self.attach(schedule)
        for _ in range(3):
            self.step(schedule)
        with unittest.mock.patch.multiple(
            torch.cuda, is_initialized=lambda: True, is_current_stream_capturing=lambda: True
        ):
            warnings = self.warnings_of(lambda: [self.step(schedule) for _ in range(2)])
        self.assertEqual(len(warnings), 1)
        self.assertIn("captured into a CUDA graph", warnings[0])
        self.step(schedule)
        self.assertEqual(handle.session.counters.steps, 4)
        nothing = lambda *_, **__: None  # noqa: E731
        with unittest.mock.patch.multiple(
            schedule, _step_microbatches=nothing, _merge_outputs=nothing
        ):
            warnings = self.warnings_of(lambda: [self.step(schedule) for _ in range(2)])
        self.assertEqual(len(warnings), 1)
        self.assertIn("had no instructions", warnings[0])
        self.assertTrue(handle.is_attached)
        handle.detach()
        self.assertEqual([len(step) for step in self.recorded()], [2 * MICROBATCHES] * 4 + [0] * 2)

    def test_the_last_forward_contains_the_loss(self):
        seen = []

        def loss(output, target):
            seen.append(handle._recorder._is_open)
            return tiny_gpt.loss_of(output, target)

        schedule = self.make()
        schedule._loss_fn = loss
        handle = self.attach(schedule)
        self.step(schedule)
        self.step(schedule)
        self.assertEqual(seen[-MICROBATCHES:], [True] * MICROBATCHES)

    @works("torch", "custom functions, as of torchtitan's GraphPP")
    def test_custom_functions_are_recorded(self):
        """As torchtitan's GraphPP: they compute without the methods of the stage."""
        schedule = self.make("Interleaved1F1B")
        by_index = {stage.stage_index: stage for stage in tiny_gpt.stages_of(schedule)}

        def forward(action, context):
            stage, i = by_index[action.stage_index], action.microbatch_index
            output = type(stage).forward_one_chunk(stage, i, context.arg_mbs[i], {})
            context.schedule_ref._maybe_compute_loss(stage, output, context.target_mbs, i)
            if action.stage_index + 1 in by_index:
                by_index[action.stage_index + 1].set_local_fwd_input(output, i)

        handle = self.attach(schedule)
        schedule.register_custom_function(torch_schedules.FORWARD, forward)
        for _ in range(4):
            self.step(schedule)
        self.assertTrue(handle.is_attached)
        self.assertEqual(handle.session.counters.instructions, 4 * 4 * MICROBATCHES)
        handle.detach()
        self.assertIs(schedule._comp_type_to_function_map[torch_schedules.FORWARD], forward)

    @works("torch", "refused: overlapped forward and backward")
    def test_overlapped_forward_and_backward_are_refused(self):
        schedule = self.make("Interleaved1F1B")
        handle = self.attach(schedule)
        schedule.register_custom_function(torch_schedules.OVERLAP_F_B, lambda *_: None)
        warnings = self.warnings_of(lambda: [self.step(schedule) for _ in range(2)])
        self.assertEqual(len(warnings), 1)
        self.assertIn("OVERLAP_F_B", warnings[0])
        self.assertFalse(handle.is_attached)


class MemoryTest(TorchTest):
    """The functions of torch.cuda are replaced, because the tests run on the CPU."""

    MODEL, ACTIVATIONS = 1000, 70
    CPU = torch.device("cpu")  # The device of the stages.

    class Keeping(torch.nn.Module):
        """Keeps memory of a fake allocator in forward, and frees it in backward."""

        def __init__(self):
            super().__init__()
            self.allocated = self.most = MemoryTest.MODEL

        def forward(self, x):
            self.allocated += MemoryTest.ACTIVATIONS
            self.most = max(self.most, self.allocated)
            x = x.view_as(x)
            x.register_hook(self._free)
            return x

        def _free(self, gradient):
            self.allocated -= MemoryTest.ACTIVATIONS

    def run_steps(self, steps):
        keeping = self.Keeping()
        schedule = self.make(extra=lambda index: keeping)
        cuda = dict(
            is_available=lambda: True,
            is_initialized=lambda: True,
            # Other devices, such as the current device, do other work.
            memory_allocated=lambda device=None: keeping.allocated if device == self.CPU else -1,
            max_memory_allocated=lambda device=None: keeping.most if device == self.CPU else -1,
        )
        with unittest.mock.patch.multiple(torch.cuda, **cuda):
            handle = self.attach(schedule)
            for _ in range(steps):
                self.step(schedule)
                # torch infers shapes in the first step, with a forward that has no backward.
                keeping.allocated = self.MODEL
            handle.detach()
        return self.scratch / "ranks" / "dp0-pp0-tp0.memory.json"

    def test_activations_and_model_are_measured_in_the_third_and_fourth_step(self):
        self.assertFalse(self.run_steps(3).exists())
        measured = json.loads(self.run_steps(4).read_text())
        self.assertEqual(
            measured,
            {
                "perseus_rank_memory": 1,
                "activation_bytes": [self.ACTIVATIONS],
                "model_bytes": self.MODEL,
                # With 1F1B, one rank holds one microbatch at a time. One more is held for the
                # shapes.
                "peak_bytes": self.MODEL + 2 * self.ACTIVATIONS,
            },
        )
        self.assertEqual(len(self.recorded()), 3 + 4)

    def test_without_cuda_nothing_is_measured(self):
        schedule = self.make()
        self.attach(schedule)
        for _ in range(5):
            self.step(schedule)
        self.assertEqual(list(self.scratch.glob("ranks/*.memory.json")), [])

    def test_no_link_is_followed(self):
        ranks = self.scratch / "ranks"
        ranks.mkdir(parents=True)
        victim = self.scratch / "victim"
        victim.write_text("secret")
        for name in (f"dp0-pp0-tp0.memory.{os.getpid()}.tmp", "dp0-pp0-tp0.memory.json"):
            (ranks / name).symlink_to(victim)
        self.assertIn("activation_bytes", json.loads(self.run_steps(4).read_text()))
        self.assertEqual(victim.read_text(), "secret")

    def test_a_file_that_cannot_be_written_is_one_warning(self):
        (self.scratch / "ranks" / "dp0-pp0-tp0.memory.json").mkdir(parents=True)
        warnings = self.warnings_of(lambda: self.run_steps(6))
        self.assertEqual(len(warnings), 1)
        self.assertIn("the measured memory cannot be written", warnings[0])
        self.assertEqual(len(self.recorded()), 6)


class DevicesTest(TorchTest):
    def test_a_gpu_is_found_by_its_uuid_and_the_current_stream_is_used(self):
        from perseus.adapters import _devices

        device = torch.device("cuda:1")
        uuid = "01234567-89ab-cdef-0123-456789abcdef"
        properties = types.SimpleNamespace(uuid=uuid)
        with unittest.mock.patch.object(
            torch.cuda, "get_device_properties", return_value=properties
        ), unittest.mock.patch.object(torch.cuda, "current_stream", side_effect=["a", "b"]):
            self.assertEqual(_devices.gpu_of(device), f"GPU-{uuid}")
            stream = _devices.current_stream(device)
            self.assertEqual([stream(), stream()], ["a", "b"])
        self.assertIsNone(_devices.current_stream(torch.device("cpu")))

    def gpu_of(self, uuid, name, hip=None):
        from perseus.adapters import _devices

        properties = types.SimpleNamespace(uuid=uuid, name=name)
        with unittest.mock.patch.object(
            torch.cuda, "get_device_properties", return_value=properties
        ), unittest.mock.patch.object(torch.version, "hip", hip):
            return _devices.gpu_of(torch.device("cuda:0"))

    def test_a_mig_instance_is_named_as_one(self):
        uuid = "01234567-89ab-cdef-0123-456789abcdef"
        self.assertEqual(self.gpu_of(uuid, "NVIDIA A100-SXM4-40GB MIG 1g.5gb"), f"MIG-{uuid}")
        self.assertEqual(self.gpu_of(f"MIG-{uuid}", "NVIDIA A100-SXM4-40GB"), f"MIG-{uuid}")
        self.assertEqual(self.gpu_of(uuid, "NVIDIA A100-SXM4-40GB"), f"GPU-{uuid}")

    def test_an_amd_gpu_is_found_by_its_unique_id(self):
        of_hip = "37626561-6331-3233-3435-363738396566"  # The characters of the unique id.
        name = "AMD Instinct MI300X"
        self.assertEqual(self.gpu_of(of_hip, name, "6.4"), "GPU-7beac123456789ef")
        self.assertEqual(self.gpu_of("0" * 32, name, "6.4"), "GPU-" + "0" * 32)

    def test_the_current_gpu_may_be_chosen_after_the_first_call(self):
        from perseus.adapters import _devices

        stream = _devices.stream_of_current_gpu()
        with unittest.mock.patch.multiple(
            torch.cuda, is_initialized=lambda: False, current_stream=lambda: "stream"
        ):
            self.assertIsNone(stream())
            with unittest.mock.patch.object(torch.cuda, "is_initialized", lambda: True):
                self.assertEqual(stream(), "stream")


if __name__ == "__main__":
    unittest.main()

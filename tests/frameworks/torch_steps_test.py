"""Every way in which a program runs a step of torch.distributed.pipelining is recorded, or a warning
says that it is not."""

import functools
import logging
import shutil
import unittest
import unittest.mock

import torch
from torch.distributed.pipelining import schedules as torch_schedules

import tiny_gpt
from perseus.adapters import _outside
from torch_one_process import MICROBATCHES, TorchTest, parameters_of
from works import works

STEP = 2 * MICROBATCHES  # Instructions of a step of one stage.


def split(schedule, inputs, target):
    """What step() of torch does before it calls _step_microbatches()."""
    schedule._stage.has_backward = schedule._has_backward
    schedule._stage.clear_runtime_states()
    parts, named = schedule._split_inputs((inputs,), {})
    return parts, named, list(torch.tensor_split(target, schedule._n_microbatches))


class Own(torch_schedules.Schedule1F1B):
    """Does not call step() of its base class, as xtuner."""

    def step(self, inputs, target=None, losses=None):
        self._step_microbatches(*split(self, inputs, target), losses)


class Loop(torch_schedules.ScheduleGPipe):
    """Computes in step() itself."""

    def step(self, *arguments, **named):
        self.compute(*arguments, **named)

    def compute(self, inputs, target=None, losses=None):
        parts, named, targets = split(self, inputs, target)
        self._initialize_stage(parts[0], named[0], targets[0])
        for i in range(self._n_microbatches):
            output = self._stage.forward_one_chunk(i, parts[i], named[i])
            self._maybe_compute_loss(self._stage, output, targets, i)
        for i in range(self._n_microbatches):
            loss = self._maybe_get_loss(self._stage, i)
            self._stage.backward_one_chunk(i, loss=loss, last_backward=i + 1 == self._n_microbatches)
        self._stage.scale_grads(self._n_microbatches)
        self._update_losses(self._stage, losses)


class Accumulating(torch_schedules.Schedule1F1B):
    """A step has two passes of the schedule, and evaluations before, between and after them."""

    def step(self, inputs, target=None, losses=None):
        for _ in range(2):
            self.evaluate(inputs, target)
            super().step(inputs, target=target, losses=losses)
        self.evaluate(inputs, target)

    def evaluate(self, inputs, target):
        with torch.no_grad(), unittest.mock.patch.object(self, "_has_backward", False):
            super().step(inputs, target=target)


class Repeating(torch_schedules.Schedule1F1B):
    """Tries a step again that has failed."""

    fails = False

    def step(self, *arguments, **named):
        type(self).fails = True
        try:
            super().step(*arguments, **named)
        except ArithmeticError:
            super().step(*arguments, **named)

    def _maybe_compute_loss(self, stage, output, target_mbs, mb_index, *arguments):
        super()._maybe_compute_loss(stage, output, target_mbs, mb_index, *arguments)
        if mb_index == 1 and self.fails:
            type(self).fails = False
            self._internal_losses.clear()
            raise ArithmeticError


class Wrapping(torch_schedules.PipelineScheduleSingle):
    """Another schedule of the same stage computes."""

    def __init__(self, inner):
        super().__init__(inner._stage, inner._n_microbatches, loss_fn=inner._loss_fn)
        self.inner = self.hold(inner)

    @staticmethod
    def hold(inner):
        return {"train": inner}

    def _step_microbatches(self, *arguments, **named):
        return self.inner["train"]._step_microbatches(*arguments, **named)


class WrappingUnseen(Wrapping):
    """Perseus does not see the other schedule, which computes the loss."""

    @staticmethod
    def hold(inner):
        return lambda: inner

    def _step_microbatches(self, *arguments, **named):
        return self.inner()._step_microbatches(*arguments, **named)


class WrappingOnly(torch_schedules._PipelineSchedule):
    """Has nothing of its own but the other schedule."""

    def __init__(self, inner):
        self.inner = self._schedule = inner
        self._stage = inner._stage

    def step(self, *arguments, **named):
        return self.inner.step(*arguments, **named)

    def _step_microbatches(self, *arguments, **named):
        raise AssertionError("not called")


def make(name, inner=torch_schedules.ScheduleGPipe):
    """A schedule of this class of one stage. `inner`: the class that it wraps."""
    stage = tiny_gpt.stages_of(tiny_gpt.make_schedule("GPipe", 0, 1, MICROBATCHES))[0]
    cls, is_wrapping = globals()[name], name.startswith("Wrapping")
    schedule = (inner if is_wrapping else cls)(stage, MICROBATCHES, loss_fn=tiny_gpt.loss_of)
    return cls(schedule) if is_wrapping else schedule


class StepsTest(TorchTest):
    def train(self, schedule, run=tiny_gpt.run_step):
        """Returns all that is computed in four steps."""
        found = [run(schedule, step, MICROBATCHES) for step in range(4)]
        return found, [parameter.grad.tolist() for parameter in parameters_of(schedule)]

    def check(self, make, steps=4, warning=None, **named):
        """The same is computed with and without Perseus, and these steps are recorded."""
        expected = self.train(make(), **named)
        schedule = make()
        handle = self.attach(schedule)
        with self.assertLogs("perseus", "WARNING") as logs:
            logging.getLogger("perseus").warning("the first one")
            self.assertEqual(self.train(schedule, **named), expected)
        self.assertEqual(len(logs.output), 1 if warning is None else 2, logs.output)
        self.assertIn(warning or "the first one", logs.output[-1])
        self.assertTrue(handle.is_attached)
        self.assertEqual(handle.session.counters.steps, steps)
        handle.detach()
        self.assertEqual([len(step) for step in self.recorded()], [STEP] * steps)
        shutil.rmtree(self.scratch / "ranks")  # The next session of this process would continue it.

    @works("torch", "subclasses with a step() of their own")
    def test_a_subclass_with_a_step_of_its_own(self):
        for name in ("Own", "Loop"):
            with self.subTest(name=name):
                self.check(functools.partial(make, name))

    @works("torch", "calls of _step_microbatches() by the program")
    def test_microbatches_that_the_program_splits(self):
        def run(schedule, step, microbatches):
            losses = []
            inputs, target = tiny_gpt.batch(step, microbatches)
            if step == 2:  # An evaluation.
                with torch.no_grad():
                    schedule._step_microbatches(*split(schedule, inputs, target), losses)
            else:
                schedule._step_microbatches(*split(schedule, inputs, target), losses)
            return [loss.item() for loss in losses]

        self.check(lambda: self.make("GPipe"), steps=3, run=run)

    @works("torch", "a step() that runs several passes of the schedule, and evaluations")
    def test_passes_and_evaluations_in_one_step(self):
        self.check(functools.partial(make, "Accumulating"), steps=8)

    def test_a_step_that_is_tried_again(self):
        self.check(functools.partial(make, "Repeating"))

    @works("torch", "a schedule that wraps another one")
    def test_a_schedule_that_wraps_another(self):
        """The last forward ends before the rank waits for the next one."""
        for name in ("Wrapping", "WrappingOnly", "WrappingUnseen"):
            for inner in (torch_schedules.ScheduleGPipe, torch_schedules.Schedule1F1B):
                with self.subTest(name=name, inner=inner.__name__):
                    open_at = []

                    def watched(name=name, inner=inner, open_at=open_at):
                        schedule = make(name, inner)
                        self.watch(schedule._stage, "get_fwd_recv_ops", open_at)
                        self.watch(schedule._stage, "get_bwd_recv_ops", open_at)
                        return schedule

                    is_unseen = name == "WrappingUnseen"
                    self.check(watched, warning="the loss" if is_unseen else None)
                    # Only behind the first forward, Perseus still waits for the loss.
                    self.assertEqual(sum(open_at), 1 if is_unseen else 0)

    def watch(self, stage, name, open_at):
        """Notes at each call whether an instruction is open."""
        original = getattr(stage, name)

        def watched(*arguments):
            recorder = self.handles[-1]._recorder if self.handles else None
            open_at.append(recorder is not None and recorder._is_open)
            return original(*arguments)

        setattr(stage, name, watched)

    def test_a_stage_that_computes_outside_of_a_step_is_one_warning(self):
        schedule = make("Loop")
        handle = self.attach(schedule)
        with unittest.mock.patch.object(_outside, "_has_warned", False):
            warnings = self.warnings_of(
                lambda: [
                    tiny_gpt.run_step(schedule, step, MICROBATCHES, schedule.compute)
                    for step in range(3)
                ]
            )
        self.assertEqual(len(warnings), 1)
        self.assertIn("a stage runs a backward outside of a step", warnings[0])
        self.assertIsNone(handle.session)
        self.assertTrue((self.scratch / "ranks" / "dp0-pp0-tp0.outside").exists())
        self.step(schedule)
        self.assertEqual(handle.session.counters.steps, 1)


if __name__ == "__main__":
    unittest.main()

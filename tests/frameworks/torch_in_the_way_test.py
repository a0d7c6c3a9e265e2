"""The adapter of torch.distributed.pipelining never gets in the way of training."""

import contextlib
import copy
import functools
import gc
import logging
import pickle
import shutil
import sys
import types
import unittest
import unittest.mock
import weakref

import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules as torch_schedules
from torch.distributed.pipelining import stage as torch_stage

import perseus
import tiny_gpt
from observed import OFF, hooks_of
from torch_one_process import MICROBATCHES, TorchTest, parameters_of
from works import works


class Passing(torch.nn.Module):
    """A layer that raises on demand, in forward or in backward."""

    def __init__(self):
        super().__init__()
        self.raises = None

    def forward(self, x):
        if self.raises == "forward":
            raise ArithmeticError("of the model")
        if self.raises == "backward" and x.requires_grad:
            x = x.view_as(x)
            x.register_hook(self._fail)
        return x

    @staticmethod
    def _fail(gradient):
        raise ArithmeticError("of the model")


def pickle_and_back(value):
    return pickle.loads(pickle.dumps(value))


class Interrupts:
    """Raises KeyboardInterrupt in these lines of the adapter, counted as they run."""

    def __init__(self, places):
        self.places = places
        self.count = 0  # The number of raised interrupts.
        self._line = 0

    def __enter__(self):
        sys.settrace(self._trace)
        return self

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if "/perseus/adapters/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            self._line += 1
            if self._line in self.places:
                self.count += 1
                # If a trace function raises, Python stops tracing it.
                sys.settrace(self._trace)
                raise KeyboardInterrupt
        return self._trace


class NeverInTheWayTest(TorchTest):
    def check_refused(self, schedule, *texts):
        """Attaching is one warning with these texts."""
        warnings = self.warnings_of(lambda: self.attach(schedule))
        self.assertEqual(len(warnings), 1)
        for text in texts:
            self.assertIn(text, warnings[0])
        self.assertFalse(self.handles[-1].is_attached)

    @works("torch", "exceptions of the model")
    def test_exceptions_of_the_model_pass_unchanged(self):
        for where in ("forward", "backward", "loss"):
            with self.subTest(where=where):
                layer = Passing()
                schedule = self.make("Interleaved1F1B", extra=lambda _: layer)
                handle = self.attach(schedule)
                expected = self.step(schedule)
                layer.raises = where

                def failing_loss(*_):
                    raise ArithmeticError("of the model")

                if where == "loss":
                    schedule._loss_fn = failing_loss
                with self.assertRaises(Exception) as caught, self.assertNoLogs("perseus"):
                    self.step(schedule)
                error = caught.exception
                self.assertIn("of the model", repr(error) + repr(error.__cause__))
                layer.raises = None
                schedule._loss_fn = tiny_gpt.loss_of
                schedule._internal_losses.clear()
                self.assertEqual(self.step(schedule), expected)
                counters = handle.session.counters
                self.assertEqual((counters.steps, counters.steps_abandoned), (2, 1))
                handle.detach()
                # The abandoned step left no instruction behind.
                self.assertEqual(len(self.recorded()[-1]), 4 * MICROBATCHES)

    def test_a_missing_name_is_one_warning_and_nothing_is_attached(self):
        def rename(owner, name):
            """Renames the first parameter of a method, as a later version might."""
            original = getattr(owner, name)

            def method(self, other, *arguments):
                return original(other, *arguments)

            setattr(owner, name, types.MethodType(method, owner))

        stage_of = lambda schedule: tiny_gpt.stages_of(schedule)[0]  # noqa: E731
        cases = {
            "_n_microbatches": lambda s: setattr(s, "_n_microbatches", "4"),
            "_has_backward": lambda s: setattr(s, "_has_backward", None),
            "_stages": lambda s: setattr(s, "_stages", None),
            "_maybe_compute_loss": lambda s: rename(s, "_maybe_compute_loss"),
            "_comp_type_to_function_map": lambda s: setattr(s, "_comp_type_to_function_map", []),
            **{
                name: lambda s, name=name: rename(stage_of(s), name)
                for name in (
                    "forward_one_chunk", "backward_one_chunk", "backward_weight_one_chunk"
                )
            },
            **{
                name: lambda s, name=name: setattr(stage_of(s), name, None)
                for name in ("stage_index", "num_stages", "group_rank", "group_size")
            },
            **{
                name: lambda s, name=name: delattr(stage_of(s), name)
                for name in ("device", "group", "submod")
            },
        }
        for name, break_it in cases.items():
            with self.subTest(name=name):
                schedule = self.make("Interleaved1F1B")
                owners = [schedule, stage_of(schedule)]
                break_it(schedule)
                before = [(type(owner), list(vars(owner))) for owner in owners]
                self.check_refused(schedule, name, f"torch {torch.__version__}", "perseus.instruction")
                self.assertEqual(before, [(type(owner), list(vars(owner))) for owner in owners])

    def test_what_cannot_be_broken_on_an_object_is_broken_on_its_class(self):
        schedule = self.make("Interleaved1F1B")
        stage = tiny_gpt.stages_of(schedule)[0]

        def missing(self):
            raise AttributeError("gone")

        def backward_one_chunk(self, bwd_chunk_id, loss, other=True):
            """Without `full_backward`."""

        without_step = unittest.mock.PropertyMock(return_value=None)
        broken = {
            "is_last": (type(stage), property(missing)),
            "full_backward": (type(stage), backward_one_chunk),
            "step": (type(schedule), without_step),
            "_ComputationType": (torch_schedules, None),
        }
        for name, (owner, value) in broken.items():
            attribute = "backward_one_chunk" if name == "full_backward" else name
            patch = unittest.mock.patch.object(owner, attribute, value, create=True)
            with self.subTest(name=name), patch:
                if value is None:
                    delattr(owner, attribute)
                self.check_refused(schedule, name)
                self.assertEqual(hooks_of(stage), [])

    def test_a_missing_kind_of_action_is_a_warning(self):
        members = dict(torch_schedules._ComputationType.__members__)
        for name in ("FORWARD", "FULL_BACKWARD", "BACKWARD_INPUT", "BACKWARD_WEIGHT", "OVERLAP_F_B"):
            schedule = self.make("Interleaved1F1B")
            types_ = types.SimpleNamespace(
                __members__={key: value for key, value in members.items() if key != name}
            )
            with self.subTest(name=name), unittest.mock.patch.object(
                torch_schedules, "_ComputationType", types_
            ):
                self.check_refused(schedule, name)

    def test_a_schedule_that_bypasses_the_stage_methods_is_detached(self):
        class Bypass(torch_schedules.ScheduleGPipe):
            def _step_microbatches(self, *arguments, **named):
                original = forward_one_chunk.__get__(self._stage)
                with unittest.mock.patch.object(self._stage, "forward_one_chunk", original):
                    return super()._step_microbatches(*arguments, **named)

        forward_one_chunk = torch_stage.PipelineStage.forward_one_chunk
        stage = tiny_gpt.stages_of(self.make("GPipe"))[0]
        schedule = Bypass(stage, MICROBATCHES, loss_fn=tiny_gpt.loss_of)
        handle = self.attach(schedule)
        warnings = self.warnings_of(lambda: [self.step(schedule) for _ in range(2)])
        self.assertEqual(len(warnings), 1)
        self.assertIn("ran 0 forwards, 4 backwards", warnings[0])
        self.assertFalse(handle.is_attached)
        self.assertEqual(hooks_of(schedule), [])

    def test_an_error_of_perseus_is_one_warning(self):
        schedule = self.make()
        handle = self.attach(schedule, no_such_option=1)
        warnings = self.warnings_of(lambda: [self.step(schedule) for _ in range(3)])
        self.assertEqual(len(warnings), 1)
        self.assertIn("no_such_option", warnings[0])
        self.assertFalse(handle.is_attached)

    def test_an_object_of_no_framework_is_one_warning(self):
        for target in (object(), "no framework", None):
            self.check_refused(target)

    def test_hooks_of_others_on_top_stay(self):
        schedule = self.make()
        handle = self.attach(schedule)
        stage, calls = tiny_gpt.stages_of(schedule)[0], []
        ours = stage.forward_one_chunk

        def theirs(*arguments, **named):
            calls.append(arguments[0])
            return ours(*arguments, **named)

        stage.forward_one_chunk = theirs
        self.step(schedule)
        handle.detach()
        self.step(schedule)
        self.assertIs(vars(stage)["forward_one_chunk"], theirs)
        self.assertEqual(len(calls), 2 * MICROBATCHES)
        self.assertEqual(hooks_of(stage), [])

    @works("torch", "methods that other code has replaced before")
    def test_hooks_of_others_below_are_called(self):
        names = ("forward_one_chunk", "backward_one_chunk")
        for kind in ("function", "lambda", "partial", "object"):
            with self.subTest(kind=kind):
                schedule, calls = self.make(), []
                stage = tiny_gpt.stages_of(schedule)[0]

                def replace(name, kind=kind, stage=stage, calls=calls):
                    original = getattr(stage, name)

                    def theirs(*arguments, **named):
                        calls.append(name)
                        return original(*arguments, **named)

                    class Theirs:
                        def __call__(self, *arguments, **named):
                            return theirs(*arguments, **named)

                    theirs_of = {
                        "function": theirs,
                        "lambda": lambda *arguments, **named: theirs(*arguments, **named),
                        "partial": functools.partial(theirs),
                        "object": Theirs(),
                    }
                    setattr(stage, name, theirs_of[kind])
                    return theirs_of[kind]

                replaced = [replace(name) for name in names]
                handle = self.attach(schedule)
                for _ in range(2):
                    self.step(schedule)
                self.assertTrue(handle.is_attached)
                self.assertEqual(handle.session.counters.instructions, 2 * 2 * MICROBATCHES)
                self.assertEqual(sorted(calls), sorted(2 * MICROBATCHES * names))
                handle.detach()
                self.assertEqual([vars(stage)[name] for name in names], replaced)
                self.assertEqual(hooks_of(stage), [])

    @works("torch", "copies and pickles of an attached schedule train themselves")
    def test_a_copy_of_an_attached_schedule_is_a_schedule_of_its_own(self):
        ways = {"GPipe": [copy.deepcopy, pickle_and_back], "Interleaved1F1B": [copy.deepcopy]}
        for name, way in ((name, way) for name in ways for way in ways[name]):
            with self.subTest(name=name, way=way.__name__):
                expected = self.step(self.make(name))
                schedule = self.make(name)
                handle = self.attach(schedule)
                # The copy comes before the first step, because torch copies no non-leaf tensors.
                other = way(schedule)
                self.assertEqual(self.step(other), expected)
                self.assertIsNone(handle.session)
                self.assertEqual([p.grad for p in parameters_of(schedule) if p.grad is not None], [])
                self.assertEqual(self.step(schedule), expected)
                self.assertEqual(handle.session.counters.steps, 1)
                with self.assertNoLogs("perseus"):
                    handle.detach()
                    self.step(other)
                    self.step(schedule)

    def test_a_shallow_copy_trains_itself(self):
        schedule = self.make("GPipe")
        handle = self.attach(schedule)
        calls = []

        def loss(output, target):
            calls.append(target)
            return tiny_gpt.loss_of(output, target)

        other = copy.copy(schedule)
        other._loss_fn = loss
        self.step(other)
        count = len(calls)
        self.assertGreater(count, 0)
        self.assertIsNone(handle.session)
        del schedule
        self.step(other)
        self.assertGreater(len(calls), count)

    @works("torch", "a bound step that outlives the name of its schedule")
    def test_a_bound_method_holds_its_schedule(self):
        schedule = self.make("GPipe")
        handle = self.attach(schedule)
        inputs, targets = tiny_gpt.batch(0, MICROBATCHES)
        train = schedule.step
        del schedule
        gc.collect()
        for _ in range(2):
            losses = []
            train(inputs, target=targets, losses=losses)
            self.assertEqual(len(losses), MICROBATCHES)
        self.assertEqual(handle.session.counters.steps, 2)

    def test_a_copy_of_a_handle_is_not_attached(self):
        trainer = types.SimpleNamespace(schedule=self.make("GPipe"))
        trainer.handle = self.attach(trainer.schedule)
        for way in (copy.copy, copy.deepcopy, pickle_and_back):
            with self.subTest(way=way.__name__):
                other = way(trainer.handle)
                self.assertFalse(other.is_attached)
                other.detach()
                self.step(trainer.schedule)
        self.assertFalse(copy.deepcopy(types.SimpleNamespace(handle=trainer.handle)).handle.is_attached)
        self.assertEqual(trainer.handle.session.counters.steps, 3)

    def test_a_schedule_that_cannot_be_hashed_or_compared(self):
        class Special(torch_schedules.ScheduleGPipe):
            def __eq__(self, other):
                raise AssertionError("not called")

        stage = tiny_gpt.stages_of(self.make("GPipe"))[0]
        schedule = Special(stage, MICROBATCHES, loss_fn=tiny_gpt.loss_of)
        handle = self.attach(schedule)
        self.step(schedule)
        self.assertEqual(handle.session.counters.steps, 1)
        self.assertIs(self.attach(schedule), handle)

    def test_handlers_of_logs_that_raise(self):
        """The program's logging may fail. Training and detach do not."""

        class Failing(logging.Handler):
            def emit(self, record):
                raise RuntimeError("of the handler")

        logger, handler = logging.getLogger("perseus"), Failing()
        logger.addHandler(handler)
        self.addCleanup(logger.removeHandler, handler)
        self.assertFalse(self.attach(object()).is_attached)
        schedule = self.make()
        handle = self.attach(schedule, no_such_option=1)
        self.step(schedule)
        self.assertFalse(handle.is_attached)
        first, second = self.make(), self.make()
        handles = [self.attach(first), self.attach(second)]
        self.step(first)
        self.step(second)
        self.assertEqual([handle.is_attached for handle in handles], [True, False])

    def test_a_pipeline_that_is_gone_refuses_no_other(self):
        """Its handle still lives. The ids of its modules may be those of the next pipeline."""
        for _ in range(3):
            schedule = self.make("GPipe")
            handle = self.attach(schedule)
            with self.assertNoLogs("perseus"):
                self.step(schedule)
            self.assertEqual(handle.session.counters.steps, 1)
            del schedule
            gc.collect()

    def test_a_relative_job_directory_is_that_of_attach(self):
        schedule = self.make("GPipe")
        elsewhere = self.scratch / "elsewhere"
        elsewhere.mkdir()
        with contextlib.chdir(self.scratch):
            handle = perseus.attach(schedule, job_directory="job", **OFF)
        with contextlib.chdir(elsewhere):
            self.step(schedule)
            handle.detach()
        self.assertTrue((self.scratch / "job" / "ranks").is_dir())
        self.assertEqual(list(elsewhere.iterdir()), [])

    def test_interrupts_at_any_place_of_the_adapter(self):
        """Two, as a terminal and a launcher send them. Training continues after that."""
        schedule = self.make("GPipe")
        stage = tiny_gpt.stages_of(schedule)[0]

        def clean_up():
            stage.clear_runtime_states()
            schedule._internal_losses.clear()

        place, is_beyond_the_end = 0, False
        while not is_beyond_the_end:
            place += 1
            handle = self.attach(schedule)
            self.step(schedule)
            interrupts = Interrupts([place, place + 1])
            with interrupts, contextlib.suppress(KeyboardInterrupt):
                self.step(schedule)
            is_beyond_the_end = interrupts.count == 0
            clean_up()
            with self.subTest(place=place), self.assertNoLogs("perseus"):
                for _ in range(2):
                    self.step(schedule)
                    clean_up()
                counters = handle.session.counters
                handle.detach()
                recorded = self.recorded()
                self.assertIn(counters.steps, (3, 4))
                self.assertEqual([len(step) for step in recorded], [2 * MICROBATCHES] * counters.steps)
            shutil.rmtree(self.scratch / "ranks")
        self.assertGreater(place, 100)

    def test_an_error_while_attaching_leaves_nothing_behind(self):
        from perseus.adapters import torch_pipelining

        schedule = self.make("Interleaved1F1B")
        original, seen = torch_pipelining._wrap_stage, []

        def wrap(recorder, stage, chunk):
            if seen:
                raise RuntimeError("ours")
            seen.append(stage)
            original(recorder, stage, chunk)

        with unittest.mock.patch.object(torch_pipelining, "_wrap_stage", wrap):
            self.check_refused(schedule)
        self.assertEqual(hooks_of(seen[0]), [])

    def test_an_error_of_the_import_hook_is_one_warning(self):
        from perseus.adapters import torch_pipelining

        schedule = self.make("GPipe")
        error = unittest.mock.Mock(side_effect=RuntimeError("ours"))
        with unittest.mock.patch.object(torch_pipelining, "_recorder_of", error):
            warnings = self.warnings_of(
                lambda: [torch_pipelining._auto_recorder(schedule) for _ in range(3)]
            )
        self.assertEqual(len(warnings), 1)
        self.assertEqual(error.call_count, 1)

    def test_detach_inside_of_a_step(self):
        schedule = self.make()
        handle = self.attach(schedule)
        self.step(schedule)

        def loss(output, target):
            handle.detach()
            return tiny_gpt.loss_of(output, target)

        schedule._loss_fn = loss
        self.step(schedule)
        self.step(schedule)
        self.assertFalse(handle.is_attached)
        self.assertEqual(len(self.recorded()), 1)

    def test_no_collective_and_no_synchronization(self):
        """Neither at attach, nor in the first step, nor later, nor at detach."""
        distributed = [
            "all_gather", "all_gather_into_tensor", "all_gather_object", "all_reduce", "all_to_all",
            "all_to_all_single", "barrier", "batch_isend_irecv", "broadcast",
            "broadcast_object_list", "gather", "gather_object", "irecv", "isend",
            "monitored_barrier", "new_group", "recv", "reduce", "reduce_scatter",
            "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
        ]  # fmt: skip
        watched = [(dist, name) for name in distributed]
        watched += [(dist.distributed_c10d, name) for name in distributed]
        watched += [(torch.cuda, "synchronize"), (torch.cpu, "synchronize")]

        def calls(attached):
            schedule = self.make("Interleaved1F1B")
            seen = []
            with contextlib.ExitStack() as patches:
                for owner, name in watched:
                    original = getattr(owner, name)

                    def watch(*arguments, name=name, original=original, **named):
                        seen.append(name)
                        return original(*arguments, **named)

                    patches.enter_context(unittest.mock.patch.object(owner, name, watch))
                handle = self.attach(schedule) if attached else None
                for _ in range(5):
                    self.step(schedule)
                if handle is not None:
                    self.assertEqual(handle.session.counters.steps, 5)
                    handle.detach()
            return seen

        self.assertEqual(calls(True), calls(False))

    def test_a_handle_and_tools_below_keep_no_tensor_alive(self):
        """Another tool has patched the schedule by a function that holds the schedule."""

        def patch(owner, name):
            original = getattr(owner, name)
            setattr(owner, name, lambda *arguments, **named: original(*arguments, **named))

        def custom(action, context):
            raise AssertionError("not called")

        for name in ("step", "forward_one_chunk", "_maybe_compute_loss", "custom function"):
            with self.subTest(name=name):
                schedule = self.make("Interleaved1F1B")
                stage = tiny_gpt.stages_of(schedule)[0]
                if name == "custom function":
                    held = functools.partial(custom, schedule)
                    schedule.register_custom_function(torch_schedules.BACKWARD_WEIGHT, held)
                    del held
                else:
                    patch(stage if name == "forward_one_chunk" else schedule, name)
                handle = self.attach(schedule)
                self.step(schedule)
                self.assertTrue(handle.is_attached)
                parameter = weakref.ref(parameters_of(schedule)[0])
                del schedule, stage
                gc.collect()
                self.assertIsNone(parameter())
                handle.detach()

    def test_the_session_ends_with_the_schedule(self):
        """Also without detach and the garbage collector: the GPU is free for the next pipeline."""
        gc.collect()
        gc.disable()
        self.addCleanup(gc.enable)
        for _ in range(2):
            schedule = self.make("GPipe")
            with self.assertNoLogs("perseus"):
                handle = perseus.attach(schedule, job_directory=self.scratch, **OFF)
                self.step(schedule)
            self.assertTrue(handle.is_attached)
            del schedule, handle

    def test_no_tensor_lives_longer(self):
        """The parameters go with the last reference to the schedule, without the garbage collector."""

        def parameters_left(attached):
            schedule = self.make("GPipe")
            handle = self.attach(schedule) if attached else None
            self.step(schedule)
            gc.collect()
            parameter = weakref.ref(next(tiny_gpt.stages_of(schedule)[0].submod.parameters()))
            gc.disable()
            try:
                del schedule
                return parameter() is not None, handle
            finally:
                gc.enable()

        self.assertEqual(parameters_left(True)[0], parameters_left(False)[0])


if __name__ == "__main__":
    unittest.main()

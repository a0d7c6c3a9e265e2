"""torch.distributed.pipelining: every schedule class, and frameworks that use them (torchtitan).

What is replaced, on the instances of the job:
    schedule.step, schedule._step_microbatches
                                         a step, if it has a backward (eval() has none). The outermost
                                         call counts: a program may override step(), or call
                                         _step_microbatches() itself
    stage.forward_one_chunk              forward; on the last stage it ends after the loss:
    schedule._maybe_compute_loss
    stage.backward_one_chunk             backward, or dgrad with full_backward=False
    stage.backward_weight_one_chunk      wgrad
    schedule._comp_type_to_function_map  entries that others registered (torchtitan's GraphPP), which
                                         compute without the methods of the stage
The schedules wait for receives before they call these methods, so an instruction is computation
only. Stage 0's dgrad computes nothing; its wgrad runs the whole backward.

Not used: register_custom_function (it replaces an action, and cannot call the original), and hooks
of nn.Module (activation checkpointing calls them again).
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional

from perseus.adapters import _outside, class_in
from perseus.adapters._devices import current_stream, gpu_of
from perseus.adapters._mesh import find_ranks
from perseus.adapters._patches import Patches, function_of
from perseus.adapters._probe import Probe
from perseus.adapters._recorder import (
    BACKWARD,
    BACKWARD_INPUT,
    BACKWARD_WEIGHT,
    FORWARD,
    Handle,
    Handles,
    Ranks,
    Recorder,
)

PACKAGE = "torch.distributed.pipelining"
MODULE = PACKAGE + ".schedules"  # auto() is called when it was imported.

# Custom functions by the name of their action.
_CUSTOM = {
    "FORWARD": FORWARD,
    "FULL_BACKWARD": BACKWARD,
    "BACKWARD_INPUT": BACKWARD_INPUT,
    "BACKWARD_WEIGHT": BACKWARD_WEIGHT,
}


# What a program calls to run a step. Each may call another one, of this schedule or of one that it
# wraps.
_STEPS = ("step", "_step_microbatches")


def matches(target: Any) -> bool:
    return class_in(target, PACKAGE) is not None and hasattr(target, "step")


def attach(schedule: Any, mesh: Any, options: Mapping[str, Any]) -> Handle:
    found = _handles.get(schedule)
    if found is not None and found.is_attached:
        return found
    # A schedule that only wraps another one may lack stages of its own.
    schedules = [each for each in _with_wrapped(schedule) if hasattr(each, "_n_microbatches")]
    recorder = _recorder_of((schedules or [schedule])[0], mesh, options)
    if recorder is None:
        return Handle(None)
    patches = Patches()
    for each in schedules:
        patches.set_members(each, {**_steps(each, recorder), **_end_of_loss(each, recorder)})
    handle = Handle(recorder, patches)
    _handles.set(schedule, handle)
    return handle


def _with_wrapped(schedule: Any) -> List[Any]:
    """The schedule, and the schedules among its attributes, also in lists and maps."""
    base = _base_of_schedules(sys.modules[MODULE])
    found = [schedule]
    for each in found if base is not None else ():
        for value in list(getattr(each, "__dict__", {}).values()):
            values = value.values() if isinstance(value, dict) else value
            for one in values if isinstance(value, (list, tuple, dict)) else [value]:
                if isinstance(one, base) and not any(one is known for known in found):
                    found.append(one)
    return found


def _base_of_schedules(module: Any) -> Optional[type]:
    base = getattr(module, "_PipelineSchedule", None)
    return base if isinstance(base, type) else None


def auto(module: Any) -> None:
    """Attaches each schedule of this process at its first training step.

    It replaces the methods of all classes of schedules, also of those that the program defines later.
    """
    base = _base_of_schedules(module)
    stage = getattr(sys.modules.get(PACKAGE + ".stage"), "_PipelineStageBase", None)
    if base is None or "_step_microbatches" not in vars(base) or stage is None:
        probe = Probe(_version())
        probe.problems.append(
            "expected _PipelineSchedule._step_microbatches and _PipelineStageBase, found none"
        )
        probe.report()
        return
    classes = [base]
    for cls in classes:
        _auto_class(cls)
        classes += [each for each in cls.__subclasses__() if each not in classes]
    if "__init_subclass__" not in vars(base):

        def __init_subclass__(cls: type, **named: Any) -> None:
            super(base, cls).__init_subclass__(**named)  # type: ignore[misc]
            _auto_class(cls)

        base.__init_subclass__ = classmethod(__init_subclass__)  # type: ignore[assignment]
    _auto_stages(stage)


def _auto_class(cls: type) -> None:
    for name in _STEPS:
        original = vars(cls).get(name)
        is_ours = hasattr(original, "_perseus_step")
        if callable(original) and not is_ours and not getattr(original, "__isabstractmethod__", False):
            setattr(cls, name, _step(original, _auto_recorder))


def _auto_stages(cls: Any) -> None:
    """Finds stages that compute although no schedule of this process runs a step."""
    original = cls.backward_one_chunk

    @functools.wraps(original)
    def backward_one_chunk(stage: Any, *arguments: Any, **named: Any) -> Any:
        if not _running.is_one:
            _warn_outside(stage, None)
        return original(stage, *arguments, **named)

    cls.backward_one_chunk = backward_one_chunk


# The handles of schedules. Those of auto() have no steps of their own.
_handles = Handles()


def _auto_recorder(schedule: Any) -> Optional[Recorder]:
    """Returns None if this step is not to be recorded."""

    def attach() -> Handle:
        recorder = _recorder_of(schedule, None, {})
        if recorder is None:
            return Handle(None)
        patches = Patches()
        patches.set_members(schedule, _end_of_loss(schedule, recorder))
        return Handle(recorder, patches)

    if _handles.get(schedule) is None and not _trains(schedule):
        return None
    return _handles.recorder_of(schedule, attach)


# A method for each name, in place of that of a schedule.
_Methods = Dict[str, Callable[..., Any]]


def _steps(schedule: Any, recorder: Recorder) -> _Methods:
    ours = weakref.ref(schedule)

    def recorder_of(schedule: Any) -> Optional[Recorder]:
        return recorder if schedule is ours() else None  # Not for a copy.

    return {name: _step(function_of(schedule, name), recorder_of) for name in _STEPS}


def _end_of_loss(schedule: Any, recorder: Recorder) -> _Methods:
    original = function_of(schedule, "_maybe_compute_loss")

    @functools.wraps(original)
    def _maybe_compute_loss(schedule: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return original(schedule, *arguments, **named)
        finally:
            recorder.end_late()

    return {"_maybe_compute_loss": _maybe_compute_loss}


# ---- Steps ----


class _Running(threading.local):
    is_one = False  # Whether a step or an evaluation of a schedule runs in this thread.


_running = _Running()


def _step(
    original: Callable[..., Any], recorder_of: Callable[[Any], Optional[Recorder]]
) -> Callable[..., Any]:
    """Returns what takes the place of `step` or `_step_microbatches`."""

    @functools.wraps(original)
    def step(schedule: Any, *arguments: Any, **named: Any) -> Any:
        before, _running.is_one = _running.is_one, True
        try:
            recorder = recorder_of(schedule)
            if recorder is None:
                return original(schedule, *arguments, **named)
            if not _trains(schedule):
                return recorder.run_evaluation(original, [schedule, *arguments], named)
            if not _wrap_custom_functions(recorder, schedule):
                return original(schedule, *arguments, **named)
            microbatches = schedule._n_microbatches
            return recorder.run_step(microbatches, original, [schedule, *arguments], named)
        finally:
            _running.is_one = before

    step._perseus_step = True  # type: ignore[attr-defined]
    return step


def _trains(schedule: Any) -> bool:
    if not getattr(schedule, "_has_backward", False):
        return False
    # An evaluation that calls _step_microbatches leaves _has_backward as it is.
    needs_gradients = getattr(schedule, "_backward_requires_autograd", True)
    return not needs_gradients or sys.modules["torch"].is_grad_enabled()


def _warn_outside(stage: Any, recorder: Optional[Recorder]) -> None:
    """A stage computes, and no schedule that Perseus sees runs a step."""
    _outside.warn_once(
        _version(),
        "a stage runs a backward outside of a step, so it is not recorded (let step() or "
        "_step_microbatches() of a schedule run it, or place perseus.step and perseus.instruction)",
        lambda: _ranks([stage], None),
        None if recorder is None else recorder.job_directory,
    )


# ---- Stages ----


def _recorder_of(schedule: Any, mesh: Any, options: Mapping[str, Any]) -> Optional[Recorder]:
    """Probes, and returns the recorder of the schedule's stages. None: something is missing."""
    probe = Probe(_version())
    stages = _probe(probe, schedule)
    if not probe.report():
        return None
    for stage in stages:
        found = getattr(stage.forward_one_chunk, "_perseus_recorder", None)
        if found is not None and found.is_attached and _has_all(found.stage_objects(), stages):
            return found
    references = [weakref.ref(stage) for stage in stages]
    device = stages[0].device

    def find_ranks() -> Ranks:
        return _ranks([reference() for reference in references], mesh)

    recorder = Recorder(
        probe.framework,
        find_ranks,
        options,
        modules=[stage.submod for stage in stages],
        stream=current_stream(device),
        device=device,
    )
    recorder.stage_objects = lambda: [reference() for reference in references]
    try:
        for chunk, stage in enumerate(stages):
            _wrap_stage(recorder, stage, chunk)
    except Exception:
        recorder.detach()  # The stages that were wrapped already.
        raise
    return recorder


def _has_all(stages: List[Any], some: List[Any]) -> bool:
    """A schedule that wraps others may give each of them a part of its stages."""
    return all(any(each is stage for stage in stages) for each in some)


def _probe(probe: Probe, schedule: Any) -> List[Any]:
    """Returns the stages of this rank, by index."""
    for name in _STEPS:
        probe.method(schedule, name)
    probe.attribute(schedule, "_has_backward", bool)
    probe.attribute(schedule, "_n_microbatches", int)
    probe.method(schedule, "_maybe_compute_loss", "stage", "output", "target_mbs", "mb_index")
    if hasattr(schedule, "_stage"):
        stages = [schedule._stage]
    else:
        stages = list(probe.attribute(schedule, "_stages", list) or [])
    for stage in stages:
        probe.method(stage, "forward_one_chunk", "fwd_chunk_id", "args", "kwargs")
        probe.method(stage, "backward_one_chunk", "bwd_chunk_id", "loss", also=["full_backward"])
        probe.method(stage, "backward_weight_one_chunk", "bwd_chunk_id")
        for name in ("stage_index", "num_stages", "group_rank", "group_size"):
            probe.attribute(stage, name, int)
        for name in ("is_last", "device", "group", "submod"):
            probe.attribute(stage, name)
    custom = getattr(schedule, "_comp_type_to_function_map", None)
    if custom is not None:
        probe.attribute(schedule, "_comp_type_to_function_map", dict)
        types = probe.attribute(sys.modules[MODULE], "_ComputationType")
        for name in [*_CUSTOM, "OVERLAP_F_B"] if types is not None else []:
            probe.entry(getattr(types, "__members__", {}), name, f"_ComputationType.{name}")
    return stages if probe.problems else sorted(stages, key=lambda stage: stage.stage_index)


def _wrap_stage(recorder: Recorder, stage: Any, chunk: int) -> None:
    ours = weakref.ref(stage)
    begin, end = recorder.begin, recorder.end
    computes_loss = stage.is_last
    forward = function_of(stage, "forward_one_chunk")
    backward = function_of(stage, "backward_one_chunk")
    weight = function_of(stage, "backward_weight_one_chunk")

    # The microbatch is the first argument, by position or by name.
    @functools.wraps(forward)
    def forward_one_chunk(stage: Any, *arguments: Any, **named: Any) -> Any:
        microbatch = arguments[0] if arguments else named.get("fwd_chunk_id")
        if stage is not ours() or not begin(FORWARD, microbatch, chunk):
            return forward(stage, *arguments, **named)
        try:
            output = forward(stage, *arguments, **named)
        except BaseException:
            end()
            raise
        if computes_loss:
            recorder.end_later()
        else:
            end()
        return output

    @functools.wraps(backward)
    def backward_one_chunk(stage: Any, *arguments: Any, **named: Any) -> Any:
        microbatch = arguments[0] if arguments else named.get("bwd_chunk_id")
        is_full = arguments[2] if len(arguments) > 2 else named.get("full_backward", True)
        kind = BACKWARD if is_full else BACKWARD_INPUT
        if stage is not ours() or not begin(kind, microbatch, chunk):
            if recorder.is_attached and stage is ours() and not _running.is_one:
                _warn_outside(stage, recorder)
            return backward(stage, *arguments, **named)
        try:
            return backward(stage, *arguments, **named)
        finally:
            end()

    @functools.wraps(weight)
    def backward_weight_one_chunk(stage: Any, *arguments: Any, **named: Any) -> Any:
        microbatch = arguments[0] if arguments else named.get("bwd_chunk_id")
        if stage is not ours() or not begin(BACKWARD_WEIGHT, microbatch, chunk):
            return weight(stage, *arguments, **named)
        try:
            return weight(stage, *arguments, **named)
        finally:
            end()

    forward_one_chunk._perseus_recorder = recorder  # type: ignore[attr-defined]
    recorder.patches.set_members(
        stage,
        {
            "forward_one_chunk": forward_one_chunk,
            "backward_one_chunk": backward_one_chunk,
            "backward_weight_one_chunk": backward_weight_one_chunk,
        },
    )


def _wrap_custom_functions(recorder: Recorder, schedule: Any) -> bool:
    """Wraps functions that were registered since the last step. False: they cannot be recorded."""
    functions = getattr(schedule, "_comp_type_to_function_map", None)
    if not functions:
        return True
    try:
        chunks = {stage.stage_index: i for i, stage in enumerate(recorder.stage_objects())}
        for action_type, function in list(functions.items()):
            name = getattr(action_type, "name", str(action_type))
            if name == "OVERLAP_F_B":
                recorder.refuse(
                    "a custom function runs forward and backward at the same time (OVERLAP_F_B), "
                    "so they have no time of their own"
                )
                return False
            if name in _CUSTOM and getattr(function, "_perseus_recorder", None) is not recorder:
                wrapped = _custom(recorder, function, _CUSTOM[name], chunks)
                recorder.patches.set_item(
                    schedule, "_comp_type_to_function_map", action_type, wrapped
                )
        return True
    except Exception as error:
        recorder.fail(error)
        return False


def _custom(
    recorder: Recorder, original: Callable[..., Any], kind: str, chunks: Dict[int, int]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def custom_function(action: Any, *arguments: Any, **named: Any) -> Any:
        microbatch = getattr(action, "microbatch_index", None)
        chunk = chunks.get(getattr(action, "stage_index", -1), 0)
        if not recorder.begin(kind, microbatch, chunk):
            return original(action, *arguments, **named)
        try:
            return original(action, *arguments, **named)
        finally:
            recorder.end()

    custom_function._perseus_recorder = recorder  # type: ignore[attr-defined]
    return custom_function


# ---- Ranks and devices ----


def _ranks(stages: List[Any], mesh: Any) -> Ranks:
    first = stages[0]
    dp_rank, tp_rank = find_ranks([stage.submod for stage in stages], mesh, first.group)
    return Ranks(
        pp_rank=first.group_rank,
        pp_ranks=first.group_size,
        stages=tuple(stage.stage_index for stage in stages),
        dp_rank=dp_rank,
        tp_rank=tp_rank,
        gpu=gpu_of(first.device),
    )


def _version() -> str:
    return f"torch {getattr(sys.modules.get('torch'), '__version__', '(unknown version)')}"

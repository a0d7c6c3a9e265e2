"""torch.distributed.pipelining: every schedule class, and frameworks that use them (torchtitan).

What is replaced, on the instances of the job:
    schedule.step                        a step, if it has a backward (eval() has none)
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
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional

from perseus.adapters import class_in
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


def matches(target: Any) -> bool:
    return class_in(target, PACKAGE) is not None and hasattr(target, "step")


def attach(schedule: Any, mesh: Any, options: Mapping[str, Any]) -> Handle:
    found = _handles.get(schedule)
    if found is not None and found.is_attached:
        return found
    recorder = _recorder_of(schedule, mesh, options)
    if recorder is None:
        return Handle(None)
    original = function_of(schedule, "step")
    ours = weakref.ref(schedule)

    @functools.wraps(original)
    def step(schedule: Any, *arguments: Any, **named: Any) -> Any:
        if schedule is not ours():
            return original(schedule, *arguments, **named)
        return _run(recorder, schedule, original, arguments, named)

    return _attach_methods(schedule, recorder, {"step": step})


def auto(module: Any) -> None:
    """Attaches each schedule of this process at its first training step.

    It replaces `step` of the two base classes. Subclasses of torch do not override it.
    """
    for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
        cls = getattr(module, name, None)
        if cls is None or "step" not in vars(cls):
            probe = Probe(_version())
            probe.problems.append(f"expected {name}.step, found none")
            probe.report()
            return
        _auto_class(cls)


def _auto_class(cls: type) -> None:
    original = vars(cls)["step"]

    @functools.wraps(original)
    def step(schedule: Any, *arguments: Any, **named: Any) -> Any:
        recorder = _auto_recorder(schedule)
        if recorder is None:
            return original(schedule, *arguments, **named)
        return _run(recorder, schedule, original, arguments, named)

    cls.step = step  # type: ignore[attr-defined]


# The handles of schedules. Those of auto() have no `step` of their own.
_handles = Handles()


def _auto_recorder(schedule: Any) -> Optional[Recorder]:
    """Returns None if this step is not to be recorded."""

    def attach() -> Handle:
        recorder = _recorder_of(schedule, None, {})
        return Handle(None) if recorder is None else _attach_methods(schedule, recorder, {})

    if _handles.get(schedule) is None and not getattr(schedule, "_has_backward", False):
        return None
    return _handles.recorder_of(schedule, attach)


def _attach_methods(
    schedule: Any, recorder: Recorder, methods: Mapping[str, Callable[..., Any]]
) -> Handle:
    """Sets these methods, and the end of the loss."""
    original = function_of(schedule, "_maybe_compute_loss")

    @functools.wraps(original)
    def _maybe_compute_loss(schedule: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return original(schedule, *arguments, **named)
        finally:
            recorder.end_late()

    patches = Patches()
    patches.set_members(schedule, {**methods, "_maybe_compute_loss": _maybe_compute_loss})
    handle = Handle(recorder, patches)
    _handles.set(schedule, handle)
    return handle


# ---- Steps ----


def _run(
    recorder: Recorder, schedule: Any, original: Callable[..., Any], arguments: Any, named: Any
) -> Any:
    """Calls the original `step`, as a step of the recorder if it trains."""
    is_training = getattr(schedule, "_has_backward", False)
    if recorder.in_step or not is_training or not _wrap_custom_functions(recorder, schedule):
        return original(schedule, *arguments, **named)
    microbatches = schedule._n_microbatches
    return recorder.run_step(microbatches, original, [schedule, *arguments], named)


# ---- Stages ----


def _recorder_of(schedule: Any, mesh: Any, options: Mapping[str, Any]) -> Optional[Recorder]:
    """Probes, and returns the recorder of the schedule's stages. None: something is missing."""
    probe = Probe(_version())
    stages = _probe(probe, schedule)
    if not probe.report():
        return None
    for stage in stages:
        found = getattr(stage.forward_one_chunk, "_perseus_recorder", None)
        if found is not None and found.is_attached and found.stage_objects() == stages:
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


def _probe(probe: Probe, schedule: Any) -> List[Any]:
    """Returns the stages of this rank, by index."""
    probe.method(schedule, "step")
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

"""DeepSpeed: PipelineEngine, and its subclasses (DualPipeVEngine, those of Megatron-DeepSpeed).

What is replaced, on the engine of the job:
    engine._INSTRUCTION_MAP     a map with our entries for the instructions that compute, before the
                                original one. The engine reads the map through itself, so the map of
                                the class stays as it is.
    engine.train_batch          a step. eval_batch runs outside of a step, so it is not recorded.
Sends, receives and reductions are instructions of their own, so a forward and a backward are
computation only. A replaced method such as _exec_forward_pass would have no effect: the map has the
function itself.

DeepSpeed's instructions carry the number of a buffer, not of a microbatch. Forwards run in the order
of microbatches. A backward belongs to the last forward into its buffer.
"""

from __future__ import annotations

import collections
import functools
import sys
import weakref
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from perseus.adapters import class_in
from perseus.adapters._devices import current_stream, gpu_of
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
from perseus.adapters._warning import warn

PACKAGE = "deepspeed.runtime.pipe"
MODULE = PACKAGE + ".engine"  # auto() is called when it was imported.

# Instructions that compute, by the name of their class. The last two are those of zero bubble
# schedules, which Megatron-DeepSpeed adds.
_KINDS = {
    "ForwardPass": FORWARD,
    "BackwardPass": BACKWARD,
    "BackwardOnlyPass": BACKWARD_INPUT,
    "WeightPass": BACKWARD_WEIGHT,
}
# Instructions that wait, move data or update parameters.
_OTHERS = (
    "OptimizerStep", "ReduceGrads", "ReduceTiedGrads", "LoadMicroBatch", "SendActivation",
    "RecvActivation", "SendGrad", "RecvGrad", "CommitP2P",
)  # fmt: skip


def matches(target: Any) -> bool:
    return class_in(target, PACKAGE) is not None and hasattr(target, "train_batch")


def attach(engine: Any, mesh: Any, options: Mapping[str, Any]) -> Handle:
    found = _handles.get(engine)
    if found is not None and found.is_attached:
        return found
    recorder, instructions = _recorder_of(engine, options)
    if recorder is None:
        return Handle(None)
    original = function_of(engine, "train_batch")
    ours = weakref.ref(engine)

    @functools.wraps(original)
    def train_batch(engine: Any, *arguments: Any, **named: Any) -> Any:
        if engine is not ours():
            return original(engine, *arguments, **named)
        return _run(recorder, engine, original, arguments, named)

    return _attach_members(engine, recorder, {**instructions, "train_batch": train_batch})


def auto(module: Any) -> None:
    """Attaches each engine of this process at its first train_batch."""
    cls = getattr(module, "PipelineEngine", None)
    original = vars(cls).get("train_batch") if isinstance(cls, type) else None
    if original is None:
        probe = Probe(_version())
        probe.problems.append("expected PipelineEngine.train_batch, found none")
        probe.report()
        return

    @functools.wraps(original)
    def train_batch(engine: Any, *arguments: Any, **named: Any) -> Any:
        recorder = _auto_recorder(engine)
        if recorder is None:
            return original(engine, *arguments, **named)
        return _run(recorder, engine, original, arguments, named)

    cls.train_batch = train_batch  # type: ignore[union-attr]


_handles = Handles()


def _auto_recorder(engine: Any) -> Optional[Recorder]:
    def attach() -> Handle:
        recorder, instructions = _recorder_of(engine, {})
        return Handle(None) if recorder is None else _attach_members(engine, recorder, instructions)

    return _handles.recorder_of(engine, attach)


def _attach_members(engine: Any, recorder: Recorder, members: Mapping[str, Any]) -> Handle:
    patches = Patches()
    patches.set_members(engine, members)
    handle = Handle(recorder, patches)
    _handles.set(engine, handle)
    return handle


# ---- Steps ----


def _run(
    recorder: Recorder, engine: Any, original: Callable[..., Any], arguments: Any, named: Any
) -> Any:
    """Calls the original train_batch, as a step of the recorder."""
    microbatches = getattr(engine, "micro_batches", 0)
    return recorder.run_step(microbatches, original, [engine, *arguments], named)


# ---- Instructions ----


class _Recorder(Recorder):
    """Knows which microbatch an instruction of the current step computes."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._next: Dict[Tuple[str, int], int] = {}
        self._in_buffer: Dict[Tuple[int, Any], int] = {}

    def step_begin(self, microbatches: int) -> None:
        self._next.clear()
        self._in_buffer.clear()
        super().step_begin(microbatches)

    def begin_pass(self, kind: str, arguments: Any, named: Mapping[str, Any]) -> bool:
        """As begin(), with the arguments of the pass. The buffer comes first or by name. With
        DualPipeV the phase says which of the two stages of this rank computes."""
        if not self.in_step:
            return False
        try:
            chunk = named.get("phase", 0)
            buffer = arguments[0] if arguments else named.get("buffer_id")
            return self.begin(kind, self._microbatch(kind, chunk, buffer), chunk)
        except Exception as error:
            self.fail(error)
            return False

    def _microbatch(self, kind: str, chunk: int, buffer: Any) -> int:
        number = self._next.get((kind, chunk), 0)
        self._next[kind, chunk] = number + 1
        if kind == FORWARD:
            self._in_buffer[chunk, buffer] = number
        elif kind != BACKWARD_WEIGHT:  # The buffer may have the next microbatch before the wgrad.
            number = self._in_buffer.get((chunk, buffer), number)
        return number


def _recorder_of(
    engine: Any, options: Mapping[str, Any]
) -> Tuple[Optional[_Recorder], Dict[str, Any]]:
    """Probes, and returns the recorder of the engine and its map of instructions by its name.

    None: something is missing.
    """
    probe = Probe(_version())
    kinds = _probe(probe, engine)
    if not probe.report():
        return None, {}
    reference = weakref.ref(engine)
    recorder = _Recorder(
        probe.framework,
        lambda: _ranks(reference()),
        options,
        modules=[engine.module],
        stream=current_stream(engine.device),
        device=engine.device,
    )
    originals = engine._INSTRUCTION_MAP
    ours = {one: _instruction(recorder, originals[one], kind) for one, kind in kinds.items()}
    # An instruction that is added to the original map later is in this one, too.
    return recorder, {"_INSTRUCTION_MAP": collections.ChainMap(ours, originals)}


def _instruction(
    recorder: _Recorder, original: Callable[..., Any], kind: str
) -> Callable[..., Any]:
    begin, end = recorder.begin_pass, recorder.end

    @functools.wraps(original)
    def execute(engine: Any, *arguments: Any, **named: Any) -> Any:
        if not begin(kind, arguments, named):
            return original(engine, *arguments, **named)
        try:
            return original(engine, *arguments, **named)
        finally:
            end()

    return execute


def _probe(probe: Probe, engine: Any) -> Dict[type, str]:
    """Returns the instructions that compute, with their kinds."""
    probe.method(engine, "train_batch")
    probe.attribute(engine, "micro_batches", int)
    for name in ("module", "device"):
        probe.attribute(engine, name)
    grid = probe.attribute(engine, "grid")
    if grid is not None:
        probe.attribute(grid, "pipe_parallel_size", int)
        for name in ("get_stage_id", "get_data_parallel_rank", "get_slice_parallel_rank"):
            probe.method(grid, name)
    instructions = probe.attribute(engine, "_INSTRUCTION_MAP", dict) or {}
    names = {getattr(instruction, "__name__", str(instruction)): instruction for instruction in instructions}
    for name in ("ForwardPass", "BackwardPass"):
        probe.entry(names, name, f"PipelineEngine._INSTRUCTION_MAP[{name}]")
    unknown = sorted(set(names) - set(_KINDS) - set(_OTHERS))
    if unknown and not probe.problems:
        warn(
            "attach: %s: the engine has instructions that Perseus does not know (%s); if they "
            "compute, their time counts as waiting",
            probe.framework,
            ", ".join(unknown),
        )
    return {names[name]: kind for name, kind in _KINDS.items() if name in names}


# ---- Ranks ----


def _ranks(engine: Any) -> Ranks:
    grid = engine.grid
    pp_rank, pp_ranks = grid.get_stage_id(), grid.pipe_parallel_size
    stages = (pp_rank,)
    if len(getattr(engine.module, "phase_bounds", ())) == 2:  # DualPipeV: out, and back.
        stages = (pp_rank, 2 * pp_ranks - 1 - pp_rank)
    return Ranks(
        pp_rank=pp_rank,
        pp_ranks=pp_ranks,
        stages=stages,
        dp_rank=grid.get_data_parallel_rank(),
        tp_rank=grid.get_slice_parallel_rank(),
        gpu=gpu_of(engine.device),
    )


def _version() -> str:
    return f"deepspeed {getattr(sys.modules.get('deepspeed'), '__version__', '(unknown version)')}"

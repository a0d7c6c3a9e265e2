"""Megatron-core: the pipeline schedules, plain and interleaved, and a job without a pipeline.

What is replaced, in the module megatron.core.pipeline_parallel.schedules:
    forward_backward_no_pipelining, forward_backward_pipelining_with_interleaving,
    forward_backward_pipelining_without_interleaving
                                    a step, unless it is called with forward_only
    forward_step                    forward, with the loss
    backward_step, backward_step_multimodule (if it exists)
                                    backward
    combined_1f1b_schedule_for_..., hybrid_context_parallel_forward_backward (if they exist)
                                    run forward and backward at the same time, or run a number of
                                    microbatches that is not known before: only the step is recorded
The schedules look these names up when they call them. get_forward_backward_func does, too, so attach
before a program calls it. Receives end before forward_step and backward_step begin.

backward_step does not say which microbatch it computes. forward_step says it, and the output of a
forward is an argument of its backward. The id of that tensor leads to the microbatch. A weak reference
beside it says whether it is still that tensor: if other code replaces the output on the way, it may
be freed, and its id may return. For an output that is not known, the oldest forward of the chunk
counts.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

from perseus.adapters._devices import current_gpu, stream_of_current_gpu
from perseus.adapters._patches import Patches
from perseus.adapters._probe import Probe
from perseus.adapters._recorder import BACKWARD, FORWARD, Handle, Ranks, Recorder
from perseus.adapters._warning import warn

MODULE = "megatron.core.pipeline_parallel.schedules"  # auto() is called when it was imported.

# (chunk, microbatch) of an instruction. Without a microbatch, the session counts. None: an error.
_Place = Optional[Tuple[int, Optional[int]]]

_STEPS = (
    "forward_backward_no_pipelining",
    "forward_backward_pipelining_with_interleaving",
    "forward_backward_pipelining_without_interleaving",
)
_GROUPS = ("pp", "tp", "cp")  # That a collection of process groups must have.
_BACKWARDS = ("backward_step", "backward_step_multimodule")
# Functions of schedules that Perseus cannot split into instructions, and why.
_WHOLE = {
    "combined_1f1b_schedule_for_no_pipelining": "forward and backward run at the same time",
    "combined_1f1b_schedule_for_interleaved_pipelining": "forward and backward run at the same time",
    "hybrid_context_parallel_forward_backward": "the number of its microbatches varies",
}


def matches(target: Any) -> bool:
    return target == "megatron" if isinstance(target, str) else _is_schedules(target)


def _is_schedules(target: Any) -> bool:
    return inspect.ismodule(target) and target.__name__ == MODULE


def attach(target: Any, mesh: Any, options: Mapping[str, Any]) -> Handle:
    if _is_schedules(target):
        return _attach(target, options)
    try:
        module = importlib.import_module(MODULE)  # The caller named the framework.
    except Exception as error:
        warn(
            "attach: %s cannot be imported (%s: %s); nothing is attached",
            MODULE,
            type(error).__name__,
            error,
        )
        return Handle(None)
    return _attach(module, options)


def auto(module: Any) -> None:
    _attach(module, {})


_attached: Optional[Handle] = None  # Python has one module of schedules, so it has one of these.


def _attach(module: Any, options: Mapping[str, Any]) -> Handle:
    global _attached
    if _attached is not None and _attached.is_attached:
        return _attached
    probe = Probe(_version())
    _probe(probe, module)
    if not probe.report():
        return Handle(None)
    pipeline = _Pipeline(probe.framework, module.parallel_state, options)
    patches = Patches()
    for name in _STEPS:
        patches.set(module, name, pipeline.step(getattr(module, name)))
    patches.set(module, "forward_step", pipeline.forward(module.forward_step))
    for name in _BACKWARDS:
        if hasattr(module, name):
            patches.set(module, name, pipeline.backward(getattr(module, name)))
    for name, why in _WHOLE.items():
        if hasattr(module, name):
            patches.set(module, name, pipeline.whole(name, getattr(module, name), why))
    _attached = Handle(pipeline.recorder, patches)
    return _attached


def _probe(probe: Probe, module: Any) -> None:
    for name in _STEPS:
        probe.method(module, name, also=["num_microbatches", "forward_only", "model"])
    probe.method(
        module, "forward_step", "forward_step_func", "data_iterator", "model", "num_microbatches",
        also=["current_microbatch"],
    )  # fmt: skip
    probe.method(module, "backward_step", "input_tensor", "output_tensor", "output_tensor_grad")
    state = probe.attribute(module, "parallel_state")
    if state is None:
        return
    for name in ("pipeline_model", "tensor_model", "data", "context"):
        probe.method(state, f"get_{name}_parallel_rank")
    for name in ("pipeline_model", "tensor_model"):
        probe.method(state, f"get_{name}_parallel_world_size")
    probe.method(state, "get_virtual_pipeline_model_parallel_rank")


class _Pipeline:
    """The wrappers of one attachment, and what they share."""

    def __init__(self, framework: str, parallel_state: Any, options: Mapping[str, Any]) -> None:
        self.recorder = Recorder(framework, self._ranks, options, stream=stream_of_current_gpu())
        self._state = parallel_state
        self._chunks = 1
        self._groups: Any = None  # The process groups that the caller named. Only for _ranks.
        self._depth = 0  # How many steps or evaluations are running.
        self._is_whole = False  # This step has no instructions.
        self._warned_late = False
        # id of the output → (it, chunk, microbatch)
        self._of_output: Dict[int, Tuple[weakref.ref[Any], int, int]] = {}
        self._waiting: List[List[int]] = []  # By chunk: microbatches without a backward.

    # ---- Steps ----

    def step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder

        @functools.wraps(original)
        def forward_backward(*arguments: Any, **named: Any) -> Any:
            self._depth += 1
            try:
                if named.get("forward_only") or recorder.in_step or not recorder.is_attached:
                    return original(*arguments, **named)
                if _has_several_modules(named):
                    recorder.refuse(
                        "several modules share a pipeline, and the process groups of one module do "
                        "not say which stage of the whole pipeline this rank has"
                    )
                    return original(*arguments, **named)
                self._prepare(named)
                microbatches = named.get("num_microbatches", 0)
                return recorder.run_step(microbatches, original, arguments, named)
            finally:
                self._depth -= 1
                self._groups = None

        return forward_backward

    def _prepare(self, named: Mapping[str, Any]) -> None:
        model = named.get("model")
        self._chunks = len(model) if isinstance(model, (list, tuple)) else 1
        self._groups = named.get("pg_collection")
        self._of_output.clear()
        self._waiting = [[] for _ in range(self._chunks)]
        self._is_whole = False

    def whole(self, name: str, original: Callable[..., Any], why: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def schedule(*arguments: Any, **named: Any) -> Any:
            if self.recorder.in_step and not self._is_whole:
                self._is_whole = True
                self.recorder.only_steps(f"{name}: {why}")
            return original(*arguments, **named)

        return schedule

    # ---- Instructions ----

    def forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder
        microbatch_of = _argument(original, "current_microbatch")
        stage_of = _argument(original, "vp_stage")

        @functools.wraps(original)
        def forward_step(*arguments: Any, **named: Any) -> Any:
            if not recorder.in_step or self._is_whole:
                return original(*arguments, **named)
            place = self._guard(self._place, stage_of(arguments, named), microbatch_of(arguments, named))
            if place is None or not recorder.begin(FORWARD, place[1], place[0]):
                return original(*arguments, **named)
            try:
                result = original(*arguments, **named)
            finally:
                recorder.end()
            self._guard(self._remember, result, place)
            return result

        return forward_step

    def backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        recorder = self.recorder
        output_of = _argument(original, "output_tensor")

        @functools.wraps(original)
        def backward_step(*arguments: Any, **named: Any) -> Any:
            if not recorder.in_step or self._is_whole:
                if self._depth == 0:
                    self._warn_late()
                return original(*arguments, **named)
            place = self._guard(self._recall, output_of(arguments, named))
            if place is None or not recorder.begin(BACKWARD, place[1], place[0]):
                return original(*arguments, **named)
            try:
                return original(*arguments, **named)
            finally:
                recorder.end()

        return backward_step

    def _guard(self, function: Callable[..., _Place], *arguments: Any) -> _Place:
        """Calls a function of this class. An error of it is one of Perseus."""
        try:
            return function(*arguments)
        except Exception as error:
            self.recorder.fail(error)
            return None

    def _place(self, chunk: Optional[int], microbatch: Optional[int]) -> _Place:
        return self._chunk() if chunk is None else chunk, microbatch

    def _remember(self, result: Any, place: Tuple[int, Optional[int]]) -> None:
        """`result` is (output, number of tokens), or the output alone in old versions."""
        chunk, microbatch = place
        if microbatch is None:
            return
        output = _tensor(result[0] if isinstance(result, tuple) and result else result)
        if output is not None:
            self._of_output[id(output)] = (weakref.ref(output), chunk, microbatch)
        self._waiting[chunk].append(microbatch)

    def _recall(self, output: Any) -> _Place:
        output = _tensor(output)
        found, chunk, microbatch = self._of_output.pop(id(output), (None, 0, 0))
        if output is None or found is None or found() is not output:
            chunk = self._chunk()
            waiting = self._waiting[chunk]
            return chunk, waiting.pop(0) if waiting else None
        # Other code may replace some outputs only. Then this forward may have counted already.
        if microbatch in self._waiting[chunk]:
            self._waiting[chunk].remove(microbatch)
        return chunk, microbatch

    def _chunk(self) -> int:
        """What Megatron-core before 0.13 sets for each forward and each backward."""
        if self._chunks == 1:
            return 0
        return self._state.get_virtual_pipeline_model_parallel_rank() or 0

    def _warn_late(self) -> None:
        if not self._warned_late and self.recorder.is_attached:
            self._warned_late = True
            warn(
                "attach: %s: the program took the function of get_forward_backward_func before "
                "Perseus attached, so no step is recorded (call perseus.attach before that)",
                self.recorder.framework,
            )

    # ---- Ranks ----

    def _ranks(self) -> Ranks:
        pp, tp, cp, dp = _positions(self._state, self._groups)
        return Ranks(
            pp_rank=pp[0],
            pp_ranks=pp[1],
            stages=tuple(chunk * pp[1] + pp[0] for chunk in range(self._chunks)),
            dp_rank=dp,
            # GPUs that share a sequence (context parallel) share the work of the pipeline position.
            tp_rank=cp * tp[1] + tp[0],
            gpu=current_gpu(),
        )


def _has_several_modules(named: Mapping[str, Any]) -> bool:
    """Whether the call has a pipeline of several modules, such as an encoder and a language model.

    Each of them has process groups of its own, and parallel_state knows nothing of this pipeline.
    """
    groups = named.get("pg_collection")
    if hasattr(named.get("p2p_communicator"), "module_to_grid_map"):
        return True
    return groups is not None and not all(hasattr(groups, name) for name in _GROUPS)


def _positions(state: Any, groups: Any) -> Tuple[Tuple[int, int], Tuple[int, int], int, int]:
    """(rank, size) of pipeline and tensor parallel, and the ranks of context and data parallel."""
    if groups is not None:
        pp, tp, cp = groups.pp, groups.tp, groups.cp
        data = getattr(groups, "dp", None)
        dp = data.rank() if data is not None else groups.dp_cp.rank() // cp.size()
        return (pp.rank(), pp.size()), (tp.rank(), tp.size()), cp.rank(), dp
    return (
        (state.get_pipeline_model_parallel_rank(), state.get_pipeline_model_parallel_world_size()),
        (state.get_tensor_model_parallel_rank(), state.get_tensor_model_parallel_world_size()),
        state.get_context_parallel_rank(),
        state.get_data_parallel_rank(),
    )


def _tensor(output: Any) -> Any:
    """The first tensor of an output: a tensor, a list of tensors, or a map of them."""
    while isinstance(output, (list, tuple, dict)):
        if not output:
            return None
        output = output[0] if not isinstance(output, dict) else next(iter(output.values()))
    return output


def _argument(function: Callable[..., Any], name: str) -> Callable[[Any, Any], Any]:
    """Returns a function that finds this argument of a call. None: the call does not have it."""
    try:
        place = list(inspect.signature(function).parameters).index(name)
    except (TypeError, ValueError):
        return lambda arguments, named: named.get(name)
    return lambda arguments, named: arguments[place] if place < len(arguments) else named.get(name)


def _version() -> str:
    core = sys.modules.get("megatron.core")
    return f"megatron-core {getattr(core, '__version__', '(unknown version)')}"

"""Records one attached pipeline of this process: its session, its steps and its instructions.

An adapter's wrappers call run_step, begin and end. None of them raises: an error of Perseus
is logged once, and the pipeline is detached. The wrappers stay correct after that, because each of
them asks is_attached or the result of begin().

Thread safety: none. The calls of one pipeline come from one thread at a time.
"""

from __future__ import annotations

import contextlib
import logging
import os
import weakref
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from perseus import _client, _session
from perseus._log import log as _log
from perseus.adapters import _memory
from perseus.adapters._devices import is_capturing
from perseus.adapters._patches import ByObject, Patches
from perseus.adapters._warning import warn

FORWARD, BACKWARD = "forward", "backward"
BACKWARD_INPUT, BACKWARD_WEIGHT = "backward_input", "backward_weight"
OPTIMIZER_STEP = "optimizer_step"

# How many steps are counted to prove that the adapter sees every instruction.
PROOF_STEPS = 3


class Ranks(NamedTuple):
    """Which part of the job this process is, as the framework says."""

    pp_rank: int
    pp_ranks: int
    stages: Tuple[int, ...]  # The stage of each chunk.
    dp_rank: int = 0
    tp_rank: int = 0
    gpu: Optional[str] = None  # UUID. None: PERSEUS_GPU, or the only GPU.


class Handle:
    """What `perseus.attach` returns."""

    def __init__(self, recorder: Optional[Recorder], patches: Optional[Patches] = None) -> None:
        """`patches` are those of this schedule. The recorder has those of the stages."""
        self._recorder = recorder
        self._patches = Patches() if patches is None else patches
        if recorder is not None:
            recorder.schedules.append(self._patches)

    @property
    def is_attached(self) -> bool:
        """False if nothing was attached, or after detach."""
        return self._recorder is not None and self._recorder.is_attached

    @property
    def session(self) -> Optional[_client.Session]:
        """The session of this pipeline. None before the first training step."""
        return None if self._recorder is None else self._recorder.session

    def __reduce__(self) -> Any:
        return Handle, (None,)  # A copy of an object that has a handle is not attached.

    def detach(self) -> None:
        """Puts every original back and closes the session. Waits at most one second."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        restore(self._patches)
        if self._patches in recorder.schedules:
            recorder.schedules.remove(self._patches)
        if not recorder.schedules:
            recorder.detach()


def restore(patches: Patches) -> None:
    """Puts the originals back. Never raises."""
    try:
        if patches.restore() > 0:
            _log.info("detach: other code has replaced hooks of Perseus; they do nothing now")
    except Exception:
        warn("detach: an error of Perseus", exc_info=True)


class Handles(ByObject):
    """The handles of schedules or engines."""

    def recorder_of(self, owner: Any, attach: Callable[[], Handle]) -> Optional[Recorder]:
        """For auto(). Attaches at the first call, and returns None if that does not succeed.

        Never raises an Exception, and does not try again, so there is one warning.
        """
        handle = self.get(owner)
        if handle is None:
            try:
                handle = attach()
            except Exception:
                warn("attach: an error of Perseus; nothing is attached", exc_info=True)
                handle = Handle(None)
            with contextlib.suppress(TypeError):  # An object that cannot be held weakly.
                self.set(owner, handle)
        return handle._recorder


# The recorders of this process by (dp_rank, pp_rank, tp_rank), to find two that would record as the
# same rank.
_recorders: "weakref.WeakValueDictionary[Tuple[int, int, int], Recorder]"
_recorders = weakref.WeakValueDictionary()


def is_recording(other_than: Optional[Recorder] = None) -> bool:
    """Whether an adapter records in this process."""
    return any(one.is_attached and one is not other_than for one in _recorders.values())


class Recorder:
    def __init__(
        self,
        framework: str,
        find_ranks: Callable[[], Ranks],
        options: Mapping[str, Any],
        modules: Sequence[Any] = (),
        stream: Optional[Callable[[], Any]] = None,
        device: Any = None,
    ) -> None:
        """
        Args:
            framework: Name and version for messages: "torch 2.13.0".
            find_ranks: Called once, at the first step.
            options: Arguments of perseus.open, stronger than the ranks.
            modules: What the pipeline trains. Of pipelines that train the same modules, the newest
                one is recorded.
            stream: Returns the current CUDA stream. None: the work runs on the CPU.
            device: The torch.device whose memory is measured. None: the current CUDA device.
        """
        self.framework = framework
        self.patches = Patches()
        self.schedules: List[Patches] = []  # One for each attached schedule of these stages.
        self.is_attached = True
        self.in_step = False
        self.stage_objects: Callable[[], List[Any]] = list  # The adapter sets it.
        self._find_ranks = find_ranks
        self._options = _with_absolute_paths(options)
        self._modules = [weakref.ref(module) for module in modules]
        self._stream = stream
        self._device = device
        self._session: Optional[_client.Session] = None
        self._is_open = False  # Between begin and end of an instruction.
        self._open_stream: Any = None  # That of the open instruction. None: the CPU.
        self._closes_later = False  # See end_later().
        self._is_end_seen = True  # Whether end_late() follows end_later().
        self._chunks = 0
        self._microbatches = 0
        self._proof_steps = PROOF_STEPS
        self._proves = True
        self._counts: Dict[Tuple[str, int], int] = {}
        self._memory: Optional[_memory.Probe] = None  # While it measures.
        self._measured_chunk: Optional[int] = None  # The chunk of the open forward.
        self._had_instruction = False  # In this step.
        self._warned: Set[str] = set()

    @property
    def session(self) -> Optional[_client.Session]:
        return self._session

    @property
    def has_open_instruction(self) -> bool:
        return self._is_open

    @property
    def job_directory(self) -> Optional[str]:
        """That of attach(). None: PERSEUS_JOB_DIR."""
        return self._options.get("job_directory")

    # ---- Steps ----

    def run_step(
        self,
        microbatches: int,
        original: Callable[..., Any],
        arguments: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Any:
        """Calls the original function of a step, and records it as one.

        A step may run inside of another one: a subclass calls its base class, or a schedule wraps
        another one. The outermost one counts. If it runs several others one after the other, each of
        them is a step.
        """
        is_outermost = not self.in_step
        try:
            if is_outermost:
                self.step_begin(microbatches)
            else:
                self._begin_inner_step(microbatches)
            result = original(*arguments, **named)
            if is_outermost:
                self.step_end()
            return result
        except BaseException:
            # A second interrupt may come in any call, so this is the first statement. The next step
            # abandons what is then left of this one.
            self.in_step = False
            self.step_abandon()
            raise

    def run_evaluation(
        self, original: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> Any:
        """Calls a function that runs forwards only. It is no part of the step that may call it."""
        if self.in_step:
            if self._had_instruction:
                self.step_end()
            else:
                self.step_abandon()
        return original(*arguments, **named)

    def _begin_inner_step(self, microbatches: int) -> None:
        if self._had_instruction:  # Another step has run inside of this one.
            self.step_end()
            self.step_begin(microbatches)
        else:
            self._microbatches = microbatches

    def step_begin(self, microbatches: int) -> None:
        """`in_step` afterwards, unless this step is not recorded."""
        if not self.is_attached:
            return
        try:
            if is_capturing():
                self._warn_once(
                    "a step is captured into a CUDA graph. Perseus does not record it, and does not "
                    "see its replays, because they do not run Python"
                )
                return
            if self._session is None:
                self._open()
            self._session.step_abandon()  # What an interrupt may have left. Else it does nothing.
            self._microbatches = microbatches
            self._had_instruction = False
            self._counts.clear()
            self._is_open = self._closes_later = False
            self._session.step_begin()
            self.in_step = True
            if self._memory is not None:
                self._memory.step_begin()
        except Exception as error:
            self.fail(error)

    def step_end(self, microbatches: Optional[int] = None) -> None:
        """Does nothing if no step is recorded.

        Args:
            microbatches: How many there were, if step_begin() could not know it.
        """
        if not self.in_step:
            return
        if microbatches is not None:
            self._microbatches = microbatches
        self.end()
        self.in_step = False
        try:
            self._session.step_end()
            if self._memory is not None:
                self._end_memory_of_step(self._memory)
            if self._proof_steps > 0:
                self._prove()
            elif not self._had_instruction and self._proves:
                self._warn_once(
                    "a step had no instructions (does a CUDA graph replay them?). Perseus measures "
                    "such steps as a whole, and no plan applies to them"
                )
        except Exception as error:
            self.fail(error)

    def step_abandon(self) -> None:
        """Instead of step_end, if an exception leaves the step. Does nothing if no step is open."""
        self.in_step = False
        self.end()
        if self._session is not None:
            self._session.step_abandon()  # C++, never raises.

    # ---- Instructions ----

    def begin(self, kind: str, microbatch: Optional[int], chunk: int) -> bool:
        """Returns False if the instruction is not recorded. Then do not call end.

        That is so outside of a training step (an evaluation), and inside of another instruction (a
        custom function of the schedule that calls the stage).
        """
        if not self.in_step:
            return False
        if self._is_open:
            if not self._closes_later:
                return False
            self._is_end_seen = False
            self._warn_once(
                "other code than the schedule computes the loss, so the time of the loss belongs to "
                "no instruction"
            )
            self.end()
        try:
            if self._proof_steps > 0:
                key = (kind, chunk)
                self._counts[key] = self._counts.get(key, 0) + 1
            if self._memory is not None and kind == FORWARD:
                self._memory.forward_begin()
                self._measured_chunk = chunk
            stream = self._stream
            self._is_open = self._had_instruction = True
            self._open_stream = None if stream is None else stream()
            self._session.instruction_begin(kind, microbatch, chunk, self._open_stream)
            return True
        except Exception as error:
            self.fail(error)
            return False

    def end(self) -> None:
        """Ends the instruction. Does nothing if none is open."""
        if self._is_open:
            self._is_open = self._closes_later = False
            self._session.instruction_end()  # C++, raises no Exception.
            if self._measured_chunk is not None and self._memory is not None:
                self._memory.forward_end(self._measured_chunk)
            self._measured_chunk = None

    @property
    def is_on_cpu(self) -> bool:
        """Whether the open instruction is on no stream."""
        return self._open_stream is None

    def is_on(self, stream: Any) -> bool:
        """Whether the open instruction is on this CUDA stream."""
        ours = self._open_stream
        return ours is not None and stream.cuda_stream == ours.cuda_stream

    def wait_begin(self) -> None:
        """From here on, the open instruction waits for other ranks."""
        if self._is_open:
            self._session.wait_begin()  # C++, raises no Exception.

    def wait_end(self) -> None:
        """Does nothing if the instruction does not wait."""
        if self._is_open:
            self._session.wait_end()

    def end_later(self) -> None:
        """The instruction ends at end_late(), after the loss.

        If another instruction began first, no call of end_late() came. Then the instruction would
        contain the time in which the rank waits. So from then on, instructions end here.
        """
        self._closes_later = self._is_end_seen
        if not self._closes_later:
            self.end()

    def end_late(self) -> None:
        """Ends the instruction of end_later(), and no other."""
        if self._closes_later:
            self.end()

    def only_steps(self, why: str) -> None:
        """From now on, steps have no instructions, so there is nothing to prove. Warns once."""
        if self._proves:
            warn(
                "attach: %s: %s; only whole steps are measured, and no plan applies "
                "(see docs/frameworks.md)",
                self.framework,
                why,
            )
        self._proves, self._proof_steps = False, 0

    def _warn_once(self, what: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            warn("attach: %s: %s (see docs/frameworks.md)", self.framework, what)

    # ---- The end ----

    def detach(self) -> None:
        """Puts every original back. Never raises."""
        if not self.is_attached:
            return
        self.step_abandon()
        self.is_attached = False
        for patches in [*self.schedules, self.patches]:
            restore(patches)
        self.schedules.clear()
        session, self._session = self._session, None
        if session is not None:
            session.close()  # C++, never raises.

    def refuse(self, why: str, *arguments: Any) -> None:
        """Logs why this pipeline cannot be recorded, and detaches."""
        if self.is_attached:
            warn(
                f"attach: %s: {why}; Perseus detaches (see docs/frameworks.md)",
                self.framework,
                *arguments,
            )
            self.detach()

    def fail(self, error: Exception) -> None:
        """Logs an error of Perseus, and detaches."""
        if self.is_attached:
            warn(
                "attach: %s: an error of Perseus (%s: %s); it detaches, and training continues",
                self.framework,
                type(error).__name__,
                error,
                exc_info=_log.isEnabledFor(logging.DEBUG),
            )
        self.detach()

    # ---- Details ----

    def _open(self) -> None:
        ranks = self._find_ranks()
        options = {
            "dp_rank": ranks.dp_rank,
            "pp_rank": ranks.pp_rank,
            "tp_rank": ranks.tp_rank,
            "gpu": ranks.gpu,
            "stages": ranks.stages,
            "pp_ranks": ranks.pp_ranks,
            **self._options,
        }
        self._chunks = len(ranks.stages)
        key = (options["dp_rank"], options["pp_rank"], options["tp_rank"])
        other = _recorders.get(key)
        if other is not None and other is not self and other.is_attached:
            if other._trains_other_modules(self):
                raise RuntimeError(
                    "another attached pipeline of this process has the ranks dp%d pp%d tp%d, and a "
                    "GPU has one pipeline (detach the other one first)" % key
                )
            other.detach()
        _recorders[key] = self
        self._session = _client.Session(**_plain(options))
        _session.job_directory_of_newest = self.job_directory
        try:
            self._memory = _memory.probe_of(options, self._chunks, self._device)
        except Exception:
            _log.debug("attach: the memory is not measured", exc_info=True)

    def _trains_other_modules(self, other: Recorder) -> bool:
        """False also if a module is gone, so that this pipeline cannot train again."""
        ours = [module() for module in self._modules]
        theirs = [module() for module in other._modules]
        if any(module is None for module in ours):
            return False
        return set(map(id, ours)) != set(map(id, theirs))

    def _end_memory_of_step(self, memory: _memory.Probe) -> None:
        try:
            memory.step_end()
            if memory.is_done:
                self._memory = None
        except OSError as error:
            self._memory = None
            warn("attach: the measured memory cannot be written: %s", error)

    def _prove(self) -> None:
        """Checks the counts of a step: each stage ran each microbatch forward and backward."""
        problems = []
        for chunk in range(self._chunks):
            forward, backward, dgrad, wgrad = (
                self._counts.get((kind, chunk), 0)
                for kind in (FORWARD, BACKWARD, BACKWARD_INPUT, BACKWARD_WEIGHT)
            )
            expected = self._microbatches
            if forward != expected or backward + dgrad != expected or wgrad != dgrad:
                problems.append(
                    f"chunk {chunk} ran {forward} forwards, {backward} backwards, {dgrad} dgrads "
                    f"and {wgrad} wgrads of {expected} microbatches"
                )
        if problems:
            self.refuse("a step was not seen completely: %s", ", ".join(problems))
        self._proof_steps -= 1


def _with_absolute_paths(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The session opens later, and the program may have changed its directory by then."""
    paths = {
        name: os.path.abspath(os.fsdecode(options[name]))
        for name in ("job_directory", "plan")
        if options.get(name) is not None
    }
    return {**options, **paths}


def _plain(options: Mapping[str, Any]) -> Dict[str, Any]:
    """The options of perseus.open in the types of the extension module."""
    plain = {name: value for name, value in options.items() if value is not None}
    for name in ("job_directory", "plan", "agent"):
        if name in plain:
            plain[name] = os.fsdecode(plain[name])
    if "gpu" in plain:
        plain["gpu"] = str(plain["gpu"])
    if "plan_expires_at" in plain:
        plain["plan_expires_at"] = int(plain["plan_expires_at"])
    stages: Optional[Sequence[int]] = plain.get("stages")
    if stages is not None:
        plain["stages"] = ",".join(str(stage) for stage in stages)
    return plain

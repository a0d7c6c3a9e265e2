"""What the training costs and saves, while it runs.

Where the numbers come from:
    time, power, energy     the client library, from the steps and the energy counter of this rank
    saving, slowdown        JOBDIR/verify.json, or before it exists JOBDIR/tune.json (perseus run --tune)
    samples, tokens         the calls of progress()

Nothing here asks the GPU or its driver.
"""

from __future__ import annotations

import atexit
import collections
import json
import operator
import os
import pathlib
import time
from typing import Any, Deque, Dict, List, NamedTuple, Optional, Tuple

from perseus import _client, _session
from perseus._log import log as _log
from perseus.adapters import _rank_files

_MOST_STEPS = 1024  # The steps with progress that count, for the mean of a step.
_WRITE_EVERY_S = 10.0


class Interval(NamedTuple):
    """A measured number, with its 95 % confidence interval."""

    estimate: float
    lower: float
    upper: float

    def times(self, factor: float) -> Interval:
        return Interval(*(factor * one for one in self))


class Status(NamedTuple):
    """What the steps of this rank cost, and what the plan of the job saves. None: unknown.

    Time, power and energy are those of this rank and of its GPU, in the last 30 s. Savings are those
    of the whole job.
    """

    steps: int = 0  # Recorded so far.
    step_time_s: Optional[float] = None  # The median.
    power_w: Optional[float] = None  # The mean, during the steps.
    energy_per_step_j: Optional[float] = None
    energy_per_sample_j: Optional[float] = None  # Needs progress().
    energy_per_token_j: Optional[float] = None  # Needs progress().
    energy_j: Optional[float] = None  # Since Perseus measures this process.
    follows_plan: bool = False  # Whether a plan is in force in this step.
    saving: Optional[Interval] = None  # A fraction of the energy without the plan.
    slowdown: Optional[Interval] = None  # A fraction of the time without the plan.
    saved_j: Optional[Interval] = None  # So far, in all steps of this process with the plan.
    is_verified: bool = False  # Whether the two come from verify. Otherwise, from tune.

    def numbers(self) -> Dict[str, float]:
        """The known numbers, with names for a tracker: perseus/energy_per_step_j."""
        flat: Dict[str, float] = {}
        for name, value in zip(self._fields, self):
            if name in ("saving", "slowdown") and value is not None:
                name, value = f"{name}_percent", value.times(100)
            if isinstance(value, Interval):
                for end, number in zip(("", "_lower", "_upper"), value):
                    stem, unit = name.rsplit("_", 1)
                    flat[f"perseus/{stem}{end}_{unit}"] = number
            elif value is not None and name != "is_verified":
                flat[f"perseus/{name}"] = float(value)
        return flat

    def __str__(self) -> str:
        texts: List[str] = []
        for value, text in (
            (self.step_time_s, "{:.4g} s a step"),
            (self.energy_per_step_j, "{:.4g} J a step"),
            (self.energy_per_sample_j, "{:.4g} J a sample"),
            (self.energy_per_token_j, "{:.4g} J a token"),
            (self.power_w, "{:.4g} W"),
        ):
            if value is not None:
                texts.append(text.format(value))
        if self.saving is not None and self.slowdown is not None:
            texts.append(
                "the plan saves {:.2%} ({:.2%} to {:.2%})".format(*self.saving)
                + " at {:.2%} ({:.2%} to {:.2%}) more time".format(*self.slowdown)
            )
        if self.saved_j is not None:
            texts.append("{:.4g} J ({:.4g} to {:.4g}) saved so far".format(*self.saved_j))
        return ", ".join(texts) or "nothing is measured yet"


def status() -> Status:
    """Says what the training costs and saves: J per step, sample and token, W, and the saving.

    Of several sessions of this process, it reads the newest one. Before the first recorded steps,
    everything is unknown. Takes less than a millisecond, unless the file system of the job directory
    is slow. Call it every few seconds, and not in each microbatch.
    """
    session = _client.newest_session()
    if session is None:
        return Status()
    costs, counters = session.costs, session.counters
    step_j = costs.power_w * costs.step_time_s
    samples, tokens = _progress.of_a_step()
    result: Dict[str, Any] = {}
    if costs.steps_on_plan > 0:
        result = _result_of(_job_directory(), costs.steps_on_plan)
    return Status(
        steps=costs.steps,
        step_time_s=costs.step_time_s or None,
        power_w=costs.power_w or None,
        energy_per_step_j=step_j or None,
        energy_per_sample_j=step_j / samples if step_j and samples else None,
        energy_per_token_j=step_j / tokens if step_j and tokens else None,
        energy_j=costs.energy_j or None,
        follows_plan=counters.follows_plan,
        **result,
    )


def progress(*, samples: int = 0, tokens: int = 0) -> None:
    """Says how many samples and tokens this rank has trained since its last call.

    Call it in each step, or in each microbatch. Then `status` and the end of `perseus run` have the
    energy of a sample and of a token. If several ranks share the samples of a pipeline or of a tensor
    parallel group, one of them may call it, or all of them with the same numbers. Before the first
    recorded step, it does nothing. It never raises an exception.
    """
    try:
        session = _client.newest_session()
        if session is not None:
            _progress.add(session, operator.index(samples), operator.index(tokens))
    except Exception:
        _progress.warn_once()


class _Progress:
    def __init__(self) -> None:
        self._steps: Deque[Tuple[int, List[int]]] = collections.deque(maxlen=_MOST_STEPS)
        self._count = 0  # All steps with progress.
        self._total = [0, 0]
        self._written_at = -_WRITE_EVERY_S
        self._path: Optional[pathlib.Path] = None
        self._pid = 0
        self._has_warned = False

    def add(self, session: _client.Session, samples: int, tokens: int) -> None:
        step = session.counters.steps
        if self._steps and self._steps[-1][0] > step:
            self._steps.clear()  # Another session.
        if not self._steps or self._steps[-1][0] != step:
            self._steps.append((step, [0, 0]))
            self._count += 1
        for i, number in enumerate((samples, tokens)):
            self._steps[-1][1][i] += number
            self._total[i] += number
        self._write_sometimes(session)

    def of_a_step(self) -> Tuple[float, float]:
        """The mean samples and tokens of a step. 0: unknown."""
        if not self._steps:
            return 0, 0
        steps = self._steps[-1][0] - self._steps[0][0] + 1
        sums = [sum(one[1][i] for one in self._steps) / steps for i in range(2)]
        return sums[0], sums[1]

    def _write_sometimes(self, session: _client.Session) -> None:
        now = time.monotonic()
        if now < self._written_at + _WRITE_EVERY_S:
            return
        self._written_at = now
        directory = _job_directory()
        if directory is None:
            return
        if self._pid != os.getpid():
            self._pid = os.getpid()
            atexit.register(self._write)
        self._path = directory / "ranks" / f"{session.rank}.progress"
        self._write()

    def _write(self) -> None:
        """For the last lines of perseus run."""
        if self._path is None or self._pid != os.getpid():
            return
        samples, tokens = self._total
        text = {"perseus_progress": 1, "steps": self._count, "samples": samples, "tokens": tokens}
        try:
            _rank_files.replace(self._path, json.dumps(text) + "\n")
        except OSError:
            _log.debug("progress: %s cannot be written", self._path, exc_info=True)

    def warn_once(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("progress: samples and tokens are whole numbers; it does nothing", exc_info=True)


_progress = _Progress()


def _job_directory() -> Optional[pathlib.Path]:
    directory = _session.job_directory_of_newest or os.environ.get("PERSEUS_JOB_DIR")
    return pathlib.Path(os.fsdecode(directory)) if directory else None


# The result that was read last, with what identifies its files.
_read: Tuple[Any, Dict[str, Any]] = (None, {})


def _result_of(directory: Optional[pathlib.Path], steps: int) -> Dict[str, Any]:
    """What the plan saves, as fields of Status. Empty: nobody has measured it."""
    global _read
    if directory is None:
        return {}
    tuned, verified = directory / "tune.json", directory / "verify.json"
    state = (_state_of(tuned), _state_of(verified))
    if state != _read[0]:
        is_newer = state[1][0] >= state[0][0]
        found = _from_verify(_rank_files.read_json(verified)) if is_newer else {}
        _read = state, found or _from_tune(_rank_files.read_json(tuned))
    found = dict(_read[1])
    if found:
        found["saved_j"] = found["saved_j"].times(steps)
    return found


def _state_of(path: pathlib.Path) -> Tuple[int, int]:
    try:
        state = path.stat()
    except OSError:
        return 0, 0
    return state.st_mtime_ns, state.st_size


def _from_verify(verified: Dict[str, Any]) -> Dict[str, Any]:
    try:
        pairs = verified["pairs"]
        baseline_j = sum(pair["baseline_energy_j"] for pair in pairs) / len(pairs)
        return _fields(verified["saving"], verified["slowdown"], baseline_j, is_verified=True)
    except (KeyError, TypeError, ZeroDivisionError):
        return {}


def _from_tune(tuned: Dict[str, Any]) -> Dict[str, Any]:
    try:
        baseline_j = tuned["seen"]["baseline_energy_j"]
        return _fields(
            tuned["saving_interval"], tuned["slowdown_interval"], baseline_j, is_verified=False
        )
    except (KeyError, TypeError):
        return {}


def _fields(saving: Any, slowdown: Any, baseline_j: float, is_verified: bool) -> Dict[str, Any]:
    fields: Dict[str, Any] = {"is_verified": is_verified}
    for name, interval in (("saving", saving), ("slowdown", slowdown)):
        fields[name] = Interval(*(float(interval[end]) for end in Interval._fields))
    fields["saved_j"] = fields["saving"].times(baseline_j)  # In one step.
    return fields

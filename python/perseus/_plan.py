"""Planning: from a profile to the frontier and to plans, as NumPy arrays."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import math
import operator
import os
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from perseus import _planner

Error = _planner.Error
UnreachableError = _planner.UnreachableError

PathLike = Union[str, "os.PathLike[str]"]
#: A path of a CSV; or columns by name (a mapping, a structured array, a data frame); or rows (each a
#: mapping, or stage, instruction, frequency, time, energy).
ProfileLike = Union[PathLike, Mapping[str, Sequence[Any]], NDArray[Any], Sequence[Any]]

_COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
_RANGES = _planner.ranges()
_COUNTS = ("pp_ranks", "microbatches", "chunks", "pipelines", "gpus_per_stage")
_KINDS = np.array(_planner.kind_names())
_NAMED_TARGETS = {
    "no-slowdown": ("slowdown_percent", 0.0),
    "least-energy": ("least_energy", 0.0),
    "least-energy-delay": ("least_energy_delay", 0.0),
}


@dataclasses.dataclass(frozen=True)
class Baseline:
    """One iteration of one pipeline with every instruction at maximum frequency."""

    time_s: float
    energy_j: float
    switches: int

    @property
    def average_power_w(self) -> float:
        return self.energy_j / self.time_s


@dataclasses.dataclass(frozen=True)
class Frontier:
    """For every iteration time the least energy: convex, and linear between its points."""

    times_s: NDArray[np.float64]  #: Breakpoints, fastest first (s).
    energies_j: NDArray[np.float64]  #: No plan that lasts so long costs less (J, waiting included).
    prices_w: NDArray[np.float64]  #: What instructions save per further second (W).
    least_energy: int  #: Index of the point of least energy: T*.

    def energy_at(self, time_s: Union[float, NDArray[np.float64]]) -> Any:
        """The least energy (J) of an iteration that may take up to `time_s` (s).

        Not a number below the least possible time; level from T* on.
        """
        useful = slice(0, self.least_energy + 1)
        return np.interp(
            time_s, self.times_s[useful], self.energies_j[useful], left=math.nan
        )


class Plan:
    """A clock for every instruction of an iteration of one pipeline.

    Attributes:
        name: "no-slowdown", "deadline-2.9s": fit for a file's name.
        target: What was asked for, in words.
        deadline_s, time_s: What was allowed, and what the plan takes (s). time_s <= deadline_s.
        energy_j: Of an iteration of one pipeline, waiting included (J).
        lower_bound_j: No plan for this profile that meets the deadline costs less (J).
        gap: How far energy_j may be above the best there is, as a fraction.
        saving: Energy saved against maximum frequency, as a fraction.
        switches: Changes of the clock.
    """

    def __init__(self, planned: "_planner.PlannedTarget", baseline: Baseline) -> None:
        self._planned = planned
        self.name: str = planned.name
        self.target: str = planned.target
        self.deadline_s: float = planned.deadline_s
        self.time_s: float = planned.time_s
        self.energy_j: float = planned.energy_j
        self.lower_bound_j: float = planned.lower_bound_j
        self.gap: float = planned.gap
        self.saving: float = 1 - planned.energy_j / baseline.energy_j
        self.switches: int = planned.switches

    def __repr__(self) -> str:
        return (
            f"<perseus.Plan {self.name}: {self.time_s:.6g} s, {self.energy_j:.6g} J, "
            f"saves {self.saving:.2%}>"
        )

    @property
    def average_power_w(self) -> float:
        return self.energy_j / self.time_s

    @functools.cached_property
    def instructions(self) -> NDArray[Any]:
        """All instructions, pp_rank by pp_rank in execution order: a structured array.

        Fields: pp_rank, stage (over all ranks; -1: none), kind ("forward"), microbatch (-1: none),
        chunk, frequency_mhz (0: no clock is chosen), start_s, duration_s, energy_j (of all GPUs of
        the stage); with a general graph also name. `plan.instructions["start_s"]` is one column.
        """
        columns = self._planned.instructions()
        columns["kind"] = _KINDS[columns["kind"]]
        if "name" in columns:
            columns["name"] = np.array(columns["name"], dtype=str)
        table = np.empty(
            len(columns["pp_rank"]), dtype=[(name, column.dtype) for name, column in columns.items()]
        )
        for name, column in columns.items():
            table[name] = column
        return table

    @functools.cached_property
    def knobs(self) -> Dict[str, NDArray[np.float64]]:
        """The profile's knobs besides the clock, a value an instruction (not a number: none)."""
        return dict(self._planned.knobs())

    def to_json(self) -> str:
        """The plan's file as text."""
        text: str = self._planned.to_json()
        return text

    def save(self, path: PathLike) -> None:
        """Writes the file that `perseus plan` writes, and that training runs follow."""
        self._planned.save(os.fspath(path))


class PlanResult:
    """What `perseus.plan` found.

    Attributes:
        baseline: Everything at maximum frequency.
        frontier: None if it was not wanted.
        plans: By name, in the order in which they were asked for.
    """

    def __init__(self, job: "_planner.PlanningJob") -> None:
        self._job = job
        self.baseline = Baseline(*job.baseline())
        columns = job.frontier()
        self.frontier: Optional[Frontier] = None if columns is None else Frontier(**columns)
        self.plans: Dict[str, Plan] = {}

    def __repr__(self) -> str:
        return f"<perseus.PlanResult of {', '.join(self.plans)}: saves {self.saving:.2%}>"

    @property
    def plan(self) -> Plan:
        """The first that was asked for."""
        return next(iter(self.plans.values()))

    @property
    def saving(self) -> float:
        """What `plan` saves against maximum frequency, as a fraction."""
        return self.plan.saving

    @property
    def lower_bound_j(self) -> float:
        """No plan for this profile that meets `plan`'s deadline costs less (J)."""
        return self.plan.lower_bound_j

    def save(self, path: PathLike) -> None:
        """Writes `plan`: the file that `perseus plan` writes, and that training runs follow."""
        self.plan.save(path)

    def plan_for(
        self,
        target: Union[None, str, Sequence[str]] = None,
        *,
        slowdown_percent: Union[None, float, Sequence[float]] = None,
        deadline_s: Union[None, float, Sequence[float]] = None,
        energy_budget_j: Union[None, float, Sequence[float]] = None,
        power_cap_w: Union[None, float, Sequence[float]] = None,
        price: Optional[Tuple[float, float]] = None,
    ) -> Plan:
        """A further plan of the same job, quickly, since its frontier is known.

        Takes targets as `perseus.plan` does and adds their plans to `plans`; returns the first.
        """
        asked = _targets(
            target,
            slowdown_percent=slowdown_percent,
            deadline_s=deadline_s,
            energy_budget_j=energy_budget_j,
            power_cap_w=power_cap_w,
            price=price,
        )
        plans = []
        for kind, value, gpu_hour in asked:
            planned = self._job.plan(getattr(_planner.TargetKind, kind), value, gpu_hour)
            plans.append(self.plans.setdefault(planned.name, Plan(planned, self.baseline)))
        return plans[0]


def plan(
    profile: Optional[ProfileLike] = None,
    *,
    job: Optional[PathLike] = None,
    schedule: Optional[str] = None,
    schedule_file: Optional[PathLike] = None,
    graph: Optional[PathLike] = None,
    pp_ranks: Optional[int] = None,
    microbatches: Optional[int] = None,
    chunks: Optional[int] = None,
    pipelines: Optional[int] = None,
    gpus_per_stage: Optional[int] = None,
    blocking_power_w: Optional[float] = None,
    switch_latency_ms: Optional[float] = None,
    p2p_s: Optional[float] = None,
    load_s: Optional[float] = None,
    all_reduce_s: Optional[float] = None,
    optimizer_s: Optional[float] = None,
    target: Union[None, str, Sequence[str]] = None,
    slowdown_percent: Union[None, float, Sequence[float]] = None,
    deadline_s: Union[None, float, Sequence[float]] = None,
    energy_budget_j: Union[None, float, Sequence[float]] = None,
    power_cap_w: Union[None, float, Sequence[float]] = None,
    price: Optional[Tuple[float, float]] = None,
    frontier: bool = True,
) -> PlanResult:
    """Plans the clock of every computation of a training iteration.

    >>> found = perseus.plan("profile.csv", schedule="1f1b", microbatches=96, blocking_power_w=83.64)
    >>> found.plan.saving, found.frontier.times_s, found.plan.instructions["frequency_mhz"]

    Args:
        profile: Measured time (s) and energy (J, of one GPU) of each stage's computations at each
            clock (MHz): the path of a CSV, or the same in memory. Columns by name (a mapping, a
            structured array, a data frame): stage, instruction, frequency, time, energy. Or rows,
            each a mapping or those five in this order.
        job: A job file (TOML); arguments override it.
        schedule: "1f1b", "interleaved-1f1b", "gpipe", "zb-h1", ...
        schedule_file: In place of a schedule: a CSV as torch.distributed.pipelining dumps it.
        graph: In place of profile and schedule: work that is no pipeline (JSON).
        pp_ranks: Positions along the pipeline; by default, the number that the profile has.
        microbatches: Of one iteration of one pipeline.
        chunks: Model chunks on each rank (interleaved schedules).
        pipelines: Data-parallel pipelines; for totals only.
        gpus_per_stage: GPUs that share a stage (tensor parallel).
        blocking_power_w: What one GPU draws while it waits (W).
        switch_latency_ms: From asking for a clock to having it (ms).
        p2p_s: Time on the wire from stage to stage (s).
        load_s, all_reduce_s, optimizer_s: What no clock changes: to load a microbatch on the first
            stage, to reduce gradients and to step the optimizer on each rank (s).
        target: "no-slowdown" (if nothing else is asked for), "least-energy",
            "least-energy-delay"; or several.
        slowdown_percent: At most so much slower than at maximum frequency (%).
        deadline_s: At most this iteration time (s).
        energy_budget_j: The fastest plan of at most this energy per iteration of one pipeline (J).
        power_cap_w: The fastest plan of at most this average power of one pipeline (W).
        price: The cheapest plan at ($/kWh, $/GPU-hour).
        frontier: False for very large jobs, whose slowdowns, deadlines and least energy are planned
            alone then.

    Each target may be given several values; `plans` has them all and `plan` is the first.

    Raises:
        Error: The input is wrong; the message says where, and the remedy.
        UnreachableError: No plan meets the target; the message says what can be met.
        OSError: A file cannot be read.
    """
    asked: Dict[str, Any] = dict(
        slowdown_percent=slowdown_percent,
        deadline_s=deadline_s,
        energy_budget_j=energy_budget_j,
        power_cap_w=power_cap_w,
        price=price,
    )
    _targets(target, **asked)  # What cannot be is refused before anything is computed.
    flags = _planner.JobFlags()
    if profile is None and job is None and graph is None:
        raise Error("the profile is missing (name a CSV, or give rows or columns)")
    if graph is None and job is None:
        _require(schedule, schedule_file, microbatches, blocking_power_w)
    if isinstance(profile, (str, os.PathLike)):
        flags.profile = os.fspath(profile)
    elif profile is not None:
        flags.profile = "profile"
        flags.profile_text = _profile_text(profile)
    if sum(given is not None for given in (schedule, schedule_file, graph)) > 1:
        raise Error("schedule, schedule_file and graph exclude each other (leave out two)")
    flags.schedule = _text("schedule", schedule)
    flags.job_file = _path(job)
    flags.schedule_file = _path(schedule_file)
    flags.graph = _path(graph)
    numbers = dict(
        pp_ranks=pp_ranks,
        microbatches=microbatches,
        chunks=chunks,
        pipelines=pipelines,
        gpus_per_stage=gpus_per_stage,
        blocking_power_w=blocking_power_w,
        switch_latency_ms=switch_latency_ms,
        p2p_s=p2p_s,
        load_s=load_s,
        all_reduce_s=all_reduce_s,
        optimizer_s=optimizer_s,
    )
    for name, value in numbers.items():
        if value is not None:
            setattr(flags, name, _checked(name, value))
    result = PlanResult(_planner.PlanningJob(flags, bool(frontier)))
    result.plan_for(target, **asked)
    return result


def _require(
    schedule: Optional[str],
    schedule_file: Optional[PathLike],
    microbatches: Optional[int],
    blocking_power_w: Optional[float],
) -> None:
    """In Python's words; with a job file it is the planner that says what is missing."""
    if schedule is None and schedule_file is None:
        raise Error('the schedule is missing (say schedule="1f1b", for instance; or schedule_file)')
    if microbatches is None and schedule_file is None:
        raise Error("the number of microbatches is missing (say microbatches=96, for instance)")
    if blocking_power_w is None:
        raise Error(
            "blocking_power_w is missing (what one GPU draws while it waits, in watts; 0 counts no "
            "waiting at all)"
        )


def _path(path: Optional[PathLike]) -> str:
    return "" if path is None else os.fspath(path)


def _text(name: str, value: Optional[str]) -> str:
    if value is not None and not isinstance(value, str):
        raise Error(f"{name}: {value!r} is not a string")
    return value or ""


def _checked(name: str, value: Any) -> Union[int, float]:
    least, most, unit = _RANGES[name]
    whole = name in _COUNTS
    try:
        number = operator.index(value) if whole else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, str) or not least <= number <= most:
        raise Error(f"{name}: {value!r} is not a number from {least:g} to {most:.0f} ({unit})")
    return number


def _targets(
    target: Union[None, str, Sequence[str]], **asked: Any
) -> List[Tuple[str, float, float]]:
    """Kind, value and price of a GPU-hour: named ones first, then in the order of the arguments."""
    targets: List[Tuple[str, float, float]] = []
    names = [target] if isinstance(target, str) else list(target or ())
    for name in names:
        if name not in _NAMED_TARGETS:
            known = ", ".join(_NAMED_TARGETS)
            raise Error(f"target: {name!r} is none of {known} (or say deadline_s=2.9, for instance)")
        kind, value = _NAMED_TARGETS[name]
        targets.append((kind, value, 0.0))
    for kind, given in asked.items():
        if given is None:
            continue
        if kind == "price":
            try:
                kwh, gpu_hour = given
            except (TypeError, ValueError):
                raise Error(f"price: {given!r} is no pair of $/kWh and $/GPU-hour") from None
            targets.append((kind, _checked(kind, kwh), _checked(kind, gpu_hour)))
            continue
        values = given if np.ndim(given) else [given]
        targets.extend((kind, _checked(kind, value), 0.0) for value in values)
    return targets or [("slowdown_percent", 0.0, 0.0)]


def _profile_text(profile: Any) -> str:
    """The CSV of a profile in memory, each number with all of its digits."""
    header, rows = _table(profile)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    # Of NumPy's numbers Python's, which are written as short as they can be.
    writer.writerows(
        [value.item() if isinstance(value, np.generic) else value for value in row] for row in rows
    )
    return text.getvalue()


def _table(profile: Any) -> Tuple[Sequence[str], Iterable[Sequence[Any]]]:
    if isinstance(profile, np.ndarray):
        if profile.dtype.names is None:
            raise Error(
                "profile: an array without field names (make it a structured array, or a mapping of "
                "columns: stage, instruction, frequency, time, energy)"
            )
        return profile.dtype.names, profile.tolist()
    if hasattr(profile, "keys"):
        header = list(profile.keys())
        columns = [list(profile[name]) for name in header]
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(f"{n}: {len(c)}" for n, c in zip(header, columns))
            raise Error(f"profile: columns of different lengths ({lengths})")
        return header, zip(*columns)
    try:
        rows = list(profile)
    except TypeError:
        raise Error(
            f"profile: {type(profile).__name__} is no profile (give a path, columns or rows)"
        ) from None
    if rows and hasattr(rows[0], "keys"):
        header = list(rows[0].keys())
        try:
            return header, [[row[name] for name in header] for row in rows]
        except (KeyError, TypeError, IndexError) as error:
            raise Error(f"profile: a row lacks {error} (all need what the first has)") from None
    for number, row in enumerate(rows):
        if isinstance(row, str) or not hasattr(row, "__len__") or len(row) != len(_COLUMNS):
            raise Error(f"profile: row {number} is not {', '.join(_COLUMNS)}")
    return _COLUMNS, rows

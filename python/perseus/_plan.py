"""Plans a job: from a profile to the frontier and to plans, as NumPy arrays."""

from __future__ import annotations

import dataclasses
import functools
import math
import warnings
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from perseus import _arguments as arguments
from perseus import _planner
from perseus._arguments import PathLike, ProfileLike

Error = _planner.Error
UnreachableError = _planner.UnreachableError

_KINDS = np.array(_planner.kind_names())


def _array(column: Tuple[str, bytes]) -> NDArray[Any]:
    """Returns the numbers of a column: its type of NumPy, and the bytes."""
    kind, content = column
    return np.frombuffer(content, dtype=kind).copy()


@dataclasses.dataclass(frozen=True)
class Baseline:
    """One iteration of one pipeline with every instruction at maximum frequency."""

    time_s: float  #: Iteration time (s).
    energy_j: float  #: Energy of all GPUs of the pipeline, with waiting included (J).
    switches: int  #: Number of clock changes; 0 if all instructions have the same maximum clock.

    @property
    def average_power_w(self) -> float:
        """Returns the mean power of all GPUs of the pipeline (W)."""
        return self.energy_j / self.time_s


@dataclasses.dataclass(frozen=True)
class Frontier:
    """For every iteration time of one pipeline, the least energy of a plan that meets it.

    The curve is convex, and linear between its points. The four arrays have the same shape (number
    of points,), and the fastest point comes first. times_s[0] is T_min. The frontier comes from the
    relaxation (docs/algorithm.md), so it is a lower bound for every plan. It is exact, and the
    points are its breakpoints, unless the job is so large that this would take minutes.
    """

    times_s: NDArray[np.float64]  #: Iteration times of the points, rising (s).
    energies_j: NDArray[np.float64]  #: The least energy at each time, with waiting included (J).
    prices_w: NDArray[np.float64]  #: What the instructions save for one more second there (W).
    errors_j: NDArray[np.float64]  #: How far the frontier may be above energies_j (J); 0: exact.
    least_energy: int  #: Index of the point of least energy: its time is T*.

    @classmethod
    def _of(cls, columns: Dict[str, Any]) -> Frontier:
        least_energy = columns.pop("least_energy")
        return cls(**{name: _array(column) for name, column in columns.items()},
                   least_energy=least_energy)

    def energy_at(self, time_s: Union[float, NDArray[np.float64]]) -> Any:
        """Returns the least energy of an iteration that may take up to `time_s`.

        Args:
            time_s: An iteration time or an array of them, of any shape (s).

        Returns:
            The energy (J), with the shape of `time_s`: NaN below the least possible time, and
            constant from T* on.
        """
        useful = slice(0, self.least_energy + 1)
        return np.interp(
            time_s, self.times_s[useful], self.energies_j[useful], left=math.nan
        )


@dataclasses.dataclass(frozen=True)
class Schedule:
    """The order of the instructions on each pp_rank."""

    name: str  #: Such as "1f1b"; "auto" if it was searched for.
    csv: str  #: As torch.distributed.pipelining loads it; a row for each pp_rank.
    in_flight: Tuple[int, ...]  #: The most microbatches whose activations each pp_rank holds.
    memory_source: str  #: Which bytes were measured, modeled or given; empty without bytes.

    def save(self, path: PathLike) -> None:
        """Writes the CSV: all of it, or nothing if that fails.

        Raises:
            OSError: The file cannot be written.
        """
        _planner.write_file(arguments.path("path", path), self.csv)


@dataclasses.dataclass(frozen=True)
class ScheduleRow:
    """The best schedule that was found in some memory, and its plan with no slowdown."""

    more_in_flight: int  #: Microbatches that each pp_rank may hold beyond 1F1B; -1 for `fitting`.
    schedule: Schedule
    energy_j: float  #: Of one iteration of one pipeline with the plan (J).
    time_s: float  #: Of an iteration with the plan (s), at most that of the baseline.
    time_at_maximum_s: float  #: Of an iteration at maximum frequency (s).
    saving: float  #: The energy saved against the baseline, as a fraction.
    most_saving: Optional[float]  #: No schedule in this memory saves more; None if unknown.
    bubble: float  #: The part of an iteration at maximum frequency in which GPUs wait.
    changes_per_gpu: float  #: Clock changes of a GPU in an iteration of the plan.

    @property
    def in_flight(self) -> Tuple[int, ...]:
        """Returns the most microbatches whose activations each pp_rank holds."""
        return self.schedule.in_flight

    @classmethod
    def _of(cls, row: Dict[str, Any], memory_source: str) -> ScheduleRow:
        schedule = Schedule(
            row.pop("origin"), row.pop("csv"), tuple(row.pop("in_flight")), memory_source
        )
        return cls(schedule=schedule, **row)


@dataclasses.dataclass(frozen=True)
class ScheduleSearch:
    """How much energy memory saves, at no slowdown."""

    baseline_time_s: float  #: Of an iteration of the reference schedule at maximum frequency (s).
    baseline_energy_j: float  #: The same; savings are fractions of it (J).
    fixed: ScheduleRow  #: The reference schedule with its plan.
    rows: Tuple[ScheduleRow, ...]  #: By memory. Each saves at least as much as the one before.
    fitting: Optional[ScheduleRow]  #: The best one in memory_gib, if that is given.
    conclusion: str  #: What the rows say, in sentences.

    @classmethod
    def _of(cls, found: Dict[str, Any]) -> ScheduleSearch:
        source = found["memory_source"]
        fitting = found["fitting"]
        return cls(
            baseline_time_s=found["baseline_time_s"],
            baseline_energy_j=found["baseline_energy_j"],
            fixed=ScheduleRow._of(found["fixed"], source),
            rows=tuple(ScheduleRow._of(row, source) for row in found["rows"]),
            fitting=None if fitting is None else ScheduleRow._of(fitting, source),
            conclusion=found["conclusion"],
        )


class Plan:
    """A clock for every instruction of one iteration of one pipeline.

    The planner evaluates time and energy from the measured options that the plan names.

    Attributes:
        name: The target as part of a file name, such as "no-slowdown" or "deadline-2.9s".
        target: The target in words.
        deadline_s: The iteration time that the target allows (s).
        time_s: The iteration time of the plan (s), at most deadline_s.
        energy_j: The energy of all GPUs of the pipeline, with waiting included (J).
        lower_bound_j: No plan for this profile that meets the deadline needs less energy (J).
        gap: How far energy_j may be above the energy of the best plan, as a fraction.
        saving: The energy saved against maximum frequency, as a fraction.
        switches: The number of clock changes of an iteration, the changes back at its end included.
        max_switches: The limit of clock changes of a GPU that the plan was made for, or None.
    """

    def __init__(
        self, planned: Dict[str, Any], file: "_planner.PlannedFile", baseline: Baseline
    ) -> None:
        self._file = file
        self.name: str = planned["name"]
        self.target: str = planned["target"]
        self.deadline_s: float = planned["deadline_s"]
        self.time_s: float = planned["time_s"]
        self.energy_j: float = planned["energy_j"]
        self.lower_bound_j: float = planned["lower_bound_j"]
        self.gap: float = planned["gap"]
        self.saving: float = 1 - self.energy_j / baseline.energy_j
        self.switches: int = planned["switches"]
        self.max_switches: Optional[int] = planned["max_switches"]

    def __repr__(self) -> str:
        return (
            f"<perseus.Plan {self.name}: {self.time_s:.6g} s, {self.energy_j:.6g} J, "
            f"saves {self.saving:.2%}>"
        )

    @property
    def average_power_w(self) -> float:
        """Returns the mean power of all GPUs of the pipeline (W)."""
        return self.energy_j / self.time_s

    @functools.cached_property
    def instructions(self) -> NDArray[Any]:
        """Returns all instructions, pp_rank by pp_rank, in execution order.

        Returns:
            A structured array of shape (number of instructions,).
            `plan.instructions["start_s"]` is one column. The fields are:

            - pp_rank: the position along the pipeline, from 0.
            - stage: numbered over all pp_ranks; -1 if the instruction has none.
            - kind: such as "forward".
            - microbatch: from 0; -1 if the instruction has none.
            - chunk: which of the stages of its pp_rank, from 0.
            - frequency_mhz: 0 if the plan chooses no clock.
            - start_s, duration_s: from the begin of the iteration (s).
            - energy_j: of all GPUs of the pp_rank (J).
            - name: the name of the instruction; only with a general graph.
        """
        found = _planner.instructions(self._file)
        names = found.pop("name", None)
        columns = {name: _array(column) for name, column in found.items()}
        columns["kind"] = _KINDS[columns["kind"]]
        if names is not None:
            columns["name"] = np.array(names, dtype=str)
        table = np.empty(
            len(columns["pp_rank"]), dtype=[(name, column.dtype) for name, column in columns.items()]
        )
        for name, column in columns.items():
            table[name] = column
        return table

    @functools.cached_property
    def knobs(self) -> Dict[str, NDArray[np.float64]]:
        """Returns the chosen values of all knobs except the clock, by the name of the knob.

        Each array has one value for each row of `instructions`: NaN if the plan chooses none. A text
        counts as its number in `knob_labels` of the plan file.
        """
        return {name: _array(column) for name, column in _planner.knobs(self._file).items()}

    def to_json(self) -> str:
        """Returns the text of the plan file (JSON; docs/formats.md)."""
        return _planner.format_plan(self._file)

    def save(self, path: PathLike) -> None:
        """Writes the plan file, as `perseus plan` does. Training jobs can follow it.

        Raises:
            OSError: The file cannot be written.
        """
        _planner.write_file(arguments.path("path", path), self.to_json())


class PlanResult:
    """The result of `perseus.plan`.

    Attributes:
        baseline: One iteration with everything at maximum frequency.
        frontier: The frontier; None if `perseus.plan` was called with frontier=False.
        schedule: The order of instructions that the plans follow; None for a general graph.
        switch_tradeoff: What each limit of clock changes saves with no slowdown; None if the limit
            was given. Each row has max_switches, saving (a fraction, or None if no plan was found)
            and lower_bound_j (None if no plan exists).
        plans: All plans by name, in the order of the requested targets.
    """

    def __init__(
        self,
        job: "_planner.PlanningJob",
        described: Dict[str, Any],
        targets: List[Tuple[str, float, float]],
        wishes: Dict[str, Any],
    ) -> None:
        self._job = job
        self._wishes = wishes
        self.baseline = Baseline(*described["baseline"])
        self.plans: Dict[str, Plan] = {}
        planned = self._plan(targets)
        self._wishes["with_frontier"] = False  # It is known now.
        columns = planned["frontier"]
        self.frontier: Optional[Frontier] = None if columns is None else Frontier._of(columns)
        self.switch_tradeoff: Optional[List[Dict[str, Any]]] = planned["switch_tradeoff"]
        schedule = described["schedule"]
        if schedule:
            schedule["in_flight"] = tuple(schedule["in_flight"])
        self.schedule: Optional[Schedule] = Schedule(**schedule) if schedule else None

    def __repr__(self) -> str:
        return f"<perseus.PlanResult of {', '.join(self.plans)}: saves {self.saving:.2%}>"

    @property
    def plan(self) -> Plan:
        """Returns the plan of the first requested target."""
        return next(iter(self.plans.values()))

    @property
    def saving(self) -> float:
        """Returns the energy that `plan` saves against maximum frequency, as a fraction."""
        return self.plan.saving

    @property
    def lower_bound_j(self) -> float:
        """Returns the bound of `plan` (J): no plan within the same deadline needs less energy."""
        return self.plan.lower_bound_j

    def save(self, path: PathLike) -> None:
        """Writes the file of `plan` (see `Plan.save`)."""
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
        """Makes further plans of the same job. One call for several targets is faster than several.

        Takes targets as `perseus.plan` does, and adds the plans to `plans`.

        Returns:
            The plan of the first target.

        Raises:
            Error: A target is wrong.
            UnreachableError: No plan meets a target. The message says which values can be met.
        """
        planned = self._plan(arguments.targets(locals()))
        return self.plans[planned["plans"][0][0]["name"]]

    def _plan(self, targets: List[Tuple[str, float, float]]) -> Dict[str, Any]:
        planned = _planner.plan(self._job, targets, self._wishes)
        for one, file in planned["plans"]:
            self.plans.setdefault(one["name"], Plan(one, file, self.baseline))
        return planned


def plan(
    profile: Optional[ProfileLike] = None,
    *,
    job: Optional[PathLike] = None,
    schedule: Optional[str] = None,
    schedule_file: Optional[PathLike] = None,
    max_in_flight: Union[None, int, Sequence[int]] = None,
    memory_gib: Optional[float] = None,
    activation_mib: Union[None, float, Sequence[float]] = None,
    model_gib: Union[None, float, Sequence[float]] = None,
    kept_mib: Union[None, float, Sequence[float]] = None,
    fold: bool = False,
    graph: Optional[PathLike] = None,
    pp_ranks: Optional[int] = None,
    microbatches: Optional[int] = None,
    chunks: Optional[int] = None,
    pipelines: Optional[int] = None,
    gpus_per_stage: Optional[int] = None,
    facts: Optional[PathLike] = None,
    blocking_power_w: Optional[float] = None,
    switch_latency_ms: Optional[float] = None,
    switch_cost: Optional[Tuple[float, float]] = None,
    max_switches: Union[None, int, str] = None,
    per_instruction: bool = False,
    switch_tradeoff: bool = False,
    noise_percent: Union[None, float, Sequence[float]] = None,
    effort: int = 1,
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
    """Plans the clock of every instruction of a training iteration.

    The plans are those of `perseus plan` with the same targets, bit for bit.

    >>> found = perseus.plan("profile.csv", schedule="1f1b", microbatches=96, blocking_power_w=83.64)
    >>> found.plan.saving, found.frontier.times_s, found.plan.instructions["frequency_mhz"]

    Args:
        profile: The measured time (s) and energy (J, of one GPU) of each stage and instruction kind
            at each clock (MHz). Either the path of a CSV file, or the same data in memory: columns
            by name (a mapping, a structured array or a data frame) with the names stage,
            instruction, frequency, time and energy; or rows, each a mapping with these names or a
            sequence of the five values in this order.
        job: The path of a job file (TOML). Other arguments override its keys.
        schedule: "1f1b", "interleaved-1f1b", "gpipe", "zb-h1", ... (perseus plan --help lists all);
            or "auto" to search for the one whose plan needs the least energy, which takes seconds.
        schedule_file: Instead of `schedule`: a CSV file as torch.distributed.pipelining dumps it.
        max_in_flight: Of schedule="auto": the microbatches whose activations each pp_rank may hold;
            one number for all pp_ranks or one for each. Default: as many as with 1F1B.
        memory_gib: Of schedule="auto", instead of max_in_flight: the memory of a GPU (GiB).
        activation_mib: What the activations of one microbatch take on a GPU (MiB), for all stages
            or for each. Default: the column activation_bytes of the profile.
        model_gib: What weights, gradients and optimizer states take of memory_gib (GiB), for all
            pp_ranks or for each. Default: the column model_bytes of the profile, or 0.
        kept_mib: Of schedule="auto", with recomputation: what stays of activation_mib until a
            recompute (MiB), for all stages or for each. Default: all of it.
        fold: Of schedule="auto": whether the two chunks of each pp_rank are in a V, as ZB-V and
            DualPipeV place them. Without it, stages loop over the pp_ranks.
        graph: Instead of profile and schedule: a JSON file with work that is not a pipeline.
        pp_ranks: The number of positions along the pipeline. Default: as many as the profile has.
        microbatches: The number of microbatches of one iteration of one pipeline.
        chunks: The number of model chunks on each pp_rank (interleaved schedules). Default: 1.
        pipelines: The number of data-parallel pipelines; for totals only. Default: 1.
        gpus_per_stage: The number of GPUs that share a stage (tensor parallel). Default: 1.
        facts: The path of a hardware facts file (TOML). It gives the blocking power, the switch
            latency and the switch cost, unless an argument or the job file does, and the greatest
            rate of clock changes of plans.
        blocking_power_w: The power of one GPU while it waits (W).
        switch_latency_ms: The time from the request of a clock until the GPU runs at it (ms).
            Default: 0.
        switch_cost: What each clock change of a GPU costs: it stalls so long (s), and needs so much
            further energy (J). Default: (0, 0).
        max_switches: At most this many clock changes of each GPU in an iteration, the change back
            at its end included; "auto" for the fewest found that keep 95 % of the saving. Default:
            the limit of the job file, or else the same as "auto" with a shorter search.
        per_instruction: Whether plans have no limit of clock changes: a clock for each instruction.
        switch_tradeoff: Whether to say what limits save (`PlanResult.switch_tradeoff`) if a limit is
            given.
        noise_percent: The relative standard deviation of the time of each instruction (%), and of a
            further noise that all instructions of a pp_rank share. Plans keep their mean time under
            it. Default: the noise of the profile. 0: none.
        effort: How much work to spend on better plans: 0 is a first look, 2 is twice the default.
        p2p_s: The time to send data from one stage to the next (s). Default: 0.
        load_s: The time to load a microbatch on the first stage (s). Default: 0.
        all_reduce_s: The time of the gradient all-reduce on each pp_rank (s). Default: 0.
        optimizer_s: The time of the optimizer step on each pp_rank (s). Default: 0.
        target: "no-slowdown", "least-energy" or "least-energy-delay", or a sequence of them.
            Default: "no-slowdown", if no other target is given.
        slowdown_percent: At most this much slower than at maximum frequency (%).
        deadline_s: At most this iteration time (s).
        energy_budget_j: The fastest plan with at most this energy of one iteration of one pipeline
            (J).
        power_cap_w: The fastest plan with at most this mean power of one pipeline (W).
        price: The cheapest plan for this pair of prices ($/kWh, $/GPU-hour).
        frontier: Whether to compute the frontier. For very large jobs, False saves time, if no target
            needs it: slowdowns, deadlines and least energy do not.

    slowdown_percent, deadline_s, energy_budget_j and power_cap_w take one value or several.

    Returns:
        A PlanResult. `plans` has the plans of all targets, and `plan` is the first one.

    Raises:
        Error: The input is wrong. The message says where, and the remedy.
        UnreachableError: No plan meets the target. The message says which values can be met.
        OSError: A file cannot be read.

    Warns:
        UserWarning: The input is probably wrong, such as a clock in GHz.
    """
    given = locals()
    targets = arguments.targets(given)  # Refuse wrong targets before anything is computed.
    if profile is None and job is None and graph is None:
        raise Error("the profile is missing (give the path of a CSV file, rows, or columns)")
    if sum(one is not None for one in (schedule, schedule_file, graph)) > 1:
        raise Error("schedule, schedule_file and graph exclude each other (leave out two)")
    settings = arguments.settings(given)
    wishes = arguments.wishes(given)
    planning_job = _planner.load(settings)
    described = _planner.describe(planning_job)
    for warning in described["warnings"]:
        warnings.warn(warning, UserWarning, stacklevel=2)
    return PlanResult(planning_job, described, targets, wishes)


def search_schedules(
    profile: Optional[ProfileLike] = None,
    *,
    job: Optional[PathLike] = None,
    more: Union[None, int, Sequence[int]] = None,
    memory_gib: Optional[float] = None,
    activation_mib: Union[None, float, Sequence[float]] = None,
    model_gib: Union[None, float, Sequence[float]] = None,
    kept_mib: Union[None, float, Sequence[float]] = None,
    fold: bool = False,
    microbatches: Optional[int] = None,
    gpus_per_stage: Optional[int] = None,
    facts: Optional[PathLike] = None,
    blocking_power_w: Optional[float] = None,
    switch_latency_ms: Optional[float] = None,
    switch_cost: Optional[Tuple[float, float]] = None,
    max_switches: Optional[int] = None,
    p2p_s: Optional[float] = None,
    load_s: Optional[float] = None,
    all_reduce_s: Optional[float] = None,
    optimizer_s: Optional[float] = None,
) -> ScheduleSearch:
    """Finds how much energy memory saves: what `perseus schedule search` prints. Takes seconds.

    >>> found = perseus.search_schedules("profile.csv", microbatches=24, blocking_power_w=83.64)
    >>> [(row.in_flight, row.saving) for row in found.rows], found.conclusion

    Args:
        more: The rows: so many microbatches more than with 1F1B on each pp_rank, one number or
            several. Default: 0, 1, 2, 3, 4, 6 and 8, until more is of no use.
        memory_gib: The memory of a GPU (GiB), for `ScheduleSearch.fitting`.

    The others are those of `perseus.plan`.

    Raises:
        Error: The input is wrong. The message says where, and the remedy.
        UnreachableError: No known schedule fits the memory. The message says how much is needed.
        OSError: A file cannot be read.

    Warns:
        UserWarning: The input is probably wrong, such as a clock in GHz.
    """
    given = locals()
    if profile is None and job is None:
        raise Error("the profile is missing (give the path of a CSV file, rows, or columns)")
    settings = arguments.settings(given)
    several = [] if more is None else arguments.several(more)
    asked = sorted({arguments.checked("more", value) for value in several})
    if more is not None and not asked:
        raise Error("more has no numbers (leave it out for the default rows)")
    found = _planner.search_schedules(settings, asked)
    for warning in found["warnings"]:
        warnings.warn(warning, UserWarning, stacklevel=2)
    return ScheduleSearch._of(found)

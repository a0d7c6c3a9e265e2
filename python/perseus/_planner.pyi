from typing import Any, Dict, List, Optional, Tuple, Union

class Error(ValueError):
    remedy: Optional[str]
    setting: Optional[str]
    file: Optional[str]
    line: Optional[int]

class UnreachableError(Error): ...

class ChangeLimit:
    default: "ChangeLimit"
    auto: "ChangeLimit"
    given: "ChangeLimit"
    none: "ChangeLimit"

class JobSettings:
    profile: Union[str, bytes]
    profile_text: Optional[str]
    job_file: Union[str, bytes]
    schedule: str
    schedule_file: Union[str, bytes]
    graph: Union[str, bytes]
    facts: Union[str, bytes]
    pp_ranks: Optional[int]
    microbatches: Optional[int]
    chunks: Optional[int]
    pipelines: Optional[int]
    gpus_per_stage: Optional[int]
    blocking_power_w: Optional[float]
    switch_latency_ms: Optional[float]
    p2p_s: Optional[float]
    load_s: Optional[float]
    all_reduce_s: Optional[float]
    optimizer_s: Optional[float]
    max_in_flight: List[int]
    activation_mib: List[float]
    kept_mib: List[float]
    fold: bool
    limit: ChangeLimit
    most_changes: int
    with_tradeoff: bool
    memory_gib: Optional[float]
    model_gib: List[float]
    def set_switch_cost(self, stall_s: float, energy_j: float) -> None: ...

class TargetKind: ...

class PlannedTarget:
    name: str
    target: str
    deadline_s: float
    time_s: float
    energy_j: float
    lower_bound_j: float
    gap: float
    switches: int
    max_switches: Optional[int]
    def instructions(self) -> Dict[str, Any]: ...
    def knobs(self) -> Dict[str, Any]: ...
    def to_json(self) -> str: ...

class Wishes:
    effort: int
    with_frontier: bool
    def set_noise(self, percent: float, common_percent: float) -> None: ...

class Target:
    def __init__(self, kind: TargetKind, value: float, gpu_hour: float) -> None: ...

class PlannedTargets:
    plans: List[PlannedTarget]
    def frontier(self) -> Optional[Dict[str, Any]]: ...

class PlanningJob:
    def __init__(self, settings: JobSettings) -> None: ...
    def plan(self, targets: List[Target], wishes: Wishes) -> PlannedTargets: ...
    def tradeoff(self, planned: PlannedTargets) -> Optional[List[Dict[str, Any]]]: ...
    def baseline(self) -> Tuple[float, float, int]: ...
    def warnings(self) -> List[str]: ...
    def schedule(self) -> Dict[str, Any]: ...

def write_file(path: bytes, text: str) -> None: ...
def search_schedules(settings: JobSettings, more: List[int]) -> Dict[str, Any]: ...
def ranges() -> Dict[str, Tuple[float, float, str]]: ...
def kind_names() -> List[str]: ...

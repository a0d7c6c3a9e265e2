from perseus._client import (
    Counters as Counters,
    Instruction as Instruction,
    Session as Session,
    Step as Step,
    instruction as instruction,
    instruction_begin as instruction_begin,
    instruction_end as instruction_end,
    step as step,
    step_abandon as step_abandon,
    step_begin as step_begin,
    step_end as step_end,
)
from perseus._plan import (
    Baseline as Baseline,
    Error as Error,
    Frontier as Frontier,
    Plan as Plan,
    PlanResult as PlanResult,
    Schedule as Schedule,
    ScheduleRow as ScheduleRow,
    ScheduleSearch as ScheduleSearch,
    UnreachableError as UnreachableError,
    plan as plan,
    search_schedules as search_schedules,
)
from perseus._session import open as open
from perseus.adapters import Handle as Handle
from perseus.adapters import attach as attach

__version__: str

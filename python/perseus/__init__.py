"""Perseus removes energy bloat from large model training.

In a training loop (libperseus.so asks the node's agent for the clock that the plan has for each
instruction, and measures the instructions; it changes nothing about what is computed):

    perseus.open(pp_rank=pp_rank)
    for batch in batches:
        with perseus.step():
            with perseus.instruction("forward", microbatch=0):
                ...

Or, with PyTorch's pipeline schedules, without a change of the loop (docs/frameworks.md):

    perseus.attach(schedule)

In a notebook (times in seconds, energies in joules, power in watts, clocks in MHz):

    found = perseus.plan("profile.csv", schedule="1f1b", microbatches=96, blocking_power_w=83.64)
    found.frontier.times_s, found.plan.instructions["frequency_mhz"], found.saving
    found.save("plan.json")

Hooks never raise. The logger "perseus" reports problems, and training continues.
"""

from typing import TYPE_CHECKING

try:
    from perseus._client import (
        Costs,
        Counters,
        Instruction,
        Session,
        Step,
        instruction,
        instruction_begin,
        instruction_end,
        step,
        step_abandon,
        step_begin,
        step_end,
        wait_begin,
        wait_end,
    )
    from perseus._client import version as __version__
except ModuleNotFoundError as missing:
    raise ImportError(
        f"the extension modules of perseus are missing ({missing}); build them with cmake --build "
        "build/release, and use the Python that they were built for (/usr/bin/python3 on Debian)"
    ) from missing
from perseus._session import open, released
from perseus._status import Interval, Status, progress, status
from perseus.adapters import Handle, attach

if TYPE_CHECKING:
    from perseus._plan import (
        Baseline,
        Error,
        Frontier,
        Plan,
        PlanResult,
        Schedule,
        ScheduleRow,
        ScheduleSearch,
        UnreachableError,
        plan,
        search_schedules,
    )
else:
    # The planner needs NumPy, so it is loaded at its first use: a training process may not have NumPy.
    def __getattr__(name: str) -> object:
        if name in __all__:
            from perseus import _plan

            return getattr(_plan, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Baseline",
    "Costs",
    "Counters",
    "Error",
    "Frontier",
    "Handle",
    "Instruction",
    "Interval",
    "Plan",
    "PlanResult",
    "Schedule",
    "ScheduleRow",
    "ScheduleSearch",
    "Session",
    "Status",
    "Step",
    "UnreachableError",
    "__version__",
    "attach",
    "instruction",
    "instruction_begin",
    "instruction_end",
    "open",
    "plan",
    "progress",
    "released",
    "search_schedules",
    "status",
    "step",
    "step_abandon",
    "step_begin",
    "step_end",
    "wait_begin",
    "wait_end",
]

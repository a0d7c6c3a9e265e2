import os
from types import TracebackType
from typing import Callable, NamedTuple, Optional, Protocol, Type, Union

class _CudaStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

_Stream = Union[None, int, _CudaStream]

version: str

class Counters(NamedTuple):
    steps: int
    steps_off_plan: int
    instructions: int
    clock_requests: int
    clocks_limited: int
    clocks_refused: int
    agent_losses: int
    records_dropped: int
    stream_failures: int
    warnings: int
    may_set_clocks: bool
    follows_plan: bool
    plan_version: int
    steps_abandoned: int
    changes_skipped: int

class Step:
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class Instruction:
    def __enter__(self) -> None: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

class Session:
    def __init__(
        self,
        *,
        dp_rank: int = ...,
        pp_rank: int = ...,
        tp_rank: int = ...,
        gpu: Optional[str] = ...,
        job: Optional[str] = ...,
        job_directory: Optional[str] = ...,
        plan: Optional[str] = ...,
        agent: Optional[str] = ...,
        devices: Optional[str] = ...,
        plan_expires_at: int = ...,
        stages: Optional[str] = ...,
        pp_ranks: int = ...,
    ) -> None: ...
    @property
    def counters(self) -> Counters: ...
    @property
    def is_open(self) -> bool: ...
    def step(self) -> Step: ...
    def instruction(
        self,
        kind: str,
        microbatch: Optional[int] = ...,
        chunk: int = ...,
        stream: _Stream = ...,
    ) -> Instruction: ...
    def step_begin(self) -> None: ...
    def step_end(self) -> None: ...
    def step_abandon(self) -> None: ...
    def instruction_begin(
        self, kind: str, microbatch: Optional[int] = ..., chunk: int = ..., stream: _Stream = ...
    ) -> None: ...
    def instruction_end(self) -> None: ...
    def use_plan(self, path: Union[None, str, "os.PathLike[str]"]) -> bool: ...
    def close(self) -> None: ...
    def __enter__(self) -> Session: ...
    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None: ...

def step() -> Step: ...
def instruction(
    kind: str,
    microbatch: Optional[int] = ...,
    chunk: int = ...,
    stream: _Stream = ...,
) -> Instruction: ...
def step_begin() -> None: ...
def step_end() -> None: ...
def step_abandon() -> None: ...
def instruction_begin(
    kind: str, microbatch: Optional[int] = ..., chunk: int = ..., stream: _Stream = ...
) -> None: ...
def instruction_end() -> None: ...
def set_default(session: Session) -> None: ...
def set_log(log: Callable[[str], None]) -> None: ...
def close_all() -> None: ...

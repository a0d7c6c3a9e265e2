"""The client of a training process, which marks the begin and the end of each instruction."""

from __future__ import annotations

import atexit
import contextlib
import operator
import os
import sys
from typing import Any, Iterator, Optional, Sequence, Union

from perseus import _client
from perseus._log import log as _log

PathLike = Union[str, "os.PathLike[str]"]

was_opened = False  # Whether the program has opened a session itself.
job_directory_of_newest: Optional[PathLike] = None  # None: PERSEUS_JOB_DIR.


def open(  # noqa: A001: users call it perseus.open().
    *,
    dp_rank: int = 0,
    pp_rank: int = 0,
    tp_rank: int = 0,
    gpu: Union[None, int, str] = None,
    job: Optional[str] = None,
    job_directory: Optional[PathLike] = None,
    plan: Optional[PathLike] = None,
    agent: Optional[PathLike] = None,
    devices: Optional[str] = None,
    plan_expires_at: float = 0,
    stages: Optional[Sequence[int]] = None,
    pp_ranks: int = 0,
) -> _client.Session:
    """Opens a session. `perseus.step` and `perseus.instruction` then use it.

    If something is missing (such as the agent or the plan), this function does not fail. The
    session then only measures, or does nothing, and a warning of the logger "perseus" says why. The
    function waits until the agent of the node replies, at most 20 s. The session closes when the
    interpreter exits. In a forked child, it does nothing.

    An argument that is None comes from the environment variable in its description. If that is not
    set either, the default applies.

    Args:
        dp_rank: The pipeline, from 0.
        pp_rank: The position along the pipeline, from 0: which instructions of the plan it runs.
        tp_rank: Which of the GPUs that share the work of one pp_rank, from 0.
        gpu: The UUID of the GPU, or its number among the visible GPUs. PERSEUS_GPU, or the only
            GPU.
        job: The name that other users see as the holder of the GPU. PERSEUS_JOB, or "training".
        job_directory: Where assignments come from, and where steps are recorded. PERSEUS_JOB_DIR,
            or none.
        plan: A plan file, followed until an assignment says otherwise. PERSEUS_PLAN, or none.
        agent: The socket of the agent. "off": no agent. "own": starts an agent for this user if it
            may set clocks. PERSEUS_AGENT, or "/run/perseus/agent.sock".
        devices: What measures energy: "auto", "nvml", "rocm", "virtual:FILE" or "off".
            PERSEUS_DEVICES, or "auto".
        plan_expires_at: The time (in seconds since 1970) from which on `plan` is not followed. 0:
            never.
        stages: The pipeline stages of this rank, by chunk: [0, 7] if chunk 0 is stage 0 and chunk 1
            is stage 7. They are recorded, so that the schedule can be read from the record. None:
            stage = chunk * pp_ranks + pp_rank.
        pp_ranks: How many ranks the pipeline has. It is recorded. 0: unknown.

    Returns:
        The session. One process may open several, one for each GPU.

    Raises:
        TypeError: An argument is unknown, or has a wrong type. The message says which.
        ValueError: A number or a text is impossible.
    """
    global was_opened, job_directory_of_newest
    if isinstance(stages, str) or not (stages is None or hasattr(stages, "__iter__")):
        raise TypeError(f"stages: {stages!r} is not a list of numbers (for example, [0, 7])")
    session = _client.Session(
        dp_rank=_number("dp_rank", dp_rank),
        pp_rank=_number("pp_rank", pp_rank),
        tp_rank=_number("tp_rank", tp_rank),
        gpu=None if gpu is None else _text("gpu", str(gpu)),
        job=_text("job", job),
        job_directory=_path("job_directory", job_directory),
        plan=_path("plan", plan),
        agent=_path("agent", agent),
        devices=_text("devices", devices),
        plan_expires_at=_time("plan_expires_at", plan_expires_at),
        stages=None if stages is None else ",".join(str(stage) for stage in stages),
        pp_ranks=_number("pp_ranks", pp_ranks),
    )
    _client.set_default(session)
    was_opened, job_directory_of_newest = True, job_directory
    return session


@contextlib.contextmanager
def released() -> Iterator[None]:
    """Gives the GPU its default clock, for code between two steps that measures or tests it.

        with perseus.released():
            check_health_of_the_gpu()

    Waits until the agent has set the clock of each session of this process, at most one second. It
    does not wait for work on streams. The next step requests its clocks again. Without this, the GPU
    gets its default clock if the next step is 0.1 s later than usual.
    """
    _client.release_clocks()
    yield


def _number(name: str, value: Any) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: {value!r} is not a whole number (give one from 0)") from None
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"{name}: {number} is too large (give a number below 2147483648)")
    return number


def _time(name: str, value: Any) -> int:
    try:
        seconds = int(value)
    except (TypeError, ValueError, OverflowError):
        seconds = 2**63
    if not -(2**63) <= seconds < 2**63:
        raise ValueError(f"{name}: {value!r} is not a time (give seconds since 1970, or 0)")
    return seconds


def _text(name: str, value: Optional[str]) -> Optional[str]:
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name}: {value!r} is not a text (give a string)")
    try:
        is_text = b"\0" not in value.encode()
    except UnicodeEncodeError:
        is_text = False
    if not is_text:
        raise ValueError(f"{name}: {value!r} is not UTF-8, or has a zero byte (give another name)")
    return value


def _path(name: str, path: Optional[PathLike]) -> Optional[str]:
    if path is None:
        return None
    try:
        text = os.fsdecode(path)
    except TypeError:
        raise TypeError(f"{name}: {path!r} is not a path (give a string or a pathlib.Path)") from None
    return _text(name, text)


def _close_all() -> None:
    # Python sets last_value when it prints the exception that ended the program.
    _client.close_all(hasattr(sys, "last_value"))


_client.set_log(_log.warning)
atexit.register(_close_all)

"""The arguments of perseus.plan and perseus.search_schedules, checked and given to the planner.

A wrong argument raises Error with its name, its value and the remedy.
"""

from __future__ import annotations

import csv
import io
import math
import operator
import os
import reprlib
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
from numpy.typing import NDArray

from perseus import _planner

Error = _planner.Error

PathLike = Union[str, "os.PathLike[str]"]
#: A profile: the path of a CSV file; columns by name (a mapping, a structured array or a data
#: frame); or rows (each a mapping, or a sequence: stage, instruction, frequency, time, energy).
ProfileLike = Union[PathLike, Mapping[str, Sequence[Any]], NDArray[Any], Sequence[Any]]

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_COLUMNS = ("stage", "instruction", "frequency", "time", "energy")
_RANGES = _planner.ranges()
_SIZES = ("pp_ranks", "microbatches", "chunks", "pipelines", "gpus_per_stage")
_COUNTS = (*_SIZES, "max_switches", "max_in_flight", "more", "effort")
_NUMBERS = (*_SIZES, "blocking_power_w", "switch_latency_ms", "memory_gib", "p2p_s", "load_s",
            "all_reduce_s", "optimizer_s")
_LISTS = ("max_in_flight", "activation_mib", "model_gib", "kept_mib")
_PATHS = {"job": "job_file", "facts": "facts", "schedule_file": "schedule_file", "graph": "graph"}
TARGETS = ("target", "slowdown_percent", "deadline_s", "energy_budget_j", "power_cap_w", "price")
_NAMED_TARGETS = {
    "no-slowdown": ("slowdown_percent", 0.0),
    "least-energy": ("least_energy", 0.0),
    "least-energy-delay": ("least_energy_delay", 0.0),
}


def settings(given: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the job of the arguments of perseus.plan or perseus.search_schedules, by their names."""
    settings: Dict[str, Any] = {}
    profile = given["profile"]
    if isinstance(profile, (str, bytes, os.PathLike)):
        settings["profile"] = path("profile", profile)
    elif profile is not None:
        settings["profile"] = "profile"
        settings["profile_text"] = _profile_text(profile)
    settings["schedule"] = text("schedule", given.get("schedule"))
    settings["fold"] = flag("fold", given["fold"])
    for name, value in given.items():
        if value is None:
            continue
        if name in _PATHS:
            settings[_PATHS[name]] = path(name, value)
        elif name in _NUMBERS:
            settings[name] = checked(name, value)
        elif name in _LISTS:
            settings[name] = [checked(name, one) for one in several(value)]
    if given["switch_cost"] is not None:
        settings["switch_cost"] = _switch_cost(given["switch_cost"])
    _limit_changes(settings, given)
    return settings


def _limit_changes(settings: Dict[str, Any], given: Mapping[str, Any]) -> None:
    most = given["max_switches"]
    if flag("per_instruction", given.get("per_instruction", False)):
        if most is not None:
            raise Error("max_switches and per_instruction exclude each other (leave out one)")
        settings["limit"] = "none"
    elif isinstance(most, str) and most == "auto" and "per_instruction" in given:
        settings["limit"] = "auto"
    elif most is not None:
        settings["limit"] = "given"
        settings["most_changes"] = checked("max_switches", most)
    settings["with_tradeoff"] = flag("switch_tradeoff", given.get("switch_tradeoff", False))


def wishes(given: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns what perseus.plan asks for, besides the targets and the limit of clock changes."""
    wishes: Dict[str, Any] = {
        "effort": checked("effort", given["effort"]),
        "with_frontier": flag("frontier", given["frontier"]),
    }
    if given["noise_percent"] is not None:
        percents = several(given["noise_percent"])
        if len(percents) not in (1, 2):
            raise Error(
                f"noise_percent: {_shown(given['noise_percent'])} is neither a number nor a pair "
                "(give the noise of single instructions, and that of whole pp_ranks)"
            )
        wishes["noise_percent"] = [checked("noise_percent", one) for one in (*percents, 0)[:2]]
    return wishes


def _shown(value: Any) -> str:
    """The value for a message: one short line, even of an object whose repr() fails."""
    return " ".join(_SHORT.repr(value).split())


def path(name: str, path: Any) -> bytes:
    """The path as the operating system has it. A name on Linux may be any bytes."""
    try:
        encoded = os.fsencode(path)
    except (TypeError, UnicodeEncodeError):
        encoded = b"\0"
    if not encoded or b"\0" in encoded:
        raise Error(f"{name}: {_shown(path)} is not a path (give a string or a pathlib.Path)")
    return encoded


def text(name: str, value: Optional[str]) -> str:
    if value is None:
        return ""
    try:
        if isinstance(value, str) and value.encode():
            return value
    except UnicodeEncodeError:
        pass
    raise Error(f"{name}: {_shown(value)} is not a string (give a name)")


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise Error(f"{name}: {_shown(value)} is neither True nor False (give one of them)")
    return bool(value)


def checked(name: str, value: Any) -> Union[int, float]:
    least, most, unit = _RANGES[name]
    whole = name in _COUNTS
    try:
        number = operator.index(value) if whole else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, (str, bool, np.bool_)) or not least <= number <= most:
        raise Error(
            f"{name}: {_shown(value)} is not a number from {least:g} to {most:.0f} ({unit})"
        )
    return number


def several(given: Any) -> List[Any]:
    """One value or a sequence of values, as a list."""
    is_one_number = isinstance(given, np.ndarray) and given.ndim == 0
    if isinstance(given, str) or is_one_number or not hasattr(given, "__iter__"):
        return [given]
    return list(given)


def _switch_cost(given: Any) -> List[float]:
    try:
        stall_s, energy_j = given
    except (TypeError, ValueError):
        raise Error(
            f"switch_cost: {_shown(given)} is not a pair (give the stall in s and the energy in J "
            "of a change)"
        ) from None
    return [checked("switch_stall_s", stall_s), checked("switch_energy_j", energy_j)]


def targets(arguments: Mapping[str, Any]) -> List[Tuple[str, float, float]]:
    """Returns (kind, value, price of a GPU-hour) of each target, the named targets first.

    Without targets, the list is empty, and the job has a default.
    """
    targets: List[Tuple[str, float, float]] = []
    named = arguments["target"]
    for name in [] if named is None else several(named):
        if not isinstance(name, str) or name not in _NAMED_TARGETS:
            known = ", ".join(_NAMED_TARGETS)
            raise Error(
                f"target: {_shown(name)} is not one of {known} (or give another target, such as "
                "deadline_s=2.9)"
            )
        kind, value = _NAMED_TARGETS[name]
        targets.append((kind, value, 0.0))
    for kind in TARGETS[1:]:
        given = arguments[kind]
        if given is None:
            continue
        if kind == "price":
            try:
                kwh, gpu_hour = given
            except (TypeError, ValueError):
                raise Error(
                    f"price: {_shown(given)} is not a pair (give $/kWh and $/GPU-hour)"
                ) from None
            targets.append((kind, checked(kind, kwh), checked(kind, gpu_hour)))
            continue
        values = given if np.ndim(given) else [given]
        targets.extend((kind, checked(kind, value), 0.0) for value in values)
    return targets


def _profile_text(profile: Any) -> str:
    """Returns the CSV text of a profile in memory. Each number keeps all of its digits."""
    header, rows = _table(profile)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    # item() turns a NumPy number into a Python number, whose text is short and exact.
    writer.writerows(
        [value.item() if isinstance(value, np.generic) else value for value in row] for row in rows
    )
    return text.getvalue()


def _table(profile: Any) -> Tuple[Sequence[str], Iterable[Sequence[Any]]]:
    """Returns the header and the rows of a profile in memory. Raises Error if it has another form."""
    if isinstance(profile, np.ndarray):
        if profile.dtype.names is None:
            raise Error(
                "profile: an array without field names (make it a structured array, or a mapping of "
                "columns: stage, instruction, frequency, time, energy)"
            )
        return profile.dtype.names, profile.tolist()
    if hasattr(profile, "keys"):
        header = list(profile.keys())
        try:
            columns = [list(profile[name]) for name in header]
        except TypeError as error:
            raise Error(f"profile: a column is not a sequence: {error} (give lists)") from None
        if len({len(column) for column in columns}) > 1:
            lengths = ", ".join(f"{n}: {len(c)}" for n, c in zip(header, columns))
            raise Error(f"profile: columns of different lengths ({lengths})")
        return header, zip(*columns)
    try:
        rows = list(profile)
    except TypeError:
        raise Error(
            f"profile: {type(profile).__name__} is not a profile (give a path, columns or rows)"
        ) from None
    if rows and hasattr(rows[0], "keys"):
        header = list(rows[0].keys())
        try:
            return header, [[row[name] for name in header] for row in rows]
        except (KeyError, TypeError, IndexError) as error:
            raise Error(
                f"profile: a row lacks {error} (each row needs the keys of the first row)"
            ) from None
    for number, row in enumerate(rows):
        if isinstance(row, str) or not hasattr(row, "__len__") or len(row) != len(_COLUMNS):
            raise Error(
                f"profile: row {number} is not a sequence of {', '.join(_COLUMNS)} (give five values)"
            )
    return _COLUMNS, rows

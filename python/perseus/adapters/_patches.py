"""Replaces attributes and map entries, and puts the originals back in reverse order.

The owners are held weakly: a patch keeps no schedule, stage or engine alive. If somebody else has
replaced a value after us, restore() leaves it, because the new value may call ours. Ours then only
passes calls through (see Recorder.is_attached).
"""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Optional

_ABSENT = object()


class Patches:
    def __init__(self) -> None:
        self._restore: List[Callable[[], bool]] = []

    def __len__(self) -> int:
        return len(self._restore)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of an instance, a class or a module."""
        before = vars(owner).get(name, _ABSENT)
        reference = _reference(owner)
        setattr(owner, name, value)

        def restore() -> bool:
            owner = reference()
            if owner is None:
                return True
            if vars(owner).get(name, _ABSENT) is not value:
                return False
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
            return True

        self._restore.append(restore)

    def set_item(self, mapping: Dict[Any, Any], key: Any, value: Any) -> None:
        """Sets an entry of a map. A plain dict cannot be held weakly, so this holds it."""
        before = mapping.get(key, _ABSENT)
        mapping[key] = value

        def restore() -> bool:
            if mapping.get(key, _ABSENT) is not value:
                return False
            if before is _ABSENT:
                del mapping[key]
            else:
                mapping[key] = before
            return True

        self._restore.append(restore)

    def restore(self) -> int:
        """Puts the originals back. Returns how many are left because somebody replaced ours."""
        left = 0
        while self._restore:
            left += not self._restore.pop()()
        return left


def _reference(owner: Any) -> Callable[[], Optional[Any]]:
    try:
        return weakref.ref(owner)
    except TypeError:  # An object with __slots__.
        return lambda: owner


def function_of(owner: Any, name: str) -> Callable[..., Any]:
    """The method `name` as a function of (owner, ...), which does not hold the owner."""
    found = getattr(owner, name)
    if getattr(found, "__self__", None) is owner:
        return found.__func__
    return lambda _, *arguments, **named: found(*arguments, **named)

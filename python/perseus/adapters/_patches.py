"""Replaces attributes and map entries, and puts the originals back in reverse order.

Only the owner holds what replaces its attribute, and that holds what was there before. A patch holds
all of it weakly, so it keeps no schedule, stage or engine alive, also if another tool has replaced
the attribute before by a function that holds the owner.

If somebody else has replaced a value after us, restore() leaves it, because the new value may call
ours. Ours then only passes calls through (see Recorder.is_attached).
"""

from __future__ import annotations

import types
import typing
import weakref
from typing import Any, Callable, Dict, List, Optional

_ABSENT = object()


class Owner(weakref.ref):  # type: ignore[type-arg]
    """What a hook that set_method() has placed gets in the place of `self`.

    It refers to the owner of the hook weakly. But in a copy of the owner, and after pickling, it is
    the copy itself. So the hook of a copy gets the copy, and does not run the method of the original.
    """

    __slots__ = ()

    def __reduce__(self) -> Any:
        return typing.cast, (None, self())  # Returns its second argument, without this package.


class Instructions(Dict[Any, Any]):
    """A map that can be held weakly, and has the attribute that set() needs."""


class Patches:
    def __init__(self) -> None:
        self._restore: List[Callable[[], bool]] = []

    def __len__(self) -> int:
        return len(self._restore)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of an instance, a class or a module, to a function or Instructions."""
        holder = getattr(value, "__func__", value)
        holder._perseus_before = vars(owner).get(name, _ABSENT)
        owner_of, ours_of = _reference(owner), weakref.ref(value)
        setattr(owner, name, value)

        def restore() -> bool:
            owner, ours = owner_of(), ours_of()
            if owner is None:
                return True
            if ours is None or vars(owner).get(name, _ABSENT) is not ours:
                return False
            before = getattr(ours, "__func__", ours)._perseus_before
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
            return True

        self._restore.append(restore)

    def set_method(self, reference: Owner, name: str, hook: Callable[..., Any]) -> None:
        """Sets a method of one instance. The hook gets `reference` as its first argument."""
        hook.__name__ = name  # Pickle finds a method by its name.
        self.set(reference(), name, types.MethodType(hook, reference))

    def set_item(self, owner: Any, name: str, key: Any, value: Callable[..., Any]) -> None:
        """Sets an entry of the map that is an attribute of this name."""
        mapping = getattr(owner, name)
        value._perseus_before = mapping.get(key, _ABSENT)  # type: ignore[attr-defined]
        owner_of, ours_of = _reference(owner), weakref.ref(value)
        mapping[key] = value

        def restore() -> bool:
            mapping, ours = getattr(owner_of(), name, {}), ours_of()
            if ours is None or mapping.get(key, _ABSENT) is not ours:
                return not mapping
            before = ours._perseus_before  # type: ignore[attr-defined]
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


def target_of(owner: Any) -> Any:
    """The object that a hook gets a reference to, or the copy of it."""
    return owner() if type(owner) is Owner else owner


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

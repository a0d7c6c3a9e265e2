"""Replaces methods, attributes and map entries of one object, and puts the originals back.

Methods. The object gets a class of its own: a subclass of its class, with the hooks as methods. So a
bound method holds its object as usual, a copy or a pickle of the object has the original class, and
restore() sets the class back. Candidates were hooks as attributes of the object (a bound method has
to hold the object weakly then, and fails without it; a shallow copy shares the hooks) and hooks on
the class for all its objects (each call of each object has to look up what it is).

An attribute of the object goes before its class. So if other code has set a method on the object,
that attribute is replaced.

Nothing here holds the object, also if another tool has replaced a method before by a function that
holds it. If somebody else has replaced a value after us, restore() leaves it, because the new value
may call ours. Ours then only passes calls through (see Recorder.is_attached).
"""

from __future__ import annotations

import copyreg
import functools
import typing
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

_ABSENT = object()


class Patches:
    def __init__(self) -> None:
        self._restore: List[Callable[[], bool]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Sets an attribute of an object, a class or a module. The value has attributes itself."""
        value._perseus_before = vars(owner).get(name, _ABSENT)
        owner_of, ours_of = _reference(owner), weakref.ref(value)
        setattr(owner, name, value)

        def restore() -> bool:
            owner, ours = owner_of(), ours_of()
            if owner is None:
                return True
            if ours is None or vars(owner).get(name, _ABSENT) is not ours:
                return False
            if ours._perseus_before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, ours._perseus_before)
            return True

        self._restore.append(restore)

    def set_members(self, owner: Any, members: Mapping[str, Any]) -> None:
        """Sets methods and attributes of one object. A method gets the object first.

        That is `owner`, or an object that was made from the class of `owner` meanwhile.
        """
        own = getattr(owner, "__dict__", {})
        of_class = {name: value for name, value in members.items() if name not in own}
        if of_class:
            self._restore.append(_set_class(owner, of_class))
        for name in set(members) - set(of_class):
            value = members[name]
            is_method = callable(value)
            self.set(owner, name, _Replacement(value, weakref.ref(owner)) if is_method else value)

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


class _Replacement:
    """Takes the place of a method that other code has set on an object."""

    def __init__(self, hook: Callable[..., Any], owner_of: Callable[[], Any]) -> None:
        functools.update_wrapper(self, hook)
        self._perseus_before: Any = _ABSENT
        self._hook, self._owner_of = hook, owner_of

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self._hook(self._owner_of(), *arguments, **named)

    def __reduce__(self) -> Any:
        return typing.cast, (None, self._perseus_before)  # Returns its second argument.


_OF_OBJECT = vars(object)["__class__"]


def _unregistered(cls: type, members: Mapping[str, Any]) -> type:
    """Returns a subclass that `cls` does not register in __init_subclass__."""
    if not hasattr(cls.__init_subclass__, "__func__"):  # That of `object` registers nothing.
        return type(cls)(cls.__name__, (cls,), dict(members))
    name, before = "__init_subclass__", vars(cls).get("__init_subclass__", _ABSENT)
    type.__setattr__(cls, name, classmethod(lambda _: None))
    try:
        return type(cls)(cls.__name__, (cls,), dict(members))
    finally:
        if before is _ABSENT:
            type.__delattr__(cls, name)
        else:
            type.__setattr__(cls, name, before)


def _set_class(owner: Any, members: Mapping[str, Any]) -> Callable[[], bool]:
    """Gives the object a class of its own. Returns the function that sets the class back."""
    cls, names = type(owner), tuple(members)
    about = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        # Code that makes another object of this class, or changes the class, means the original one.
        "__class__": property(
            lambda self: cls if type(self) is ours else type(self),
            lambda self, new: _OF_OBJECT.__set__(self, new),
        ),
    }
    ours = _unregistered(cls, {**members, **about})
    ours.__reduce_ex__ = _reduce_as(cls, ours)  # type: ignore[method-assign]
    ours_of = weakref.ref(ours)

    # A class lives until the garbage collector finds it. The hooks must not: they hold a session.
    def forget(_: Any) -> None:
        forgotten = ours_of()
        for name in names if forgotten is not None else ():
            delattr(forgotten, name)

    owner_of = weakref.ref(owner, forget)
    ours._perseus_owner = owner_of  # type: ignore[attr-defined]
    object.__setattr__(owner, "__class__", ours)

    def restore() -> bool:
        owner = owner_of()
        if owner is None:
            return True
        if type(owner) is not ours_of():
            return False
        object.__setattr__(owner, "__class__", cls)
        return True

    return restore


def _reduce_as(cls: type, ours: type) -> Callable[..., Any]:
    """Returns __reduce_ex__ for the class `ours`: a copy and a pickle have its base class."""

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        reduced = super(ours, self).__reduce_ex__(protocol)
        if isinstance(reduced, str):
            return reduced
        function, arguments, *rest = reduced
        if function is copyreg.__newobj__:  # type: ignore[attr-defined]
            function = cls.__new__  # Pickle wants the class of the object for __newobj__.
        replaced = [cls if each is ours else each for each in (function, *arguments)]
        return (replaced[0], tuple(replaced[1:]), *rest)

    return __reduce_ex__


def _reference(owner: Any) -> Callable[[], Optional[Any]]:
    try:
        return weakref.ref(owner)
    except TypeError:  # An object with __slots__.
        return lambda: owner


class ByObject:
    """A value for each of some objects, while these live. They need not be hashable or comparable."""

    def __init__(self) -> None:
        self._values: Dict[int, Tuple[weakref.ref[Any], Any]] = {}  # By the id of the object.

    def get(self, owner: Any) -> Any:
        """None if there is none."""
        return self._values.get(id(owner), (None, None))[1]

    def set(self, owner: Any, value: Any) -> None:
        key, values = id(owner), self._values
        # The entry goes before another object can have the id.
        values[key] = (weakref.ref(owner, lambda _: values.pop(key, None)), value)


def function_of(owner: Any, name: str) -> Callable[..., Any]:
    """The method `name` as a function of (owner, ...), which does not hold the owner."""
    found = getattr(owner, name)
    if getattr(found, "__self__", None) is owner:
        return found.__func__
    return lambda _, *arguments, **named: found(*arguments, **named)

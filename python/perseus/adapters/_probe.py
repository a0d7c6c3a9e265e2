"""Checks that a framework has what an adapter needs, by its features and not by its version."""

from __future__ import annotations

import inspect
from typing import Any, List, Mapping, Optional

from perseus.adapters._warning import warn


class Probe:
    """Collects what is missing. report() logs it once."""

    def __init__(self, framework: str) -> None:
        self.framework = framework  # With its version: "torch 2.13.0".
        self.problems: List[str] = []

    def attribute(self, owner: Any, name: str, of: Optional[type] = None) -> Any:
        """Returns the attribute, or None if it is missing or of another type."""
        try:
            value = getattr(owner, name)
        except Exception as error:
            self._miss(f"{_name(owner)}.{name}", f"{type(error).__name__}")
            return None
        if of is not None and not isinstance(value, of):
            self._miss(f"{_name(owner)}.{name} of type {of.__name__}", type(value).__name__)
            return None
        return value

    def method(self, owner: Any, name: str, *leading: str, also: Any = ()) -> None:
        """Checks the names of the leading parameters, and that the names in `also` follow."""
        expected = f"{_name(owner)}.{name}({', '.join([*leading, *also])})"
        found = getattr(owner, name, None)
        if not callable(found):
            self._miss(expected, "nothing" if found is None else type(found).__name__)
            return
        try:
            parameters = inspect.signature(found).parameters
        except (TypeError, ValueError):
            self._miss(expected, "a function without a signature")
            return
        kinds = {parameter.kind for parameter in parameters.values()}
        if inspect.Parameter.VAR_POSITIONAL in kinds and inspect.Parameter.VAR_KEYWORD in kinds:
            return  # A wrapper, which passes everything on.
        names = list(parameters)
        if names[: len(leading)] != list(leading) or not set(also) <= set(names):
            self._miss(expected, f"{name}({', '.join(names)})")

    def entry(self, mapping: Mapping[str, Any], key: str, expected: str) -> None:
        """Checks that a map has this key. `expected` names the entry."""
        if key not in mapping:
            self._miss(expected, ", ".join(mapping))

    def report(self) -> bool:
        """Returns True if everything is there. Otherwise logs one warning."""
        if not self.problems:
            return True
        warn(
            "attach: %s differs from what this adapter knows: %s. Nothing is attached. Place the "
            "hooks by hand: perseus.step, perseus.instruction (docs/frameworks.md)",
            self.framework,
            "; ".join(self.problems),
        )
        return False

    def _miss(self, expected: str, found: str) -> None:
        self.problems.append(f"expected {expected}, found {found}")


def _name(owner: Any) -> str:
    if inspect.ismodule(owner) or inspect.isclass(owner):
        return owner.__name__
    return type(owner).__name__

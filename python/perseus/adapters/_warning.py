"""The warnings of the adapters."""

from __future__ import annotations

from typing import Any

from perseus._log import log as _log


def warn(message: str, *arguments: Any, exc_info: bool = False) -> None:
    """Logs a warning. Never raises an Exception: a handler or a filter of the program may."""
    try:
        _log.warning(message, *arguments, exc_info=exc_info)
    except Exception:
        pass  # There is no other place to say it.

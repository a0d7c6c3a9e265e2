"""The logger "perseus"."""

from __future__ import annotations

import logging
import sys

log = logging.getLogger("perseus")


class _Fallback(logging.StreamHandler):
    """Prints warnings while the program has no handler. Python would print them without a name."""

    def emit(self, record: logging.LogRecord) -> None:
        if any(handler is not self for handler in (*log.handlers, *logging.root.handlers)):
            return
        self.stream = sys.stderr  # The program may have replaced it.
        super().emit(record)


_fallback = _Fallback()
_fallback.setLevel(logging.WARNING)
_fallback.setFormatter(logging.Formatter("perseus: %(message)s"))
log.addHandler(_fallback)

"""The logger "perseus".

Every message says "perseus", whatever the format of the program's handlers shows. If a launcher has
started several processes on a node, one of them logs what all of them have to say.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import socket
import sys
from typing import List

log = logging.getLogger("perseus")

# The rank in front of a message, and the number of this process among those of its launcher.
_RANK = re.compile(r"^dp\d+-pp\d+-tp\d+: ")
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")

# What this process was the first one to log. The names are free again when the process ends.
_taken: List[socket.socket] = []


class _Filter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if record.levelno >= logging.WARNING and not _is_first(_RANK.sub("", text)):
            return False
        record.msg, record.args = f"perseus: {text}", ()
        return True


def _is_first(text: str) -> bool:
    """Whether no other process of the same launcher on this node has logged it and still lives.

    The processes agree by an abstract name of a socket, which one process at a time can have. Nothing
    is sent. A file would outlive its process, and would hide the warning of the next run.
    """
    if not any(name in os.environ for name in _LOCAL_RANKS):
        return True
    launcher = f"{os.getuid()} {os.getppid()} {os.environ.get('MASTER_PORT')} {text}"
    name = "\0perseus-" + hashlib.sha256(launcher.encode(errors="replace")).hexdigest()
    try:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except OSError:
        return True
    try:
        claim.bind(name)
    except OSError:
        claim.close()
        return any(each.getsockname() == name.encode() for each in _taken)
    _taken.append(claim)
    return True


class _Fallback(logging.StreamHandler):
    """Prints warnings while the program has no handler."""

    def emit(self, record: logging.LogRecord) -> None:
        if any(handler is not self for handler in (*log.handlers, *logging.root.handlers)):
            return
        self.stream = sys.stderr  # The program may have replaced it.
        super().emit(record)


_fallback = _Fallback()
_fallback.setLevel(logging.WARNING)
log.addHandler(_fallback)
log.addFilter(_Filter())

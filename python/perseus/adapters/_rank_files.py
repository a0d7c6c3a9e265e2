"""Small files of a rank, beside its log in JOBDIR/ranks."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import stat
from typing import Any, Dict, Optional, Tuple

_MOST_CHARACTERS = 1 << 24  # More cannot be the result of a verb.


def path_of(
    job_directory: Optional[str], ranks: Tuple[int, int, int], ending: str
) -> Optional[pathlib.Path]:
    """JOBDIR/ranks/dp0-pp3-tp0.ENDING. None: there is no job directory.

    `ranks` are (dp_rank, pp_rank, tp_rank). `job_directory` None: PERSEUS_JOB_DIR.
    """
    directory = job_directory or os.environ.get("PERSEUS_JOB_DIR")
    if not directory:
        return None
    return pathlib.Path(directory) / "ranks" / ("dp%d-pp%d-tp%d." % ranks + ending)


def read_json(path: pathlib.Path) -> Dict[str, Any]:
    """The object of a file. Empty if there is none. Never waits, whatever the file is."""
    with contextlib.suppress(OSError, ValueError):
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(file, encoding="utf-8") as opened:
            if stat.S_ISREG(os.fstat(file).st_mode):
                value = json.loads(opened.read(_MOST_CHARACTERS))
                return value if isinstance(value, dict) else {}
    return {}


def replace(path: pathlib.Path, text: str) -> None:
    """Replaces a file. Follows no link, because other users may be able to write into its folder."""
    scratch = path.with_suffix(f".{os.getpid()}.tmp").name
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if os.fstat(folder).st_uid not in (0, os.geteuid()):
            raise PermissionError(errno.EPERM, "belongs to another user", str(path.parent))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with open(os.open(scratch, flags, 0o666, dir_fd=folder), "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(scratch, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)

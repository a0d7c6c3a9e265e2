"""Reports that a pipeline computes, but that no step of it is recorded.

`perseus.attach` reported that it is attached, so the user must learn this. The rank logs one warning,
and writes a file for `perseus run`, whose last line repeats the warning:
JOBDIR/ranks/dp0-pp3-tp0.outside
"""

from __future__ import annotations

from typing import Callable, Optional

from perseus._log import log as _log
from perseus.adapters import _rank_files
from perseus.adapters._recorder import Ranks
from perseus.adapters._warning import warn

_has_warned = False


def warn_once(
    framework: str, what: str, find_ranks: Callable[[], Ranks], job_directory: Optional[str]
) -> None:
    """Logs it once in this process. Never raises an Exception."""
    global _has_warned
    if _has_warned:
        return
    _has_warned = True
    warn("attach: %s: %s (see docs/frameworks.md)", framework, what)
    try:
        ranks = find_ranks()
        numbers = (ranks.dp_rank, ranks.pp_rank, ranks.tp_rank)
        path = _rank_files.path_of(job_directory, numbers, "outside")
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            _rank_files.replace(path, what + "\n")
    except Exception:
        _log.debug("attach: the rank cannot say that it has no step", exc_info=True)

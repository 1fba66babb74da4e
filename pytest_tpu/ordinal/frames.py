"""Which lines of a traceback are the user's business."""

from __future__ import annotations

import os
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from pytest_tpu.errors import TpuError

_OURS = str(Path(__file__).parents[1])
_PATHS = sysconfig.get_paths()
_OTHERS = (_OURS, *(_PATHS[name] for name in ("stdlib", "purelib", "platlib")))


def user_line(begin: TracebackType | None, root: Path) -> str:
    """The innermost line that is neither installed nor ours, as a path from `root` if it is below; or nothing.

    Args:
        begin: of the exception.
        root: where the user is.
    """
    for frame, number in reversed(list(traceback.walk_tb(begin))):
        path = Path(frame.f_code.co_filename)
        if path.is_absolute() and not any(path.is_relative_to(other) for other in _OTHERS):
            shown = os.path.relpath(path, root) if path.is_relative_to(root) else str(path)
            # An exception of a signal's handler may stand at an instruction that belongs to no line.
            return f"{shown}:{number or frame.f_code.co_firstlineno}"
    return ""


def end_at_the_call(error: BaseException) -> None:
    """Cut an error of ours where our code begins: the line above made the call, and what we did then explains nothing.

    Args:
        error: changed in place; those of others keep all their lines.
    """
    if not isinstance(error, TpuError):
        return
    above = None
    entry = error.__traceback__
    while entry is not None:
        inside = entry.tb_frame.f_code.co_filename.startswith((f"{_OURS}/backend", f"{_OURS}/ledger"))
        if inside and above is not None:
            above.tb_next = None
            return
        above, entry = entry, entry.tb_next

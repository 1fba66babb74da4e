"""Which lines of a traceback are the user's business."""

from __future__ import annotations

from pathlib import Path

from pytest_tpu.errors import TpuError

_OURS = str(Path(__file__).parents[1])


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

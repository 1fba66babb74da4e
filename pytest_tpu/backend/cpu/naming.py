"""What the user calls a collective that torch_xla makes out of others: `rendezvous 'save'`, not `all_reduce`."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_tpu.model.place import Call

if TYPE_CHECKING:
    from types import ModuleType


class _Current(threading.local):
    call: Call | None = None


_current = _Current()


def install(xla_model: ModuleType, is_ordinal: Callable[[], bool]) -> None:
    """Give a rendezvous its name and tag, for good; until this process is an ordinal nothing else changes.

    `xm.rendezvous` looks this function up when it is called, so that one imported by name before is named too.
    """
    original = xla_model.xla_rendezvous

    @functools.wraps(original)
    def xla_rendezvous(payload: bytes = b"", ordinals: list[int] | None = None, tag: str | None = None) -> Any:
        if not is_ordinal() or _current.call is not None:
            return original(payload, ordinals, tag)
        _current.call = Call(kind="rendezvous", tag=tag or "")
        try:
            return original(payload, ordinals, tag)
        finally:
            _current.call = None

    xla_model.xla_rendezvous = xla_rendezvous  # type: ignore[attr-defined]


def named(call: Call) -> Call:
    """Give the outermost call that this thread is in: what the ordinals compare, and what a report shows."""
    return _current.call or call

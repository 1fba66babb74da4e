"""Signals wait while processes are being forked."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

INTERRUPT = signal.SIGRTMIN + 4 if sys.platform == "linux" else signal.SIGTERM
"""Asks an ordinal to leave its body. A real-time signal: programs under test have handlers for all the usual ones."""

_HELD = (
    *(
        getattr(signal, name)
        for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")
        if hasattr(signal, name)
    ),
    INTERRUPT,
)
"""Those whose handlers commonly raise: Ctrl-C, the limit of another plugin, the end of a CI job; and in the process of
an isolated test our own."""

_forking = threading.RLock()
"""One thread forks at a time: a child would keep what another thread has put in the place of handlers, and of the
standard input and the filters of warnings."""


def _renew() -> None:
    """Give a child a lock of its own: the thread that holds the inherited one may not exist there."""
    global _forking  # noqa: PLW0603 - a lock can't be renewed in place
    _forking = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def ends_are_kept() -> Iterator[None]:
    """Have the kernel keep how a child ended, also where SIGCHLD is ignored, as whoever started us may have left it.

    Another thread than the main one can't change that.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


class HeldSignals:
    """Puts off what handlers written in Python do in this thread, until the end of the context; one thread at a time.

    An exception from a handler can come between a fork and the line that notes the new process, which nobody would
    end then. Masking the signals does not help: the kernel gives them to any thread, and Python runs the handler in
    the main one all the same.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: list[int] = []
        self._lock = _forking

    def __enter__(self) -> Self:
        """Note from now on what comes."""
        self._lock.acquire()
        if threading.current_thread() is threading.main_thread():
            for number in _HELD:
                handler = signal.getsignal(number)
                if callable(handler):
                    self._handlers[number] = handler
                    signal.signal(number, self._note)
        return self

    def _note(self, number: int, _: object) -> None:
        self._came.append(number)

    def restore(self) -> None:
        """Put the handlers back; also for a child, which inherits what stands in their place."""
        while self._handlers:
            number, handler = self._handlers.popitem()
            signal.signal(number, handler)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Put the handlers back and let them have what came."""
        self.restore()
        self._lock.release()
        for number in self._came:
            signal.raise_signal(number)

"""Signals wait while processes are being forked."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_HELD = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGALRM", "SIGHUP", "SIGUSR1", "SIGUSR2")
    if hasattr(signal, name)
)
"""Those whose handlers commonly raise: Ctrl-C, the limit of another plugin, the end of a CI job."""


class HeldSignals:
    """Puts off what handlers written in Python do in this thread, until the end of the context.

    An exception from a handler can come between a fork and the line that notes the new process, which nobody would
    end then. Masking the signals does not help: the kernel gives them to any thread, and Python runs the handler in
    the main one all the same.
    """

    def __init__(self) -> None:
        self._handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self._came: list[int] = []

    def __enter__(self) -> Self:
        """Note from now on what comes."""
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
        for number in self._came:
            signal.raise_signal(number)

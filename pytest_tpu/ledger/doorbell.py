"""A counter in shared memory that other processes can wait on."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
import time
from collections.abc import Callable
from typing import Final

_FUTEX_WAIT: Final = 0
_FUTEX_WAKE: Final = 1
_EVERYONE: Final = 2**31 - 1

# The number of the futex system call differs between architectures and libc has no name for it.
_FUTEX_CALL: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98}

# Where there is no futex, waiting is sleeping: from 50 us, so that ordinals that arrive together lose nothing,
# to 2 ms, so that eight that wait for a slow one take no measurable share of two cores.
_FIRST_SLEEP: Final = 50e-6
_LONGEST_SLEEP: Final = 2e-3


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


@functools.cache
def _futex() -> Callable[..., int] | None:
    """Find the system call, or None on a machine for which we don't know it."""
    number = _FUTEX_CALL.get(platform.machine())
    if sys.platform != "linux" or number is None or sys.maxsize < 2**32:
        return None
    call = ctypes.CDLL(None).syscall
    call.argtypes = (ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)
    call.restype = ctypes.c_long
    return functools.partial(call, number)


class Doorbell:
    """One process rings it, any number wait for it.

    A wait returns early when a signal arrives, and Python's handlers run before anything else does: `futex` is
    a system call like any other, made without the GIL. What remains is the moment between the interpreter's last
    look at its signals and the call; a signal that lands there is handled when the wait's own limit ends it.
    That is why no one waits without a limit.

    Args:
        buffer: shared memory.
        offset: of four bytes in it that nothing else uses, on a multiple of four.
        futex: False leaves the system call out, for tests and for comparison.
    """

    __slots__ = ("_address", "_call", "_word")

    def __init__(self, buffer: memoryview, offset: int, *, futex: bool = True) -> None:
        self._word = ctypes.c_uint32.from_buffer(buffer, offset)
        self._address = ctypes.addressof(self._word)
        self._call = _futex() if futex else None

    @property
    def rings(self) -> int:
        """How often it rang, modulo 2**32."""
        return self._word.value

    def ring(self) -> None:
        """Announce something, and wake everyone who waits; only one thread of one process at a time may."""
        self._word.value += 1
        self.wake()

    def wake(self) -> None:
        """Have everyone who waits look up, with nothing to announce; anyone may, at any time."""
        if self._call is not None:
            self._call(self._address, _FUTEX_WAKE, _EVERYONE, None)

    def wait(self, rings: int, limit: float) -> None:
        """Wait until it has rung more than `rings` times, or a signal came, or `limit` seconds passed.

        `rings` must have been read before the look at what the bell announces. Then a ring in between is not
        lost: the kernel, or the first look here, sees another count and returns at once.
        """
        if self._call is not None:
            span = _Timespec(int(limit), int(limit % 1 * 1e9))
            self._call(self._address, _FUTEX_WAIT, rings, ctypes.addressof(span))
            return
        deadline = time.monotonic() + limit
        sleep = _FIRST_SLEEP
        while self._word.value == rings and time.monotonic() < deadline:
            time.sleep(sleep)
            sleep = min(sleep * 1.5, _LONGEST_SLEEP)

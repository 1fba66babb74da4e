"""No process outlives the one that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when the thread that forked it ends, for whatever reason.

    The kernel does it, since a thread that watches a pipe can't run while native code holds the GIL or the process
    is stopped. The parent may have ended before the call: then there is nobody left to report to.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os._exit(1)


def children_die_too() -> None:
    """Have what this process forks from now on die with it, and what that forks: loader workers, pools.

    Without an undo, so for an ordinal, which is one to its end. What another than the main thread forks is left
    alone: the kernel looks at the thread, and a process that was started from a thread may well outlive the thread.
    """
    parents: list[int] = []

    def before() -> None:
        is_main = threading.current_thread() is threading.main_thread()
        parents[:] = [os.getpid()] if is_main else []

    def in_child() -> None:
        if parents:
            die_with_parent(parents[0])

    os.register_at_fork(before=before, after_in_child=in_child)


def take_over_orphans() -> None:
    """Have what this process started stay below it, also where the one in between has ended: so it can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

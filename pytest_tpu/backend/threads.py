"""The threads that compute on the CPU: forked processes get none that are dead, and an ordinal has one."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pytest_tpu.backend.backward import run_where_it_is_called

_SOFT: Final = 1
"""OpenMP's omp_pause_soft: give up the threads, keep the settings."""

_open = [0]
"""How many contexts of `forkable` are open; a list, because the hook below can't be taken back."""


@contextmanager
def forkable() -> Iterator[None]:
    """Put OpenMP's threads to rest before each fork of this process, until the end of the context.

    Where a thread ever ran a parallel region (one large matmul in a fixture), libgomp believes in the process that it
    forks that the helpers are there, and the next parallel region waits for them for ever. The thread that forks can
    give its helpers up, and both processes then start new ones when they need them.
    """
    _register()
    _open[0] += 1
    try:
        yield
    finally:
        _open[0] -= 1


@functools.cache
def _register() -> None:
    os.register_at_fork(before=_rest, after_in_child=_renew)


def _rest() -> None:
    if _open[0] and "torch" in sys.modules:
        for library in _openmp_libraries(len(sys.modules)):
            # OpenMP 5.0 has it, the libraries of older compilers don't.
            pause = getattr(library, "omp_pause_resource_all", None)
            if pause is not None:
                pause(_SOFT)


def _renew() -> None:
    """Make torch's other pool anew in the forked process, while it has one thread, and keep autograd to that thread.

    torch does that itself at the first use, unlocked: where the parent had called `torch.set_num_threads`, the threads
    of autograd (one for each device) come to it at the same time, and one of them aborts the process with "Invalid
    thread pool!".
    """
    set_num_threads = getattr(sys.modules.get("torch"), "set_num_threads", None)
    # It is absent while torch is being imported.
    if _open[0] and set_num_threads is not None:
        set_num_threads(sys.modules["torch"].get_num_threads())
        run_where_it_is_called()


def one_thread() -> None:
    """Compute with one OpenMP thread in this ordinal from now on, whatever anybody sets later.

    Ordinals share the machine's cores. It is also the second line of defence against the hang that `forkable` is
    there for, in the libraries that can't give up their threads.
    """
    import torch

    for library in _openmp_libraries(len(sys.modules)):
        library.omp_set_num_threads(1)
    torch.set_num_threads(1)
    # No undo: an ordinal is one to its end.
    torch.set_num_threads = _at_most_one(torch.set_num_threads)


def _at_most_one(theirs: Callable[[int], None]) -> Callable[[int], None]:
    @functools.wraps(theirs)
    def set_num_threads(number: int) -> None:
        theirs(min(number, 1))

    return set_num_threads


@functools.lru_cache(maxsize=1)
def _openmp_libraries(_modules: int) -> tuple[Any, ...]:
    """Find the OpenMP libraries of this process; others than torch bring copies of their own.

    Args:
        _modules: how many modules are imported: libraries come with them, and looking takes a millisecond.
    """
    mapped = Path("/proc/self/maps").read_text().splitlines()
    paths = {line.split(maxsplit=5)[5] for line in mapped if "/" in line}
    return tuple(
        ctypes.CDLL(path) for path in sorted(paths) if Path(path).name.startswith(("libgomp", "libomp", "libiomp"))
    )

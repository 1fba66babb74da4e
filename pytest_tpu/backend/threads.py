"""How many threads an ordinal computes with on the CPU: one."""

from __future__ import annotations

import ctypes
from pathlib import Path


def one_thread() -> None:
    """Compute with one OpenMP thread in this forked process, in every library that has OpenMP.

    Where the parent ever ran a parallel region, libgomp believes in the forked child that its threads are there, and
    the next parallel region waits for them for ever. A region of one thread needs none.
    """
    import torch

    torch.set_num_threads(1)
    for library in _openmp_libraries():
        # Already loaded, or it would not be mapped; scikit-learn and others bring a copy of their own.
        ctypes.CDLL(library).omp_set_num_threads(1)


def _openmp_libraries() -> set[str]:
    mapped = Path("/proc/self/maps").read_text().splitlines()
    paths = (line.split(maxsplit=5)[5] for line in mapped if line.count("/"))
    return {path for path in paths if Path(path).name.startswith(("libgomp", "libomp", "libiomp"))}

"""The environment variables of an emulated host: a v5e host as GKE describes it to a pod."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_DEVICE: Final = "PJRT_DEVICE"

PER_PROCESS: Final = (
    "CLOUD_TPU_TASK_ID",
    "PJRT_LOCAL_PROCESS_COUNT",
    "PJRT_LOCAL_PROCESS_RANK",
    "TPU_CHIPS_PER_PROCESS_BOUNDS",
    "TPU_PROCESS_ADDRESSES",
    "TPU_PROCESS_BOUNDS",
    "TPU_PROCESS_PORT",
    "TPU_VISIBLE_CHIPS",
)
"""What torch_xla sets in each launched process, with ``setdefault``: it must not be there before it does."""


def bounds(cores: int) -> tuple[int, int, int]:
    """Lay `cores` chips out as a host's mesh, as square as their number allows.

    It gives the shapes that v5e hosts have (2x2, 2x4), and a shape for every other number, so that no number of cores
    needs an exception.
    """
    short = next(side for side in range(int(cores**0.5), 0, -1) if cores % side == 0)
    return short, cores // short, 1


def coordinates(chip: int, cores: int) -> list[int]:
    """Say where in the host's mesh a chip is."""
    width = bounds(cores)[0]
    return [chip % width, chip // width, 0]


def described(cores: int) -> dict[str, str]:
    """Describe a host of `cores` chips; every key is one that torch_xla or the XLA runtime reads."""
    return {
        _DEVICE: "TPU",
        "CPU_NUM_DEVICES": str(cores),
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": f"v5litepod-{cores}",
        "TPU_HOST_BOUNDS": "1,1,1",
        "TPU_CHIPS_PER_HOST_BOUNDS": ",".join(str(side) for side in bounds(cores)),
        "TPU_WORKER_ID": "0",
        "TPU_WORKER_HOSTNAMES": "localhost",
    }


@contextmanager
def applied(cores: int) -> Iterator[None]:
    """Describe a host in this process' environment until the end of the context; then it is as it was before."""
    kept = {name: os.environ.get(name) for name in (*described(cores), *PER_PROCESS)}
    with _two_faced():
        try:
            rewrite(cores)
            yield
        finally:
            for name, value in kept.items():
                _put(name, value)
    # Once more, past the wrapper: C must have the user's own PJRT_DEVICE again.
    _put(_DEVICE, os.environ.get(_DEVICE))


def rewrite(cores: int) -> None:
    """Describe a host of `cores` chips from now on, in a process that belongs to no launch."""
    for name in PER_PROCESS:
        os.environ.pop(name, None)
    os.environ.update(described(cores))


def _put(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


@contextmanager
def _two_faced() -> Iterator[None]:
    """Let Python read PJRT_DEVICE=TPU in `os.environ` while C reads CPU.

    torch_xla's Python asks `os.environ`, its C++ asks the C environment when it makes the runtime's client, and a
    client of a TPU needs libtpu. `os.environ` writes through to C by `os.putenv`, so this is where the two part.
    A `setenv` by ctypes was rejected: whatever writes `os.environ` again (`mock.patch.dict`, `xr.set_device_type`)
    would undo it.
    """
    real = os.putenv
    os.putenv = _parting(real)  # type: ignore[assignment] # os.environ calls it with bytes, others with names
    try:
        yield
    finally:
        os.putenv = real


def _parting(real: Callable[[str | bytes, str | bytes], None]) -> Callable[[str | bytes, str | bytes], None]:
    def putenv(name: str | bytes, value: str | bytes, /) -> None:
        tpu = os.fsencode(name) == b"PJRT_DEVICE" and os.fsencode(value).split(b"_")[0] == b"TPU"
        real(name, "CPU" if tpu else value)

    return putenv

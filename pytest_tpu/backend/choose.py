"""Which host a run has: the TPU of this machine, an emulated one, or none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pytest_tpu.backend import Backend, package
from pytest_tpu.backend.chips import Chips, check, find_chips
from pytest_tpu.errors import BackendError

if TYPE_CHECKING:
    from pytest_tpu.model.settings import BackendName

ORDINAL_MEMORY: Final = 65 * 10**6
"""What a forked ordinal holds of its own, once it has a device."""

ALWAYS_ALLOWED: Final = 64


def choose(
    name: BackendName,
    cores: int | None,
    *,
    chips: Chips | None = None,
    memory: int | None = None,
    platform: str | None = None,
) -> Backend | None:
    """Choose the backend of a run.

    Args:
        name: the setting: ``"tpu"`` never falls back, ``"auto"`` takes a TPU where there is one.
        cores: how many cores were asked for, or None.
        chips: what is on the PCI bus; for tests, as are the two that follow.
        memory: the bytes that are available.
        platform: as in `sys.platform`.

    Returns:
        None where nothing was asked for and no TPU is there.

    Raises:
        BackendError: there is no such host here; the text is the reason of a skip.
    """
    if name != "cpu":
        chips = find_chips() if chips is None else chips
        if chips.count:
            cores = check(chips, cores)
            package.require(platform)
            # Either backend is imported where it is chosen: every run of pytest comes here, most of them for neither.
            from pytest_tpu.backend.tpu import TpuBackend

            return TpuBackend(chips, cores)
        if name == "tpu":
            raise BackendError("no TPU was found on this machine; --tpu-backend=cpu emulates a host")
    if cores is None:
        return None
    package.require(platform)
    allowed = cores_allowed(_available_memory() if memory is None else memory)
    if cores > allowed:
        raise BackendError(f"{cores} cores asked for, the memory of this machine allows {allowed} emulated ones")
    from pytest_tpu.backend.cpu import CpuBackend

    return CpuBackend(cores)


def cores_allowed(memory: int) -> int:
    """Say how many emulated cores `memory` bytes are enough for."""
    return max(ALWAYS_ALLOWED, memory // ORDINAL_MEMORY)


def _available_memory() -> int:
    # Imported here: it costs 16 ms, and only an emulated host needs it.
    import psutil

    return int(psutil.virtual_memory().available)

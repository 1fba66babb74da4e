"""What torch_xla says on an emulated host: the answers of its Python and of `_XLAC`, as on a TPU host."""

# ruff: noqa: SLF001 - torch_xla's private parts are what this module is about.

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from pytest_tpu.backend import launches, package
from pytest_tpu.backend.cpu import environment
from pytest_tpu.errors import UnsupportedError

if TYPE_CHECKING:
    from pytest_tpu.model.place import Launcher, Place

Function = Callable[..., Any]

DEVICE_KIND: Final = "TPU v5 lite"
DEVICE_MEMORY: Final = 16 * 2**30
"""The memory of a v5e chip."""


@dataclass(slots=True)
class HostState:
    """What the answers depend on; the backend changes it, the answers read it.

    Args:
        cores: how many cores the host has.
        place: this process' place in a world, once it is an ordinal.
        launcher: who runs launches.
        replication: the devices between which torch_xla replicates, as it was told last.
    """

    cores: int
    place: Place | None = None
    launcher: Launcher | None = None
    replication: list[str] = field(default_factory=list)


_hosts: list[HostState] = []
"""The hosts of the contexts that are open in this process, the innermost last; only that one answers."""

_undo: list[tuple[Any, str, Function, Function]] = []
"""Replaced functions: owner, name, ours, theirs. Empty while nothing is installed."""


@contextmanager
def given(host: HostState) -> Iterator[None]:
    """Answer as `host` until the end of the context, from the import of torch_xla on, whenever that is."""
    _hosts.append(host)
    try:
        forget_counts()
        _install_or_wait()
        yield
    finally:
        _hosts.remove(host)
        if not _hosts:
            _uninstall()
        forget_counts()


def forget_counts() -> None:
    """Make those forget who remember how many devices there are: the number has changed."""
    for name in ("lightning.fabric.accelerators.xla", "lightning_fabric.accelerators.xla"):
        accelerator = getattr(sys.modules.get(name), "XLAAccelerator", None)
        for function in ("auto_device_count", "is_available"):
            getattr(getattr(accelerator, function, None), "cache_clear", lambda: None)()
    runtime = sys.modules.get("torch_xla.runtime")
    count = getattr(runtime, "global_runtime_device_count", None)
    getattr(count, "cache_clear", lambda: None)()


def _install_or_wait() -> None:
    torch_xla = sys.modules.get("torch_xla")
    if torch_xla is not None:
        _install(torch_xla)
    else:
        # Imported here: it costs 14 ms, and only a run with a host needs it.
        import wrapt

        wrapt.register_post_import_hook(_imported, "torch_xla")


def _imported(torch_xla: ModuleType) -> None:
    # wrapt can't take a hook back, and the context may have ended before the import came.
    if _hosts:
        _install(torch_xla)


def _install(torch_xla: ModuleType) -> None:
    """Replace the functions, all at once: torch_xla's package imports every module that is touched here."""
    if _undo:
        return
    from pytest_tpu.backend.cpu import bridge

    for owner, name, answer in _replaced(torch_xla):
        theirs = getattr(owner, name)
        ours = _wrapped(theirs, answer)
        _undo.append((owner, name, ours, theirs))
        setattr(owner, name, ours)
    bridge.install()


def _uninstall() -> None:
    while _undo:
        owner, name, ours, theirs = _undo.pop()
        # Somebody may have replaced it again (a monkeypatch that is still in place): theirs stays, and ours, below it,
        # only passes on from now.
        if getattr(owner, name) is ours:
            setattr(owner, name, theirs)


def _wrapped(theirs: Function, answer: Function) -> Function:
    @functools.wraps(theirs)
    def ours(*args: Any, **kwargs: Any) -> Any:
        # Tracebacks of users' programs pass through here.
        __tracebackhide__ = True
        if not _hosts:
            return theirs(*args, **kwargs)
        return answer(_hosts[-1], theirs, *args, **kwargs)

    return ours


def _replaced(torch_xla: ModuleType) -> Iterator[tuple[Any, str, Function]]:
    from torch_xla import runtime
    from torch_xla._internal import pjrt, tpu

    for name, answer in _NATIVE.items():
        yield torch_xla._XLAC, name, answer
    yield tpu, "num_available_chips", _num_available_chips
    yield tpu, "configure_one_chip_topology", _configure_one_chip_topology
    yield runtime, "use_spmd", _use_spmd
    yield pjrt, "run_multiprocess", _run_multiprocess
    yield pjrt, "spawn_threads", _spawn_threads


# Names of devices. XLA's own client says CPU:0, CPU:1, ...; in SPMD mode there is one virtual device, SPMD:0, and a
# process of an SPMD program is never an ordinal, so that all it needs is the host's names.


def _named(device: str) -> str:
    return device.replace("CPU", "TPU", 1)


def _local_devices(host: HostState, theirs: Function, *args: Any) -> list[str]:
    devices = [_named(device) for device in theirs(*args)]
    return devices if host.place is None else [f"TPU:{host.place.ordinal}" for _ in devices]


def _all_devices(host: HostState, theirs: Function) -> list[str]:
    if host.place is None:
        return [_named(device) for device in theirs()]
    return [f"TPU:{ordinal}" for ordinal in range(host.place.size)]


def _count_all(host: HostState, theirs: Function) -> int:
    return int(theirs()) if host.place is None else host.place.size


def _ordinal(host: HostState, theirs: Function, *args: Any) -> int:
    return int(theirs(*args)) if host.place is None else host.place.ordinal


def _hardware(_host: HostState, theirs: Function, *args: Any) -> str:
    return _named(theirs(*args))


def _kind(_host: HostState, theirs: Function, *args: Any) -> str:
    theirs(*args)  # It rejects what is no device.
    return DEVICE_KIND


def _attributes(host: HostState, theirs: Function, device: str) -> dict[str, Any]:
    theirs(device)
    index = int(device.rpartition(":")[2] or 0) if host.place is None else host.place.ordinal
    return _chip(index, host)


def _all_attributes(host: HostState, theirs: Function) -> list[dict[str, Any]]:
    count = len(theirs()) if host.place is None else host.place.size
    return [{**_chip(index, host), "name": f"TPU:{index}"} for index in range(count)]


def _chip(index: int, host: HostState) -> dict[str, Any]:
    return {"coords": environment.coordinates(index, host.cores), "core_on_chip": 0, "num_cores": 1}


def _memory(_host: HostState, _theirs: Function, _device: str) -> dict[str, int]:
    """Give the memory of the process as that of the device: it is the memory in which the device's tensors are."""
    # Imported here: it does not exist on Windows, where the plugin has to load.
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    # The kernel updates the two at other times, and a peak below what is used would be odd.
    peak = max(used, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return {"bytes_used": used, "bytes_limit": DEVICE_MEMORY, "peak_bytes_used": peak}


def _set_replication(host: HostState, theirs: Function, devices: list[str]) -> None:
    # XLA's client must not hear of devices that are in other processes: it would compile for them.
    if host.place is None:
        theirs([device.replace("TPU", "CPU", 1) for device in devices])
    host.replication = list(devices)


def _replication(host: HostState, theirs: Function) -> list[str]:
    return [_named(device) for device in theirs()] if host.place is None else list(host.replication)


def _count_replication(host: HostState, theirs: Function) -> int:
    return int(theirs()) if host.place is None else len(host.replication)


_NATIVE: Final[dict[str, Function]] = {
    "_xla_device_kind": _kind,
    "_xla_get_all_device_attributes": _all_attributes,
    "_xla_get_all_devices": _all_devices,
    "_xla_get_all_runtime_devices": _all_devices,
    "_xla_get_default_device_ordinal": _ordinal,
    "_xla_get_device_attributes": _attributes,
    "_xla_get_device_hw_type": _hardware,
    "_xla_get_device_ordinal": _ordinal,
    "_xla_get_devices": _local_devices,
    "_xla_get_num_processes": _count_all,
    "_xla_get_process_index": _ordinal,
    "_xla_get_replication_devices": _replication,
    "_xla_get_replication_devices_count": _count_replication,
    "_xla_get_runtime_devices": _local_devices,
    "_xla_memory_info": _memory,
    "_xla_num_global_devices": _count_all,
    "_xla_real_devices": _local_devices,
    "_xla_set_replication_devices": _set_replication,
}


def _num_available_chips(host: HostState, _theirs: Function) -> int:
    return host.cores


def _configure_one_chip_topology(_host: HostState, theirs: Function) -> None:
    theirs()
    # On a TPU it is libtpu that reads what was set now, and shows one chip.
    os.environ["CPU_NUM_DEVICES"] = "1"


def _use_spmd(host: HostState, theirs: Function, *args: Any, **kwargs: Any) -> None:
    if host.place is not None:
        raise UnsupportedError(_NO_SPMD)
    theirs(*args, **kwargs)


_NO_SPMD: Final = (
    "torch_xla.runtime.use_spmd() was called on an ordinal: SPMD needs all devices in one process;"
    " call it in an isolated test, which sees them all"
)


def refuse_spmd() -> None:
    """Raise if this process, about to become an ordinal, is in SPMD mode."""
    from torch_xla import runtime

    if runtime.is_spmd():
        raise UnsupportedError(_NO_SPMD)


def _run_multiprocess(
    host: HostState, _theirs: Function, fn: Function, *args: Any, start_method: str = "spawn", **kwargs: Any
) -> dict[int, Any]:
    __tracebackhide__ = True
    if not package.runtime_initialized():
        _require_all_cores(host)
    return launches.run(host.launcher, host.place is not None, fn, *args, start_method=start_method, **kwargs)


def _require_all_cores(host: HostState) -> None:
    """Refuse a launch of fewer processes than there are cores, which torch_xla takes from the environment."""
    from torch_xla._internal import tpu

    processes = tpu.num_local_processes()
    if processes != host.cores:
        raise UnsupportedError(
            f"TPU_PROCESS_BOUNDS={os.environ.get('TPU_PROCESS_BOUNDS')} asks for a launch of {processes} of the"
            f" {host.cores} cores; an emulated host launches on all: say how many it has by cores= or --tpu-cores"
        )


def _spawn_threads(host: HostState, theirs: Function, *args: Any, **kwargs: Any) -> None:
    if host.place is None and host.cores > 1:
        raise UnsupportedError(
            "torch_xla's spawn_threads is not there on an emulated host, where collectives of threads of one process"
            " wait for each other for ever; use torch_xla.launch, which gives each core a process"
        )
    theirs(*args, **kwargs)

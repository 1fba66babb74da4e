"""The emulated host: each ordinal is a process with one XLA CPU device, and all of torch_xla says TPU."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, final

from pytest_tpu.backend import package
from pytest_tpu.backend.cpu import answers, environment
from pytest_tpu.backend.threads import forkable, one_thread
from pytest_tpu.backend.values import to_host
from pytest_tpu.model.host import Host

if TYPE_CHECKING:
    import torch

    from pytest_tpu.model.place import Launcher, Place


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one launch shares.

    Args:
        port: for torch.distributed's store, or None where the user named one.
        bridge: what the bridge of the collectives prepared.
    """

    port: int | None
    bridge: Any


@final
class CpuBackend:
    """The emulated host of `cores` cores."""

    name: ClassVar[str] = "cpu"

    def __init__(self, cores: int) -> None:
        self._state = answers.HostState(cores)

    @property
    def host(self) -> Host:
        """What is there; torch_xla is not asked."""
        cores = self._state.cores
        return Host(backend=self.name, emulated=True, cores=cores, chips=cores, version="v5e")

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Answer as this host until the end of the context."""
        with forkable(), environment.applied(self._state.cores), answers.given(self._state):
            yield

    def load(self) -> None:
        """Import torch and torch_xla for the ordinals that are forked later."""
        package.load()

    def resize(self, cores: int) -> None:
        """Be a host of `cores` cores from now on."""
        self._state.cores = cores
        environment.rewrite(cores)
        answers.forget_counts()

    def set_launcher(self, launcher: Launcher) -> None:
        """Say who runs launches."""
        self._state.launcher = launcher

    @contextmanager
    def plan(self, cores: int) -> Iterator[Plan]:
        """Prepare what one launch shares."""
        from pytest_tpu.backend.cpu import bridge

        with _reserved_port() as port, bridge.plan(cores) as shared:
            yield Plan(port=port, bridge=shared)

    def enter(self, place: Place) -> None:
        """Become an ordinal."""
        one_thread()
        answers.refuse_spmd()
        # A world of one is on one chip of the host; any other is the host.
        self.resize(place.size if place.size > 1 else self._state.cores)
        os.environ["CPU_NUM_DEVICES"] = "1"
        if place.plan.port is not None:
            os.environ["MASTER_PORT"] = str(place.plan.port)
        self._state.place = place
        self._initialize(place)

        from pytest_tpu.backend.cpu import bridge

        bridge.join(dataclasses.replace(place, plan=place.plan.bridge))

    def _initialize(self, place: Place) -> None:
        from torch_xla import runtime
        from torch_xla._internal import pjrt

        if place.size == 1:
            pjrt.initialize_singleprocess()
        else:
            pjrt.initialize_multiprocess(place.ordinal, place.size)
        # What the parent asked before the fork is remembered in these; torch_xla remembers anew.
        runtime._WORLD_SIZE = runtime._ORDINAL = None  # noqa: SLF001 - no public way to forget
        runtime._init_world_size_ordinal()  # noqa: SLF001 - torch_xla's own launch calls it

    def device(self) -> torch.device:
        """Give this ordinal's device."""
        import torch_xla

        return torch_xla.device()

    def rendezvous(self, tag: str, payload: bytes) -> list[bytes]:
        """Meet all ordinals at `tag`, and exchange payloads."""
        return package.rendezvous(tag, payload)

    def to_host(self, value: Any) -> Any:
        """Copy the XLA tensors inside `value` to the CPU."""
        return to_host(value)


@contextmanager
def _reserved_port() -> Iterator[int | None]:
    """Hold a free port for torch.distributed's store until the end of the launch; None if the user chose one.

    torch_xla's own default is the same number for every launch on the machine. The port stays bound here, without
    listening, so that nobody else is given it, and both sides say SO_REUSEADDR, so that the store can listen on it.
    """
    if "MASTER_PORT" in os.environ:
        yield None
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]

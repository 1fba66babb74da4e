"""What makes a process an ordinal; the only home of torch_xla's internals."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    import torch

    from pytest_tpu.model.host import Host
    from pytest_tpu.model.place import Launcher, Place


class Backend(Protocol):
    """A kind of host. One instance serves one pytest session."""

    name: ClassVar[str]

    @property
    def host(self) -> Host:
        """What is there; never initialises the runtime and never imports torch."""
        ...

    def activate(self) -> AbstractContextManager[None]:
        """Make this process answer as the host, from now to the end of the context; undo is complete.

        Sets the environment, and hooks that act when torch_xla is imported. Imports neither torch nor torch_xla.
        Contexts nest: the inner one holds until it ends (pytest inside pytest).
        """
        ...

    def load(self) -> None:
        """Import torch and torch_xla here, so that ordinals forked later have them; BackendError if it can't."""
        ...

    def resize(self, cores: int) -> None:
        """Make this process, which has no runtime yet, a host of `cores` cores: that of an isolated test."""
        ...

    def set_launcher(self, launcher: Launcher) -> None:
        """Say who runs `torch_xla.launch`, `xmp.spawn` and what ends in them."""
        ...

    def plan(self, cores: int) -> AbstractContextManager[Any]:
        """Make, in the launching process, what one launch shares (stores, ports), until the end of the context."""
        ...

    def enter(self, place: Place) -> None:
        """Become an ordinal, first thing in a forked process: configures the device; collectives meet from now on."""
        ...

    def device(self) -> torch.device:
        """This ordinal's XLA device."""
        ...

    def rendezvous(self, tag: str, payload: bytes) -> list[bytes]:
        """Meet all ordinals at `tag`; returns their payloads in ordinal order."""
        ...

    def to_host(self, value: Any) -> Any:
        """Copy XLA tensors anywhere inside `value` (containers included) to CPU tensors of their own memory."""
        ...

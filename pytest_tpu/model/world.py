"""An ordinal's view of its world: what the fixture `tpu_world` gives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pytest_tpu.errors import NotAnOrdinalError

if TYPE_CHECKING:
    import torch


class _Meeting(Protocol):
    def device(self) -> torch.device: ...

    def rendezvous(self, tag: str, payload: bytes) -> list[bytes]: ...


class World:
    """This ordinal's view of the world that runs the test.

    One object is made in the controller and bound on each ordinal after the fork, so that a fixture which kept it
    sees the ordinal's values there. Reading it in the controller is an error that names the fixture.
    """

    def __init__(self, tmp_path: Path) -> None:
        self._tmp_path = tmp_path
        self._bound: tuple[int, int, _Meeting] | None = None

    def bind(self, ordinal: int, size: int, backend: _Meeting) -> None:
        """Make it this ordinal's; called once on each, before the body."""
        self._bound = (ordinal, size, backend)

    def _read(self, name: str) -> tuple[int, int, _Meeting]:
        if self._bound is None:
            raise NotAnOrdinalError(
                f"tpu_world.{name} was read in pytest's own process, which is no ordinal: read it in the body of the"
                " test or in a function-scope fixture that asks for tpu_world, both run on the ordinals"
            )
        return self._bound

    @property
    def ordinal(self) -> int:
        """This process's number, 0 to size - 1, as `torch_xla.runtime.global_ordinal` gives it."""
        return self._read("ordinal")[0]

    @property
    def size(self) -> int:
        """The world size: the number of ordinals, as `torch_xla.runtime.world_size` gives it."""
        return self._read("size")[1]

    @property
    def device(self) -> torch.device:
        """This ordinal's XLA device, as `torch_xla.device` gives it."""
        return self._read("device")[2].device()

    @property
    def tmp_path(self) -> Path:
        """A directory that all ordinals of this test share; also readable in the controller."""
        return self._tmp_path

    def rendezvous(self, tag: str, payload: Any = b"") -> list[bytes]:
        """Meet all ordinals at `tag`, as `torch_xla.core.xla_model.rendezvous` does.

        Args:
            tag: the name of the meeting, the same on every ordinal.
            payload: bytes for the others; the lengths may differ.

        Returns:
            The payloads of all ordinals, in ordinal order.
        """
        __tracebackhide__ = True
        return self._read("rendezvous")[2].rendezvous(tag, payload)

    def __repr__(self) -> str:
        """Show what is known here."""
        if self._bound is None:
            return "<World, not on an ordinal>"
        return f"<World of {self._bound[1]}, ordinal {self._bound[0]}>"

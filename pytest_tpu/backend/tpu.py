"""A real TPU host, whose ordinals torch_xla configures itself."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, ClassVar, final

from pytest_tpu.backend import launches, package
from pytest_tpu.backend.chips import Chips, check
from pytest_tpu.backend.threads import forkable, one_thread
from pytest_tpu.backend.values import to_host
from pytest_tpu.model.host import Host

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import ModuleType

    import torch

    from pytest_tpu.model.place import Launcher, Place


@final
class TpuBackend:
    """The chips of this machine, one core each."""

    name: ClassVar[str] = "tpu"

    def __init__(self, chips: Chips, cores: int) -> None:
        self._chips = chips
        self._cores = cores
        self._launcher: Launcher | None = None
        self._on_ordinal = False

    @property
    def host(self) -> Host:
        """What is there; torch_xla is not asked."""
        return Host(
            backend=self.name,
            emulated=False,
            cores=self._cores,
            chips=self._chips.count,
            version=self._chips.version,
        )

    @contextmanager
    def activate(self) -> Iterator[None]:
        """Answer as this host until the end of the context."""
        # Imported here: it costs 14 ms, and only a run with a host needs it.
        from wrapt import register_post_import_hook

        replaced: list[tuple[ModuleType, Any]] = []
        active = True

        def replace(pjrt: ModuleType) -> None:
            if active:
                replaced.append((pjrt, pjrt.run_multiprocess))
                pjrt.run_multiprocess = self._launching(pjrt.run_multiprocess)  # type: ignore[attr-defined]

        register_post_import_hook(replace, "torch_xla._internal.pjrt")
        try:
            with forkable():
                yield
        finally:
            active = False
            for pjrt, theirs in replaced:
                pjrt.run_multiprocess = theirs  # type: ignore[attr-defined]

    def _launching(self, theirs: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(theirs)
        def run_multiprocess(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> dict[int, Any]:
            return launches.run(self._launcher, self._on_ordinal, fn, *args, **kwargs)

        return run_multiprocess

    def load(self) -> None:
        """Import torch and torch_xla for the ordinals that are forked later."""
        package.load()

    def resize(self, cores: int) -> None:
        """Be a host of `cores` cores from now on."""
        self._cores = check(self._chips, cores)

    def set_launcher(self, launcher: Launcher) -> None:
        """Say who runs launches."""
        self._launcher = launcher

    def plan(self, cores: int) -> AbstractContextManager[None]:
        """Prepare what one launch shares."""
        check(self._chips, cores)
        return nullcontext()

    def enter(self, place: Place) -> None:
        """Become an ordinal."""
        self._on_ordinal = True
        one_thread()
        from torch_xla import runtime
        from torch_xla._internal import pjrt

        if place.size == 1:
            pjrt.initialize_singleprocess()
        else:
            pjrt.initialize_multiprocess(place.ordinal, place.size)
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

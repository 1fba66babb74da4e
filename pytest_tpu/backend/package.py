"""Whether torch_xla is there, and importing it with all that an ordinal would import."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from typing import Final

from pytest_tpu.errors import BackendError, MissingPackageError

MATCHING_PAIR: Final = "pip install torch==2.9.0 torch_xla==2.9.0"

_MODULES: Final = (
    "torch",
    "torch_xla",
    "torch_xla.amp",
    "torch_xla.core.functions",
    "torch_xla.core.xla_model",
    "torch_xla.debug.metrics",
    "torch_xla.distributed.parallel_loader",
    "torch_xla.distributed.xla_backend",
    "torch_xla.distributed.xla_multiprocessing",
    "torch_xla.runtime",
)


def require(platform: str | None = None) -> None:
    """Raise BackendError, whose text is the reason of a skip, if torch_xla can't be here or is not installed.

    Looks without importing. `platform` is for tests.
    """
    if not (platform or sys.platform).startswith("linux"):
        raise MissingPackageError("torch_xla exists for Linux only")
    for name in ("torch", "torch_xla"):
        if name not in sys.modules and importlib.util.find_spec(name) is None:
            raise MissingPackageError(f"{name} is not installed: pip install 'pytest-tpu[xla]'")


def load() -> None:
    """Import torch and torch_xla, so that forked processes have them."""
    require()
    for name in _MODULES:
        try:
            importlib.import_module(name)
        except Exception as error:
            # A pair that does not fit shows as ImportError of a symbol, as OSError or as anything else.
            raise BackendError(
                f"{name} can't be imported ({type(error).__name__}: {error}); a matching pair: {MATCHING_PAIR}"
            ) from error


def rendezvous(tag: str, payload: bytes) -> list[bytes]:
    """Meet all ordinals at `tag`; that torch_xla calls what it has deprecated itself is not the user's to hear."""
    import torch_xla.core.xla_model as xm

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        return list(xm.rendezvous(tag, payload))


def runtime_initialized() -> bool:
    """Whether this process has the XLA runtime; imports nothing."""
    native = sys.modules.get("_XLAC")
    return native is not None and bool(native._xla_runtime_is_initialized())  # noqa: SLF001 - torch_xla has no public question

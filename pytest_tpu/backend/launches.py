"""What stands in for torch_xla's own start of processes: the same checks, then our launcher."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_tpu.backend import package
from pytest_tpu.errors import UnsupportedError

if TYPE_CHECKING:
    from pytest_tpu.model.place import Launcher

_ON_ORDINAL = " (This process is an ordinal already: use @pytest_tpu.isolated for a test that launches.)"


def run(
    launcher: Launcher | None,
    on_ordinal: bool,
    fn: Callable[..., Any],
    *args: Any,
    start_method: str = "spawn",
    **kwargs: Any,
) -> dict[int, Any]:
    """Run `fn` on all ordinals of a fresh world, as ``torch_xla._internal.pjrt.run_multiprocess`` does.

    Args:
        launcher: who starts the world and watches it.
        on_ordinal: whether this process is an ordinal itself.
        fn: what each ordinal calls.
        *args: its arguments.
        start_method: what the caller asked for.
        **kwargs: the arguments with names.

    Returns:
        The value of each ordinal.

    Raises:
        RuntimeError: the runtime is initialised, in torch_xla's own words, which programs look for.
        UnsupportedError: nobody is there to launch.
    """
    __tracebackhide__ = True
    if package.runtime_initialized():
        why = _ON_ORDINAL if on_ordinal else ""
        raise RuntimeError(f"Runtime is already initialized. Do not use the XLA device before calling xmp.spawn.{why}")
    if launcher is None:
        raise UnsupportedError(
            f"{getattr(fn, '__name__', type(fn).__name__)} can't be launched here: a launch needs an isolated test"
            " (pytest_tpu.isolated or --tpu-isolate), where it is watched"
        )
    return launcher(functools.partial(fn, *args, **kwargs), start_method)

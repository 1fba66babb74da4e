"""Where a backward pass runs on an ordinal."""

from __future__ import annotations

import functools
from typing import Any


def run_where_it_is_called() -> None:
    """Run every backward pass of this forked process on the thread that asks for it; there is no undo.

    By default autograd runs what is on a device on a thread of its own per device. Two things forbid that here:

    - It counts the devices once, at the first backward pass of all. Where that happened before the XLA runtime was
      there, in a fixture or an unmarked test of the process that forks the ordinals, it knows of no XLA device, and
      every backward pass of every ordinal fails with ``INTERNAL ASSERT ... device_ready_queues_``.
    - While that thread waits in a collective, the main thread waits for it in native code, where no signal gets
      through: an ordinal could be ended by SIGKILL only. And its stack does not have the user's line.

    The setting is one per thread, and threads start with torch's default, so it is made anew at each pass.
    """
    from torch import autograd

    if hasattr(autograd.graph._engine_run_backward, "__wrapped__"):  # noqa: SLF001 - as below
        return  # The process that forked this one has been forked itself.
    original = autograd.graph._engine_run_backward  # noqa: SLF001 - all ways to a backward pass lead through it

    @functools.wraps(original)
    def run(*args: Any, **options: Any) -> Any:
        with autograd.set_multithreading_enabled(False):
            return original(*args, **options)

    # torch.autograd has imported it by name.
    autograd.graph._engine_run_backward = autograd._engine_run_backward = run  # noqa: SLF001

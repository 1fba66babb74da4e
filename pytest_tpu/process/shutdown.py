"""Ending the processes of a world: interrupt, terminate, kill, one deadline for all."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence

from pytest_tpu.process.held import INTERRUPT
from pytest_tpu.process.ordinal_process import REAP_BOUND, OrdinalProcess


def stop(
    processes: Sequence[OrdinalProcess],
    *,
    grace: float,
    pump: Callable[[float], None],
    after_interrupt: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """End all that live, and what they started; gives up on those that SIGKILL has not ended within ten seconds.

    Args:
        processes: of one world.
        grace: seconds between one signal and the next harsher one.
        pump: waits up to the seconds given for news, and takes them in; polls the processes.
        after_interrupt: ends the waits that signals don't reach; later than the signal, which a main thread shall get
            once and in its body, not while it reports that its wait was ended.
        clock: for tests.
    """
    for number, seconds in ((INTERRUPT, grace), (signal.SIGTERM, grace), (signal.SIGKILL, REAP_BOUND)):
        deadline = clock() + seconds
        for process in processes:
            process.signal(number, group=number != INTERRUPT)
        if number == INTERRUPT:
            after_interrupt()
        while (now := clock()) < deadline and _living(processes):
            pump(deadline - now)
        if not _living(processes):
            return


def _living(processes: Sequence[OrdinalProcess]) -> list[OrdinalProcess]:
    return [process for process in processes if not process.poll()]

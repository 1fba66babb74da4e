"""A small launch for tests of what lies below the engine: fork, run, collect; bounded, and never leaves a process."""

from __future__ import annotations

import os
import pickle
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pytest_tpu.ledger import Ledger
from pytest_tpu.model.place import Place
from pytest_tpu.process.lifeline import die_with_parent

LIMIT = 120.0


def run(size: int, body: Callable[[Place], Any], *, ledger: Ledger | None = None, plan: Any = None) -> list[Any]:
    """Run `body` on `size` forked processes that share a ledger; returns or raises what it returned or raised."""
    ours = Ledger.create(size) if ledger is None else ledger
    children: dict[int, tuple[int, int]] = {}
    try:
        for ordinal in range(size):
            place = Place(ordinal=ordinal, size=size, meetings=ours.meetings(ordinal), plan=plan)
            children[ordinal] = _fork(body, place)
        # Nobody leaves before all have said their word: an exit closes the connections that others still use.
        words = {ordinal: _read(children[ordinal][1], time.monotonic() + LIMIT) for ordinal in children}
    finally:
        for pid, end in children.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(end)
        if ledger is None:
            ours.close()
    for ordinal, (good, value) in words.items():
        if not good:
            raise AssertionError(f"ordinal {ordinal}:\n{value}")
    return [words[ordinal][1] for ordinal in range(size)]


def run_collectives(size: int, body: Callable[[Place], Any]) -> list[Any]:
    """Run `body` on the ordinals of an emulated host."""
    from pytest_tpu.backend.cpu import CpuBackend

    backend = CpuBackend(size)

    def whole(place: Place) -> Any:
        backend.enter(place)
        return body(place)

    with backend.activate():
        backend.load()
        with backend.plan(size) as plan:
            return run(size, whole, plan=plan)


def _fork(body: Callable[[Place], Any], place: Place) -> tuple[int, int]:
    parent = os.getpid()
    end, other = os.pipe()
    with warnings.catch_warnings():
        # torch_xla has threads; Python 3.12 and later warn at the fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        os.close(other)
        return pid, end
    try:
        die_with_parent(parent)
        try:
            word: tuple[bool, Any] = (True, body(place))
            data = pickle.dumps(word)
        except BaseException:
            data = pickle.dumps((False, traceback.format_exc()))
        view = memoryview(len(data).to_bytes(8, "little") + data)
        while view:
            view = view[os.write(other, view) :]
        while True:  # until it is killed, see above; the lifeline ends it if nobody does
            signal.pause()
    finally:
        os._exit(1)


def _read(end: int, deadline: float) -> tuple[bool, Any]:
    data = b""
    while len(data) < 8 or len(data) < 8 + int.from_bytes(data[:8], "little"):
        if not select.select([end], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError(f"no word within {LIMIT:g} s")
        more = os.read(end, 1 << 20)
        if not more:
            return False, "ended without a word"
        data += more
    word: tuple[bool, Any] = pickle.loads(data[8:])
    return word


@contextmanager
def raising(kind: type[BaseException], texts: list[str]) -> Iterator[None]:
    """Note the text of the error that the block must raise."""
    try:
        yield
    except kind as error:
        texts.append(str(error))
    else:
        raise AssertionError(f"no {kind.__name__}")

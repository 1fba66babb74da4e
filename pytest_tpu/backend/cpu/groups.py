"""Byte buffers between ordinals: one gloo group per group of replicas, made when it is first used."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from pytest_tpu.backend.cpu.naming import named

if TYPE_CHECKING:
    from pytest_tpu.model.place import Call, Place

# Whoever supervises the world decides how long to wait; gloo's own limit only has to be longer than any test.
_GLOO_LIMIT: Final = timedelta(days=1)

# A small exchange between two ordinals takes 0.2 ms, between eight on two cores 3 ms.
_FIRST_SLEEP: Final = 20e-6
_LONGEST_SLEEP: Final = 1e-3

_OPTIONS: Final = c10d.AllToAllOptions()

_quiet: Final = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class GlooPlan:
    """What the ordinals of one launch share to find each other.

    Args:
        descriptor: of the memory in which gloo's addresses are exchanged. It has no name: it lives as long as a
            process of the world does, and nothing is left behind when they are killed. An ordinal keeps it open.
    """

    descriptor: int


@contextmanager
def shared_store() -> Iterator[GlooPlan]:
    """Make what one launch shares; the launching process lets go of it at the end, the ordinals at theirs."""
    descriptor = os.memfd_create("pytest-tpu-gloo", os.MFD_CLOEXEC)
    try:
        yield GlooPlan(descriptor=descriptor)
    finally:
        os.close(descriptor)


class Channel:
    """One group of ordinals, as this process sees it.

    Args:
        members: the ordinals, in the order in which the group names them, which is the order of gathered data.
        place: of this ordinal.
    """

    def __init__(self, members: Sequence[int], place: Place) -> None:
        self.members = tuple(members)
        self.index = self.members.index(place.ordinal)
        self._ordered = tuple(sorted(members))
        self._place = place
        self._lock = threading.RLock()
        self._gloo: Any = None

    @property
    def size(self) -> int:
        """How many ordinals the group has."""
        return len(self.members)

    @contextmanager
    def met(self, call: Call) -> Iterator[None]:
        """Meet the others, then hold the group until the end of the context, in which the data moves.

        gloo pairs messages by their order alone. Were two threads of one ordinal to meet in one order and send in
        the other, the data of one call would arrive as that of the other.
        """
        with self._lock:
            self._place.meetings.meet(self._ordered, named(call))
            yield

    def exchange(self, messages: Sequence[torch.Tensor], lengths: Sequence[int]) -> list[torch.Tensor]:
        """Give each member its message, and get one from each.

        All sends are under way at once. gloo's ring algorithms take a turn per member instead: an all-gather among
        eight ordinals on two cores took 7.0 ms, and this 3.0; of 2.6 MB each 125 ms, and this 36.

        Args:
            messages: bytes, by index of the member.
            lengths: of what each member sends here.
        """
        if self.size == 1:
            return [messages[0]]
        received = torch.empty(sum(lengths), dtype=torch.uint8)
        sizes = [message.numel() for message in messages]
        work = self._group().alltoall_base(received, torch.cat(list(messages)), list(lengths), sizes, _OPTIONS)
        _wait(work)
        return list(received.split(list(lengths)))

    def gather(self, message: torch.Tensor, lengths: Sequence[int] | None = None) -> list[torch.Tensor]:
        """Give every member the same message; all are as long as this one unless `lengths` says otherwise."""
        return self.exchange([message] * self.size, lengths or [message.numel()] * self.size)

    def _group(self) -> Any:
        if self._gloo is None:
            self._gloo = _connect(self._place.plan, self.members, self.index)
        return self._gloo


class Channels:
    """The groups of one ordinal."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._channels: dict[tuple[int, ...], Channel] = {}

    def of(self, members: Sequence[int]) -> Channel:
        """Give the channel of a group, always the same one."""
        key = tuple(members)
        with self._lock:
            if key not in self._channels:
                self._channels[key] = Channel(key, self._place)
            return self._channels[key]


def _connect(plan: GlooPlan, members: Sequence[int], index: int) -> Any:
    """Make the gloo group; all its ordinals are here, since they have just met."""
    name = "-".join(map(str, members))
    store = dist.PrefixStore(name, dist.FileStore(f"/proc/self/fd/{plan.descriptor}", -1))
    options = dist.ProcessGroupGloo._Options()  # noqa: SLF001 - torch's own tests make them so; there is no other way
    # By default gloo binds to the address of the host's name, which a firewall or a missing network may cut off.
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]  # noqa: SLF001
    options._timeout = _GLOO_LIMIT  # noqa: SLF001
    with _silent():
        return dist.ProcessGroupGloo(store, index, len(members), options)


@contextmanager
def _silent() -> Iterator[None]:
    """Take out the lines that gloo prints on connecting; there is no setting for them.

    Standard output goes to memory for these milliseconds, and everything in it that is not gloo's goes on to where
    it belongs, so that nothing that another thread prints is lost.
    """
    with _quiet:
        try:
            kept = os.dup(1)
        except OSError:
            yield  # there is no standard output to keep clean
            return
        memory = os.memfd_create("pytest-tpu-quiet", os.MFD_CLOEXEC)
        try:
            os.dup2(memory, 1)
            yield
        finally:
            os.dup2(kept, 1)
            os.close(kept)
            _pass_on(memory)
            os.close(memory)


def _pass_on(memory: int) -> None:
    data = os.pread(memory, os.fstat(memory).st_size, 0)
    rest = b"".join(line for line in data.splitlines(keepends=True) if not line.startswith(b"[Gloo] "))
    while rest:
        rest = rest[os.write(1, rest) :]


def _wait(work: Any) -> None:
    """Wait for gloo by looking: its own wait ignores signals until its limit, and is no faster."""
    sleep = _FIRST_SLEEP
    while not work.is_completed():
        time.sleep(sleep)
        sleep = min(sleep * 1.5, _LONGEST_SLEEP)
    work.wait()

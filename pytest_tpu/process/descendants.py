"""What a process has started, and what that has, in whatever group or session it is."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Descendant:
    """One process, as it was seen.

    Args:
        pid: its number, which another process may have later.
        born: when it was started, in ticks: with the number it means this process for good.
        parent: the number of the one that started it, or that took it over when that one ended.
        name: of its program.
        state: one letter: R runs, D waits for a disk, Z has ended.
        used: the processor time of it and of the children that it has waited for, in ticks.
    """

    pid: int
    born: int
    parent: int
    name: str
    state: str
    used: int

    def __str__(self) -> str:
        """Name it to a user."""
        return f"{self.name} ({self.pid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Processes:
    """All processes of the machine at one moment.

    Args:
        at: when, monotonic seconds.
        children: by the number of their parent.
    """

    at: float
    children: Mapping[int, list[Descendant]]

    @classmethod
    def now(cls) -> Processes:
        """Look; it takes a few milliseconds where hundreds run."""
        at = time.monotonic()
        children: dict[int, list[Descendant]] = {}
        for entry in os.listdir("/proc"):  # noqa: PTH208 - ten times as fast
            if entry.isdigit() and (seen := look(int(entry))) is not None:
                children.setdefault(seen.parent, []).append(seen)
        return cls(at=at, children=children)

    def below(self, pid: int) -> list[Descendant]:
        """What a process has started and what that has, parents first."""
        found = list(self.children.get(pid, ()))
        # It grows meanwhile.
        for seen in found:
            found += self.children.get(seen.pid, ())
        return found


_recent = Processes(at=float("-inf"), children={})


def recent(age: float) -> Processes:
    """All processes as they were at most `age` seconds ago, 0 for now: ordinals of one world are looked for at once."""
    global _recent  # noqa: PLW0603 - of the machine, of which there is one
    if not age or time.monotonic() - _recent.at > age:
        _recent = Processes.now()
    return _recent


def look(pid: int) -> Descendant | None:
    """Look at one process; None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - for each process of the machine
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name of the program comes between the first and the last parenthesis, and may contain anything.
    head, _, rest = text.rpartition(b")")
    fields = rest.split()
    return Descendant(
        pid=pid,
        born=int(fields[19]),
        parent=int(fields[1]),
        name=head.partition(b"(")[2].decode(errors="backslashreplace"),
        state=fields[0].decode(),
        used=sum(map(int, fields[11:15])),
    )


def kill(noted: Iterable[Descendant]) -> None:
    """End those that still live, and what they have started since they were seen."""
    living = [seen for seen in noted if _lives(seen)]
    if not living:
        return
    processes = Processes.now()
    below = [further for seen in living for further in processes.below(seen.pid)]
    for seen in [*living, *below]:
        if _lives(seen):
            with suppress(ProcessLookupError, PermissionError):
                os.kill(seen.pid, signal.SIGKILL)


def _lives(seen: Descendant) -> bool:
    now = look(seen.pid)
    return now is not None and now.born == seen.born and now.state != "Z"

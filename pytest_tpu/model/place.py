"""What an ordinal process is told at its start, and what it calls to meet the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_tpu.errors import MismatchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a collective, in the words that all its ordinals must agree on.

    Args:
        kind: the public name, for example ``"all_reduce"``.
        tag: the name of a rendezvous, else ``""``.
        dtype: of the data, for example ``"float32"``; several are joined by ``,``.
        shape: of the data, for example ``"4x2"``; several are joined by ``,``; ``""`` where lengths may differ.
        reduction: ``"sum"``, ``"max"``, …, else ``""``.
        detail: what else must agree (dimension, scale, pairs), else ``""``.
    """

    kind: str
    tag: str = ""
    dtype: str = ""
    shape: str = ""
    reduction: str = ""
    detail: str = ""

    def __str__(self) -> str:
        """Show it as a person would write the call."""
        head = f"{self.kind} {self.tag!r}" if self.tag else self.kind
        parts = [
            part for part in (self.reduction, f"{self.dtype}[{self.shape}]" if self.dtype else "", self.detail) if part
        ]
        return f"{head}({', '.join(parts)})" if parts else head


class Meetings(Protocol):
    """Where the ordinals of a world compare their calls before any data moves."""

    mismatch: MismatchError | None
    """The first that was raised here: a body may catch it, and has not made it good by that."""

    def meet(self, group: Sequence[int], call: Call) -> int:
        """Wait until every ordinal of `group` has entered its call of the same number, and compare them.

        Args:
            group: the ordinals that take part, ascending, this one included.
            call: what this ordinal calls.

        Returns:
            The number of the call within the group, from 1.

        Raises:
            MismatchError: the calls differ; every ordinal of the group gets it.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One ordinal's place in its world.

    Args:
        ordinal: 0 to size - 1.
        size: the number of ordinals of the world.
        meetings: where calls are compared.
        plan: what the backend prepared for this launch, before the ordinals were forked.
    """

    ordinal: int
    size: int
    meetings: Meetings
    plan: Any


Launcher = Callable[..., "dict[int, Any]"]
"""``launcher(fn, start_method) -> {ordinal: fn()}``: runs `fn` on all ordinals of a fresh world."""

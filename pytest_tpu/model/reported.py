"""What an ordinal that ran a pytest item ships: plain values only."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """One warning.

    Args:
        category: its class, pickled; empty if it can't be.
        category_name: its name, for that case.
        text: its text.
        filename: where it was raised.
        lineno: where it was raised.
    """

    category: bytes
    category_name: str
    text: str
    filename: str
    lineno: int

    @classmethod
    def of(cls, warning: warnings.WarningMessage) -> Recorded:
        """Copy what a controller needs to raise it again."""
        try:
            category = pickle.dumps(warning.category)
        except Exception:
            category = b""
        return cls(
            category=category,
            category_name=warning.category.__name__,
            text=str(warning.message),
            filename=warning.filename,
            lineno=warning.lineno,
        )

    def message(self) -> warnings.WarningMessage:
        """Make it a warning again, as text: its class may want more to be made than that."""
        try:
            category: type[Warning] = pickle.loads(self.category)
        except Exception:
            category = type(self.category_name, (UserWarning,), {})
        return warnings.WarningMessage(self.text, category, self.filename, self.lineno)


def is_plain(value: object) -> bool:
    """Whether a value is made of numbers and texts only, and may travel."""
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def plain_properties(properties: Iterable[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    """Keep plain values as they are, and of all others the text.

    An XLA tensor that came whole would initialise the runtime where it arrives.
    """
    return tuple((name, value if is_plain(value) else str(value)) for name, value in properties)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What is known after an item has run on one ordinal.

    Args:
        warnings: in the order they were raised.
        properties: all user properties of the item, those the controller set included.
        sections: name and text of those that the test added to its report.
    """

    warnings: tuple[Recorded, ...]
    properties: tuple[tuple[str, object], ...]
    sections: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseReported:
    """Emitted when setup, call or teardown has ended: what is known when the process dies later.

    Args:
        data: its report, as pytest serializes it.
    """

    data: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtest:
    """Emitted when a subtest has ended within the body.

    Args:
        data: its report, as pytest serializes it.
    """

    data: dict[str, Any]

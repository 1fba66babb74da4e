"""What an ordinal that ran a pytest item ships: plain values only."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
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


def plain(value: object) -> object:
    """Rebuild a value from Python's own numbers and texts, alone and in lists, tuples and dicts.

    What a test derives from these (an enum of texts, NumPy's float) may be unknown where it arrives, and if its class
    is local it can't even be pickled.

    Raises:
        TypeError: it has anything else in it.
    """
    if value is None or isinstance(value, bool):
        return value
    for kind in (str, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, (list, tuple)):
        items = [plain(item) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    raise TypeError(f"{type(value).__name__} is neither a number nor a text")


def plain_fields(data: Mapping[str, object]) -> dict[str, object]:
    """Keep of the fields of a report those that may travel."""
    fields = {}
    for name, value in data.items():
        with suppress(TypeError, RecursionError):
            fields[name] = plain(value)
    return fields


def plain_properties(properties: Iterable[tuple[str, object]]) -> tuple[tuple[str, object], ...]:
    """Keep plain values as they are, and of all others the text.

    An XLA tensor that came whole would initialise the runtime where it arrives.
    """
    return tuple((str(name), _plain_or_text(value)) for name, value in properties)


def _plain_or_text(value: object) -> object:
    try:
        return plain(value)
    except (TypeError, RecursionError):
        return str(value)


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

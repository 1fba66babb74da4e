"""The decision whether calls agree, and the words for it when they don't; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tpu.ledger.encoding import Entry


def mismatch(entries: Mapping[int, Entry]) -> str | None:
    """Compare one call of every ordinal of a group.

    Args:
        entries: by ordinal.

    Returns:
        The text that shows all sides, in the order of their first ordinals, or None if they agree.
    """
    sides: dict[bytes, list[int]] = {}
    for ordinal in sorted(entries):
        sides.setdefault(entries[ordinal].fingerprint, []).append(ordinal)
    if len(sides) == 1:
        return None
    texts = {digest: entries[ordinals[0]].text for digest, ordinals in sides.items()}
    alike = len(set(texts.values())) < len(texts)
    parts = [
        # Calls that differ only in what was cut would otherwise look the same on both sides.
        f"{named(ordinals)} called {texts[digest]}{f' (fingerprint {digest.hex()[:8]})' if alike else ''}"
        for digest, ordinals in sides.items()
    ]
    return "; ".join(parts) + ("; they differ in the part that is left out" if alike else "")


def named(ordinals: Sequence[int]) -> str:
    """Name some ordinals: ``ordinal 1``, ``ordinals 0, 2``, ``ordinals 0-5, 7``."""
    runs: list[list[int]] = []
    for ordinal in ordinals:
        if runs and ordinal == runs[-1][-1] + 1:
            runs[-1].append(ordinal)
        else:
            runs.append([ordinal])
    parts: list[str] = []
    for run in runs:
        parts.extend([f"{run[0]}-{run[-1]}"] if len(run) > 2 else map(str, run))
    return f"{'ordinal' if len(ordinals) == 1 else 'ordinals'} {', '.join(parts)}"

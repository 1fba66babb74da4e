"""The decision whether calls agree, and the words for it when they don't; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_tpu.model.ordinals import name_ordinals

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
        f"{name_ordinals(ordinals)} called {texts[digest]}{f' (fingerprint {digest.hex()[:8]})' if alike else ''}"
        for digest, ordinals in sides.items()
    ]
    return "; ".join(parts) + ("; they differ in the part that is left out" if alike else "")

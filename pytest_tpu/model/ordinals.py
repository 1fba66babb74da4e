"""How ordinals are named, in every verdict and every report."""

from __future__ import annotations

from collections.abc import Sequence


def join_ordinals(ordinals: Sequence[int]) -> str:
    """Write ordinals as ranges: ``"0-3, 6"``."""
    runs: list[list[int]] = []
    for ordinal in sorted(ordinals):
        if runs and ordinal == runs[-1][1] + 1:
            runs[-1][1] = ordinal
        else:
            runs.append([ordinal, ordinal])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def name_ordinals(ordinals: Sequence[int], noun: str = "ordinal") -> str:
    """Name ordinals: ``"ordinal 1"``, ``"ordinals 0-3, 6"``."""
    return f"{noun}{'' if len(ordinals) == 1 else 's'} {join_ordinals(ordinals)}"

"""The ledger: shared memory with one record per ordinal, where calls meet and positions are kept."""

from __future__ import annotations

from pytest_tpu.ledger.segment import Ledger

__all__ = ["Ledger"]

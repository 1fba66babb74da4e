"""The TPU chips of this machine, as they stand on the PCI bus."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pytest_tpu.errors import BackendError

PCI_DEVICES: Final = Path("/sys/bus/pci/devices")

_GOOGLE: Final = "0x1ae0"

_GENERATIONS: Final = {
    "0x0027": "v2 or v3",
    "0x0056": "of a test series",
    "0x005e": "v4",
    "0x0062": "v5p",
    "0x0063": "v5e",
    "0x006f": "v6e",
    "0x0076": "7x",
}
"""By PCI device id: those that torch_xla counts as chips."""

_TWO_CORES_PER_CHIP: Final = frozenset({"v2 or v3", "7x"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Chips:
    """The TPU chips of this machine.

    Args:
        count: how many, 0 where there is no TPU.
        version: their generation.
    """

    count: int
    version: str


def find_chips(devices: Path = PCI_DEVICES) -> Chips:
    """Look for TPU chips on the PCI bus, as torch_xla does, without importing it."""
    found = [
        _GENERATIONS[device]
        for path in devices.glob("*/vendor")
        if path.read_text().strip() == _GOOGLE
        and (device := (path.parent / "device").read_text().strip()) in _GENERATIONS
    ]
    return Chips(count=len(found), version=found[0] if found else "")


def check(chips: Chips, cores: int | None) -> int:
    """Decide how many cores a run on these chips has; raises BackendError where it can't have them."""
    if chips.version in _TWO_CORES_PER_CHIP:
        raise BackendError(
            f"TPU {chips.version} has two cores per chip: several ordinals in one process are not supported yet"
        )
    if cores is None:
        return chips.count
    if cores not in (1, chips.count):
        allowed = "1" if chips.count == 1 else f"1 or {chips.count}"
        raise BackendError(f"{cores} cores asked for, this TPU host ({chips.version}) gives {allowed}")
    return cores

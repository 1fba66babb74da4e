"""What is there to run on: a TPU host, or an emulated one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A TPU host, real or emulated, as `tpu_host` shows it.

    Args:
        backend: ``"tpu"`` or ``"cpu"``.
        emulated: whether the cores are CPU processes that answer as a TPU host.
        cores: how many ordinals a launch on all of it has.
        chips: how many chips it has.
        version: the TPU generation, for example ``"v5e"``.
    """

    backend: str
    emulated: bool
    cores: int
    chips: int
    version: str

    def gives(self, cores: int) -> bool:
        """Whether a launch can have `cores` cores: torch_xla starts a process on one chip of a real host, or on all."""
        return 1 <= cores <= self.cores and (self.emulated or cores in (1, self.chips))

    def __str__(self) -> str:
        """Say it in plain words, for the header and for messages."""
        cores = f"{self.cores} core" if self.cores == 1 else f"{self.cores} cores"
        if self.emulated:
            return f"emulated TPU host ({self.version}) with {cores} on the CPU, no TPU is used"
        chips = f"{self.chips} chip" if self.chips == 1 else f"{self.chips} chips"
        return f"TPU host ({self.version}) with {cores} on {chips}"

"""Unmodified Lightning finds its devices on an emulated host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_tpu.backend import package
from pytest_tpu.backend.cpu import CpuBackend
from tests.process.host_forks import launcher, run_forked

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Import torch_xla and Lightning once, here: the forked processes have them then."""
    # Inside a host: outside torch_xla would choose a device and leave it in the environment.
    with CpuBackend(1).activate():
        package.load()
        import lightning.pytorch  # noqa: F401


@pytest.fixture
def host() -> Iterator[CpuBackend]:
    """Give an emulated host of 4 cores, whose launches are run."""
    backend = CpuBackend(4)
    backend.set_launcher(launcher(backend, 4))
    with backend.activate():
        yield backend


def fit(devices: Any, folder: Path) -> Any:
    """Train a model for two steps; return where it was trained and how large the world was."""
    import torch
    import torch_xla.runtime as xr
    from lightning.pytorch import LightningModule, Trainer

    seen: list[Any] = []

    class Model(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            seen.append((str(self.device), xr.world_size(), self.trainer.world_size))
            return self.layer(batch).mean()

        def on_train_end(self) -> None:
            # Ordinals are processes of their own: what they saw comes back in files.
            (folder / str(self.global_rank)).write_text(repr(sorted(set(seen))))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2)

    trainer = Trainer(
        accelerator="tpu",
        devices=devices,
        max_steps=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=str(folder),
    )
    trainer.fit(Model())
    return trainer.num_devices


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(1, [("xla:0", 1, 1)], id="one"),
        pytest.param([3], [("xla:3", 1, 1)], id="index"),
    ],
)
def test_one_device(host: CpuBackend, tmp_path: Path, devices: Any, expected: Any) -> None:
    """Trainer(devices=1) and Trainer(devices=[3]) train in the process itself, on the device that was asked for."""
    assert [1] == run_forked(lambda: fit(devices, tmp_path))
    assert [repr(expected)] == [path.read_text() for path in tmp_path.iterdir()]


@pytest.mark.parametrize("devices", [4, "auto"])
def test_all_devices(host: CpuBackend, tmp_path: Path, devices: Any) -> None:
    """Trainer(devices=4) and Trainer(devices="auto") launch one process per core."""
    assert [4] == run_forked(lambda: fit(devices, tmp_path))
    assert {str(ordinal): repr([("xla:0", 4, 4)]) for ordinal in range(4)} == {
        path.name: path.read_text() for path in tmp_path.iterdir()
    }

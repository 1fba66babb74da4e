from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

TRAINING = """
    import os
    import signal

    import pytest
    import torch
    from lightning.fabric import Fabric
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
    from torch.utils.data import DataLoader

    import pytest_tpu

    pytestmark = pytest.mark.tpu_isolated

    class Model(LightningModule):
        def __init__(self, folder=None):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1, bias=False)
            self.folder = folder

        def training_step(self, batch):
            return self.layer(batch).mean()

        def validation_step(self, batch):
            # Never better: early stopping ends the training after its patience.
            self.log("loss", self.layer(batch).mean() * 0 + self.current_epoch, sync_dist=True)

        def test_step(self, batch):
            # Differs between the ordinals, so that the mean tells whether they met.
            self.log("ordinal", float(self.global_rank), sync_dist=True)

        def on_train_end(self):
            said = f"{self.trainer.world_size} {self.device} {self.current_epoch}"
            (self.folder / str(self.global_rank)).write_text(said)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def trainer(devices, folder, *callbacks, **options):
        return Trainer(
            accelerator="tpu", devices=devices, max_epochs=9, callbacks=list(callbacks), logger=False,
            enable_checkpointing=bool(callbacks), enable_progress_bar=False, enable_model_summary=False,
            default_root_dir=folder, **options,
        )

    def loader():
        return DataLoader(torch.ones(8, 4), batch_size=1)

    @pytest.mark.parametrize(
        ("devices", "expected"),
        [
            (1, {"0": "1 xla:0 3"}),
            ([3], {"0": "1 xla:3 3"}),
            ("auto", {str(ordinal): "4 xla:0 3" for ordinal in range(4)}),
            (4, {str(ordinal): "4 xla:0 3" for ordinal in range(4)}),
        ],
        ids=["one", "index", "auto", "all"],
    )
    def test_fit_then_test(devices, expected, tmp_path):
        notes, weights = tmp_path / "notes", tmp_path / "weights"
        notes.mkdir()
        best = ModelCheckpoint(dirpath=weights, filename="best", monitor="loss")
        ours = trainer(devices, tmp_path, EarlyStopping("loss", patience=2), best, limit_train_batches=1)
        ours.fit(Model(notes), loader(), loader())
        assert expected == {path.name: path.read_text() for path in notes.iterdir()}
        assert (weights / "best.ckpt").is_file()
        assert 0 == torch.load(weights / "best.ckpt")["epoch"]
        (results,) = ours.test(Model(), loader(), ckpt_path=weights / "best.ckpt")
        assert (len(expected) - 1) / 2 == results["ordinal"]

    class Dies(Model):
        def training_step(self, batch):
            if self.global_rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().training_step(batch)

    def test_killed(tmp_path):
        trainer(4, tmp_path).fit(Dies(tmp_path), loader())

    class Raises(Model):
        def training_step(self, batch):
            if self.global_rank == 1:
                raise ValueError("not with this batch")
            return super().training_step(batch)

    def test_raised(tmp_path):
        trainer(4, tmp_path).fit(Raises(tmp_path), loader())

    @pytest.mark.parametrize("devices", [1, 4])
    def test_fabric(devices):
        def train(fabric):
            with fabric.init_module():
                layer = torch.nn.Linear(4, 1, bias=False)
            layer, optimizer = fabric.setup(layer, torch.optim.SGD(layer.parameters(), lr=1.0))
            before = layer.weight.detach().sum()
            fabric.backward(layer(torch.ones(2, 4, device=fabric.device)).mean() * (fabric.global_rank + 1))
            optimizer.step()
            moved = before - layer.weight.detach().sum()
            return fabric.world_size, round(moved.item(), 3)

        # Each weight moves by the mean over the ordinals of their gradients, 1 to N.
        assert (devices, round(4 * (devices + 1) / 2, 3)) == Fabric(accelerator="tpu", devices=devices).launch(train)
"""


@pytest.fixture(scope="module", autouse=True)
def lightning_loaded() -> None:
    """Import Lightning before pytester takes its snapshot: a second import would take seconds again."""
    importlib.import_module("lightning.pytorch")


def test_lightning(run_on_ordinals: RunOnOrdinals) -> None:
    """Unmodified Lightning fits and then tests on the devices it asks for; its failures are told by the ordinal."""
    result = run_on_ordinals(TRAINING, *SHOW_ALL, "-Wignore", cores=4)

    assert {
        **{f"test_fit_then_test[{devices}]": "PASSED" for devices in ("one", "index", "auto", "all")},
        "test_killed": "FAILED pytest_tpu.LaunchError: LOST: ordinal 1: killed by SIGKILL (9), without a report",
        "test_raised": "FAILED ValueError: not with this batch",
        "test_fabric[1]": "PASSED",
        "test_fabric[4]": "PASSED",
    } == summary(result)

"""Unmodified Lightning on one core and on eight: fit with early stopping and checkpoints, and then test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

import pytest_tpu


class Classifier(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def training_step(self, batch: Any) -> torch.Tensor:
        images, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(images), labels)

    def validation_step(self, batch: Any) -> None:
        images, labels = batch
        self.log("val_loss", torch.nn.functional.cross_entropy(self.layers(images), labels), sync_dist=True)

    def test_step(self, batch: Any) -> None:
        images, labels = batch
        right = (self.layers(images).argmax(dim=1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.3, momentum=0.9)


@pytest_tpu.isolated(cores=(1, 8))
def test_fit_then_test(digits: tuple[TensorDataset, TensorDataset], tpu_cores: int, tmp_path: Path) -> None:
    seed_everything(0)
    train = DataLoader(digits[0], batch_size=128 // tpu_cores, shuffle=True, drop_last=True)
    test = DataLoader(digits[1], batch_size=64)
    stopping = EarlyStopping(monitor="val_loss", min_delta=0.02, patience=1)
    checkpoint = ModelCheckpoint(dirpath=tmp_path, filename="best", monitor="val_loss", save_last=True)
    trainer = Trainer(
        accelerator="tpu",
        devices=tpu_cores,
        max_epochs=50,
        callbacks=[stopping, checkpoint],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )

    trainer.fit(Classifier(), train, test)

    # Each core is a process of its own, so that it is the checkpoint that tells when training stopped.
    assert torch.load(tmp_path / "last.ckpt")["epoch"] < 49

    (results,) = trainer.test(Classifier(), test, ckpt_path=tmp_path / "best.ckpt")

    assert results["accuracy"] > 0.85

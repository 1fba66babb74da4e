"""Unmodified Lightning Fabric on one core and on eight."""

from __future__ import annotations

import torch
from lightning.fabric import Fabric
from torch.utils.data import DataLoader, TensorDataset

import pytest_tpu


def train(fabric: Fabric, dataset: TensorDataset, epochs: int = 4) -> float:
    fabric.seed_everything(0)
    # On the device from the start: on a single core Fabric does not take the optimizer along when it moves the model.
    with fabric.init_module():
        model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9))
    loader = DataLoader(dataset, batch_size=128 // fabric.world_size, shuffle=True, drop_last=True)
    loader = fabric.setup_dataloaders(loader)
    loss = torch.tensor(0.0)
    for _ in range(epochs):
        for images, labels in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            fabric.backward(loss)
            optimizer.step()
    return fabric.all_reduce(loss.detach()).item()


@pytest_tpu.isolated(cores=(1, 8))
def test_learns(digits: tuple[TensorDataset, TensorDataset], tpu_cores: int) -> None:
    fabric = Fabric(accelerator="tpu", devices=tpu_cores)

    loss = fabric.launch(train, digits[0])

    assert loss < 0.5

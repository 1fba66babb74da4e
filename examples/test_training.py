"""A plain torch_xla training loop, as it runs on one core and on eight."""

from __future__ import annotations

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.distributed.parallel_loader as pl
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import pytest_tpu
from pytest_tpu import World


def train(dataset: TensorDataset, world: World, epochs: int) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    model.to(world.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    sampler = DistributedSampler(dataset, num_replicas=world.size, rank=world.ordinal)
    loader = DataLoader(dataset, batch_size=128 // world.size, sampler=sampler, drop_last=True)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        for images, labels in pl.MpDeviceLoader(loader, world.device):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            xm.optimizer_step(optimizer)
    return model


def accuracy(model: torch.nn.Module, dataset: TensorDataset, world: World) -> float:
    images, labels = dataset.tensors
    with torch.no_grad():
        right = model(images.to(world.device)).argmax(dim=1) == labels.to(world.device)
    return right.float().mean().item()


@pytest_tpu.multi_process(cores=(1, 8))
def test_learns(digits: tuple[TensorDataset, TensorDataset], tpu_world: World) -> None:
    model = train(digits[0], tpu_world, epochs=4)

    assert accuracy(model, digits[1], tpu_world) > 0.9


@pytest.fixture
def model(digits: tuple[TensorDataset, TensorDataset], tpu_world: World) -> torch.nn.Module:
    # It asks for tpu_world, so that each core has a model of its own.
    return train(digits[0], tpu_world, epochs=1)


@pytest_tpu.multi_process(cores=8)
def test_all_cores_have_the_same_weights(model: torch.nn.Module) -> None:
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    everyone = xm.all_gather(weights.unsqueeze(0)).cpu()

    assert torch.equal(everyone, everyone[:1].expand_as(everyone))

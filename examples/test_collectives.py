"""The body of a test on every core: what each one sees, and how they meet."""

from __future__ import annotations

import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr

import pytest_tpu
from pytest_tpu import World


@pytest_tpu.multi_process
def test_each_core_has_its_ordinal(tpu_world: World) -> None:
    assert tpu_world.ordinal == xr.global_ordinal()
    assert tpu_world.size == xr.world_size()
    assert tpu_world.device.type == "xla"


@pytest_tpu.multi_process(cores=(1, 8))
def test_sum_over_all_cores(tpu_world: World) -> None:
    ours = torch.full((2,), float(tpu_world.ordinal), device=tpu_world.device)

    total = xm.all_reduce(xm.REDUCE_SUM, ours)

    expected = float(sum(range(tpu_world.size)))
    assert total.tolist() == [expected, expected]


@pytest_tpu.multi_process(cores=8)
def test_gathered_in_order(tpu_world: World) -> None:
    ours = torch.tensor([tpu_world.ordinal], device=tpu_world.device)

    everyone = xm.all_gather(ours)

    assert everyone.tolist() == list(range(8))


@pytest_tpu.multi_process(cores=8)
def test_one_core_writes_and_the_others_read(tpu_world: World) -> None:
    path = tpu_world.tmp_path / "settings.txt"
    if tpu_world.ordinal == 0:
        path.write_text("learning rate 0.1")

    tpu_world.rendezvous("written")

    assert path.read_text() == "learning rate 0.1"

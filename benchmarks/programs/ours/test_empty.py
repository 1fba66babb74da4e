"""The empty test in pytest-tpu, as often as REPEAT says; the first one imports torch and torch_xla."""

from __future__ import annotations

import os

import pytest

import pytest_tpu


@pytest.mark.parametrize("number", range(int(os.environ.get("REPEAT", "1"))))
@pytest_tpu.multi_process
def test_empty(tpu_world: pytest_tpu.World, number: int) -> None:
    """A device, a world, one all-reduce of a tensor on the device."""
    import torch
    import torch_xla.core.xla_model as xm

    total = xm.all_reduce(xm.REDUCE_SUM, torch.ones(1, device=tpu_world.device))

    assert tpu_world.size == total.cpu().item()

"""A function on every core, called from an ordinary test; its results come back in the order of the ordinals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch_xla.core.xla_model as xm
import torch_xla.runtime as xr


def mean_over_cores(values: list[float]) -> torch.Tensor:
    ours = torch.tensor(values[xr.global_ordinal()], device="xla")
    return xm.all_reduce(xm.REDUCE_SUM, ours, scale=1 / xr.world_size())


def test_results(tpu_launch: Any) -> None:
    results = tpu_launch(mean_over_cores, [1.0, 2.0, 3.0, 6.0], cores=4)

    assert [result.item() for result in results] == [3.0, 3.0, 3.0, 3.0]


def test_exception(tpu_launch: Any) -> None:
    with pytest.raises(IndexError):
        tpu_launch(mean_over_cores, [1.0, 2.0, 3.0], cores=4)


def test_one_and_all(tpu_launch: Any, tpu_cores: int) -> None:
    assert tpu_launch(xr.world_size, cores=tpu_cores) == [tpu_cores] * tpu_cores

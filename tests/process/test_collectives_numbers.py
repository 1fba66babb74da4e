"""Results against what XLA itself computes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.bridge_worlds import run_collectives

if TYPE_CHECKING:
    import torch

    from pytest_tpu.model.place import Place

pytestmark = pytest.mark.process

SIZE = 4
WORLD = [[0, 1, 2, 3]]
FLOATS = ("float64", "float32", "bfloat16", "float16", "float8_e5m2", "float8_e4m3fn")
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32")
GROUPS = (WORLD, [[0, 1], [2, 3]], [[3, 0], [1, 2]], [[0], [1], [2], [3]])


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One all-reduce and one reduce-scatter with the same words."""

    reduction: str
    dtype: str
    scale: float = 1.0
    groups: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3),)

    @property
    def listed(self) -> list[list[int]]:
        """The groups as torch_xla wants them."""
        return [list(group) for group in self.groups]


def _cases() -> list[Case]:
    """Every type with every reduction that it has; scales and groups with some."""
    cases = [Case(reduction=r, dtype=d) for d in FLOATS + INTEGERS for r in ("sum", "mul", "min", "max")]
    cases += [Case(reduction=r, dtype="bool") for r in ("sum", "mul", "min", "max", "and", "or")]
    cases += [Case(reduction=r, dtype=d) for d in INTEGERS for r in ("and", "or")]
    scaled = ("float64", "float32", "bfloat16", "float16", "int32", "int64", "uint8", "uint16", "bool")
    cases += [Case(reduction=r, dtype=d, scale=s) for d in scaled for r in ("sum", "max") for s in (0.5, 1 / 3, 2.0)]
    grouped = [tuple(tuple(group) for group in groups) for groups in GROUPS[1:]]
    cases += [Case(reduction="sum", dtype=d, groups=g) for d in ("float32", "int16", "bool") for g in grouped]
    return cases


CASES = _cases()

# XLA's own reduction on the CPU, from one process with one device per ordinal and a graph partitioned by hand. The
# HLO is what `xm.all_reduce` would put into a TPU's graph.
JUDGE = """
import json, sys
import numpy as np, torch, torch_xla
import torch_xla.distributed.spmd as xs, torch_xla.runtime as xr
sys.path.insert(0, sys.argv[1])
from tests.process.test_collectives_numbers import CASES, SIZE, inputs, shown
xr.use_spmd()
mesh = xs.Mesh(np.arange(SIZE), (SIZE,), ("ordinals",))
said = []
for case in CASES:
    data = torch.cat([inputs(case, ordinal) for ordinal in range(SIZE)])
    spec = ("ordinals", *[None] * (data.dim() - 1))
    whole = data.to("xla")
    xs.mark_sharding(whole, mesh, spec)
    part = xs.enable_manual_sharding(whole, spec, mesh=mesh).global_tensor
    reduced = torch_xla._XLAC._xla_spmd_all_reduce(case.reduction, part, case.scale, case.listed)
    result = xs.disable_manual_sharding(reduced, spec, data.shape, mesh=mesh).global_tensor
    try:
        said.append([shown(row) for row in result.cpu().chunk(SIZE)])
    except RuntimeError as error:
        assert "Unsupported reduction computation" in str(error), error
        said.append(None)
print(json.dumps(said))
"""


def inputs(case: Case, ordinal: int) -> torch.Tensor:
    """Give an ordinal's tensor: values that overflow, round, and differ in sign where the type has them."""
    import torch

    dtype: torch.dtype = getattr(torch, case.dtype)
    generator = torch.Generator().manual_seed(ordinal)
    if dtype is torch.bool:
        return torch.randint(0, 2, (4, 6), generator=generator).bool()
    if dtype.is_floating_point:
        return (torch.rand((4, 6), generator=generator, dtype=torch.float64) * 4 - 2).to(dtype)
    bounds = torch.iinfo(dtype)
    low, high = max(bounds.min, -(2**62)), min(bounds.max, 2**62)
    return torch.randint(low, high, (4, 6), generator=generator, dtype=torch.int64).to(dtype)


def shown(tensor: torch.Tensor) -> list[float]:
    """Make a tensor comparable and sendable, without loss."""
    import torch

    wide = tensor.to(torch.float64) if tensor.dtype.is_floating_point else tensor.to(torch.int64)
    values: list[float] = wide.reshape(-1).tolist()
    return values


def by_hand(case: Case, tensors: list[torch.Tensor]) -> torch.Tensor:
    """What XLA on the CPU can't reduce, and/or of integers, is the same bit by bit whatever the order."""
    import torch

    total = tensors[0].to(torch.int64)
    for tensor in tensors[1:]:
        total = total & tensor.to(torch.int64) if case.reduction == "and" else total | tensor.to(torch.int64)
    return total


@pytest.fixture(scope="module")
def judged() -> list[Any]:
    """Ask XLA."""
    here = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", JUDGE, here],
        env={**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(SIZE), "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert 0 == done.returncode, done.stderr[-3000:]
    said: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.fixture(scope="module")
def bridged() -> list[list[Any]]:
    """Ask the bridge, in one world; by ordinal, then by case."""

    def body(place: Place) -> list[Any]:
        import torch_xla
        import torch_xla.core.xla_model as xm

        device = torch_xla.device()
        said: list[Any] = []
        for case in CASES:
            data = inputs(case, place.ordinal)
            tensor = data.to(device)
            reduced = xm.all_reduce(case.reduction, tensor, scale=case.scale, groups=case.listed)
            listed = [data.to(device), data[:1].to(device)]
            xm.all_reduce(case.reduction, listed, scale=case.scale, groups=case.listed)
            count = len(case.groups[0])
            scattered = xm.reduce_scatter(case.reduction, tensor, case.scale, 0, count, groups=case.listed)
            plain = None
            if case.scale == 1.0 and case.groups == CASES[0].groups:
                plain = shown(xm.all_reduce(case.reduction, tensor).cpu())
            dtypes = {str(result.dtype) for result in (reduced, *listed, scattered)}
            said.append(
                [shown(reduced.cpu()), [shown(part.cpu()) for part in listed], shown(scattered.cpu()), plain, dtypes]
            )
        return said

    return run_collectives(SIZE, body)


@pytest.mark.parametrize(
    "index",
    range(len(CASES)),
    ids=[f"{case.reduction}-{case.dtype}-{case.scale:.2g}-{len(case.groups)}" for case in CASES],
)
def test_reductions(index: int, judged: list[Any], bridged: list[list[Any]]) -> None:
    """All forms of all-reduce, and reduce-scatter, give what XLA's all-reduce gives."""
    case = CASES[index]
    for ordinal in range(SIZE):
        expected = judged[index] and judged[index][ordinal]
        group = next(group for group in case.groups if ordinal in group)
        if expected is None:
            expected = shown(by_hand(case, [inputs(case, member) for member in group]))
        reduced, (first, second), scattered, plain, dtypes = bridged[ordinal][index]
        share = len(expected) // len(group)
        mine = group.index(ordinal) * share

        assert {f"torch.{case.dtype}"} == dtypes
        assert _close(case, expected, reduced)
        assert _close(case, expected, first)
        assert _close(case, expected[:6], second)
        assert _close(case, expected[mine : mine + share], scattered)
        assert plain is None or _close(case, expected, plain)


def _close(case: Case, expected: list[float], got: list[float]) -> bool:
    """Whether two results are the same: to the last bit, or where floats were added in another order nearly so."""
    if not case.dtype.startswith("float") or case.reduction in ("min", "max"):
        return expected == got
    digits = {"float64": 1e-14, "float32": 1e-6}.get(case.dtype)
    return expected == pytest.approx(got, rel=digits) if digits else expected == got

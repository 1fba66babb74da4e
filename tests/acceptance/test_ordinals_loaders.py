from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

LOADERS = """
    import os

    import pytest
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __init__(self, offset, process):
            self.offset = offset
            self.process = process

        def __len__(self):
            return 8

        def __getitem__(self, index):
            assert os.getpid() != self.process, "no worker"
            if index == 5 and self.offset == 100:
                raise ValueError("bad sample")
            return torch.tensor([index + self.offset])

    def sums(world, offset):
        loader = DataLoader(Numbers(offset, os.getpid()), batch_size=2, num_workers=2)
        return [batch.to(world.device).sum().item() for batch in loader]

    def test_loader(tpu_world):
        assert [1, 5, 9, 13] == sums(tpu_world, 0)

    def test_persistent(tpu_world):
        dataset = Numbers(0, os.getpid())
        loader = DataLoader(dataset, batch_size=4, num_workers=2, persistent_workers=True, pin_memory=False)
        for epoch in range(2):
            assert [6, 22] == [batch.sum().item() for batch in loader]

    def test_one_fails(tpu_world):
        sums(tpu_world, 100 * tpu_world.ordinal)
"""


class TestLoaders:
    def test_workers(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A DataLoader with worker processes works on ordinals, its errors are theirs, and none of it stays."""
        result = run_on_ordinals(LOADERS)

        result.assert_outcomes(passed=2, failed=1)
        result.stdout.fnmatch_lines(
            ["FAILED test_it.py::test_one_fails - RAISED: ordinal 1: ValueError: Caught ValueError in DataLoader*"]
        )

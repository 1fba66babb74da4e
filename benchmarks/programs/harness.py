"""The same empty test in PyTorch's own MultiProcessTestCase, which starts a new interpreter for each rank.

Usage: harness.py REPEAT CORES. Prints the seconds of each test as JSON; what the parent imports is not in them.
"""

from __future__ import annotations

import json
import sys
import time
import unittest

import torch
import torch.distributed as dist
import torch_xla
from torch.testing._internal.common_distributed import MultiProcessTestCase

CORES = int(sys.argv[2]) if len(sys.argv) > 2 else 8


class EmptyTest(MultiProcessTestCase):
    """One empty test."""

    @property
    def world_size(self) -> int:
        """How many ranks."""
        return CORES

    def setUp(self) -> None:
        """Start the ranks, as its users do."""
        super().setUp()
        self._spawn_processes()

    def test_empty(self) -> None:
        """A device, a group, one all-reduce of a tensor on the device."""
        torch.set_num_threads(1)
        device = torch_xla.device()
        store = dist.FileStore(self.file_name, self.world_size)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=self.world_size)
        on_host = torch.ones(1, device=device).cpu()
        dist.all_reduce(on_host)

        assert self.world_size == on_host.to(device).cpu().item()


def run_once() -> float:
    """Run the test; returns the seconds it took."""
    result = unittest.TestResult()
    began = time.perf_counter()
    unittest.TestSuite([EmptyTest("test_empty")]).run(result)
    seconds = time.perf_counter() - began

    assert result.wasSuccessful(), result.errors + result.failures
    assert 1 == result.testsRun - len(result.skipped), result.skipped

    return seconds


if __name__ == "__main__":
    print(json.dumps([run_once() for _ in range(int(sys.argv[1]))]))

"""The backend of real chips where there are none: torch_xla's CPU device stands in for a chip."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_tpu.backend import package
from pytest_tpu.backend.chips import Chips
from pytest_tpu.backend.cpu import CpuBackend
from pytest_tpu.backend.tpu import TpuBackend
from pytest_tpu.errors import BackendError, UnsupportedError
from pytest_tpu.model.host import Host
from tests.process.host_forks import run_forked, run_world

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Import torch_xla once, here: the forked processes have it then."""
    # Inside a host: outside torch_xla would choose a device and leave it in the environment.
    with CpuBackend(1).activate():
        package.load()


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Iterator[TpuBackend]:
    """Give the backend of a v5e host with four chips, on a machine whose device is the CPU."""
    monkeypatch.setenv("PJRT_DEVICE", "CPU")
    backend = TpuBackend(Chips(count=4, version="v5e"), 4)
    with backend.activate():
        yield backend


def test_host(backend: TpuBackend) -> None:
    """The host is a real one, with a core per chip."""
    assert Host(backend="tpu", emulated=False, cores=4, chips=4, version="v5e") == backend.host
    assert "TPU host (v5e) with 4 cores on 4 chips" == str(backend.host)


def test_launches_end_in_the_launcher(backend: TpuBackend) -> None:
    """torch_xla's launches run by our launcher, are refused without one, and are torch_xla's own after the undo."""
    from torch_xla._internal import pjrt

    def launched() -> Any:
        with pytest.raises(UnsupportedError, match="a launch needs an isolated test"):
            pjrt.run_multiprocess(os.getpid)
        backend.set_launcher(lambda fn, start_method: {0: (fn(), start_method)})
        return pjrt.run_multiprocess(len, "four", start_method="fork")

    assert [{0: (4, "fork")}] == run_forked(launched)


def test_undo() -> None:
    """After the context torch_xla's own functions are back, also where contexts nest."""
    from torch_xla._internal import pjrt

    own = pjrt.run_multiprocess
    with TpuBackend(Chips(count=4, version="v5e"), 4).activate():
        outer = pjrt.run_multiprocess
        with TpuBackend(Chips(count=1, version="v5e"), 1).activate():
            assert pjrt.run_multiprocess not in (own, outer)
        assert outer is pjrt.run_multiprocess
    assert own is pjrt.run_multiprocess


@pytest.mark.parametrize("cores", [1, 4])
def test_ordinals_are_configured_by_torch_xla(backend: TpuBackend, cores: int) -> None:
    """An ordinal has the variables that torch_xla's own launch sets, a device, and one thread."""

    def ask() -> Any:
        import torch

        torch.set_num_threads(4)
        rank, count = os.environ.get("PJRT_LOCAL_PROCESS_RANK"), os.environ["PJRT_LOCAL_PROCESS_COUNT"]
        return rank, count, str(backend.device()), torch.get_num_threads()

    ranks = [None] if cores == 1 else [str(ordinal) for ordinal in range(cores)]

    assert [(rank, str(cores), "xla:0", 1) for rank in ranks] == run_world(backend, cores, ask)
    assert not package.runtime_initialized()


def test_world_of_one_meets_itself(backend: TpuBackend) -> None:
    """A rendezvous of one ordinal returns its own payload."""
    assert [[b"payload"]] == run_world(backend, 1, lambda: backend.rendezvous("tag", b"payload"))


@pytest.mark.parametrize("cores", [2, 8])
def test_no_part_of_a_host(backend: TpuBackend, cores: int) -> None:
    """A launch, and an isolated process, have one chip or all."""
    with pytest.raises(BackendError, match="gives 1 or 4"):
        backend.plan(cores)
    with pytest.raises(BackendError, match="gives 1 or 4"):
        backend.resize(cores)

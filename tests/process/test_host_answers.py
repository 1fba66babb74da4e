"""What programs are told on an emulated host: before a launch, on ordinals, and after."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest

from pytest_tpu.backend import package
from pytest_tpu.backend.cpu import CpuBackend
from pytest_tpu.backend.cpu.environment import coordinates
from pytest_tpu.errors import UnsupportedError
from tests.process.host_forks import launcher, run_forked, run_world

pytestmark = pytest.mark.process


@pytest.fixture(scope="module", autouse=True)
def loaded() -> None:
    """Import torch_xla and Lightning once, here: the forked processes have them then."""
    # Inside a host: outside torch_xla would choose a device and leave it in the environment.
    with CpuBackend(1).activate():
        package.load()
        # These set environment variables when they are imported.
        import lightning.pytorch  # noqa: F401
        import sklearn.cluster  # noqa: F401


@pytest.fixture
def host(request: pytest.FixtureRequest) -> Iterator[CpuBackend]:
    """Give an emulated host, of 8 cores unless the test says otherwise."""
    backend = CpuBackend(getattr(request, "param", 8))
    with backend.activate():
        yield backend


def in_c(name: str) -> str | None:
    """Read a variable as C does."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    value = getenv(name.encode())
    return None if value is None else value.decode()


def detected() -> dict[str, Any]:
    """Ask all that a program asks before it launches."""
    import torch_xla.runtime as xr
    from lightning.fabric.accelerators.xla import XLAAccelerator
    from lightning.pytorch.accelerators.xla import XLAAccelerator as TrainerAccelerator
    from torch_xla._internal import tpu

    return {
        "type": xr.device_type(),
        "chips": tpu.num_available_chips(),
        "devices": tpu.num_available_devices(),
        "global": tpu.num_expected_global_devices(),
        "processes": tpu.num_local_processes(),
        "version": tpu.version(),
        "worker": tpu.worker_id(),
        "workers": tpu.num_tpu_workers(),
        "host": xr.host_index(),
        "master": tpu.discover_master_worker_ip(),
        "fabric": (XLAAccelerator.is_available(), XLAAccelerator.auto_device_count()),
        "trainer": (TrainerAccelerator.is_available(), TrainerAccelerator.auto_device_count()),
    }


class TestBeforeALaunch:
    @pytest.mark.parametrize("host", [1, 4, 6, 8, 64], indirect=True)
    def test_programs_find_the_host(self, host: CpuBackend) -> None:
        """A program that asks is told about a v5e host of that many cores, and the runtime stays uninitialised."""
        cores = host.host.cores

        assert {
            "type": "TPU",
            "chips": cores,
            "devices": cores,
            "global": cores,
            "processes": cores,
            "version": 5,
            "worker": 0,
            "workers": 1,
            "host": 0,
            "master": "localhost",
            "fabric": (True, cores),
            "trainer": (True, cores),
        } == detected()
        assert not package.runtime_initialized()

    def test_inner_host_answers_until_it_ends(self, host: CpuBackend) -> None:
        """Contexts nest: the inner one answers, then the outer one does again, in the environment of C as well."""
        with CpuBackend(2).activate():
            inner = detected(), os.environ["TPU_CHIPS_PER_HOST_BOUNDS"], in_c("CPU_NUM_DEVICES"), in_c("PJRT_DEVICE")
        outer = detected(), os.environ["TPU_CHIPS_PER_HOST_BOUNDS"], in_c("CPU_NUM_DEVICES"), in_c("PJRT_DEVICE")

        assert (2, "1,2,1", "2", "CPU") == (inner[0]["chips"], *inner[1:])
        assert (2, 2) == (inner[0]["fabric"][1], inner[0]["trainer"][1])
        assert (8, "2,4,1", "8", "CPU") == (outer[0]["chips"], *outer[1:])
        assert (8, 8) == (outer[0]["fabric"][1], outer[0]["trainer"][1])

    def test_unlaunched_process_has_all_devices(self, host: CpuBackend) -> None:
        """A process that is not launched sees every device under its TPU name, and its world is of one."""

        def ask() -> dict[str, Any]:
            import torch
            import torch_xla
            import torch_xla.core.xla_model as xm
            import torch_xla.runtime as xr

            return {
                "real": torch_xla.real_devices(),
                "hardware": xm.xla_device_hw(torch_xla.device(3)),
                "counts": (xr.global_device_count(), xr.addressable_device_count(), xr.local_device_count()),
                "runtime": (xr.global_runtime_device_count(), xr.addressable_runtime_device_count()),
                "world": (xr.world_size(), xr.global_ordinal(), xr.process_index(), xr.process_count()),
                "third": (torch.ones(2, device="xla:3") + 1).sum().item(),
                "coords": [device["coords"] for device in xr.global_runtime_device_attributes()],
                "names": [device["name"] for device in xr.global_runtime_device_attributes()],
                "one": xr.runtime_device_attributes("xla:3"),
                "kind": xm.xla_device_kind("xla:3"),
            }

        (answers,) = run_forked(ask)
        names = [f"TPU:{index}" for index in range(8)]

        assert names == answers["real"] == answers["names"]
        assert "TPU" == answers["hardware"]
        assert (8, 8, 8) == answers["counts"]
        assert (8, 8) == answers["runtime"]
        # The device of the process is the third one, since it was made the default above.
        assert (1, 3, 0, 1) == answers["world"]
        assert 4.0 == answers["third"]
        assert [[x, y, 0] for y in range(4) for x in range(2)] == answers["coords"]
        assert {"coords": [1, 1, 0], "core_on_chip": 0, "num_cores": 1} == answers["one"]
        assert "TPU v5 lite" == answers["kind"]

    @pytest.mark.parametrize("host", [64], indirect=True)
    def test_largest_host_has_its_devices(self, host: CpuBackend) -> None:
        """64 cores are 64 devices of an unlaunched process."""

        def ask() -> Any:
            import torch
            import torch_xla

            return len(torch_xla.devices()), torch.ones(1, device="xla:63").item()

        assert [(64, 1.0)] == run_forked(ask)

    def test_spmd_works_unlaunched(self, host: CpuBackend) -> None:
        """SPMD over eight devices in one process computes, and its queries pass through."""

        def sharded() -> Any:
            import numpy as np
            import torch
            import torch_xla
            import torch_xla.distributed.spmd as xs
            import torch_xla.runtime as xr

            xr.use_spmd()
            count = xr.global_runtime_device_count()
            mesh = xs.Mesh(np.arange(count), (count, 1), ("x", "y"))
            data = torch.arange(32.0).reshape(16, 2).to("xla")
            xs.mark_sharding(data, mesh, ("x", None))
            total = (data @ torch.ones(2, 1, device="xla")).sum().item()
            return count, total, "devices=[8,1]" in torch_xla._XLAC._get_xla_sharding_spec(data), xr.is_spmd()

        assert [(8, 496.0, True, True)] == run_forked(sharded)

    def test_resized_process_is_a_smaller_host(self, host: CpuBackend) -> None:
        """An isolated test's process that asks for two cores is a host of two."""

        def ask() -> Any:
            import torch_xla

            # Lightning remembers the number, so that it must be asked before as well.
            before = detected()["fabric"]
            host.resize(2)
            return before, detected()["fabric"], torch_xla.device_count(), host.host.cores

        assert [((True, 8), (True, 2), 2, 2)] == run_forked(ask)

    def test_patched_environment_does_not_ask_for_libtpu(self, host: CpuBackend) -> None:
        """After mock.patch.dict on os.environ, which writes all of it again, the CPU device still comes up."""

        def ask() -> Any:
            import torch_xla
            import torch_xla.runtime as xr

            with mock.patch.dict(os.environ, {"UNRELATED": "1"}):
                pass
            xr.set_device_type("TPU")
            return xr.device_type(), torch_xla.device_count()

        assert [("TPU", 8)] == run_forked(ask)

    def test_topology_of_any_number(self) -> None:
        """torch_xla's own configure_topology works for powers of two and for all other numbers."""

        def configure(cores: int) -> Callable[[], Any]:
            def run() -> Any:
                from torch_xla._internal import tpu

                with CpuBackend(cores).activate():
                    tpu.configure_topology(cores - 1, cores)
                    return tpu.process_bounds_size(), os.environ["TPU_VISIBLE_CHIPS"]

            return run

        numbers = [1, 2, 3, 6, 7, 16, 48, 61, 64]

        assert [(n, str(n - 1)) for n in numbers] == run_forked(*(configure(n) for n in numbers))


class TestOnOrdinals:
    @pytest.mark.parametrize(("host", "cores"), [(8, 1), (4, 4), (8, 8), (6, 3)], indirect=["host"])
    def test_answers(self, host: CpuBackend, cores: int) -> None:
        """Every ordinal is told its place, by every name that torch_xla has for it."""

        def ask() -> dict[str, Any]:
            import torch_xla
            import torch_xla.core.xla_model as xm
            import torch_xla.runtime as xr
            from torch_xla._internal import tpu

            native = torch_xla._XLAC
            return {
                "size": (xr.world_size(), xr.global_device_count(), xr.process_count(), xr.local_device_count()),
                "counts": (
                    xr.local_process_count(),
                    native._xla_num_global_devices(),
                    xr.global_runtime_device_count(),
                ),
                "all": native._xla_get_all_devices(),
                "replication": (native._xla_get_replication_devices(), native._xla_get_replication_devices_count()),
                "ordinal": (xr.global_ordinal(), xr.local_ordinal(), xr.process_index(), xm.get_local_ordinal()),
                "master": (xm.is_master_ordinal(), xm.is_master_ordinal(local=False)),
                "own": (xr.addressable_device_count(), xr.addressable_runtime_device_count(), torch_xla.device_count()),
                "device": (str(torch_xla.device()), torch_xla.real_devices(), xm.xla_device_hw("xla:0")),
                "kind": (xm.xla_device_kind(), xr.device_type(), tpu.version()),
                "coords": (xr.runtime_device_attributes("xla:0")["coords"], len(xr.global_runtime_device_attributes())),
                "chip": os.environ["TPU_VISIBLE_CHIPS"],
            }

        for ordinal, answers in enumerate(run_world(host, cores, ask)):
            every = [f"TPU:{index}" for index in range(cores)]

            assert {
                "size": (cores,) * 4,
                "counts": (cores,) * 3,
                "all": every,
                "replication": (every, cores) if cores > 1 else ([], 0),
                "ordinal": (ordinal,) * 4,
                "master": (ordinal == 0,) * 2,
                "own": (1, 1, 1),
                "device": ("xla:0", [f"TPU:{ordinal}"], "TPU"),
                "kind": ("TPU v5 lite", "TPU", 5),
                "coords": (coordinates(ordinal, 8 if cores == 1 else cores), cores),
                "chip": str(ordinal),
            } == answers
        assert not package.runtime_initialized()

    def test_memory_is_plausible(self, host: CpuBackend) -> None:
        """The memory of the device is said to be used, and to end somewhere."""

        def ask() -> Any:
            import torch_xla.core.xla_model as xm

            return xm.get_memory_info()

        for info in run_world(host, 2, ask):
            assert 0 < info["bytes_used"] <= info["peak_bytes_used"] < info["bytes_limit"]

    def test_autocast(self, host: CpuBackend) -> None:
        """torch.autocast on the xla device takes bfloat16, as on a TPU, without a warning."""

        def multiply() -> Any:
            import warnings

            import torch
            import torch_xla.amp

            ones = torch.ones(2, 2, device="xla")
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                with torch.autocast("xla"):
                    first = (ones @ ones).dtype
                with torch_xla.amp.autocast(torch.device("xla:0")):
                    second = (ones @ ones).dtype
            return str(first), str(second)

        assert [("torch.bfloat16", "torch.bfloat16")] * 2 == run_world(host, 2, multiply)

    def test_spmd_is_refused_by_name(self, host: CpuBackend) -> None:
        """use_spmd() on an ordinal, which would crash, says what to do instead; so does the mode from outside."""

        def use() -> str:
            import torch_xla.runtime as xr

            with pytest.raises(UnsupportedError, match=r"use_spmd\(\) was called on an ordinal.*isolated"):
                xr.use_spmd()
            return "refused"

        assert ["refused"] * 2 == run_world(host, 2, use)
        with (
            mock.patch.dict(os.environ, {"XLA_USE_SPMD": "1"}),
            pytest.raises(AssertionError, match="UnsupportedError"),
        ):
            run_world(host, 1, use)

    def test_environment_left_by_an_earlier_launch(self, host: CpuBackend) -> None:
        """What torch_xla's single-process path left in the launching process does not reach the ordinals."""

        def ask() -> Any:
            import torch_xla.runtime as xr

            return xr.local_ordinal(), xr.local_process_count(), os.environ["TPU_PROCESS_BOUNDS"]

        left = {"PJRT_LOCAL_PROCESS_COUNT": "1", "TPU_VISIBLE_CHIPS": "0", "TPU_PROCESS_BOUNDS": "1,1,1"}
        with mock.patch.dict(os.environ, left):
            assert [(0, 2, "1,2,1"), (1, 2, "1,2,1")] == run_world(host, 2, ask)

    def test_each_launch_has_its_port(self, host: CpuBackend) -> None:
        """Two launches at a time have different ports for their stores; a port that the user chose stays."""

        def port() -> str | None:
            return os.environ.get("MASTER_PORT")

        with host.plan(1) as other:
            first = run_world(host, 2, port)
        with mock.patch.dict(os.environ, {"MASTER_PORT": "29501"}):
            chosen = run_world(host, 1, port)

        assert first[0] == first[1]
        assert first[0] not in (None, str(other.port))
        assert ["29501"] == chosen

    def test_store_listens_on_the_port(self, host: CpuBackend) -> None:
        """init_process_group with xla:// finds its store on the port that was held for the launch."""

        def group() -> Any:
            import torch.distributed as dist

            dist.init_process_group("xla", init_method="xla://")
            return dist.get_rank(), dist.get_world_size()

        assert [(0, 2), (1, 2)] == run_world(host, 2, group)


class TestLaunches:
    def test_launch_ends_in_the_launcher(self, host: CpuBackend) -> None:
        """torch_xla.launch and xmp.spawn run on the ordinals of our launcher, and run_multiprocess gives its values."""

        def launches() -> Any:
            import torch_xla
            import torch_xla.distributed.xla_multiprocessing as xmp
            import torch_xla.runtime as xr
            from torch_xla._internal import pjrt

            def body(index: int, text: str) -> None:
                assert xr.global_ordinal() == index
                assert text == "given"

            host.set_launcher(launcher(host, 2))
            returned = torch_xla.launch(body, args=("given",)), xmp.spawn(body, args=("given",), start_method="fork")
            return returned, pjrt.run_multiprocess(lambda word: (xr.global_ordinal(), word), "w", start_method="fork")

        assert [((None, None), {ordinal: (ordinal, "w") for ordinal in range(2)})] == run_forked(launches)

    def test_failure_on_an_ordinal_reaches_the_caller(self, host: CpuBackend) -> None:
        """What the launcher raises is raised by torch_xla.launch."""

        def fails(index: int) -> None:
            raise ValueError("on purpose")

        def launches() -> None:
            import torch_xla

            host.set_launcher(launcher(host, 2))
            with pytest.raises(AssertionError, match="on purpose"):
                torch_xla.launch(fails)

        run_forked(launches)

    def test_without_a_launcher_it_is_refused(self, host: CpuBackend) -> None:
        """Where nobody can watch a launch, it is refused in one sentence that says where it works."""

        def launches() -> None:
            import torch_xla

            with pytest.raises(UnsupportedError, match="a launch needs an isolated test"):
                torch_xla.launch(print)

        run_forked(launches)

    def test_after_the_runtime_torch_xla_refuses(self, host: CpuBackend) -> None:
        """A launch after the first use of a device, also on an ordinal, is refused in torch_xla's own words."""

        def launches() -> str:
            import torch_xla

            torch_xla.device()
            with pytest.raises(
                RuntimeError, match=r"^Runtime is already initialized\. Do not use the XLA device before"
            ):
                torch_xla.launch(print)
            return "refused"

        assert ["refused"] == run_forked(launches)
        assert ["refused"] * 2 == run_world(host, 2, launches)

    def test_one_process(self, host: CpuBackend) -> None:
        """nprocs=1 runs in the process itself, a world of one with one device; a later launch is refused."""

        def single() -> Any:
            import torch_xla
            import torch_xla.distributed.xla_multiprocessing as xmp
            import torch_xla.runtime as xr
            from torch_xla._internal import tpu

            seen: list[Any] = []
            host.set_launcher(launcher(host, 2))
            xmp.spawn(lambda index: seen.append((index, xr.world_size(), torch_xla.device_count())), nprocs=1)
            with pytest.raises(RuntimeError, match="Runtime is already initialized"):
                xmp.spawn(print)
            return seen, torch_xla.device_count(), torch_xla.real_devices(), tpu.num_available_devices()

        assert [([(0, 1, 1)], 1, ["TPU:0"], 8)] == run_forked(single)

    def test_debug_single_process(self, host: CpuBackend) -> None:
        """torch_xla.launch with debug_single_process runs here, on one device."""

        def single() -> Any:
            import torch_xla

            seen: list[int] = []
            torch_xla.launch(seen.append, debug_single_process=True)
            return seen, torch_xla.device_count()

        assert [([0], 1)] == run_forked(single)

    def test_other_numbers_are_refused_by_torch_xla(self, host: CpuBackend) -> None:
        """nprocs=2 raises torch_xla's own ValueError."""
        import torch_xla.distributed.xla_multiprocessing as xmp

        with pytest.raises(ValueError, match=r"Unsupported nprocs \(2\)"):
            xmp.spawn(print, nprocs=2)

    def test_part_of_the_host_is_refused_by_name(self, host: CpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
        """A launch that the environment limits to one process is refused, and not run on all cores."""
        import torch_xla

        host.set_launcher(launcher(host, 2))
        monkeypatch.setenv("TPU_PROCESS_BOUNDS", "1,1,1")
        with pytest.raises(UnsupportedError, match="TPU_PROCESS_BOUNDS=1,1,1 asks for a launch of 1 of the 8 cores"):
            torch_xla.launch(print)

    def test_threads_are_refused_by_name(self, host: CpuBackend) -> None:
        """spawn_threads on a host of several cores, which would hang at a collective, names torch_xla.launch."""
        from torch_xla._internal import pjrt

        with pytest.raises(UnsupportedError, match=r"spawn_threads.*torch_xla\.launch"):
            pjrt.spawn_threads(print)


class TestThreads:
    def test_thread_count_stays_one_on_ordinals(self, host: CpuBackend) -> None:
        """After a parallel operation in the parent, ordinals compute, and set_num_threads can't bring the hang back."""
        import torch

        torch.randn(1000, 1000) @ torch.randn(1000, 1000)

        def compute() -> Any:
            before = torch.get_num_threads()
            torch.set_num_threads(4)
            return before, torch.get_num_threads(), (torch.ones(1000, 1000) @ torch.ones(1000, 1000)).mean().item()

        assert [(1, 1, 1000.0)] * 2 == run_world(host, 2, compute, seconds=20)

    def test_no_fork_inherits_dead_threads(self, host: CpuBackend) -> None:
        """After a parallel operation in the parent, a forked process that is no ordinal has several threads."""
        import torch

        torch.set_num_threads(2)
        torch.randn(1000, 1000) @ torch.randn(1000, 1000)

        def compute() -> Any:
            torch.set_num_threads(2)
            return torch.get_num_threads(), (torch.ones(1000, 1000) @ torch.ones(1000, 1000)).mean().item()

        assert [(2, 1000.0)] == run_forked(compute, seconds=20)
        assert 1000.0 == (torch.ones(1000, 1000) @ torch.ones(1000, 1000)).mean().item()

    def test_backward_after_set_num_threads_in_the_parent(self, host: CpuBackend) -> None:
        """Where the parent had set the number of threads, the autograd threads of many devices start unharmed."""
        import torch

        torch.set_num_threads(2)

        def backward() -> float:
            leaf = torch.ones(2, device="xla:7", requires_grad=True)
            (leaf * 3).sum().backward()
            assert leaf.grad is not None
            return float(leaf.grad.sum())

        assert [6.0] * 4 == run_forked(backward, backward, backward, backward)

    def test_backward_after_one_in_the_parent(self, host: CpuBackend) -> None:
        """A backward pass of the parent, before there was any XLA device, does no harm to those of its children."""
        import torch

        torch.ones(2, requires_grad=True).sum().backward()

        def backward() -> float:
            leaf = torch.ones(2, device="xla", requires_grad=True)
            (leaf * 3).sum().backward()
            assert leaf.grad is not None
            return float(leaf.grad.sum())

        assert [6.0] == run_forked(backward)

    def test_scikit_learn_computes_on_ordinals(self, host: CpuBackend) -> None:
        """A library with an OpenMP of its own, used in parallel by the parent, computes on ordinals."""
        import numpy as np
        from sklearn.cluster import KMeans

        points = np.random.default_rng(0).normal(size=(2000, 8))

        def fit() -> int:
            return len(KMeans(4, n_init=1, random_state=0).fit(points).cluster_centers_)

        assert 4 == fit()
        assert [4, 4] == run_world(host, 2, fit, seconds=20)


class TestUndo:
    def test_everything_is_as_before(self) -> None:
        """After the context the environment, of Python and of C, and every function of torch_xla are as before."""
        import torch
        import torch_xla
        from torch_xla import runtime
        from torch_xla._internal import pjrt, tpu
        from torch_xla.experimental import plugins

        def everything() -> Any:
            modules = (torch, torch_xla, torch_xla._XLAC, runtime, pjrt, tpu, plugins)
            return dict(os.environ), in_c("PJRT_DEVICE"), os.putenv, [dict(vars(module)) for module in modules]

        before = everything()
        with CpuBackend(4).activate():
            changed = everything()

        assert before != changed
        assert before == everything()

    @pytest.mark.parametrize("value", ["CPU", "TPU"])
    def test_users_own_device_comes_back(self, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        """A PJRT_DEVICE of the user is what Python and C read again, TPU included."""
        monkeypatch.setenv("PJRT_DEVICE", value)
        with CpuBackend(4).activate():
            inside = os.environ["PJRT_DEVICE"], in_c("PJRT_DEVICE")

        assert ("TPU", "CPU") == inside
        assert (value, value) == (os.environ["PJRT_DEVICE"], in_c("PJRT_DEVICE"))

    def test_somebody_elses_replacement_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A function that was replaced over ours is left alone, and ours below it passes on."""
        from torch_xla._internal import tpu

        own = tpu.num_available_chips()
        with CpuBackend(4).activate():
            ours = tpu.num_available_chips

            def replacement() -> int:
                return 100 + int(ours())

            monkeypatch.setattr(tpu, "num_available_chips", replacement)
            inside = tpu.num_available_chips()

        assert 104 == inside
        assert replacement is tpu.num_available_chips
        assert 100 + own == tpu.num_available_chips()


class TestFreshInterpreter:
    def test_choosing_imports_nothing_heavy(self) -> None:
        """A run without cores on a machine without a TPU pays for neither torch nor wrapt nor psutil."""
        program = """
import sys
from pytest_tpu.backend.choose import choose
from pytest_tpu.backend.chips import Chips

assert choose("auto", None, chips=Chips(count=0, version="")) is None
print(sorted({"torch", "torch_xla", "wrapt", "psutil"} & set(sys.modules)))
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)

        assert "[]\n" == done.stdout, done.stderr

    def test_import_comes_after_activation(self) -> None:
        """Activation imports neither torch nor torch_xla; when the program does, it is told about the host."""
        program = """
import sys
from pytest_tpu.backend.cpu import CpuBackend

with CpuBackend(8).activate():
    assert not {"torch", "torch_xla"} & set(sys.modules)
    from torch_xla._internal import tpu
    from torch_xla._internal.tpu import num_available_devices
    import torch_xla.runtime as xr
    inside = num_available_devices(), xr.device_type(), tpu.version()
print(inside, tpu.num_available_chips(), xr.device_type())
"""
        clean = {name: value for name, value in os.environ.items() if name != "PJRT_DEVICE"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=clean, capture_output=True, text=True, timeout=120, check=False
        )

        assert "(8, 'TPU', 5) 0 None\n" == done.stdout, done.stderr

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

LAUNCHES = """
    import os
    import signal
    import sys

    import pytest
    import torch
    import torch_xla
    import torch_xla.core.xla_model as xm
    import torch_xla.distributed.xla_multiprocessing as xmp
    import torch_xla.runtime as xr

    import pytest_tpu

    pytestmark = pytest.mark.tpu_isolated

    def note(index, folder, text):
        assert index == xr.global_ordinal()
        total = xm.all_reduce("sum", torch.ones(1, device="xla"))
        (folder / f"{text} {index}").write_text(f"{int(total)} of {xr.world_size()}")

    def notes(folder):
        return {path.name: path.read_text() for path in folder.iterdir()}

    def test_launch(tmp_path):
        torch_xla.launch(note, args=(tmp_path, "ordinal"))
        assert {f"ordinal {index}": "3 of 3" for index in range(3)} == notes(tmp_path)

    def test_spawn(tmp_path):
        assert xmp.spawn(note, args=(tmp_path, "ordinal"), nprocs=None, start_method="fork") is None
        assert {f"ordinal {index}": "3 of 3" for index in range(3)} == notes(tmp_path)

    def test_twice(tmp_path):
        for text in ("one", "two"):
            torch_xla.launch(note, args=(tmp_path, text))
        assert 6 == len(notes(tmp_path))

    def test_what_need_not_be_pickled(tmp_path):
        lock = __import__("threading").Lock()

        def locked(index):
            with lock:
                (tmp_path / str(index)).touch()

        torch_xla.launch(locked)
        assert {"0", "1", "2"} == {path.name for path in tmp_path.iterdir()}

    def test_one_process(tmp_path):
        xmp.spawn(note, args=(tmp_path, "ordinal"), nprocs=1)
        assert {"ordinal 0": "1 of 1"} == notes(tmp_path)
        with pytest.raises(RuntimeError, match="Runtime is already initialized"):
            xmp.spawn(note, args=(tmp_path, "ordinal"))

    def test_two_processes(tmp_path):
        with pytest.raises(ValueError, match="Unsupported nprocs"):
            xmp.spawn(note, args=(tmp_path, "ordinal"), nprocs=2)

    def test_device_first():
        torch.ones(1, device="xla").cpu()
        torch_xla.launch(print)

    def raise_on_one(index):
        if index == 1:
            raise KeyError("only here")
        xm.rendezvous("after")

    def test_raised():
        with pytest.raises(KeyError, match="only here"):
            torch_xla.launch(raise_on_one)
        torch_xla.launch(raise_on_one)

    def kill_one(index):
        if index == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        xm.rendezvous("after")

    def test_killed():
        with pytest.raises(pytest_tpu.LaunchError) as caught:
            torch_xla.launch(kill_one)
        assert pytest_tpu.VerdictKind.LOST is caught.value.verdict.kind
        assert 1 == caught.value.verdict.first
        torch_xla.launch(kill_one)

    def skip_all(index):
        pytest.skip("not on this host")

    def test_skipped():
        torch_xla.launch(skip_all)

    def write(index):
        print(f"{index} says hello")
        print(f"{index} complains", file=sys.stderr)

    def test_output():
        torch_xla.launch(write)
        assert False
"""

HOSTS = """
    import pytest
    import torch_xla.core.xla_model as xm
    import torch_xla.runtime as xr
    from torch_xla._internal import tpu

    import pytest_tpu

    def cores():
        return {tpu.num_available_devices(), xr.global_runtime_device_count(), len(xm.get_xla_supported_devices())}

    @pytest_tpu.isolated
    def test_all():
        assert {4} == cores()

    @pytest_tpu.isolated(2)
    def test_fewer(tpu_host):
        assert {2} == cores()
        assert 2 == tpu_host.cores

    @pytest_tpu.isolated(cores=(1, 4))
    def test_one_and_all(tpu_cores):
        assert {tpu_cores} == cores()

    @pytest_tpu.isolated(8)
    def test_more():
        assert False

    @pytest_tpu.isolated
    @pytest.mark.parametrize("value", [1, 2])
    def test_fixture(tpu_cores, value):
        assert {tpu_cores} == cores()
"""


class TestLaunches:
    def test_launches(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Launches in an isolated test are run, refused and ended as torch_xla does, and what went wrong is told."""
        result = run_on_ordinals(LAUNCHES, *SHOW_ALL, cores=3)

        assert {
            "test_launch": "PASSED",
            "test_spawn": "PASSED",
            "test_twice": "PASSED",
            "test_what_need_not_be_pickled": "PASSED",
            "test_one_process": "PASSED",
            "test_two_processes": "PASSED",
            "test_device_first": (
                "FAILED RuntimeError: Runtime is already initialized."
                " Do not use the XLA device before calling xmp.spawn."
            ),
            "test_raised": "FAILED KeyError: 'only here'",
            "test_killed": "FAILED pytest_tpu.LaunchError: LOST: ordinal 1: killed by SIGKILL (9), without a report",
            "test_skipped": "SKIPPED Skipped: not on this host",
            "test_output": "FAILED assert False",
        } == summary(result)

    def test_report(self, run_on_ordinals: RunOnOrdinals) -> None:
        """The report has the ordinal's traceback or the table of all, each ordinal's output, and no line of ours."""
        result = run_on_ordinals(LAUNCHES, "-k", "test_raised or test_killed or test_output", cores=3)

        result.stdout.fnmatch_lines(["on ordinal 1:", "*, in raise_on_one", "KeyError: 'only here'"])
        result.stdout.fnmatch_lines(["E *1 * none *killed by SIGKILL (9) *<- first"])
        for name, text in (("stdout", "says hello"), ("stderr", "complains")):
            said = [f"[[]ordinal {ordinal}] {ordinal} {text}" for ordinal in range(3)]
            result.stdout.fnmatch_lines([f"*Captured {name}*", *said], consecutive=True)
        result.stdout.no_fnmatch_line("*pytest_tpu/*")

    def test_unmarked(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A launch in a plain test gets the host of the run, and the results of the launch are the program's own."""
        run_on_ordinals(
            """
            import torch_xla
            import torch_xla.runtime as xr
            from torch_xla._internal import pjrt

            def note(index, folder):
                (folder / str(index)).write_text(str(xr.world_size()))

            def test_launch(tmp_path):
                torch_xla.launch(note, args=(tmp_path,))
                assert {"0": "2", "1": "2"} == {path.name: path.read_text() for path in tmp_path.iterdir()}

            def test_results():
                assert {0: (0, 7), 1: (1, 7)} == pjrt.run_multiprocess(lambda *, b: (xr.global_ordinal(), b), b=7)
            """
        ).assert_outcomes(passed=2)

    @pytest.mark.parametrize("args", [[], ["--tpu-isolate"]], ids=["here", "isolated"])
    def test_no_host(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, args: list[str]) -> None:
        """Without a host a launch is torch_xla's own: one process for the CPU."""
        # torch_xla chooses the CPU by itself when it is first imported, which may have been on an emulated host.
        monkeypatch.setenv("PJRT_DEVICE", "CPU")
        pytester.makepyfile(
            """
            import os
            import torch_xla
            import torch_xla.runtime as xr

            CONTROLLER = os.getpid()

            def note(index, folder):
                said = f"{xr.world_size()} {xr.device_type()} {os.getpid() == CONTROLLER}"
                (folder / str(index)).write_text(said)

            def test_launch(tmp_path):
                torch_xla.launch(note, args=(tmp_path,), start_method="fork")
                assert {"0": "1 CPU False"} == {path.name: path.read_text() for path in tmp_path.iterdir()}
            """
        )
        pytester.runpytest_inprocess(*args).assert_outcomes(passed=1)


class TestHosts:
    def test_cores(self, run_on_ordinals: RunOnOrdinals) -> None:
        """An isolated test sees a host with the cores of its marker, all cores of the run without; never more."""
        result = run_on_ordinals(HOSTS, *SHOW_ALL, cores=4)

        assert {
            "test_all": "PASSED",
            "test_fewer": "PASSED",
            "test_one_and_all[1core]": "PASSED",
            "test_one_and_all[4cores]": "PASSED",
            "test_more": "SKIPPED Skipped: needs 8 cores and this run has 4; --tpu-cores=8 emulates them",
            "test_fixture[1core-1]": "PASSED",
            "test_fixture[1core-2]": "PASSED",
            "test_fixture[4cores-1]": "PASSED",
            "test_fixture[4cores-2]": "PASSED",
        } == {name.replace("[1-", "[1core-"): word for name, word in summary(result).items()}

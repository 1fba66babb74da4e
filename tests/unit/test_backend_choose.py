"""Which host a run gets, and why it gets none."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pytest_tpu.backend import package
from pytest_tpu.backend.chips import Chips, find_chips
from pytest_tpu.backend.choose import choose, cores_allowed
from pytest_tpu.errors import BackendError, MissingPackageError
from pytest_tpu.model.settings import BackendName

GB = 10**9
NO_CHIPS = Chips(count=0, version="")


def chosen(
    name: BackendName, cores: int | None, *, chips: Chips = NO_CHIPS, memory: int = 8 * GB, platform: str = "linux"
) -> str | None:
    """Choose as on a machine like that; show the host in a few words."""
    backend = choose(name, cores, chips=chips, memory=memory, platform=platform)
    return None if backend is None else f"{backend.name} {backend.host.cores} of {backend.host.chips}"


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch and torch_xla installed, wherever the tests run."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have torch_xla missing, wherever the tests run."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch_xla" else object())
    monkeypatch.setattr(package, "sys", type("Sys", (), {"modules": {}, "platform": "linux"}))


V5E = Chips(count=8, version="v5e")


@pytest.mark.usefixtures("installed")
class TestDecision:
    @pytest.mark.parametrize(
        ("name", "cores", "chips", "expected"),
        [
            ("auto", None, NO_CHIPS, None),
            ("auto", 8, NO_CHIPS, "cpu 8 of 8"),
            ("auto", None, V5E, "tpu 8 of 8"),
            ("auto", 8, V5E, "tpu 8 of 8"),
            ("auto", 1, V5E, "tpu 1 of 8"),
            ("tpu", None, V5E, "tpu 8 of 8"),
            ("cpu", None, NO_CHIPS, None),
            ("cpu", 8, NO_CHIPS, "cpu 8 of 8"),
            ("cpu", 4, V5E, "cpu 4 of 4"),
            ("cpu", 64, NO_CHIPS, "cpu 64 of 64"),
        ],
    )
    def test_host(self, name: BackendName, cores: int | None, chips: Chips, expected: str | None) -> None:
        """A TPU is taken where there is one, an emulated host where cores are asked for, else none."""
        assert expected == chosen(name, cores, chips=chips)

    @pytest.mark.parametrize("cores", [None, 8])
    def test_tpu_never_falls_back(self, cores: int | None) -> None:
        """--tpu-backend=tpu without a TPU is an error, with cores and without."""
        with pytest.raises(BackendError, match="no TPU was found"):
            chosen("tpu", cores)

    @pytest.mark.parametrize(
        ("cores", "chips", "words"),
        [
            (16, V5E, r"16 cores asked for, this TPU host \(v5e\) gives 1 or 8"),
            (4, V5E, r"4 cores asked for, this TPU host \(v5e\) gives 1 or 8"),
            (2, Chips(count=1, version="v6e"), r"2 cores asked for, this TPU host \(v6e\) gives 1$"),
            (None, Chips(count=4, version="v2 or v3"), "v2 or v3 has two cores per chip"),
            (4, Chips(count=4, version="7x"), "7x has two cores per chip"),
        ],
    )
    def test_what_chips_do_not_give(self, cores: int | None, chips: Chips, words: str) -> None:
        """More cores than a host has, a part of them, and chips with two cores are refused by name."""
        with pytest.raises(BackendError, match=words):
            chosen("auto", cores, chips=chips)

    def test_memory_limits_an_emulated_host(self) -> None:
        """An emulated host has at least 64 cores and else what memory allows; the error names the number."""
        assert 64 == cores_allowed(1 * GB)
        assert 123 == cores_allowed(8 * GB)
        assert "cpu 123 of 123" == chosen("cpu", 123)
        with pytest.raises(BackendError, match="124 cores asked for, the memory of this machine allows 123"):
            chosen("cpu", 124)


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_other_systems(installed: None, platform: str) -> None:
    """Where torch_xla does not exist, that is the reason."""
    with pytest.raises(MissingPackageError, match=r"^torch_xla exists for Linux only$"):
        chosen("auto", 8, platform=platform)


@pytest.mark.parametrize("chips", [NO_CHIPS, V5E])
def test_torch_xla_missing(missing: None, chips: Chips) -> None:
    """Without torch_xla the reason is the command that installs it, on a TPU host as well."""
    with pytest.raises(MissingPackageError, match=r"^torch_xla is not installed: pip install 'pytest-tpu\[xla\]'$"):
        chosen("auto", 8, chips=chips)


def test_nothing_asked_needs_nothing(missing: None) -> None:
    """A run without cores and without a TPU is no error where torch_xla is missing."""
    assert chosen("auto", None) is None


class TestChipsOnTheBus:
    def machine(self, folder: Path, *devices: tuple[str, str]) -> Path:
        """Lay out PCI devices as the kernel does, from their vendor and device ids."""
        for number, (vendor, device) in enumerate(devices):
            path = folder / f"0000:00:{number:02x}.0"
            path.mkdir()
            (path / "vendor").write_text(f"{vendor}\n")
            (path / "device").write_text(f"{device}\n")
        return folder

    def test_tpu_vm(self, tmp_path: Path) -> None:
        """On a v5e VM the chips are counted, and Google's other devices and others' devices are not."""
        gve_network, nvme, bridge = ("0x1ae0", "0x0042"), ("0x1ae0", "0x001f"), ("0x8086", "0x7110")
        devices = self.machine(tmp_path, bridge, gve_network, nvme, *[("0x1ae0", "0x0063")] * 8)

        assert Chips(count=8, version="v5e") == find_chips(devices)

    @pytest.mark.parametrize(
        ("device", "version"),
        [("0x0027", "v2 or v3"), ("0x005e", "v4"), ("0x0062", "v5p"), ("0x006f", "v6e"), ("0x0076", "7x")],
    )
    def test_generations(self, tmp_path: Path, device: str, version: str) -> None:
        """The generation comes from the device id."""
        assert Chips(count=4, version=version) == find_chips(self.machine(tmp_path, *[("0x1ae0", device)] * 4))

    @pytest.mark.parametrize("devices", [(), (("0x8086", "0x0063"),), (("0x1ae0", "0x9999"),)])
    def test_no_tpu(self, tmp_path: Path, devices: tuple[tuple[str, str], ...]) -> None:
        """A machine without devices, with the same id of another vendor, or with an unknown one has no TPU."""
        assert NO_CHIPS == find_chips(self.machine(tmp_path, *devices))

    def test_no_bus(self, tmp_path: Path) -> None:
        """A machine that shows no PCI bus has no TPU."""
        assert NO_CHIPS == find_chips(tmp_path / "absent")


def test_broken_import_names_the_pair(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A torch_xla that does not fit its torch is one sentence: which error, and the pair that fits."""
    (tmp_path / "torch_xla_that_does_not_fit.py").write_text("raise ImportError('undefined symbol: _ZN5torch')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(package, "_MODULES", ("torch_xla_that_does_not_fit",))
    monkeypatch.setattr(package, "require", lambda: None)

    with pytest.raises(BackendError, match=r"undefined symbol: _ZN5torch\).*torch==2\.9\.0 torch_xla==2\.9\.0"):
        package.load()


def test_runtime_of_a_process_without_torch_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch_xla was not imported the runtime is not initialised, and asking imports nothing."""
    monkeypatch.setattr(package, "sys", type("Sys", (), {"modules": {}}))

    assert package.runtime_initialized() is False

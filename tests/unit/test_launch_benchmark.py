from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any, Protocol

import pytest

PATH = Path(__file__).parents[2] / "benchmarks" / "launch.py"


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program that measures launches, which is a script and not on any path."""
    pytest.importorskip("resource")
    spec = importlib.util.spec_from_file_location("benchmark_of_launches", PATH)

    assert spec is not None
    assert spec.loader is not None

    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


class Measured(Protocol):
    """The type of the fixture `measured`."""

    def __call__(self, *args: str, ours: float, harness: float, added_s: float) -> tuple[int, list[str]]:
        """Run the program with these seconds as what it measures, and one for the floor."""
        ...


@pytest.fixture
def measured(launch: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Measured:
    """The program without its measuring: the exit code, and what it says."""

    def run(*args: str, ours: float, harness: float, added_s: float) -> tuple[int, list[str]]:
        took = {launch.FLOOR: [1.0], launch.OURS: [ours], launch.HARNESS: [harness]}
        monkeypatch.setattr(launch, "measure", lambda plan: took)
        monkeypatch.setattr(launch, "measure_collection", lambda plan: [launch.Took(seconds=9.0, cpu_s=added_s)])
        monkeypatch.setattr(launch.importlib.util, "find_spec", lambda name: object())
        code = launch.main(list(args))
        return code, capsys.readouterr().err.splitlines()

    return run


@pytest.mark.parametrize(
    ("ours", "harness", "added_s", "lines"),
    [
        (2.0, 60.0, 0.030, []),
        (2.01, 100.0, 0.01, ["per test of a warm session: 2.01 x the floor, at most 2 x"]),
        (2.0, 59.0, 0.01, ["per test of a warm session: 29.5 x faster than PyTorch's MultiProcessTestCase, per test"]),
        (2.0, 60.0, 0.031, ["a collection without tpu tests: 31 ms more of processor time, at most 30 ms"]),
        (9.0, 9.0, 0.9, ["9.00 x the floor", "1.0 x faster", "900 ms more"]),
    ],
)
def test_check(measured: Measured, ours: float, harness: float, added_s: float, lines: list[str]) -> None:
    """With --check the program fails where a ratio is missed, and says which and by how much."""
    code, said = measured("--check", ours=ours, harness=harness, added_s=added_s)

    assert (1 if lines else 0) == code
    assert len(lines) == len(said)
    for expected, line in zip(lines, said, strict=True):
        assert line.startswith("missed: ")
        assert expected in line


def test_without_check(measured: Measured) -> None:
    """Without --check the program measures and judges nothing."""
    assert (0, []) == measured(ours=9.0, harness=9.0, added_s=9.0)

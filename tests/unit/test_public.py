"""All that is public: what is not listed here may change without a word in the changelog."""

from __future__ import annotations

import inspect

import pytest

import pytest_tpu
from pytest_tpu import plugin
from pytest_tpu.markers import MARKERS
from pytest_tpu.model.world import World
from pytest_tpu.options import OPTIONS


def test_names_of_the_package() -> None:
    """The package gives two decorators and five types, and nothing else by accident."""
    names = ["Host", "LaunchError", "Verdict", "VerdictKind", "World", "isolated", "multi_process"]

    assert names == sorted(pytest_tpu.__all__)


def test_fixtures() -> None:
    """The plugin gives four fixtures, each with a text for --fixtures."""
    fixtures = {name: getattr(plugin, name) for name in plugin.__all__}

    assert ["tpu_cores", "tpu_host", "tpu_launch", "tpu_world"] == sorted(fixtures)
    assert all(inspect.getdoc(fixture) for fixture in fixtures.values())


def test_world() -> None:
    """An ordinal's view of its world has five members; `bind` is for the engine."""
    members = {name for name in vars(World) if not name.startswith("_")}

    assert {"bind", "device", "ordinal", "rendezvous", "size", "tmp_path"} == members


def test_options() -> None:
    """The command line has eight options; their other spellings follow from these names."""
    names = ["backend", "cores", "grace", "isolate", "isolate-marked", "require", "stall-timeout", "timeout"]

    assert [f"--tpu-{name}" for name in names] == sorted(option.flag for option in OPTIONS)


@pytest.mark.parametrize("line", MARKERS)
def test_markers(line: str) -> None:
    """The two markers take what the decorators take."""
    assert line.startswith(
        tuple(f"tpu_{name}(cores=None, *, timeout=None, stall_timeout=None):" for name in ("multi_process", "isolated"))
    )
    assert 2 == len(MARKERS)

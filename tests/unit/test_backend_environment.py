"""The environment of an emulated host, as tables."""

from __future__ import annotations

import os

import pytest

from pytest_tpu.backend.cpu import environment


@pytest.mark.parametrize(
    ("cores", "expected"),
    [(1, (1, 1, 1)), (2, (1, 2, 1)), (4, (2, 2, 1)), (6, (2, 3, 1)), (7, (1, 7, 1)), (8, (2, 4, 1)), (64, (8, 8, 1))],
)
def test_bounds(cores: int, expected: tuple[int, int, int]) -> None:
    """A host's mesh is the shape that a v5e host has, or as square as its number of chips allows."""
    assert expected == environment.bounds(cores)


@pytest.mark.parametrize("cores", range(1, 65))
def test_coordinates_fill_the_mesh(cores: int) -> None:
    """Each chip has a place of its own within the bounds, which have room for no more."""
    x, y, z = environment.bounds(cores)
    places = {tuple(environment.coordinates(chip, cores)) for chip in range(cores)}

    assert cores == x * y * z == len(places)
    assert places == {(i, j, 0) for i in range(x) for j in range(y)}


def test_description() -> None:
    """A host of 8 is described as GKE describes one to a pod; TPU_PROCESS_BOUNDS is left to torch_xla."""
    assert {
        "PJRT_DEVICE": "TPU",
        "CPU_NUM_DEVICES": "8",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_ACCELERATOR_TYPE": "v5litepod-8",
        "TPU_HOST_BOUNDS": "1,1,1",
        "TPU_CHIPS_PER_HOST_BOUNDS": "2,4,1",
        "TPU_WORKER_ID": "0",
        "TPU_WORKER_HOSTNAMES": "localhost",
    } == environment.described(8)


def test_applied_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the context values of the user are back, and what was not there is gone, though set since."""
    monkeypatch.setenv("TPU_WORKER_ID", "3")
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "1")
    monkeypatch.delenv("TPU_PROCESS_BOUNDS", raising=False)
    before = dict(os.environ)

    with environment.applied(4):
        inside = dict(os.environ)
        os.environ["TPU_PROCESS_BOUNDS"] = "1,1,1"

    assert "0" == inside["TPU_WORKER_ID"]
    assert "TPU_VISIBLE_CHIPS" not in inside
    assert before == dict(os.environ)


def test_undone_after_an_error() -> None:
    """An exception inside the context undoes it as well."""
    before = dict(os.environ), os.putenv

    with pytest.raises(ZeroDivisionError), environment.applied(4):
        1 / 0  # noqa: B018 - the error is what is wanted

    assert before == (dict(os.environ), os.putenv)

"""torch.distributed on the xla backend, against plain arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_tpu.errors import UnsupportedError
from tests.process.bridge_worlds import raising, run_collectives

if TYPE_CHECKING:
    from pytest_tpu.model.place import Place

pytestmark = pytest.mark.process

SIZE = 4


def _tools(ordinal: int, to: Any) -> tuple[dict[str, Any], Any, Any, Any]:
    """Make the results, a function that adds to them, and one each for tensors with and without data."""
    results: dict[str, Any] = {}

    def note(name: str, *tensors: Any) -> None:
        results[name] = [tensor.cpu().tolist() for tensor in tensors]

    def mine(length: int = 2) -> Any:
        return to([float(ordinal * 10 + index) for index in range(length)])

    def empty(length: int) -> Any:
        return to([-1.0] * length)

    return results, note, mine, empty


def _calls(ordinal: int, size: int, to: Any) -> dict[str, Any]:
    """Call what torch.distributed has, each ordinal with its number in the data."""
    import torch.distributed as dist

    results, note, mine, empty = _tools(ordinal, to)
    for name, op in (("sum", dist.ReduceOp.SUM), ("max", dist.ReduceOp.MAX), ("product", dist.ReduceOp.PRODUCT)):
        tensor = mine()
        dist.all_reduce(tensor, op)
        note(f"all_reduce {name}", tensor)
    parts = [empty(2) for _ in range(size)]
    dist.all_gather(parts, mine())
    note("all_gather", *parts)
    whole = empty(2 * size)
    dist.all_gather_into_tensor(whole, mine())
    note("all_gather_into_tensor", whole)
    part = empty(2)
    dist.reduce_scatter(part, [mine() + index for index in range(size)])
    note("reduce_scatter", part)
    dist.reduce_scatter_tensor(part, mine(2 * size))
    note("reduce_scatter_tensor", part)
    parts = [empty(2) for _ in range(size)]
    dist.all_to_all(parts, [mine() + 100 * index for index in range(size)])
    note("all_to_all", *parts)
    whole = empty(2 * size)
    dist.all_to_all_single(whole, mine(2 * size))
    note("all_to_all_single", whole)
    return results


def _rooted_calls(ordinal: int, size: int, to: Any) -> dict[str, Any]:
    """Call what has a root, a partner or a group."""
    import torch.distributed as dist

    results, note, mine, empty = _tools(ordinal, to)
    tensor = mine()
    dist.broadcast(tensor, src=2)
    note("broadcast", tensor)
    tensor = mine()
    dist.reduce(tensor, dst=1)
    note("reduce", tensor)
    part = empty(2)
    dist.scatter(part, [mine() + 100 * index for index in range(size)] if ordinal == 3 else None, src=3)
    note("scatter", part)
    parts = [empty(2) for _ in range(size)] if ordinal == 0 else []
    dist.gather(mine(), parts or None, dst=0)
    note("gather", *parts)
    # Only two of the four take part.
    if ordinal == 1:
        dist.send(mine(), dst=3)
    elif ordinal == 3:
        tensor = empty(2)
        dist.recv(tensor, src=1)
        note("send and receive", tensor)
    # A mesh is a group for everyone: each calls with the group that it is in.
    columns = [
        dist.new_group(ranks, pg_options={"xla_pg_options": {"mesh": [[0, 2], [1, 3]]}}) for ranks in ([0, 2], [1, 3])
    ]
    tensor = mine()
    dist.all_reduce(tensor, group=columns[ordinal % 2])
    note("all_reduce in a mesh", tensor)
    tensor = mine()
    dist.barrier()
    note("functional", *_functional(tensor, size))
    return results


def _functional(tensor: Any, size: int) -> list[Any]:
    """Call the functional collectives, eagerly."""
    import torch

    functional = torch.ops._c10d_functional
    return [
        functional.all_reduce(tensor, "sum", "0"),
        functional.all_gather_into_tensor(tensor, size, "0"),
        functional.reduce_scatter_tensor(tensor.repeat(size), "max", size, "0"),
        functional.all_to_all_single(tensor.repeat(size), [2] * size, [2] * size, "0"),
    ]


def _expected(ordinal: int) -> dict[str, Any]:
    """Give what each call must bring to an ordinal."""
    everyone = range(SIZE)
    values = [[member * 10.0, member * 10.0 + 1] for member in everyone]
    joined = [value for pair in values for value in pair]
    column = [ordinal % 2, ordinal % 2 + 2]
    expected: dict[str, Any] = {
        "all_reduce sum": [[60.0, 64.0]],
        "all_reduce max": [[30.0, 31.0]],
        "all_reduce product": [[0.0, 1.0 * 11 * 21 * 31]],
        "all_gather": values,
        "all_gather_into_tensor": [joined],
        "reduce_scatter": [[60.0 + 4 * ordinal, 64.0 + 4 * ordinal]],
        "reduce_scatter_tensor": [[60.0 + 8 * ordinal, 64.0 + 8 * ordinal]],
        "all_to_all": [[low + 100 * ordinal, high + 100 * ordinal] for low, high in values],
        "all_to_all_single": [[member * 10.0 + 2 * ordinal + index for member in everyone for index in (0, 1)]],
        "broadcast": [values[2]],
        "reduce": [[60.0, 64.0] if ordinal == 1 else values[ordinal]],
        "scatter": [[30.0 + 100 * ordinal, 31.0 + 100 * ordinal]],
        "gather": values if ordinal == 0 else [],
        "all_reduce in a mesh": [[sum(values[member][index] for member in column) for index in (0, 1)]],
        "functional": [[60.0, 64.0], joined, [30.0, 31.0], joined],
    }
    return {**expected, "send and receive": [values[1]]} if ordinal == 3 else expected


def _initialize(place: Place) -> Any:
    import torch
    import torch.distributed as dist
    import torch_xla
    import torch_xla.distributed.xla_backend

    dist.init_process_group("xla", init_method="xla://")
    return lambda values: torch.tensor(values).to(torch_xla.device())


@pytest.fixture(scope="module")
def world() -> list[dict[str, Any]]:
    """Make all calls in one world."""

    def body(place: Place) -> dict[str, Any]:
        to = _initialize(place)
        return _calls(place.ordinal, place.size, to) | _rooted_calls(place.ordinal, place.size, to)

    return run_collectives(SIZE, body)


@pytest.mark.parametrize("name", _expected(3))
def test_call(name: str, world: list[dict[str, Any]]) -> None:
    """The call brings every ordinal what it says."""
    for ordinal, results in enumerate(world):
        assert _expected(ordinal).get(name) == results.get(name)


def test_a_group_that_a_tpu_refuses() -> None:
    """A new group without a mesh leaves ordinals out, which XLA refuses; it is refused by name, not left to hang."""

    def body(place: Place) -> str:
        import torch.distributed as dist

        to = _initialize(place)
        group = dist.new_group([2, 3])
        texts = [""]
        if place.ordinal >= 2:
            with raising(UnsupportedError, texts):
                dist.all_reduce(to([1.0]), group=group)
        return texts[-1]

    said = run_collectives(SIZE, body)

    assert ["", ""] == said[:2]
    assert "all_reduce over the groups [[2, 3]] does not name each of the 4 ordinals once" in said[2]
    assert "xla_pg_options" in said[3]

"""Values with XLA tensors come to the host; what holds none is not touched."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pytest

from pytest_tpu.backend import package
from pytest_tpu.backend.cpu import CpuBackend
from pytest_tpu.backend.values import to_host
from tests.process.host_forks import run_forked

pytestmark = pytest.mark.process


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True, slots=True)
class Frozen:
    tensor: Any
    note: str = ""
    derived: list[int] = field(default_factory=list, init=False)


class Plain:
    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.itself = self


@pytest.fixture(scope="module", autouse=True)
def host() -> Iterator[None]:
    """Have an emulated host of one core, with torch_xla imported."""
    with CpuBackend(1).activate():
        package.load()
        yield


def ones() -> Any:
    """Make an XLA tensor."""
    import torch

    return torch.ones(2, device="xla")


def is_ones(value: Any) -> bool:
    """Whether that tensor came to the host."""
    return str(value.device) == "cpu" and bool((value == 1).all())


def as_list() -> bool:
    """In lists."""
    value = to_host([ones(), [ones(), 3]])
    return is_ones(value[0]) and is_ones(value[1][0]) and value[1][1] == 3


def as_dicts() -> bool:
    """In dicts of any class, whose order and default stay."""
    made = defaultdict(list, {"a": ones()})
    ordered, default = to_host((OrderedDict(x=1, y=ones()), made))
    return (
        type(ordered) is OrderedDict
        and list(ordered) == ["x", "y"]
        and is_ones(ordered["y"])
        and default.default_factory is list
        and is_ones(default["a"])
    )


def as_other_containers() -> bool:
    """In a deque, whose limit stays, and in a set."""
    tensor = ones()
    queue, members = to_host((deque([tensor], maxlen=3), {tensor}))
    return queue.maxlen == 3 and is_ones(queue[0]) and members == {queue[0]}


def as_named_tuple() -> bool:
    """In a named tuple."""
    value = to_host(Pair(ones(), "x"))
    return type(value) is Pair and is_ones(value.first) and value.second == "x"


def as_return_type() -> bool:
    """In what torch.max returns."""
    import torch

    value = to_host(torch.max(torch.ones(2, 2, device="xla"), dim=0))
    return type(value) is torch.return_types.max and is_ones(value.values)


def as_dataclass() -> bool:
    """In a frozen dataclass with slots."""
    value = to_host(Frozen(ones(), "kept"))
    return type(value) is Frozen and is_ones(value.tensor) and value.note == "kept" and value.derived == []


def as_object_with_a_cycle() -> bool:
    """In an object that refers to itself; the original stays."""
    original = Plain(ones())
    value = to_host(original)
    return value is not original and value.itself is value and is_ones(value.tensor) and original.itself is original


def as_module() -> bool:
    """As parameters of a module; the original stays."""
    import torch

    module = torch.nn.Linear(2, 1).to("xla")
    value = to_host(module)
    return (
        isinstance(value.weight, torch.nn.Parameter)
        and value.weight.requires_grad
        and str(value.weight.device) == "cpu"
        and str(module.weight.device) == "xla:0"
        and value(torch.ones(1, 2)).shape == (1, 1)
    )


def with_identity_kept() -> bool:
    """What is there twice is one object still."""
    tensor, inner = ones(), [ones()]
    value = to_host([tensor, tensor, inner, inner])
    return value[0] is value[1] and value[2] is value[3]


def with_gradients() -> bool:
    """A leaf that requires a gradient does so still; a graph is not copied."""
    leaf = ones().requires_grad_()
    value = to_host([leaf, leaf * 2])
    return value[0].requires_grad and not value[1].requires_grad and value[1].grad_fn is None


def with_memory_of_its_own() -> bool:
    """Two views of one tensor share nothing."""
    import torch

    whole = torch.zeros(4, device="xla")
    first, second = to_host([whole[:2], whole])
    first += 1
    return bool((second == 0).all()) and first.untyped_storage().nbytes() == 8


def of_any_dtype() -> bool:
    """Of all dtypes, 0-d and empty."""
    import torch

    dtypes = (torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.int64, torch.bool)
    values = to_host([torch.ones((), dtype=dtype, device="xla") for dtype in dtypes] + [torch.empty(0, device="xla")])
    return [value.dtype for value in values[:-1]] == list(dtypes) and values[-1].shape == (0,)


def nested_deeply() -> bool:
    """At a depth of 300."""
    value: Any = ones()
    for _ in range(300):
        value = [value]
    value = to_host(value)
    for _ in range(300):
        (value,) = value
    return is_ones(value)


@pytest.mark.parametrize(
    "check",
    [
        as_list,
        as_dicts,
        as_other_containers,
        as_named_tuple,
        as_return_type,
        as_dataclass,
        as_object_with_a_cycle,
        as_module,
        with_identity_kept,
        with_gradients,
        with_memory_of_its_own,
        of_any_dtype,
        nested_deeply,
    ],
    ids=lambda check: check.__name__,
)
def test_xla_tensors_become_cpu_tensors(check: Callable[[], bool]) -> None:
    """XLA tensors inside a value of any kind become CPU tensors, and the kind stays."""
    assert [True] == run_forked(check)


def test_the_rest_is_shared() -> None:
    """Beside an XLA tensor, CPU tensors and objects without tensors are the very objects."""
    import torch

    def check() -> bool:
        plain, other, function = torch.ones(2), {"a": [1]}, print
        value = to_host([ones(), plain, other, function, to_host, Plain])
        return (
            value[1] is plain
            and value[2] is other
            and value[3] is function
            and value[4] is to_host
            and value[5] is Plain
        )

    assert [True] == run_forked(check)


@pytest.mark.parametrize(
    "make", [lambda: {"a": [1, (2, "x")]}, lambda: Plain(None), lambda: Frozen(1), lambda: None, lambda: pytest]
)
def test_values_without_xla_tensors_are_returned(make: Callable[[], Any]) -> None:
    """A value without XLA tensors is returned as it is, not copied, and the runtime is not asked."""
    value = make()

    assert value is to_host(value)
    assert package.runtime_initialized() is False

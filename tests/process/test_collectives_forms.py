"""Every collective in all its forms, against plain tensor arithmetic in the launching process."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.bridge_worlds import run_collectives

if TYPE_CHECKING:
    import torch

    from pytest_tpu.model.place import Place

pytestmark = pytest.mark.process

SIZES = (2, 4, 8)
DTYPES = ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "uint16", "bool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One call, and what every ordinal must get from it.

    Args:
        call: runs on an ordinal; gets its number, the world's size, and a function that moves a tensor to the device.
        judge: runs in the launching process for one ordinal; gets its number and the world's size.
    """

    call: Callable[[int, int, Callable[..., Any]], Any]
    judge: Callable[[int, int], Any]


FORMS: dict[str, Form] = {}


def form(judge: Callable[[int, int], Any]) -> Callable[[Callable[[int, int, Callable[..., Any]], Any]], None]:
    """Add a form under the name of the function that is its call."""

    def add(call: Callable[[int, int, Callable[..., Any]], Any]) -> None:
        FORMS[call.__name__] = Form(call=call, judge=judge)

    return add


def data(ordinal: int, rows: int = 8, columns: int = 3, dtype: str = "float32") -> torch.Tensor:
    """Give an ordinal's tensor: small whole numbers, which every order of adding gives the same sum of."""
    import torch

    values = torch.arange(rows * columns).reshape(rows, columns) * 3 % 11 + ordinal
    return (values % 2 == 0) if dtype == "bool" else values.to(getattr(torch, dtype))


def cat(size: int, dim: int = 0, **more: Any) -> torch.Tensor:
    """Join the data of all ordinals."""
    import torch

    return torch.cat([data(ordinal, **more) for ordinal in range(size)], dim)


def total(size: int, **more: Any) -> torch.Tensor:
    """Add the data of all ordinals up."""
    import torch

    parts = torch.stack([data(ordinal, **more) for ordinal in range(size)])
    return parts.sum(0, dtype=parts.dtype)


def halves(ordinal: int, size: int) -> list[int]:
    """Give the half of the world that an ordinal is in."""
    return list(range(size // 2)) if ordinal < size // 2 else list(range(size // 2, size))


def both_halves(size: int) -> list[list[int]]:
    """Give the world as two groups."""
    return [halves(0, size), halves(size - 1, size)]


@form(lambda ordinal, size: [cat(size, 1), cat(size, 0), cat(size, 1)])
def gather_along_dimensions(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Gather along either dimension, by both of upstream's ways."""
    import torch_xla.core.xla_model as xm

    mine = to(data(ordinal))
    return [
        xm.all_gather(mine, dim=1, pin_layout=False),
        xm.all_gather(mine, pin_layout=True),
        xm.all_gather(mine, dim=-1, pin_layout=False),
    ]


@form(lambda ordinal, size: [cat(size, dtype=dtype) for dtype in DTYPES])
def gather_of_every_type(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Gather what needs no arithmetic."""
    import torch_xla.core.xla_model as xm

    return [xm.all_gather(to(data(ordinal, dtype=dtype)), pin_layout=False) for dtype in DTYPES]


ODD = [(1, 1, "bool"), (1, 3, "uint8"), (3, 1, "float64"), (1, 1, "bfloat16"), (1, 1, "int64"), (0, 3, "int16")]


def _odd(ordinal: int, size: int) -> Any:
    return [cat(size, rows=rows, columns=columns, dtype=dtype) for rows, columns, dtype in ODD]


@form(_odd)
def gather_of_what_does_not_align(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Gather a list in which values begin at bytes where their type can't."""
    import torch_xla.core.xla_model as xm

    tensors = [to(data(ordinal, rows, columns, dtype)) for rows, columns, dtype in ODD]
    return xm.all_gather(tensors, pin_layout=False)


@form(lambda ordinal, size: [data(0)[0] * math.nan] * 3)
def not_a_number_spreads(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Reduce what is no number on one ordinal only: HLO's minimum and maximum keep that."""
    import torch_xla.core.xla_model as xm

    mine = to(data(ordinal)[0] * (math.nan if ordinal == 1 else 1.0))
    return [xm.all_reduce(reduction, mine) for reduction in ("sum", "min", "max")]


def _half_gather(ordinal: int, size: int) -> Any:
    import torch

    return torch.cat([data(member) for member in halves(ordinal, size)])


@form(lambda ordinal, size: [_half_gather(ordinal, size)] * 2)
def gather_in_groups(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Gather within half of the world."""
    import torch_xla.core.xla_model as xm

    mine, groups = to(data(ordinal)), both_halves(size)
    return [xm.all_gather(mine, groups=groups, pin_layout=pin) for pin in (False, True)]


@form(lambda ordinal, size: [cat(size).flip(0).reshape(size, 8, 3).flip(1).reshape(-1, 3)])
def gather_in_a_group_in_reverse(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Gather in the order in which the group names its members."""
    import torch_xla.core.xla_model as xm

    return [xm.all_gather(to(data(ordinal)), groups=[list(reversed(range(size)))], pin_layout=False)]


@form(lambda ordinal, size: [cat(size), cat(size, rows=2, dtype="int64"), cat(size), cat(size, rows=2)] * 2)
def gather_of_lists(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Gather several tensors at once, with and without outputs and buckets."""
    import torch_xla.core.xla_model as xm

    mine = [to(data(ordinal)), to(data(ordinal, rows=2, dtype="int64"))]
    outputs = [to(cat(size) * 0), to(cat(size, rows=2) * 0)]
    xm.all_gather([mine[0], to(data(ordinal, rows=2))], output=outputs, pin_layout=False)
    listed = xm.all_gather(mine, pin_layout=False)
    bucketized = xm.all_gather_bucketized(mine, bucket_cap_mb=1)
    return [*listed, *outputs, *bucketized, *outputs]


@form(lambda ordinal, size: [cat(size)])
def gather_into_an_output(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Gather into a tensor that is there."""
    import torch_xla.core.xla_model as xm

    output = to(cat(size) * 0)
    xm.all_gather(to(data(ordinal)), output=output, pin_layout=False)
    return [output]


def _scattered(ordinal: int, size: int, dim: int = 0) -> Any:
    return total(size, columns=8).chunk(size, dim)[ordinal].contiguous()


@form(lambda ordinal, size: [_scattered(ordinal, size), _scattered(ordinal, size, 1), _scattered(ordinal, size) * 0.5])
def scatter_along_dimensions(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Reduce, scale, and keep a part of either dimension."""
    import torch_xla.core.xla_model as xm

    mine = to(data(ordinal, columns=8))
    return [xm.reduce_scatter("sum", mine, scale, dim, size) for scale, dim in ((1.0, 0), (1.0, 1), (0.5, 0))]


@form(lambda ordinal, size: [_scattered(ordinal, size), _scattered(ordinal, size)] * 3)
def scatter_of_lists(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Scatter several tensors at once, with and without outputs and buckets."""
    import torch_xla.core.xla_model as xm

    mine = [to(data(ordinal, columns=8)), to(data(ordinal, columns=8))]
    outputs = [to(_scattered(ordinal, size) * 0) for _ in range(2)]
    xm.reduce_scatter("sum", mine, 1.0, 0, size, output=outputs, pin_layout=False)
    listed = xm.reduce_scatter("sum", mine, 1.0, 0, size, pin_layout=False)
    bucketized = xm.reduce_scatter_bucketized("sum", mine, 1.0, 0, size, bucket_cap_mb=1)
    return [*listed, *outputs, *bucketized]


@form(lambda ordinal, size: [_scattered(ordinal, size)])
def scatter_into_an_output(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Scatter into a tensor that is there."""
    import torch_xla.core.xla_model as xm

    output = to(_scattered(ordinal, size) * 0)
    xm.reduce_scatter("sum", to(data(ordinal, columns=8)), 1.0, 0, size, output=output)
    return [output]


def _exchanged(ordinal: int, size: int, split: int, concat: int) -> Any:
    import torch

    return torch.cat([data(other, columns=8).chunk(size, split)[ordinal] for other in range(size)], concat)


@form(lambda ordinal, size: [_exchanged(ordinal, size, split, concat) for split in (0, 1) for concat in (0, 1)])
def all_to_all(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Split along each dimension and join along each."""
    import torch_xla.core.xla_model as xm

    mine = to(data(ordinal, columns=8))
    return [xm.all_to_all(mine, split, concat, size) for split in (0, 1) for concat in (0, 1)]


def _pairs(size: int) -> list[list[list[int]]]:
    ring = [[ordinal, (ordinal + 1) % size] for ordinal in range(size)]
    return [ring, [[size - 1, 0]], [[0, 0], [1, 1]], list(reversed(ring)), []]


def _permuted(ordinal: int, pairs: list[list[int]]) -> Any:
    source = next((source for source, target in pairs if target == ordinal), None)
    return data(0) * 0 if source is None else data(source)


@form(lambda ordinal, size: [_permuted(ordinal, pairs) for pairs in _pairs(size)])
def permute(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Send round a ring, along one pair, to oneself, and along none."""
    import torch_xla.core.xla_model as xm

    return [xm.collective_permute(to(data(ordinal)), pairs) for pairs in _pairs(size)]


@form(lambda ordinal, size: [data(1), data(1, dtype="int32"), data(1) * math.nan])
def broadcast(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Overwrite with the root's values; a NaN anywhere spreads, as times 0 and a sum make it."""
    import torch_xla.core.xla_model as xm

    tensors = [to(data(ordinal)), to(data(ordinal, dtype="int32"))]
    xm.collective_broadcast(tensors, root_ordinal=1)
    spoiled = to(data(ordinal) * (math.nan if ordinal == 0 else 1.0))
    xm.collective_broadcast([spoiled], root_ordinal=1)
    return [*tensors, spoiled]


@form(lambda ordinal, size: [total(size), total(size).sum(), total(size, rows=0), total(size).t(), total(size)[::2, 1]])
def reduce_of_every_shape(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Reduce a scalar, nothing, and what is not contiguous."""
    import torch_xla.core.xla_model as xm

    mine = to(data(ordinal))
    shapes = [mine, mine.sum(), to(data(ordinal, rows=0)), mine.t(), mine[::2, 1]]
    return [xm.all_reduce("sum", shape) for shape in shapes]


@form(
    lambda ordinal, size: [total(size), total(size, dtype="int64"), total(size).sum(), total(size, rows=0), total(size)]
)
def reduce_of_a_mixed_list(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Reduce a list of several types and shapes in place, and an empty one."""
    import torch_xla.core.xla_model as xm

    mine = to(data(ordinal))
    tensors = [mine + 0, to(data(ordinal, dtype="int64")), mine.sum(), to(data(ordinal, rows=0)), mine + 0]
    assert xm.all_reduce("sum", tensors) is tensors
    assert [] == xm.all_reduce("sum", [])
    return tensors


def _partly_reduced(ordinal: int, size: int) -> Any:
    mine = data(ordinal)
    mine[2:4] = total(size)[2:4]
    return mine


@form(lambda ordinal, size: [_partly_reduced(ordinal, size)])
def reduce_of_a_view_in_place(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Reduce some rows of a tensor in place."""
    import torch_xla.core.xla_model as xm

    mine = to(data(ordinal))
    xm.all_reduce("sum", [mine[2:4]])
    return [mine]


BIG: dict[str, Any] = {"rows": 700, "columns": 501}


@form(lambda ordinal, size: [total(size, **BIG) * 0.25, total(size, dtype="int32", **BIG) * 0])
def reduce_in_parts(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Reduce what is too much for one step."""
    import torch_xla.core.xla_model as xm

    tensors = [to(data(ordinal, **BIG)), to(data(ordinal, dtype="int32", **BIG))]
    xm.all_reduce("sum", tensors, scale=0.25)
    return tensors


@form(lambda ordinal, size: [data(0, 1, 1).new_tensor(list(range(size))), b"".join(b"#" * o for o in range(size))])
def rendezvous_and_mesh_reduce(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Exchange payloads of different lengths."""
    import torch
    import torch_xla.core.xla_model as xm

    payloads = xm.rendezvous("payloads", b"#" * ordinal)
    assert [b""] * size == xm.rendezvous("empty")
    return [xm.mesh_reduce("ordinals", float(ordinal), torch.tensor), b"".join(payloads)]


@form(lambda ordinal, size: [-total(size) / size, data(0)])
def optimizer_step_and_master_parameters(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Average gradients and take the master's parameters."""
    import torch
    import torch_xla.core.xla_model as xm

    weight = torch.nn.Parameter(to(data(0) * 0))
    weight.grad = to(data(ordinal))
    xm.optimizer_step(torch.optim.SGD([weight], lr=1.0), barrier=True)
    model = torch.nn.Linear(3, 8, bias=False)
    model.weight.data = data(ordinal)
    model = model.to(weight.device)
    xm.broadcast_master_param(model)
    return [weight.detach(), model.weight.detach()]


def _compiled_steps(ordinal: int, size: int) -> Any:
    import torch

    return torch.tensor([float(sum(range(size)) * (10 * size) ** step) for step in range(4)])


@form(lambda ordinal, size: [_compiled_steps(ordinal, size)] * 2)
def compiled_steps(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Run compiled steps that depend on each other: none may repeat what the first one reduced."""
    import torch_xla.core.xla_model as xm

    def step(state: Any) -> Any:
        reduced = xm.all_reduce("sum", state)
        return reduced, reduced * 10

    return [_four_steps(step, float(ordinal), to, fullgraph=full) for full in (False, True)]


@form(lambda ordinal, size: [_compiled_steps(ordinal, size)] * 3)
def compiled_steps_in_pieces(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Compile around calls that torch.compile can't take into its graph, and around torch.distributed's."""
    import torch.distributed as dist
    import torch_xla.core.xla_model as xm

    if not dist.is_initialized():
        dist.init_process_group("xla", init_method="xla://")

    def in_place(state: Any) -> Any:
        reduced = state * 1
        xm.all_reduce("sum", [reduced], scale=0.5)
        return reduced * 2, reduced * 20

    def with_a_scale(state: Any) -> Any:
        reduced = xm.all_reduce("sum", state * 2, scale=0.5)
        return reduced, reduced * 10

    def distributed(state: Any) -> Any:
        reduced = state * 1
        dist.all_reduce(reduced)
        return reduced, reduced * 10

    return [_four_steps(step, float(ordinal), to) for step in (in_place, with_a_scale, distributed)]


def _four_steps(step: Callable[..., Any], start: float, to: Callable[..., Any], **options: Any) -> Any:
    """Run a compiled step four times, each on what the one before gave."""
    import torch

    compiled = torch.compile(step, backend="openxla", **options)
    state, seen = to(torch.tensor([start])), []
    for _ in range(4):
        reduced, state = compiled(state)
        seen.append(reduced.item())
    return torch.tensor(seen)


def _mean_squares(ordinal: int, size: int) -> Any:
    import torch

    whole = cat(size).requires_grad_()
    weight = torch.ones(3, requires_grad=True)
    norm = torch.nn.BatchNorm1d(3)
    (norm(whole) * weight).pow(3).sum().backward()
    assert whole.grad is not None
    return whole.grad.chunk(size)[ordinal]


@form(lambda ordinal, size: [_mean_squares(ordinal, size)])
def gradient_through_synchronized_batch_norm(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Get the gradient of the batch norm of the whole batch."""
    from torch_xla.core.functions import SyncBatchNorm

    mine = to(data(ordinal)).requires_grad_()
    norm = SyncBatchNorm(3).to(mine.device)
    norm(mine).pow(3).sum().backward()
    return [mine.grad]


def _reduce_gradients(ordinal: int, size: int) -> Any:
    import torch

    parts = [data(member) for member in range(size)]
    stacked = torch.stack(parts)
    mine, weight = parts[ordinal], data(5)
    return [
        weight * 0.5,
        weight * torch.where(mine != 0, stacked.prod(0) / mine, torch.zeros_like(mine)),
        torch.where(mine == stacked.min(0).values, weight, torch.zeros_like(weight)),
        torch.where(mine == stacked.max(0).values, weight, torch.zeros_like(weight)),
    ]


@form(_reduce_gradients)
def gradient_of_each_reduction(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Get the gradient that each reduction has by its formula."""
    from torch_xla.core import functions

    gradients = []
    for reduction, scale in (("sum", 0.5), ("mul", 1.0), ("min", 1.0), ("max", 1.0)):
        mine = to(data(ordinal)).requires_grad_()
        (functions.all_reduce(reduction, mine, scale=scale) * to(data(5))).sum().backward()
        gradients.append(mine.grad)
    return gradients


@form(lambda ordinal, size: [cat(size), data(ordinal) * 2, data(5, 8 * size).chunk(size)[ordinal]])
def gradient_of_a_gather(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Get the part of the gradient that belongs to this ordinal."""
    from torch_xla.core import functions

    mine = to(data(ordinal)).requires_grad_()
    gathered = functions.all_gather(mine)
    (gathered * to(data(5, 8 * size))).sum().backward()
    return [gathered.detach(), mine.detach() * 2, mine.grad]


def _matrix_product(ordinal: int, size: int) -> Any:
    import torch

    weights = [data(member, 5, 2) for member in range(size)]
    inputs = [data(member, 2 * size, 4) for member in range(size)]
    return torch.cat(weights, 1) @ inputs[ordinal]


@form(lambda ordinal, size: [_matrix_product(ordinal, size)] * 2)
def distributed_matrix_product(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Multiply by a weight of which each ordinal has some columns."""
    from torch_xla.core import functions

    return [
        functions.distributed_mm(to(data(ordinal, 5, 2)), to(data(ordinal, 2 * size, 4)), split=split)
        for split in (1, 2)
    ]


@form(lambda ordinal, size: [total(size)])
def backward_in_other_threads(ordinal: int, size: int, to: Callable[..., Any]) -> Any:
    """Reduce in the backward pass, which runs on a thread of autograd."""
    from torch_xla.core.functions import AllReduceSumLayer

    mine = to(data(ordinal) * 0).requires_grad_()
    (AllReduceSumLayer.apply(mine) * to(data(ordinal))).sum().backward()
    return [mine.grad]


def _to_cpu(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    return [_to_cpu(part) for part in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture(scope="module", params=SIZES)
def world(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Run every form in one world, on each ordinal."""
    import torch

    def body(place: Place) -> bytes:
        import torch_xla

        device = torch_xla.device()

        def to(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device)

        results = {name: _to_cpu(form.call(place.ordinal, place.size, to)) for name, form in FORMS.items()}
        # Plain pickling can't bring back tensors of uint16.
        file = io.BytesIO()
        torch.save(results, file)
        return file.getvalue()

    return [torch.load(io.BytesIO(data)) for data in run_collectives(request.param, body)]


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str, world: list[dict[str, Any]]) -> None:
    """The form gives every ordinal what plain arithmetic on all ordinals' tensors gives."""
    import torch

    for ordinal, results in enumerate(world):
        expected = FORMS[name].judge(ordinal, len(world))
        got = results[name]

        assert len(expected) == len(got)
        for one, other in zip(expected, got, strict=True):
            if isinstance(one, torch.Tensor):
                torch.testing.assert_close(other, one, equal_nan=True)
            else:
                assert one == other

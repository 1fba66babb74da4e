"""The bridge: what torch_xla would put into a graph as a collective goes through the host instead.

It stands at the lowest points that Python reaches, `torch_xla._XLAC._xla_*` and the XLA kernels of
`torch.ops._c10d_functional`, and never at `xm.*`: all Python above (padding, buckets, ProcessGroupXla, FSDP) stays
upstream's, and a function that was imported before is bridged too.
"""

# The bridge has the signatures of torch_xla's own functions, and is what this package touches its internals for.
# ruff: noqa: PLR0917, SLF001

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch_xla

from pytest_tpu.backend.cpu import arithmetic, dynamo, naming
from pytest_tpu.backend.cpu.collectives import Collectives
from pytest_tpu.backend.cpu.groups import Channels, GlooPlan, shared_store
from pytest_tpu.errors import UnsupportedError

if TYPE_CHECKING:
    from pytest_tpu.model.place import Place

_XLAC = torch_xla._XLAC


class _Process:
    """What this process is, as far as the bridge is concerned."""

    installed = False
    place: Place | None = None
    world: Collectives | None = None
    kernels: torch.library.Library | None = None


def install() -> None:
    """Put the bridge in place, once per process; until `join` it calls what it replaced."""
    if _Process.installed:
        return
    _Process.installed = True
    for bridged in _BRIDGED:
        setattr(_XLAC, bridged.__name__, _bridging(getattr(_XLAC, bridged.__name__), bridged))
    dynamo.install(lambda: _Process.world is not None)
    naming.install(torch_xla.core.xla_model, lambda: _Process.world is not None)


def join(place: Place) -> None:
    """Meet the others from now on; once, in a process that was forked to be an ordinal."""
    _Process.place = place
    if place.size == 1:
        return  # there is no one to meet: XLA computes the collectives of one ordinal by itself
    _Process.world = Collectives(place, Channels(place))
    _Process.kernels = _functional_kernels(_Process.world)


def joined() -> Place | None:
    """Give this process's place in its world, if it is an ordinal."""
    return _Process.place


def plan(cores: int) -> AbstractContextManager[GlooPlan]:  # noqa: ARG001 - the interface has it
    """Make, in the launching process, what the ordinals share to find each other."""
    return shared_store()


def _bridging(original: Callable[..., Any], bridged: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def wrapper(*args: Any) -> Any:
        if _Process.world is None:
            return original(*args)
        with torch.no_grad():
            return bridged(_Process.world, *args)

    return dynamo.opaque(wrapper)


def _to_host(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy all tensors in one transfer; one by one, 160 small ones take ten times as long."""
    for tensor in tensors:
        if tensor.device.type != "xla":
            _XLAC._xla_get_tensor_id(tensor)  # raises as torch_xla does for a tensor that is not its own
    if not tensors:
        return []
    return [copy.detach() for copy in _XLAC._xla_get_cpu_tensors([tensor.detach() for tensor in tensors])]


def _to_device(results: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy all results in one transfer."""
    if not results:
        return []
    devices = [str(tensor.device) for tensor in like]
    moved = _XLAC._xla_tensors_from_aten([result.contiguous() for result in results], devices, None)
    # That one makes signed integers of uint16 and uint32; the way for single tensors does not.
    return [
        there if there.dtype == here.dtype else here.to(there.device)
        for there, here in zip(moved, results, strict=True)
    ]


def _variable(result: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """Have the result ask for a gradient if its source does, with no way back to it: that is torch_xla's form."""
    return result.requires_grad_(source.requires_grad)


def _overwrite(outputs: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    """Give tensors new values as torch_xla does, which autograd does not see as a change in place."""
    for output, result in zip(outputs, results, strict=True):
        if output.shape == result.shape and output.dtype == result.dtype:
            with torch.autograd._unsafe_preserve_version_counter(output):
                output.copy_(result)
        else:
            output.data = result


def _count(name: str) -> None:
    """Raise the counter that torch_xla's own function raises; its metrics report and its tests show them."""
    _XLAC._xla_increment_counter(f"xla::{name}", 1)


def _xla_all_reduce(
    world: Collectives, reduction: str, tensor: torch.Tensor, scale: float, groups: list[list[int]], _pin: bool
) -> torch.Tensor:
    _count("AllReduce")
    return _variable(_all_reduced(world, reduction, tensor, scale, groups), tensor)


def _all_reduced(
    world: Collectives, reduction: str, tensor: torch.Tensor, scale: float, groups: list[list[int]]
) -> torch.Tensor:
    return _to_device(world.all_reduce(reduction, _to_host([tensor]), scale, groups), [tensor])[0]


def _xla_all_reduce_inplace(
    world: Collectives,
    reduction: str,
    tensors: Sequence[torch.Tensor],
    scale: float,
    groups: list[list[int]],
    _pin: bool,
) -> None:
    _count("AllReduceInPlace")
    _overwrite(tensors, _to_device(world.all_reduce(reduction, _to_host(tensors), scale, groups), tensors))


def _xla_all_gather(
    world: Collectives,
    tensor: torch.Tensor,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
    _channel_id: int | None = None,
    _use_global_device_ids: bool | None = None,
) -> torch.Tensor:
    _count("AllGather")
    return _to_device(world.all_gather(_to_host([tensor]), dim, shards, groups), [tensor])[0]


def _xla_all_gather_out(
    world: Collectives,
    output: torch.Tensor,
    tensor: torch.Tensor,
    token: Any,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
) -> Any:
    _count("AllGatherOut")
    _overwrite([output], _to_device(world.all_gather(_to_host([tensor]), dim, shards, groups), [tensor]))
    return token


def _xla_all_gather_coalesced(
    world: Collectives,
    tensors: Sequence[torch.Tensor],
    token: Any,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
) -> list[Any]:
    return [*_to_device(world.all_gather(_to_host(tensors), dim, shards, groups), tensors), token]


def _xla_all_gather_coalesced_out(
    world: Collectives,
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    token: Any,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
) -> Any:
    _overwrite(outputs, _to_device(world.all_gather(_to_host(tensors), dim, shards, groups), tensors))
    return token


def _xla_reduce_scatter(
    world: Collectives,
    reduction: str,
    tensor: torch.Tensor,
    token: Any,
    scale: float,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
    _channel_id: int | None = None,
    _use_global_device_ids: bool | None = None,
) -> tuple[torch.Tensor, Any]:
    _count("ReduceScatter")
    results = world.reduce_scatter(reduction, _to_host([tensor]), scale, dim=dim, shards=shards, groups=groups)
    return _variable(_to_device(results, [tensor])[0], tensor), token


def _xla_reduce_scatter_out(
    world: Collectives,
    reduction: str,
    output: torch.Tensor,
    tensor: torch.Tensor,
    token: Any,
    scale: float,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
) -> Any:
    _count("ReduceScatterOut")
    results = world.reduce_scatter(reduction, _to_host([tensor]), scale, dim=dim, shards=shards, groups=groups)
    _overwrite([output], _to_device(results, [tensor]))
    return token


def _xla_reduce_scatter_coalesced(
    world: Collectives,
    reduction: str,
    tensors: Sequence[torch.Tensor],
    token: Any,
    scale: float,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
) -> list[Any]:
    results = world.reduce_scatter(reduction, _to_host(tensors), scale, dim=dim, shards=shards, groups=groups)
    return [*_to_device(results, tensors), token]


def _xla_reduce_scatter_coalesced_out(
    world: Collectives,
    reduction: str,
    outputs: Sequence[torch.Tensor],
    tensors: Sequence[torch.Tensor],
    token: Any,
    scale: float,
    dim: int,
    shards: int,
    groups: list[list[int]],
    _pin: bool,
) -> Any:
    results = world.reduce_scatter(reduction, _to_host(tensors), scale, dim=dim, shards=shards, groups=groups)
    _overwrite(outputs, _to_device(results, tensors))
    return token


def _xla_all_to_all(
    world: Collectives,
    tensor: torch.Tensor,
    token: Any,
    split_dim: int,
    concat_dim: int,
    count: int,
    groups: list[list[int]],
    _pin: bool,
) -> tuple[torch.Tensor, Any]:
    _count("AllToAll")
    result = world.all_to_all(_to_host([tensor])[0], split_dim, concat_dim, count, groups)
    return _variable(_to_device([result], [tensor])[0], tensor), token


def _xla_collective_permute(
    world: Collectives, tensor: torch.Tensor, token: Any, pairs: Sequence[Sequence[int]]
) -> tuple[torch.Tensor, Any]:
    result = world.collective_permute(_to_host([tensor])[0], pairs)
    return _variable(_to_device([result], [tensor])[0], tensor), token


def _xla_send(_world: Collectives, *_args: Any) -> Any:
    raise UnsupportedError("xm.send does not exist on the emulated host; xm.collective_permute does the same there")


def _xla_recv(_world: Collectives, *_args: Any) -> Any:
    raise UnsupportedError("xm.recv does not exist on the emulated host; xm.collective_permute does the same there")


_BRIDGED: tuple[Callable[..., Any], ...] = (
    _xla_all_reduce,
    _xla_all_reduce_inplace,
    _xla_all_gather,
    _xla_all_gather_out,
    _xla_all_gather_coalesced,
    _xla_all_gather_coalesced_out,
    _xla_reduce_scatter,
    _xla_reduce_scatter_out,
    _xla_reduce_scatter_coalesced,
    _xla_reduce_scatter_coalesced_out,
    _xla_all_to_all,
    _xla_collective_permute,
    _xla_send,
    _xla_recv,
)


def _functional_kernels(world: Collectives) -> torch.library.Library:
    """Replace the XLA kernels of the functional collectives, as long as the library is kept.

    Only an ordinal does so, for a replaced kernel can't be called any more. Like torch_xla's they ignore the name of
    the process group and take the whole world.
    """

    def all_reduce(tensor: torch.Tensor, reduction: str, _group: str) -> torch.Tensor:
        _count("all_reduce")
        return _all_reduced(world, reduction, tensor, 1.0, [])

    def all_gather_into_tensor(tensor: torch.Tensor, size: int, _group: str) -> torch.Tensor:
        _count("all_gather_into_tensor")
        results = world.all_gather(_to_host([tensor]), 0, size, [range(size)])
        return _to_device(results, [tensor])[0]

    def reduce_scatter_tensor(tensor: torch.Tensor, reduction: str, size: int, _group: str) -> torch.Tensor:
        _count("reduce_scatter_tensor")
        if reduction not in arithmetic.REDUCTIONS:
            raise ValueError(f"Invalid string for AllReduceType: {reduction}")
        results = world.reduce_scatter(reduction, _to_host([tensor]), 1.0, dim=0, shards=size, groups=[range(size)])
        return _to_device(results, [tensor])[0]

    def all_to_all_single(
        tensor: torch.Tensor, output_sizes: Sequence[int], input_sizes: Sequence[int], _group: str
    ) -> torch.Tensor:
        _count("all_to_all_single")
        if {*output_sizes, *input_sizes} - {tensor.shape[0] // world.size}:
            raise RuntimeError("torch_xla does not support arbitrary split sizes for all_to_all")
        result = world.all_to_all(_to_host([tensor])[0], 0, 0, world.size, [])
        return _to_device([result], [tensor])[0]

    library = torch.library.Library("_c10d_functional", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is replaced is the purpose
        for kernel in (all_reduce, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single):
            library.impl(kernel.__name__, torch.no_grad()(kernel), "XLA")
    return library

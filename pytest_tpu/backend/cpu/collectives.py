"""The collectives themselves, from host tensors to host tensors: check, meet, move, compute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import torch

from pytest_tpu.backend.cpu import arithmetic, parcel
from pytest_tpu.errors import UnsupportedError
from pytest_tpu.model.place import Call

if TYPE_CHECKING:
    from pytest_tpu.backend.cpu.groups import Channel, Channels
    from pytest_tpu.model.place import Place

Groups = Sequence[Sequence[int]]
Tensors = Sequence[torch.Tensor]

# Up to here an all-reduce sends everything to everyone in one step. Beyond, each ordinal reduces a part and hands it
# out: two steps of 3 ms among eight ordinals on two cores, but an eighth of the data in each.
_ONE_STEP: Final = 1 << 20


class Collectives:
    """What one ordinal calls; every method is one meeting point."""

    def __init__(self, place: Place, channels: Channels) -> None:
        self._place = place
        self._channels = channels

    @property
    def size(self) -> int:
        """How many ordinals the world has."""
        return self._place.size

    def all_reduce(self, reduction: str, tensors: Tensors, scale: float, groups: Groups) -> list[torch.Tensor]:
        """Reduce each tensor over the group, then scale it."""
        arithmetic.check(reduction, [tensor.dtype for tensor in tensors])
        channel = self._channel("all_reduce", groups)
        with channel.met(_call("all_reduce", tensors, channel, reduction=reduction, scale=scale)):
            reduced = _reduced(channel, tensors, reduction)
        return [arithmetic.scaled(tensor, scale) for tensor in reduced]

    def all_gather(self, tensors: Tensors, dim: int, shards: int, groups: Groups) -> list[torch.Tensor]:
        """Join the group's tensors along a dimension."""
        channel = self._channel("all_gather", groups)
        for tensor in tensors:
            _check_dimension("all_gather", tensor, dim)
        _check_shards("all_gather", shards, channel)
        with channel.met(_call("all_gather", tensors, channel, dim=dim)):
            messages = channel.gather(parcel.pack(tensors))
        expected = parcel.forms(tensors)
        parts = [parcel.unpack(message, expected) for message in messages]
        return [torch.cat(pieces, dim) for pieces in zip(*parts, strict=True)]

    def reduce_scatter(
        self, reduction: str, tensors: Tensors, scale: float, *, dim: int, shards: int, groups: Groups
    ) -> list[torch.Tensor]:
        """Reduce each tensor over the group, and keep this ordinal's part of a dimension."""
        arithmetic.check(reduction, [tensor.dtype for tensor in tensors])
        channel = self._channel("reduce_scatter", groups)
        for tensor in tensors:
            _check_split("ReduceScatter operand scatter dimension", "shard_count", tensor, dim, shards)
        _check_shards("reduce_scatter", shards, channel)
        with channel.met(_call("reduce_scatter", tensors, channel, reduction=reduction, scale=scale, dim=dim)):
            pieces = [tensor.chunk(shards, dim) for tensor in tensors]
            parts = _exchanged(channel, [list(column) for column in zip(*pieces, strict=True)])
        return [arithmetic.scaled(arithmetic.reduce(part, reduction), scale) for part in zip(*parts, strict=True)]

    def all_to_all(
        self, tensor: torch.Tensor, split_dim: int, concat_dim: int, count: int, groups: Groups
    ) -> torch.Tensor:
        """Split the tensor along one dimension, a part for each ordinal; join what came along another."""
        channel = self._channel("all_to_all", groups)
        _check_split("AllToAll split dimension", "split_count", tensor, split_dim, count)
        _check_dimension("all_to_all", tensor, concat_dim)
        _check_shards("all_to_all", count, channel)
        with channel.met(_call("all_to_all", [tensor], channel, split_dim=split_dim, concat_dim=concat_dim)):
            parts = _exchanged(channel, [[piece] for piece in tensor.chunk(count, split_dim)])
        return torch.cat([part[0] for part in parts], concat_dim)

    def collective_permute(self, tensor: torch.Tensor, pairs: Sequence[Sequence[int]]) -> torch.Tensor:
        """Send along the pairs; an ordinal that is no target gets zeros.

        Only the ordinals in the pairs meet. All of them have the same pairs, so all of them know who that is; a
        send and its receive, which name one pair, meet without the rest of the world.
        """
        sources, targets = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if len(set(sources)) < len(pairs) or len(set(targets)) < len(pairs):
            raise RuntimeError(f"Source and target ids of a collective permute must be unique, got {pairs}")
        me = self._place.ordinal
        members = sorted({*sources, *targets})
        if members and not 0 <= members[0] <= members[-1] < self.size:
            raise RuntimeError(f"collective_permute names an ordinal that the world of {self.size} has not: {pairs}")
        if me not in members:
            return torch.zeros_like(tensor)
        channel = self._channels.of(members)
        # In the order of the sources, since what the order of the pairs is makes no difference.
        detail = ", ".join(f"{source}->{target}" for source, target in sorted(zip(sources, targets, strict=True)))
        call = Call(
            kind="collective_permute",
            dtype=parcel.dtype_words([tensor]),
            shape=parcel.shape_words([tensor]),
            detail=detail,
        )
        nothing, message = parcel.pack([]), parcel.pack([tensor])
        to = dict(zip(sources, targets, strict=True)).get(me)
        source = dict(zip(targets, sources, strict=True)).get(me)
        with channel.met(call):
            received = channel.exchange(
                [message if member == to else nothing for member in members],
                [message.numel() if member == source else 0 for member in members],
            )
        if source is None:
            return torch.zeros_like(tensor)
        return parcel.unpack(received[members.index(source)], parcel.forms([tensor]))[0]

    def _channel(self, kind: str, groups: Groups) -> Channel:
        """Find the group that this ordinal is in; no groups mean the world."""
        world = range(self.size)
        if not groups:
            return self._channels.of(world)
        named = sorted(ordinal for group in groups for ordinal in group)
        if named != list(world):
            raise UnsupportedError(
                f"{kind} over the groups {[list(group) for group in groups]} does not name each of the {self.size} "
                "ordinals once, and XLA's verifier refuses that on a TPU; to torch.distributed name all groups of "
                "the mesh: new_group(ranks, pg_options={'xla_pg_options': {'mesh': [[...], ...]}})"
            )
        return self._channels.of(next(group for group in groups if self._place.ordinal in group))


def _reduced(channel: Channel, tensors: Tensors, reduction: str) -> list[torch.Tensor]:
    """Reduce over the group: all tensors of one type as one, all types in one message."""
    by_dtype: dict[torch.dtype, list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_dtype.setdefault(tensor.dtype, []).append(index)
    flats = [torch.cat([tensors[index].reshape(-1) for index in indexes]) for indexes in by_dtype.values()]
    if sum(form.size for form in parcel.forms(flats)) * channel.size <= _ONE_STEP:
        totals = _reduced_at_once(channel, flats, reduction)
    else:
        totals = _reduced_in_parts(channel, flats, reduction)
    results: dict[int, torch.Tensor] = {}
    for indexes, total in zip(by_dtype.values(), totals, strict=True):
        pieces = total.split([tensors[index].numel() for index in indexes])
        results |= {index: piece.reshape(tensors[index].shape) for index, piece in zip(indexes, pieces, strict=True)}
    return [results[index] for index in range(len(tensors))]


def _reduced_at_once(channel: Channel, flats: Tensors, reduction: str) -> list[torch.Tensor]:
    expected = parcel.forms(flats)
    parts = [parcel.unpack(message, expected) for message in channel.gather(parcel.pack(flats))]
    return [arithmetic.reduce(part, reduction) for part in zip(*parts, strict=True)]


def _reduced_in_parts(channel: Channel, flats: Tensors, reduction: str) -> list[torch.Tensor]:
    pieces = [flat.tensor_split(channel.size) for flat in flats]
    columns = [list(column) for column in zip(*pieces, strict=True)]
    mine = [arithmetic.reduce(part, reduction) for part in zip(*_exchanged(channel, columns), strict=True)]
    expected = [parcel.forms(column) for column in columns]
    messages = channel.gather(parcel.pack(mine), [sum(form.size for form in part) for part in expected])
    parts = [parcel.unpack(message, part) for message, part in zip(messages, expected, strict=True)]
    return [torch.cat(part) for part in zip(*parts, strict=True)]


def _exchanged(channel: Channel, columns: Sequence[Tensors]) -> list[list[torch.Tensor]]:
    """Give each member its column of tensors; what comes has the form of this ordinal's own column."""
    expected = parcel.forms(columns[channel.index])
    length = sum(form.size for form in expected)
    messages = channel.exchange([parcel.pack(column) for column in columns], [length] * channel.size)
    return [parcel.unpack(message, expected) for message in messages]


def _call(kind: str, tensors: Tensors, channel: Channel, *, reduction: str = "", **more: float) -> Call:
    """Say what must agree."""
    details = [f"{name}={value}" for name, value in more.items() if (name, value) != ("scale", 1.0)]
    if list(channel.members) != sorted(channel.members):
        details.append(f"group={list(channel.members)}")
    return Call(
        kind=kind,
        dtype=parcel.dtype_words(tensors) if tensors else "",
        shape=parcel.shape_words(tensors),
        reduction=reduction,
        detail=", ".join(details),
    )


def _check_dimension(kind: str, tensor: torch.Tensor, dim: int) -> None:
    if not 0 <= dim < tensor.dim():
        raise RuntimeError(f"{kind} along dimension {dim} of a tensor that has {tensor.dim()}")


def _check_split(what: str, count_name: str, tensor: torch.Tensor, dim: int, count: int) -> None:
    _check_dimension(what.split(" ", 1)[0], tensor, dim)
    if tensor.shape[dim] % count:
        raise RuntimeError(f"{what} size {tensor.shape[dim]} must be dividable by {count_name} {count}.")


def _check_shards(kind: str, shards: int, channel: Channel) -> None:
    if shards != channel.size:
        raise RuntimeError(f"{kind} into {shards} shards in a group of {channel.size} ordinals")

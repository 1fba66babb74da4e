"""What XLA computes in a collective, on host tensors; pure, and the same on every ordinal to the last bit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import torch

REDUCTIONS: Final = ("sum", "mul", "and", "or", "min", "max")

# torch has no arithmetic on them on the CPU; the signed type of the same width wraps around to the same bits.
_UNSIGNED: Final = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}

_OPERATORS: Final[dict[str, Callable[..., torch.Tensor]]] = {
    "sum": torch.add,
    "mul": torch.mul,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "min": torch.minimum,
    "max": torch.maximum,
}

# XLA's add on its boolean type is an or, its multiplication an and.
_BOOLEAN: Final = {"sum": "or", "mul": "and", "min": "and", "max": "or", "and": "and", "or": "or"}


def check(reduction: str, dtypes: Sequence[torch.dtype]) -> None:
    """Refuse what XLA refuses, in its words."""
    if reduction not in REDUCTIONS:
        raise RuntimeError(f"Unknown AllReduce type: {reduction}")
    if reduction in ("and", "or"):
        for dtype in dtypes:
            if dtype.is_floating_point or dtype.is_complex:
                name = str(dtype).removeprefix("torch.")
                raise RuntimeError(f"Expected pred or integral type in argument to and/or operation; got {name}.")


def reduce(parts: Sequence[torch.Tensor], reduction: str) -> torch.Tensor:
    """Combine the ordinals' tensors, in their order.

    Rounded where XLA rounds, which was measured: bfloat16 and the floats of 8 bits are combined in 32 and rounded
    once, float16 at each step. NaN spreads in every reduction, as HLO says; XLA's own reduction on the CPU
    loses it in min and max.
    """
    dtype = parts[0].dtype
    if dtype is torch.bool:
        reduction = _BOOLEAN[reduction]
    wide = _signed_order if dtype in _UNSIGNED and reduction in ("min", "max") else _computable
    operator = _OPERATORS[reduction]
    total = wide(parts[0]).clone()
    for part in parts[1:]:
        operator(total, wide(part), out=total)
    return _signed_order(total).view(dtype) if wide is _signed_order else _restored(total, dtype)


def scaled(tensor: torch.Tensor, scale: float) -> torch.Tensor:
    """Multiply by a scale, which XLA first makes a float of 32 bits and then casts to the tensor's type."""
    if scale == 1.0:
        return tensor
    dtype = tensor.dtype
    factor = torch.tensor(scale, dtype=torch.float32)
    if dtype is torch.bool:
        return tensor & bool(factor)
    if dtype in _UNSIGNED:
        signed = _computable(tensor)
        return (signed * factor.to(torch.int64).to(signed.dtype)).view(dtype)
    return _restored(_computable(tensor) * _computable(factor.to(dtype)), dtype)


def _computable(tensor: torch.Tensor) -> torch.Tensor:
    """Give it a type that torch can compute with, and that rounds where XLA rounds."""
    if tensor.dtype in _UNSIGNED:
        return tensor.view(_UNSIGNED[tensor.dtype])
    if tensor.dtype.is_floating_point and tensor.dtype.itemsize < 4 and tensor.dtype is not torch.float16:
        return tensor.to(torch.float32)
    return tensor


def _restored(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.view(dtype) if dtype in _UNSIGNED else tensor.to(dtype)


def _signed_order(tensor: torch.Tensor) -> torch.Tensor:
    """Turn the top bit over: then signed comparison orders the values as unsigned comparison does."""
    signed = _computable(tensor)
    return signed ^ torch.iinfo(signed.dtype).min

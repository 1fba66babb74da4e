"""Many tensors in one message, and the words for them; pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What must be known of tensors to read them from a message."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * int(self.dtype.itemsize)


def forms(tensors: Iterable[torch.Tensor]) -> list[Form]:
    """Give the forms of tensors."""
    return [Form(dtype=tensor.dtype, shape=tuple(tensor.shape)) for tensor in tensors]


def pack(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Put host tensors into one message; a single one is not copied."""
    if not tensors:
        return torch.empty(0, dtype=torch.uint8)
    pieces = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in tensors]
    return pieces[0] if len(pieces) == 1 else torch.cat(pieces)


def unpack(message: torch.Tensor, expected: Sequence[Form]) -> list[torch.Tensor]:
    """Read tensors from a message; they share its memory."""
    pieces = message.split([form.size for form in expected]) if expected else ()
    return [_typed(piece, form) for piece, form in zip(pieces, expected, strict=True)]


def _typed(piece: torch.Tensor, form: Form) -> torch.Tensor:
    if piece.storage_offset() % form.dtype.itemsize:
        piece = piece.clone()  # it began where its type can't
    return piece.view(form.dtype).reshape(form.shape)


def dtype_words(tensors: Sequence[torch.Tensor]) -> str:
    """Name the types, once where all are alike."""
    names = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
    return names[0] if len(set(names)) == 1 else _runs(names)


def shape_words(tensors: Sequence[torch.Tensor]) -> str:
    """Name the shapes: ``4x2``, or ``4x2,4x2``; a scalar has no dimensions and is called so."""
    return _runs(["x".join(map(str, tensor.shape)) or "scalar" for tensor in tensors])


def _runs(words: Sequence[str]) -> str:
    """Join them by commas; 160 equal ones in a row are one word and a count."""
    counted = ((word, sum(1 for _ in run)) for word, run in itertools.groupby(words))
    return ",".join(word if count == 1 else f"{word} ({count} times)" for word, count in counted)

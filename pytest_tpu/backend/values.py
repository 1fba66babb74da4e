"""Bringing values that hold XLA tensors to the host."""

from __future__ import annotations

import copy
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

_CONTAINERS: Final = (dict, list, tuple, set, frozenset, deque)


def to_host(value: Any) -> Any:
    """Copy XLA tensors anywhere inside `value` to CPU tensors of their own memory.

    Looks into containers, dataclasses and all objects with attributes. What holds no XLA tensor is returned as it is,
    the very object; what does is copied, once, however often it occurs. One transfer brings all tensors.
    """
    if "torch_xla" not in sys.modules:
        return value
    found = _Found(value)
    return _Copier(found).copy(value) if found.tensors else value


def _is_xla(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.device.type == "xla"


def _is_leaf(value: Any) -> bool:
    """Whether `value` holds nothing to look for: plain data, CPU tensors, and what is shared by name."""
    import torch

    return isinstance(value, (str, bytes, int, float, complex, type(None), type, torch.Tensor)) or not (
        isinstance(value, _CONTAINERS) or _attributes(value)
    )


def _attributes(value: Any) -> dict[str, Any]:
    """Give the attributes of an instance, of slots too; functions and modules have none here."""
    if type(value).__module__ == "builtins":
        return {}
    names = [name for kind in type(value).__mro__ for name in _slots(kind)]
    slots = {name: getattr(value, name) for name in names if hasattr(value, name)}
    return {**slots, **getattr(value, "__dict__", {})}


def _slots(kind: type) -> Iterator[str]:
    slots = kind.__dict__.get("__slots__", ())
    for name in (slots,) if isinstance(slots, str) else slots:
        if name not in ("__dict__", "__weakref__"):
            yield f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") and not name.endswith("__") else name


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        yield from value
        yield from value.values()
    elif isinstance(value, _CONTAINERS):
        yield from value
    yield from _attributes(value).values()


def _like(tensor: Any, plain: Any) -> Any:
    """Give the copy the kind of its original; a graph is not copied."""
    import torch

    if isinstance(tensor, torch.nn.Parameter):
        return torch.nn.Parameter(plain, requires_grad=tensor.requires_grad)
    return plain.requires_grad_(tensor.requires_grad and tensor.is_leaf)


class _Found:
    """The XLA tensors that can be reached from a value, and the objects that lead to them."""

    def __init__(self, value: Any) -> None:
        self.tensors: dict[int, Any] = {}
        self._holders: dict[int, list[int]] = {}
        # By id and kept alive: else another object could get the same id.
        self._seen: dict[int, Any] = {}
        self._look(value)

    def _look(self, value: Any) -> None:
        # A stack of our own: values nest deeper than Python recurses.
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            if _is_xla(value):
                self.tensors[id(value)] = value
            elif not _is_leaf(value):
                for part in _parts(value):
                    self._holders.setdefault(id(part), []).append(id(value))
                    waiting.append(part)

    def leading(self) -> set[int]:
        """Give the ids of all objects from which an XLA tensor can be reached."""
        leading: set[int] = set()
        waiting = list(self.tensors)
        while waiting:
            for holder in self._holders.get(waiting.pop(), ()):
                if holder not in leading:
                    leading.add(holder)
                    waiting.append(holder)
        return leading

    def on_host(self) -> dict[int, Any]:
        """Copy the tensors, all in one transfer; each under the id of its original."""
        import torch_xla

        tensors = list(self.tensors.values())
        native = torch_xla._XLAC  # noqa: SLF001 - the public `.cpu()` makes a transfer for each tensor
        copies = native._xla_get_cpu_tensors([tensor.detach() for tensor in tensors])  # noqa: SLF001 - as above
        return {id(tensor): _like(tensor, plain) for tensor, plain in zip(tensors, copies, strict=True)}


class _Copier:
    """Copies what leads to an XLA tensor, and shares the rest."""

    def __init__(self, found: _Found) -> None:
        self._leading = found.leading()
        self._copies = found.on_host()

    def copy(self, value: Any) -> Any:
        if id(value) not in self._copies:
            if id(value) not in self._leading:
                return value
            if isinstance(value, (tuple, set, frozenset)):
                self._copies[id(value)] = self._rebuilt(value)
            else:
                self._refill(value)
        return self._copies[id(value)]

    def _rebuilt(self, value: Any) -> Any:
        parts = [self.copy(part) for part in value]
        make = getattr(type(value), "_make", type(value))
        return make(parts)

    def _refill(self, value: Any) -> None:
        """Copy a mutable object: its copy is known first, then filled, so that a cycle ends at the copy."""
        new = self._copies[id(value)] = copy.copy(value)
        if isinstance(value, dict):
            new.clear()
            for key, part in value.items():
                new[self.copy(key)] = self.copy(part)
        elif isinstance(value, (list, deque)):
            new.clear()
            new.extend([self.copy(part) for part in value])
        for name, part in _attributes(value).items():
            # Past `__setattr__`: frozen dataclasses and nn.Module have their own.
            object.__setattr__(new, name, self.copy(part))

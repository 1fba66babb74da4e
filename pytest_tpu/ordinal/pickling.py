"""Pickles what an ordinal returns or raises, so that its parent process gets objects of its own classes."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle

from pytest_tpu.errors import ResultError

_HEAP_TYPE = 1 << 9
"""CPython's flag of classes that were made by a class statement."""


class Shared:
    """The classes on both sides of a fork; made before it, used in the ordinal to pack and in the parent to unpack.

    By them an object of a class that can't be imported (a local one, one of the user's script, pytest's own outcomes)
    has the very class in the parent that the parent's code knows, and `pytest.raises`, `isinstance` and the equality
    of dataclasses hold. cloudpickle alone would make a second class that only looks alike.
    """

    def __init__(self) -> None:
        # Kept alive by this, so that no other class can get the same id, on either side.
        self._classes = {id(cls): cls for cls in _all_classes()}

    def pack(self, value: Any, to_host: Callable[[Any], Any]) -> bytes:
        """Pickle a value in the ordinal.

        Args:
            value: with its XLA tensors.
            to_host: copies XLA tensors to CPU tensors; an XLA tensor that came through would start the runtime in
                the process that unpacks it.
        """
        buffer = io.BytesIO()
        _Pickler(buffer, self._classes, to_host).dump(to_host(value))
        return buffer.getvalue()

    def unpack(self, data: bytes) -> Any:
        """Give the value."""
        return _Unpickler(io.BytesIO(data), self._classes).load()

    def unpack_result(self, data: bytes, ordinal: int) -> Any:
        """Give what an ordinal returned; raises ResultError where its own way of unpickling fails."""
        try:
            return self.unpack(data)
        except Exception as error:
            raise ResultError(
                f"what ordinal {ordinal} returned can't be unpickled: {type(error).__name__}: {error}"
            ) from error

    def pack_error(self, error: BaseException, to_host: Callable[[Any], Any]) -> bytes:
        """Pickle an exception, and try it; empty if it does not survive the round trip."""
        try:
            data = self.pack(error, to_host)
            copy = self.unpack(data)
            return data if type(copy) is type(error) and str(copy) == str(error) else b""
        except Exception:
            return b""


def _all_classes() -> Iterator[type]:
    seen: set[type] = set()
    waiting: list[type] = [object]
    while waiting:
        cls = waiting.pop()
        if cls not in seen:
            seen.add(cls)
            waiting.extend(type.__subclasses__(cls))
    return iter(seen)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it has no types
    def __init__(self, buffer: io.BytesIO, classes: dict[int, type], to_host: Callable[[Any], Any]) -> None:
        super().__init__(buffer)
        self._classes = classes
        self._to_host = to_host

    def persistent_id(self, value: Any) -> int | None:
        """Name a class that the parent has too."""
        return id(value) if isinstance(value, type) and self._classes.get(id(value)) is value else None

    def reducer_override(self, value: Any) -> Any:
        """Take exceptions apart without their constructors, and tensors from the device."""
        if isinstance(value, BaseException):
            return _reduced(value)
        if "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor):
            on_host = self._to_host(value)
            return NotImplemented if on_host is value else on_host.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return super().reducer_override(value)


class _Unpickler(pickle.Unpickler):
    def __init__(self, buffer: io.BytesIO, classes: dict[int, type]) -> None:
        super().__init__(buffer)
        self._classes = classes

    def persistent_load(self, name: int) -> type:
        """Find the class of that name here."""
        return self._classes[name]


def _reduced(error: BaseException) -> Any:
    """Take an exception apart.

    Python would call its class with `args` again, and `args` are what it passed on to `Exception`: a class that is
    made from an id and passes on a sentence is then made from a sentence, or can't be made at all.
    """
    cls = type(error)
    base = next(base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE)
    written = [kind for kind in cls.__mro__ if kind.__flags__ & _HEAP_TYPE]
    if any(name in vars(kind) for kind in written for name in ("__reduce__", "__reduce_ex__")):
        return NotImplemented
    reduced: Any = error.__reduce__()
    make, arguments, *state = reduced
    return (_rebuilt, (make, base, arguments), *state)


def _rebuilt(cls: type[BaseException], base: type[BaseException], arguments: tuple[Any, ...]) -> BaseException:
    error = base.__new__(cls, *arguments)
    base.__init__(error, *arguments)
    return error

"""Frames of pickled messages on a pipe, read without ever blocking."""

from __future__ import annotations

import os
import pickle
import struct
import threading
from typing import Any

from pytest_tpu.errors import MessageError

_LENGTH = struct.Struct("!Q")
_CHUNK = 1 << 16


class Writer:
    """The ordinal's end: each message goes out whole, whichever thread sends it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._writing: int | None = None
        self._postponed: BaseException | None = None

    def send(self, message: Any) -> None:
        """Write one message.

        Raises:
            BrokenPipeError: the controller is gone.
            MessageError: it can't be pickled, and nothing was written.
        """
        try:
            payload = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            kind = type(message).__name__
            raise MessageError(f"{kind} can't be sent from an ordinal: {type(error).__name__}: {error}") from error
        with self._lock:
            self._writing = threading.get_ident()
            try:
                self._write(_LENGTH.pack(len(payload)) + payload)
            finally:
                self._writing = None
        postponed, self._postponed = self._postponed, None
        if postponed is not None:
            raise postponed

    def _write(self, frame: bytes) -> None:
        view = memoryview(frame)
        while view:
            view = view[os.write(self._descriptor, view) :]

    def interrupt(self, error: BaseException) -> None:
        """Raise `error`, from a signal handler; once the message is out if this thread is writing one.

        Half a message would make nonsense of all that come after it, and masking the signal does not help: the kernel
        gives it to any thread, and Python runs the handler in this one all the same.
        """
        if self._writing != threading.get_ident():
            raise error
        self._postponed = error


class Reader:
    """The controller's end.

    An ordinal may be stopped or killed in the middle of a frame, so that a blocking read would wait for ever:
    what has come is kept, and a frame that never completes is never delivered.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self._pending = bytearray()
        self.at_end = False

    def receive(self) -> list[Any]:
        """Return the messages that are complete by now, in order."""
        self._fill()
        messages = []
        while (frame := self._next_frame()) is not None:
            messages.append(pickle.loads(frame))
        return messages

    def _fill(self) -> None:
        while not self.at_end:
            try:
                chunk = os.read(self.descriptor, _CHUNK)
            except BlockingIOError:
                return
            self.at_end = not chunk
            self._pending += chunk

    def _next_frame(self) -> bytes | None:
        if len(self._pending) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(self._pending)[0]
        if len(self._pending) < end:
            return None
        frame = bytes(self._pending[_LENGTH.size : end])
        del self._pending[:end]
        return frame

    def close(self) -> None:
        """Close this end."""
        os.close(self.descriptor)
        self.at_end = True

"""What one process writes: a file for each stream, readable while it lives and after it was killed."""

from __future__ import annotations

import io
import os
import sys
import tempfile
from contextlib import ExitStack
from typing import IO

STREAMS = ("stdout", "stderr", "log", "live")
_READ = 1 << 20


class OutputFiles:
    """Standard output, standard error, log and live log of one ordinal, in files without a name.

    Files rather than pipes: a pipe that nobody drains stops the writer, and one that several processes share loses
    lines. The offset is shared after the fork, so that this side reads by position only.
    """

    def __init__(self) -> None:
        with ExitStack() as undo:
            self._files: dict[str, IO[bytes]] = {
                name: undo.enter_context(tempfile.TemporaryFile(buffering=0)) for name in STREAMS
            }
            undo.pop_all()
        self._shown = dict.fromkeys(STREAMS, 0)

    def redirect(self) -> None:
        """Make this process write there, descriptors 1 and 2 and Python's streams above them, and read nothing.

        One that read from a terminal would be stopped by it, since it is not in the terminal's foreground group.
        """
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        for name, descriptor in (("stdout", 1), ("stderr", 2)):
            os.dup2(self._files[name].fileno(), descriptor)
            stream = io.TextIOWrapper(
                os.fdopen(descriptor, "wb", 0, closefd=False),
                encoding="utf-8",
                errors="backslashreplace",
                line_buffering=True,
                write_through=True,
            )
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)

    def take_over(self, name: str, descriptor: int) -> None:
        """Let one more descriptor of this process lead to a stream."""
        os.dup2(self._files[name].fileno(), descriptor)

    def write(self, name: str, text: str) -> None:
        """Add to a stream, from the ordinal."""
        os.write(self._files[name].fileno(), text.encode("utf-8", "backslashreplace"))

    def text(self, name: str) -> str:
        """All that was written to a stream so far."""
        return _read(self._files[name].fileno(), 0).decode("utf-8", "replace")

    def texts(self) -> dict[str, str]:
        """All that was written so far, by stream."""
        return {name: self.text(name) for name in STREAMS}

    def new_lines(self, name: str, *, rest: bool = False) -> list[str]:
        """The lines completed since the last call, without line ends; with `rest` also one that has no end yet."""
        data = _read(self._files[name].fileno(), self._shown[name])
        end = len(data) if rest else data.rfind(b"\n") + 1
        self._shown[name] += end
        return data[:end].decode("utf-8", "replace").splitlines()

    def close(self) -> None:
        """Give the files up; they are gone when the last process has closed them."""
        for file in self._files.values():
            file.close()


def _read(descriptor: int, offset: int) -> bytes:
    parts = []
    while chunk := os.pread(descriptor, _READ, offset):
        parts.append(chunk)
        offset += len(chunk)
    return b"".join(parts)

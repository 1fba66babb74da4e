"""One exception class per cause; it stands at the bottom, so that every layer can raise them."""

from __future__ import annotations


class TpuError(Exception):
    """The base of all errors of pytest-tpu: its text is one sentence for the user."""


class SettingError(TpuError):
    """A value of an option, ini entry, environment variable or marker is not allowed.

    The text says the value, where it came from, and what is allowed.
    """


class BackendError(TpuError):
    """The backend can't give what was asked for: no TPU, no torch_xla, too many cores."""


class MissingPackageError(BackendError):
    """There can be no host here, since torch_xla is not installed or does not exist for this system."""


class NotAnOrdinalError(TpuError):
    """The world was read outside an ordinal process, where it has no meaning."""

    reader: str | None = None

    def name_reader(self, fixture: str) -> None:
        """Say which fixture read it: the innermost, which comes first, and not those that only asked for it."""
        if self.reader is None:
            self.reader = fixture
            self.args = (f"in the fixture {fixture!r}, {self}",)


class MismatchError(TpuError):
    """The ordinals called different collectives under the same number; raised before any data moves.

    The text has both sides: kind, dtype, shape, reduction and ordinals.
    """


class UnsupportedError(TpuError):
    """A TPU host can do this and the emulated host can't; the text names it and says what to do."""


class ResultError(TpuError):
    """What an ordinal returned could not be brought to the controller."""


class MessageError(TpuError):
    """What an ordinal has to tell the controller can't be pickled; the text says what, and what is in its way."""


class WorldStopped(BaseException):
    """Raised inside an ordinal when the controller stops the world: never caught by ``except Exception``."""

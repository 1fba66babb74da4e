"""Runs a callable inside an ordinal, and ships what it returned or raised."""

from __future__ import annotations

import pickle
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_tpu.errors import MismatchError, ResultError, WorldStopped
from pytest_tpu.model.messages import Exited, Finished
from pytest_tpu.model.verdict import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The pickled result of one ordinal.

    Args:
        value: the bytes; a result is copied before the process ends, since handles to its memory would not outlive it.
    """

    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception of one ordinal.

    Args:
        error: pickled; empty if the object does not survive the round trip.
        text: its traceback, which always travels.
    """

    error: bytes
    text: str


def run(fn: Callable[[], Any], to_host: Callable[[Any], Any]) -> Finished | Exited:
    """Call `fn` and describe the end of it; the body of an ordinal of `tpu_launch` and `torch_xla.launch`."""
    try:
        value = fn()
    except KeyboardInterrupt:
        return Exited(at=time.monotonic(), reason="KeyboardInterrupt on an ordinal", returncode=None, interrupted=True)
    except BaseException as error:
        return _raised(error, time.monotonic())
    at = time.monotonic()
    try:
        return Finished(at=at, outcome=Outcome.PASSED, data=Returned(value=_dump(to_host(value))))
    except Exception as error:
        kind = type(value).__name__
        unsent = ResultError(f"its result, of type {kind}, can't be returned: {type(error).__name__}: {error}")
        return _raised(unsent, at)


def _raised(error: BaseException, at: float) -> Finished:
    outcome = Outcome.FAILED
    if isinstance(error, WorldStopped):
        outcome = Outcome.STOPPED
    elif isinstance(error, MismatchError):
        outcome = Outcome.MISMATCHED
    text = "".join(traceback.format_exception(error))
    reason = str(error) if isinstance(error, MismatchError) else traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return Finished(
        at=at, outcome=outcome, reason=reason, where=where, data=Raised(error=_dump_error(error), text=text)
    )


def _dump(value: Any) -> bytes:
    import cloudpickle

    data: bytes = cloudpickle.dumps(value)
    return data


def _dump_error(error: BaseException) -> bytes:
    """Pickle an exception, and try it: one whose constructor takes more than it passes on comes back as a TypeError."""
    try:
        data = _dump(error)
        return data if type(pickle.loads(data)) is type(error) else b""
    except Exception:
        return b""


class OrdinalTraceback(Exception):  # noqa: N818 - the head of a traceback, no error of its own
    """The traceback of an ordinal, as the cause of its exception in the controller."""

    def __str__(self) -> str:
        """Begin on a line of its own."""
        return f"\n{self.args[0]}"


def load_error(raised: Raised, ordinal: int) -> BaseException | None:
    """Bring an exception back, with the ordinal's traceback as its cause; None if it could not travel."""
    if not raised.error:
        return None
    error: BaseException = pickle.loads(raised.error)
    error.__cause__ = OrdinalTraceback(f"on ordinal {ordinal}:\n{raised.text}")
    return error

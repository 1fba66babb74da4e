"""What the user asked for: of the run as a whole, and of one marked test."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from pytest_tpu.model.limits import Limits

if TYPE_CHECKING:
    from pytest_tpu.model.host import Host

COUNT: Final = "a whole number from 1"
SECONDS: Final = "a number of seconds from 0, where 0 means none"

BackendName: TypeAlias = Literal["auto", "tpu", "cpu"]

_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of one run, resolved once; the defaults are those of the command line, ini and environment too.

    Args:
        cores: how many cores the run has; None takes all of a TPU host and emulates nothing.
        backend: ``"auto"``, ``"tpu"`` or ``"cpu"``.
        timeout: seconds that one launch may take; 0 means no limit.
        stall_timeout: seconds that ordinals may wait in a collective for one that does nothing; 0 means no limit.
        grace: seconds between one signal and the next harsher one, when a world is stopped.
        isolate: whether every test of the run has a process of its own.
        isolate_marked: a mark expression: the tests it selects have a process of their own; empty selects none.
        require: whether tests fail that would be skipped for a missing host, package or core.
    """

    cores: int | None = None
    backend: BackendName = "auto"
    timeout: float = _LIMITS.timeout
    stall_timeout: float = _LIMITS.stall_timeout
    grace: float = _LIMITS.grace
    isolate: bool = False
    isolate_marked: str = ""
    require: bool = False

    def cores_on(self, host: Host) -> int:
        """How many of the cores of `host` the run has."""
        return min(self.cores or host.cores, host.cores)

    @property
    def limits(self) -> Limits:
        """The times that bound a launch with these settings."""
        return Limits(timeout=self.timeout, stall_timeout=self.stall_timeout, grace=self.grace)


class LaunchKind(Enum):
    """What a marker asks for; the values are the names of the decorators."""

    MULTI_PROCESS = "multi_process"
    ISOLATED = "isolated"

    @property
    def marker(self) -> str:
        """The name of the marker that asks for it."""
        return f"tpu_{self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedLaunch:
    """What a marker says about its test; None leaves the word to the run's settings.

    Args:
        kind: whether the body runs on every ordinal, or the test once in a process of its own.
        cores: the world sizes to run with, one after the other.
        timeout: seconds that one launch may take; 0 means no limit.
        stall_timeout: seconds that ordinals may wait in a collective for one that does nothing; 0 means no limit.
    """

    kind: LaunchKind
    cores: tuple[int, ...] | None = None
    timeout: float | None = None
    stall_timeout: float | None = None


def is_count(value: object) -> bool:
    """Whether `value` can be a number of cores; True and False, which Python counts as numbers, can't."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def is_seconds(value: object) -> bool:
    """Whether `value` can be a length of time; infinity can't, since 0 already says it."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0

"""The decorators and markers of tests: applying them, reading them, and what follows for the test."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from inspect import Signature, signature
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, overload

import pytest

from pytest_tpu.errors import MismatchError, SettingError
from pytest_tpu.model.settings import COUNT, SECONDS, LaunchKind, MarkedLaunch, Settings, is_count, is_seconds
from pytest_tpu.model.verdict import LaunchError, VerdictKind

if TYPE_CHECKING:
    from pytest_tpu.model.host import Host

Test = TypeVar("Test", bound="Callable[..., Any] | staticmethod[..., Any] | classmethod[Any, ..., Any]")
Cores: TypeAlias = int | Sequence[int] | None

_ARGUMENTS: Final = "cores=None, *, timeout=None, stall_timeout=None"
_MULTI_PROCESS: Final = (
    f"tpu_multi_process({_ARGUMENTS}): run the body of the test on every ordinal of a world of `cores` cores, all cores"
    " of the run if none are named; cores=(1, 8) runs it with one and with eight. Times are in seconds, 0 means none."
)
_ISOLATED: Final = (
    f"tpu_isolated({_ARGUMENTS}): run the test once, whole, in a process of its own that sees a TPU host of `cores`"
    " cores; what it launches itself is watched in the same way. Arguments as for tpu_multi_process."
)
PARAMETER: Final = "tpu_cores"
"""The parameter that runs a test with one world size after the other."""

MARKERS: Final = (_MULTI_PROCESS, _ISOLATED)
"""The lines of ``--markers``."""


@overload
def multi_process(test: Test, /) -> Test: ...
@overload
def multi_process(
    cores: Cores = None, *, timeout: float | None = None, stall_timeout: float | None = None
) -> Callable[[Test], Test]: ...
def multi_process(cores: Any = None, *, timeout: float | None = None, stall_timeout: float | None = None) -> Any:
    """Run the body of a test on every ordinal: bare, or called with arguments, on functions, methods and classes.

    Args:
        cores: the world size; None takes all cores of the run, several as in ``(1, 8)`` run the test with each.
        timeout: seconds that one launch may take; 0 means no limit, None what the run's settings say.
        stall_timeout: seconds to wait in a collective for an ordinal that is idle; 0 and None as for `timeout`.
    """
    return _decorate(LaunchKind.MULTI_PROCESS, cores, timeout=timeout, stall_timeout=stall_timeout)


@overload
def isolated(test: Test, /) -> Test: ...
@overload
def isolated(
    cores: Cores = None, *, timeout: float | None = None, stall_timeout: float | None = None
) -> Callable[[Test], Test]: ...
def isolated(cores: Any = None, *, timeout: float | None = None, stall_timeout: float | None = None) -> Any:
    """Run a test once, whole, in a process of its own that sees a TPU host; arguments as for `multi_process`.

    Args:
        cores: how many cores the host has; None takes all cores of the run, ``(1, 8)`` runs the test on each host.
        timeout: seconds that the test may take; 0 means no limit, None what the run's settings say.
        stall_timeout: seconds to wait in a collective for an ordinal that is idle; 0 and None as for `timeout`.
    """
    return _decorate(LaunchKind.ISOLATED, cores, timeout=timeout, stall_timeout=stall_timeout)


def _decorate(kind: LaunchKind, cores: object, **times: float | None) -> Any:
    """Apply the marker, to the test if it was given bare; values are judged at collection, where the test is known."""
    given = {name: value for name, value in times.items() if value is not None}
    # A classmethod object is not callable by itself.
    if callable(cores) or isinstance(cores, classmethod):
        return _mark(kind, given)(cores)
    return _mark(kind, given if cores is None else {"cores": cores, **given})


def _mark(kind: LaunchKind, arguments: dict[str, Any]) -> Callable[[Any], Any]:
    mark: pytest.MarkDecorator = getattr(pytest.mark, kind.marker)
    return cast("Callable[[Any], Any]", mark.with_args(**arguments))


def _signature(cores: Cores = None, *, timeout: float | None = None, stall_timeout: float | None = None) -> None:
    """Take what both markers take."""


SIGNATURE: Final[Signature] = signature(_signature)
_SEVERAL: Final = f"{COUNT}, or several different ones as in (1, 8)"


def parse(mark: pytest.Mark, where: str) -> MarkedLaunch:
    """Read a marker of ours, whether a decorator made it or it was written as ``pytest.mark.NAME``.

    Raises:
        SettingError: an argument is unknown or its value not allowed; `where` says on which test.
    """
    try:
        given = SIGNATURE.bind(*mark.args, **mark.kwargs).arguments
    except TypeError as error:
        known = "cores, timeout= and stall_timeout="
        raise SettingError(f"{mark.name} on {where}: {error}, the arguments are {known}") from None
    readers = {
        "cores": (_read_cores, _SEVERAL),
        "timeout": (_read_time, SECONDS),
        "stall_timeout": (_read_time, SECONDS),
    }
    read: dict[str, Any] = {}
    for name, value in given.items():
        reader, allowed = readers[name]
        try:
            read[name] = None if value is None else reader(value)
        except ValueError:
            message = f"{mark.name}({name}={value!r}) on {where} is not allowed: give {allowed}"
            raise SettingError(message) from None
    return MarkedLaunch(kind=next(kind for kind in LaunchKind if kind.marker == mark.name), **read)


def _read_cores(value: object) -> tuple[int, ...]:
    """Give one number and several of them one form; a set has no order to run in and a text no numbers."""
    several = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str | bytes) else (value,)
    if not several or not all(map(is_count, several)) or len(set(several)) < len(several):
        raise ValueError(value)
    return several


def _read_time(value: Any) -> float:
    if not is_seconds(value):
        raise ValueError(value)
    return float(value)


def launch_of(item: pytest.Item) -> MarkedLaunch | None:
    """Read the marker that holds for `item`, or None if it has none of ours.

    The closest wins: function over class over module, and on one of them the last, so that a subclass has the word
    over its base and one case of a parametrization over its function (pytest lists them in that order).

    Raises:
        SettingError: the closest markers are of both kinds, or say what can't be done with this item.
    """
    names = {kind.marker for kind in LaunchKind}
    marked = [(node, mark) for node, mark in item.iter_markers_with_node() if mark.name in names]
    if not marked:
        return None
    closest = [mark for node, mark in marked if node is marked[0][0]]
    if len({mark.name for mark in closest}) > 1:
        both = " and ".join(sorted({mark.name for mark in closest}))
        raise SettingError(f"{both} are both on {marked[0][0].nodeid}: keep one of them")
    launch = parse(closest[-1], item.nodeid)
    if launch.cores is not None and len(launch.cores) > 1 and (obstacle := _obstacle(item)):
        raise SettingError(
            f"{closest[-1].name}(cores={launch.cores}) on {item.nodeid} is not allowed, since {obstacle}"
        )
    return launch


def _obstacle(item: pytest.Item) -> str | None:
    """Say why `item` can't run with several world sizes one after the other, if it can't."""
    cls = getattr(item, "cls", None)
    # A module that has a TestCase has imported it: importing it here would cost every run 20 ms.
    unittest = sys.modules.get("unittest")
    if unittest is not None and isinstance(cls, type) and issubclass(cls, unittest.TestCase):
        return "pytest can't parametrize methods of unittest.TestCase: give one number, or write a method for each"
    # Before parametrization there is no callspec, and after it one without this parameter was made by pytest.param.
    callspec = getattr(item, "callspec", None)
    if callspec is not None and PARAMETER not in callspec.params:
        return "it stands on one case of a parametrization: give one number, or put it on the function"
    return None


def apply(launch: MarkedLaunch | None, settings: Settings) -> Settings:
    """Put the marker's word over the run's settings: the last step of the precedence that `options.resolve` states."""
    if launch is None:
        return settings
    return replace(
        settings,
        timeout=settings.timeout if launch.timeout is None else launch.timeout,
        stall_timeout=settings.stall_timeout if launch.stall_timeout is None else launch.stall_timeout,
    )


def unexcused(report: pytest.TestReport, error: BaseException | None) -> pytest.TestReport:
    """Fail a test whose xfail mark excused the end of a launch: the mark speaks of what a body raises, and no more."""
    if report.skipped and hasattr(report, "wasxfail") and _is_no_bodys(error):
        report.outcome = "failed"
        del report.wasxfail
    return report


def _is_no_bodys(error: BaseException | None) -> bool:
    if isinstance(error, LaunchError):
        return error.verdict.kind not in (VerdictKind.RAISED, VerdictKind.AGREED)
    return isinstance(error, MismatchError)


def world_sizes(wanted: Iterable[int | None], available: int | None) -> tuple[int, ...]:
    """Turn what a test wants into the world sizes it runs with, each once: on one core, 1 and N coincide.

    Args:
        wanted: numbers of cores; None stands for all that are available.
        available: the cores of the run, or None without a host: then "all" is one, and the test will be skipped.
    """
    return tuple(dict.fromkeys(available or 1 if cores is None else cores for cores in wanted))


def core_ids(sizes: Iterable[int]) -> list[str]:
    """Name world sizes in the ids of tests."""
    return [f"{size}core" if size == 1 else f"{size}cores" for size in sizes]


def availability(wanted: int | None, host: Host | None, settings: Settings, reason: str) -> str | None:
    """Decide whether a test can run with `wanted` cores: None if so, else why not.

    Args:
        wanted: the world size; None stands for all cores of the run.
        host: what there is to run on.
        settings: of the run; with `require` the answer is a failure, else a skip.
        reason: why there is no host, if there is none.
    """
    if host is None:
        return f"needs a TPU host: {reason}"
    cores = settings.cores_on(host)
    if wanted is None or (wanted <= cores and host.gives(wanted)):
        return None
    if wanted <= cores:
        return f"needs {wanted} cores and this TPU host gives 1 or {host.chips}"
    remedy = f"; --tpu-cores={wanted} emulates them" if host.emulated else ""
    return f"needs {wanted} cores and this run has {cores}{remedy}"

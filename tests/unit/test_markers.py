from __future__ import annotations

import inspect
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from pytest_tpu.errors import SettingError
from pytest_tpu.markers import (
    MARKERS,
    SIGNATURE,
    apply,
    availability,
    core_ids,
    isolated,
    launch_of,
    multi_process,
    parse,
    world_sizes,
)
from pytest_tpu.model.host import Host
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.settings import LaunchKind, MarkedLaunch, Settings

WHERE = "test_a.py::test_it"


@pytest.fixture(scope="module", autouse=True)
def registered(pytestconfig: pytest.Config) -> None:
    """Register the markers with the pytest that runs these tests, whether it has loaded the plugin or not."""
    for line in MARKERS:
        pytestconfig.addinivalue_line("markers", line)


def mark(name: str, *args: object, **kwargs: object) -> pytest.Mark:
    """A marker as pytest gives it to plugins."""
    return pytest.Mark(name, args, kwargs, _ispytest=True)


def marks(test: object) -> list[pytest.Mark]:
    """The markers that were applied to a test itself."""
    return list(getattr(test, "pytestmark", []))


def fresh() -> Callable[[int], str]:
    """A test to decorate, without any marker yet."""

    def test(value: int) -> str:
        return str(value)

    return test


if TYPE_CHECKING:
    # What mypy holds: a decorated test keeps its type, in either spelling.
    from typing_extensions import assert_type

    assert_type(multi_process(fresh()), Callable[[int], str])
    assert_type(multi_process(8, timeout=5)(fresh()), Callable[[int], str])
    assert_type(isolated(unittest.TestCase), type[unittest.TestCase])
    assert_type(isolated(cores=(1, 8))(unittest.TestCase), type[unittest.TestCase])


@pytest.mark.parametrize(
    ("decorator", "name"),
    [
        pytest.param(multi_process, "tpu_multi_process", id="multi"),
        pytest.param(isolated, "tpu_isolated", id="isolated"),
    ],
)
class TestDecorators:
    def test_bare(self, decorator: Any, name: str) -> None:
        """Bare, the decorator applies its marker without arguments and gives the test back itself."""
        test = fresh()

        assert test is decorator(test)
        assert [mark(name)] == marks(test)

    def test_empty_call(self, decorator: Any, name: str) -> None:
        """Called with nothing it does the same as bare."""
        assert [mark(name)] == marks(decorator()(fresh()))

    def test_positional_cores(self, decorator: Any, name: str) -> None:
        """The number of cores may stand alone."""
        assert [mark(name, cores=8)] == marks(decorator(8)(fresh()))

    def test_keywords(self, decorator: Any, name: str) -> None:
        """What was given, zero included, stands in the marker, and nothing else does."""
        test = decorator(cores=(1, 8), timeout=0)(fresh())

        assert [mark(name, cores=(1, 8), timeout=0)] == marks(test)

    @pytest.mark.parametrize("base", [object, unittest.TestCase])
    def test_class(self, decorator: Any, name: str, base: type) -> None:
        """A class is decorated like a function, bare and called."""
        bare = type("TestBare", (base,), {})
        called = type("TestCalled", (base,), {})

        assert bare is decorator(bare)
        assert called is decorator(2)(called)
        assert [mark(name)] == marks(bare)
        assert [mark(name, cores=2)] == marks(called)

    @pytest.mark.parametrize("kind", [staticmethod, classmethod])
    def test_other_methods(self, decorator: Any, name: str, kind: Callable[[Any], Any]) -> None:
        """Static and class methods stay what they are."""
        method = kind(fresh())

        assert method is decorator(method)
        assert [mark(name)] == marks(method.__func__)

    def test_wrong_name(self, decorator: Any, name: str) -> None:
        """An argument that does not exist fails where it is written."""
        with pytest.raises(TypeError, match="unexpected keyword argument 'core'"):
            decorator(core=8)

    def test_signature(self, decorator: Any, name: str) -> None:
        """Decorator and marker take the same arguments."""
        assert list(SIGNATURE.parameters) == list(inspect.signature(decorator).parameters)
        assert [p.kind for p in SIGNATURE.parameters.values()] == [
            p.kind for p in inspect.signature(decorator).parameters.values()
        ]

    def test_listed(self, decorator: Any, name: str) -> None:
        """The line of --markers begins with the marker and its arguments."""
        assert 1 == sum(
            line.startswith(f"{name}(cores=None, *, timeout=None, stall_timeout=None): ") for line in MARKERS
        )


class TestParse:
    @pytest.mark.parametrize(
        ("args", "kwargs", "expected"),
        [
            ((), {}, {}),
            ((8,), {}, {"cores": (8,)}),
            ((), {"cores": 1}, {"cores": (1,)}),
            (((1, 8),), {}, {"cores": (1, 8)}),
            ((), {"cores": [8, 1]}, {"cores": (8, 1)}),
            ((), {"cores": range(1, 4)}, {"cores": (1, 2, 3)}),
            ((None,), {"timeout": None}, {}),
            ((), {"timeout": 5}, {"timeout": 5.0}),
            ((2,), {"timeout": 0, "stall_timeout": 0.5}, {"cores": (2,), "timeout": 0.0, "stall_timeout": 0.5}),
        ],
    )
    def test_allowed(self, args: tuple[object, ...], kwargs: dict[str, object], expected: dict[str, Any]) -> None:
        """Both markers are read by their signature into one form."""
        assert MarkedLaunch(kind=LaunchKind.MULTI_PROCESS, **expected) == parse(
            mark("tpu_multi_process", *args, **kwargs), WHERE
        )
        assert MarkedLaunch(kind=LaunchKind.ISOLATED, **expected) == parse(mark("tpu_isolated", *args, **kwargs), WHERE)

    @pytest.mark.parametrize(
        "cores", [0, -1, 1.5, "8", "18", b"\x08", True, (), [], (1, 0), (8, 8), (1, True), {1, 8}, ((1, 8),)]
    )
    def test_cores_refused(self, cores: object) -> None:
        """Cores that can't be run with are refused, with the test and what is allowed."""
        with pytest.raises(SettingError) as caught:
            parse(mark("tpu_multi_process", cores=cores), WHERE)

        assert (
            f"tpu_multi_process(cores={cores!r}) on {WHERE} is not allowed:"
            " give a whole number from 1, or several different ones as in (1, 8)"
        ) == str(caught.value)

    @pytest.mark.parametrize("name", ["timeout", "stall_timeout"])
    @pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "5", True, (1,)])
    def test_times_refused(self, name: str, seconds: object) -> None:
        """Times that are no length of time are refused, with the test and what is allowed."""
        with pytest.raises(SettingError) as caught:
            parse(mark("tpu_isolated", **{name: seconds}), WHERE)

        assert (
            f"tpu_isolated({name}={seconds!r}) on {WHERE} is not allowed:"
            " give a number of seconds from 0, where 0 means none"
        ) == str(caught.value)

    @pytest.mark.parametrize(
        ("args", "kwargs", "problem"),
        [
            ((), {"core": 8}, "got an unexpected keyword argument 'core'"),
            ((8, 300), {}, "too many positional arguments"),
            ((8,), {"cores": 8}, "multiple values for argument 'cores'"),
        ],
    )
    def test_arguments_refused(self, args: tuple[object, ...], kwargs: dict[str, object], problem: str) -> None:
        """Arguments that don't fit the signature are refused, with the test and the arguments that exist."""
        with pytest.raises(SettingError) as caught:
            parse(mark("tpu_multi_process", *args, **kwargs), WHERE)

        assert f"tpu_multi_process on {WHERE}: {problem}, the arguments are cores, timeout= and stall_timeout=" == str(
            caught.value
        )


@dataclass(frozen=True)
class FakeNode:
    """A node of the collection tree with what was marked on it."""

    nodeid: str
    own: tuple[pytest.Mark, ...] = ()


@dataclass(frozen=True)
class FakeItem:
    """An item with its chain of nodes, the closest first."""

    nodes: tuple[FakeNode, ...]
    cls: type | None = None
    callspec: object = None
    nodeid: str = field(default=WHERE)

    def iter_markers_with_node(self) -> Iterator[tuple[FakeNode, pytest.Mark]]:
        """Iterate as pytest does: node by node, and on each in the order of application."""
        return ((node, own) for node in self.nodes for own in node.own)


def launch(
    *levels: tuple[pytest.Mark, ...], cls: type | None = None, params: dict[str, object] | None = None
) -> MarkedLaunch | None:
    """Read the launch of an item whose function, class, module … have these markers."""
    nodes = tuple(FakeNode(f"level-{number}", own) for number, own in enumerate(levels))
    callspec = None if params is None else SimpleNamespace(params=params)
    return launch_of(cast("pytest.Item", FakeItem(nodes, cls, callspec)))


ONE, EIGHT = mark("tpu_multi_process", cores=1), mark("tpu_multi_process", cores=8)
ALONE = mark("tpu_isolated")
SWEEP = mark("tpu_multi_process", cores=(1, 8))


class TestLaunchOf:
    def test_no_marker(self) -> None:
        """A test without markers of ours is none of ours, a bare tpu label included."""
        assert None is launch((mark("tpu"), mark("slow")), (mark("tpu"),))

    @pytest.mark.parametrize(
        ("levels", "cores"),
        [
            (((ONE,), (EIGHT,), (EIGHT,)), 1),
            (((), (ONE,), (EIGHT,)), 1),
            (((mark("tpu"),), (), (EIGHT,)), 8),
            (((EIGHT, ONE),), 1),
        ],
    )
    def test_closest(self, levels: tuple[tuple[pytest.Mark, ...], ...], cores: int) -> None:
        """Function goes over class over module, and on one of them the last has the word."""
        assert MarkedLaunch(kind=LaunchKind.MULTI_PROCESS, cores=(cores,)) == launch(*levels)

    def test_other_kind_further_away(self) -> None:
        """One test of a class that runs on every ordinal can be isolated."""
        assert MarkedLaunch(kind=LaunchKind.ISOLATED) == launch((ALONE,), (EIGHT,))

    def test_both_kinds(self) -> None:
        """Both markers on one place are refused, with the place."""
        with pytest.raises(SettingError, match="tpu_isolated and tpu_multi_process are both on level-1"):
            launch((), (ALONE, EIGHT))

    def test_testcase(self) -> None:
        """A method of a TestCase runs with one world size, since pytest can't parametrize it."""
        assert MarkedLaunch(kind=LaunchKind.MULTI_PROCESS, cores=(8,)) == launch((EIGHT,), cls=unittest.TestCase)
        with pytest.raises(SettingError) as caught:
            launch((SWEEP,), cls=unittest.TestCase)

        assert (
            f"tpu_multi_process(cores=(1, 8)) on {WHERE} is not allowed, since pytest can't parametrize methods of"
            " unittest.TestCase: give one number, or write a method for each"
        ) == str(caught.value)

    def test_case(self) -> None:
        """One case of a parametrization runs with one world size, since nothing parametrizes it again."""
        assert MarkedLaunch(kind=LaunchKind.MULTI_PROCESS, cores=(8,)) == launch((EIGHT,), params={"value": 0})
        assert MarkedLaunch(kind=LaunchKind.MULTI_PROCESS, cores=(1, 8)) == launch((SWEEP,), params={"tpu_cores": 8})
        with pytest.raises(SettingError) as caught:
            launch((SWEEP,), params={"value": 0})

        assert (
            f"tpu_multi_process(cores=(1, 8)) on {WHERE} is not allowed, since it stands on one case of a"
            " parametrization: give one number, or put it on the function"
        ) == str(caught.value)

    def test_ordinary_class(self) -> None:
        """A method of any other class runs with several."""
        assert MarkedLaunch(kind=LaunchKind.MULTI_PROCESS, cores=(1, 8)) == launch((SWEEP,), cls=object)


@pytest.mark.parametrize(
    ("marked", "expected"),
    [
        (None, Limits(timeout=10.0, grace=1.0)),
        (MarkedLaunch(kind=LaunchKind.ISOLATED), Limits(timeout=10.0, grace=1.0)),
        (MarkedLaunch(kind=LaunchKind.ISOLATED, timeout=3.0), Limits(timeout=3.0, grace=1.0)),
        (MarkedLaunch(kind=LaunchKind.ISOLATED, timeout=0.0), Limits(timeout=0.0, grace=1.0)),
    ],
)
def test_apply(marked: MarkedLaunch | None, expected: Limits) -> None:
    """The marker goes before the run's settings, also where it takes the limit away."""
    assert expected == apply(marked, Settings(timeout=10.0, grace=1.0)).limits


@pytest.mark.parametrize(
    ("wanted", "available", "expected"),
    [
        ((1, None), 8, (1, 8)),
        ((1, None), 1, (1,)),
        ((1, 8), 8, (1, 8)),
        ((8, 1), 8, (8, 1)),
        ((1, 8), 4, (1, 8)),
        ((None,), 4, (4,)),
        ((1, None), None, (1,)),
        ((1, 8), None, (1, 8)),
    ],
)
def test_world_sizes(wanted: tuple[int | None, ...], available: int | None, expected: tuple[int, ...]) -> None:
    """None stands for all cores, what coincides runs once, and too large a size stays, to be skipped by name."""
    assert expected == world_sizes(wanted, available)


def test_core_ids() -> None:
    """Ids say the number of cores, with the plural where it belongs."""
    assert ["1core", "8cores"] == core_ids((1, 8))


EMULATED = Host(backend="cpu", emulated=True, cores=8, chips=8, version="v5e")
REAL = Host(backend="tpu", emulated=False, cores=4, chips=4, version="v4")


class TestAvailability:
    @pytest.mark.parametrize(
        ("wanted", "host", "cores", "expected"),
        [
            (None, EMULATED, 8, None),
            (8, EMULATED, 8, None),
            (1, EMULATED, 8, None),
            (16, EMULATED, 8, "needs 16 cores and this run has 8; --tpu-cores=16 emulates them"),
            (None, REAL, None, None),
            (4, REAL, None, None),
            (1, REAL, None, None),
            (2, REAL, None, "needs 2 cores and this TPU host gives 1 or 4"),
            (8, REAL, None, "needs 8 cores and this run has 4"),
            (4, REAL, 2, "needs 4 cores and this run has 2"),
            (None, None, None, "needs a TPU host: torch_xla is not installed"),
            (1, None, None, "needs a TPU host: torch_xla is not installed"),
        ],
    )
    def test_availability(self, wanted: int | None, host: Host | None, cores: int | None, expected: str | None) -> None:
        """A test runs on what the run has; else the reason says what is missing and, where it can, how to get it."""
        assert expected == availability(wanted, host, Settings(cores=cores), "torch_xla is not installed")

"""What the bridge does besides computing: it compares, refuses, counts, keeps quiet, and stays out of the way."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tpu.errors import MismatchError, UnsupportedError
from tests.process.bridge_worlds import raising, run, run_collectives

if TYPE_CHECKING:
    from pytest_tpu.model.place import Place

pytestmark = pytest.mark.process


def _tensor(values: Any, dtype: str = "float32") -> Any:
    import torch
    import torch_xla

    return torch.tensor(values, dtype=getattr(torch, dtype)).to(torch_xla.device())


# Two calls, and how they are shown.
MISMATCHES: dict[str, tuple[Callable[..., Any], Callable[..., Any], str, str]] = {
    "reduction": (
        lambda xm, x: xm.all_reduce("sum", x),
        lambda xm, x: xm.all_reduce("max", x),
        "all_reduce(sum, float32[2x2])",
        "all_reduce(max, float32[2x2])",
    ),
    "dtype": (
        lambda xm, x: xm.all_reduce("sum", x),
        lambda xm, x: xm.all_reduce("sum", x.int()),
        "all_reduce(sum, float32[2x2])",
        "all_reduce(sum, int32[2x2])",
    ),
    "shape": (
        lambda xm, x: xm.all_reduce("sum", x),
        lambda xm, x: xm.all_reduce("sum", x[:1]),
        "all_reduce(sum, float32[2x2])",
        "all_reduce(sum, float32[1x2])",
    ),
    "scalar": (
        lambda xm, x: xm.all_reduce("sum", x.sum()),
        lambda xm, x: xm.all_reduce("sum", x.sum().reshape(1)),
        "all_reduce(sum, float32[scalar])",
        "all_reduce(sum, float32[1])",
    ),
    "kind": (
        lambda xm, x: xm.all_reduce("sum", x),
        lambda xm, x: xm.all_gather(x, pin_layout=False),
        "all_reduce(sum, float32[2x2])",
        "all_gather(float32[2x2], dim=0)",
    ),
    "scale": (
        lambda xm, x: xm.all_reduce("sum", [x], scale=0.5),
        lambda xm, x: xm.all_reduce("sum", [x], scale=0.25),
        "all_reduce(sum, float32[2x2], scale=0.5)",
        "all_reduce(sum, float32[2x2], scale=0.25)",
    ),
    "length of a list": (
        lambda xm, x: xm.all_reduce("sum", [x, x, x]),
        lambda xm, x: xm.all_reduce("sum", [x, x]),
        "all_reduce(sum, float32[2x2 (3 times)])",
        "all_reduce(sum, float32[2x2 (2 times)])",
    ),
    "dimension": (
        lambda xm, x: xm.all_to_all(x, 0, 1, 2),
        lambda xm, x: xm.all_to_all(x, 1, 0, 2),
        "all_to_all(float32[2x2], split_dim=0, concat_dim=1)",
        "all_to_all(float32[2x2], split_dim=1, concat_dim=0)",
    ),
    "pairs": (
        lambda xm, x: xm.collective_permute(x, [[0, 1]]),
        lambda xm, x: xm.collective_permute(x, [[1, 0]]),
        "collective_permute(float32[2x2], 0->1)",
        "collective_permute(float32[2x2], 1->0)",
    ),
    "order in a group": (
        lambda xm, x: xm.all_reduce("sum", [x], groups=[[0, 1]]),
        lambda xm, x: xm.all_reduce("sum", [x], groups=[[1, 0]]),
        "all_reduce(sum, float32[2x2])",
        "all_reduce(sum, float32[2x2], group=[1, 0])",
    ),
}


@pytest.fixture(scope="module")
def mismatched() -> list[dict[str, str]]:
    """Make every pair of calls that don't match, in one world; each is followed by one that matches."""

    def body(place: Place) -> dict[str, str]:
        import torch_xla.core.xla_model as xm

        said = {}
        for name, (first, second, _, _) in MISMATCHES.items():
            texts: list[str] = []
            with raising(MismatchError, texts):
                (second if place.ordinal else first)(xm, _tensor([[1.0, 2.0], [3.0, 4.0]]))
            assert [3.0] == xm.all_reduce("sum", _tensor([1.0 + place.ordinal])).cpu().tolist()
            said[name] = texts[0]
        return said

    return run_collectives(2, body)


@pytest.mark.parametrize("name", MISMATCHES)
def test_calls_that_do_not_match(name: str, mismatched: list[dict[str, str]]) -> None:
    """Both ordinals get an error that shows both calls; nothing was moved, and the world goes on."""
    _, _, first, second = MISMATCHES[name]

    assert [f"ordinal 0 called {first}; ordinal 1 called {second}"] * 2 == [said[name] for said in mismatched]


def test_what_torch_xla_refuses() -> None:
    """Calls that are wrong on every ordinal raise what torch_xla raises, and name what is not there."""

    def body(place: Place) -> list[str]:
        import torch
        import torch_xla.core.xla_model as xm

        x = _tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
        texts: list[str] = []
        wrong: tuple[Callable[[], Any], ...] = (
            lambda: xm.all_reduce("avg", x),
            lambda: xm.all_reduce("avg", [x]),
            lambda: xm.all_reduce("and", [x]),
            lambda: xm.all_reduce("sum", [torch.ones(2)]),
            lambda: xm.reduce_scatter("sum", x, 1.0, 0, 2),
            lambda: xm.all_to_all(x, 0, 0, 2),
            lambda: xm.all_gather(x, dim=2, pin_layout=False),
            lambda: xm.collective_permute(x, [[0, 1], [0, 0]]),
        )
        for call in wrong:
            with raising(RuntimeError, texts):
                call()
        with raising(ValueError, texts):
            torch.ops._c10d_functional.reduce_scatter_tensor(x[:2], "avg", 2, "0")
        with raising(RuntimeError, texts):
            torch.ops._c10d_functional.all_to_all_single(x[:2], [1, 1], [2, 0], "0")
        for refused in (xm.send, xm.recv):
            with raising(UnsupportedError, texts):
                refused(x, 1)
        return texts

    expected = [
        "Unknown AllReduce type: avg",
        "Unknown AllReduce type: avg",
        "Expected pred or integral type in argument to and/or operation; got float32.",
        "Expected XLA tensor. Got: torch.FloatTensor",
        "ReduceScatter operand scatter dimension size 3 must be dividable by shard_count 2.",
        "AllToAll split dimension size 3 must be dividable by split_count 2.",
        "all_gather along dimension 2 of a tensor that has 2",
        "Source and target ids of a collective permute must be unique, got [[0, 1], [0, 0]]",
        "Invalid string for AllReduceType: avg",
        "torch_xla does not support arbitrary split sizes for all_to_all",
        "xm.send does not exist on the emulated host; xm.collective_permute does the same there",
        "xm.recv does not exist on the emulated host; xm.collective_permute does the same there",
    ]

    assert [expected] * 2 == run_collectives(2, body)


def test_counters() -> None:
    """The counters in torch_xla's metrics rise as they do with its own collectives."""
    names = ("all_reduce", "AllReduce", "AllReduceInPlace", "AllGather", "ReduceScatter", "AllToAll")

    def body(place: Place) -> dict[str, Any]:
        import torch_xla.core.xla_model as xm
        import torch_xla.debug.metrics as met

        x = _tensor([1.0, 2.0])
        met.clear_all()
        xm.all_reduce("sum", x)
        xm.all_reduce("sum", x, scale=0.5)
        xm.all_reduce("sum", [x])
        xm.all_gather(x, pin_layout=False)
        xm.reduce_scatter("sum", x, 1.0, 0, 2)
        xm.all_to_all(x, 0, 0, 2)
        return {name: met.counter_value(f"xla::{name}") for name in names}

    assert [dict.fromkeys(names, 1)] * 2 == run_collectives(2, body)


def test_threads() -> None:
    """Collectives from several threads of each ordinal never mix up their data."""

    def body(place: Place) -> list[list[float]]:
        import torch_xla.core.xla_model as xm

        seen: list[list[float]] = []

        def calls(number: int) -> None:
            for _ in range(10):
                # Ordinals and threads interleave as they like: what is added is the same whoever meets whom.
                seen.append(xm.all_reduce("sum", _tensor([1.0] * 3), groups=[[0, 1]]).cpu().tolist())
                seen.append(xm.all_reduce("sum", _tensor([1.0] * 3), scale=2.0, groups=[[0], [1]]).cpu().tolist())

        threads = [threading.Thread(target=calls, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return sorted(seen)

    assert [[[2.0] * 3] * 60] * 2 == run_collectives(2, body)


def test_silence(capfd: pytest.CaptureFixture[str]) -> None:
    """Gloo's lines about its connections are not seen, and what is printed while it connects is."""

    def body(place: Place) -> float:
        import torch_xla.core.xla_model as xm

        stop = threading.Event()

        def talk() -> None:
            while not stop.is_set():
                os.write(1, b"user\n")
                stop.wait(0.0005)

        talker = threading.Thread(target=talk)
        talker.start()
        total: float = xm.all_reduce("sum", _tensor([1.0])).item()
        stop.set()
        talker.join(30)
        return total

    assert [2.0, 2.0] == run_collectives(2, body)
    out, err = capfd.readouterr()

    assert {"user"} == set(out.split())
    assert "Gloo" not in err


def test_a_signal_ends_a_backward_pass_that_waits() -> None:
    """An ordinal that waits in a collective of its backward pass can be interrupted, in any process before the runtime.

    The forking process has run a backward pass itself, which without our care breaks those of all ordinals.
    """
    import torch

    torch.ones(2, requires_grad=True).sum().backward()

    class AlarmError(Exception):
        pass

    def interrupt(number: int, frame: Any) -> None:
        raise AlarmError("interrupted")

    def body(place: Place) -> list[str]:
        from torch_xla.core.functions import AllReduceSumLayer

        x = _tensor([1.0 + place.ordinal]).requires_grad_()
        loss = AllReduceSumLayer.apply(x).sum()
        said: list[str] = []
        if place.ordinal == 0:
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with raising(AlarmError, said):
                loss.backward()
        return said

    assert [["interrupted"], []] == run_collectives(2, body)


def test_an_ordinal_alone_is_left_to_xla() -> None:
    """A world of one computes its collectives in XLA: nothing is bridged."""

    def body(place: Place) -> list[Any]:
        import torch_xla.core.xla_model as xm

        x = _tensor([1.0, 2.0])
        return [xm.all_reduce("sum", x).tolist(), xm.all_gather(x, pin_layout=False).tolist(), xm.rendezvous("a", b"b")]

    assert [[[1.0, 2.0], [1.0, 2.0], [b"b"]]] == run_collectives(1, body)


def test_inert_outside_worlds() -> None:
    """In a process that is no ordinal the wrapped functions are torch_xla's own."""

    def body(place: Place) -> list[Any]:
        # Without the backend's `enter`: a forked process that is not made an ordinal.
        os.environ["PJRT_DEVICE"] = "CPU"

        import torch_xla

        from pytest_tpu.backend.cpu import bridge

        bridge.install()
        bridge.install()
        x = _tensor([2.0])
        # XLA's own sum over a group of one; the bridge would have nobody to meet, and would count nothing.
        reduced = torch_xla._XLAC._xla_all_reduce("sum", x, 3.0, [[0]], False)
        return [bridge.joined(), reduced.tolist()]

    assert [[None, [6.0]]] == run(1, body)


def test_many_groups_at_once() -> None:
    """Every pair of ordinals is a group of its own, connected when it is first used."""

    def body(place: Place) -> list[float]:
        import torch_xla.core.xla_model as xm

        matchings = ([[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 3], [1, 2]])
        mine = float(place.ordinal)
        return [xm.all_reduce("sum", [_tensor([mine])], groups=groups)[0].item() for groups in matchings]

    assert [[1.0, 2.0, 3.0], [1.0, 4.0, 3.0], [5.0, 2.0, 3.0], [5.0, 4.0, 3.0]] == run_collectives(4, body)


def test_nothing_is_left_when_all_are_killed() -> None:
    """Ordinals that are killed while they are connected leave no file and no shared memory."""
    before = set(os.listdir("/dev/shm")), set(os.listdir("/tmp"))  # noqa: PTH208 - names are all we want

    def body(place: Place) -> float:
        import torch_xla.core.xla_model as xm

        total: float = xm.all_reduce("sum", _tensor([1.0])).item()
        return total

    assert [2.0, 2.0] == run_collectives(2, body)
    new = [name for name in set(os.listdir("/tmp")) - before[1] if "tpu" in name or "gloo" in name]  # noqa: PTH208

    assert before[0] == set(os.listdir("/dev/shm"))  # noqa: PTH208
    assert [] == new

"""Runs a callable on the ordinals of a fresh world: for `tpu_launch`, and for programs that launch by themselves."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_tpu.backend import Backend
from pytest_tpu.diagnose.table import table
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.place import Place
from pytest_tpu.model.verdict import LaunchError, VerdictKind
from pytest_tpu.ordinal import call
from pytest_tpu.process.output import OutputFiles
from pytest_tpu.supervise import Ended, Launch, supervise


def run(fn: Callable[[], Any], *, cores: int, backend: Backend, limits: Limits) -> list[Any]:
    """Call `fn` on `cores` ordinals and bring back what they returned, in ordinal order.

    Args:
        fn: called without arguments; reaches the ordinals by fork, so that it need not be picklable.
        cores: the world size.
        backend: of this process; loaded here.
        limits: of the launch.

    Returns:
        One value for each ordinal; XLA tensors as CPU tensors.

    Raises:
        Exception: what an ordinal raised, with its traceback as the cause.
        LaunchError: any other end that is not a return on every ordinal.
    """
    backend.load()

    def work(_place: Place, _output: OutputFiles, _send: Callable[[Any], None]) -> Any:
        return call.run(fn, backend.to_host)

    ended = supervise(Launch(cores=cores, work=work, limits=limits, on_output=show_output), backend)
    return _results(ended)


def _results(ended: Ended) -> list[Any]:
    if ended.exited is not None and ended.exited.interrupted:
        raise KeyboardInterrupt(ended.exited.reason)
    if not ended.verdict.passed:
        raise _error(ended)
    return [pickle.loads(data.value) for data in ended.data]


def _error(ended: Ended) -> BaseException:
    verdict = ended.verdict
    first = verdict.first or 0
    raised = ended.data[first]
    spoke = verdict.kind in (VerdictKind.RAISED, VerdictKind.AGREED, VerdictKind.MISMATCHED)
    text = f"{verdict.headline}\n\n{table(verdict)}"
    if not spoke or not isinstance(raised, call.Raised):
        return LaunchError(verdict, text)
    return call.load_error(raised, first) or LaunchError(verdict, f"{text}\n\non ordinal {first}:\n{raised.text}")


def show_output(ordinal: int, output: OutputFiles, rest: bool) -> None:
    """Write what an ordinal has written, whole lines with the ordinal in front, as they come."""
    for name in ("stdout", "stderr"):
        for line in output.new_lines(name, rest=rest):
            print(f"[ordinal {ordinal}] {line}", file=getattr(sys, name), flush=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launcher:
    """What `torch_xla.launch`, `xmp.spawn` and Lightning's launcher end in.

    Args:
        backend: of this process.
        cores: how many ordinals a launch has.
        limits: of each launch.
        refuse: raises if a launch is not possible in this process now.
    """

    backend: Backend
    cores: int
    limits: Limits
    refuse: Callable[[], None] = lambda: None

    def __call__(self, fn: Callable[[], Any], _start_method: str) -> dict[int, Any]:
        """Run `fn` on every ordinal; the results by ordinal."""
        self.refuse()
        return dict(enumerate(run(fn, cores=self.cores, backend=self.backend, limits=self.limits)))

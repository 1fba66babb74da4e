"""Runs pytest in a fork of this process, for what would spoil it: there torch_xla is imported, and no runtime is up."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest

from pytest_tpu.process.lifeline import die_with_parent

_BOUND = 120.0
"""Seconds that a run may take."""


def run_forked(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """Run pytest as `pytester.runpytest_inprocess` does, in a child that shares what is imported and nothing after."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_run, args=(os.getpid(), pytester, args, send))
    process.start()
    send.close()
    try:
        assert receive.poll(_BOUND), f"the run has not ended within {_BOUND} s"
        ret, outlines, errlines, duration = receive.recv()
    finally:
        process.kill()
        process.join()
        receive.close()
    return pytest.RunResult(ret, outlines, errlines, duration)


def _run(parent: int, pytester: pytest.Pytester, args: tuple[str, ...], send: Any) -> None:
    die_with_parent(parent)
    # A timer of faulthandler's that was armed before a fork can't be cancelled after it: that waits for ever.
    result = pytester.runpytest_inprocess("-pno:faulthandler", *args)
    send.send((int(result.ret), result.outlines, result.errlines, result.duration))

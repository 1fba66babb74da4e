"""Who initialised the XLA runtime in pytest's own process: from then on no ordinal can be forked from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest

from pytest_tpu.model.verdict import LaunchError


class RuntimeTouchedWarning(UserWarning):
    """Something initialised the XLA runtime in pytest's process, so that launches after it are refused.

    Move it into the body of a test or into a function-scope fixture that uses `tpu_world`, or run the tests that
    touch the device isolated.
    """


class Guard:
    """Looks after each step of pytest whether the runtime has come up, and keeps the name of the step.

    Args:
        runtime_initialized: tells whether it is up.
        launches: whether this run can launch ordinals: where it can't, nobody needs the warning.
    """

    def __init__(self, runtime_initialized: Callable[[], bool], *, launches: bool) -> None:
        self._initialized = runtime_initialized
        self._launches = launches
        self._why: str | None = None

    def look(self, node: pytest.Item | pytest.Collector, step: str, remedy: str) -> None:
        """Warn, once, if the runtime has come up during `step`.

        Args:
            node: for pytest's warning.
            step: in words, for example ``"the fixture 'model'"``.
            remedy: what to do instead.
        """
        if self._why is not None or not self._initialized():
            return
        self._why = f"{step} initialised the XLA runtime in pytest's own process: {remedy}"
        if not self._launches:
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn(
                RuntimeTouchedWarning(f"{self._why}; tests on ordinals are refused from now on"), stacklevel=1
            )
        # Recorded past the filters: with -W error the warning would be an internal error of whichever hook looks.
        node.ihook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": caught[0], "nodeid": node.nodeid, "when": "runtest", "location": None}
        )

    def refuse(self) -> None:
        """Raise REFUSED if ordinals can't be forked any more; names who did it, and what to use instead.

        Raises:
            LaunchError: the runtime is up.
        """
        if self._initialized():
            why = self._why or f"the XLA runtime was initialised in pytest's own process: {ISOLATE_ALL}"
            raise LaunchError.refused(f"no ordinal can be forked, since {why}")

    def stand_down(self) -> None:
        """Let an isolated test use the runtime, in its own process; a launch after that is refused there too."""
        self._why = "the test has used the XLA device in its own process: launch before that"


ISOLATE_ALL = "run pytest --tpu-isolate"
ISOLATE = f"{ISOLATE_ALL}, or move it into a test body that runs on ordinals"
"""The remedy for what runs with a test: the command that gives each test a process of its own."""


def move(node: pytest.Item | pytest.Collector) -> str:
    """The remedy for what runs at import, where isolation comes too late."""
    return f"move it from the import of {node.nodeid} into a test or a fixture, and run those with --tpu-isolate"

"""Who initialised the XLA runtime in pytest's own process: from then on no ordinal can be forked from it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

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
        isolates: whether each test that does not run on ordinals has a process of its own already.
    """

    def __init__(self, runtime_initialized: Callable[[], bool], *, launches: bool, isolates: bool = False) -> None:
        self._initialized = runtime_initialized
        self._launches = launches
        self._remedy = TO_ORDINALS if isolates else f"{ISOLATE_ALL}, or {TO_ORDINALS}"
        self._why: str | None = None

    def look_before(self, node: pytest.Item | pytest.Collector, step: str) -> None:
        """Warn, once, if the runtime has come up where nobody looked, so that `step` is not accused of it."""
        self.look(node, f"something before {step}", move_from("there"))

    def look(self, at: pytest.Item | pytest.Collector | pytest.Config, step: str, remedy: str | None = None) -> None:
        """Warn, once, if the runtime has come up during `step`.

        Args:
            at: for pytest's warning.
            step: in words, for example ``"the fixture 'model'"``.
            remedy: what to do instead; None for what runs with a test.
        """
        if self._why is not None or not self._initialized():
            return
        self._why = f"{step} initialised the XLA runtime in pytest's own process: {remedy or self._remedy}"
        if not self._launches:
            return
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn(
                RuntimeTouchedWarning(f"{self._why}; tests on ordinals are refused from now on"), stacklevel=1
            )
        # Recorded past the filters: with -W error the warning would be an internal error of whichever hook looks.
        if isinstance(at, pytest.Config):
            hook, nodeid, when = at.hook, "", "config"
        else:
            hook, nodeid, when = at.ihook, at.nodeid, "runtest"
        hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": caught[0], "nodeid": nodeid, "when": when, "location": None}
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
TO_ORDINALS = "move it into the body of a test on ordinals, or into a fixture that asks for tpu_world"
"""The remedy for what runs with a test on ordinals, whose fixtures are set up in pytest's process."""


def move_from(place: str) -> str:
    """The remedy for what runs at import, where isolation comes too late."""
    return f"move it from {place} into a test or a fixture, and run those with --tpu-isolate"


def named(fixture: pytest.FixtureDef[object]) -> str:
    """Say which fixture it is; those of pytest, of plugins and of the root directory have no place."""
    return f"the fixture {fixture.argname!r}" + (f" ({fixture.baseid})" if fixture.baseid else "")


def look_at_import(guard: Guard, config: pytest.Config, plugin: object) -> None:
    """Look who touches the runtime while a conftest or another plugin is imported."""
    file = getattr(plugin, "__file__", None)
    if isinstance(file, str):
        path = Path(file)
        name = path.relative_to(config.rootpath).as_posix() if path.is_relative_to(config.rootpath) else file
        step = f"the import of {name}"
        guard.look(config, step, move_from(step))

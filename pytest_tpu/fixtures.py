"""What tests use."""

from __future__ import annotations

import functools
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from pytest_tpu import private
from pytest_tpu.errors import BackendError
from pytest_tpu.markers import apply, availability, launch_of
from pytest_tpu.model.host import Host
from pytest_tpu.model.settings import COUNT, is_count
from pytest_tpu.model.verdict import LaunchError
from pytest_tpu.model.world import World
from pytest_tpu.run import RUN, WORLD, Run


class LaunchFunction(Protocol):
    """The type of the fixture `tpu_launch`."""

    def __call__(
        self, fn: Callable[..., Any], *args: Any, cores: int | None = None, timeout: float | None = None
    ) -> list[Any]:
        """Run `fn(*args)` on every ordinal."""
        ...


def _run(request: pytest.FixtureRequest) -> Run:
    return request.config.stash[RUN]


@pytest.fixture
def tpu_world(request: pytest.FixtureRequest) -> World:
    """This ordinal's view of the world: ordinal, size, device, rendezvous(tag, payload), tmp_path (shared).

    A test that uses it runs on every ordinal, and so do function-scope fixtures that use it.
    """
    world = World(_shared_directory(request))
    request.node.stash[WORLD] = world
    return world


def _shared_directory(request: pytest.FixtureRequest) -> Path:
    """The test's tmp_path, unless that is someone else's and the test did not ask for it, or there is none."""
    if "tmp_path" in request.fixturenames or private.is_pytests_own(request.node, "tmp_path"):
        path: Path = request.getfixturevalue("tmp_path")
        return path
    if private.is_pytests_own(request.node, "tmp_path_factory"):
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        return factory.mktemp("tpu_world")
    # Not TemporaryDirectory, which would remove it on any ordinal that lets go of it.
    made = tempfile.mkdtemp(prefix="pytest-tpu-")
    request.addfinalizer(functools.partial(shutil.rmtree, made, ignore_errors=True))
    return Path(made)


@pytest.fixture
def tpu_cores() -> int:
    """The number of cores: parametrizes the test over 1 and all cores of the run, and sets its world size.

    The world is that of `tpu_world` or of the decorator, or what `tpu_launch` starts: by itself it starts none.
    """
    raise AssertionError("pytest_generate_tests gives the value")


@pytest.fixture
def tpu_host(request: pytest.FixtureRequest) -> Host | None:
    """What there is to run on: real or emulated, chips, cores, version; None without a host."""
    backend = _run(request).backend
    return None if backend is None else backend.host


@pytest.fixture
def tpu_launch(request: pytest.FixtureRequest) -> LaunchFunction:
    """Run a callable on N ordinals; ``tpu_launch(fn, *args, cores=…)`` gives the results in ordinal order.

    XLA tensors come back as CPU tensors. What an ordinal raises is raised here, with that ordinal's traceback;
    every other end is a LaunchError with the verdict. Ordinals are processes of their own: they get `args` as they
    are at the call, and what they change stays with them.
    """
    from pytest_tpu import callables

    run = _run(request)
    settings = apply(launch_of(request.node), run.settings)
    parametrized = getattr(getattr(request.node, "callspec", None), "params", {}).get("tpu_cores")
    ours = os.getpid()

    def require(size: int | None) -> None:
        __tracebackhide__ = True
        why = availability(size, run.host, settings, run.reason)
        if why is not None:
            (pytest.fail if settings.require else pytest.skip)(why)

    # Asked for by `request.getfixturevalue`: the collection did not see it.
    require(None)

    def launch(fn: Callable[..., Any], *args: Any, cores: int | None = None, timeout: float | None = None) -> list[Any]:
        __tracebackhide__ = True
        if os.getpid() != ours:
            raise LaunchError.refused("tpu_launch was called on an ordinal, and a world can't launch another one")
        run.guard.refuse()
        assert run.backend is not None
        assert run.cores is not None
        size = (parametrized or run.cores) if cores is None else cores
        if not is_count(size):
            raise BackendError(f"tpu_launch(cores={cores!r}) in {request.node.nodeid} is not allowed: give {COUNT}")
        require(size)
        limits = settings.limits if timeout is None else replace(settings.limits, timeout=timeout)
        return callables.run(functools.partial(fn, *args), cores=size, backend=run.backend, limits=limits)

    return launch

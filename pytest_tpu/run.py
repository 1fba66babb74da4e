"""What one pytest session runs on, and where it is kept."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from pytest_tpu.backend import Backend, package
from pytest_tpu.errors import BackendError, MissingPackageError, SettingError
from pytest_tpu.guard import Guard
from pytest_tpu.model.host import Host
from pytest_tpu.model.settings import Settings
from pytest_tpu.model.world import World
from pytest_tpu.options import resolve

NO_HOST = "this machine has no TPU, and --tpu-cores=8 emulates one on the CPU"

WORLD = pytest.StashKey[World]()
"""On an item: the world object that its fixtures hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one pytest session runs on.

    Args:
        settings: resolved once.
        backend: of the host, or None.
        reason: why there is no host.
        guard: who touched the runtime in this process.
    """

    settings: Settings
    backend: Backend | None
    reason: str
    guard: Guard

    @property
    def host(self) -> Host | None:
        """What there is to run on."""
        return None if self.backend is None else self.backend.host

    @property
    def cores(self) -> int | None:
        """How many cores the run has; None without a host."""
        return None if self.backend is None else self.settings.cores_on(self.backend.host)


RUN = pytest.StashKey[Run]()
"""On the config."""


def open_run(config: pytest.Config, environ: Mapping[str, str]) -> None:
    """Resolve the settings, choose the host, and answer as it until the session is unconfigured.

    Raises:
        pytest.UsageError: a setting is not allowed, or can't be had here, or the host that was named is not there.
    """
    try:
        settings = resolve(config, environ)
    except SettingError as error:
        raise pytest.UsageError(str(error)) from None
    _check_isolation(settings)
    backend, reason = _chosen(settings)
    guard = Guard(package.runtime_initialized, launches=backend is not None, isolates=settings.isolate)
    run = Run(settings=settings, backend=backend, reason=reason, guard=guard)
    config.stash[RUN] = run
    if backend is not None:
        from pytest_tpu.callables import Launcher

        active = ExitStack()
        active.enter_context(backend.activate())
        config.add_cleanup(active.close)
        backend.set_launcher(
            Launcher(
                backend=backend,
                cores=run.cores or 1,
                limits=settings.limits,
                refuse=run.guard.refuse,
            )
        )


def _check_isolation(settings: Settings) -> None:
    """A test that asks for a process of its own, and can't have one, must not run as if it had."""
    flag = "--tpu-isolate" if settings.isolate else "--tpu-isolate-marked" if settings.isolate_marked else None
    if flag is not None and sys.platform != "linux":
        raise pytest.UsageError(f"{flag} works on Linux only, and this is {sys.platform}")


def _chosen(settings: Settings) -> tuple[Backend | None, str]:
    """The host, or why there is none; what was asked for by name and isn't there is a usage error."""
    from pytest_tpu.backend.choose import choose

    try:
        backend = choose(settings.backend, settings.cores)
    except BackendError as error:
        if settings.backend == "tpu" or not isinstance(error, MissingPackageError):
            raise pytest.UsageError(str(error)) from None
        return None, str(error)
    return backend, "" if backend is not None else _why_none()


def _why_none() -> str:
    """What keeps this machine from being a host: advice to emulate is none where torch_xla can't be."""
    try:
        package.require()
    except MissingPackageError as error:
        return str(error)
    return NO_HOST

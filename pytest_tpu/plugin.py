"""The pytest11 entry: hooks only, each a few lines."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

from pytest_tpu import collection, guard, options
from pytest_tpu.errors import NotAnOrdinalError
from pytest_tpu.fixtures import tpu_cores, tpu_host, tpu_launch, tpu_world
from pytest_tpu.markers import MARKERS, unexcused
from pytest_tpu.run import RUN, open_run

__all__ = ["tpu_cores", "tpu_host", "tpu_launch", "tpu_world"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    options.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Become the host before the first conftest can ask for it."""
    open_run(early_config, os.environ)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers; open the run where no initial conftests are loaded (a plugin that is registered late)."""
    if RUN not in config.stash:
        open_run(config, os.environ)
    for line in MARKERS:
        config.addinivalue_line("markers", line)


def pytest_plugin_registered(plugin: object, manager: pytest.PytestPluginManager) -> None:
    """Look who touches the runtime at the import of a conftest or a plugin."""
    config = manager.getplugin("pytestconfig")
    if config is not None and RUN in config.stash:
        guard.look_at_import(config.stash[RUN].guard, config, plugin)


def pytest_report_header(config: pytest.Config) -> str:
    """Say which host it is."""
    run = config.stash[RUN]
    return options.header(run.settings, run.host, run.reason)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize over world sizes."""
    collection.parametrize(metafunc, metafunc.config.stash[RUN])


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Refuse markers that can't be meant, and look who touches the runtime at import."""
    step = f"the collection of {collector.nodeid or '.'}"
    collector.config.stash[RUN].guard.look_before(collector, step)
    report = yield
    remedy = guard.move_from(f"the import of {collector.nodeid}")
    collector.config.stash[RUN].guard.look(collector, step, remedy)
    return collection.judged(report)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take over the items that are ours."""
    run = config.stash[RUN]
    if ours := collection.ours(items, run):
        from pytest_tpu.controller import Controller

        config.pluginmanager.register(Controller(run, ours))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Look whether a fixture touches the runtime, or reads the world where there is none."""
    # Tracebacks of users' fixtures pass through here.
    __tracebackhide__ = True
    request.config.stash[RUN].guard.look_before(request.node, guard.named(fixturedef))
    try:
        return (yield)
    except NotAnOrdinalError as error:
        error.name_reader(fixturedef.argname)
        raise
    finally:
        request.config.stash[RUN].guard.look(request.node, guard.named(fixturedef))


def pytest_fixture_post_finalizer(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> None:
    """Look whether a fixture touches the runtime when it is torn down."""
    step = f"the teardown of {guard.named(fixturedef)}"
    request.config.stash[RUN].guard.look(request.node, step)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Look whether a test touches the runtime."""
    __tracebackhide__ = True
    step = f"the test {item.nodeid}"
    item.config.stash[RUN].guard.look_before(item, step)
    try:
        return (yield)
    finally:
        item.config.stash[RUN].guard.look(item, step)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let no xfail mark excuse a launch that fell apart; pytest, which was registered before, has judged the mark."""
    report = yield
    return unexcused(report, None if call.excinfo is None else call.excinfo.value)

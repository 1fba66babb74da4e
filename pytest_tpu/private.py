"""Every touch of pytest's private parts, so that a new pytest can break one module only.

What an ordinal has to undo of its inheritance can't be reached otherwise: capture files and finalizers are shared
with the controller after the fork, and reports would be logged once per ordinal. Tested with the versions of pytest
that tox names.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from _pytest._code.code import ExceptionRepr, ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback
from _pytest.capture import CaptureIO
from _pytest.logging import LoggingPlugin, _LiveLoggingStreamHandler
from _pytest.mark.expression import Expression
from _pytest.outcomes import Skipped

_KEPT: list[object] = []
"""Objects that share a file with the controller: closing or collecting them here would be seen there, or warned of."""


def empty_finalizers(session: pytest.Session) -> None:
    """Forget, in a child, all that the controller has set up: a child never finishes what it inherited.

    Kept alive nevertheless: a fixture's generator that is collected runs its `finally` and its `with` to their ends.
    """
    stack = session._setupstate.stack
    for node, (finalizers, error) in list(stack.items()):
        _KEPT.append(finalizers)
        stack[node] = ([], error)
        for definition in filter(None, map(_definition, finalizers)):
            _KEPT.extend(definition._finalizers)
            # A fixture that is needed with another parameter finishes itself, whoever has set it up, and those that
            # depend on it: these have to be set up anew too.
            definition._finalizers[:] = filter(_definition, definition._finalizers)


def _definition(finalizer: Any) -> Any:
    """The fixture that `finalizer` finishes; None if it does anything else."""
    owner = getattr(getattr(finalizer, "func", None), "__self__", None)
    return owner if isinstance(owner, pytest.FixtureDef) else None


def run_finalizers(session: pytest.Session) -> None:
    """Finish, in a child, what the child itself set up, the narrowest scope first; raises the first error."""
    errors: list[BaseException] = []
    for finalizers, _ in reversed(list(session._setupstate.stack.values())):
        while finalizers:
            try:
                finalizers.pop()()
            except BaseException as error:
                errors.append(error)
    if errors:
        raise errors[0]


_HOOKS = (
    "pytest_runtest_logstart",
    "pytest_runtest_logreport",
    "pytest_runtest_logfinish",
    "pytest_exception_interact",
    "pytest_warning_recorded",
)


def log_to(config: pytest.Config, plugin: object) -> None:
    """Let `plugin` alone, in a child, hear of reports: the terminal, JUnit and xdist are the controller's business."""
    for name in _HOOKS:
        caller = getattr(config.hook, name)
        for implementation in list(caller.get_hookimpls()):
            caller._remove_plugin(implementation.plugin)
    config.pluginmanager.register(plugin, "tpu-ordinal")


def restore_context(report: pytest.TestReport, data: dict[str, Any]) -> None:
    """Give a subtest that was shipped the arguments that it had: pytest quotes them again each time it reads them."""
    if "_subtest.context" in data:
        object.__setattr__(report.context, "kwargs", data["_subtest.context"]["kwargs"])


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Write past all capturing until the end of the context."""
    manager = config.pluginmanager.getplugin("capturemanager")
    return nullcontext() if manager is None else manager.global_and_fixture_disabled()


def restart_capture(config: pytest.Config, take_over: Callable[[str, int], None]) -> None:
    """Capture nothing globally in a child, whose output is kept in files anyway, and start capsys or capfd anew.

    Args:
        config: of the run.
        take_over: called with the name of a stream and with a descriptor that is to lead to it from now on.
    """
    manager = config.pluginmanager.getplugin("capturemanager")
    if manager is None:
        return
    capturing = manager._global_capturing
    _KEPT.append(capturing)
    # Pytest's streams were kept by whoever made a log handler at import.
    for name, capture in (("stdout", capturing.out), ("stderr", capturing.err)):
        stream = getattr(capture, "tmpfile", None)
        if isinstance(stream, CaptureIO):
            stream.write = getattr(sys, name).write  # type: ignore[method-assign]
        elif stream is not None:
            take_over(name, stream.fileno())
    manager._global_capturing = None
    manager._method = "no"
    manager.start_global_capturing()
    # Subtests capture by this option, into memory, where a killed process leaves nothing.
    config.option.capture = "no"
    fixture = _capture_fixture(config)
    if fixture is not None and fixture._capture is not None:
        _KEPT.append(fixture._capture)
        # The hook of the call phase starts it.
        fixture._capture = None


def _capture_fixture(config: pytest.Config) -> Any:
    manager = config.pluginmanager.getplugin("capturemanager")
    return None if manager is None else manager._capture_fixture


def divert_terminal(config: pytest.Config) -> None:
    """Let what a child writes to the terminal (``--setup-show``, a terminal writer) be output like all other."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        _KEPT.append(reporter._tw._file)
        reporter._tw._file = sys.stdout


class _LogLines(logging.Handler):
    """Writes each record at once, so that it is there when the process is killed."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(self.format(record) + "\n")


class _LiveLines:
    """Stands where pytest's terminal reporter would write live logs."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self.write = write

    def section(self, title: str, **markup: object) -> None:
        """Leave headings out: one for each ordinal would bury the lines."""

    def flush(self) -> None:
        """Nothing is held back."""


def divert_logging(config: pytest.Config, write: Callable[[str, str], None]) -> None:
    """Send, in a child, log records to `write("log", text)` and live logs to `write("live", text)`."""
    plugin = config.pluginmanager.getplugin("logging-plugin")
    if not isinstance(plugin, LoggingPlugin):
        return
    handler = _LogLines(lambda text: write("log", text))
    handler.setFormatter(plugin.formatter)
    handler.setLevel(plugin.log_level or logging.NOTSET)
    logging.getLogger().addHandler(handler)
    live = plugin.log_cli_handler
    if isinstance(live, _LiveLoggingStreamHandler):
        live._first_record_emitted = True
        live._section_name_shown = True
        live.capture_manager = None
        live.stream = _LiveLines(lambda text: write("live", text))  # type: ignore[assignment]


def needs_fixture(item: pytest.Item, wanted: str) -> tuple[str, ...]:
    """The function-scope fixtures of `item` that depend on the fixture `wanted`, in the order of their set-up."""
    definitions = getattr(getattr(item, "_fixtureinfo", None), "name2fixturedefs", {})

    def depends(name: str, seen: frozenset[str] = frozenset()) -> bool:
        return name == wanted or any(
            depends(argument, seen | {name})
            for definition in definitions.get(name, ())
            for argument in definition.argnames
            if argument not in seen
        )

    names: Iterable[str] = getattr(item, "fixturenames", ())
    return tuple(name for name in names if name != wanted and _is_function_scope(definitions, name) and depends(name))


def _is_function_scope(definitions: Any, name: str) -> bool:
    return name in definitions and definitions[name][-1].scope == "function"


def is_pytests_own(item: pytest.Item, name: str) -> bool:
    """Whether the fixture that `item` would get by that name is pytest's, and neither a plugin's nor the user's."""
    definitions = item.session._fixturemanager.getfixturedefs(name, item)
    return definitions is not None and len(definitions) > 0 and definitions[-1].func.__module__.startswith("_pytest.")


def fixture_value(item: pytest.Item, name: str) -> Any:
    """Set a fixture up for `item`, here and now, and give it to the test function."""
    value = item._request.getfixturevalue(name)  # type: ignore[attr-defined]
    item.funcargs[name] = value  # type: ignore[attr-defined]
    return value


def text_repr(headline: str, text: str, path: str, line: int) -> ReprExceptionInfo:
    """A failure that is text, with a first line for the short summary; a plain string would have none there."""
    lines = f"{text.rstrip()}\n".splitlines(keepends=True)
    return ReprExceptionInfo(
        reprtraceback=ReprTraceback([ReprEntryNative(lines)], None, style="native"),
        reprcrash=ReprFileLocation(path=path, lineno=line, message=headline),
    )


def set_headline(longrepr: object, headline: str) -> bool:
    """Put `headline` where pytest's short summary and JUnit take their line from; False if there is no such place."""
    crash = getattr(longrepr, "reprcrash", None)
    if not isinstance(longrepr, ExceptionRepr) or crash is None:
        return False
    crash.message = headline
    return True


class SkippedElsewhere(Skipped):
    """Stands in for a skip in another process: debuggers take what is raised for an error unless it is a skip too."""


def compile_markexpr(markexpr: str) -> Expression:
    """Compile what ``-m`` would take; a grammar of ours would drift from the one that users expect."""
    try:
        return Expression.compile(markexpr)
    except SyntaxError as error:
        raise ValueError(f"at column {error.offset}: {error.msg}") from None

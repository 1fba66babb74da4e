"""One table of options: declares command line, environment and ini forms, and resolves them into `Settings`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, get_args

import pytest

from pytest_tpu import private
from pytest_tpu.errors import SettingError
from pytest_tpu.model.settings import COUNT, SECONDS, BackendName, Settings, is_count, is_seconds

if TYPE_CHECKING:
    from pytest_tpu.model.host import Host

BACKENDS: Final[tuple[str, ...]] = get_args(BackendName)
TRUTHS: Final = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}


def read_count(text: str) -> int:
    """Read a whole number from 1, in plain digits (`int` would let ``1_0`` through)."""
    if not re.fullmatch(r"[0-9]+", text) or not is_count(int(text)):
        raise ValueError(text)
    return int(text)


def read_seconds(text: str) -> float:
    """Read a finite time from 0."""
    seconds = float(text)
    if not is_seconds(seconds):
        raise ValueError(text)
    return seconds


def read_truth(text: str) -> bool:
    """Read yes or no, in any of the ways that people write it in ini files and environments."""
    try:
        return TRUTHS[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def read_backend(text: str) -> str:
    """Read the name of a backend."""
    if text not in BACKENDS:
        raise ValueError(text)
    return text


def read_markexpr(text: str) -> str:
    """Read a mark expression, so that a mistake in it shows before anything is collected."""
    _compile(text)
    return text


_compile = lru_cache(maxsize=8)(private.compile_markexpr)
"""Compiled once, asked of every item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """A kind of value.

    Args:
        read: reads its text, or raises ValueError.
        allowed: says in words what is allowed.
        native: the type that it has in native TOML when it is written without quotes.
    """

    read: Callable[[str], object]
    allowed: str
    native: type = str


CORES: Final = Values(read=read_count, allowed=COUNT, native=int)
TIME: Final = Values(read=read_seconds, allowed=SECONDS, native=float)
BACKEND: Final = Values(read=read_backend, allowed="auto, tpu or cpu")
MARKEXPR: Final = Values(read=read_markexpr, allowed="a mark expression as for -m")
FLAG: Final = Values(read=read_truth, allowed="one of 1, true, yes, on, 0, false, no, off", native=bool)


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table: a field of `Settings` with all its spellings."""

    name: str
    values: Values
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        """The spelling on the command line."""
        return f"--tpu-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        """The spelling in ini files, which is also pytest's name for the option."""
        return f"tpu_{self.name}"

    @property
    def variable(self) -> str:
        """The spelling in the environment."""
        return f"PYTEST_TPU_{self.name.upper()}"


OPTIONS: Final = (
    Option("cores", CORES, "N", "How many TPU cores the run has; emulated without a TPU. Default: all of a TPU host."),
    Option("backend", BACKEND, "auto|tpu|cpu", "What the cores are: tpu never falls back, cpu always emulates."),
    Option("timeout", TIME, "S", "Seconds that one launch of a world may take; 0 means no limit."),
    Option("stall_timeout", TIME, "S", "Seconds to wait in a collective for an idle ordinal; 0 means no limit."),
    Option("grace", TIME, "S", "Seconds between interrupt, terminate and kill when a world is stopped."),
    Option("isolate", FLAG, "", "Run every test in a process of its own."),
    Option("isolate_marked", MARKEXPR, "MARKEXPR", "Like --tpu-isolate, for the tests that -m MARKEXPR would select."),
    Option("require", FLAG, "", "Fail, not skip, marked tests for which the host, a package or a core is missing."),
)


def add_options(parser: pytest.Parser) -> None:
    """Declare every row of the table: the group ``tpu`` of ``--help``, and the ini keys."""
    group = parser.getgroup("tpu", "TPU (each also as ini key tpu_NAME and environment variable PYTEST_TPU_NAME)")
    for option in OPTIONS:
        text = f"{option.help}{_default(option)}"
        # Text everywhere, read by us: argparse and pytest would refuse a bad value in words of their own, which say
        # neither where it came from nor what is allowed.
        if option.values is FLAG:
            group.addoption(option.flag, dest=option.ini, action="store_const", const="true", default=None, help=text)
        else:
            group.addoption(option.flag, dest=option.ini, type=str, default=None, metavar=option.metavar, help=text)
        parser.addini(option.ini, text, type=_ini_type(option.values), default=None)


def _default(option: Option) -> str:
    """The default as a sentence of the help; what is off or empty needs none."""
    default = next(field.default for field in fields(Settings) if field.name == option.name)
    if not default:
        return ""
    return f" Default: {default:g}." if isinstance(default, float) else f" Default: {default}."


def _ini_type(values: Values) -> Any:
    """Let ``tpu_cores = 8`` be written without quotes in native TOML, where the pytest at hand can (from 9.2)."""
    return str | values.native if pytest.version_tuple >= (9, 2) else "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One place that values come from.

    Args:
        given: by the name of the option, its text as found there; what is not set is left out.
        spell: shows option and text as they stand there, and says where that is.
    """

    given: Mapping[str, str]
    spell: Callable[[Option, str], str]


def settle(sources: Sequence[Source]) -> Settings:
    """Read what the sources say; of two that set the same option, the later one wins.

    A value that loses is read all the same: a mistake in it would show on another day, far from where it was made.
    """
    chosen: dict[str, Any] = {}
    for source in sources:
        for option in OPTIONS:
            if (text := source.given.get(option.name)) is not None:
                chosen[option.name] = _read(option, text, source)
    return Settings(**chosen)


def _read(option: Option, text: str, source: Source) -> object:
    try:
        return option.values.read(text)
    except ValueError as error:
        why = f" ({error})" if option.values is MARKEXPR else ""
        message = f"{source.spell(option, text)} is not allowed{why}: give {option.values.allowed}"
        raise SettingError(message) from None


def resolve(config: pytest.Config, environ: Mapping[str, str]) -> Settings:
    """Resolve the options of a run: ini file < environment < command line; a marker goes before all of them.

    Works from ``pytest_load_initial_conftests`` on. The marker's part is `pytest_tpu.markers.apply`, since a marker
    speaks for one test and not for the run.
    """
    return settle([_ini(config), _environment(environ), _command_line(config)])


def _ini(config: pytest.Config) -> Source:
    """The ini file, with what ``-o`` puts over it; an empty value there unsets the option."""
    overrides = {entry.partition("=")[0].strip() for entry in config.known_args_namespace.override_ini or ()}

    def spell(option: Option, text: str) -> str:
        if option.ini in overrides:
            return f"{option.ini}={text!r} of -o on the command line"
        return f"{option.ini} = {text!r} in {config.inipath}"

    return Source(given={o.name: text for o in OPTIONS if (text := _ini_text(config, o))}, spell=spell)


def _ini_text(config: pytest.Config, option: Option) -> str:
    try:
        value = config.getini(option.ini)
    except (TypeError, ValueError, pytest.UsageError) as error:
        # Native TOML with a type that the pytest at hand refuses: its text has file, key and value already.
        raise SettingError(f"{error}: give {option.values.allowed}, in quotes") from None
    return "" if value is None else str(value).strip()


def _environment(environ: Mapping[str, str]) -> Source:
    """The environment; an empty variable counts as not set, since CI files can't always leave one out."""
    return Source(
        given={o.name: text for o in OPTIONS if (text := environ.get(o.variable, "").strip())},
        spell=lambda option, text: f"{option.variable}={text!r} in the environment",
    )


def _command_line(config: pytest.Config) -> Source:
    """The command line, ``addopts`` included; ``config.option`` would still be empty before the first conftest."""
    parsed = vars(config.known_args_namespace)
    return Source(
        given={o.name: text.strip() for o in OPTIONS if (text := parsed.get(o.ini)) is not None},
        spell=lambda option, text: f"{option.flag}={text!r} on the command line",
    )


def isolates(settings: Settings, marks: Iterable[pytest.Mark]) -> bool:
    """Whether the options give the test with these `marks` a process of its own."""
    if settings.isolate or not settings.isolate_marked:
        return settings.isolate
    present = list(marks)

    def matches(name: str, /, **kwargs: object) -> bool:
        wanted = kwargs.items()
        return any(mark.name == name and wanted <= mark.kwargs.items() for mark in present)

    return _compile(settings.isolate_marked).evaluate(matches)


def header(settings: Settings, host: Host | None, reason: str) -> str:
    """Say for pytest's header which host the run has, or for which `reason` it has none, and within which limits."""
    if host is None:
        return f"tpu: no host, {reason}"
    cores = settings.cores_on(host)
    share = "" if cores == host.cores else f", {cores} of them in this run"
    times = (("timeout", settings.timeout), ("stall timeout", settings.stall_timeout), ("grace", settings.grace))
    return f"tpu: {host}{share}; {', '.join(f'{name} {_seconds(seconds)}' for name, seconds in times)}"


def _seconds(seconds: float) -> str:
    return f"{seconds:g} s" if seconds else "none"

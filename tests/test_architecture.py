"""Imports go one way, and loading the plugin loads nothing heavy."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import pytest_tpu

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PACKAGE = Path(pytest_tpu.__file__).parent

# A line may import from lines below it, never upward; names on one line never import each other.
# The package itself is on top: its public names come from everywhere.
LAYERS: tuple[frozenset[str], ...] = tuple(
    frozenset(line.split())
    for line in (
        "__init__ __main__",
        "plugin",
        "controller fixtures",
        "collection",
        "run",
        "callables",
        "reports ordinal options hookspecs markers guard",
        "supervise private",
        "process ledger diagnose",
        "wire",
        "backend",
        "model",
        "errors",
    )
)

# What a place says that it does not know; the reason is in its own docstring.
UNKNOWN_TO: Mapping[str, tuple[str, ...]] = {
    "supervise": ("pytest", "torch", "torch_xla"),
    "process": ("pytest", "torch", "torch_xla"),
    "ledger": ("pytest", "torch", "torch_xla"),
    "wire": ("pytest", "torch", "torch_xla"),
    "diagnose": ("pytest", "torch", "torch_xla", "os", "time", "subprocess", "multiprocessing", "psutil"),
    "backend": ("pytest",),
    "model": ("pytest", "torch_xla", "os", "time", "subprocess", "multiprocessing"),
    "errors": ("pytest", "torch", "torch_xla"),
}

# What one place alone may import, so that a new release of the other project breaks one place: their private parts.
ONLY_IN: Mapping[str, str] = {"_pytest": "private", "torch_xla._internal": "backend", "torch_xla._XLAC": "backend"}

# Slow to import, and of no use to a run without tpu tests.
HEAVY = ("torch", "torch_xla", "numpy", "psutil", "wrapt", "cloudpickle", "filelock")

# All that a run without tpu tests loads of ours, and nothing else that pytest does not load itself: a user who has none
# must not pay for us. It takes 30 ms, most of them for these; think of those users before you make the list longer.
LIGHT = {
    "pytest_tpu",
    "pytest_tpu.backend",
    "pytest_tpu.backend.chips",
    "pytest_tpu.backend.choose",
    "pytest_tpu.backend.package",
    "pytest_tpu.collection",
    "pytest_tpu.errors",
    "pytest_tpu.fixtures",
    "pytest_tpu.guard",
    "pytest_tpu.markers",
    "pytest_tpu.model",
    "pytest_tpu.model.host",
    "pytest_tpu.model.limits",
    "pytest_tpu.model.settings",
    "pytest_tpu.model.verdict",
    "pytest_tpu.model.world",
    "pytest_tpu.options",
    "pytest_tpu.plugin",
    "pytest_tpu.private",
    "pytest_tpu.run",
}

# What launches and watches: a run without tpu tests never needs it, and importing it takes longer than the rest.
ENGINE = ("pytest_tpu.supervise", "pytest_tpu.process", "pytest_tpu.ledger", "multiprocessing")


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import: in which module and on which line it is written, and the dotted name it asks for."""

    module: str
    line: int
    target: str


def _imports(module: str, *, is_package: bool, source: str, known: frozenset[str]) -> Iterator[Import]:
    """All imports of a module: inside functions, for types only, and by name too."""
    base = module if is_package else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import(names=names):
                targets = [alias.name for alias in names]
            case ast.ImportFrom(module=name, names=names, level=level):
                origin = _absolute(base, name or "", level)
                targets = [_meant(origin, alias.name, known) for alias in names]
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name)), *_]):
                targets = [name]
            case ast.Call(func=ast.Name(id="import_module" | "__import__"), args=[ast.Constant(value=str(name)), *_]):
                targets = [name]
            case _:
                continue
        assert isinstance(node, (ast.Import, ast.ImportFrom, ast.Call))
        yield from (Import(module=module, line=node.lineno, target=target) for target in targets)


def _absolute(base: str, name: str, level: int) -> str:
    """The dotted name that a relative import means."""
    if level == 0:
        return name
    parent = base.split(".")[: len(base.split(".")) - level + 1]
    return ".".join([*parent, *filter(None, [name])])


def _meant(origin: str, name: str, known: frozenset[str]) -> str:
    """What `from origin import name` imports: a module of ours if there is one of that name."""
    ours = origin.startswith("pytest_tpu")
    return origin if ours and f"{origin}.{name}" not in known else f"{origin}.{name}"


def _place(module: str) -> str:
    """The name under which a module stands in the layers."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def _level(place: str) -> int | None:
    """How far down a place is, or None if it stands nowhere."""
    return next((level for level, line in enumerate(LAYERS) if place in line), None)


def _complaint(found: Import) -> str | None:
    """What is wrong with an import, or None."""
    place, top = _place(found.module), found.target.split(".")[0]
    if top != "pytest_tpu":
        homes = [ONLY_IN[name] for name in ONLY_IN if f"{found.target}.".startswith(f"{name}.")]
        forbidden = top in UNKNOWN_TO.get(place, ()) or any(place != home for home in homes)
        return f"{place} must not know {found.target}" if forbidden else None
    other = _place(found.target)
    here, there = _level(place), _level(other)
    if other == place or here is None or there is None or there > here:
        return None
    return f"{place} imports {other}, which stands {'beside' if here == there else 'above'} it"


def offences(sources: Mapping[str, str]) -> list[str]:
    """Every line that breaks a rule, as ``file:line: what is wrong``; `sources` maps the files' paths to their text."""
    modules = {path: path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in sources}
    known = frozenset(modules.values())
    found = []
    for path, source in sources.items():
        module = modules[path]
        if _level(_place(module)) is None:
            found.append(f"{path}:1: {_place(module)} stands on no line of the layers")
        is_package = path.endswith("__init__.py")
        entries = _imports(module, is_package=is_package, source=source, known=known)
        found += [f"{path}:{entry.line}: {complaint}" for entry in entries if (complaint := _complaint(entry))]
    return list(dict.fromkeys(found))


def _sources() -> dict[str, str]:
    """The package, as it is imported here."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(PACKAGE.parent).as_posix(): file.read_text(encoding="utf-8") for file in files}


class TestLayers:
    """The package's imports against its layers."""

    def test_package(self) -> None:
        """No module imports from above it or from beside it, and each keeps away from what it must not know."""
        sources = _sources()

        assert "pytest_tpu/errors.py" in sources
        assert "" == "\n".join(offences(sources))

    @pytest.mark.parametrize(
        ("path", "source", "complaint"),
        [
            ("model/host.py", "import pytest_tpu.backend", "1: model imports backend, which stands above it"),
            ("errors.py", "\nfrom pytest_tpu import model", "2: errors imports model, which stands above it"),
            ("errors.py", "from pytest_tpu import launch", "1: errors imports __init__, which stands above it"),
            ("wire.py", "def f():\n    import pytest_tpu.ledger.a", "2: wire imports ledger, which stands above it"),
            ("wire.py", "if TYPE_CHECKING:\n from . import ledger", "2: wire imports ledger, which stands above it"),
            ("ledger/book.py", "from ..supervise import run", "1: ledger imports supervise, which stands above it"),
            ("backend/cpu/host.py", "from ... import plugin", "1: backend imports plugin, which stands above it"),
            ("model/host.py", "import_module('pytest_tpu.wire')", "1: model imports wire, which stands above it"),
            ("supervise.py", "import pytest", "1: supervise must not know pytest"),
            ("plugin.py", "from _pytest import runner", "1: plugin must not know _pytest.runner"),
            ("plugin.py", "import torch_xla._internal.tpu", "1: plugin must not know torch_xla._internal.tpu"),
            ("plugin.py", "from torch_xla import _XLAC", "1: plugin must not know torch_xla._XLAC"),
            ("helpers.py", "", "1: helpers stands on no line of the layers"),
        ],
    )
    def test_offender_is_told(self, path: str, source: str, complaint: str) -> None:
        """A line that breaks a rule is told with its file and number, however the import is written."""
        names = [
            "__init__",
            "errors",
            "supervise",
            "plugin",
            "wire",
            "model/__init__",
            "ledger/__init__",
            "backend/__init__",
        ]
        sources = {f"pytest_tpu/{name}.py": "" for name in names}

        assert [f"pytest_tpu/{path}:{complaint}"] == offences({**sources, f"pytest_tpu/{path}": source})

    @pytest.mark.parametrize(
        ("path", "source"),
        [
            ("plugin.py", "from pytest_tpu import errors, model\nimport pytest_tpu.supervise"),
            ("model/host.py", "from pytest_tpu.model import place\nfrom . import place\nfrom .place import Place"),
            ("backend/cpu.py", "import torch_xla\nfrom pytest_tpu.model.host import Host"),
        ],
    )
    def test_downward_is_fine(self, path: str, source: str) -> None:
        """Imports from lines below, from the same place and of what a place may know are no offence."""
        sources = {f"pytest_tpu/{name}.py": "" for name in ("errors", "supervise", "model/__init__", "model/place")}

        assert [] == offences({**sources, f"pytest_tpu/{path}": source})


def _run_python(program: str, *arguments: str, cwd: Path | None = None) -> str:
    """Run a program in a new interpreter that finds this package; returns what it prints."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


class TestLoading:
    """What comes with the plugin."""

    @pytest.mark.parametrize("module", ["pytest_tpu", "pytest_tpu.plugin"])
    def test_nothing_heavy(self, module: str) -> None:
        """Loading the plugin imports neither torch nor torch_xla, nor anything else that is slow."""
        program = f"import json, sys, {module}; print(json.dumps(sorted({{n.split('.')[0] for n in sys.modules}})))"
        loaded = json.loads(_run_python(program))

        assert "pytest_tpu" in loaded
        assert [] == [name for name in HEAVY if name in loaded]

    def test_nothing_of_ours(self, tmp_path: Path) -> None:
        """A run without tpu tests imports neither torch nor torch_xla on the plugin's account, nor our own engine."""
        loaded = _loaded_by_a_plain_run(tmp_path, *_plugin_argument())

        assert "pytest_tpu.plugin" in loaded
        assert [] == [name for name in (*HEAVY, *ENGINE) if name in loaded]

    def test_nothing_unlisted(self, tmp_path: Path) -> None:
        """A run without tpu tests loads a few light modules more than one without the plugin, and those are listed."""
        with_us = _loaded_by_a_plain_run(tmp_path, *_plugin_argument())
        without = _loaded_by_a_plain_run(tmp_path, "-p", "no:tpu", "-p", "no:pytest_tpu.plugin")

        assert "pytest_tpu.plugin" not in without
        assert sorted(LIGHT) == sorted(with_us - without)


def _loaded_by_a_plain_run(folder: Path, *arguments: str) -> set[str]:
    """The modules that a run of pytest has loaded in the end, in which one test without ordinals passed."""
    (folder / "test_plain.py").write_text("def test_plain(): pass\n", encoding="utf-8")
    program = (
        "import json, sys, pytest\n"
        "code = pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:], 'test_plain.py'])\n"
        "print(json.dumps([int(code), sorted(sys.modules)]))\n"
    )
    code, loaded = json.loads(_run_python(program, *arguments, cwd=folder).splitlines()[-1])

    assert 0 == code
    return set(loaded)


# Run before the package is imported: this Python becomes one of another platform, as far as imports can see. What
# pytest and the standard library need of the real one is imported before.
ELSEWHERE = """
import asyncio, multiprocessing.connection, multiprocessing.context, multiprocessing.shared_memory, os, signal, sys
import sysconfig
import psutil, pytest, xdist, pytest_timeout
platform, *arguments = sys.argv[1:]
sysconfig.get_config_vars()

class Without:
    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):
        return getattr(self.finder, name)

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in blocked else self.finder.find_spec(name, path, target)

blocked = {"torch_xla", "libtpu"}
if platform == "win32":
    blocked |= {"fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "_posixshmem"}
    for name in ("SIGKILL", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGHUP", "setitimer", "pthread_kill", "pthread_sigmask"):
        delattr(signal, name)
    for name in ("fork", "forkpty", "getuid", "geteuid", "killpg", "setsid", "getpgid", "sched_getaffinity", "WNOHANG"):
        delattr(os, name)
    for name in ("ForkProcess", "ForkContext"):
        delattr(multiprocessing.context, name)
for name in [name for name in sys.modules if name.split(".")[0] in blocked]:
    del sys.modules[name]
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
sys.platform = platform
"""


class TestElsewhere:
    """Where torch_xla does not exist. The platforms are faked: their jobs in CI run the real ones."""

    @pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
    def test_loads(self, platform: str) -> None:
        """The package and the plugin load without torch_xla, on Linux, macOS and Windows."""
        out = _run_python(ELSEWHERE + "import pytest_tpu, pytest_tpu.plugin; print('loaded')", platform)

        assert "loaded\n" == out

    @pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
    @pytest.mark.parametrize("options", [(), ("--tpu-cores=2",)], ids=["plain", "cores"])
    def test_skips(self, platform: str, options: tuple[str, ...], tmp_path: Path) -> None:
        """A marked test is skipped where torch_xla does not exist, for a reason that helps there; another one runs."""
        source = (
            "import pytest_tpu\n@pytest_tpu.multi_process\ndef test_ours(): assert False\ndef test_theirs(): pass\n"
        )
        (tmp_path / "test_both.py").write_text(source, encoding="utf-8")
        program = ELSEWHERE + "sys.exit(pytest.main(['-rs', '-s', '-p', 'no:cacheprovider', *arguments]))"
        out = _run_python(program, platform, *_plugin_argument(), *options, cwd=tmp_path)

        assert "1 passed, 1 skipped" in out
        assert "SKIPPED [1] " in out
        assert platform == "linux" or "torch_xla exists for Linux only" in out

    @pytest.mark.parametrize("platform", ["darwin", "win32"])
    @pytest.mark.parametrize("option", ["--tpu-isolate", "--tpu-isolate-marked=slow"])
    def test_isolation(self, platform: str, option: str, tmp_path: Path) -> None:
        """Processes of their own are refused at once where there can be none."""
        (tmp_path / "test_one.py").write_text("def test_one(): pass\n", encoding="utf-8")
        program = ELSEWHERE + "sys.stderr = sys.stdout; print(repr(pytest.main(['-s', *arguments])))"
        out = _run_python(program, platform, *_plugin_argument(), option, cwd=tmp_path)

        flag = option.partition("=")[0]
        assert f"ERROR: {flag} works on Linux only, and this is {platform}" in out
        assert "<ExitCode.USAGE_ERROR: 4>" == out.splitlines()[-1]

    @pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
    def test_our_own_tests(self, platform: str) -> None:
        """Our own tests pass where torch_xla does not exist: those that need it are skipped, for that reason."""
        program = ELSEWHERE + "sys.exit(pytest.main(['-q', '-rs', '-s', '-p', 'no:cacheprovider', *arguments]))"
        # The plugins above were imported before pytest could rewrite their asserts.
        options = ("-Wignore:Module already imported", *_plugin_argument())
        folders = ("tests/unit", "tests/process", "tests/acceptance")
        out = _run_python(program, platform, *options, *folders, cwd=Path(__file__).parents[1])
        files = [path for folder in folders[1:] for path in (Path(__file__).parents[1] / folder).glob("test_*.py")]

        assert " passed, " in out
        assert f"SKIPPED [{len(files)}] " in out
        assert ("torch_xla is not installed" if platform == "linux" else "torch_xla exists for Linux only") in out


def _plugin_argument() -> list[str]:
    """How pytest is told about the plugin where the package is not installed."""
    from importlib.metadata import entry_points

    installed = any(entry.value == "pytest_tpu.plugin" for entry in entry_points(group="pytest11"))
    return [] if installed else ["-p", "pytest_tpu.plugin"]

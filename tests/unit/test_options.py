from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_tpu.errors import SettingError
from pytest_tpu.model.host import Host
from pytest_tpu.model.settings import Settings
from pytest_tpu.options import OPTIONS, header, isolates, resolve


class FakeConfig:
    """What `resolve` reads of a pytest.Config, as it is before the first conftest is loaded."""

    def __init__(self, ini: dict[str, object], parsed: dict[str, object]) -> None:
        self.inipath = Path("/project/pytest.ini")
        self.known_args_namespace = argparse.Namespace(**{"override_ini": None, **parsed})
        self._ini = ini

    def getini(self, name: str) -> object:
        """Give a value as pytest read it, None where nothing is set."""
        return self._ini.get(name)


def resolved(
    ini: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    parsed: dict[str, object] | None = None,
) -> Settings:
    """Resolve what was set in each place."""
    config = FakeConfig(ini or {}, parsed or {})
    return resolve(cast("pytest.Config", config), environ or {})


def refusal(**places: Any) -> str:
    """The text of the error that the places lead to."""
    with pytest.raises(SettingError) as caught:
        resolved(**places)
    return str(caught.value)


class TestDefaults:
    def test_nothing_set(self) -> None:
        """Without any setting the documented defaults hold."""
        expected = {
            "cores": None,
            "backend": "auto",
            "timeout": 300.0,
            "stall_timeout": 60.0,
            "grace": 2.0,
            "isolate": False,
            "isolate_marked": "",
            "require": False,
        }
        settings = resolved()

        assert expected == {field.name: getattr(settings, field.name) for field in fields(Settings)}

    def test_rows_and_fields(self) -> None:
        """Every field of the settings has its row in the table, and every row its field."""
        assert [field.name for field in fields(Settings)] == [option.name for option in OPTIONS]

    @pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
    def test_spellings(self, option: Any) -> None:
        """One name makes all spellings of an option."""
        assert f"--tpu-{option.name}".replace("_", "-") == option.flag
        assert f"tpu_{option.name}" == option.ini
        assert f"PYTEST_TPU_{option.name}".upper() == option.variable


class TestPrecedence:
    @pytest.mark.parametrize(
        ("ini", "environ", "parsed", "cores"),
        [
            ("2", None, None, 2),
            (None, "3", None, 3),
            (None, None, "4", 4),
            ("2", "3", None, 3),
            ("2", None, "4", 4),
            (None, "3", "4", 4),
            ("2", "3", "4", 4),
        ],
    )
    def test_order(self, ini: str | None, environ: str | None, parsed: str | None, cores: int) -> None:
        """The environment goes before the ini file, and the command line before both."""
        given = {"PYTEST_TPU_CORES": environ} if environ else {}

        assert cores == resolved({"tpu_cores": ini}, given, {"tpu_cores": parsed}).cores

    def test_places_mix(self) -> None:
        """Each option is taken from its own strongest place."""
        settings = resolved({"tpu_cores": "2"}, {"PYTEST_TPU_TIMEOUT": "7"}, {"tpu_backend": "cpu"})

        assert Settings(cores=2, timeout=7.0, backend="cpu") == settings

    def test_losing_value_is_checked(self) -> None:
        """A mistake is told even where a stronger place hides it."""
        assert "PYTEST_TPU_CORES='x'" in refusal(environ={"PYTEST_TPU_CORES": "x"}, parsed={"tpu_cores": "8"})

    def test_ini_off_switch(self) -> None:
        """A switch that the ini file turns on is turned off by the environment."""
        assert not resolved({"tpu_require": "true"}, {"PYTEST_TPU_REQUIRE": "no"}).require

    def test_empty_is_unset(self) -> None:
        """An empty environment variable leaves the word to the ini file, and an empty ini value to the default."""
        assert 2 == resolved({"tpu_cores": "2", "tpu_grace": ""}, {"PYTEST_TPU_CORES": ""}).cores
        assert 2.0 == resolved({"tpu_grace": ""}).grace

    def test_command_line_unsets_expression(self) -> None:
        """An empty mark expression on the command line takes back the one of the ini file."""
        settings = resolved(ini={"tpu_isolate_marked": "slow"}, parsed={"tpu_isolate_marked": ""})

        assert "" == settings.isolate_marked


class TestValues:
    @pytest.mark.parametrize(
        ("name", "text", "value"),
        [
            ("cores", "1", 1),
            ("cores", " 8 ", 8),
            ("backend", "tpu", "tpu"),
            ("backend", "cpu", "cpu"),
            ("timeout", "0", 0.0),
            ("timeout", "1e3", 1000.0),
            ("grace", ".5", 0.5),
            ("isolate_marked", "slow and not tpu", "slow and not tpu"),
        ],
    )
    def test_allowed(self, name: str, text: str, value: object) -> None:
        """What is allowed is read into the type of its field, from every place alike."""
        assert value == getattr(resolved(ini={f"tpu_{name}": text}), name)
        assert value == getattr(resolved(environ={f"PYTEST_TPU_{name.upper()}": text}), name)
        assert value == getattr(resolved(parsed={f"tpu_{name}": text}), name)

    @pytest.mark.parametrize("value", [8, "8"])
    def test_native_numbers(self, value: object) -> None:
        """A number of native TOML means the same as its text."""
        assert 8 == resolved(ini={"tpu_cores": value}).cores

    @pytest.mark.parametrize("value", [True, "true", "True", "YES", "on", "1"])
    def test_true(self, value: object) -> None:
        """Every usual way to write yes turns a switch on."""
        assert resolved(ini={"tpu_isolate": value}).isolate
        assert resolved(environ={"PYTEST_TPU_ISOLATE": str(value)}).isolate

    @pytest.mark.parametrize("value", [False, "false", "False", "NO", "off", "0"])
    def test_false(self, value: object) -> None:
        """Every usual way to write no leaves a switch off."""
        assert not resolved(ini={"tpu_isolate": value}).isolate
        assert not resolved(environ={"PYTEST_TPU_ISOLATE": str(value)}).isolate

    @pytest.mark.parametrize(
        ("name", "text", "allowed"),
        [
            ("cores", "0", "a whole number from 1"),
            ("cores", "x", "a whole number from 1"),
            ("cores", "-1", "a whole number from 1"),
            ("cores", "1.5", "a whole number from 1"),
            ("cores", "1_0", "a whole number from 1"),
            ("cores", "٨", "a whole number from 1"),
            ("cores", "True", "a whole number from 1"),
            ("backend", "gpu", "auto, tpu or cpu"),
            ("backend", "CPU", "auto, tpu or cpu"),
            ("timeout", "-1", "a number of seconds from 0, where 0 means none"),
            ("timeout", "nan", "a number of seconds from 0, where 0 means none"),
            ("timeout", "inf", "a number of seconds from 0, where 0 means none"),
            ("timeout", "1e999", "a number of seconds from 0, where 0 means none"),
            ("timeout", "5 s", "a number of seconds from 0, where 0 means none"),
            ("grace", "-0.1", "a number of seconds from 0, where 0 means none"),
            ("isolate", "maybe", "one of 1, true, yes, on, 0, false, no, off"),
            ("require", "2", "one of 1, true, yes, on, 0, false, no, off"),
        ],
    )
    def test_refused(self, name: str, text: str, allowed: str) -> None:
        """A refused value is shown with the place that it came from and with what is allowed."""
        ini, variable, flag = f"tpu_{name}", f"PYTEST_TPU_{name.upper()}", f"--tpu-{name}"
        ending = f"is not allowed: give {allowed}"

        assert f"{ini} = {text!r} in /project/pytest.ini {ending}" == refusal(ini={ini: text})
        assert f"{variable}={text!r} in the environment {ending}" == refusal(environ={variable: text})
        assert f"{flag}={text!r} on the command line {ending}" == refusal(parsed={ini: text})

    @pytest.mark.parametrize("name", ["cores", "backend", "timeout", "grace"])
    def test_empty_on_the_command_line(self, name: str) -> None:
        """An option that was typed with nothing behind it is a mistake, not unset."""
        assert refusal(parsed={f"tpu_{name}": ""}).startswith(f"--tpu-{name}='' on the command line")

    def test_override(self) -> None:
        """A value given by -o is not blamed on the ini file."""
        text = refusal(ini={"tpu_cores": "x"}, parsed={"override_ini": ["tpu_cores=x"]})

        assert text.startswith("tpu_cores='x' of -o on the command line is not allowed")

    def test_list_in_toml(self) -> None:
        """A TOML list where one value belongs is refused like any other value."""
        assert "tpu_cores = '[1, 8]'" in refusal(ini={"tpu_cores": [1, 8]})

    @pytest.mark.parametrize("markexpr", ["slow and", "(slow", "slow or or fast", "and"])
    def test_broken_expression(self, markexpr: str) -> None:
        """A mistake in a mark expression says where in the expression it is."""
        text = refusal(parsed={"tpu_isolate_marked": markexpr})

        assert text.startswith(f"--tpu-isolate-marked={markexpr!r} on the command line is not allowed (at column ")
        assert text.endswith("give a mark expression as for -m")


def mark(name: str, **kwargs: object) -> pytest.Mark:
    """A marker that need not be registered."""
    return pytest.Mark(name, (), kwargs, _ispytest=True)


class TestIsolates:
    @pytest.mark.parametrize(
        ("markexpr", "expected"),
        [
            ("", False),
            ("slow", True),
            ("not slow", False),
            ("slow and device", True),
            ("slow and tpu", False),
            ("tpu or device", True),
            ("device(kind='v5e')", True),
            ("device(kind='v4')", False),
            ("device(other=1)", False),
        ],
    )
    def test_expression(self, markexpr: str, *, expected: bool) -> None:
        """The expression selects by the names and keyword arguments of markers, as -m does."""
        marks = [mark("slow"), mark("device", kind="v5e")]

        assert expected == isolates(Settings(isolate_marked=markexpr), marks)

    def test_all(self) -> None:
        """With --tpu-isolate a test without any marker is isolated too."""
        assert isolates(Settings(isolate=True), [])

    def test_none(self) -> None:
        """Without options no test is isolated on their account."""
        assert not isolates(Settings(), [mark("slow")])


EMULATED = Host(backend="cpu", emulated=True, cores=8, chips=8, version="v5e")
REAL = Host(backend="tpu", emulated=False, cores=4, chips=4, version="v4")


class TestCores:
    @pytest.mark.parametrize(("expected", "cores"), [(4, None), (1, 1), (2, 2), (4, 4), (4, 8)])
    def test_cores_on(self, expected: int, cores: int | None) -> None:
        """A run has the cores that it asked for, all of them if it asked for none, and never more than there are."""
        assert expected == Settings(cores=cores).cores_on(REAL)


class TestHeader:
    @pytest.mark.parametrize(
        ("settings", "host", "expected"),
        [
            (Settings(cores=8), EMULATED, f"tpu: {EMULATED}; timeout 300 s, stall timeout 60 s, grace 2 s"),
            (Settings(), REAL, f"tpu: {REAL}; timeout 300 s, stall timeout 60 s, grace 2 s"),
            (
                Settings(cores=2),
                REAL,
                f"tpu: {REAL}, 2 of them in this run; timeout 300 s, stall timeout 60 s, grace 2 s",
            ),
            (Settings(timeout=0, grace=0.5), REAL, f"tpu: {REAL}; timeout none, stall timeout 60 s, grace 0.5 s"),
            (Settings(), None, "tpu: no host, torch_xla is not installed"),
        ],
    )
    def test_header(self, settings: Settings, host: Host | None, expected: str) -> None:
        """The header says which host it is and the limits that hold, or why there is no host."""
        assert expected == header(settings, host, "torch_xla is not installed")

    def test_emulation_is_plain(self) -> None:
        """Nobody can take the emulated host for a real one."""
        assert "emulated TPU host" in header(Settings(cores=8), EMULATED, "")
        assert "no TPU is used" in header(Settings(cores=8), EMULATED, "")

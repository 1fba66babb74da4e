from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    import pytest

    from tests.acceptance.conftest import RunOnOrdinals

PROPERTIES = """
    from enum import Enum
    import pytest
    import torch

    class Handle:
        def __reduce__(self):
            raise TypeError("can't be pickled")

        def __str__(self):
            return "a handle"

    @pytest.fixture
    def named(record_property):
        record_property("fixture", "controller")

    def test_alike(tpu_world, named, record_property):
        record_property("loss", 0.5)

    def test_different(tpu_world, named, record_property):
        record_property("loss", tpu_world.ordinal / 4)

    def test_tensor(tpu_world, record_property):
        record_property("shape", (2, 3))
        record_property("tensor", torch.full((1,), 1.5, device=tpu_world.device)[0])
        record_property("handle", Handle())

    def test_local_class(tpu_world, record_property):
        class Kind(str, Enum):
            TRAIN = "train"

        record_property("kind", Kind.TRAIN)
        record_property("kinds", [Kind.TRAIN])
        assert str(Kind.TRAIN) == "Kind.TRAIN"

    def test_one_only(tpu_world, record_property):
        if tpu_world.ordinal == 1:
            record_property("found", "here")

    def test_fails(tpu_world, record_property):
        record_property("before", 1)
        assert tpu_world.ordinal
"""


class TestProperties:
    def test_junit(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """What all ordinals recorded alike is there once, what differs with the ordinal in its name."""
        run_on_ordinals(PROPERTIES, "--junit-xml=junit.xml", "-o", "junit_family=xunit1")
        found = {
            case.attrib["name"]: [(prop.attrib["name"], prop.attrib["value"]) for prop in case.iter("property")]
            for case in ElementTree.parse(pytester.path / "junit.xml").iter("testcase")
        }

        assert {
            "test_alike": [("fixture", "controller"), ("loss", "0.5")],
            "test_different": [
                ("fixture", "controller"),
                ("loss (ordinal 0)", "0.0"),
                ("loss (ordinal 1)", "0.25"),
            ],
            "test_tensor": [("shape", "(2, 3)"), ("tensor", "tensor(1.5000, device='xla:0')"), ("handle", "a handle")],
            "test_local_class": [("kind", "Kind.TRAIN"), ("kinds", "['Kind.TRAIN']")],
            "test_one_only": [("found (ordinal 1)", "here")],
            "test_fails": [("before", "1")],
        } == found


ASSERTIONS = """
    import pytest

    def test_message(tpu_world):
        assert tpu_world.ordinal != 1, f"not on {tpu_world.ordinal}"

    def test_lists(tpu_world):
        assert [1, 2, 3, 4] == [1, 2, 3 + tpu_world.ordinal, 4]

    def test_compared(tpu_world):
        assert Money(3) == Money(3 + tpu_world.ordinal)

    def test_chain(tpu_world):
        try:
            {}["key"]
        except KeyError as error:
            if tpu_world.ordinal == 1:
                raise ValueError("second") from error

    def test_helper(tpu_world):
        check(tpu_world)

    def check(world):
        value = world.ordinal * 10
        assert value < 10

    class Money:
        def __init__(self, amount):
            self.amount = amount

        def __eq__(self, other):
            return self.amount == other.amount
"""

COMPARE = """
    def pytest_assertrepr_compare(config, op, left, right):
        if type(left).__name__ == "Money":
            return ["amounts differ:", f"{left.amount} is not {right.amount}"]
"""


class TestIntrospection:
    def test_shown(self, run_on_ordinals: RunOnOrdinals) -> None:
        """A failing assertion shows what pytest shows of it, from the ordinal where it failed, then the others."""
        result = run_on_ordinals(ASSERTIONS, conftest=COMPARE)

        result.assert_outcomes(failed=5)
        result.stdout.fnmatch_lines(
            [
                "E       AssertionError: not on 1",
                "E       assert 1 != 1",
                "E        +  where 1 = <World of 2, ordinal 1>.ordinal",
                "*- RAISED: ordinal 1: AssertionError: not on 1 -*",
                "ordinal * pid * outcome *",
                "0 * passed *",
                "1 * failed *AssertionError: not on 1 in test_it.py:4  <- first",
                "E       assert [[]1, 2, 3, 4[]] == [[]1, 2, 4, 4[]]",
                "E         At index 2 diff: 3 != 4",
                "E       assert amounts differ:",
                "E         3 is not 4",
                "E           KeyError: 'key'",
                "The above exception was the direct cause of the following exception:",
                "E*ValueError: second",
                ">       assert value < 10",
                "E       assert 10 < 10",
                "FAILED test_it.py::test_message - RAISED: ordinal 1: AssertionError: not on 1*",
                "FAILED test_it.py::test_lists - RAISED: ordinal 1: assert [[]1, 2, 3, 4[]] == [[]1, 2, 4, 4[]]*",
                "FAILED test_it.py::test_compared - RAISED: ordinal 1: *amounts differ:*",
                "FAILED test_it.py::test_chain - RAISED: ordinal 1: ValueError: second",
                "FAILED test_it.py::test_helper - RAISED: ordinal 1: assert 10 < 10",
            ]
        )


MIXED = """
    import os
    import sys
    import warnings

    import pytest

    def test_pass(tpu_world):
        print("printed")
        warnings.warn("warned")

    def test_fail(tpu_world, record_property):
        print(f"printed by {tpu_world.ordinal}")
        print("error", file=sys.stderr)
        record_property("ordinal", tpu_world.ordinal)
        assert tpu_world.ordinal != 1

    def test_skip(tpu_world):
        pytest.skip("why")

    @pytest.mark.xfail(reason="known", strict=True)
    def test_xfail(tpu_world):
        assert False

    def test_lost(tpu_world):
        if tpu_world.ordinal == 1:
            os._exit(3)

    def test_diverges(tpu_world):
        if tpu_world.ordinal:
            pytest.skip("not here")

    @pytest.mark.tpu_multi_process(cores=1)
    def test_one_core(tpu_world):
        print("alone")
        assert tpu_world.ordinal

    def test_plain():
        print("plain")
        assert False

    def test_launch(tpu_launch):
        assert [0, 1] == tpu_launch(lambda: 0)
"""


def cases(path: Path) -> dict[str, list[str]]:
    """What JUnit XML says of each test, without what differs from run to run: times and process ids."""
    found = {}
    for case in ElementTree.parse(path).iter("testcase"):
        texts = [case.attrib["classname"]]
        for element in case.iter():
            lines = len((element.text or "").splitlines())
            attributes = [element.attrib.get(key, "") for key in ("name", "value", "message")]
            texts.append(f"{element.tag} {attributes} {lines} lines")
        found[case.attrib["name"]] = texts
    return found


class TestXdist:
    def test_same_reports(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """Two xdist workers give the reports that one process gives, in JUnit XML and on the terminal."""
        words = ("FAILED", "PASSED", "SKIPPED", "XFAIL", "E  ", "printed", "RAISED", "LOST")

        def run(*args: str) -> tuple[dict[str, list[str]], list[str]]:
            result = run_on_ordinals(MIXED, "-W", "always", "-rA", "--junit-xml=junit.xml", *args)
            lines = sorted(line for line in result.outlines if line.startswith(words))
            return cases(pytester.path / "junit.xml"), lines

        alone = run()

        assert 9 == len(alone[0])
        assert 20 < len(alone[1])
        assert alone == run("-n2")

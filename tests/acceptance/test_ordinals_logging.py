from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from tests.acceptance.conftest import RunOnOrdinals

CAPLOG = """
    import logging

    import pytest

    @pytest.fixture
    def speaks():
        logging.getLogger("early").warning("from the fixture")

    def test_read(tpu_world, caplog, speaks):
        with caplog.at_level(logging.DEBUG):
            logging.debug("from %s", tpu_world.ordinal)
        logging.debug("below the level")
        assert [f"from {tpu_world.ordinal}"] == caplog.messages
        assert ["from the fixture"] == [record.getMessage() for record in caplog.get_records("setup")]
        caplog.clear()
        assert [] == caplog.records

    def test_differs(tpu_world, caplog):
        logging.warning("ordinal %s", tpu_world.ordinal)
        assert "ordinal 1" not in caplog.text

    def test_level(tpu_world, caplog):
        caplog.set_level(logging.INFO, logger="mine")
        logging.getLogger("mine").info("heard")
        assert ["heard"] == caplog.messages

    def test_level_is_back():
        assert logging.NOTSET == logging.getLogger("mine").level
"""

TALK = """
    import logging

    def test_talks(tpu_world):
        text = str(tpu_world.ordinal) * 100
        logging.error("begin")
        logging.info("not asked for")
        tpu_world.rendezvous("start")
        for number in range(100):
            logging.warning("%s %03d", text, number)
        assert tpu_world.ordinal
"""


AROUND = """
    import pytest

    @pytest.fixture(autouse=True)
    def around():
        logging.warning("before")
        yield
        logging.warning("after")
"""

LONG = """
    import logging

    def test_long(tpu_world):
        tpu_world.rendezvous("start")
        for number in range(20):
            logging.warning(str(tpu_world.ordinal) * 30_000)
"""


class TestCaplog:
    def test_read(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Caplog has the records of the fixtures by phase, and those of its own ordinal in the body."""
        result = run_on_ordinals(CAPLOG)

        result.assert_outcomes(passed=3, failed=1)
        result.stdout.fnmatch_lines(["FAILED test_it.py::test_differs - RAISED: ordinal 1: *"])


class TestLogs:
    def test_sections(self, run_on_ordinals: RunOnOrdinals) -> None:
        """The log of each ordinal is a section of its own, in pytest's format and level, and written once."""
        result = run_on_ordinals(TALK, "--log-level=WARNING", "--log-format=%(levelname)s|%(message)s")

        expected = [f"{k * 100} {number:03}" for k in "01" for number in range(100)]
        assert expected == [line.partition("|")[2] for line in result.outlines if line.startswith("WARNING|")]
        assert 2 == result.outlines.count("ERROR|begin")
        result.stdout.fnmatch_lines(["*Captured log (ordinal 0) call*", "*Captured log (ordinal 1) call*"])

    def test_live(self, run_on_ordinals: RunOnOrdinals) -> None:
        """Live logs come whole, once, with the ordinal in front and in each ordinal's order."""
        result = run_on_ordinals(
            TALK, "--log-cli-level=WARNING", "--log-cli-format=%(levelname)s|%(message)s", "--tb=no"
        )

        for ordinal in (0, 1):
            prefix = f"[ordinal {ordinal}] "
            lines = [line.removeprefix(prefix) for line in result.outlines if line.startswith(prefix)]
            text = str(ordinal) * 100
            assert ["ERROR|begin", *(f"WARNING|{text} {number:03}" for number in range(100))] == lines
        assert 202 == sum("|" in line for line in result.outlines)

    def test_file(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """The log file has every line of every ordinal, whole and once, between those of the controller."""
        run_on_ordinals(
            TALK + AROUND, "--log-file=all.txt", "--log-file-format=%(message)s", "--log-file-level=WARNING"
        )
        lines = (pytester.path / "all.txt").read_text().splitlines()

        for ordinal in (0, 1):
            text = str(ordinal) * 100
            assert [f"{text} {n:03}" for n in range(100)] == [line for line in lines if line.startswith(text)]
        assert ["after", "before", "begin", "begin"] == sorted(re.findall("^[a-z]+$", "\n".join(lines), re.MULTILINE))
        assert 204 == len(lines)
        assert ("before", "after") == (lines[0], lines[-1])

    def test_long_lines(self, run_on_ordinals: RunOnOrdinals, pytester: pytest.Pytester) -> None:
        """A line that is longer than any buffer is written whole too."""
        run_on_ordinals(LONG, "--log-file=all.txt", "--log-file-format=%(message)s", cores=4)
        lines = (pytester.path / "all.txt").read_text().splitlines()

        assert sorted([str(k) * 30_000 for k in range(4)] * 20) == sorted(lines)

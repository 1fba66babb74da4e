from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

SOURCE = """
    import pytest
    import pytest_tpu

    @pytest.fixture
    def spoilt():
        raise AssertionError("nothing is set up for a test that can't run")

    @pytest_tpu.multi_process(cores=4)
    def test_four(spoilt, tpu_world):
        raise AssertionError

    @pytest_tpu.isolated(cores=4)
    def test_isolated(spoilt):
        raise AssertionError

    @pytest_tpu.multi_process(cores=(1, 2, 3))
    def test_several(tpu_world, tpu_cores):
        assert tpu_cores == tpu_world.size

    @pytest.mark.xfail
    @pytest_tpu.multi_process(cores=4)
    def test_four_marked(spoilt):
        raise AssertionError

    @pytest_tpu.multi_process
    def test_all(tpu_world):
        assert 2 == tpu_world.size

    @pytest.mark.tpu
    def test_label():
        pass
"""
INI = "[pytest]\nmarkers =\n    tpu: needs a TPU\n"
NEEDS = "needs {} cores and this run has 2; --tpu-cores={} emulates them"


@pytest.fixture(autouse=True)
def labelled(pytester: pytest.Pytester) -> None:
    """Have the label that many repositories have."""
    pytester.makeini(INI)


def test_too_many(run_on_ordinals: RunOnOrdinals) -> None:
    """A test that asks for more cores than there are is skipped, with the number and the remedy."""
    result = run_on_ordinals(SOURCE, *SHOW_ALL)
    four, three = (f"SKIPPED Skipped: {NEEDS.format(cores, cores)}" for cores in (4, 3))

    assert {
        "test_four": four,
        "test_isolated": four,
        "test_several[1core]": "PASSED",
        "test_several[2cores]": "PASSED",
        "test_several[3cores]": three,
        "test_four_marked": four,
        "test_all": "PASSED",
        "test_label": "PASSED",
    } == summary(result)


def test_required(run_on_ordinals: RunOnOrdinals) -> None:
    """With --tpu-require such a test fails, whatever marks it has."""
    result = run_on_ordinals(SOURCE, "--tpu-require", *SHOW_ALL)
    four, three = (f"FAILED REFUSED: {NEEDS.format(cores, cores)}" for cores in (4, 3))

    assert {
        "test_four": four,
        "test_isolated": four,
        "test_several[1core]": "PASSED",
        "test_several[2cores]": "PASSED",
        "test_several[3cores]": three,
        "test_four_marked": four,
        "test_all": "PASSED",
        "test_label": "PASSED",
    } == summary(result)


WITHOUT_HOST = """
    import pytest
    import pytest_tpu

    @pytest.fixture
    def spoilt():
        raise AssertionError("nothing is set up for a test that can't run")

    @pytest_tpu.multi_process
    def test_marked(spoilt):
        raise AssertionError

    @pytest_tpu.multi_process(cores=(1, 8))
    def test_several(spoilt):
        raise AssertionError

    @pytest_tpu.isolated
    def test_isolated(spoilt):
        raise AssertionError

    def test_world(spoilt, tpu_world):
        raise AssertionError

    def test_launch(spoilt, tpu_launch):
        raise AssertionError

    def test_cores(spoilt, tpu_cores):
        raise AssertionError

    @pytest.mark.xfail(strict=True)
    @pytest_tpu.multi_process
    def test_expected(spoilt):
        raise AssertionError

    class TestMethods:
        @classmethod
        def setup_class(cls):
            cls.ready = True

        @pytest_tpu.multi_process
        def test_method(self, spoilt):
            raise AssertionError

        def test_plain_method(self):
            assert self.ready

    @pytest.mark.tpu
    def test_label(tpu_host):
        assert tpu_host is None
"""


@pytest.mark.parametrize("require", [False, True], ids=["skipped", "required"])
def test_without_host(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, require: bool) -> None:
    """Without a host our tests are skipped with a reason that says how to have one, and fail with --tpu-require."""
    monkeypatch.setenv("COLUMNS", "200")
    pytester.makepyfile(WITHOUT_HOST)
    options = ["--tpu-require"] if require else []
    word = "FAILED REFUSED" if require else "SKIPPED Skipped"
    missing = f"{word}: needs a TPU host: this machine has no TPU, and --tpu-cores=8 emulates one on the CPU"

    assert {
        "test_marked": missing,
        "test_several[1core]": missing,
        "test_several[8cores]": missing,
        "test_isolated": missing,
        "test_world": missing,
        "test_launch": missing,
        "test_cores[1core]": missing,
        "test_expected": missing,
        "TestMethods::test_method": missing,
        "TestMethods::test_plain_method": "PASSED",
        "test_label": "PASSED",
    } == summary(pytester.runpytest_inprocess(*options, *SHOW_ALL))

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

CASES = """
    import pytest
    import pytest_tpu

    @pytest_tpu.multi_process(cores=(1, 3))
    def test_cores(tpu_world):
        assert tpu_world.size == 1 or tpu_world.ordinal != 2

    @pytest.mark.parametrize("text", ["a", "b"])
    def test_combined(tpu_cores, tpu_world, text):
        assert tpu_cores == tpu_world.size
        assert (text, tpu_world.ordinal) != ("b", 1)

    @pytest_tpu.multi_process(cores=2)
    @pytest.mark.parametrize("text", ["c", pytest.param("d", id="named")])
    def test_ordinary(tpu_world, text):
        assert 2 == tpu_world.size
        assert (text, tpu_world.ordinal) != ("d", 0)

    @pytest.fixture(params=["x", "y"])
    def letter(request, tpu_world):
        return f"{request.param}{tpu_world.ordinal}"

    def test_fixture(letter):
        assert letter != "y1"

    @pytest_tpu.multi_process(cores=(2, 3))
    class TestMethods:
        def test_size(self, tpu_world, tpu_cores):
            assert (tpu_cores, tpu_world.size) in [(2, 2), (3, 3)]
            assert tpu_world.ordinal != 2

    @pytest.fixture
    def sized(tpu_cores):
        return tpu_cores * 10

    @pytest_tpu.multi_process
    def test_size_in_a_fixture(sized, tpu_world):
        assert 10 * tpu_world.size == sized
"""

OUTCOMES = """\
test_it.py::test_cores[1core] PASSED
test_it.py::test_cores[3cores] FAILED
test_it.py::test_combined[1core-a] PASSED
test_it.py::test_combined[3cores-a] PASSED
test_it.py::test_combined[1core-b] PASSED
test_it.py::test_combined[3cores-b] FAILED
test_it.py::test_ordinary[c] PASSED
test_it.py::test_ordinary[named] FAILED
test_it.py::test_fixture[x] PASSED
test_it.py::test_fixture[y] FAILED
test_it.py::TestMethods::test_size[2cores] PASSED
test_it.py::TestMethods::test_size[3cores] FAILED
test_it.py::test_size_in_a_fixture[1core] PASSED
test_it.py::test_size_in_a_fixture[3cores] PASSED
"""


class TestParametrize:
    def test_cases(self, run_on_ordinals: RunOnOrdinals) -> None:
        """World sizes and ordinary parameters combine, and each case passes or fails by itself."""
        result = run_on_ordinals(CASES, "-v", cores=3)
        outcomes = [line.partition(" [")[0].strip() for line in result.outlines if " [" in line and "::" in line]

        assert sorted(OUTCOMES.splitlines()) == sorted(outcomes)

    def test_one_core(self, run_on_ordinals: RunOnOrdinals) -> None:
        """On a run with one core, 1 and all coincide and run once."""
        source = """
            def test_once(tpu_cores, tpu_world):
                assert 1 == tpu_cores == tpu_world.size
        """
        result = run_on_ordinals(source, "-v", cores=1)

        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["test_it.py::test_once[[]1core] PASSED*"])

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.summary import SHOW_ALL, summary

if TYPE_CHECKING:
    from tests.acceptance.conftest import RunOnOrdinals

# Two ordinals: `bad` decides which of them goes wrong, `how` in what way.
BODY = """
    import os, signal, time
    from pathlib import Path
    import pytest

    pytestmark = pytest.mark.tpu_multi_process

    ENDS = {"all_pass": (), "all_fail": (0, 1), "mixed": (1,), "killed": (0, 1)}
    ends = pytest.mark.parametrize("end", ENDS)

    def is_alive(pid):
        stat = Path(f"/proc/{pid}/stat")
        try:
            return " Z " not in stat.read_text()
        except OSError:
            return False

    def goes_wrong(end, world):
        if end == "killed":
            note = world.tmp_path / "pid"
            if world.ordinal == 0:
                note.with_name("new").write_text(str(os.getpid()))
                note.with_name("new").rename(note)
                os.kill(os.getpid(), signal.SIGKILL)
            # What the other one raises comes after the death, however slow the machine is.
            while not note.exists() or is_alive(note.read_text()):
                time.sleep(0.001)
        return world.ordinal in ENDS[end]

    @ends
    @pytest.mark.xfail
    def test_plain(end, tpu_world):
        wrong = goes_wrong(end, tpu_world)
        assert not wrong

    @ends
    @pytest.mark.xfail(strict=True, reason="known")
    def test_strict(end, tpu_world):
        wrong = goes_wrong(end, tpu_world)
        assert not wrong

    @ends
    @pytest.mark.xfail(raises=AssertionError)
    def test_right(end, tpu_world):
        wrong = goes_wrong(end, tpu_world)
        assert not wrong

    @ends
    @pytest.mark.xfail(raises=KeyError)
    def test_wrong(end, tpu_world):
        wrong = goes_wrong(end, tpu_world)
        assert not wrong

    @ends
    def test_dynamic(end, tpu_world, request):
        request.node.add_marker(pytest.mark.xfail(reason="added"))
        wrong = goes_wrong(end, tpu_world)
        assert not wrong

    @ends
    def test_imperative(end, tpu_world):
        if goes_wrong(end, tpu_world):
            pytest.xfail("known")
"""

LOST = "FAILED LOST: ordinal 0: killed by SIGKILL (9), without a report"
RAISED = "FAILED RAISED: ordinal 1: assert not True"

MATRIX = {
    "test_plain[all_pass]": "XPASS",
    "test_plain[all_fail]": "XFAIL",
    "test_plain[mixed]": "XFAIL",
    "test_plain[killed]": LOST,
    "test_strict[all_pass]": "FAILED [XPASS(strict)] known",
    "test_strict[all_fail]": "XFAIL known",
    "test_strict[mixed]": "XFAIL known",
    "test_strict[killed]": LOST,
    "test_right[all_pass]": "XPASS",
    "test_right[all_fail]": "XFAIL",
    "test_right[mixed]": "XFAIL",
    "test_right[killed]": LOST,
    "test_wrong[all_pass]": "XPASS",
    "test_wrong[all_fail]": "FAILED AGREED: all 2 ordinals failed: assert not True",
    "test_wrong[mixed]": RAISED,
    "test_wrong[killed]": LOST,
    "test_dynamic[all_pass]": "XPASS added",
    "test_dynamic[all_fail]": "XFAIL added",
    "test_dynamic[mixed]": "XFAIL added",
    "test_dynamic[killed]": LOST,
    "test_imperative[all_pass]": "PASSED",
    "test_imperative[all_fail]": "XFAIL known",
    "test_imperative[mixed]": "FAILED DIVERGED: ordinal 0 passed, ordinal 1 called xfail (known)",
    "test_imperative[killed]": LOST,
}


def test_matrix(run_on_ordinals: RunOnOrdinals) -> None:
    """An expected failure excuses what was raised, and never a death, a division or a surprise."""
    assert MATRIX == summary(run_on_ordinals(BODY, *SHOW_ALL))


def test_runxfail(run_on_ordinals: RunOnOrdinals) -> None:
    """With --runxfail nothing is excused, and pytest.xfail does nothing."""
    failed = "FAILED AGREED: all 2 ordinals failed: assert not True"

    assert {
        "test_plain[all_pass]": "PASSED",
        "test_plain[all_fail]": failed,
        "test_plain[mixed]": RAISED,
        "test_plain[killed]": LOST,
        "test_imperative[all_pass]": "PASSED",
        "test_imperative[all_fail]": "PASSED",
        "test_imperative[mixed]": "PASSED",
        "test_imperative[killed]": LOST,
    } == summary(run_on_ordinals(BODY, "--runxfail", "-k", "plain or imperative", *SHOW_ALL))

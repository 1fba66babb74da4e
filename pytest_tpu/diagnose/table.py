"""The table of ordinals."""

from __future__ import annotations

from pytest_tpu.diagnose.words import process_end, seconds
from pytest_tpu.model.verdict import OrdinalState, Outcome, Verdict

_HEAD = ("ordinal", "pid", "outcome", "after", "process", "reason")
_REASON = 72


def table(verdict: Verdict) -> str:
    """Write one line per ordinal: what it said, when, how its process ended.

    Args:
        verdict: of an ended launch.

    Returns:
        Lines of aligned columns; the first event is marked.
    """
    rows = [_HEAD, *(_row(state, verdict) for state in verdict.ordinals)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD) - 1)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def _row(state: OrdinalState, verdict: Verdict) -> tuple[str, ...]:
    # A mismatch is the same sentence on all of them, and the headline; of a stopped one the place says all.
    said = "" if state.outcome in (Outcome.MISMATCHED, Outcome.STOPPED) else state.reason
    reason = said.splitlines()[0] if said else ""
    if len(reason) > _REASON:
        reason = reason[: _REASON - 1] + "…"
    place = f" in {state.where}" if state.where and state.outcome is not Outcome.PASSED else ""
    mark = "  <- first" if state.ordinal == verdict.first and len(verdict.ordinals) > 1 else ""
    return (
        str(state.ordinal),
        str(state.pid),
        state.outcome.value if state.outcome else "none",
        seconds(max(0.0, state.phase_at - verdict.started_at)) if state.outcome else "-",
        _process(state),
        f"{reason}{place}{mark}".strip(),
    )


def _process(state: OrdinalState) -> str:
    if state.exit_code is None:
        return "survived SIGKILL"
    if state.exit_code == 0:
        return "ended" if state.outcome or state.stopped else process_end(0)
    by = " by the controller" if state.stopped else ""
    return process_end(state.exit_code) + by

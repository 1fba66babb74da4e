"""Measure an empty test on N ordinals (an XLA device, one all-reduce) against its floor and its peers, in one run.

The parts take turns, so that a noisy machine is noisy for all of them: read the ratios, not the seconds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ROOT = Path(__file__).parent.parent

FLOOR = "floor: a bare loop of os.fork"
OURS = "pytest-tpu, per test of a warm session"
OURS_COMMAND = "pytest-tpu, a command of one test, with its imports"
HARNESS = "PyTorch's MultiProcessTestCase, per test"
TORCHRUN = "torchrun, a command, with its imports"

# What --check holds, which is what the project promises: a warm test against the bare loop and against PyTorch's
# harness, and what the plugin costs a run that has no use for it. On a busy machine it means nothing.
MOST_OF_FLOOR = 2.0
LEAST_FASTER_THAN_HARNESS = 30.0
MOST_COLLECTION_CPU_S = 0.030


class PartError(Exception):
    """A part did not run: its command, how it ended, and the end of what it said."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What was asked for on the command line."""

    repeat: int
    rounds: int
    cores: int
    harness: int
    torchrun: int
    collect: int
    limit_s: float
    check: bool


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the table; the last ratio is None where the harness was left out."""

    name: str
    count: int
    median_s: float
    least_s: float
    of_floor: float
    faster_than_harness: float | None


@dataclass(frozen=True, kw_only=True)
class Took:
    """What a command took: by the clock, and on a processor, which a busy machine disturbs less."""

    seconds: float
    cpu_s: float

    def __sub__(self, other: Took) -> Took:
        """How much more this one took."""
        return Took(seconds=self.seconds - other.seconds, cpu_s=self.cpu_s - other.cpu_s)


def run(command: list[str], limit_s: float, **environment: str) -> tuple[float, str]:
    """Run a command in a process group of its own, which never outlives it; returns its seconds and its output."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "PJRT_DEVICE": "CPU", "GLOO_SOCKET_IFNAME": "lo"}
    # Users have compiled modules; where the environment forbids to write them, each run would compile ours again.
    variables |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "", **environment}
    began = time.perf_counter()
    with subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            out, err = process.communicate(timeout=limit_s)
            seconds = time.perf_counter() - began
        except subprocess.TimeoutExpired:
            raise PartError(f"{' '.join(command)}: no end within {limit_s:.0f} s") from None
        finally:
            _end_group(process.pid)
    if process.returncode != 0:
        raise PartError(f"{' '.join(command)}: exit code {process.returncode}\n{(out + err)[-3000:]}")
    return seconds, out


def _end_group(group: int) -> None:
    """Kill what is left of a process group."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def seconds_of(out: str) -> list[float]:
    """The last line that a program printed."""
    return [float(value) for value in json.loads(out.splitlines()[-1])]


def plugin(*, on: bool) -> list[str]:
    """The arguments that switch the plugin on or off, where it is installed and where it is not."""
    installed = any(entry.value == "pytest_tpu.plugin" for entry in importlib.metadata.entry_points(group="pytest11"))
    if on:
        return [] if installed else ["-p", "pytest_tpu.plugin"]
    return ["-p", "no:tpu"] if installed else []


def pytest_command(*arguments: str) -> list[str]:
    """Pytest by this Python, with no settings of this repository."""
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *arguments]


def measure_floor(plan: Plan) -> list[float]:
    """The floor, `repeat` times in one warm process."""
    command = [sys.executable, str(PROGRAMS / "floor.py"), str(plan.repeat), str(plan.cores)]
    return seconds_of(run(command, plan.limit_s)[1])


def measure_ours(plan: Plan, repeat: int) -> tuple[float, list[float]]:
    """A session of `repeat` tests: its seconds as a command, and those of each test as pytest reports them."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "seconds.json"
        command = pytest_command(
            *plugin(on=True),
            "--tpu-backend=cpu",
            f"--tpu-cores={plan.cores}",
            f"--rootdir={PROGRAMS / 'ours'}",
            str(PROGRAMS / "ours"),
        )
        seconds, _ = run(command, plan.limit_s, REPEAT=str(repeat), SECONDS_FILE=str(file))
        return seconds, seconds_of(file.read_text(encoding="utf-8"))


def measure_harness(plan: Plan) -> list[float]:
    """PyTorch's own harness."""
    command = [sys.executable, str(PROGRAMS / "harness.py"), str(plan.harness), str(plan.cores)]
    return seconds_of(run(command, plan.limit_s)[1])


def measure_torchrun(plan: Plan) -> float:
    """One command of torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={plan.cores}"]
    return run([*command, str(PROGRAMS / "elastic.py")], plan.limit_s)[0]


def measure_collection(plan: Plan) -> list[Took]:
    """What the plugin adds to `pytest --collect-only` of a file without tpu tests; pairs, in alternating order."""
    added = []
    for number in range(plan.collect + 1):
        took = {}
        for on in (True, False) if number % 2 else (False, True):
            command = pytest_command(*plugin(on=on), "--collect-only", str(PROGRAMS / "plain.py"))
            cpu_s = _children_cpu_s()
            seconds, _ = run(command, plan.limit_s)
            took[on] = Took(seconds=seconds, cpu_s=_children_cpu_s() - cpu_s)
        added.append(took[True] - took[False])
    return added[1:]


def _children_cpu_s() -> float:
    """The processor time of all commands until now."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def measure(plan: Plan) -> dict[str, list[float]]:
    """All launches, in turns; the first test of each of our sessions warms up, as the floor's first does."""
    took: dict[str, list[float]] = defaultdict(list)
    for number in range(plan.rounds):
        _say(f"round {number + 1} of {plan.rounds}")
        took[FLOOR] += measure_floor(plan)
        took[OURS] += measure_ours(plan, plan.repeat + 1)[1][1:]
        took[OURS_COMMAND].append(measure_ours(plan, 1)[0])
    if plan.harness:
        _say(HARNESS)
        took[HARNESS] += measure_harness(plan)
    for _ in range(plan.torchrun):
        _say(TORCHRUN)
        took[TORCHRUN].append(measure_torchrun(plan))
    return took


def table(took: dict[str, list[float]]) -> list[Row]:
    """The rows, each with its ratios to the floor and to the harness."""
    medians = {name: statistics.median(values) for name, values in took.items()}
    harness = medians.get(HARNESS)
    return [
        Row(
            name=name,
            count=len(values),
            median_s=medians[name],
            least_s=min(values),
            of_floor=medians[name] / medians[FLOOR],
            faster_than_harness=harness / medians[name] if harness is not None else None,
        )
        for name, values in took.items()
    ]


def missed(rows: list[Row], added: list[Took]) -> list[str]:
    """What is worse than it may be, a line each; of what was left out nothing is said."""
    lines = []
    ours = next(row for row in rows if row.name == OURS)
    if ours.of_floor > MOST_OF_FLOOR:
        lines.append(f"{OURS}: {ours.of_floor:.2f} x the floor, at most {MOST_OF_FLOOR:g} x")
    faster = ours.faster_than_harness
    if faster is not None and faster < LEAST_FASTER_THAN_HARNESS:
        lines.append(f"{OURS}: {faster:.1f} x faster than {HARNESS}, at least {LEAST_FASTER_THAN_HARNESS:g} x")
    cpu_s = statistics.median(took.cpu_s for took in added) if added else 0.0
    if cpu_s > MOST_COLLECTION_CPU_S:
        most = f"at most {MOST_COLLECTION_CPU_S * 1000:.0f} ms"
        lines.append(f"a collection without tpu tests: {cpu_s * 1000:.0f} ms more of processor time, {most}")
    return lines


def text(rows: list[Row], cores: int) -> str:
    """The table as text."""
    head = f"an empty test on {cores} ordinals: a device, one all-reduce"
    lines = [f"{head:<56} {'runs':>5} {'median':>9} {'least':>9} {'of floor':>9} {'MPTestCase is':>14}"]
    for row in rows:
        of_floor = f"{row.of_floor:.2f} x"
        slower = "" if row.faster_than_harness is None else f"{row.faster_than_harness:.1f} x"
        times = f"{row.count:>5} {row.median_s:>7.3f} s {row.least_s:>7.3f} s"
        lines.append(f"{row.name:<56} {times} {of_floor:>9} {slower:>14}")
    return "\n".join(lines)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def parse(arguments: list[str]) -> Plan:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10, metavar="K", help="tests of a session (default 10)")
    parser.add_argument("--rounds", type=int, default=2, help="sessions of each kind, in turns (default 2)")
    parser.add_argument("--cores", type=int, default=8, help="ordinals of a test (default 8)")
    parser.add_argument("--harness", type=int, default=2, metavar="K", help="tests in MultiProcessTestCase; 0: none")
    parser.add_argument("--torchrun", type=int, default=1, metavar="K", help="commands of torchrun; 0: none")
    parser.add_argument("--collect", type=int, default=15, metavar="K", help="pairs of --collect-only; 0: none")
    parser.add_argument("--limit", type=float, default=300.0, dest="limit_s", help="seconds for each part")
    parser.add_argument("--check", action="store_true", help="fail where a ratio is worse than it may be")
    return Plan(**vars(parser.parse_args(arguments)))


def main(arguments: list[str]) -> int:
    """Measure and print; returns the exit code."""
    plan = parse(arguments)
    if plan.harness and importlib.util.find_spec("expecttest") is None:
        _say("MultiProcessTestCase needs the package expecttest; --harness 0 leaves it out")
        return 2
    try:
        rows = table(measure(plan))
        added = measure_collection(plan) if plan.collect else []
    except PartError as error:
        _say(str(error))
        return 1
    print(text(rows, plan.cores))
    if added:
        clock = statistics.median(took.seconds for took in added) * 1000
        cpu = statistics.median(took.cpu_s for took in added) * 1000
        print("pytest --collect-only of a file without tpu tests, with the plugin and without:")
        print(f"{clock:+.0f} ms by the clock, {cpu:+.0f} ms of processor time (medians of {len(added)} pairs)")
    lines = missed(rows, added) if plan.check else []
    for line in lines:
        _say(f"missed: {line}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

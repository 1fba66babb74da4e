"""The engine: launch a world, watch it, stop it, return what became of it. Knows no pytest.

It serves the controller, the process of an isolated test, and scripts alike.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pytest_tpu.backend import Backend
from pytest_tpu.diagnose.conclude import Watched, conclude, must_stop, waiting_for_ended
from pytest_tpu.diagnose.stall import Stall, find_stall, patience_of
from pytest_tpu.errors import BackendError, MessageError, TpuError
from pytest_tpu.ledger import Ledger
from pytest_tpu.model.limits import Limits
from pytest_tpu.model.messages import Exited, Finished, Launches, Ready
from pytest_tpu.model.place import Place
from pytest_tpu.model.position import Position
from pytest_tpu.model.verdict import LaunchError, OrdinalState, Outcome, Phase, Verdict
from pytest_tpu.process.descendants import Descendant, Processes, recent
from pytest_tpu.process.held import HeldSignals, ends_are_kept
from pytest_tpu.process.ordinal_process import Gate, OrdinalProcess
from pytest_tpu.process.output import OutputFiles
from pytest_tpu.process.shutdown import stop

_TICK = 0.05
"""Seconds between two looks at limits and output; news from an ordinal wakes the controller at once."""

_NOTED_EVERY = 1.0
"""Seconds between two looks at what ordinals have started: of one that is killed nothing shows it any more."""

Send = Callable[[Any], None]
Work = Callable[[Place, OutputFiles, Send], "Finished | Exited"]
"""What an ordinal does in its place: it knows where its output goes and how to send further messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What to run and how.

    Args:
        cores: how many ordinals, or for a process of its own how many cores its host has.
        work: what each process does, once it is an ordinal.
        limits: that hold.
        alone: whether it is one process and no ordinal: an isolated test.
        noun: what one process is called in messages.
        on_message: takes what is none of the engine's own messages, with the ordinal that sent it.
        on_output: looks at the output of an ordinal while the world runs, and with True once after it.
    """

    cores: int
    work: Work
    limits: Limits
    alone: bool = False
    noun: str = "ordinal"
    on_message: Callable[[int, Any], None] | None = None
    on_output: Callable[[int, OutputFiles, bool], None] | None = None

    @property
    def size(self) -> int:
        """How many processes it starts."""
        return 1 if self.alone else self.cores


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What became of a world.

    Args:
        verdict: the conclusion.
        data: by ordinal, what its Finished message carried; None where there was none.
        outputs: by ordinal, stream name to text.
        exited: the first `pytest.exit` or interrupt of a body.
    """

    verdict: Verdict
    data: tuple[Any, ...]
    outputs: tuple[dict[str, str], ...]
    exited: Exited | None = None


def supervise(launch: Launch, backend: Backend | None) -> Ended:
    """Run a world to its end.

    Whatever happens meanwhile, an exception in the caller's thread included (Ctrl-C, a limit of another plugin), no
    process of the world outlives the call.

    Raises:
        LaunchError: the world could not be started.
    """
    with ExitStack() as stack:
        stack.enter_context(ends_are_kept())
        with _refusing():
            plan = None if launch.alone or backend is None else stack.enter_context(backend.plan(launch.cores))
            world = _World(launch)
            stack.callback(world.close)
            world.start(backend, plan)
        world.watch()
        return world.ended()


@contextmanager
def _refusing() -> Iterator[None]:
    """Make a verdict of what keeps a world from its start: the machine has no more of something, or no such host."""
    try:
        yield
    except TimeoutError:
        # Limits of others raise it, out of a handler of theirs.
        raise
    except BackendError as error:
        raise LaunchError.refused(str(error)) from error
    except OSError as error:
        raise LaunchError.refused(f"the processes can't be started: {error}") from error


class _World:
    """The processes of one launch and what is known of them."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._limits = launch.limits
        self._started_at = time.monotonic()
        # The gate last: it alone would stay open if the other could not be made.
        self._ledger = Ledger.create(launch.size)
        self._gate = Gate()
        self._processes: list[OrdinalProcess] = []
        self._states: list[OrdinalState] = []
        self._data: dict[int, Any] = {}
        self._exited: Exited | None = None
        self._overdue = False
        self._stopped_at: float | None = None
        self._idle_since: float | None = None
        self._stall: Stall | None = None
        self._active_at: dict[int, float] = {}
        self._positions: tuple[Position, ...] = ()

    def start(self, backend: Backend | None, plan: Any) -> None:
        """Fork all processes."""
        with HeldSignals() as held:
            for ordinal in range(self._launch.size):
                self._start_one(ordinal, backend, plan, held)

    def _start_one(self, ordinal: int, backend: Backend | None, plan: Any, held: HeldSignals) -> None:
        launch = self._launch
        place = Place(ordinal=ordinal, size=launch.size, meetings=self._ledger.meetings(ordinal), plan=plan)

        def body(output: OutputFiles, send: Send) -> None:
            try:
                send(_live(launch, place, backend, output, send))
            except MessageError as error:
                send(Finished(at=time.monotonic(), outcome=Outcome.FAILED, reason=str(error)))

        process = OrdinalProcess(ordinal, body, self._gate, held)
        self._processes.append(process)
        self._states.append(OrdinalState(ordinal=ordinal, pid=process.pid, phase_at=process.started_at))

    def watch(self) -> None:
        """Wait until all processes have ended, or stop them when they can't end well."""
        while not all(state.phase is Phase.ENDED for state in self._states):
            self._pump(_TICK)
            self._note_started(recent(_NOTED_EVERY))
            if all(state.outcome is not None or state.exit_code is not None for state in self._states):
                self._let_go()
                self._note_idleness()
            # One moment for both questions: a limit that passed between them would hide the stall that explains it.
            now = time.monotonic()
            self._look_for_stall(now)
            if self._exited is not None or must_stop(self._watched(now), self._limits):
                self._stop(now)
                return

    def ended(self) -> Ended:
        """Put together what became of it."""
        launch, limits = self._launch, self._launch.limits
        verdict = conclude(self._watched(time.monotonic()), limits, overdue=self._overdue, noun=launch.noun)
        for process in self._processes:
            if launch.on_output is not None:
                launch.on_output(process.ordinal, process.output, True)
        return Ended(
            verdict=verdict,
            data=tuple(self._data.get(process.ordinal) for process in self._processes),
            outputs=tuple(process.output.texts() for process in self._processes),
            exited=self._exited,
        )

    def close(self) -> None:
        """Make sure that nothing is left; also after an exception in between."""
        try:
            if any(process.exit_code is None for process in self._processes):
                self._stop(time.monotonic())
        finally:
            # Whoever presses Ctrl-C a second time does not want to wait.
            self._gate.open()
            for process in self._processes:
                process.close()
            self._ledger.close()

    def _watched(self, now: float) -> Watched:
        states = tuple(self._states)
        return Watched(
            states=states,
            waiting=waiting_for_ended(self._positions, states),
            idle_since=self._idle_since,
            started_at=self._started_at,
            now=now,
            stall=self._stall,
        )

    def _look_for_stall(self, now: float) -> None:
        limits = self._limits
        # States first: what is missing after an ordinal has said that it returned will never come.
        states, positions = tuple(self._states), self._ledger.snapshot()
        self._positions = positions
        for ordinal in {member for position in positions for member in position.missing}:
            if states[ordinal].outcome is None and self._processes[ordinal].is_busy():
                self._active_at[ordinal] = now
        overdue = bool(limits.timeout) and now - self._started_at >= limits.timeout
        patience = patience_of(limits, overdue=overdue)
        active_at = {} if overdue else self._active_at
        self._stall = find_stall(positions, states, now=now, patience=patience, active_at=active_at)

    def _let_go(self) -> None:
        if not self._gate.is_open:
            self._note_started(recent(0))
            self._gate.open()

    def _note_started(self, processes: Processes) -> None:
        for process in self._processes:
            process.note(processes)

    def _note_idleness(self) -> None:
        """Tell slow from stuck: a process that uses the processor is still ending."""
        busy = [process.is_busy() for process in self._processes if process.exit_code is None]
        if any(busy):
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = time.monotonic()

    def _stop(self, now: float) -> None:
        limits = self._limits
        self._stopped_at = time.monotonic()
        self._overdue = bool(limits.timeout) and now - self._started_at >= limits.timeout
        processes = recent(0)
        self._states = [
            replace(state, stopped=state.exit_code is None, processes=_living(process.note(processes)))
            for state, process in zip(self._states, self._processes, strict=True)
        ]
        self._gate.open()
        stop(
            self._processes,
            grace=limits.grace,
            pump=lambda seconds: self._pump(min(seconds, _TICK)),
            after_interrupt=self._ledger.stop,
        )
        self._pump(0)

    def _pump(self, seconds: float) -> None:
        """Wait up to `seconds` for news and take them in."""
        descriptors = [descriptor for process in self._processes for descriptor in process.wait_on]
        _wait_readable(descriptors, seconds)
        for process in self._processes:
            # Looked at before its pipe is read: what it said before its end has then surely arrived.
            has_ended = process.poll()
            for message in process.reader.receive():
                self._take(process.ordinal, message)
            if has_ended:
                self._note_end(process)
            if self._launch.on_output is not None:
                self._launch.on_output(process.ordinal, process.output, False)

    def _take(self, ordinal: int, message: Any) -> None:
        match message:
            case Ready(at=at):
                self._change(ordinal, phase=Phase.BODY, phase_at=at)
            case Finished():
                phase = Phase.RAISED if message.outcome is Outcome.FAILED else Phase.RETURNED
                self._data[ordinal] = message.data
                self._change(
                    ordinal,
                    phase=phase,
                    phase_at=message.at,
                    outcome=self._own(message),
                    reason=message.reason,
                    where=message.where,
                    threads=message.threads,
                )
            case Exited():
                self._exited = self._exited or message
                self._change(ordinal, phase_at=message.at, outcome=Outcome.STOPPED, reason=message.reason)
            case Launches():
                self._limits = self._launch.limits.around()
            case _ if self._launch.on_message is not None:
                self._launch.on_message(ordinal, message)

    def _own(self, message: Finished) -> Outcome:
        """The outcome, unless the interrupt made it.

        A body may turn WorldStopped into an error of its own, or into nothing, and neither is excused by an xfail mark.
        """
        interrupted = self._stopped_at is not None and message.at > self._stopped_at
        return Outcome.STOPPED if interrupted else message.outcome

    def _note_end(self, process: OrdinalProcess) -> None:
        if self._states[process.ordinal].phase is not Phase.ENDED:
            self._change(process.ordinal, phase=Phase.ENDED, exit_code=process.exit_code, exit_at=process.exit_at)

    def _change(self, ordinal: int, **changes: Any) -> None:
        self._states[ordinal] = replace(self._states[ordinal], **changes)


def _living(started: Sequence[Descendant]) -> tuple[str, ...]:
    return tuple(str(seen) for seen in started if seen.state != "Z")


def _wait_readable(descriptors: list[int], seconds: float) -> None:
    if not descriptors:
        threading.Event().wait(seconds)
        return
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    poll.poll(max(0, round(seconds * 1000)))


def _live(launch: Launch, place: Place, backend: Backend | None, output: OutputFiles, send: Send) -> Finished | Exited:
    """An ordinal's life between its first breath and the gate."""
    try:
        if backend is not None and launch.alone:
            backend.resize(launch.cores)
        elif backend is not None:
            backend.enter(place)
    except TpuError as error:
        return Finished(at=time.monotonic(), outcome=Outcome.REFUSED, reason=str(error))
    send(Ready(at=time.monotonic()))
    word = launch.work(place, output, send)
    if not isinstance(word, Finished):
        return word
    mismatch = place.meetings.mismatch
    if mismatch is not None and word.outcome not in (Outcome.MISMATCHED, Outcome.STOPPED):
        # The body caught it: a handler around a training step must not make a pass of it.
        word = replace(word, outcome=Outcome.MISMATCHED, reason=str(mismatch))
    return replace(word, threads=_other_threads())


def _other_threads() -> tuple[str, ...]:
    """What may still act in this process while its main thread waits for the other ordinals."""
    return tuple(thread.name for thread in threading.enumerate() if thread is not threading.current_thread())

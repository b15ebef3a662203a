"""Controls before a trial: read, journal, write, read back; and put back when it ends, however it ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tare.base.errors import ControlNotHeld, NotRestoredError, TareError, TrialError
from tare.base.host import Host
from tare.parts.protocols import Control, Json, TenantPlace
from tare.trial.device import restore_command
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import Knob, in_restore_order, plain, put_back, why


def hold_controls(
    stack: ExitStack, host: Host, controls: Iterable[Control], inputs: Iterable[Path], journal: Journal
) -> dict[str, Json]:
    """Put each control where the study wants it, and return what is in force; the stack puts back what was there."""
    holding = _Holding(host, journal)
    stack.callback(holding.release)
    files = tuple(inputs)
    ordered = sorted(controls, key=lambda control: control.hold_rank)
    return {control.part_name(): holding.hold(control, plain(control.target(host, files))) for control in ordered}


def settle_controls(host: Host, controls: Iterable[Control], tenants: Sequence[TenantPlace]) -> dict[str, Json]:
    """Let each control finish its work in the places that now stand; what it saw there, by its name."""
    ordered = sorted(controls, key=lambda control: control.hold_rank)
    reported = {control.part_name(): plain(control.settle(host, tenants)) for control in ordered}
    return {name: fact for name, fact in reported.items() if fact is not None}


class _Holding:
    """The knobs that one trial has turned so far."""

    def __init__(self, host: Host, journal: Journal) -> None:
        self._host = host
        self._journal = journal
        self._knobs: list[Knob] = []

    def hold(self, control: Control, target: Json) -> Json:
        """Turn one knob; the value in force is read back, because a device may round, or ignore, what it is told."""
        before = self._before(control)
        if before is None:  # nothing to put back: the control itself checks that it worked
            self._write(control, target)
            return target
        self._knobs.append(self._journaled(control, before, target))
        try:
            self._write(control, target)
        except Exception:
            self._adopt(control, target)
            raise
        if (now := self._before(control)) != target:
            self._adopt(control, target)
            raise ControlNotHeld(control.part_name(), asked=target, found=now)
        return now

    def release(self) -> None:
        """Put everything back, whatever fails on the way; the sum is raised at the end."""
        left, failed, notes = in_restore_order(self._knobs, self._host), [], []
        force = False
        stopped: BaseException | None = None
        while left:
            try:
                outcome = put_back(self._host, left[0], self._journal)
            except (KeyboardInterrupt, SystemExit) as stop:
                stopped = stop  # the same knob again: an impatient Ctrl-C must not leave the device changed
                continue
            failed += [outcome.sentence] if outcome.word != "restored" else []
            force |= outcome.word == "foreign"
            notes += [outcome.note] if outcome.note else []
            left.pop(0)
        self._knobs.clear()
        _report(failed, notes, force)
        if stopped is not None:
            raise stopped

    def _before(self, control: Control) -> Json | None:
        try:
            return plain(control.read(self._host))
        except OSError as error:
            unread = f"{control.part_name()}: its state cannot be read: {why(error)}."
            raise TrialError(f"{unread} What cannot be read is not held.") from error

    def _journaled(self, control: Control, before: Json, target: Json) -> Knob:
        """On disk first. An older pending record of the same knob holds the true baseline; both end together."""
        earlier = self._journal.history(control)
        seq = self._journal.note_knob(control, before, target)
        return Knob(
            control=control,
            old=earlier[0].old if earlier else before,
            wanted=(*(entry.new for entry in earlier), target),
            seqs=(*(entry.seq for entry in earlier), seq),
            boot=self._journal.boot,
        )

    def _adopt(self, control: Control, target: Json) -> None:
        """What a failed write has left is our doing, whatever it is: without this it would pass for someone else's."""
        with contextlib.suppress(TareError):
            now = self._before(control)
            if now not in (None, target, self._knobs[-1].old):
                self._knobs[-1] = replace(self._knobs[-1], wanted=(*self._knobs[-1].wanted, now))
                self._knobs[-1] = self._journaled(control, now, now)

    def _write(self, control: Control, target: Json) -> None:
        try:
            control.write(self._host, target)
        except OSError as error:
            raise ControlNotHeld(control.part_name(), asked=target, found=why(error)) from error


def _report(failed: list[str], notes: list[str], force: bool) -> None:
    if failed:
        again = f"`{restore_command(force=force)}` {'restores what tare found' if force else 'tries again'}"
        last = f"{again}; `{restore_command()} --plan` shows the state of each setting."
        raise NotRestoredError("\n".join(["the device was NOT left as it was found.", *failed, last]), force=force)
    if notes:
        raise TareError("the device is as it was found, but:\n" + "\n".join(notes))

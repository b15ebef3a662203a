"""One knob that was turned, and how it is put back: the same way at the end of a trial and after a crash.

Controls before a trial: read, journal, write, read back; and put back when it ends, however it ends.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from tare.base.errors import ControlNotHeld, NotRestoredError, TareError, TrialError
from tare.base.host import Host
from tare.parts.protocols import Control, Json, TenantPlace
from tare.trial.device import restore_command
from tare.trial.undo.journal import Journal

MOST_SIGNS = 200  # of one state
MOST_SETTINGS = 4  # of a difference


def show(state: Json) -> str:
    """A whole state."""
    settings = _settings(state)
    text = ", ".join(f"{name} {value}" if name else value for name, value in settings.items()) or "nothing"
    return text if len(text) <= MOST_SIGNS else f"{text[:MOST_SIGNS]}…"


def apart(*states: Json) -> list[str]:
    """Each of the states, in the settings that are not the same in all of them."""
    reported = [_settings(state) for state in states]
    names = list(dict.fromkeys(name for one in reported for name in one))
    return _each(reported, [name for name in names if len({one.get(name) for one in reported}) > 1] or names)


def strange(found: Json, ours: Sequence[Json], now: Json) -> tuple[str, str, str]:
    """What was found, what we set last and what is now, in the settings that are neither found nor ours."""
    was, stands, *known = [_settings(state) for state in (found, now, *ours)]
    names = [name for name, value in stands.items() if value not in {one.get(name) for one in (was, *known)}]
    names = names or [name for name in stands if stands[name] != was.get(name)] or list(stands)
    first, last, today = _each([was, known[-1] if known else was, stands], names)
    return first, last, today


def _each(reported: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    more = len(names) - MOST_SETTINGS
    tail = f" and {more} settings more" if more > 0 else ""
    shown = [[(name, one.get(name, "missing")) for name in names[:MOST_SETTINGS]] for one in reported]
    return [", ".join(f"{name} {value}" if name else value for name, value in one) + tail for one in shown]


def _settings(state: Json, prefix: str = "") -> dict[str, str]:
    """A state as a list of settings; one that is a single value has a setting without a name."""
    if isinstance(state, dict):
        return {
            name: text
            for key, value in state.items()
            for name, text in _settings(value, f"{prefix}.{key}" if prefix else str(key)).items()
        }
    return {prefix: _text(state)}


def _text(value: Json) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(_text(one) for one in value) if value else "none"
    return json.dumps(value, ensure_ascii=False)


Word: TypeAlias = Literal["restored", "swept", "healed", "foreign", "failed", "planned"]
Stand: TypeAlias = Literal["as found", "ours", "foreign", "rebooted"]


class Outcome(NamedTuple):
    """What became of one knob or site, in a word and a sentence."""

    word: Word
    sentence: str
    note: str = ""  # worth saying beside it


@dataclass(frozen=True)
class Knob:
    """One knob, with everything that is pending for it in the journal."""

    control: Control
    old: Json  # the baseline
    wanted: tuple[Json, ...]  # what we may have set since, oldest first
    seqs: tuple[int, ...]
    boot: str

    @property
    def name(self) -> str:
        return self.control.part_name()

    def stand(self, now: Json, boot: str, detours: Sequence[Json] = ()) -> Stand:
        """How the knob stands: what it says now, against what was found, what we set, and what lies on the way."""
        if boot != self.boot and self.control.persistence == "volatile":
            return "rebooted"  # the reboot has undone what we did; what is there now is not of our making
        if now == self.old:
            return "as found"
        ours = any(is_between(self.old, new, now) for new in self.wanted)
        return "ours" if ours or is_among([self.old, *self.wanted, *detours], now) else "foreign"

    def detours(self, host: Host) -> list[Json]:
        """What lies on the way to any of its states, as far as the control knows."""
        return [plain(each) for state in (self.old, *self.wanted) for each in self.control.detours(host, state)]


def in_restore_order(knobs: Iterable[Knob], host: Host) -> list[Knob]:
    """What is urgent first (a hot board's fan), then by rank (cores before what needs them), the last turned first."""
    return sorted(knobs, key=lambda knob: (not _urgent(knob, host), knob.control.restore_rank, -max(knob.seqs)))


def _urgent(knob: Knob, host: Host) -> bool:
    try:
        return knob.control.urgent(host)
    except Exception:  # a part may raise anything, and must not keep the knobs from being put back
        return False


def put_back(host: Host, knob: Knob, journal: Journal, *, plan_only: bool = False, force: bool = False) -> Outcome:
    """Put one knob back to its baseline, unless someone else has changed it since; a failure is an outcome too.

    It may be killed at any point and done again: the record is retired only after the read-back equals the baseline.
    """
    try:
        now = read_state(host, knob.control)
        stand = knob.stand(now, journal.boot, knob.detours(host))
        if plan_only:
            return _planned(knob, now, stand, force)
        if stand == "rebooted":
            was, is_now = apart(knob.old, now)
            sentence = f"healed by the reboot since then (it was {was}, it is {is_now} now)."
            return retired(journal, knob.seqs, "healed by reboot", Outcome("healed", f"{knob.name}: {sentence}"))
        if stand == "as found":
            outcome = Outcome("restored", f"{knob.name}: it is as it was found, {show(now)}.")
            return retired(journal, knob.seqs, "as found", outcome)
        if stand == "foreign" and not force:
            return _foreign(knob, now)
        return _written_back(host, knob, journal, now)
    except Exception as error:  # a part may raise anything, and must not keep the other knobs from being put back
        return Outcome("failed", _not_put_back(knob, error))


def read_state(host: Host, control: Control) -> Json:
    """The state now, as plain data; what cannot be read must not be touched."""
    state = control.read(host)
    if state is None:
        raise TareError("its state cannot be read")
    return plain(state)


def plain(state: Json) -> Json:
    """`state` as it comes back from JSON, so that what is compared does not depend on where it was kept."""
    return json.loads(json.dumps(state, allow_nan=False))


def is_between(old: Json, new: Json, now: Json) -> bool:
    """True if each piece of `now` is as found or as wanted: a change of several files that was cut off half-way."""
    if now in (old, new):
        return True
    if isinstance(old, dict) and isinstance(new, dict) and isinstance(now, dict):
        return old.keys() == new.keys() == now.keys() and all(is_between(old[k], new[k], now[k]) for k in now)
    if isinstance(old, list) and isinstance(new, list) and isinstance(now, list):  # lists are sets: cores, devices
        in_both = [item for item in old if item in new]
        return all(item in now for item in in_both) and all(item in old or item in new for item in now)
    return False


def is_among(states: Sequence[Json], now: Json) -> bool:
    """True if each setting of `now` is that of one of several states: a change on a detour that was cut off."""
    if not isinstance(now, dict):
        return False
    alike = [state for state in states if isinstance(state, dict) and state.keys() == now.keys()]
    return len(alike) > 2 and all(any(state[key] == value for state in alike) for key, value in now.items())


def why(error: Exception) -> str:
    """The reason in words; an error that nobody foresaw keeps its name."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    reported = str(error).rstrip(".")
    return reported if isinstance(error, TareError) else f"{type(error).__name__}: {reported}"


def _written_back(host: Host, knob: Knob, journal: Journal, now: Json) -> Outcome:
    knob.control.write(host, knob.old)
    after = read_state(host, knob.control)
    if after != knob.old:
        raise TareError(f"it was written, but the device still says {apart(knob.old, after)[1]}")
    found, stood = apart(knob.old, now)
    outcome = Outcome("restored", f"{knob.name}: restored to {found} (it stood at {stood}).")
    return retired(journal, knob.seqs, "restored", outcome)


def retired(journal: Journal, seqs: Iterable[int], how: str, outcome: Outcome) -> Outcome:
    """`outcome`, noted in the journal. If it cannot be, that is worth a note: the next start will look again."""
    try:
        for seq in seqs:
            journal.retire(seq, how)
    except TareError as error:
        return outcome._replace(note=str(error))
    return outcome


def _planned(knob: Knob, now: Json, stand: Stand, force: bool) -> Outcome:
    if stand == "foreign" and not force:
        outcome, command = _foreign(knob, now), restore_command(force=True)
        return outcome._replace(sentence=f"{outcome.sentence}\n`{command}` restores what tare found.")
    if stand in ("ours", "foreign"):
        found, stands = apart(knob.old, now)
        return Outcome("planned", f"{knob.name}: would be restored to {found} (it stands at {stands}).")
    because = "as it was found" if stand == "as found" else "healed by the reboot since then"
    return Outcome("planned", f"{knob.name}: nothing to do, it is {because} ({show(now)}).")


def _foreign(knob: Knob, now: Json) -> Outcome:
    found, ours, theirs = strange(knob.old, knob.wanted, now)
    sentence = f"tare found {found}, set {ours}, and now it is {theirs}"
    return Outcome("foreign", f"{knob.name}: left alone, because someone else has changed it: {sentence}.")


def _not_put_back(knob: Knob, error: Exception) -> str:
    if isinstance(error, PermissionError):
        needed = f"but root is needed: `{restore_command(as_root=True)}`"
        return f"{knob.name}: would be restored to {show(knob.old)}, {needed}."
    return f"{knob.name}: NOT restored to {show(knob.old)}: {why(error)}."


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
        last = f"{again}; `{restore_command()} --dry-run` shows the state of each setting."
        raise NotRestoredError("\n".join(["the device was NOT left as it was found.", *failed, last]), force=force)
    if notes:
        raise TareError("the device is as it was found, but:\n" + "\n".join(notes))

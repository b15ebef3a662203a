"""One look at a store while it is written, or after: everything that the dashboard shows, as plain data."""

from __future__ import annotations

import json
import re
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from tare.analysis.labels import distinguishing, make_labels
from tare.analysis.model import FlaggedTrial, Weighing
from tare.analysis.selection import request
from tare.analysis.sentences import effect_of, interval_of, verdict_phrase
from tare.analysis.weighing import weigh
from tare.base.errors import TareError
from tare.base.rulings import read_rulings
from tare.base.sides import is_rehearsal
from tare.base.text import count_text, duration_text, safe_text
from tare.records.creation import is_held
from tare.records.model import DEVICE, FINISHED, TYPE, USABLE, Record, State
from tare.records.schema import LEDGER_FILE
from tare.records.store import Store
from tare.report.live.running import device_rows, running_trial
from tare.report.other_tools import Numbers
from tare.report.text.trials import SHORT_ID, plain_text
from tare.report.text.verdict import counted_reasons, counts_text

# The devices of a fleet, a row each, from what the run has written down and what has come in. Troubles come first.

_NUMBERS = re.compile(r"(\d+)")
# In the order of the rows. What each says of several devices in the summary.
STATES: Mapping[str, str] = {
    "vanished": "vanished",
    "skipped": "skipped",
    "unseen": "at a trial whose end nobody waits for",
    "running": "at a trial",
    "idle": "between trials",
    "waiting": "waiting",
    "done": "done",
}


@dataclass(frozen=True)
class _Heard:
    """The last that the run has written down of a device."""

    what: str = ""
    trial: str = ""
    at_s: float = 0.0
    text: str = ""
    lost: bool = False  # its line was broken for longer than our patience


@dataclass
class Ledger:
    """`fleet.jsonl`, of which each look reads only what is new."""

    path: Path
    _offset: int = 0
    _heard: dict[str, _Heard] = field(default_factory=dict)

    def heard(self) -> Mapping[str, _Heard] | None:
        """By device; None where no fleet has run."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, 2) < self._offset:  # another file than it was
                    self._offset, self._heard = 0, {}
                file.seek(self._offset)
                new = file.read()
        except OSError:
            return None
        whole = new[: new.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            self._note(line)
        return self._heard

    def _note(self, line: bytes) -> None:
        try:
            said = json.loads(line)
            device, what, at_s = str(said["device"]), str(said["what"]), datetime.fromisoformat(said["utc"]).timestamp()
        except (ValueError, KeyError, TypeError):
            return  # not a line of ours
        if what == "begun":  # a run, for which all is open again
            self._heard |= {str(name): _Heard() for name in said.get("devices", ())}
            return
        before = self._heard.get(device, _Heard())
        trial = str(said.get("trial") or before.trial)
        lost = what == "unreachable" or (what == "skipped" and before.what == "unreachable")
        self._heard[device] = _Heard(what, trial, at_s, str(said.get("text") or ""), lost)


@dataclass
class _Plan:
    """What one device has to do."""

    type: str = ""
    total: int = 0
    done: int = 0
    last: Record | None = None


def fleet(
    heard: Mapping[str, _Heard], planned: Iterable[Mapping[str, Json]], states: Mapping[str, str],
    records: Sequence[Record], *, runs: bool, now_s: float,
) -> Json:  # fmt: skip
    """The summary and the rows; `runs`: someone writes the store now."""
    plans = _plans(planned, states, records)
    rows = [_row(name, heard.get(name, _Heard()), plans.get(name, _Plan()), runs, now_s) for name in {**plans, **heard}]
    rows.sort(key=lambda row: (list(STATES).index(row["state"]), _natural(row["name"])))
    counts = Counter(row["state"] for row in rows)
    told = ", ".join(f"{counts[state]:,} {words}" for state, words in STATES.items() if counts[state])
    return {"words": f"{count_text(len(rows), 'device')}: {told}", "counts": dict(counts), "rows": rows}


def _plans(
    planned: Iterable[Mapping[str, Json]], states: Mapping[str, str], records: Sequence[Record]
) -> dict[str, _Plan]:
    plans: dict[str, _Plan] = {}
    for row in planned:
        settings = row.get("settings", {})
        if "device" in settings:
            plan = plans.setdefault(str(settings[DEVICE]), _Plan(str(settings.get(TYPE, ""))))
            plan.total += 1
            plan.done += states.get(str(row.get("trial"))) in FINISHED
    for record in records:
        plan = plans.get(str(record.settings.get("device", "")), _Plan())
        if plan.last is None or (plan.last.started_utc, plan.last.end_ns) <= (record.started_utc, record.end_ns):
            plan.last = record
    return plans


def _row(name: str, heard: _Heard, plan: _Plan, runs: bool, now_s: float) -> Json:
    state = _state(heard, plan, runs)
    since = duration_text(now_s - heard.at_s) if heard.at_s and state in ("running", "unseen") else ""
    return {
        "name": safe_text(name), "type": safe_text(plan.type), "state": state,
        "trial": safe_text(heard.trial)[:SHORT_ID] if state in ("running", "unseen") else "",
        "since": since, "why": safe_text(heard.text) if state in ("vanished", "skipped") else "",
        "done": plan.done, "left": plan.total - plan.done, "last": plan.last.state if plan.last else "",
    }  # fmt: skip


def _state(heard: _Heard, plan: _Plan, runs: bool) -> str:
    if heard.what == "skipped":
        return "vanished" if heard.lost else "skipped"
    if heard.what in ("try", "again"):
        return "running" if runs else "unseen"
    if plan.done >= plan.total:
        return "done"
    return "idle" if runs and heard.what else "waiting"


def _natural(name: str) -> list[tuple[int, str]]:
    """`dev-9` before `dev-10`."""
    return [(int(piece) if piece.isdecimal() else -1, piece) for piece in _NUMBERS.split(name)]


def row_words(row: Mapping[str, Json]) -> str:
    """What a device does, in a few words."""
    if row["state"] in ("running", "unseen"):
        how = "for" if row["state"] == "running" else "unseen for"
        return f"trial {row['trial']}, {how} {row['since']}"
    return f"{row['state']}: {row['why']}" if row["why"] else str(row["state"])


Json: TypeAlias = Any
Device: TypeAlias = Callable[[], Mapping[str, Json]]  # `changed`: what is changed now, and by whom; its clocks, ...
_NEWEST = 8  # trials that have ended
_VERDICTS = 40  # shown; a fleet has some for each device
_MANY = 500  # trials from which on verdicts are not worked out again for each one that comes
_REST = 10  # times as long as that took
_OPEN_S = 60.0  # a store is opened anew so often: what cannot change under us is then looked at again
_EARLIER = 24  # verdicts of earlier blocks


@dataclass
class _Tightening:
    """The verdicts after each trial, so that one sees them tighten; what was seen of an older state is kept."""

    trials: int = -1
    verdicts: tuple[Json, ...] = ()
    history: tuple[Json, ...] = ()
    weighed: Weighing | None = None
    trouble: str = ""


class Watched:
    """One store, looked at again and again; what does not change is worked out once."""

    def __init__(self, root: Path, device: Device, now_s: Callable[[], float] = time.time) -> None:
        self.root = root
        self._device, self._now_s = device, now_s
        self._seen = _Tightening()
        self._weigh_at_s = 0.0
        self._ledger = Ledger(root / LEDGER_FILE)
        self._store: Store | None = None
        self._opened_s = 0.0

    def look(self) -> Json:
        """Everything there is to show. A store that cannot be read is an answer too."""
        try:
            return self._looked(self._opened())
        except TareError as error:
            self.close()
            return {"name": self.root.name, "trouble": safe_text(error)}

    def numbers(self) -> Numbers:
        """The same for Prometheus: counts and verdicts alone. Of a store that cannot be read, its name."""
        try:
            store = self._opened()
            states, seen = store.states(), self._weighed(store, store.records())
        except TareError:
            self.close()
            return Numbers(self.root.name)
        counts = {str(state): count for state, count in Counter(states.values()).items() if state != "planned"}
        return Numbers(seen.weighed.study if seen.weighed else self.root.name, counts, len(states), seen.weighed)

    def close(self) -> None:
        """Let the store go; the next look opens it again."""
        if self._store is not None:
            self._store.close()
            self._store = None

    def _opened(self) -> Store:
        """The store, which remembers the sealed trials that it has seen: opening one of thousands takes seconds."""
        if time.monotonic() - self._opened_s > _OPEN_S:
            self.close()
        if self._store is None:
            self._store, self._opened_s = Store.open(self.root), time.monotonic()
        return self._store

    def _weighed(self, store: Store, records: Sequence[Record]) -> _Tightening:
        start_s = time.monotonic()
        if len(records) != self._seen.trials and (len(records) < _MANY or start_s >= self._weigh_at_s):
            self._seen = _tightened(store, records, self._seen)
            self._weigh_at_s = time.monotonic() + _REST * (time.monotonic() - start_s)
        return self._seen

    def _fleet(self, store: Store, states: Mapping[str, str], records: Sequence[Record]) -> Json:
        heard = self._ledger.heard()
        if heard is None:
            return None
        runs = is_held(self.root)
        return fleet(heard, store.planned(), states, records, runs=runs, now_s=self._now_s())

    def _looked(self, store: Store) -> Json:
        records, states = store.records(), store.states()
        seen = self._weighed(store, records)
        devices = self._fleet(store, states, records)
        running = [trial for trial, state in states.items() if state == "running"]
        running += sorted(trial for trial, _ in store.spooled() if is_rehearsal(trial))
        at_once = devices["counts"].get("running", 0) if devices else len(running[:1])
        now = running_trial(store, running[0]) if running else None
        machine = self._device()
        more = len(seen.verdicts) - _VERDICTS
        return {
            "name": safe_text(seen.weighed.study if seen.weighed else self.root.name),
            "question": safe_text(seen.weighed.question if seen.weighed else ""),
            "progress": _progress(states, records, at_once),
            "fleet": devices,
            "running": now,
            "metric": seen.weighed.called if seen.weighed else "",
            "verdicts": list(seen.verdicts[:_VERDICTS]),
            "more_verdicts": f"and {more:,} more, which `tare compare` has." if more > 0 else "",
            "history": list(seen.history),
            "target": _target(store.study),
            "verdict_trouble": seen.trouble,
            "errors": _errors(seen.weighed, records),
            "not_measured": [safe_text(each) for each in read_rulings(store.study.get("left_out") or (), "obstacle")],
            "newest": [_ended(record, records) for record in records_by_end(records)[-_NEWEST:][::-1]],
            "problems": [safe_text(problem) for problem in store.problems],
            "device": device_rows(machine, now["sensors"] if now else {}),
            "changed": [
                {key: plain_text(value) if value not in (None, "") else "not known" for key, value in row.items()}
                for row in machine.get("changed", ())
            ],
        }


def _errors(weighed: Weighing | None, records: Sequence[Record]) -> list[Json]:
    """One entry for each distinct reason why trials do not count, and how many have it; also before any verdict."""
    if weighed is not None:
        flagged: Sequence[FlaggedTrial] = weighed.left_out
    else:
        several = [each.settings for each in records]
        labels = make_labels(several, distinguishing(several)) if several else None
        flagged = [
            FlaggedTrial(each.trial, str(labels.words(each.settings)), each.block, each.state, each.reasons)
            for each in records
            if labels is not None and each.state not in USABLE
        ]
    return [{"count": count, "text": text} for count, text in counted_reasons(flagged)]


def records_by_end(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: (record.started_utc, record.end_ns))


@dataclass(frozen=True)
class _UpTo:
    """A store as it was when so many blocks were done."""

    store: Store
    block: int

    @property
    def study(self) -> Mapping[str, Json]:
        return dict(self.store.study)

    def records(self) -> list[Record]:
        return [record for record in self.store.records() if record.block <= self.block]

    def rehearsals(self) -> list[Record]:
        return self.store.rehearsals()

    def states(self) -> dict[str, State]:
        return self.store.states()


def _earlier(store: Store, records: Sequence[Record]) -> tuple[Json, ...]:
    """How the verdicts stood after earlier blocks, for someone who opens the page late; some of many."""
    blocks = sorted({record.block for record in records})[:-1]
    chosen = blocks[:: max(1, len(blocks) // _EARLIER)]
    found: list[Json] = []
    for block in chosen:
        with suppress(TareError):
            at = sum(record.block <= block for record in records)
            found += _points(weigh(_UpTo(store, block)), at)
    return tuple(found)


def _points(weighed: Weighing, trials: int) -> list[Json]:
    return [
        {
            "trials": trials,
            "blocks": each.n,
            "level": safe_text(each.level),
            "effect": each.effect,
            "low": each.low,
            "high": each.high,
        }
        for each in weighed.comparisons
        if each.effect is not None
    ]


def _tightened(store: Store, records: Sequence[Record], before: _Tightening) -> _Tightening:
    try:
        weighed = weigh(store)
    except TareError as error:
        return _Tightening(len(records), trouble=safe_text(error))
    history = before.history if before.trials >= 0 else _earlier(store, records)
    verdicts = [
        {
            "level": safe_text(each.level), "against": safe_text(each.against), "effect": effect_of(each),
            "interval": interval_of(each), "word": each.verdict, "phrase": verdict_phrase(each), "n": each.n,
        }
        for each in weighed.comparisons
    ]  # fmt: skip
    return _Tightening(len(records), tuple(verdicts), (*history, *_points(weighed, len(records))), weighed)


def _target(study: Mapping[str, Json]) -> float | None:
    """Half of the widest interval with which the run stops, where the study declares one."""
    with suppress(TareError):
        return request(study).until
    return None


def _progress(states: Mapping[str, str], records: Sequence[Record], at_once: int) -> Json:
    """`at_once`: how many trials run now."""
    counts = Counter(states.values())
    done = sum(counts[state] for state in FINISHED)
    ended = [record for record in records if record.end_ns > record.start_ns]
    # One that failed at once says nothing about how long the others take.
    typical = [record for record in ended if record.state in USABLE] or ended
    took_s = [(record.end_ns - record.start_ns) / 1e9 for record in typical]
    left = len(states) - done
    left_s = statistics.median(took_s) * left / at_once if took_s and left and at_once else None
    return {
        "done": done, "total": len(states), "share": done / len(states) if states else 0.0,
        "words": counts_text({"planned": len(states), **{k: v for k, v in counts.items() if k != "planned"}}),
        "left": f"about {duration_text(left_s)} left" if left_s is not None else "",
        "state": "running" if at_once else "finished" if states and not left else "not running",
    }  # fmt: skip


def _ended(record: Record, records: Sequence[Record]) -> Json:
    several = [each.settings for each in records]
    names = distinguishing(several) or list(record.settings)[:3]
    took = (record.end_ns - record.start_ns) / 1e9
    return {
        "trial": safe_text(record.trial)[:SHORT_ID],
        "label": safe_text(make_labels(several, names).words(record.settings)),
        "block": record.block, "state": record.state, "took": duration_text(took) if took > 0 else "",
        "reasons": [safe_text(reason) for reason in record.reasons[:3]],
    }  # fmt: skip

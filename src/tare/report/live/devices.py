"""The devices of a fleet, a row each, from what the run has written down and what has come in. Troubles come first."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeAlias

from tare.base.text import count_text, duration_text, safe_text
from tare.records.model import FINISHED, Record
from tare.report.text.trials import SHORT_ID

Json: TypeAlias = Any
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
            plan = plans.setdefault(str(settings["device"]), _Plan(str(settings.get("device.type", ""))))
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

"""A fleet for the tests of a run's decisions: a cluster and devices that are pretended, a store that is real."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tare.fleet.interruption import Interruption
from tare.fleet.inventory import Device, Task, factors
from tare.fleet.inventory import on_device as stamped
from tare.fleet.run import FleetRun
from tare.plan.matrix import cells, trials
from tare.records.model import Record
from tare.records.store import Store
from tare.studies.model import Study

NEVER = 10**9


@dataclass(eq=False)
class Answered:
    """A question that is over after so many looks."""

    name: str
    value: Any
    looks: int = 0


@dataclass
class PretendDevice:
    """Its store, and what happens to the nth trial that it is told to run."""

    store: Store
    mishaps: dict[int, Any] = field(default_factory=dict)  # a state, an answer, an exception, or something to be done
    claims: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    eligibility: dict[str, Any] = field(default_factory=lambda: {"obstacles": []})
    says: dict[str, Any] = field(default_factory=dict)  # in the place of its answer to such a question
    looks: dict[str, int] = field(default_factory=dict)  # how often one looks in vain for its answer to such a question
    kernel: str = "5.10"

    def answers(self, question: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(question["do"])
        if isinstance(said := self.says.get(question["do"]), Exception):
            raise said
        if said is not None:
            return {"ended": "answered", "said": said, "records": b"", "broken": []}
        if question["do"] == "engine":
            said = {"code": 0, "out": json.dumps({"kernel": self.kernel, **self.eligibility}), "err": ""}
            return {"ended": "answered", "said": said, "records": b"", "broken": []}
        if question["do"] == "collect":
            return self._with_records(question, {"endings": []})
        return self._claimed(question)

    def _claimed(self, question: dict[str, Any]) -> dict[str, Any]:
        if question["claim"] not in self.claims:
            self.claims.append(question["claim"])
            mishap = self.mishaps.pop(len(self.claims), None)
            if isinstance(mishap, dict):
                return mishap
            if callable(mishap):
                return dict(mishap())
            self.run(question, mishap if isinstance(mishap, str) else "ok")
            if isinstance(mishap, Exception):
                raise mishap
        return self._with_records(question, {"code": 0, "text": ""})

    def run(self, question: dict[str, Any], state: str) -> None:
        self.ran.append(question["trial"])
        settings = {"platform": "bare", **dict(question["device"])}
        facts = {"device": {"kernel": self.kernel}}
        draft = Record(
            question["trial"], 0, "s", 0, 0, 0, settings, "running", start_ns=1, end_ns=2, facts=facts,
            started_utc=datetime.fromtimestamp(time.time(), UTC).isoformat(), tare_version="0.1",
        )  # fmt: skip
        ended = {**draft.as_json(), "state": state, "reasons": [] if state == "ok" else [f"it {state}."]}
        self.store.begin(draft).seal(Record.from_json(ended), [], "", "")

    def _with_records(self, question: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w") as archive:
            for path in sorted((self.store.root / "trials").iterdir()):
                if path.name not in question["have"]:
                    archive.add(path, arcname=path.name)
        return {"ended": "answered", "said": said, "records": made.getvalue(), "broken": []}


class PretendCluster:
    def __init__(self, devices: dict[str, PretendDevice]) -> None:
        self.devices = devices
        self.replaced: list[str] = []
        self.waiting: list[Answered] = []
        self.keys: list[str] = []
        self.at_looks: dict[int, Callable[[], None]] = {}  # what happens at the nth look
        self.looks = 0
        self.in_queue: set[str] = set()

    def submit(self, name: str, key: str, function: Any, fields: Any, question: Any, patience_s: float) -> Answered:
        self.keys.append(key)
        device = self.devices[name]
        try:
            answered = Answered(name, device.answers(question))
        except Exception as error:
            answered = Answered(name, error)
        answered.looks = device.looks.pop(question["do"], 0)
        self.waiting.append(answered)
        return answered

    def over(self, within_s: float) -> list[Answered]:
        self.looks += 1
        self.at_looks.pop(self.looks, lambda: None)()
        found = [asked for asked in self.waiting if asked.looks <= 0]
        self.waiting = [asked for asked in self.waiting if asked.looks > 0]
        for asked in self.waiting:
            asked.looks -= 1
        return found

    def check(self) -> None: ...
    def close(self) -> None: ...

    def queued(self) -> set[str]:
        return self.in_queue

    def result(self, asked: Answered) -> Any:
        if isinstance(asked.value, Exception):
            raise asked.value
        return asked.value

    def replace(self, asked: Answered) -> None:
        self.replaced.append(asked.name)


@dataclass
class Told:
    notes: list[str] = field(default_factory=list)
    ended_: list[tuple[str, str]] = field(default_factory=list)

    def started(self, trials: int, devices: int) -> None: ...

    def ended(self, device: str, label: str, state: str, seconds: float) -> None:
        self.ended_.append((device, state))

    def note(self, text: str) -> None:
        self.notes.append(text)


class Scene:
    """Two devices, and the store that they fill."""

    def __init__(self, tmp_path: Path) -> None:
        self.root = tmp_path
        self.told = Told()
        self.devices = {
            name: PretendDevice(Store.create(tmp_path / name, {"study": "s"}, "")) for name in ("one", "two")
        }
        self.cluster = PretendCluster(self.devices)
        self.interruption = Interruption(self.told.note)

    def study(self, **changes: Any) -> Study:
        keys = {"study": "s", "platform": "bare", "workload": "null", "repeat": 3, "aa": False}
        return Study.model_validate(keys | changes)

    def run(self, *, retry_failed: bool = False, accept: bool = False, **changes: Any) -> tuple[Any, FleetRun]:
        study = self.study(**changes)
        root = self.root / "store"
        exists = (root / "store.json").exists()
        with Store.open(root, write=True) if exists else Store.create(root, study.as_plain(), "") as store:
            planned = trials(study, cells(study))
            inventory = [Device(name=name, address=name, type="board") for name in self.devices]
            plans = {device: stamped(planned, factors(device)) for device in inventory}
            name = f"run{len(self.cluster.keys)}"
            task = Task("study: s", "s.yaml", "s-1", name, retry_failed, accept_changes=accept)
            fleet = FleetRun(study, task, plans, store, self.cluster, self.told, self.interruption, patience_s=1)
            fleet.collect()
            fleet.ready()
            return fleet.run(), fleet

    def states(self) -> dict[str, list[str]]:
        with Store.open(self.root / "store") as store:
            found: dict[str, list[str]] = {}
            for record in store.records():
                found.setdefault(record.settings["device"], []).append(record.state)
            return found

    def ledger(self, device: str) -> list[str]:
        lines = [json.loads(line) for line in (self.root / "store" / "fleet.jsonl").read_text().splitlines()]
        return [line["what"] for line in lines if line["device"] == device]

    def was_left_at_a_trial(self, device: str) -> None:
        """As after the death of a controller: this device was told to begin, and its answer was not heard."""
        line = {"utc": "2026-01-01T00:00:00+00:00", "device": device, "what": "try"}
        with (self.root / "store" / "fleet.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

"""`tare run --fleet` as a process of its own, so that it can be killed; and what it left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sshd_devices import Fleet, SshDevice
from tare.records.model import USABLE, Record
from tare.records.store import Store

TARE = (sys.executable, "-P", str(Path(__file__).parent / "machine" / "without_report.py"))

SLEEPING = """\
study: fleet
platform: bare
workload:
  command: {{argv: [sleep, '{seconds}'], attach: none}}
{controls}
probes: [cpu]
repeat: {repeat}
"""


def sleeping(seconds: float, repeat: int = 1, *, controls: str = "control: {dirty: {ratio: 5 %}}") -> str:
    """A study whose workload can be found on a device by its name."""
    return SLEEPING.format(seconds=seconds, repeat=repeat, controls=controls)


class Run:
    """One run over a fleet; its claims and stores for lean devices are its own."""

    def __init__(self, fleet: Fleet, folder: Path, study: str, *words: str) -> None:
        self.store = folder / "store"
        self.state = folder / "state"
        (folder / "study.yaml").write_text(study)
        argv = [*TARE, "run", str(folder / "study.yaml")]
        argv += ["--fleet", str(fleet.inventory), "-o", str(self.store), *words]
        self._said = (folder / "said").open("w+")
        environ = os.environ | {"TARE_STATE": str(self.state)}
        self.process = subprocess.Popen(argv, stdout=self._said, stderr=self._said, env=environ)

    def wait(self) -> int:
        """The exit code; that the times of a busy machine could not be used is no failure here."""
        code = self.process.wait(240)
        return 0 if code == 1 and "without a usable trial" in self.said() and "skipped: " not in self.said() else code

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._said.close()

    def said(self) -> str:
        self._said.seek(0)
        return self._said.read()

    def ledger(self) -> list[dict[str, Any]]:
        path = self.store / "fleet.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def what(self, device: str) -> list[str]:
        return [line["what"] for line in self.ledger() if line["device"] == device]

    def records(self) -> list[Record]:
        with Store.open(self.store) as store:
            assert store.verify() == []
            return store.records()

    def attempts(self) -> dict[str, list[str]]:
        """The states of all attempts, by device; beside other work times are invalid: that it ran counts."""
        return told_attempts(self.records())


def told_attempts(records: Sequence[Record]) -> dict[str, list[str]]:
    """An attempt that was invalid and was therefore run again does not count; any other that was, does."""
    found: dict[str, list[str]] = {}
    newest = {record.trial: record.attempt for record in sorted(records, key=lambda record: record.attempt)}
    for record in records:
        if record.state != "invalid" or record.attempt == newest[record.trial]:
            state = "ok" if record.state in (*USABLE, "invalid") else record.state
            found.setdefault(record.settings["device"], []).append(state)
    return found


def is_sleeping(device: SshDevice, seconds: float) -> bool:
    """Whether the workload of a `sleeping` study runs there."""
    return bool(device.pids(f" sleep {seconds}"))

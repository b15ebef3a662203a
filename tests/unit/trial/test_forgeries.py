"""What a program writes about itself: no forged file makes a usable trial with a figure that is not so.

Each forgery is a program that runs for a fifth of a second, in ten steps of 20 ms, and then lies in its work folder.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tare.base.host import LocalHost, Scope
from tare.parts.protocols import Probe
from tare.parts.workloads.command import Command
from tare.plan.matrix import Cell, Trial
from tare.records.model import Record
from tare.records.store import Store
from tare.trial import claims
from tare.trial.engine import Bench, run_trial
from tare.trial.sampler_report import SamplerReport
from tare.trial.undo.journal import Journal

PROGRAM = """
import json, os, sys, time
from tare_inside import marks
folder = os.path.dirname(os.environ["TARE_MARKS"])
def leave(name, text):
    open(os.path.join(folder, name), "w").write(text if isinstance(text, str) else json.dumps(text))
def late(name, text):
    # by a process that lives on until the launcher has ended
    if os.fork() == 0:
        os.setsid()
        path, end = os.path.join(folder, name), time.monotonic() + 5
        while not os.path.exists(path) and time.monotonic() < end:
            time.sleep(0.0005)
        if not text:
            os.unlink(path)
        else:
            leave(name + ".new", text)
            os.rename(path + ".new", path)
        os._exit(0)
S, begin = 10**9, time.monotonic_ns()
for number in range(10):
    with marks.during("step", number):
        time.sleep(0.02)
now = time.monotonic_ns()
"""
BIG, MANY = "1" + "0" * 400, "9" * 5000
COUNTED = '{"start_ns": %s, "end_ns": %s, "wall_s": %s, "cpu_user_s": 0.1, "cpu_system_s": 0.1, "minor_faults": %s}'

# What the program adds, and the code of the ruling that makes the trial invalid.
INVALID = {
    "metrics: the whole run": ('leave("outcome.json", {"metrics": {"wall_s": 0.01}})', "claim.not-taken"),
    "metrics: the mean step": ('leave("outcome.json", {"metrics": {"step_mean_s": 1e-6}})', "claim.not-taken"),
    "metrics: energy": ('leave("outcome.json", {"metrics": {"energy_j": 1.0}})', "claim.not-taken"),
    "metrics: a start-up": ('leave("outcome.json", {"metrics": {"startup_s": 0.0}})', "claim.not-taken"),
    "metrics: 1e400": ('leave("outcome.json", "{\\"metrics\\": {\\"x\\": 1e400}}")', "claim.malformed"),
    "metrics: 400 digits": (f'leave("outcome.json", "{{\\"metrics\\": {{\\"x\\": {BIG}}}}}")', "claim.malformed"),
    "metrics: not a number": ('leave("outcome.json", "{\\"metrics\\": {\\"x\\": NaN}}")', "claim.malformed"),
    "metrics: infinite": ('leave("outcome.json", "{\\"metrics\\": {\\"x\\": -Infinity}}")', "claim.malformed"),
    "metrics: a truth value": ('leave("outcome.json", {"metrics": {"x": True}})', "claim.malformed"),
    "metrics: a list": ('leave("outcome.json", {"metrics": [1, 2]})', "claim.malformed"),
    "load: CPU time": ('leave("outcome.json", {"load": {"cpu_s": 1e6}})', "claim.not-taken"),
    "load: no request answered": ('leave("outcome.json", {"load": {"ok": 0, "sent": 5}})', "claim.not-taken"),
    "load: text": ('leave("outcome.json", {"load": {"seconds": "x"}})', "claim.malformed"),
    "outcome: the training's clock": (
        'leave("outcome.json", {"steps": 10, "steps_per_epoch": 5, "train_s": 1e-3, "epoch0_s": 0})', "claim.not-taken",
    ),
    "outcome: tokens": ('leave("outcome.json", {"tokens_a_step": 1000000})', "claim.not-taken"),
    "outcome: page faults": ('leave("outcome.json", {"major_faults_training": 0})', "claim.not-taken"),
    "outcome: a link": ('os.symlink("/etc/hostname", folder + "/outcome.json")', "workdir.refused"),
    "outcome: a pipe": ('os.mkfifo(folder + "/outcome.json")', "workdir.refused"),
    "outcome: deep": ('leave("outcome.json", "{\\"a\\":" * 900 + "1" + "}" * 900)', "workdir.refused"),
    "marks: eleven days ahead": ('marks.interval("step", 10, now + 10**15, now + 10**15 + S)', "claim.outside-run"),
    "marks: before the start": ('marks.interval("step", 10, begin - 60 * S, begin - 59 * S)', "claim.outside-run"),
    "marks: after the end": ('marks.interval("step", 10, now, now + 60 * S)', "claim.outside-run"),
    "marks: twenty of ten seconds": (
        '[marks.interval("step", 10 + n, begin - 5 * S, begin + 5 * S) for n in range(20)]', "claim.outside-run",
    ),
    "marks: before all time": ('marks.interval("step", 10, -2**63, 2**63 - 1)', "claim.malformed"),
    "marks: at the end of time": ('marks.interval("step", 10, 2**63 - 2, 2**63 - 1)', "claim.malformed"),
    "marks: an early import": ('marks.interval("imports", -1, 5, now)', "claim.outside-run"),
    "marks: a folder": ('os.unlink(folder + "/marks.bin"); os.mkdir(folder + "/marks.bin")', "workdir.refused"),
    "result: a short run, left too early": ('leave("result.json", {"wall_s": 0.001})', ""),
    "result: longer than the run": (
        f'late("result.json", {COUNTED!r} % (begin, now, 1e6, 5))', "claim.outside-run",
    ),
    "result: before the run": (f'late("result.json", {COUNTED!r} % (5, now, 0.1, 5))', "claim.outside-run"),
    "result: after the run": (
        f'late("result.json", {COUNTED!r} % (begin, now + 9 * S * 1000, 0.1, 5))', "claim.outside-run",
    ),
    "result: a negative run": (f'late("result.json", {COUNTED!r} % (begin, now, -1, 5))', "claim.outside-run"),
    "result: 400 digits": (f'late("result.json", {COUNTED!r} % (begin, now, 0.1, {BIG!r}))', "claim.malformed"),
    "result: texts": (f'late("result.json", {COUNTED!r} % (begin, now, 0.1, json.dumps("many")))', "claim.malformed"),
    "result: removed": ('late("result.json", "")', "workdir.no-result"),
    "gpu: text as a share": ('leave("gpu.json", {"busy_share": "all"})', "claim.malformed"),
    "gpu: half of it": ('leave("gpu.json", {"busy_share": 1.0})', "claim.malformed"),
    "gpu: other reasons": (
        'leave("gpu.json", {"idle_for": {"wall": 1.0}})', "claim.malformed",
    ),
    "gpu: infinite": ('leave("gpu.json", "{\\"busy_share\\": 1e999}")', "claim.malformed"),
    "served: a list": ('leave("served.json", {"stop_s": [1]})', "claim.malformed"),
    "cold epochs: texts": ('leave("cold_epochs.json", {"shares": ["none", 0]})', "claim.malformed"),
}  # fmt: skip

# What the program adds, the code of the note, and a figure that must still be what was measured.
NOTED = {
    "marks: a window over slow steps": (
        "time.sleep(0); [(marks.begin('step', n), time.sleep(0.06), marks.end('step', n)) for n in range(10, 15)];"
        "marks.interval('gpu_window', -1, now, time.monotonic_ns())",
        "claim.not-taken", "step_mean_s", (0.03, 0.06),
    ),
    "marks: settling": (
        "marks.interval('settling', -1, begin - S, begin)", "claim.not-taken", "startup_s", (0.01, 60.0),
    ),
    "outcome: a word": ('leave("outcome.json", {"hello": 1})', "claim.not-taken", "wall_s", (0.2, 60.0)),
    "attach: a list": ('leave("attach.json", {"by": ["jax"], "state": {}})', "claim.malformed", "wall_s", (0.2, 60.0)),
    "attach: 400 digits": (f'leave("attach.json", "{{\\"pid\\": {BIG}}}")', "claim.malformed", "wall_s", (0.2, 60.0)),
    "fingerprint: texts": ('leave("fingerprint.json", {"env": [1]})', "claim.malformed", "wall_s", (0.2, 60.0)),
    "fingerprint: 400 digits": (
        f'leave("fingerprint.json", "{{\\"torch\\": {BIG}}}")', "claim.malformed", "wall_s", (0.2, 60.0),
    ),
    "place: texts": ('leave("place.json", {"env": {"A": 1}})', "", "wall_s", (0.2, 60.0)),
    "metrics: 5000 digits": (
        f'leave("outcome.json", "{{\\"metrics\\": {{\\"x\\": {MANY}}}}}")', "", "wall_s", (0.2, 60.0),
    ),
    "outcome: no JSON": ('leave("outcome.json", "wall_s = 0")', "", "wall_s", (0.2, 60.0)),
}  # fmt: skip


class Quiet:
    """No samples: nothing here is about the device."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, scope: Scope, neighbours: Sequence[Scope] = ()) -> None:
        pass

    def end(self) -> SamplerReport:
        return SamplerReport(ticks=1, missed=0, late_p99_s=0.0, cpu_s=0.0, seconds=0.0)


def quiet(_probes: Sequence[Probe], _spool: Path, _period_s: float) -> Any:
    return Quiet()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("forged")
    with Store.create(folder / "store", {"study": "s"}, "") as store:
        yield Bench(LocalHost(), store, Journal(folder / "device"), folder / "scratch", sampler=quiet)


def run(bench: Bench, lie: str) -> Record:
    work = Command(argv=(sys.executable, "-S", "-c", PROGRAM + lie), attach="none", cwd=Path("/"))
    return run_trial(Trial("s", Cell((), work), len(bench.store.records()), 0, 1, 60.0), bench)


def test_a_program_that_does_not_lie_is_believed(bench: Bench) -> None:
    record = run(bench, "")
    assert record.state == "ok", record.reasons
    assert record.metrics["steps"] == 10
    assert 0.2 < record.metrics["wall_s"] <= record.metrics["outside_s"]
    assert record.metrics["steps_s"] == pytest.approx(10 * record.metrics["step_mean_s"], rel=0.2)


@pytest.mark.parametrize("name", INVALID)
def test_a_forged_figure_makes_its_trial_invalid(bench: Bench, name: str) -> None:
    lie, code = INVALID[name]
    record = run(bench, lie)
    if not code:  # what counts its time has the last word
        assert record.state == "ok", record.reasons
        assert record.metrics["wall_s"] > 0.2
        return
    assert record.state == "invalid", (record.reasons, record.notes)
    assert code in {each.code for each in record.reasons}


@pytest.mark.parametrize("name", NOTED)
def test_what_is_no_figure_is_not_taken_over(bench: Bench, name: str) -> None:
    lie, code, metric, (low, high) = NOTED[name]
    record = run(bench, lie)
    assert record.state == "ok", record.reasons
    assert not code or code in {each.code for each in record.notes}
    assert low < record.metrics[metric] < high


def test_software_that_a_program_makes_up_is_held_against_what_lies_there(bench: Bench) -> None:
    made_up = {"kernel": "0.0", "python": {"executable": sys.executable, "version": "2.7"}, "torch": {"version": "9"}}
    record = run(bench, f'leave("fingerprint.json", {made_up!r})')
    assert record.facts["inside"]["kernel"] == platform.release()
    assert record.facts["inside"]["python"]["version"] == platform.python_version()
    assert "claim.software" in {each.code for each in record.notes}
    elsewhere = {"python": {"executable": "/made/up/python", "version": "2.7"}}
    record = run(bench, f'leave("fingerprint.json", {elsewhere!r})')
    assert [each.sentence for each in record.notes if each.code == "claim.software"] == [claims.OWN_STATEMENT.sentence]


def test_an_error_while_a_trial_is_judged_loses_this_trial_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> Any:
        raise OverflowError("int too large to convert to float")

    monkeypatch.setattr("tare.trial.engine.figures", breaks)
    record = run(bench, "")
    assert (record.state, record.metrics) == ("failed", {})
    assert "OverflowError" in str(record.reasons[0])

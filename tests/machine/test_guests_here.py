"""Containers in real virtual machines on this device; what else a machine does is in tests/contract/test_platforms.py.

Where everything is emulated, importing torch takes minutes: there is one such trial.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tare.base.host import LocalHost
from tare.plan.matrix import cells, trials
from tare.records.model import Record
from tare.records.store import Store
from tare.studies.load import loads
from tare.trial.engine import Bench, run_trial
from tare.trial.undo.journal import Journal

pytestmark = pytest.mark.machine("root", "qemu")
STUDY = """\
study: nested
platform: [[qemu, runc]]
workload: {workload}
repeat: 1
limit: 20 min
"""
TRAINING = "{torch_train: {model: lenet5, epochs: 1, steps_per_epoch: 3, items: 64, workers: 0, threads: 1}}"
COMPUTING = """
import numpy
from tare_inside import marks

values = numpy.random.default_rng(3).standard_normal((96, 96))
for step in range(3):
    marks.begin("step", step)
    values = numpy.tanh(values @ values / 4)
    marks.end("step", step)
    print(repr(float(abs(values).sum())))
"""


def ran_in_a_container_in_a_machine(folder: Path, workload: str) -> tuple[Record, str]:
    """The record of one trial, and what it printed."""
    text = STUDY.replace("{workload}", workload)
    study = loads(text)
    (trial,) = trials(study, cells(study))
    journal = Journal(folder / "state" / "devices" / "here")
    with Store.create(folder / "store", {"study": "nested"}, text) as store:
        record = run_trial(trial, Bench(LocalHost(), store, journal, folder / "scratch"))
        out, _ = store.output(record.trial, record.attempt)

    assert record.state in ("ok", "suspect", "invalid"), record.reasons  # a loud device is not this test's matter
    assert record.metrics["steps"] == 3
    assert record.metrics["step_s"] > 0
    place = record.facts["place"]
    assert place["accel"] in ("kvm", "tcg")
    assert place["root"] == "overlay"  # the container's
    assert 0 < place["clock"]["bound_ns"] < 1_000_000_000
    assert record.phases["open"] >= record.phases["open.boot"] > 0
    assert journal.pending() == []
    return record, out


def assert_marked_between(folder: Path, record: Record, begin_ns: int, end_ns: int) -> None:
    with Store.open(folder) as store:
        marked_ns = store.marks(record.trial, record.attempt)["t_ns"]
    assert begin_ns < min(marked_ns) <= max(marked_ns) < end_ns


@pytest.mark.deep
@pytest.mark.machine("runc")
def test_numpy_computes_the_same_in_a_container_in_a_virtual_machine(tmp_path):
    (tmp_path / "work").mkdir()
    program = tmp_path / "work" / "program.py"
    program.write_text(COMPUTING)
    argv = [sys.executable, str(program)]
    here = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    before_ns = LocalHost().clock.now_ns()

    record, out = ran_in_a_container_in_a_machine(tmp_path, json.dumps({"command": {"argv": argv, "attach": "none"}}))

    assert [float(word) for word in out.split()] == pytest.approx([float(word) for word in here.split()], rel=1e-9)
    assert len(out.split()) == 3
    assert_marked_between(tmp_path / "store", record, before_ns, LocalHost().clock.now_ns())


@pytest.mark.deep  # seven minutes of a core where a processor is emulated: torch's import alone takes four
@pytest.mark.machine("runc")
def test_lenet_trains_in_a_container_in_a_virtual_machine_and_its_marks_are_in_device_time(tmp_path):
    before_ns = LocalHost().clock.now_ns()

    record, _ = ran_in_a_container_in_a_machine(tmp_path, TRAINING)

    assert record.facts["inside"]["torch"]["version"] == importlib.metadata.version("torch")
    assert_marked_between(tmp_path / "store", record, before_ns, LocalHost().clock.now_ns())

"""Real virtual machines on this device: marks in device time, and containers in a machine.

Where everything is emulated, importing torch takes minutes: there is one such trial.
"""

from __future__ import annotations

import importlib.metadata
import json
import secrets
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tare_inside
from tare.base.host import Job, LocalHost, Site
from tare.drivers.guests.place import GuestPlace
from tare.parts.platforms.qemu import Qemu
from tare.parts.protocols import Mark
from tare.plan.matrix import cells, trials
from tare.records.model import Record
from tare.records.store import Store
from tare.studies.load import loads
from tare.trial.engine import Bench, in_device_time, place_facts, run_trial
from tare.trial.undo.journal import Journal
from tare_inside.marks import load as load_marks

pytestmark = pytest.mark.machine("root", "qemu")
MARKING = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tare_inside import marks
marks.open_marks(sys.argv[2])
for step in range(3):
    marks.begin("step", step)
    if step == 1:  # the guest's clock is set back by an hour in the middle of the work
        time.clock_settime(time.CLOCK_REALTIME, time.time() - 3600)
    sum(range(1000))
    marks.end("step", step)
"""
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


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GuestPlace, Path]]:
    folder = tmp_path_factory.mktemp("guest")
    scratch, workdir = folder / "scratch", folder / "workdir"
    scratch.mkdir()
    workdir.mkdir()
    reads = (Path(tare_inside.__file__).parents[1],)
    site = Site(name=f"tare-test-{secrets.token_hex(4)}", scratch=scratch, reads=reads, writes=(workdir,))
    opened = Qemu().open(LocalHost(), site)
    assert isinstance(opened, GuestPlace)
    yield opened, workdir
    opened.close()


@pytest.mark.turns(2)
def test_marks_made_in_a_machine_whose_clock_is_set_come_back_in_device_time(place):
    guest, workdir = place
    clock = LocalHost().clock
    source = str(Path(tare_inside.__file__).parents[1])
    job = Job(
        (guest.python, "-I", "-S", "-c", MARKING, source, str(workdir / "marks.bin")), env={"PATH": "/usr/bin:/bin"}
    )
    before_ns = clock.now_ns()
    told_s = float(guest.run(["date", "+%s"]).out)
    ended = guest.spawn(job).wait(300)
    after_ns = clock.now_ns()

    assert ended.code == 0, ended.err
    assert float(guest.run(["date", "+%s"]).out) < told_s - 3000, "settimeofday took effect"
    marks, lost = load_marks(str(workdir / "marks.bin"))
    assert (len(marks), lost) == (6, 0)
    moved = in_device_time([Mark(*mark) for mark in marks], guest)
    bound_ns = place_facts(guest)["clock"]["bound_ns"]
    assert before_ns - bound_ns <= moved[0].t_ns <= moved[-1].t_ns <= after_ns + bound_ns
    assert not before_ns <= marks[0][0] <= after_ns, "the guest's own time is another, or nothing was shown"
    assert bound_ns < 1_000_000_000


def test_a_machine_says_what_it_is_and_how_long_it_took_to_boot(place):
    guest, _ = place

    assert guest.facts["accel"] in ("kvm", "tcg")
    assert ("accel_note" in guest.facts) == (guest.facts["accel"] == "tcg")
    assert guest.run(["uname", "-r"]).out.strip() == guest.facts["kernel"]
    assert guest.phases["open.boot"] > 0


def test_it_has_the_devices_software_and_cannot_change_it(place):
    guest, _ = place
    done = guest.run(["sh", "-c", "echo changed >> /etc/os-release; tail -n 1 /etc/os-release"])

    assert done.out == "changed\n"  # in its own memory
    assert "changed" not in Path("/etc/os-release").read_text()


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
    assert place["clock"]["bound_ns"] < 1_000_000_000
    assert record.phases["open"] >= record.phases["open.boot"] > 0
    assert journal.pending() == []
    return record, out


def assert_marked_between(folder: Path, record: Record, begin_ns: int, end_ns: int) -> None:
    with Store.open(folder) as store:
        marked_ns = store.marks(record.trial, record.attempt)["t_ns"]
    assert begin_ns < min(marked_ns) <= max(marked_ns) < end_ns


@pytest.mark.turns(2)
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

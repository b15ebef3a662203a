"""Every rule of the verdict, with an input that it passes and one that it fails."""

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tare.base.errors import LineLost, TareError
from tare.base.host import Exit, Job, LocalHost
from tare.base.rulings import Ruling, probe_note
from tare.figures.steps import steps_from
from tare.kernel.parts.probes.ftrace import Ftrace
from tare.parts.protocols import Mark
from tare.parts.workloads.idle import Null
from tare.testing import FakeClock
from tare.trial.sampler_report import SamplerReport
from tare.trial.state import TrialState
from tare.trial.tenants import Tenant
from tare.trial.upkeep import Upkeep
from tare.trial.verdict import Verdict, judge

GONE = probe_note("probe.file-gone", "cgroup", "gone at 3 s")


@dataclass
class Planned:
    """As much of a trial as the verdict looks at."""

    layered = False
    planned_units: int | None = None
    probes: tuple[Any, ...] = ()
    to_sleep_s: float = 0.0
    strict: bool = False
    cell: Any = field(init=False)

    def __post_init__(self):
        self.cell = self
        self.workload = self
        self.platforms = (self,)

    def part_name(self):
        return "docker"

    def fields(self):
        return {"memory": 64 * 2**20}

    def units(self):
        return self.planned_units

    def asleep_s(self):
        return self.to_sleep_s


def trial_state(**changes):
    quiet = {
        "cpu.busy_s": [0.0, 1.02],
        "cpu.idle_s": [0.0, 0.98],
        "cpu.steal_s": [0.0, 0.0],
        "cgroup.cpu_s": [0.0, 1.0],
    }
    base = TrialState(FakeClock())
    base.exit = Exit(code=0, seconds=1.0)
    base.sampler = SamplerReport(ticks=100, missed=0, late_p99_s=0.0, cpu_s=0.01, seconds=10.0)
    base.readings = quiet | changes.pop("readings", {})
    for name, value in changes.items():
        setattr(base, name, value)
    return base


def marks(step_ms):
    t_ns, made = 1, []
    for step, length in enumerate(step_ms):
        made += [Mark(t_ns, "step", "begin", step), Mark(t_ns + round(length * 1e6), "step", "end", step)]
        t_ns += round(length * 1e6)
    return steps_from(made)


def verdict_of(found, *, units=None, steps=None, probes=()):
    return judge(Planned(units, probes), found, steps)


def test_a_quiet_trial_is_ok():
    verdict = verdict_of(trial_state(), units=40, steps=marks([1.0] * 40))
    assert (verdict.state, verdict.reasons) == ("ok", ())


@pytest.mark.parametrize(
    ("changes", "state", "says"),
    [
        ({"interrupted": True}, "interrupted", "stopped during this trial"),
        ({"error": TareError("the engine went away.")}, "failed", "the engine went away."),
        ({"exit": None}, "failed", "never started"),
        ({"exit": Exit(code=137, seconds=9.0, timed_out=True)}, "timeout", "stopped after 9 s"),
        (
            {"exit": Exit(code=3, seconds=1.0, err="Traceback\nValueError: no data\n")},
            "failed",
            "code 3: ValueError: no data",
        ),
        ({"exit": Exit(code=3, seconds=1.0)}, "failed", "code 3"),
    ],
)
def test_how_a_trial_ended_comes_first(changes, state, says):
    verdict = verdict_of(trial_state(**changes))
    assert verdict.state == state
    assert says in str(verdict.reasons[0])


def test_an_end_for_want_of_memory_is_told_from_a_plain_failure():
    readings = {"cgroup.oom_kills": [0.0, 1.0]}
    verdict = verdict_of(trial_state(exit=Exit(code=137, seconds=1.0), readings=readings))
    assert verdict.state == "oom"
    assert "its limit is 64 MiB" in str(verdict.reasons[0])


def test_a_program_that_wrote_where_a_container_lets_it_not_is_told_where_it_may():
    verdict = verdict_of(
        trial_state(exit=Exit(code=1, seconds=1.0, err="OSError: [Errno 30] Read-only file system: 'x'"))
    )
    assert "sealed, so that nothing but /tmp can be written" in str(verdict.reasons[1])


def test_a_program_that_the_engine_could_not_start_is_told_with_the_engines_words():
    out = "OCI runtime exec failed: exec failed: unable to start: stat /root/bin/python: permission denied: unknown\n"
    verdict = verdict_of(trial_state(exit=Exit(code=126, seconds=1.0, out=out)))
    assert "stat /root/bin/python: permission denied" in str(verdict.reasons[0])
    assert "each folder on its path must be open to it" in str(verdict.reasons[1])


@pytest.mark.parametrize(("user", "hints"), [(1000, 1), (0, 0)])
def test_an_ordinary_user_whose_program_may_not_write_is_told_what_may_be_written(monkeypatch, user, hints):
    monkeypatch.setattr("os.geteuid", lambda: user)
    err = "PermissionError: [Errno 13] Permission denied: '/home/x/.cache'"
    verdict = verdict_of(trial_state(exit=Exit(code=1, seconds=1.0, err=err)))
    assert ["`--mount DIR:rw`" in str(reason) for reason in verdict.reasons[1:]] == [True] * hints


@pytest.mark.parametrize(
    ("printed", "named"),
    [
        ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", True),
        ("RuntimeError: unable to write to file </torch_7_1>: No space left on device (28) in /dev/shm", True),
        ("OSError: [Errno 28] No space left on device: '/data/model.pt'", False),
    ],
)
def test_a_full_shared_memory_is_named_and_a_full_disk_is_not_taken_for_it(printed, named):
    verdict = verdict_of(trial_state(exit=Exit(code=1, seconds=1.0, err=printed)))
    assert ["larger `shm:`" in str(reason) for reason in verdict.reasons[1:]] == [True] * named


def test_a_file_below_run_is_named_though_the_container_sees_all_other_files(tmp_path, monkeypatch):
    monkeypatch.setattr("tare.trial.hints.OWN", (tmp_path.parts[1],))
    (tmp_path / "a.sock").write_text("x")
    err = f"FileNotFoundError: [Errno 2] No such file or directory: '{tmp_path}/a.sock'"
    state = trial_state(exit=Exit(code=1, seconds=1.0, err=err))
    assert f"`--mount {tmp_path}/a.sock`" in str(verdict_of(state).reasons[1])


def test_what_a_program_looked_for_in_vain_and_is_on_the_device_is_named_with_the_option_that_brings_it(tmp_path):
    (tmp_path / "set.bin").write_text("x")
    missing = "No such file or directory: "
    err = f"FileNotFoundError: [Errno 2] {missing}'{tmp_path}/set.bin'\n{missing}'/no'"
    verdict = verdict_of(trial_state(exit=Exit(code=1, seconds=1.0, err=err)))
    assert f"`--mount {tmp_path}/set.bin` brings it" in str(verdict.reasons[1])
    assert "/no:" not in str(verdict.reasons[1])


def test_a_path_that_no_file_can_have_breaks_no_verdict():
    verdict = verdict_of(trial_state(exit=Exit(code=1, seconds=1.0, out="cannot open '/x\0y'\n")))
    assert (verdict.state, verdict.reasons[0].code) == ("failed", "workload.exit")


def test_a_program_that_hung_is_told_with_what_it_waited_for():
    waiting = "`python x` waits for a pipe (pipe_read)"
    ended = Exit(code=-9, seconds=30.0, out="epoch 1\n", timed_out=True, waiting=waiting)
    verdict = verdict_of(trial_state(exit=ended))
    assert (verdict.state, [reason.code for reason in verdict.reasons]) == (
        "timeout", ["workload.timeout", "workload.waits"],
    )  # fmt: skip
    assert "waits for a pipe" in str(verdict.reasons[1])
    assert "Its last line was: epoch 1" in str(verdict.reasons[1])


def test_half_of_the_work_is_not_faster_but_invalid():
    verdict = verdict_of(trial_state(), units=100, steps=marks([1.0] * 50))
    assert verdict.state == "invalid"
    assert "50 of 100 steps" in str(verdict.reasons[0])


@pytest.mark.parametrize(
    ("readings", "state", "says"),
    [
        ({"cgroup.pswpin": [5.0, 9.0], "cgroup.pswpout": [0.0, 0.0]}, "invalid", "swapped 4 pages of the workload"),
        ({"cgroup.swap_bytes": [0.0, 3 * 2.0**20, 2.0**20]}, "invalid", "swapped 3.0 MiB of the workload"),
        ({"cgroup.swap_bytes": [4096.0, 4096.0], "memory.pswpout": [0.0, 9.0]}, "ok", ""),  # of others
        ({"memory.pswpin": [5.0, 9.0]}, "ok", ""),
        ({"cpu.steal_s": [0.0, 0.02]}, "suspect", "steal"),
        ({"cpu.steal_s": [0.0, 0.5]}, "suspect", "steal"),
        ({"cpu.busy_s": [0.0, 1.2]}, "suspect", "other processes used"),
        ({"cpu.busy_s": [0.0, 2.0], "cpu.idle_s": [0.0, 0.1]}, "suspect", "other processes used"),
    ],
)
def test_a_disturbed_trial_says_by_what(readings, state, says):
    verdict = verdict_of(trial_state(readings=readings))
    assert verdict.state == state
    assert says in " ".join(map(str, verdict.reasons))


@pytest.mark.parametrize(
    ("readings", "state"),
    [
        ({"cpu.steal_s": [0.0, 0.02]}, "suspect"),
        ({"cpu.steal_s": [0.0, 0.5]}, "invalid"),
        ({"cpu.busy_s": [0.0, 2.0], "cpu.idle_s": [0.0, 0.1]}, "invalid"),
        ({"thermal.core1_throttled": [0.0, 1.0]}, "invalid"),
    ],
)
def test_a_strict_study_takes_no_trial_that_others_disturbed_much(readings, state):
    assert judge(Planned(strict=True), trial_state(readings=readings), None).state == state


def test_the_work_of_an_engine_and_of_the_runner_is_no_foreign_load():
    # On 2 s of capacity: the group 1.0, the sampler 0.01; dockerd, containerd, a shim and tare 0.1, and `runc`, a child
    # of the shim, 0.05. The shim has reaped the job too, whose time its group counts.
    readings = {"cpu.busy_s": [0.0, 1.17], "cpu.idle_s": [0.0, 0.83]}
    assert verdict_of(trial_state(readings=readings)).state == "suspect"
    served = Upkeep(spent_s=0.1, reaped_s=1.05)
    assert verdict_of(trial_state(readings=readings, upkeep=served)).state == "ok"
    loud = {"cpu.busy_s": [0.0, 1.27], "cpu.idle_s": [0.0, 0.73]}
    (reason,) = verdict_of(trial_state(readings=loud, upkeep=served)).reasons
    assert "used 5.5% of" in reason.sentence


def test_beside_a_tracer_what_only_disturbs_times_is_a_note():
    disturbed = trial_state(readings={"cpu.busy_s": [0.0, 2.0], "cpu.idle_s": [0.0, 0.1]})
    verdict = verdict_of(disturbed, probes=(Ftrace(),))
    assert verdict.state == "ok"
    assert any("other processes used" in note for note in map(str, verdict.notes))
    swapped = verdict_of(trial_state(readings={"cgroup.pswpin": [5.0, 9.0]}), probes=(Ftrace(),))
    assert swapped.state == "invalid"


@pytest.mark.parametrize(
    ("busy_s", "strict", "state"), [(1.02, False, "invalid"), (1.5, False, "suspect"), (1.5, True, "invalid")]
)
def test_a_load_generator_that_others_made_late_is_a_mark(busy_s, strict, state):
    late = {"load": {"seconds": 10, "sent": 100, "ok": 100, "late_p99_s": 0.05, "latency_p50_s": 0.01}}
    found = trial_state(outcome=late, readings={"cpu.busy_s": [0.0, busy_s], "cpu.idle_s": [0.0, 2.0 - busy_s]})
    verdict = judge(Planned(strict=strict), found, None)
    assert verdict.state == state
    assert "load.bottleneck" in [reason.code for reason in verdict.reasons]


def test_lost_marks_make_a_trial_suspect():
    assert verdict_of(trial_state(lost_marks=7)).state == "suspect"


def test_a_sampler_that_costs_too_much_makes_its_trial_suspect():
    report = SamplerReport(ticks=100, missed=0, late_p99_s=0.0, cpu_s=0.5, seconds=10.0)
    verdict = verdict_of(trial_state(sampler=report))
    assert verdict.state == "suspect"
    assert "5.0%" in str(verdict.reasons[0])


def test_a_gap_in_the_series_is_a_note_and_no_doubt_on_the_times():
    report = SamplerReport(ticks=80, missed=20, late_p99_s=0.0, cpu_s=0.0, seconds=10.0, lost=[GONE])
    verdict = verdict_of(trial_state(sampler=report))
    assert verdict.state == "ok"
    assert "80 of 100" in str(verdict.notes[0])
    assert GONE in verdict.notes


def test_a_pause_of_the_sampler_is_a_note():
    report = SamplerReport(ticks=99, missed=1, late_p99_s=0.0, cpu_s=0.0, seconds=10.0, longest_gap_s=1.2)
    assert verdict_of(trial_state(sampler=report)).notes == (
        Ruling("sampler.gap", "note", "sampler", "the series have a gap of 1.2 s."),
    )


def test_a_machine_that_slept_makes_the_trial_invalid():
    found = trial_state()
    found.clocks_before["boottime_s"] -= 300
    verdict = verdict_of(found)
    assert verdict.state == "invalid"
    assert "slept 300 s" in str(verdict.reasons[0])


@pytest.mark.parametrize(
    ("slept_s", "state"), [(300, "ok"), (294, "ok"), (306, "ok"), (0, "invalid"), (40, "invalid"), (340, "invalid")]
)
def test_a_sleep_that_was_asked_for_is_as_long_as_asked(slept_s, state):
    found = trial_state(stood_still_s=20.0)  # a board that takes long to stop and to wake
    found.clocks_before["boottime_s"] -= slept_s
    verdict = judge(Planned(to_sleep_s=300.0), found, None)
    assert verdict.state == state
    if state == "invalid":
        assert f"was to sleep for 300 s and slept {slept_s} s" in str(verdict.reasons[0])


def test_a_wall_clock_that_was_set_is_a_note():
    found = trial_state()
    found.clocks_before["realtime_s"] += 3600
    verdict = verdict_of(found)
    assert verdict.state == "ok"
    assert "-3600" in str(verdict.notes[0])


def test_steps_that_drift_are_noted():
    (note,) = verdict_of(trial_state(), steps=marks([1.0] * 30 + [1.5] * 30)).notes
    assert (note.code, note.weight) == ("steps.unsteady", "note")
    assert not verdict_of(trial_state(), steps=marks([1.0] * 60)).notes


def test_throttling_stands_next_to_every_time():
    readings = {"cgroup.nr_throttled": [0.0, 12.0], "cgroup.throttled_s": [0.0, 0.8]}
    (note,) = verdict_of(trial_state(readings=readings)).notes
    assert note.code == "cpu.quota"
    assert "12 times, 0.80 s" in note.sentence


@pytest.mark.parametrize(
    ("said", "steps", "notes"),
    [
        ({"state": "gave up", "why": "KeyError('x')"}, [1.0] * 3, ["only in its first part", "KeyError('x')"]),
        ({"state": "gave up", "why": "KeyError('x')"}, [], ["no step of the script is marked"]),
        ({"state": "started"}, [], ["script.no-torch", "never imported torch", "marks.during('step', number)"]),
        ({"state": "watched"}, [], ["script.no-loop", "the whole run is timed"]),
        ({"state": "watched", "reason": "no-backward"}, [], ["script.no-backward", "another process"]),
        ({"state": "watched", "reason": "grad-only"}, [], ["script.grad-only", "torch.autograd.grad"]),
        ({"state": "watched", "reason": "other-thread"}, [], ["script.other-thread", "another thread"]),
        ({"state": "marked", "by": "backward"}, [1.0] * 3, ["script.by-backward"]),
        ({"state": "marked", "by": "optimiser"}, [1.0] * 3, []),
        ({"state": "marked"}, [1.0] * 3, []),
        (None, [], []),
    ],
)
def test_what_attaching_to_a_script_said_of_itself_is_a_note(said, steps, notes):
    found = trial_state(facts={} if said is None else {"attach": said})
    verdict = verdict_of(found, steps=marks(steps) if steps else None)

    assert verdict.state == "ok"
    assert len(verdict.notes) == bool(notes)
    assert all(words in f"{verdict.notes[0].code}: {verdict.notes[0]}" for words in notes)


def test_a_command_that_loads_no_hook_has_a_reason_too():
    planned = Planned()
    planned.attach = "torch"

    (note,) = judge(planned, trial_state(), None).notes
    assert (note.code, note.weight) == ("script.no-python", "note")


def test_emulation_is_told_with_every_trial():
    note = "no /dev/kvm: every instruction is emulated (TCG)."
    verdict = judge(Planned(), trial_state(facts={"place": {"accel": "tcg", "accel_note": note}}), None)

    assert verdict.state == "ok"
    assert note in [*map(str, verdict.notes)]
    assert not judge(Planned(), trial_state(facts={"place": {"accel": "kvm"}}), None).notes


def parts_and_step(compute_ms):
    """Twenty steps of 10 ms with 4 ms of fetching."""
    found = []
    for step in range(20):
        t_ns = 1 + step * 10_000_000
        for name, from_ms, to_ms in (("fetch", 0, 4), ("compute", 4, 4 + compute_ms), ("step", 0, 10)):
            begin, end = (t_ns + int(at * 1e6) for at in (from_ms, to_ms))
            found += [Mark(begin, name, "begin", step), Mark(end, name, "end", step)]
    return steps_from(found)


def test_parts_that_are_longer_than_their_steps_are_suspect():
    assert verdict_of(trial_state(), steps=parts_and_step(6)).state == "ok"
    assert verdict_of(trial_state(), steps=parts_and_step(6.05)).state == "ok"
    verdict = verdict_of(trial_state(), steps=parts_and_step(7))
    assert verdict.state == "suspect"
    assert (*map(str, verdict.reasons),) == ("the marks do not add up: 0.220 s of parts in 0.200 s of steps.",)


def neighbour(begin_s, end_s, died=False):
    result = {"start_ns": round(begin_s * 1e9), "end_ns": round(end_s * 1e9)}
    return Tenant(
        Null(), LocalHost(), Path("/nowhere"), Job(("true",)), Exit(1, 1.0, err="no room\n"), result, died=died
    )


WHOLE = {"start_ns": 0, "end_ns": 10_000_000_000}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"neighbours": [neighbour(0, 4)]}, "the others worked for only 40% of its time"),
        ({"neighbours": [neighbour(11, 12)]}, "never worked at the same time"),
        ({"neighbours": [neighbour(0, 10, died=True)]}, "ended early with code 1: no room; the others were stopped"),
        ({"neighbours": [neighbour(0, 10)], "died": True}, "ended before all tenants were ready"),
    ],
)
def test_a_house_that_was_not_full_is_invalid(changes, says):
    verdict = verdict_of(trial_state(result=WHOLE, **changes))
    assert verdict.state == "invalid"
    assert says in str(verdict.reasons[0])


@pytest.mark.parametrize(("until_s", "state"), [(0.15, "invalid"), (0.3, "ok")])
def test_a_servers_load_is_counted_whole_so_the_others_work_all_the_time(until_s, state):
    made = [
        Mark(step * 10**7 + edge * 10**7, "step", ("begin", "end")[edge], step) for step in range(20) for edge in (0, 1)
    ]
    readings = {"tenant1.cgroup.cpu_s": [0.0, 0.0]}
    changes = {"neighbours": [neighbour(0, until_s)], "readings": readings}
    load = {"load": {"sent": 20, "ok": 20, "seconds": 0.2, "cpu_s": 0.0, "late_p99_s": 0.0, "latency_p50_s": 0.01}}
    verdict = verdict_of(trial_state(marks=made, outcome=load, **changes), steps=steps_from(made))
    assert verdict.state == state
    assert state == "ok" or "the others worked for only 75% of its time" in str(verdict.reasons[0])


def test_a_whole_run_among_others_is_ok():
    readings = {"tenant1.cgroup.cpu_s": [0.0, 0.0]}
    assert verdict_of(trial_state(result=WHOLE, neighbours=[neighbour(0, 11)], readings=readings)).state == "ok"


def test_a_trial_whose_line_to_the_device_broke_is_interrupted_and_not_failed():
    verdict = verdict_of(trial_state(error=LineLost("orin-1: the line to the device broke.")))
    lost = Ruling("line.lost", "failed", "", "orin-1: the line to the device broke.")
    assert verdict == Verdict("interrupted", (lost,))


@pytest.mark.parametrize(("slept_s", "state"), [(30.0, "invalid"), (0.1, "ok")])
def test_a_device_that_slept_is_noticed_by_its_own_clocks_where_it_is_driven_from_elsewhere(slept_s, state):
    verdict = verdict_of(trial_state(facts={"place": {"clock": {"slept_s": slept_s}}}))
    assert verdict.state == state


def test_in_turns_what_disturbs_all_sides_alike_is_a_note():
    quiet, loud = trial_state(), trial_state()
    for found in (quiet, loud):
        found.readings |= {"cgroup.cpu_s": [0.0, 1.0], "cpu.busy_s": [0.0, 6.0], "cpu.idle_s": [0.0, 4.0]}
        found.readings |= {"cpu.steal_s": [0.0, 1.0]}
    loud.facts["turns"] = {"done": 3, "count": 3}
    assert {"cpu.foreign", "cpu.steal"} <= {r.code for r in verdict_of(quiet, steps=marks([1.0] * 40)).reasons}
    told = verdict_of(loud, steps=marks([1.0] * 40))
    assert told.state == "ok"
    assert {"cpu.foreign", "cpu.steal"} <= {note.code for note in told.notes}


def test_in_turns_the_other_sides_are_not_foreign():
    found = trial_state()
    found.readings |= {"cgroup.cpu_s": [0.0, 3.0], "cpu.busy_s": [0.0, 6.0], "cpu.idle_s": [0.0, 4.0]}
    found.facts["turns"], found.partners_cpu_s = {"done": 3, "count": 3}, 3.0
    assert "cpu.foreign" not in {note.code for note in verdict_of(found, steps=marks([1.0] * 40)).notes}


def test_a_side_that_ended_before_its_last_turn_is_not_compared():
    found = trial_state()
    found.facts["turns"] = {"done": 2, "count": 3}
    few = verdict_of(found, steps=marks([1.0] * 40))
    assert (few.state, few.reasons[0].code) == ("invalid", "turns.incomplete")
    assert "2 of 3 turns" in few.reasons[0].sentence


def test_a_side_that_was_stopped_with_its_partner_is_invalid_and_not_failed():
    found = trial_state()
    found.partner = Ruling("turns.partner", "invalid", "", "the other side failed.")
    found.exit = Exit(code=-9, seconds=1.0)
    assert verdict_of(found).state == "invalid"


def test_a_runner_that_stood_still_makes_the_trial_suspect():
    found = trial_state()
    found.stood_still_s = 20.0
    verdict = verdict_of(found)
    assert (verdict.state, verdict.reasons[0].code) == ("suspect", "run.stood-still")
    assert "stood still for 20 s" in str(verdict.reasons[0])
    found.stood_still_s = 1.0  # a busy machine
    assert verdict_of(found).state == "ok"


def test_a_runner_that_was_stopped_during_the_trial_is_noted() -> None:
    """The thread that looks at the clock sees the gap, here of a process that stops itself for a second."""
    script = """
import os, signal, subprocess, time
from tare.testing import FakeHost
from tare.trial.state import TrialState
state = TrialState(FakeHost().clock)
with state.heartbeat():
    subprocess.Popen(["sh", "-c", f"sleep 1.5; kill -CONT {os.getpid()}"])
    os.kill(os.getpid(), signal.SIGSTOP)
print(state.stood_still_s)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) > 0.7


def load(**changes):
    quiet = {"seconds": 10.0, "cpu_s": 1.0, "late_p99_s": 0.0005, "latency_p50_s": 0.01, "sent": 200, "ok": 200}
    return {"load": quiet | changes}


@pytest.mark.parametrize(
    ("changes", "state", "code"),
    [
        ({}, "ok", None),
        ({"late_p99_s": 0.0019}, "ok", None),
        ({"late_p99_s": 0.05, "latency_p50_s": 0.6}, "ok", None),  # it is little where a request takes long
        ({"late_p99_s": 0.05}, "invalid", "load.bottleneck"),
        ({"cpu_s": 9.5}, "invalid", "load.bottleneck"),
        ({"ok": 199, "errors": 1}, "ok", None),
        ({"ok": 190, "rejected": 10}, "suspect", "load.failed"),
        ({"ok": 0, "failures": {"404": 200}}, "failed", "load.unanswered"),  # and no other attempt
        ({"unstreamed": 2}, "ok", None),  # a model may have nothing to say
        ({"unstreamed": 200}, "suspect", "load.not-streamed"),
        ({"sent": "many"}, "ok", None),  # the work folder is not to be trusted
    ],
)
def test_a_load_that_was_the_bottleneck_makes_a_trial_invalid_and_failures_make_it_suspect(changes, state, code):
    found = judge(Planned(), trial_state(outcome=load(**changes)), None)
    assert found.state == state
    assert [reason.code for reason in found.reasons] == ([] if code is None else [code])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"late_p99_s": 0.05}, "its own: give it a core (`load_cores`) or send fewer requests per second."),
        ({"late_p99_s": 0.05, "cores": 1, "in_flight": 1}, "its own: stop what else uses its core."),
        ({"cpu_s": 9.5, "cores": 1, "in_flight": 8}, "not the server: lower `concurrency`."),
        ({"cpu_s": 9.5, "cores": 1, "in_flight": 1}, "not the server."),
    ],
)
def test_what_helps_against_a_late_load_is_what_it_has_not(changes, says):
    (reason,) = judge(Planned(), trial_state(outcome=load(**changes)), None).reasons
    assert str(reason).endswith(says)


def test_what_failed_is_counted_and_the_first_is_named():
    nothing = load(ok=0, failures={"404": 200}, problem="404 to GET /x")
    (reason,) = judge(Planned(), trial_state(outcome=nothing), None).reasons
    assert str(reason).startswith(
        "all 200 requests failed (404 x 200; the first: 404 to GET /x): check the workload's `requests`"
    )


def test_the_cpu_time_of_the_load_is_not_another_processes():
    busy = {"cpu.busy_s": [0.0, 1.5], "cpu.idle_s": [0.0, 0.5]}
    assert judge(Planned(), trial_state(readings=busy), None).state == "suspect"
    assert judge(Planned(), trial_state(readings=busy, outcome=load(cpu_s=0.49)), None).state == "ok"


def test_a_server_that_had_to_be_killed_is_noted():
    killed = judge(Planned(), trial_state(outcome=load(), facts={"served": {"stop_s": None}}), None)
    assert [note.code for note in killed.notes] == ["server.killed"]
    stopped = judge(Planned(), trial_state(outcome=load(), facts={"served": {"stop_s": 0.1}}), None)
    assert stopped.notes == ()

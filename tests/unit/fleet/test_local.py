"""The loop over a plan: what it skips, when it stops, what it runs again. No machine is used."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

from some_records import because
from stand_in_parts import PARTS, stand_ins
from tare.analysis.weighing import weigh
from tare.base.errors import BusyError, NotRestoredError, TareError
from tare.base.files import state_dir
from tare.base.host import Job, LocalHost
from tare.base.rulings import Ruling
from tare.fleet import local, rehearsal, schedule
from tare.fleet.interruption import FINISHING, Interruption
from tare.fleet.local import run_study
from tare.parts.workloads.idle import Idle
from tare.plan.matrix import cells, trials
from tare.records.model import Record
from tare.records.store import Store
from tare.studies.model import Study
from tare.testing import FakeHost
from tare.trial.device import DeviceLock, device_id
from tare.trial.tenants import Tenant, driven


@dataclass
class Told:
    """A watcher that remembers."""

    notes: list[str] = field(default_factory=list)
    began: list[str] = field(default_factory=list)
    expected: list[float] = field(default_factory=list)
    total: int = 0
    again: int = 0

    def started(self, total: int) -> None:
        self.total = total

    def trial_again(self) -> None:
        self.again += 1

    def grown(self, by: int) -> None:
        self.total += by

    def expects(self, seconds: float) -> None:
        self.expected.append(seconds)

    def trial_began(self, label: str) -> None:
        self.began.append(label)

    def trial_ended(self, state: str, seconds: float) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def finished(self) -> None:
        pass


@pytest.fixture
def scene(tmp_path, monkeypatch):
    with stand_ins():
        yield Scene(tmp_path, monkeypatch)


class Scene:
    """A study of two platforms, a store, and trials that end as the test says."""

    def __init__(self, tmp_path: Any, monkeypatch: Any) -> None:
        self.host = FakeHost(files={"/etc/machine-id": "0123456789abcdef0123456789abcdef\n"})
        self.root = tmp_path / "store"
        self.told = Told()
        self.ran: list[Any] = []
        self.endings: dict[int, str] = {}  # the nth trial to be run -> its state
        self.reasons: dict[int, tuple[Ruling, ...]] = {}  # and why, where that matters
        self.spread = 0.001
        self.seconds: dict[str, float] = {}  # platform -> what a trial of it takes, if not 10 s
        self.slow: dict[int, float] = {}  # the nth trial to be run -> what it takes
        monkeypatch.setattr(local, "run_trial", self._run_trial)

    def study(self, **changes: Any) -> Study:
        keys = {"study": "s", "platform": ["bare", "docker"], "workload": "null", "repeat": 2, "aa": False}
        return Study.model_validate(keys | changes)

    def run(self, *, retry_failed: bool = False, **changes: Any) -> Any:
        study = self.study(**changes)
        planned = trials(study, cells(study))
        exists = (self.root / "store.json").exists()
        opened = Store.open(self.root, write=True) if exists else Store.create(self.root, study.as_plain(), "")
        with opened as store:
            return run_study(study, planned, store, self.host, self.told, retry_failed=retry_failed)

    def _run_trial(self, trial: Any, bench: Any) -> Record:
        number = len(self.ran)
        self.ran.append(trial)
        state = self.endings.get(number, "ok")
        if state == "ctrl-c":
            raise KeyboardInterrupt
        if state == "asked":  # to end after this trial, which is one that cannot be used
            signal.raise_signal(signal.SIGINT)
            state = "invalid"
        draft = Record(
            trial.id,
            0,
            "s",
            trial.block,
            trial.position,
            trial.twin,
            dict(trial.settings),
            "running",
            started_utc=datetime.now(UTC).isoformat(),
            start_ns=1,
            end_ns=1 + round(self.seconds.get(str(trial.settings["platform"]), 10) * 1e9),
        )
        writer = bench.store.begin(draft)
        slow = 1.02 if trial.settings["platform"] == "docker" else 1.0
        metrics = {"step_s": slow + self.spread * (trial.block % 3)}
        reasons = self.reasons.get(number, () if state == "ok" else (because(f"it {state}."),))
        record = replace(draft, attempt=writer.attempt, state=state, reasons=reasons, metrics=metrics)
        writer.seal(record, [], "", "")
        self.host.clock.advance(self.slow.get(number, self.seconds.get(str(trial.settings["platform"]), 10)))
        return record


def test_every_planned_trial_is_run_once_in_the_order_of_the_plan(scene):
    outcome = scene.run()
    assert outcome.why == "all planned trials are done"
    assert [(t.block, t.position) for t in scene.ran] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert scene.told.total == 4


def test_a_second_run_does_only_what_is_missing(scene):
    scene.endings = {1: "ctrl-c"}
    assert scene.run().interrupted
    scene.endings = {}
    scene.ran.clear()
    scene.run()
    assert len(scene.ran) == 3


def test_an_invalid_trial_is_run_again_and_every_attempt_is_kept(scene):
    scene.endings = {0: "invalid", 1: "invalid"}
    scene.run(repeat=1)
    assert (scene.told.total, scene.told.again, len(scene.ran)) == (2, 2, 4)
    assert [t.id for t in scene.ran[:3]] == [scene.ran[0].id] * 3
    with Store.open(scene.root) as store:
        assert [r.state for r in store.records() if r.trial == scene.ran[0].id] == ["invalid", "invalid", "ok"]


def test_an_invalid_trial_whose_rerun_was_cut_off_is_run_again_by_the_next_run(scene):
    scene.endings = {0: "invalid", 1: "ctrl-c"}
    assert scene.run(repeat=1).interrupted
    scene.endings = {}
    scene.run(repeat=1)
    with Store.open(scene.root) as store:
        assert set(store.states().values()) == {"ok"}


def test_a_trial_that_had_failed_before_is_tried_again_after_an_invalid_attempt(scene):
    scene.endings = {0: "failed"}
    scene.run(repeat=1)
    scene.endings = {2: "invalid", 3: "ctrl-c"}
    assert scene.run(repeat=1, retry_failed=True).interrupted
    scene.endings = {}
    scene.run(repeat=1)
    with Store.open(scene.root) as store:
        assert set(store.states().values()) == {"ok"}


@pytest.mark.parametrize("endings", [{2: "invalid", 3: "ctrl-c"}, {1: "invalid", 2: "asked"}, {1: "ctrl-c"}])
def test_what_is_left_of_an_interrupted_run_is_what_the_next_one_says_it_has_to_run(scene, endings):
    scene.endings = endings
    outcome = scene.run()
    scene.endings = {}
    scene.run()
    assert outcome.interrupted
    assert (outcome.left, outcome.at_most_more) == (scene.told.total, 0)


def test_what_only_the_stop_rule_may_ask_for_is_counted_apart(scene):
    scene.endings = {1: "ctrl-c"}
    outcome = scene.run(repeat={"min": 6, "max": 8, "until": "0.01%"})
    assert (outcome.left, outcome.at_most_more) == (11, 4)


def test_a_resumed_run_asks_the_stop_rule_only_before_a_block_that_is_left(scene):
    scene.run(repeat={"min": 6, "max": 6, "until": "0.01%"})
    scene.ran.clear()
    assert scene.run(repeat={"min": 6, "max": 6, "until": "0.01%"}).why == "all planned trials are done"
    assert scene.ran == []


def test_an_invalid_trial_is_not_run_for_ever(scene):
    scene.endings = dict.fromkeys(range(100), "invalid")
    scene.run(repeat=1)
    assert len(scene.ran) == 6


@pytest.mark.parametrize("code", ["cpu.foreign", "cpu.steal", "heat.throttled", "memory.swapped", "load.bottleneck"])
def test_a_trial_that_was_disturbed_is_not_run_again_now_or_later(scene, code):
    disturbed = because("other processes used 40% of the device's CPU time.", code=code)
    scene.endings, scene.reasons = {0: "invalid"}, {0: (disturbed,)}
    scene.run(repeat=1)
    assert (scene.told.again, len(scene.ran)) == (0, 2)
    scene.run(repeat=1)
    assert len(scene.ran) == 2


def test_a_fault_that_may_pass_is_tried_again_also_where_the_trial_was_disturbed(scene):
    cold = because("the data set was warm.", code="cache.warm")
    scene.endings, scene.reasons = {0: "invalid"}, {0: (cold, because("loud", "suspect", "cpu.foreign"))}
    scene.run(repeat=1)
    assert (scene.told.again, len(scene.ran)) == (1, 3)


def test_three_blocks_without_a_usable_pair_end_the_run_and_it_says_what_helps(scene):
    disturbed = because("other processes used 40% of the device's CPU time.", code="cpu.foreign")
    docker = [n for n, trial in enumerate(planned(scene, repeat=20)) if trial.settings["platform"] == "docker"]
    scene.endings, scene.reasons = dict.fromkeys(docker, "invalid"), dict.fromkeys(docker, (disturbed,))
    outcome = scene.run(repeat=20)
    assert len(scene.ran) == 6
    assert "3 blocks in a row have no usable trial of both sides" in outcome.why
    assert "used 40%" in outcome.why
    assert "leave `strict` out" in outcome.why


def test_a_pair_now_and_then_is_enough_to_go_on(scene):
    docker = [n for n, trial in enumerate(planned(scene, repeat=8)) if trial.settings["platform"] == "docker"]
    lost = [place for block, place in enumerate(docker) if block % 3]
    disturbed = because("loud", code="cpu.foreign")
    scene.endings, scene.reasons = dict.fromkeys(lost, "invalid"), dict.fromkeys(lost, (disturbed,))
    assert scene.run(repeat=8).why == "all planned trials are done"


def planned(scene: Any, **changes: Any) -> list[Any]:
    study = scene.study(**changes)
    return trials(study, cells(study))


def test_the_same_failure_three_times_in_a_row_stops_the_study(scene):
    scene.endings = dict.fromkeys(range(100), "failed")
    with pytest.raises(TareError, match="3 trials in a row failed in the same way"):
        scene.run()
    assert len(scene.ran) == 3


def test_a_lost_gpu_stops_the_study_after_one_trial_and_the_results_so_far_are_kept(scene):
    lost = because("GPU 0 is lost: it no longer answers its driver.", code="gpu.lost")
    scene.endings, scene.reasons = {1: "invalid"}, {1: (lost,)}
    with pytest.raises(TareError, match="no further trial can be run on this device") as told:
        scene.run()
    assert str(lost) in str(told.value)
    assert len(scene.ran) == 2
    with Store.open(scene.root) as store:
        assert [record.state for record in store.records()] == ["ok", "invalid"]


def test_a_failure_now_and_then_does_not_stop_the_study(scene):
    scene.endings = {0: "failed", 2: "failed"}
    assert scene.run().why == "all planned trials are done"


def test_blocks_stop_when_the_declared_interval_is_reached_and_not_before_the_floor(scene):
    outcome = scene.run(repeat={"min": 6, "max": 20, "until": "2%"})
    assert "tight enough after 6 blocks" in outcome.why
    assert scene.told.total == len(scene.ran) == 12


def test_blocks_go_on_to_the_cap_while_the_noise_is_too_large(scene):
    scene.spread = 0.5
    outcome = scene.run(repeat={"min": 6, "max": 8, "until": "0.1%"})
    assert outcome.why == "all planned trials are done"
    assert len(scene.ran) == 16


def test_no_block_is_begun_that_would_not_fit_into_the_time(scene):
    scene.spread = 0.5
    outcome = scene.run(repeat={"min": 6, "max": 20, "until": "0.1%", "within": "150 s"})
    assert "would not fit" in outcome.why
    assert len(scene.ran) == 14  # seven blocks of 20 s; an eighth would end after 160 s


@pytest.mark.parametrize(
    ("limit", "blocks"), [({"within": "50 s"}, 2), ({"within": "1 s"}, 1), ({"more_within": "50 s"}, 6)]
)
def test_the_time_holds_from_the_first_block_on_or_past_the_floor_alone(scene, limit, blocks):
    scene.spread = 0.5
    outcome = scene.run(repeat={"min": 6, "max": 20, "until": "0.1%", **limit})
    assert len(scene.ran) == 2 * blocks
    assert outcome.out_of_time


def test_the_time_that_is_promised_holds_the_rehearsal_too(scene):
    outcome = scene.run(rehearse=True, repeat={"min": 6, "max": 6, "within": "70 s"})
    assert (len(rehearsed(scene)), len(scene.ran), outcome.out_of_time) == (2, 2 + 4, True)


def test_the_time_that_is_left_is_told_by_what_each_side_took(scene):
    scene.seconds = {"bare": 10, "docker": 40}
    scene.run(repeat=3)
    first, *_, last = scene.told.expected
    assert first == 5 * scene.seconds[scene.ran[0].settings["platform"]]  # nothing is known of the other side yet
    assert scene.told.expected[1] == 100  # two blocks of both
    assert last == 0


def test_a_resumed_run_announces_all_that_it_will_run_by_what_earlier_trials_took(scene, monkeypatch):
    scene.seconds = {"bare": 10, "docker": 40}
    scene.endings = {7: "ctrl-c"}
    assert scene.run(repeat=6, rehearse=True).interrupted  # the sides' rehearsals, two blocks, and one trial
    scene.endings, scene.told.notes = {}, []
    began = time.time()
    monkeypatch.setattr(schedule.time, "time", lambda: began + 3600)
    scene.run(repeat=6, rehearse=True)  # the third block is run again whole
    assert "at least 8 trials, about 3 min 20 s." in scene.told.notes


def test_one_slow_trial_does_not_change_the_time_that_is_left_of_a_resumed_run(scene):
    """After it the median of what the side took is announced, and not this trial's time for each that is left."""
    scene.endings = {7: "ctrl-c"}
    scene.run(repeat=6, rehearse=True)
    scene.endings, scene.told.expected, ran = {}, [], len(scene.ran)
    quick, scene.slow = 10, {ran: 100}
    scene.run(repeat=6, rehearse=True)
    left = [quick * count for count in range(len(scene.ran) - ran, -1, -1)]
    assert all(abs(told - true) <= true / 3 for told, true in zip(scene.told.expected, left, strict=True))


def test_what_does_not_fit_into_the_time_that_is_left_is_not_announced(scene):
    scene.run(rehearse=True, repeat={"min": 6, "max": 6, "within": "70 s"})
    assert "at most 12 trials, as many as fit into the 50 s left." in scene.told.notes


def test_trials_that_failed_at_once_do_not_shorten_the_time_left(scene):
    scene.seconds = {"bare": 60, "docker": 0}
    docker = [n for n, trial in enumerate(planned(scene, repeat=4)) if trial.settings["platform"] == "docker"]
    scene.endings = dict.fromkeys(docker[:1], "failed")
    scene.run(repeat=4)
    assert max(scene.told.expected) <= 60 * 7
    bare_first = scene.ran[0].settings["platform"] == "bare"
    assert scene.told.expected[0 if bare_first else 1] >= 60 * 3


def test_the_trials_of_a_side_that_is_skipped_are_not_waited_for(scene):
    docker = [n for n, trial in enumerate(planned(scene, platform=["bare", "docker", "qemu"], repeat=6))
              if trial.settings["platform"] == "docker"]  # fmt: skip
    scene.endings = dict.fromkeys(docker[:3], "failed")
    scene.run(platform=["bare", "docker", "qemu"], repeat=6)
    assert scene.told.total == len(scene.ran) == 15


@pytest.mark.parametrize(("away_s", "left"), [(30, 1), (3600, 2)])
def test_a_block_that_was_left_half_done_long_ago_is_run_again_whole(scene, monkeypatch, away_s, left):
    scene.endings = {3: "ctrl-c"}
    assert scene.run(repeat=3).interrupted
    scene.endings = {}
    scene.ran.clear()
    began = time.time()
    monkeypatch.setattr(schedule.time, "time", lambda: began + away_s)
    scene.run(repeat=3)
    assert [trial.block for trial in scene.ran] == [1] * left + [2, 2]
    assert len({trial.side for trial in scene.ran[:left]}) == left
    with Store.open(scene.root) as store:
        kept = [record.attempt for record in store.records() if record.block == 1 and record.state == "ok"]
    assert sorted(kept) == ([1, 1] if left == 1 else [1, 1, 2])  # both attempts are kept
    assert ("the whole block is run again" in str(scene.told.notes)) == (left == 2)


def test_a_failure_that_is_tried_again_later_takes_its_block_along(scene, monkeypatch):
    scene.endings = {0: "failed"}
    scene.run(repeat=2)
    scene.endings = {}
    scene.ran.clear()
    began = time.time()
    monkeypatch.setattr(schedule.time, "time", lambda: began + 3600)
    scene.run(repeat=2, retry_failed=True)
    assert [trial.block for trial in scene.ran] == [0, 0]


def test_failed_trials_are_run_again_only_when_asked_to(scene):
    scene.endings = {0: "failed"}
    scene.run(repeat=1)
    scene.endings = {}
    scene.ran.clear()
    scene.run(repeat=1)
    assert scene.ran == []
    scene.run(repeat=1, retry_failed=True)
    assert len(scene.ran) == 1


class Stuck:
    """A platform whose leftovers go away only after so many tries."""

    tries = 0

    @classmethod
    def sweep(cls, host: Any, name: str) -> None:
        cls.tries -= 1
        if cls.tries >= 0:
            raise TareError("the container does not stop")


def leaves_something_behind(scene: Any, monkeypatch: Any, tries: int) -> None:
    """The first trial cannot close its container."""
    plain = scene._run_trial

    def run_trial(trial: Any, bench: Any) -> Record:
        if not scene.ran:
            bench.journal.note_site("bare", "tare-left-behind")
        return plain(trial, bench)

    Stuck.tries = tries
    monkeypatch.setattr(local, "run_trial", run_trial)
    monkeypatch.setattr(PARTS["platforms"]["bare"], "sweep", Stuck.sweep)


def test_what_a_trial_left_is_removed_before_the_next_one_begins(scene, monkeypatch):
    leaves_something_behind(scene, monkeypatch, tries=0)
    assert scene.run().why == "all planned trials are done"
    assert any("tare-left-behind" in note and "gone" in note for note in scene.told.notes)


def test_no_trial_is_run_on_a_device_that_could_not_be_put_back(scene, monkeypatch):
    leaves_something_behind(scene, monkeypatch, tries=100)
    with pytest.raises(NotRestoredError, match="does not stop"):
        scene.run()
    assert len(scene.ran) == 1


def test_a_second_request_to_end_does_not_break_off_the_restore(scene):
    said: list[str] = []
    interruption = Interruption(said.append)
    with pytest.raises(KeyboardInterrupt):
        interruption(signal.SIGTERM, None)
    interruption(signal.SIGTERM, None)
    interruption(signal.SIGHUP, None)
    assert said == ["the device is being restored; this takes a moment."] * 2


def test_while_a_server_is_waited_for_one_request_is_enough(tmp_path):
    tenant = Tenant(Idle(), LocalHost(), tmp_path, Job(("true",)), drive=lambda: LocalHost().spawn(Job(("sleep", "9"))))
    said: list[str] = []
    with driven(tenant, 60.0):
        with pytest.raises(KeyboardInterrupt):
            Interruption(said.append)(signal.SIGINT, None)
        (tmp_path / "listens").touch()
        Interruption(said.append)(signal.SIGINT, None)
    Interruption(said.append)(signal.SIGINT, None)
    assert said == [FINISHING] * 2


def test_a_device_that_another_run_owns_is_left_alone(scene):
    with DeviceLock(state_dir(), device_id(scene.host), "the other"), pytest.raises(BusyError, match="the other"):
        scene.run()
    assert scene.ran == []


# The rehearsal


def rehearsed(scene: Any) -> list[str]:
    return [trial.settings["platform"] for trial in scene.ran if trial.rehearses is not None]


def test_each_side_is_rehearsed_once_the_baseline_first_and_no_reader_counts_it(scene):
    scene.run(rehearse=True)
    assert [trial.rehearses is not None for trial in scene.ran] == [True, True, False, False, False, False]
    assert rehearsed(scene) == ["bare", "docker"]
    with Store.open(scene.root) as store:
        assert len(store.records()) == len(store.states()) == 4
        assert [record.trial[0] for record in store.rehearsals()] == ["r", "r"]
        assert store.find(store.rehearsals()[0].trial).settings["platform"] == "bare"


def test_a_study_of_built_in_workloads_is_not_rehearsed_unless_it_asks_for_it(scene):
    scene.run()
    assert rehearsed(scene) == []


def test_a_second_run_rehearses_nothing_again(scene):
    scene.endings = {3: "ctrl-c"}
    assert scene.run(rehearse=True).interrupted
    scene.endings = {}
    scene.ran.clear()
    scene.run(rehearse=True)
    assert rehearsed(scene) == []
    assert len(scene.ran) == 3


def test_a_rehearsal_that_was_cut_off_is_done_again(scene):
    scene.endings = {1: "ctrl-c"}
    assert scene.run(rehearse=True).interrupted
    scene.endings = {}
    scene.ran.clear()
    scene.run(rehearse=True)
    assert rehearsed(scene) == ["docker"]


def test_a_store_that_has_trials_of_a_side_needs_no_rehearsal_of_it(scene):
    scene.endings = {1: "ctrl-c"}
    scene.run()
    ran = scene.ran[0].settings["platform"]
    scene.endings = {}
    scene.ran.clear()
    scene.run(rehearse=True)
    assert rehearsed(scene) == [name for name in ("bare", "docker") if name != ran]


def test_a_side_that_fails_is_run_once_and_nothing_else_where_nothing_is_left_to_compare(scene):
    scene.endings = {1: "failed"}
    outcome = scene.run(rehearse=True)
    assert rehearsed(scene) == ["bare", "docker"]
    assert len(scene.ran) == 2
    assert (outcome.done, outcome.left, outcome.at_most_more, outcome.skipped) == (0, 0, 0, 2)
    assert any("docker failed: it failed." in note for note in scene.told.notes)
    with Store.open(scene.root) as store:
        (ruling,) = weigh(store).never_ran
    assert (ruling.code, ruling.subject) == ("side.never-ran", "docker")
    assert str(ruling) == "docker never ran: it failed."


def test_a_reason_that_both_sides_share_is_given_once(scene):
    scene.endings = {0: "failed", 1: "failed"}
    scene.run(rehearse=True)
    assert [note for note in scene.told.notes if "it failed." in note] == ["bare failed: it failed."]
    assert "docker cannot run for the same reason: its trials are skipped." in scene.told.notes
    with Store.open(scene.root) as store:
        told = [str(ruling) for ruling in weigh(store).never_ran]
    assert told == ["bare never ran: it failed.", "docker never ran: for the same reason as bare."]


def test_the_other_sides_go_on_without_one_that_fails(scene):
    scene.endings = {1: "failed"}
    outcome = scene.run(rehearse=True, platform=["bare", "docker", "qemu"])
    assert [trial.settings["platform"] for trial in scene.ran].count("docker") == 1
    assert outcome.done == 4
    with Store.open(scene.root) as store:
        weighing = weigh(store)
    assert [str(ruling) for ruling in weighing.never_ran] == ["docker never ran: it failed."]
    assert [found.level for found in weighing.comparisons] == ["qemu"]


def test_a_side_that_failed_is_tried_again_only_when_that_is_asked_for(scene):
    scene.endings = {1: "failed"}
    scene.run(rehearse=True)
    scene.endings = {}
    scene.ran.clear()
    assert scene.run(rehearse=True).done == 0
    assert scene.ran == []
    assert any("--retry-failed" in note for note in scene.told.notes)
    outcome = scene.run(rehearse=True, retry_failed=True)
    assert rehearsed(scene) == ["docker"]
    assert outcome.done == 4


def test_the_limit_follows_from_the_rehearsal_unless_the_study_names_one(scene):
    scene.run(rehearse=True)
    first, second, *others = scene.ran
    assert first.limit_s == 1800  # of a stranger
    assert {trial.limit_s for trial in (second, *others)} == {120}
    scene.ran.clear()
    scene.root = scene.root.with_name("other")
    scene.run(rehearse=True, limit="5 s")
    assert {trial.limit_s for trial in scene.ran} == {5}


@pytest.mark.parametrize(("steps", "told"), [(None, 1), (200, 0)])
def test_a_script_that_runs_long_in_its_rehearsal_is_told_once_how_it_is_ended_early(scene, monkeypatch, steps, told):
    script, quick = PARTS["workloads"]["null"], local.run_trial
    monkeypatch.setattr(script, "rehearsed", True)
    monkeypatch.setattr(script, "about_units", lambda self: steps, raising=False)
    monkeypatch.setattr(rehearsal, "LONG_REHEARSAL_S", 0.01)
    monkeypatch.setattr(local, "run_trial", lambda trial, bench: (time.sleep(0.1), quick(trial, bench))[1])
    scene.run(rehearse=True, repeat=1)
    assert (
        sum("still running after" in note and "`--trial-limit 200steps`" in note for note in scene.told.notes) == told
    )


def test_how_long_one_workload_takes_says_nothing_of_another(scene):
    scene.run(rehearse=True, workload=["null", {"torch_train": {"batch": 8}}])
    limits = {(each.settings["workload"], each.settings["platform"]): each.limit_s for each in scene.ran[:4]}
    assert limits["null", "bare"] == limits["torch_train", "bare"] == 1800
    assert limits["null", "docker"] == limits["torch_train", "docker"] == 120


def test_a_side_that_fails_again_and_again_between_good_trials_of_another_is_skipped(scene):
    """Failures of docker between good trials of bare are never three in a row over all trials."""
    study = scene.study(repeat=6)
    order = [trial.settings["platform"] for trial in trials(study, cells(study))]
    scene.endings = {number: "failed" for number, name in enumerate(order) if name == "docker"}
    scene.run(repeat=6)
    assert [trial.settings["platform"] for trial in scene.ran].count("docker") == 3
    assert any("its other trials are skipped" in note for note in scene.told.notes)


def test_the_output_of_a_failure_is_shown_once(scene):
    scene.endings = {0: "failed", 2: "failed"}
    scene.run(workload=["null"], platform=["bare", "docker"], repeat=2, order={"shuffle": False})
    assert sum("failed: it failed." in note for note in scene.told.notes) == 1


def test_a_strict_study_has_trials_of_its_own_that_know_it(scene):
    (usual, *_), (strict, *_) = planned(scene), planned(scene, design={"strict": True})
    assert (usual.strict, strict.strict, usual.id == strict.id) == (False, True, False)
    assert scene.study(design={"strict": True}).as_plain()["design"] == {"strict": True}

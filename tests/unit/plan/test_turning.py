"""Turns or whole runs: what the plan chooses, and why."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tare.base.errors import StudyError
from tare.plan.matrix import cells, trials
from tare.plan.turning import LEAST_TURNS, Turning, chosen, groups, turning_of, why_no_turns
from tare.records.model import Record
from tare.studies.load import from_plain
from tare.studies.model import Study
from tare.testing import FakeHost

PROGRAM = {"command": {"argv": ["true"]}}
HOST = FakeHost(files={"/proc/meminfo": "MemAvailable: 8000000 kB\n", "/sys/fs/cgroup/cgroup.controllers": "cpu\n"})


def study(**keys: Any) -> Study:
    return from_plain({"study": "s", "platform": ["bare", "runc"], "workload": PROGRAM} | keys)


def why(host: Any = HOST, **keys: Any) -> str | None:
    made = study(**keys)
    return why_no_turns(made, cells(made), host)


def rehearsed(side: str, **metrics: float) -> Record:
    usual = {"steps": 1000.0, "step_mean_s": 0.005, "max_rss_bytes": 1e8, "cpu_s": 1.0, "wall_s": 1.0}
    return Record(
        trial=side, attempt=0, study="s", block=-1, position=0, twin=0, settings={}, state="ok",
        metrics=usual | metrics, facts={"holds": True, "other_threads": 0.02, "chooses_cores": False},
    )  # fmt: skip


def choice(rehearsal: Record | None = None, monkeypatch: Any = None, **keys: Any) -> Any:
    made = study(**keys)
    sides = {trial.side: trial for trial in trials(made, cells(made))}
    return chosen(made, sides, HOST, dict.fromkeys(sides, rehearsal or rehearsed("a")))


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("tare.plan.turning.OwnDevice", FakeHost)


def test_marked_steps_take_turns_and_the_line_says_why():
    found = choice()
    assert found.turning == Turning(steps=20, count=42, warm=95, one_core=True)
    why = "steps are marked, both sides can be stopped after one"
    assert str(found) == f"design  turns of 20 steps, both sides on one core: {why}"
    plain = {"steps": 20, "count": 42, "warm": 95, "one_core": True, "together": False}
    assert found.as_plain()["turns"] == plain
    assert Turning.of_fact({**found.as_plain()["turns"], "done": 3}) == found.turning


@pytest.mark.parametrize(
    "facts", [{"other_threads": 0.3}, {"other_threads": None}, {"chooses_cores": True}, {"chooses_cores": None}]
)
def test_sides_with_a_second_busy_thread_or_cores_of_their_choice_have_all_cores(facts: dict[str, Any]):
    busy = rehearsed("a")
    made = choice(replace(busy, facts={**busy.facts, **facts}))
    assert made.turning is not None
    assert not made.turning.one_core
    assert "one core" not in str(made)


def test_a_side_that_was_not_rehearsed_keeps_all_sides_from_one_core():
    made = study()
    sides = {trial.side: trial for trial in trials(made, cells(made))}
    turning = chosen(made, sides, HOST, {next(iter(sides)): rehearsed("a")}).turning
    assert turning is not None
    assert not turning.one_core


def test_sides_take_turns_by_the_rehearsals_of_an_earlier_study_of_the_same_question():
    wave = study(rehearse=False, platform=["bare", "runc", {"runc": {"shm": "1 GiB"}}])
    sides = {trial.side: trial for trial in trials(wave, cells(wave))}
    known = dict.fromkeys(list(sides)[:2], rehearsed("a"))
    assert chosen(wave, sides, HOST, known).turning == replace(choice().turning, one_core=False)
    assert "without a rehearsal" in chosen(wave, sides, HOST, {}).why


@pytest.mark.parametrize(
    ("seconds", "start_s", "cores", "together"),
    [(90, 4.0, 2, True), (600, 4.0, 2, False), (90, 0.2, 2, False), (90, 4.0, 1, False), (None, 4.0, 2, False)],
)
def test_sides_start_at_once_where_starts_made_alone_have_no_room(
    seconds: int | None, start_s: float, cores: int, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    repeat = 7 if seconds is None else {"min": 7, "max": 20, "more_within": f"{seconds} s"}
    made = choice(rehearsed("a", steps=400.0, step_mean_s=0.006, wall_s=start_s + 1, startup_s=start_s), repeat=repeat)
    assert made.turning.together is together
    assert made.saves_s == (start_s / 2 if together else 0.0)  # the second start of the two in a pair
    assert ("started at the same time" in str(made)) is together


@pytest.mark.parametrize("placed", [{"cpuset": "0"}, {"cores": 1, "pin": True}, {"quota": 2.0}, {"leave_idle": 1}])
def test_cores_that_the_study_chooses_are_left_as_they_are(placed: dict[str, Any]):
    turning = choice(rehearsed("a", steps=10_000.0), platform=["bare", {"runc": placed}]).turning
    assert turning is not None
    assert not turning.one_core


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"design": "blocks"}, "asks for blocks"),
        ({"design": {"strict": True}}, "strict"),
        ({"rehearse": False}, "without a rehearsal"),
        (
            {
                "platform": "bare",
                "workload": {"command": {"argv": ["true", "{n}"], "vary": {"n": [*"1234567"]}}},
                "compare": {"by": "workload.n"},
            },
            "more than 6 sides",
        ),
        ({"workload": {"command": {"argv": ["true"], "writes": ["/data"]}}}, "all sides write to /data"),
        ({"platform": ["bare"]}, "no other"),
        ({"platform": ["bare", "qemu"]}, "qemu cannot be stopped in between"),
        ({"platform": ["bare", "gvisor"]}, "gvisor has a kernel"),
        ({"platform": ["bare", ["qemu", "docker"]]}, "within another"),
        ({"tenants": 2}, "several tenants"),
        ({"control": {"page_cache": "cold"}}, "page_cache is the state of the whole device"),
        ({"probes": ["cpu", "ftrace"]}, "ftrace records the whole device"),
        ({"probes": ["cpu", "power_rapl"]}, "power_rapl measures the energy"),
        ({"workload": {"torch_infer": {"model": "lenet5"}}}, "torch_infer times itself"),
        ({"compare": {"metric": "energy_step_j"}}, "energy is compared"),
    ],
)
def test_where_turns_cannot_be_the_reason_is_a_sentence(keys, told):
    assert told in str(why(**keys))


def test_a_usual_study_may_take_turns():
    assert why() is None
    assert why(platform=["bare", "runc", "docker"]) is None
    varied = {"argv": ["true", "{side}"], "vary": {"side": ["first", "second"]}, "label": "the {side}"}
    assert why(platform="bare", workload={"command": varied}, compare={"by": "workload.side"}) is None
    assert why(workload={"torch_train": {"model": "lenet5"}}) is None
    assert why(workload={"torch_train": {"device": "cuda"}}) is None


def test_what_a_rehearsal_shows():
    unmarked = Record(
        trial="a", attempt=0, study="s", block=-1, position=0, twin=0, settings={}, state="ok", facts={"holds": False}
    )
    assert choice(unmarked).why == "no steps are marked that a side could stop after"
    assert "fit into memory" in choice(rehearsed("a", max_rss_bytes=5e9)).why
    assert "too few" in choice(rehearsed("a", steps=20.0, step_mean_s=0.01)).why
    usual = rehearsed("a")
    assert "listens on port 29500" in choice(replace(usual, facts={**usual.facts, "listens_on": [29500]})).why
    assert "begin again with each epoch" in choice(replace(usual, facts={**usual.facts, "held_at": 1001})).why
    assert choice(replace(usual, facts={**usual.facts, "held_at": 1000, "listens_on": []})).turning is not None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, None),
        ({"peak": 80e9}, "would not fit into the GPU's memory"),
        ({"exclusive": True}, "compute mode"),
        ({"mps": True}, "MPS"),
        ({"peak": 10e9, "used": 10e9, "exclusive": True, "mps": True}, None),  # no side uses the GPU
    ],
)
def test_sides_that_cannot_share_a_gpu_run_one_after_the_other(
    changes: dict[str, Any], told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"peak": 60e9, "used": 1e9, "exclusive": False, "mps": False} | changes
    facts["peak"] = max(facts["peak"], facts["used"])
    gpu = SimpleNamespace(memory_bytes=lambda: (facts["used"], 140e9), is_exclusive=lambda: facts["exclusive"])
    monkeypatch.setattr("tare.plan.turning.gpus", lambda _: [gpu])
    monkeypatch.setattr("tare.plan.turning.serves_many_processes", lambda _: facts["mps"])
    found = choice(rehearsed("a", gpu_memory_bytes=facts["peak"]), aa=False)
    assert (found.turning is None) == (told is not None)
    assert told is None or told in found.why


def test_without_root_a_container_cannot_be_stopped(monkeypatch):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "without root" in choice().why
    bare = {"platform": "bare", "workload": {"torch_train": {"model": "lenet5", "batch": [16, 64]}},
            "compare": {"by": "workload.batch"}}  # fmt: skip
    assert choice(**bare).turning is not None
    assert "other busy threads" in choice(rehearsed("a", cpu_s=2.0), **bare).why


def test_under_a_quota_a_turn_lasts_twenty_periods():
    platform = {"platform": [{"runc": {"quota": 0.5}}, {"runc": {"quota": 0.8}}], "compare": {"by": "platform.quota"}}
    assert choice(rehearsed("a", steps=10_000.0), **platform).turning.steps * 0.005 >= 2.0
    assert choice(**platform).turning is None


@pytest.mark.parametrize(
    ("steps", "step_s", "least_s"), [(100, 0.01, 0.1), (400, 0.005, 0.1), (50, 2.0, 0.1), (10**6, 1e-5, 2.0)]
)
def test_turns_fit_into_the_steps_and_are_long_enough(steps, step_s, least_s):
    found = turning_of(steps, step_s, least_s)
    assert found is not None
    assert 2 + found.warm + found.steps * found.count <= steps
    assert found.count >= LEAST_TURNS
    assert found.steps * step_s >= least_s


@pytest.mark.parametrize(("steps", "step_s"), [(0, 0.1), (5, 0.1), (30, 0.001), (100, float("inf")), (100, 0.0)])
def test_too_few_steps_make_no_turns(steps, step_s):
    assert turning_of(steps, step_s) is None


def test_trials_that_are_compared_take_turns():
    made = study(workload={"torch_train": {"model": "lenet5", "batch": [16, 64]}}, repeat=2)
    found = groups(made, trials(made, cells(made)))
    assert len(found) == 4  # two batches in two blocks
    for group in found:
        assert len({(trial.block, trial.settings["workload.batch"]) for trial in group}) == 1
        assert sorted((trial.settings["platform"], trial.twin) for trial in group) == [
            ("bare", 0),
            ("bare", 1),
            ("runc", 0),
        ]


def test_a_design_is_read_and_written():
    plain = {"runs": "blocks", "cpu_time": True}
    assert study(design=plain).design.as_plain() == plain
    assert study(design="blocks").design.as_plain() == {"runs": "blocks"}
    assert "design" not in study().as_plain()


@pytest.mark.parametrize("design", ["slices", {"slices": {"quiet": "25%"}}])
def test_slices_are_refused_with_what_to_write(design):
    with pytest.raises(StudyError, match="no 'slices' any more: leave it out"):
        study(design=design)

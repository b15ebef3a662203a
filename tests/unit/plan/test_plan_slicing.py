"""`design: slices` in a plan: who takes turns with whom, and what is refused before the first trial."""

from typing import Any

import pytest

from tare.base.errors import StudyError
from tare.plan.check import groups, may_help, slicing_obstacles
from tare.plan.matrix import cells, trials
from tare.studies.load import from_plain
from tare.studies.model import Study

PROGRAM = {"command": {"argv": ["true"], "attach": "none"}}


def study(**keys: Any) -> Study:
    return from_plain({"study": "s", "platform": ["bare", "runc"], "workload": PROGRAM, "design": "slices"} | keys)


def refused(**keys: Any) -> str:
    made = study(**keys)
    return " ".join(ruling.sentence for ruling in slicing_obstacles(made, cells(made)))


def test_a_design_is_read_and_written():
    plain = {"slices": {"length": "0.2 s", "leave_out": 5, "quiet": 0.1}, "cpu_time": True}
    assert study(design=plain).design.as_plain() == plain
    assert study().design.as_plain() == {"slices": {"leave_out": 3}}
    assert study(design={"slices": None}).design == study().design
    assert study(design="blocks").design.as_plain() == {}
    assert "design" not in study(design="blocks").as_plain()
    assert from_plain(study(design=plain).as_plain()).design == study(design=plain).design


@pytest.mark.parametrize(
    ("design", "told"),
    [
        ("slicing", "must be 'blocks', 'slices'"),
        ({"slices": {"length": "10 ms"}}, "from 50 ms to 1 min"),
        ({"slices": {"leave_out": 0}}, "from 1 to 1,000 steps"),
        ({"slices": {"quiet": "120%"}}, "less than 100 %"),
        ({"slice": {}}, "slices"),
    ],
)
def test_a_wrong_design_is_refused_with_what_is_right(design, told):
    with pytest.raises(StudyError, match=told):
        study(design=design)


def test_slices_are_not_advised_where_they_are_refused_or_in_use():
    server = {"server": {"argv": ["true"], "port": 80}}
    made = [study(), study(design="blocks"), study(design="blocks", workload=server)]
    assert [may_help(each, cells(each)) for each in made] == [False, True, False]


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


def test_levels_of_a_workload_take_turns_too():
    made = study(platform="bare", workload={"torch_train": {"model": "lenet5", "batch": [16, 64]}}, aa=False, repeat=1)
    assert [len(group) for group in groups(made, trials(made, cells(made)))] == [2]


def test_without_the_design_each_runs_alone():
    made = study(design="blocks", repeat=2)
    planned = trials(made, cells(made))
    assert groups(made, planned) == [[trial] for trial in planned]


def test_a_trial_in_slices_is_another_trial():
    plain, sliced = study(design="blocks"), study()
    first, second = ({trial.id for trial in trials(each, cells(each))} for each in (plain, sliced))
    assert not first & second


def test_a_usual_study_is_not_refused():
    assert refused() == ""
    assert refused(design="blocks", platform=["bare", "qemu"], probes=["ftrace"]) == ""
    on_gpu = {"platform": ["bare", {"docker": {"gpu": True}}], "workload": {"torch_train": {"device": "cuda"}}}
    assert refused(**on_gpu) == ""  # it waits for the GPU after each step: a stopped side has one step queued at most
    assert refused(**on_gpu | {"workload": {"generate": {"size": "tiny", "device": "cuda"}}}) == ""


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"platform": ["bare", "qemu"]}, "qemu has a kernel"),
        ({"platform": ["bare", "gvisor"]}, "gvisor has a kernel"),
        ({"platform": ["bare", ["qemu", "docker"]]}, "within another"),
        ({"tenants": 2}, "several tenants"),
        ({"control": {"page_cache": "cold"}}, "page_cache is the state of the whole device"),
        ({"probes": ["cpu", "ftrace"]}, "ftrace records the whole device"),
        ({"probes": ["cpu", "power_rapl"]}, "power_rapl measures the whole device"),
        ({"workload": {"torch_infer": {"model": "lenet5"}}}, "torch_infer times itself"),
        ({"probes": ["cpu", "gpu"]}, "gpu measures the whole device"),
        ({"workload": {"torch_train": {"device": "cuda", "timing": "async"}}}, "queued on a GPU"),
        ({"platform": ["bare", {"docker": {"gpu": True}}]}, "queued on a GPU"),
        ({"workload": {"torch_train": {"device": "cuda"}}, "design": {"slices": {"leave_out": 2}}}, "leave_out: 3"),
        ({"platform": "bare"}, "no other to take turns with"),
        ({"platform": [{"runc": {"quota": [0.5, 0.6, 0.7, 0.8]}}], "compare": {"by": "platform.quota"}}, "5 trials"),
    ],
)
def test_what_cannot_be_stopped_is_refused_in_a_sentence(keys, told):
    assert told in refused(**keys)

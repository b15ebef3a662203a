"""A matrix over one command: `vary` and `label`."""

from __future__ import annotations

from typing import Any

import pytest

from tare.base.errors import StudyError
from tare.plan.matrix import aa_repeats, cells
from tare.studies.load import from_plain, loads
from tare.studies.model import Study

ARGV = ["python", "main.py", "--batch-size", "{batch}"]


def study(command: dict[str, Any], **keys: Any) -> Study:
    return from_plain({"study": "s", "platform": "bare", "workload": {"command": command}, "aa": False, **keys})


def test_each_level_is_a_cell_in_the_order_of_the_file():
    made = study({"argv": ARGV, "vary": {"batch": [64, 8, 16]}, "label": "MNIST, batch {batch}"})
    settings = [cell.settings for cell in cells(made)]
    assert [each["workload.argv"][-1] for each in settings] == ["64", "8", "16"]
    assert [each["workload.batch"] for each in settings] == [64, 8, 16]
    assert [each["workload.label"] for each in settings] == [f"MNIST, batch {size}" for size in (64, 8, 16)]
    assert [cell.workload.title() for cell in cells(made)] == [each["workload.label"] for each in settings]


def test_several_names_are_combined_and_may_stand_in_variables():
    made = study({"argv": ARGV, "env": {"OMP_NUM_THREADS": "{threads}"}, "vary": {"batch": [1, 2], "threads": [3, 4]}})
    jobs = [(cell.settings["workload.batch"], cell.settings["workload.env"]) for cell in cells(made)]
    assert jobs == [(batch, {"OMP_NUM_THREADS": str(threads)}) for batch in (1, 2) for threads in (3, 4)]


def test_a_study_that_is_written_and_read_back_is_the_same():
    made = study({"argv": ARGV, "vary": {"batch": [16, 64]}})
    again = from_plain(made.as_plain())
    assert [cell.settings for cell in cells(again)] == [cell.settings for cell in cells(made)]
    assert again == made


def test_the_first_listed_level_is_the_baseline_and_levels_can_be_named():
    made = study({"argv": ARGV, "vary": {"batch": [16, 8]}}, compare={"by": "workload.batch"}, aa=True)
    assert made.compare.against == {"workload.batch": 16}
    assert [cell.settings["workload.batch"] for cell in aa_repeats(made, cells(made))] == [16]
    fewer = study({"argv": ARGV, "vary": {"batch": [16, 8, 4]}}, exclude=[{"workload.batch": [8, 4]}])
    assert [cell.settings["workload.batch"] for cell in cells(fewer)] == [16]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ({"argv": ARGV, "vary": {"bach": [1]}}, "{batch} has no levels: `vary` has bach"),
        ({"argv": ["main.py"], "vary": {"batch": [1]}}, "{batch} stands neither in `argv` nor in `env`"),
        ({"argv": ARGV, "vary": {"batch": [1]}, "label": "{lr}"}, "{lr} has no levels"),
        ({"argv": ["main.py", "{steps}"], "vary": {"steps": [1]}}, "'steps' is a field of a command"),
        ({"argv": ARGV, "vary": {"batch": []}}, "`vary` has no level of 'batch'"),
        ({"argv": ARGV, "vary": [1, 2]}, "like {batch: [16, 64]}"),
        ({"argv": ARGV, "vary": {"batch": [True]}}, "a number or a text, not True"),
        ({"argv": ["a"], "steps": 5, "attach": "none"}, "`attach: none` marks none"),
    ],
)
def test_what_is_wrong_is_said(command, words):
    with pytest.raises(StudyError) as caught:
        study(command)
    assert words in str(caught.value)


def test_a_mistake_is_said_once_and_with_its_line():
    text = "study: s\nplatform: bare\nworkload:\n  command:\n    argv: [a, '{n}']\n    vary: {n: [1, 2]}\n"
    text += "    steps: none\n"
    with pytest.raises(StudyError) as caught:
        loads(text, "mine.yaml")
    assert str(caught.value).count("command.steps") == 1
    assert "mine.yaml:7" in str(caught.value)


def test_braces_that_nobody_varies_stay_as_they_are():
    line = ["main.py", '{"a": 1}', "{x}"]
    assert cells(study({"argv": line}))[0].settings["workload.argv"] == line


def test_what_is_not_set_leaves_no_trace_in_settings_so_that_old_stores_go_on():
    settings = cells(study({"argv": ["true"]}))[0].settings
    assert not {f"workload.{name}" for name in ("steps", "minutes", "vary", "label")} & set(settings)

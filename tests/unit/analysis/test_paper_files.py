"""The papers' figures as data: every file whole, every name in it known."""

from __future__ import annotations

import re

import pytest

from paper_results import at_scales, bare_held, every_metric, machine
from tare.analysis.claims import metrics as claimed
from tare.analysis.claims.registry import every_claim
from tare.analysis.energy.baseload import BASELOAD, ENERGY, INCREMENTAL
from tare.analysis.papers.figures import FIGURES
from tare.analysis.papers.library import names, paper, read
from tare.analysis.papers.model import ByClaim, Change, number
from tare.analysis.papers.picking import pick
from tare.cli.studies import built_in
from tare.errors import StudyError
from tare.parts.protocols import Mark
from tare.trial.summary import job_metrics, step_metrics, steps_from

LISTED = {"s0": 21, "s1": 17, "s2": 34, "s3": 24, "s4": 13}  # rows of the list of the papers' figures
MARKED = ("fetch", "compute", "forward", "backward", "optimiser", "pre_process", "inference", "post_process")


def questions():
    return [(row, one) for name in names() for row in paper(name).rows for one in row.ours]


def asked():
    return [(row, one) for row, one in questions() if not isinstance(one, ByClaim)]


def test_every_paper_has_a_file_and_every_figure_of_the_list_a_row():
    assert names() == list(LISTED)
    for name, count in LISTED.items():
        numbers = {int(re.match(r"\d+\.(\d+)", row.id)[1]) for row in paper(name).rows}
        assert numbers == set(range(1, count + 1))
        assert all(row.id.startswith(f"{name[1:]}.") for row in paper(name).rows)


def test_no_two_rows_have_the_same_id():
    every = [row.id for name in names() for row in paper(name).rows]
    assert len(set(every)) == len(every)


def test_every_study_comes_with_tare_and_belongs_to_a_paper():
    assert {one.study for _, one in asked()} <= set(built_in())


def test_every_claim_that_a_row_names_is_one_of_its_paper_and_has_a_study():
    known = {claim.id: claim for claim in every_claim()}
    for row, one in questions():
        if isinstance(one, ByClaim):
            assert f"s{row.id[0]}" in known[one.claim].papers
            assert known[one.claim].study in built_in()


def test_every_metric_is_one_that_a_trial_or_its_reading_makes():
    marks = [
        Mark(10 * step + place, name, edge, step)
        for step in range(40)
        for place, (name, edge) in enumerate(
            [("step", "begin"), *((name, edge) for name in MARKED for edge in ("begin", "end")), ("step", "end")]
        )
    ]
    made = set(step_metrics(steps_from(marks)))
    made |= set(job_metrics({"wall_s": 1.0, "minor_faults": 1, "major_faults": 1}, {}))
    made |= set(FIGURES)
    made |= {name for several in claimed.WORDS for name in several}
    made |= {BASELOAD, ENERGY, INCREMENTAL, "energy_epoch_j", "power_mean_w", "page_faults"}
    made |= {"instructions", "cache_misses", "loads", "stores"}  # of the perf probe, where the CPU counts them
    made |= {"writeback_periodic_count", "writeback_sync_count"}  # a count for each reason that the kernel gives
    assert set(every_metric()) <= made
    assert "stall_median_s" not in made


@pytest.mark.parametrize("name", names())
def test_every_row_finds_its_two_sides_in_the_plan_of_its_study_at_some_scale(name):
    for row in paper(name).rows:
        measured = [one for one in row.ours if not isinstance(one, ByClaim)]
        assert not measured or any(
            not isinstance(pick(one, machine(bare_held(one.study, scale))), str)
            for one in measured
            for scale in at_scales(one.study)
        ), row.id


@pytest.mark.parametrize("name", names())
def test_at_the_papers_own_scale_a_row_means_one_configuration(name):
    for row in paper(name).rows:
        for one in row.ours[:1]:
            if isinstance(one, ByClaim):
                continue
            found = pick(one, machine(bare_held(one.study, "full")))
            assert isinstance(found, str) or len(found) == 1, (row.id, [each.around for each in found])


@pytest.mark.parametrize("name", names())
def test_a_second_choice_of_another_model_is_told_as_a_condition(name):
    for row in paper(name).rows:
        models = {one.where.get("workload.model") for one in row.ours if not isinstance(one, ByClaim)}
        assert len(models) < 2 or "workload.model" in paper(name).conditions, row.id


NAMED = {"LeNet-5": "lenet5", "MobileNetV3": "mobilenet_v3_large", "ResNet-18": "resnet18", "ResNet-50": "resnet50"}
APPLICATIONS = {"image classification": "image", "question answering": "question", "recommendation": "recommendation"}


def test_a_row_asks_for_the_model_or_the_application_that_it_names():
    for row, one in asked():
        for key, known in (("workload.model", NAMED), ("workload.name", APPLICATIONS)):
            named = {level for words, level in known.items() if words in row.quantity}
            assert not named or key not in one.where or set(one.where[key]) <= named, row.id


def test_rows_of_the_board_whose_cache_is_too_small_read_the_disk_in_every_epoch():
    board = [(row, one) for row, one in asked() if row.id[0] == "1" and "NX" in row.quantity]
    rows = [(row, one) for row, one in board if one.study != "s1-dataset-scale"]
    emptied = {row.id for row, one in rows if one.where["control.page_cache.state"] == ("cold_every_epoch",)}
    assert {row.id for row, _ in rows} - emptied == {"1.16"}  # which compares epoch 0 with the later ones
    assert len(emptied) == 17


def test_every_setting_that_a_row_names_is_one_of_its_study():
    for row, one in asked():
        known = {key for settings in at_scales(one.study).values() for each in settings for key in each}
        named = {*one.where, *((one.by,) if isinstance(one, Change) else ())}
        assert named <= known, row.id


@pytest.mark.parametrize(
    ("text", "is_change", "value"),
    [
        ("3.91 ms", False, 0.00391),
        ("461,729,070,471,469", False, 461729070471469.0),
        ("~590 s", False, 590.0),
        ("+53.7 %", True, 0.537),
        ("6.7x", True, 5.7),
        ("2.5x less", True, -0.6),
        ("4.66 GB", False, 4.66e9),
        ("2.95 Wh", False, 10620.0),
        ("+0.2 GB", True, None),
        ("below 1 %", True, None),
        ("20 to 45 %", False, None),
        ("falls", True, None),
    ],
)
def test_what_a_paper_printed_is_a_number_where_it_is_one(text, is_change, value):
    assert number(text, is_change=is_change) == (None if value is None else pytest.approx(value))


def test_a_paper_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(StudyError, match=r"no paper 's9'.*s0, s1, s2, s3, s4"):
        paper("s9")


ROW = "{id: '9.1', section: I, quantity: time, paper: {change: +1 %}, why_not: nobody can}"
FILE = "paper: S9\nabout: What?\nnote: None.\nconditions: {{}}\nrows: [{rows}]\n"


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (f"{ROW}, {ROW}", "rows with the same id: 9.1"),
        (ROW.replace("why_not: nobody can", "ours: {study: a}"), "metric"),
        (ROW.replace(", why_not: nobody can", ""), "either `ours` or `why_not`"),
        (ROW.replace("section: I", "section: I, colour: red"), "colour"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(tmp_path, rows, why):
    file = tmp_path / "s9.yaml"
    file.write_text(FILE.format(rows=ROW))
    assert read(file).rows[0].why_not == "nobody can"
    file.write_text(FILE.format(rows=rows))
    with pytest.raises(StudyError, match=why):
        read(file)

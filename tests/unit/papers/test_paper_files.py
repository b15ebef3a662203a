"""The papers' figures as data: every file whole, every name in it known."""

from __future__ import annotations

import re

import pytest

from paper_results import at_scales, bare_held, every_metric, machine
from tare.analysis.derived import late_figures
from tare.analysis.observations import BASELOAD, ENERGY, INCREMENTAL
from tare.api.running import built_in
from tare.base.errors import StudyError
from tare.figures.steps import job_metrics, step_metrics, steps_from
from tare.papers.claims import metrics as claimed
from tare.papers.claims.deciding import every_claim
from tare.papers.tables.model import ByClaim, Change, names, number, paper, read
from tare.papers.tables.picking import pick
from tare.papers.tables.rows import studies_of
from tare.parts.protocols import Mark

LISTED = {"s0": 21, "s1": 17, "s2": 34, "s3": 24, "s4": 13}  # rows of the list of the papers' figures
MARKED = ("fetch", "compute", "forward", "backward", "optimiser", "pre_process", "inference", "post_process")


def questions():
    return [(row, one) for name in names() for row in paper(name).rows for one in row.ours]


def asked():
    return [(row, one) for row, one in questions() if not isinstance(one, ByClaim)]


def test_every_paper_has_a_file_and_every_figure_of_the_list_a_row():
    assert names() == list(LISTED)
    for name, count in LISTED.items():
        listed = [row for row in paper(name).rows if row.paper.change != "not in the paper"]
        numbers = {int(re.match(r"\d+\.(\d+)", row.id)[1]) for row in listed}
        assert numbers == set(range(1, count + 1))
        assert all(row.id.startswith(f"{name[1:]}.") for row in paper(name).rows)


def test_no_two_rows_have_the_same_id():
    every = [row.id for name in names() for row in paper(name).rows]
    assert len(set(every)) == len(every)


def test_a_row_does_not_say_in_its_quantity_what_is_printed_beside_it():
    for row in (row for name in names() for row in paper(name).rows):
        assert f"({row.paper.text()})" not in row.quantity, row.id
        sides = ", ".join(f"{name} {value}" for name, value in row.paper.sides.items())
        assert not sides or sides not in row.quantity, row.id


def test_what_is_told_of_our_own_scale_is_no_hazard_of_the_papers_figure():
    for row in (row for name in names() for row in paper(name).rows):
        assert "scale small" not in (row.hazard or ""), row.id
        studies = {one.study for one in row.ours if not isinstance(one, ByClaim)}
        assert all(any(scale in at_scales(study) for study in studies) for scale in row.ours_note), row.id


def test_every_study_comes_with_tare_and_belongs_to_a_paper():
    assert {one.study for _, one in asked()} <= set(built_in())


def test_every_study_of_a_paper_is_shown_by_a_row_or_a_claim_of_it():
    shown = {study for name in names() for study in studies_of(paper(name))}
    assert {study for study in built_in() if re.match(r"s[0-4]-", study)} <= shown


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
    made |= set(late_figures())
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


OF_OTHER_NETWORKS = [f"2.{row}{part}" for row in (26, 27, 28) for part in "abc"]
OF_OTHER_NETWORKS += [f"2.{row}{part}" for row in (30, 31, 32) for part in "abcd"]
OF_OTHER_NETWORKS += [f"2.33{tenants}{network}" for tenants in "sm" for network in "bcd"]
NOT_AT_SMALL = {  # rows that a run at scale small does not have, by what it would take
    *("0.16a", "0.16b"),  # inference at two clocks
    "1.9b",  # four workers
    "3.14a",  # a device that sleeps
    "3.13i",  # ResNet-18
    *("4.9b", "4.9c"),  # applications in virtual machines
    *OF_OTHER_NETWORKS,  # S2 runs SqueezeNet alone there
    *("3.9a", "3.9b"),  # four workers
    *("3.13a", "3.13b", "3.13f", "3.14b", "3.16c"),  # ResNet-18
    "3.10c",  # batches of 32
    *("3.14d", "3.14e", "3.14f", "3.18a", "3.18b", "3.18c", "3.20j", "3.20k"),  # a GPU's clock
    *("3.19a", "3.19b", "3.19c", "3.19d", "3.20a", "3.20b", "3.20c", "3.20h"),  # the CPU's clock
    *(f"3.21{part}" for part in "abcdef"),  # the memory's clock
    *("4.3a", "4.3b", "4.3c"),  # a GPU, and several numbers of cores beside it
    "4.4f",  # ResNet-152
    *("4.6c", "4.6d", "4.12f"),  # more applications
    *(
        "4.2d",
        "4.5b",
        "4.5c",
        "4.8c",
        "4.8d",
        "4.11a",
        "4.11b",
        "4.11e",
    ),  # applications in virtual machines, which takes KVM
}


def test_at_scale_small_every_row_finds_its_sides_but_those_that_are_listed():
    asked_there = [row for name in names() for row in paper(name).rows if _measured(row)]
    missing = {row.id for row in asked_there if not any(_found_at("small", one) for one in _measured(row))}
    assert missing == NOT_AT_SMALL


def _measured(row):
    return [one for one in row.ours if not isinstance(one, ByClaim)]


def _found_at(scale, question):
    return not isinstance(pick(question, machine(bare_held(question.study, scale))), str)


OF_ANY_MODEL = ("0.10a", "0.10b")


@pytest.mark.parametrize("name", names())
def test_at_the_papers_own_scale_a_row_means_one_configuration(name):
    for row in paper(name).rows:
        for one in row.ours[:1]:
            if isinstance(one, ByClaim) or row.id in OF_ANY_MODEL:
                continue
            found = pick(one, machine(bare_held(one.study, "full")))
            assert isinstance(found, str) or len(found) == 1, (row.id, [each.around for each in found])


@pytest.mark.parametrize("name", names())
def test_a_row_of_any_model_or_of_a_second_one_tells_it_as_a_condition(name):
    for row in paper(name).rows:
        trained = [one for one in _measured(row) if one.where.get("workload") == ("torch_train",)]
        models = {one.where.get("workload.model") for one in trained}
        names_one = len(models) < 2 and None not in models
        assert names_one or "workload.model" in paper(name).conditions, row.id


NAMED = {"LeNet-5": "lenet5", "MobileNetV3": "mobilenet_v3_large", "ResNet-18": "resnet18", "ResNet-50": "resnet50"}
APPLICATIONS = {"image classification": "image", "question answering": "question", "recommendation": "recommendation"}


def test_a_row_asks_for_the_model_or_the_application_that_it_names():
    for row, one in asked():
        for key, known in (("workload.model", NAMED), ("workload.name", APPLICATIONS)):
            named = {level for words, level in known.items() if words in row.quantity}
            assert not named or key not in one.where or set(one.where[key]) <= named, row.id


EMPTIED = ("cold_every_epoch",)


def test_rows_of_the_board_whose_cache_is_too_small_read_the_disk_in_every_epoch_or_have_little_memory():
    board = [(row, one) for row, one in asked() if row.id[0] == "1" and "NX" in row.quantity]
    emptied = {row.id for row, one in board if one.where["control.page_cache.state"] == EMPTIED}
    limited = {row.id for row, one in board if one.study == "s1-dataset-scale"}
    assert limited == {"1.14a", "1.14b", "1.15a", "1.15b", "1.16"}
    assert {row.id for row, _ in board} == emptied | limited


def test_where_the_size_of_the_data_is_varied_memory_is_limited_and_epochs_keep_what_fits():
    for scale in at_scales("s1-dataset-scale"):
        found = bare_held("s1-dataset-scale", scale).records
        assert all(record.settings["platform.memory"] for record in found)
        states = {record.settings["workload.items"]: set() for record in found}
        for record in found:
            states[record.settings["workload.items"]].add(record.settings["control.page_cache.state"])
        largest = max(states)
        assert all(each == {"cold"} for items, each in states.items() if items != largest)


def test_s3_asks_the_same_of_that_board_and_nothing_that_its_cache_would_have_to_keep():
    board = [(row, one) for row, one in asked() if row.id[0] == "3" and row.quantity.startswith("NX, MobileNetV3")]
    assert {one.where.get("control.page_cache.state") for row, one in board if row.id != "3.2b"} == {EMPTIED}
    assert {row.id for row, _ in board} == {"3.1b", "3.2b", "3.4e", "3.5e", "3.6c", "3.6d", "3.6e", "3.7e", "3.9c"}
    rows = {row.id: row for row in paper("s3").rows}
    assert rows["3.1a"].ours != rows["3.1b"].ours


def test_a_number_that_the_paper_does_not_print_is_marked_and_follows_from_those_it_does():
    marked = [row for name in names() for row in paper(name).rows if "change" in row.paper.derived]
    assert len(marked) > 20
    for row in marked:
        assert f"{row.paper.change} (derived)" in row.paper.text()
        *_, old, new = [number(value) for value in row.paper.sides.values()]
        assert new / old == pytest.approx(number(row.paper.change), rel=0.002), row.id
    totals = {row.id for row in paper("s2").rows if "one" in row.paper.derived}
    assert totals == {"2.29d", "2.30d", "2.31d", "2.32d"}


def test_what_the_second_version_of_the_paper_takes_back_is_time_and_energy_not_memory():
    rows = [row for row in paper("s0").rows if "superseded" in (row.hazard or "")]
    assert len(rows) > 20
    assert not [row.id for row in rows if "memory" in row.quantity]


def test_how_much_is_in_the_page_cache_is_asked_where_the_trials_did_not_fill_it_beforehand():
    asked_of = [one for _, one in asked() if "page_cache_share" in one.metric]
    assert {one.where["control.page_cache.state"] for one in asked_of} == {("cold",)}


def test_without_an_idle_core_platforms_are_compared_and_not_numbers_of_cores():
    rows = {row.id: row for row in paper("s4").rows if row.id.startswith("4.8")}
    assert set(rows) == {"4.8a", "4.8b", "4.8c", "4.8d", "4.8e"}
    for name in ("4.8a", "4.8c", "4.8d"):
        (one,) = rows[name].ours
        assert (one.study, one.by, one.start) == ("s4-idle-core", "platform", ("bare",))
        assert one.where["platform.leave_idle"] == (0,)
    assert rows["4.8b"].ours == (ByClaim(claim="s4.bare-without-idle-core-can-be-slower"),)


def test_s4_tells_times_end_to_end_by_their_means_as_the_paper_does():
    by_median = {row.id for row, one in asked() if row.id[0] == "4" and one.metric == ("step_s",)}
    by_mean = {row.id for row, one in asked() if row.id[0] == "4" and one.metric == ("step_mean_s",)}
    assert by_median == set()
    assert {"4.1a", "4.2a", "4.5a", "4.6a", "4.6b", "4.7a", "4.7b", "4.8a"} <= by_mean


CONTROLS = {"2.23c": "2.23d", "2.25a": "2.25d", "2.29a": "2.29e", "2.29d": "2.29f", "2.29g": "2.29h"}


def test_what_s2_says_of_containers_is_asked_of_as_many_processes_on_bare_metal_too():
    rows = {row.id: row for row in paper("s2").rows}
    for containers, processes in CONTROLS.items():
        (theirs,), (control,) = rows[containers].ours, rows[processes].ours
        assert control.where["platform"] == ("bare",)
        on_bare = {**theirs.where, "platform": ("bare",)}
        assert control == theirs.model_copy(update={"where": on_bare})
        assert rows[processes].paper.change == "not in the paper"
        assert f"the control of {containers}" in rows[processes].quantity


def test_every_change_that_s1_tells_by_another_formula_is_told_so_of_ours():
    other = {row.id for row in paper("s1").rows if (row.paper.change or "").startswith("decreases by")}
    assert {row.id for row in paper("s1").rows if row.as_decrease} == other
    assert len(other) == 7


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
    with pytest.raises(StudyError, match=r"No paper 's9'.*s0, s1, s2, s3, s4"):
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
        (ROW.replace("why_not: nobody can", "ours: {claim: a}, ours_note: {small: b}"), "`ours_note` belongs to"),
        (ROW.replace("{change: +1 %}", "{AGX, ResNet-18: 1 %}"), "nothing is printed for AGX"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_what_is_wrong(tmp_path, rows, why):
    file = tmp_path / "s9.yaml"
    file.write_text(FILE.format(rows=ROW))
    assert read(file).rows[0].why_not == "nobody can"
    file.write_text(FILE.format(rows=rows))
    with pytest.raises(StudyError, match=why):
        read(file)

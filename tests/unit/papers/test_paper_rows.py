"""A paper's rows on made-up machines: which trials a row compares, and by which statistics."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from analysis_figures import FakeStore
from paper_results import DEVICE, INSIDE, described, held, machine, ours, trials, with_records
from some_layers import container
from some_records import draft
from tare.analysis.derived import of_a_mini_batch
from tare.analysis.weighing import weigh
from tare.papers.claims.deciding import claims_of
from tare.papers.pages.rows import ours_text
from tare.papers.tables.model import ByClaim, paper
from tare.papers.tables.picking import called, setting
from tare.papers.tables.rows import NOT_HERE, answered, layers, studies_of
from tare.records.model import StoreTrials

TAX = "s0-container-tax"


def test_a_row_is_what_compare_says_of_the_same_store():
    store = held(TAX, "small", metrics=["compute_s"])
    found = ours("0.1", store)

    said = weigh(FakeStore(list(store.records), described(TAX, "small")), metric="compute_s")
    same = next(each for each in said.comparisons if each.level.startswith("LeNet-5 training"))
    assert (found.change, found.low, found.high, found.n) == (same.effect, same.low, same.high, same.n)
    assert (found.verdict, found.mde, found.margin) == (same.verdict, same.mde, same.margin)
    assert found.sides == {"bare": same.theirs.value, "docker": same.ours.value}
    assert found.store == "here/s0-container-tax"


def test_rows_that_compare_the_very_same_are_corrected_for_once():
    store = held("s1-workers", "small", metrics=["stall_mean_s"])
    twice = ours("1.4a", store)
    assert twice.n == 6
    assert replace(ours("1.5a", store), as_decrease=False) == twice
    assert twice.sides.keys() == {"0 workers", "1 worker"}
    assert twice.high < -0.4


def test_a_pair_that_another_row_turns_round_counts_once_and_has_the_same_interval():
    store = held("s3-power-modes", "cuda", metrics=["stall_mean_s"])
    fewer_to_more, more_to_fewer = ours("3.19e", store), ours("3.19h", store)

    assert list(fewer_to_more.sides) == list(more_to_fewer.sides)[::-1]
    assert 1 + more_to_fewer.low == pytest.approx(1 / (1 + fewer_to_more.high))
    assert 1 + more_to_fewer.high == pytest.approx(1 / (1 + fewer_to_more.low))


def test_rows_of_one_study_each_have_their_own_trials():
    store = held(TAX, "small", metrics=["compute_s"])
    assert len({ours(row, store).change for row in ("0.1", "0.2", "0.3", "0.15a")}) == 4


def test_docker_is_taken_before_runc_and_runc_where_it_is_alone():
    store = held(TAX, "cuda", metrics=["compute_s"])
    assert list(ours("0.1", store).sides) == ["bare", "docker"]
    without = [record for record in store.records if record.settings["platform"] != "docker"]
    assert list(ours("0.1", with_records(store, without)).sides) == ["bare", "runc"]


def test_what_the_row_could_mean_as_well_is_told_beside_it():
    records = trials(TAX, "small", metrics=["compute_s"])
    more = [
        replace(each, trial=f"{each.trial}-b", settings={**each.settings, "workload.batch": 64}) for each in records
    ]
    found = ours("0.1", with_records(held(TAX, "small", blocks=1), [*records, *more]))
    assert len(found.elsewhere) == 1
    assert found.elsewhere[0] == pytest.approx(0.02, abs=0.005)


def test_a_share_has_the_interval_of_its_median_and_counts_trials():
    found = ours("2.25a", held("s2-writebacks", "small"))
    assert found.change is None
    assert found.low <= next(iter(found.sides.values())) <= found.high
    assert found.metric == "writeback_background_share"
    assert found.n == 6


def test_two_figures_of_the_same_trials_are_compared_block_by_block():
    found = ours("1.16", held("s1-dataset-scale", "small"))
    assert list(found.sides) == ["stall_s", "epoch0_stall_s"]
    assert found.n == 6
    assert found.paired


def test_a_value_has_those_of_the_other_configurations_beside_it():
    store = held("s2-writebacks", "small")
    more = [
        replace(each, trial=f"{each.trial}-b", settings={**each.settings, "workload.batch": 64},
                metrics={**each.metrics, "writeback_background_count": 3 * each.metrics["writeback_background_count"]})
        for each in store.records
    ]  # fmt: skip
    found = ours("2.25a", with_records(store, [*store.records, *more]))
    assert found.n == 6
    assert found.elsewhere == pytest.approx([3 * next(iter(found.sides.values()))], rel=0.01)


def test_a_row_of_a_claim_says_what_every_population_says():
    store = held("s4-pinning", "small", metrics=["step_s"])
    inside = {**INSIDE, "torch": {"version": "1.8"}}
    other = [
        replace(
            each,
            trial=f"{each.trial}-b",
            facts={"device": DEVICE, "inside": inside},
            metrics={"step_s": each.metrics["step_s"] * (0.5 if each.settings["platform.pin"] else 1.0)},
        )
        for each in store.records
    ]
    old = StoreTrials("here/old", other, store.study)
    found = ours("4.7c", store, old)
    assert [each.word for each in (found, *found.also)] == [ours("4.7c", store).word, ours("4.7c", old).word]
    assert len({each.where for each in (found, *found.also)}) == 2
    assert [each["word"] for each in found.as_json()["also"]] == [each.word for each in found.also]


def test_a_row_of_a_claim_has_its_word_and_its_evidence():
    found = ours("4.7c", held("s4-pinning", "small", metrics=["step_s"]))
    assert found.word in ("holds", "does not hold", "undecided")
    assert "pinned against vanilla" in found.why
    assert ours("4.7c", held(TAX, "small", metrics=["step_s"])).word == NOT_HERE


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("platform", "docker", "docker"),
        ("workload.workers", 1, "1 worker"),
        ("tenants", "beside torch_infer", "beside inference"),
        ("control.power_mode.gpu_mhz", 345.0, "GPU 345 MHz"),
        ("platform.pin", False, "vanilla"),
        ("platform.seccomp", True, "with seccomp"),
        ("workload.batch", 16, "batch 16"),
        ("control.storage.emulate", "hdd", "hdd"),
    ],
)
def test_a_level_is_called_as_people_call_it(name, value, words):
    assert called(name, value) == words


def test_a_stack_has_the_settings_of_its_outermost_platform():
    machine_of_four = {"platform.0.qemu.cores": 4, "platform.0.qemu.pin": True}
    container_in_it = {"platform.1.docker.cores": None, "platform.1.docker.pin": False, "platform.1.docker.image": "x"}
    record = draft(settings={"platform": "qemu+docker", **machine_of_four, **container_in_it})
    assert [setting(record, name) for name in ("platform", "platform.cores", "platform.pin", "platform.image")] == [
        "qemu+docker", 4, True, "x",
    ]  # fmt: skip
    assert setting(record, "platform.numa") is None
    assert setting(draft(), "workload.batch") == 16


def test_a_container_in_a_machine_is_compared_with_bare_metal_that_leaves_as_many_cores_idle():
    store = held("s4-idle-core", "full", metrics=["step_mean_s"])
    found = ours("4.8d", store)
    assert list(found.sides) == ["bare", "qemu+docker"]
    assert (found.n, found.elsewhere) == (6, ())
    idle = [
        each
        for each in store.records
        if each.settings["platform"] != "qemu+docker" or each.settings["platform.leave_idle"] != 0
    ]
    assert "have platform bare, docker, qemu only" in ours("4.8d", with_records(store, idle)).why


def test_of_any_model_the_first_is_shown_and_the_others_beside_it():
    found = ours("0.10a", held("s0-syscalls", "small", metrics=["system_calls"]))
    assert list(found.sides) == ["bare", "docker"]
    assert len(found.elsewhere) == 1


def test_times_beside_a_tracer_are_not_compared_but_counts_are():
    store = held("s2-events", "small", metrics=["cycles", "step_s"])
    traced = [replace(record, facts={**record.facts, "traced": {}}) for record in store.records]
    assert ours("2.1", with_records(store, traced)).change == pytest.approx(0.02, abs=0.005)


def test_other_software_on_one_side_taints_the_row():
    store = held(TAX, "small", metrics=["compute_s"])
    other = {**INSIDE, "torch": {"version": "1.12.0"}}
    mixed = [
        replace(record, facts={"device": DEVICE, "inside": other if record.settings["platform"] != "bare" else INSIDE})
        for record in store.records
    ]
    assert any("torch" in each for each in ours("0.1", with_records(store, mixed)).taints)
    assert ours("0.1", store).taints == ()


def test_energy_for_four_workers_is_that_of_four_where_more_were_run_too():
    assert list(ours("3.7a", held("s3-pipeline", "full")).sides) == ["0 workers", "4 workers"]
    assert list(ours("3.7a", held("s3-pipeline", "small")).sides) == ["0 workers", "2 workers"]


def test_the_newest_attempt_that_has_the_figure_speaks_for_its_trial():
    store = held("s2-writebacks", "small")
    again = [replace(each, attempt=each.attempt + 1, metrics={"wall_s": 1.0}) for each in store.records]
    both = [each for pair in zip(store.records, again, strict=True) for each in pair]
    assert ours("2.25a", with_records(store, both)) == ours("2.25a", store)


def test_models_are_told_apart_also_where_two_stores_of_a_machine_have_them():
    stores = [held(TAX, scale, metrics=["compute_s"]) for scale in ("small", "cuda")]
    found = ours("0.20", *stores)
    assert found.word == "does not hold"
    assert found.n == 12


def test_claims_rest_on_the_papers_own_studies_alone():
    assert set(studies_of(paper("s0"))) == {
        TAX, "s0-phase-breakup", "s0-power-sensitivity", "s0-seccomp", "s0-syscalls", "s0-colocation",
        "s0-baseload", "s0-instrumentation",
    }  # fmt: skip
    assert {"s1-workers", "s3-pipeline"} <= set(studies_of(paper("s1")))
    assert "power_median_w" in studies_of(paper("s0"))[TAX]


def taken_apart(records) -> StoreTrials:
    return StoreTrials("here/s0-why", records, {"study": "why-layers"})


def test_the_withdrawn_result_is_shown_in_whole_and_layer_by_layer_with_what_could_have_been_seen():
    stores = [held(TAX, "small", metrics=["compute_s"]), taken_apart(container({"seccomp": 0.08}))]
    (found,) = layers(answered(paper("s0"), [machine(*stores)]))

    assert len(found.whole) == 6
    assert all(each.mde is not None for each in found.whole.values())
    assert [layer.layer for layer in found.apart.guilty] == ["seccomp"]
    assert all(layer.added.mde is not None for layer in found.apart.layers)
    assert found.as_json()["apart"]["guilty"] == ["seccomp"]
    assert found.workload == "torch_train"


def test_a_machine_without_layers_says_so():
    (found,) = layers(answered(paper("s0"), [machine(held(TAX, "small"))]))
    assert found.apart is None
    assert "`tare why` was not run" in found.why
    (found,) = layers(answered(paper("s0"), [machine(taken_apart(container({})[:10]))]))
    assert found.apart is None
    assert "nothing to compare" in found.why


def test_rows_that_print_seconds_of_an_epoch_have_ours_of_an_epoch_and_of_a_mini_batch():
    """A board's column stands next to the paper's; one that has no epochs has the mini-batch alone."""
    store = held("s1-workers", "small", metrics=["stall_mean_s", "epoch_stall_s"])
    found = ours("1.4a", store)
    assert found.metric == "epoch_stall_s"
    zero, one = found.mini_batch
    assert zero > one > 0
    assert f"; per mini-batch {zero * 1e3:.1f} ms, {one * 1e3:.1f} ms" in ours_text(found)
    alone = ours("1.4a", held("s1-workers", "small", metrics=["stall_mean_s"]))
    assert (alone.metric, alone.mini_batch) == ("stall_mean_s", ())


@pytest.mark.parametrize("name", ["s1", "s3"])
def test_every_row_in_seconds_asks_for_seconds_of_an_epoch_first(name):
    in_seconds = [
        row for row in paper(name).rows if any(re.search(r"\d s$", each) for each in row.paper.sides.values())
    ]
    assert len(in_seconds) > 10
    wrong = [row.id for row in in_seconds for one in row.ours if of_a_mini_batch(one.figures[0]) is None]
    assert wrong == []


PRACTICES = {  # of S4, VI -> the row, the study and the scale that derive it from data
    "(1)": ("4.13a", "s4-scale-up", "small"),
    "(2)": ("4.13b", "s4-scale-up", "full"),
    "(3)": ("4.13c", "s4-idle-core", "small"),
    "(4)": ("4.13d", "s4-storage", "full"),
    "(5)": ("4.13e", "s4-gpu", "cuda"),
    "(6)": ("4.13f", "s4-gpu", "cuda"),
    "(7)": ("4.13g", "s4-platforms", "edge"),
}


def test_each_of_the_seven_best_practices_has_a_row_that_a_study_can_answer():
    rows = {row.id: row for row in paper("s4").rows if row.id.startswith("4.13")}
    assert {row.section.removeprefix("VI ") for row in rows.values()} == PRACTICES.keys()
    for number, (name, study, _) in PRACTICES.items():
        assert f"best practice {number.strip('()')}" in rows[name].quantity
        asked = rows[name].ours[0]
        by_claim = {claim.id: claim.study for claim in claims_of("s4")}
        assert (by_claim[asked.claim] if isinstance(asked, ByClaim) else asked.study) == study


@pytest.mark.parametrize("name", ["4.13a", "4.13c", "4.13d"])
def test_best_practices_that_are_figures_are_derived_from_records(name):
    study, scale = next((study, scale) for row, study, scale in PRACTICES.values() if row == name)
    found = ours(name, held(study, scale, metrics=["step_mean_s", "pre_and_post_mean_s"]))
    assert found.word is None and found.n == 6

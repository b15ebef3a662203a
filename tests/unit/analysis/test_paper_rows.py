"""A paper's rows on made-up machines: which trials a row compares, by which statistics, and why there are none."""

from __future__ import annotations

from dataclasses import replace

import pytest
from figures import FakeStore

from paper_results import DEVICE, INSIDE, described, held, machine, trials
from some_layers import container
from tare.analysis.claims.pooling import Source
from tare.analysis.papers.conditions import conditions
from tare.analysis.papers.figures import SOURCES
from tare.analysis.papers.layers import layers
from tare.analysis.papers.library import paper
from tare.analysis.papers.machines import Held
from tare.analysis.papers.picking import called
from tare.analysis.papers.rows import NOT_HERE, answered, studies_of
from tare.analysis.weighing import weigh

TAX = "s0-container-tax"


def changed(store: Held, **study: object) -> Held:
    return replace(store, source=replace(store.source, study={**store.source.study, **study}))


def with_records(store: Held, records) -> Held:
    return replace(store, source=replace(store.source, records=records))


def ours(row: str, *stores: Held):
    return answered(paper(f"s{row[0]}"), [machine(*stores)]).rows[row]["here"]


def test_a_row_is_what_compare_says_of_the_same_store():
    store = held(TAX, "small", metrics=["compute_s"])
    found = ours("0.1", store)

    said = weigh(FakeStore(list(store.records), described(TAX, "small")), metric="compute_s")
    same = next(each for each in said.comparisons if "lenet5" in each.level and "torch_train" in each.level)
    assert (found.change, found.low, found.high, found.n) == (same.effect, same.low, same.high, same.n)
    assert (found.verdict, found.mde, found.margin) == (same.verdict, same.mde, same.margin)
    assert found.sides == {"bare": same.theirs.value, "docker": same.ours.value}
    assert found.store == "here/s0-container-tax"


def test_rows_that_compare_the_very_same_are_corrected_for_once():
    store = held("s1-workers", "small", metrics=["stall_mean_s"])
    twice = ours("1.4a", store)
    assert twice.n == 6
    assert ours("1.5a", store) == twice
    assert twice.sides.keys() == {"0 workers", "1 worker"}
    assert twice.high < -0.4


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
    found = ours("1.16", held("s1-storage", "small"))
    assert list(found.sides) == ["stall_s", "epoch0_stall_s"]
    assert found.n == 6
    assert found.paired


def test_a_row_of_a_claim_has_its_word_and_its_evidence():
    found = ours("4.7c", held("s4-pinning", "small", metrics=["step_s"]))
    assert found.word in ("holds", "does not hold", "undecided")
    assert "pinned against vanilla" in found.why
    assert ours("4.7c", held(TAX, "small", metrics=["step_s"])).word == NOT_HERE


@pytest.mark.parametrize(
    ("row", "store", "why"),
    [
        ("0.1", (), "s0-container-tax was not run"),
        ("0.5", (TAX, "compute_s"), "no power sensor (power_median_w)"),
        ("0.12a", (TAX, "energy_j"), "no idle power was measured"),
        ("0.8", ("s0-phase-breakup", "step_s"), "no trial of s0-phase-breakup has optimiser_s"),
        ("1.4b", ("s1-workers", "stall_mean_s"), "no trial of s1-workers has emulate sd"),
        ("1.1a", ("s1-workers", "stall_mean_s"), "s1-storage was not run"),
        ("3.13a", ("s3-dvfs", "step_s"), "no trial of s3-dvfs has model resnet18"),
        ("4.7b", ("s4-pinning", "step_s"), "no trial of s4-pinning has name recommendation"),
        ("0.21", ("s0-phase-breakup", "step_s"), "times its phases"),
        ("3.19a", ("s3-power-modes", "stall_mean_s"), "no trial of s3-power-modes sets cpu_mhz"),
        ("1.17b", ("s1-dataset-scale", "step_s"), "no figure sums up its later epochs alone"),
    ],
)
def test_a_row_without_a_figure_says_why(row, store, why):
    found = ours(row, *([held(store[0], "small", metrics=store[1:])] if store else []))
    assert found.word == NOT_HERE
    assert why in found.why
    assert found.sides == {}


def test_an_energy_that_was_read_and_not_believed_says_why_and_not_that_there_is_no_sensor():
    store = held(TAX, "small", metrics=["compute_s"])
    energy = {"source": "gpu", "doubts": ["gpu: too short: 1.9 s, and a counter that is read every 0.4 s takes 4 s."]}
    read = [replace(each, facts={**each.facts, "energy": energy}) for each in store.records]
    assert ours("0.11a", with_records(store, read)).why == (
        "energy was read and is not claimed (energy_j): "
        "gpu: too short: 1.9 s, and a counter that is read every 0.4 s takes 4 s"
    )


def test_the_reason_is_that_of_the_study_that_was_run():
    assert ours("3.14e", held("s3-power-modes", "small", metrics=["step_s"])).why == (
        "no trial of s3-power-modes sets gpu_mhz"
    )
    assert ours("3.14e", held("s3-batch", "small", metrics=["step_s"])).why == "s3-baseload was not run"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("platform", "docker", "docker"),
        ("workload.workers", 1, "1 worker"),
        ("control.power_mode.gpu_mhz", 345.0, "GPU 345 MHz"),
        ("platform.pin", False, "vanilla"),
        ("platform.seccomp", True, "with seccomp"),
        ("workload.batch", 16, "batch 16"),
        ("control.storage.emulate", "hdd", "hdd"),
    ],
)
def test_a_level_is_called_as_people_call_it(name, value, words):
    assert called(name, value) == words


def test_what_the_machine_said_of_a_missing_part_is_passed_on():
    store = changed(
        held(TAX, "small", metrics=["compute_s"]),
        left_out=["probe power_rapl: this kernel has no RAPL.", "probe gpu: no NVIDIA driver."],
    )
    assert ours("0.5", store).why.endswith("probe power_rapl: this kernel has no RAPL")
    assert ours("0.4", store).why.endswith("probe gpu: no NVIDIA driver")


def test_one_platform_alone_and_failed_trials_are_no_comparison():
    store = held(TAX, "small", metrics=["compute_s"])
    bare = [record for record in store.records if record.settings["platform"] == "bare"]
    assert "have platform bare only" in ours("0.1", with_records(store, bare)).why
    failed = [replace(record, state="failed") for record in store.records]
    assert "no trial of s0-container-tax ended well" in ours("0.1", with_records(store, failed)).why


def test_a_count_of_nothing_is_no_ratio_and_is_said():
    store = held("s2-events", "small", metrics=["count_block_bio_frontmerge"])
    none = [replace(record, metrics={"count_block_bio_frontmerge": 0.0}) for record in store.records]
    assert "is zero or less in 12 trials" in ours("2.20", with_records(store, none)).why
    assert ours("2.20", store).n == 6


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
    assert "torch" in ours("0.1", with_records(store, mixed)).why
    assert ours("0.1", store).why == ""


def test_conditions_are_those_in_which_the_trials_differ_from_the_paper():
    store = held(TAX, "small", metrics=["compute_s"])
    assert ours("0.1", store).conditions == ("scale small", "on the CPU", "0 workers", "1 thread", "960 items")
    assert ours("0.2", changed(store, scale="full")).conditions[0] == "on the CPU"


def test_the_state_of_the_page_cache_is_told_though_a_row_names_it():
    slow = ours("1.1a", held("s1-storage", "small")).conditions
    kept = ours("1.4a", held("s1-workers", "small")).conditions
    assert {"emulated hdd", "page cache emptied before every epoch"} <= set(slow)
    assert {"emulated hdd", "page cache emptied before the trial"} <= set(kept)
    assert not any("worker" in said for said in slow)
    both = ours("3.2a", held("s3-pipeline", "small")).conditions  # the row compares two states of it
    assert not any("page cache" in said for said in both)


def test_what_only_a_second_choice_has_is_told():
    assert "2 workers" in ours("3.2a", held("s3-pipeline", "small")).conditions
    assert not any("worker" in said for said in ours("3.2a", held("s3-pipeline", "full")).conditions)
    assert "model lenet5" in ours("0.10a", held("s0-syscalls", "smoke", metrics=["system_calls"])).conditions
    assert not any("model" in said for said in ours("0.10a", held("s0-syscalls", "small")).conditions)
    assert "2 tenants" in ours("2.29a", held("s2-writebacks", "smoke")).conditions
    assert not any("tenant" in said for said in ours("2.29a", held("s2-writebacks", "small")).conditions)


def test_energy_for_four_workers_is_that_of_four_where_more_were_run_too():
    assert list(ours("3.7a", held("s3-pipeline", "full")).sides) == ["0 workers", "4 workers"]
    assert list(ours("3.7a", held("s3-pipeline", "small")).sides) == ["0 workers", "2 workers"]


def test_the_sensor_behind_a_figure_is_a_condition():
    store = held(TAX, "small", metrics=["power_median_w", "energy_j"])
    told = {SOURCES: {"power_median_w": "from gpu.power_w: the GPU alone"}, "energy": {"scope": "the GPU"}}
    found = with_records(store, [replace(each, facts={**each.facts, **told}) for each in store.records])
    assert ours("0.5", found).conditions[-1] == "from gpu.power_w: the GPU alone"
    assert ours("0.11a", found).conditions[-1] == "energy of the GPU"
    assert ours("0.11a", store).conditions[-1] == "960 items"


def test_a_series_that_is_too_thin_is_the_reason_and_not_a_missing_sensor():
    store = held(TAX, "small", metrics=["step_s"])
    said = {SOURCES: {"power_median_w": "no reading of gpu.power_w fell into the measured steps"}}
    thin = with_records(store, [replace(each, facts={**each.facts, **said}) for each in store.records])
    assert ours("0.5", thin).why == (
        "no reading of gpu.power_w fell into the measured steps of s0-container-tax (power_median_w)"
    )


def test_the_newest_attempt_that_has_the_figure_speaks_for_its_trial():
    store = held("s2-writebacks", "small")
    again = [replace(each, attempt=each.attempt + 1, metrics={"wall_s": 1.0}) for each in store.records]
    both = [each for pair in zip(store.records, again, strict=True) for each in pair]
    assert ours("2.25a", with_records(store, both)) == ours("2.25a", store)


def test_an_emulated_machine_is_a_condition_and_a_kvm_one_is_not():
    (record, *_) = trials("s4-platforms", "small", blocks=1)
    for accel, said in (("tcg", ("emulated machine (TCG)",)), ("kvm", ())):
        mine = replace(record, facts={**record.facts, "place": {"accel": accel}})
        assert conditions([mine], {"scale": "full"}, {"place.accel": "kvm"}) == said


def test_models_are_told_apart_also_where_two_stores_of_a_machine_have_them():
    stores = [held(TAX, scale, metrics=["compute_s"]) for scale in ("small", "cuda")]
    found = ours("0.20", *stores)
    assert found.word == "does not hold"
    assert found.n == 12


def test_claims_rest_on_the_papers_own_studies_alone():
    assert set(studies_of(paper("s0"))) == {
        TAX, "s0-phase-breakup", "s0-power-sensitivity", "s0-seccomp", "s0-syscalls",
    }  # fmt: skip
    assert {"s1-workers", "s3-pipeline"} <= set(studies_of(paper("s1")))
    assert "power_median_w" in studies_of(paper("s0"))[TAX]


def taken_apart(records) -> Held:
    return Held("here/s0-why", "why-layers", Source("here/s0-why", records, {"study": "why-layers"}))


def test_the_withdrawn_result_is_shown_in_whole_and_layer_by_layer_with_what_could_have_been_seen():
    stores = [held(TAX, "small", metrics=["compute_s"]), taken_apart(container({"seccomp": 0.08}))]
    (found,) = layers(answered(paper("s0"), [machine(*stores)]))

    assert len(found.whole) == 6
    assert all(each.mde is not None for each in found.whole.values())
    assert [layer.layer for layer in found.apart.guilty] == ["seccomp"]
    assert all(layer.added.mde is not None for layer in found.apart.layers)
    assert found.as_json()["apart"]["guilty"] == ["seccomp"]


def test_a_machine_without_layers_says_so():
    (found,) = layers(answered(paper("s0"), [machine(held(TAX, "small"))]))
    assert found.apart is None
    assert "`tare why` was not run" in found.why
    (found,) = layers(answered(paper("s0"), [machine(taken_apart(container({})[:10]))]))
    assert found.apart is None
    assert "nothing to compare" in found.why

"""What a claim may rest on: what was compared must have differed in what the claim is about, and in nothing else."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from claim_case import STEP, cell
from claim_cases import CASES
from claim_cases_s4 import pinning, placed
from claimed import DEVICE as BOARD
from claimed import Cell, answer, stores, trials

from tare.papers.claims.model import Population
from tare.papers.claims.s2 import background_grows_with_tenants
from tare.records.model import StoreTrials, TrialRow

MODEL, BATCH, DEVICE = "workload.model", "workload.batch", "workload.device"
IDLE, SATURATION = "s4.bare-without-idle-core-can-be-slower", "s3.larger-batches-until-saturation"
EPOCHS = "s3.epochs-vary-little"
ENERGY, TIME = "s0.total-energy-rises", "s3.four-modes-predict-time"


def said(claim: str, cells: list[Cell]):
    return answer(claim, *stores(cells))


# Cores


def test_bare_metal_with_no_idle_core_is_not_held_against_a_container_on_fewer_cores():
    idle = "platform.leave_idle"
    cells = [
        cell({"platform": platform, idle: left}, {"step_mean_s": time}, facts=placed(2 - left, 2))
        for platform, left, time in (("bare", 0, 1.0), ("docker", 0, 1.1), ("docker", 1, 0.5))
    ]

    found = said(IDLE, cells)

    assert found.word == "not measured"
    assert "cores to spare" in found.why


def test_threads_that_do_not_fill_the_cores_say_nothing_about_an_idle_one():
    cells = [replace(each, settings={**each.settings, "workload.threads": 1}) for each in CASES[IDLE].make(0.2)]

    assert said(IDLE, cells).word == "not measured"
    filled = [replace(each, settings={**each.settings, "workload.threads": 2}) for each in cells]
    assert said(IDLE, filled).word == "holds here"


@pytest.mark.parametrize(("name", "value"), [("leave_idle", 1), ("quota", 0.5), ("cpuset", "0")])
def test_a_container_with_other_cores_is_not_compared_with_bare_metal(name, value):
    cells = [
        cell({}, {"energy_step_j": 1.0}),
        cell({"platform": "docker", f"platform.{name}": value}, {"energy_step_j": 2.0}),
    ]

    assert said(ENERGY, cells).word == "not measured"


def test_no_core_left_idle_is_as_if_nothing_were_said_of_it():
    cells = [
        cell({"platform.leave_idle": 0, "platform.pin": False}, {"energy_step_j": 1.0}),
        cell({"platform": "docker"}, {"energy_step_j": 2.0}),
    ]

    assert said(ENERGY, cells).word == "holds here"


def test_a_quota_is_seen_in_the_mean_step_where_the_median_has_none():
    cells = [
        replace(each, metrics={"step_s": STEP, "step_mean_s": STEP * each.metrics["step_s"]}) for each in pinning(0.2)
    ]

    assert said("s4.pinning-lowers-the-overhead", cells).word == "holds here"


def test_modes_are_predicted_by_the_mean_step():
    cells = [
        cell({MODEL: model, "platform.quota": quota}, {"step_s": STEP, "step_mean_s": STEP * (1 + 2 * (place % 2))})
        for model in ("lenet5", "resnet18")
        for place, quota in enumerate((0.5, 0.75, 1.0, 1.5, 2.0))
    ]

    found = said(TIME, cells)
    assert found.low > 0.25  # the median step tells nothing of the quota: its error would be none


def test_a_time_that_still_falls_with_the_most_cores_is_no_evidence_against_its_stopping_beyond_them():
    cells = [
        cell({"platform.cores": cores, "workload": "application"}, {"step_s": time})
        for cores, time in ((4, 1.0), (16, 0.5), (32, 0.3))
    ]

    found = said("s4.e2e-stops-improving", cells)

    assert found.word == "undecided"
    assert "may stop beyond them" in found.why


def test_a_container_in_a_pinned_machine_is_pinned_as_its_machine_is():
    inside = {"platform.1.docker.pin": False}
    cells = [
        replace(each, settings={"platform": "qemu+docker", "platform.0.qemu.pin": pin, **inside})
        if each.settings["platform"] == "docker"
        else each
        for each in pinning(0.2)
        for pin in [each.settings["platform.pin"]]
    ]

    assert said("s4.pinning-lowers-the-overhead", cells).word == "holds here"


def test_what_pinning_does_to_bare_metal_as_well_is_not_overhead():
    assert said("s4.pinning-lowers-the-overhead", pinning(0.0, bare=0.2)).word == "does not hold here"


def test_where_a_platform_costs_nothing_there_is_nothing_to_lower():
    found = said("s4.pinning-lowers-the-overhead", pinning(0.0, bare=0.2, costs=0.0))

    assert found.word == "undecided"
    assert "pinning has nothing to lower" in found.why


def test_a_container_with_half_of_the_hosts_cores_is_not_one_with_few():
    claim = "s4.vanilla-container-with-few-cores-is-an-outlier"

    def on_hosts(times: int) -> list[Cell]:
        cells = CASES[claim].make(0.0)
        return [replace(each, facts=placed(n, times * n)) for each in cells for n in [each.settings["platform.cores"]]]

    assert said(claim, on_hosts(5)).word == "does not hold here"
    found = said(claim, on_hosts(2))
    assert found.word == "not measured"
    assert "50% of the host's" in found.why


# Memory


def test_a_servers_memory_does_not_make_a_containers_small():
    server = {"device": {**BOARD, "memory_bytes": 512 * 10**9}}
    cells = [
        cell({"platform": name}, {"memory_median_bytes": used}, facts=server)
        for name, used in (("bare", 4e9), ("docker", 6e9))
    ]

    assert said("s0.memory-cost-is-small", cells).word == "does not hold here"


def test_page_faults_with_a_fixed_allocator_are_no_finding_about_containers():
    claim = "s2.faults-and-cycles-rise"
    alike = [
        cell({"platform": name}, {"minor_faults": 1e5, "major_faults": 10, "cycles": 1e12})
        for name in ("bare", "docker")
    ]
    fixed = [replace(each, settings={**each.settings, "workload.malloc": "fixed"}) for each in alike]

    assert said(claim, alike).word == "does not hold here"
    assert said(claim, fixed).word == "undecided"
    assert "allocator" in said(claim, fixed).why


# Saturation


def batches(times: dict[int, float], device: str = "cuda", model: str = "lenet5") -> list[Cell]:
    return [
        cell({BATCH: batch, DEVICE: device, MODEL: model}, {"step_mean_s": STEP * batch * time})
        for batch, time in times.items()
    ]


FADING, FLAT = {1: 1.0, 2: 0.6, 4: 0.42, 8: 0.32}, {1: 1.0, 2: 0.6, 4: 0.42, 8: 0.41}


def test_gains_that_have_not_run_out_are_no_evidence_against_saturation_and_the_last_step_is_shown():
    found = said(SATURATION, batches(FADING))

    assert found.word == "undecided"
    assert found.effect == pytest.approx(0.32 / 0.42 - 1, abs=0.01)
    assert found.why.startswith("Time per item, for each doubling of the batch from 4 to 8, LeNet-5")
    assert "undecided: the largest batch did not saturate the GPU" in found.why


def test_each_model_must_saturate_by_itself():
    found = said(SATURATION, [*batches(FLAT), *batches(FADING, model="resnet18")])

    assert said(SATURATION, batches(FLAT)).word == "holds here"
    assert found.word == "undecided"
    assert found.why.startswith("Time per item, for each doubling of the batch from 4 to 8, ResNet-18")


def test_what_a_doubling_brings_is_told_with_the_levels_that_it_is_taken_between():
    found = said(SATURATION, batches({1: 1.0, 16: 0.2, 64: 0.1125}))

    assert "for each doubling of the batch from 16 to 64" in found.why
    assert found.effect == pytest.approx(0.75 - 1, abs=0.01)


def test_larger_batches_that_gain_nothing_at_all_speak_against_the_claim():
    found = said(SATURATION, batches({1: 1.0, 2: 1.0, 4: 1.0}))

    assert found.word == "does not hold here"
    assert found.why.startswith("Time per item (and so per epoch), largest batch against smallest")


def test_a_processor_does_not_show_where_a_gpu_saturates():
    found = said(SATURATION, batches(FLAT, device="cpu"))

    assert found.word == "not measured"
    assert "trial ran on a GPU" in found.why


# Epochs


def test_a_few_epochs_do_not_tell_how_much_epochs_vary():
    found = said(EPOCHS, [cell({}, {"step_s": STEP}, epochs=(1.3, 1.01, 0.99, 1.0))])

    assert found.word == "not measured"
    assert "trial has ten epochs after the first" in found.why


def test_the_epochs_of_each_model_are_looked_at_by_themselves():
    def epochs(x: float) -> tuple[float, ...]:
        return (1.3, 1 + x, 1 - x, *[1.0] * 9)

    cells = [
        cell({MODEL: model}, {"step_s": STEP}, epochs=epochs(x))
        for model, x in (("lenet5", 0.001), ("resnet18", 0.12), ("vgg11", 0.001))
    ]

    found = said(EPOCHS, cells)

    assert found.word == "does not hold here"
    assert "ResNet-18: +" in found.why


# Write-backs


def test_a_workload_that_has_no_background_write_backs_alone_is_the_first_level_of_a_trend():
    cells = [
        cell({"platform": "docker", "tenants": tenants}, {"writeback_count": 1e4, "writeback_background_count": count})
        for tenants, count in ((1, 0.0), (4, 3e3))
    ]

    found = said("s2.background-write-backs-grow-with-tenants", cells)

    assert found.word == "holds here", found.why
    assert found.effect == pytest.approx(0.3, abs=0.01)
    assert re.search(r"tenants to most: \+(29|30)\.\d points", found.why)


def test_a_limit_that_the_study_sets_leaves_what_passes_it_undecided_and_says_why():
    settings = {"platform": "docker", "control.dirty.background_bytes": 2**24}
    cells = [
        cell({**settings, "tenants": tenants}, {"writeback_count": 1e4, "writeback_background_count": count})
        for tenants, count in ((1, 0.0), (4, 3e3))
    ]

    found = said("s2.background-write-backs-grow-with-tenants", cells)

    assert found.word == "undecided"
    assert "it depends on the limit from which pages are written back in the background" in found.why
    assert found.low > 0


def test_points_of_a_share_are_points_in_every_cell_too():
    cells = [
        cell({"workload.model": model, "tenants": n}, {"writeback_count": 1e4, "writeback_background_count": 1e3 * n})
        for model in ("lenet5", "resnet18")
        for n in (1, 4)
    ]

    (check,) = background_grows_with_tenants(Population([TrialRow.of(each) for each in trials(cells)])).checks

    assert [each.kind for each in (check, *check.parts)] == ["points"] * 3


def test_tenants_are_told_by_all_pages_that_were_written():
    cells = [
        cell(
            {"platform": "docker", "tenants": n},
            {"writeback_interval_s": 5.0, "writeback_pages": 100.0**n, "written_pages": 1e4 * n},
        )
        for n in (1, 2)
    ]

    found = said("s2.tenants-flush-more-at-the-same-interval", cells)

    assert re.search(r"pages written, most tenants against one: (1\.9\d|2\.0)x", found.why)


def test_a_layer_whose_capacity_is_assumed_leaves_its_claim_undecided_and_says_why():
    claim = "s2.nvm-layer-cuts-flush-latency"
    cells = [replace(each, facts={"assumed": ["flush_latency_nvm_s"]}) for each in CASES[claim].make(0.82)]

    found = said(claim, cells)

    assert found.word == "undecided"
    assert "it depends on the capacity of the layer, which the paper does not state" in found.why
    assert found.high < -0.5


@pytest.mark.parametrize(
    ("claim", "setting", "word"),
    [
        ("s2.write-backs-more-often-and-less-regularly", "control.dirty.writeback", "how often the flusher wakes"),
        ("s2.tenants-flush-more-at-the-same-interval", "control.dirty.background_bytes", "the limit from which pages"),
    ],
)
def test_what_the_study_sets_itself_decides_nothing(claim, setting, word):
    case = CASES[claim]
    cells = case.make(case.fails)
    given = [replace(each, settings={**each.settings, setting: 0.5}) for each in cells]

    assert said(claim, cells).word == "does not hold here"
    found = said(claim, given)
    assert found.word == "undecided"
    assert word in found.why and "more block" not in found.why


# Tracers


@pytest.mark.parametrize("claim", ["s3.devices-vary-little", SATURATION, "s3.stall-rises-a-batch-and-falls-an-epoch"])
def test_times_beside_a_tracer_are_compared_in_no_way(claim):
    traced = {"traced": {"probes": ["ftrace"]}}
    cells = [replace(each, facts={**each.facts, **traced}) for each in CASES[claim].make(CASES[claim].holds)]

    assert answer(claim, *stores(cells)).word == "not measured"


def test_the_noise_of_traced_twins_is_no_noise_of_times():
    records = trials(pinning(0.2))
    twins = [
        replace(
            each,
            twin=1,
            trial=f"{each.trial}, twin",
            facts={**each.facts, "traced": {}},
            metrics={"step_s": 2 * each.metrics["step_s"]},
        )
        for each in records
    ]

    assert answer("s4.pinning-lowers-the-overhead", StoreTrials("s", [*records, *twins])).word == "holds here"

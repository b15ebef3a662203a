"""What a claim may rest on: what was compared must have differed, and what is missing must be named rightly."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import pytest
from claim_case import STEP, cell
from claim_cases import CASES
from claim_cases_s4 import placed
from claimed import Cell, answer, stores, trials

from tare.analysis.claims.pooling import Source

MEDIUM, WORKERS, CACHE = "control.storage.emulate", "workload.workers", "control.page_cache.state"
MODEL, BATCH, DEVICE = "workload.model", "workload.batch", "workload.device"
IDLE, SATURATION = "s4.bare-without-idle-core-can-be-slower", "s3.larger-batches-until-saturation"
MORE_WORKERS, EPOCHS = "s1.more-workers-help-only-slow-media-or-fast-gpus", "s3.epochs-vary-little"
ENERGY, TIME = "s0.total-energy-rises", "s3.four-modes-predict-time"
OF_MEDIA = (
    MORE_WORKERS, "s1.hidden-medium-is-enough", "s1.page-cache-makes-the-medium-irrelevant", "s1.linear-on-fast-media",
)  # fmt: skip


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
        cell({"platform": "docker", "platform.pin": pin}, {"step_s": STEP, "step_mean_s": STEP * (1 - 0.2 * pin)})
        for pin in (True, False)
    ]

    assert said("s4.pinning-lowers-the-overhead", cells).word == "holds here"


def test_modes_are_predicted_by_the_mean_step():
    cells = [
        cell({MODEL: model, "platform.quota": quota}, {"step_s": STEP, "step_mean_s": STEP * (1 + 2 * (place % 2))})
        for model in ("lenet5", "resnet18")
        for place, quota in enumerate((0.5, 0.75, 1.0, 1.5, 2.0))
    ]

    assert said(TIME, cells).word == "does not hold here"


# Media


@pytest.mark.parametrize("claim", OF_MEDIA)
def test_media_that_the_loader_never_felt_are_no_evidence(claim):
    cells = [
        replace(each, metrics={**each.metrics, **{name: STEP for name in each.metrics if name.startswith("epoch0_")}})
        for each in CASES[claim].make(CASES[claim].holds)
    ]

    found = said(claim, cells)

    assert found.word == "not measured"
    assert "emulated media did not differ" in found.why


@pytest.mark.parametrize("claim", OF_MEDIA)
def test_media_that_only_workers_have_read_from_are_not_known_to_differ(claim):
    cells = [replace(each, settings={**each.settings, WORKERS: 2}) for each in CASES[claim].make(CASES[claim].holds)]
    if claim == MORE_WORKERS:
        cells = [each for each in CASES[claim].make(CASES[claim].holds) if each.settings[WORKERS] > 0]

    found = said(claim, cells)

    assert found.word == "not measured"
    assert "nothing tells whether these differ" in found.why


def test_workers_are_judged_where_every_epoch_reads_from_the_medium():
    gains = {("cold", "ssd"): -0.3, ("cold_every_epoch", "hdd"): 0.3}
    cells = [
        cell(
            {MEDIUM: medium, WORKERS: workers, CACHE: state},
            {
                "step_mean_s": STEP * (1 - gains.get((state, medium), 0.0) * (workers > 1)),
                "stall_mean_s": STEP * (1 + (medium == "hdd")),
            },
        )
        for state, medium, workers in product(("cold", "cold_every_epoch"), ("hdd", "ssd"), (0, 1, 4))
    ]

    assert said(MORE_WORKERS, cells).word == "holds here"


# Saturation


def batches(times: dict[int, float], device: str = "cuda", model: str = "lenet5") -> list[Cell]:
    return [
        cell({BATCH: batch, DEVICE: device, MODEL: model}, {"step_mean_s": STEP * batch * time})
        for batch, time in times.items()
    ]


FADING, FLAT = {1: 1.0, 2: 0.6, 4: 0.42, 8: 0.32}, {1: 1.0, 2: 0.6, 4: 0.42, 8: 0.41}


def test_gains_that_only_shrink_are_no_plateau_and_the_last_doubling_is_shown():
    found = said(SATURATION, batches(FADING))

    assert found.word == "does not hold here"
    assert found.effect == pytest.approx(0.32 / 0.42 - 1, abs=0.01)
    assert "the last doubling of the batch" in found.why


def test_each_model_must_saturate_by_itself():
    found = said(SATURATION, [*batches(FLAT), *batches(FADING, model="resnet18")])

    assert found.word == "does not hold here"
    assert found.why.startswith("Time an item, the last doubling of the batch, resnet18")


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
    assert "resnet18: +" in found.why


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


# What is missing


def test_the_peak_of_a_process_is_not_the_memory_of_the_device():
    cells = [
        cell({"platform": platform}, {"max_rss_bytes": 3e9 * (1 + share)})
        for platform, share in (("bare", 0.0), ("docker", 0.01))
    ]

    found = said("s0.memory-cost-is-small", cells)

    assert found.word == "not measured"
    assert "memory in use on the device (memory_median_bytes): it takes the memory probe" in found.why


def both_platforms(metrics: dict[str, float], *, facts: dict | None = None, **settings: str) -> list[Cell]:
    return [cell({"platform": name, **settings}, metrics, facts=facts or {}) for name in ("bare", "docker")]


def test_energy_that_was_read_and_is_doubted_is_not_said_to_need_a_probe():
    doubted = {"energy": {"source": "gpu", "doubts": ["gpu: too short: 3 samples in 1.0 s."]}}

    found = said(ENERGY, both_platforms({"step_s": STEP}, facts=doubted))

    assert found.word == "not measured"
    assert "nergy was read and is not claimed (energy_step_j): gpu: too short: 3 samples in 1.0 s" in found.why


def test_a_probe_that_ran_and_told_nothing_is_not_asked_for_again():
    cells = both_platforms({"minor_faults": 1e5}, probes="cpu,perf")

    why = said("s2.faults-and-cycles-rise", cells).why

    assert "no trial has CPU cycles (cycles): the perf probe ran, and this device does not count it" in why


def test_a_network_alone_does_not_tell_what_inference_overstates():
    cells = [
        cell({"workload": "torch_infer", DEVICE: device}, {"step_s": time, "inference_s": time})
        for device, time in (("cpu", 1.0), ("cuda", 0.1))
    ]

    assert said("s4.inference-only-overstates", cells).word == "not measured"


# Tracers


@pytest.mark.parametrize("claim", ["s3.devices-vary-little", SATURATION, "s3.stall-rises-a-batch-and-falls-an-epoch"])
def test_times_beside_a_tracer_are_compared_in_no_way(claim):
    traced = {"traced": {"probes": ["ftrace"]}}
    cells = [replace(each, facts={**each.facts, **traced}) for each in CASES[claim].make(CASES[claim].holds)]

    assert answer(claim, *stores(cells)).word == "not measured"


def test_the_noise_of_traced_twins_is_no_noise_of_times():
    cells = [cell({"platform": "docker", "platform.pin": pin}, {"step_s": 1 - 0.2 * pin}) for pin in (True, False)]
    records = trials(cells)
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

    assert answer("s4.pinning-lowers-the-overhead", Source("s", [*records, *twins])).word == "holds here"

"""What a claim says beside its word: which check it shows, how many more there are, and what is missing.

The figure of a claim in words.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from claim_case import STEP, cell
from claim_cases import CASES
from claimed import Cell, answer, stores

from tare.papers.claims.model import figure_words

MODEL, DEVICE = "workload.model", "workload.device"
ENERGY, BASELOAD = "s0.total-energy-rises", "s0.energy-rise-is-baseload"
EPOCHS, PARETO = "s3.epochs-vary-little", "s3.default-mode-may-not-be-pareto"
IN_VM, DEFAULT = "s4.container-in-vm-costs-most", {"compare": {"against": {"control.power_mode": "15W"}}}
DOUBTED = {"energy": {"source": "gpu", "doubts": ["gpu: too short: 3 samples in 1.0 s."]}}


def said(claim: str, cells: list[Cell], **how):
    return answer(claim, *stores(cells, **how))


# Which check is shown


def epochs_of(**deviations: float) -> list[Cell]:
    return [
        cell({MODEL: model}, {"step_s": STEP}, epochs=(1.3, 1 + x, 1 - x, *[1.0] * 9))
        for model, x in deviations.items()
    ]


def test_where_all_checks_hold_the_one_that_holds_most_narrowly_is_shown():
    found = said(EPOCHS, epochs_of(lenet5=0.001, resnet18=0.02, vgg11=0.004))

    assert found.word == "holds here", found.why
    assert "ResNet-18" in found.why.partition(";")[0]
    assert found.effect == pytest.approx(0.02, abs=0.008)


def test_a_claim_whose_checks_are_of_different_figures_shows_the_first():
    claim = "s1.page-cache-makes-the-medium-irrelevant"

    assert said(claim, CASES[claim].make(0.0)).why.startswith("End-to-end time after epoch 0")


def test_where_a_check_fails_the_first_that_fails_is_shown():
    found = said(EPOCHS, epochs_of(lenet5=0.001, resnet18=0.12, vgg11=0.2))

    assert found.word == "does not hold here"
    assert "ResNet-18" in found.why.partition(";")[0]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "; 1 further check holds too."),
        ({"alexnet": 0.002}, "; 2 further checks hold too."),
        ({"alexnet": 0.2}, "; 2 further checks: 2 hold."),
        ({"alexnet": 0.2, "mine": 0.2}, "; 3 further checks: 2 hold, 1 does not hold."),
        ({"alexnet": 0.2, "mine": 0.2, "yours": 0.2}, "; 4 further checks: 2 hold, 2 do not hold."),
    ],
)
def test_further_checks_are_counted_in_plain_words(more, words):
    models = {"lenet5": 0.001, "resnet18": 0.001, "vgg11": 0.001, "squeezenet": 0.001}

    assert said(EPOCHS, epochs_of(**models, **more), n=12).why.endswith(words)


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
    found = said(ENERGY, both_platforms({"step_s": STEP}, facts=DOUBTED))

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


def test_a_baseload_that_was_not_measured_is_not_put_down_to_a_sensor_that_was_doubted_once():
    found = said(BASELOAD, both_platforms({"energy_j": 100.0}, facts=DOUBTED))

    assert found.word == "not measured"
    assert found.why == "No baseload was measured (energy_baseload_j): it takes `tare device baseload`."


def test_energy_in_one_power_mode_is_energy():
    measured = both_platforms({"step_s": STEP, "energy_step_j": 1.0}, facts=DOUBTED)

    assert said(PARETO, measured, study=DEFAULT).why == "No power mode was varied."
    without = [replace(each, metrics={"step_s": STEP}) for each in measured]
    assert "nergy was read and is not claimed" in said(PARETO, without, study=DEFAULT).why


@pytest.mark.parametrize(
    ("facts", "figures", "words"),
    [
        ({}, {}, "it takes a power probe"),
        ({}, {"gpu_power_w": 90.0}, "the gpu probe ran"),
        ({"energy": {"source": "gpu"}}, {}, "the gpu probe ran"),
    ],
)
def test_a_gpu_probe_that_has_no_power_to_tell_is_no_power_probe(facts, figures, words):
    found = said(ENERGY, both_platforms({"step_s": STEP, **figures}, facts=facts, probes="cpu,gpu"))

    assert found.word == "not measured"
    assert words in found.why


def test_a_program_that_does_nothing_in_a_container_in_a_vm_is_no_application_there():
    application = [cell({"platform": name}, {"step_mean_s": STEP}) for name in ("bare", "docker")]
    nothing = [
        cell({"platform": name, "workload": "null", MODEL: None}, {"wall_s": 1.0}) for name in ("bare", "qemu+docker")
    ]

    found = said(IN_VM, [*application, *nothing])

    assert found.word == "not measured"
    assert found.why == "No application was run in a container in a VM beside another platform."


@pytest.mark.parametrize(
    ("kind", "figure", "words"),
    [
        ("change", (0.016, 0.004, 0.029), "+1.6 % [+0.4, +2.9]"),
        ("change", (93.1, 46.8, 184.2), "94.1x [47.8x, 185x]"),
        ("change", (1.3, -0.03, 1500.0), "2.3x [0.97x, 1,501x]"),
        ("change", (-0.0001, -0.0004, 0.0002), "0.0 % [0.0, 0.0]"),
        ("share", (0.31, 0.284, 0.33), "31.0 % [28.4, 33.0]"),
        ("share", (1.0, 0.98, 1.0), "100.0 % [98.0, 100.0]"),
        ("share", (3.64e-6, 3.59e-6, 3.87e-6), "below 0.1 %"),
        ("share", (0.0006, 0.0, 0.02), "0.1 % [0.0, 2.0]"),
        ("share", (0.0, 0.0, 0.0), "0.0 % [0.0, 0.0]"),
        ("change", (0.0003, 0.0001, 0.0004), "0.0 % [0.0, 0.0]"),
        ("points", (0.3, -0.041, 1.3), "+30.0 points [-4.1, +130.0]"),
    ],
)
def test_a_figure_is_told_as_what_it_is(kind, figure, words):
    assert figure_words(kind, *figure) == words


@pytest.mark.parametrize(
    ("claim", "settings", "words"),
    [
        (
            "s0.gpu-use-falls-and-cpu-use-rises",
            {},
            "platforms, and the gpu probe ran on only one; no trial has use of the CPU",
        ),
        ("s0.memory-cost-is-small", {}, "it is compared between platforms, and the memory probe ran on only one."),
        ("s3.energy-varies-little", {"workload.epochs": 2}, "it takes trials of more than 10 epochs."),
        ("s3.energy-varies-little", {"workload.epochs": 12}, "power was read less than five times in an epoch."),
        (
            "s2.faults-concentrate-on-few-files",
            {},
            "the perf probe ran, and kept no places of page faults (`faults: true`).",
        ),
    ],
)
def test_a_figure_that_was_not_worked_out_is_not_put_down_to_the_device(claim, settings, words):
    one = cell({"platform": "bare", "probes": "cpu,memory,gpu,perf", **settings}, {"step_s": STEP, "energy_j": 1.0})

    assert words in said(claim, [one]).why


@pytest.mark.parametrize("workload", ["server", "null", "idle"])
def test_a_server_and_a_device_that_does_nothing_are_no_evidence_of_what_networks_cost(workload):
    figures = {"step_s": STEP, "wall_s": STEP, "compute_s": STEP, "energy_step_j": 1.0, "minor_faults": 1e5}
    nothing = both_platforms(figures, workload=workload, probes="cpu,memory,perf,gpu")

    for claim in ("s0.container-cost-is-negligible", "s0.compute-rises-for-all-models", ENERGY):
        assert said(claim, nothing).why == "No trial trained or used a network outside of a server.", claim
    assert said("s2.faults-and-cycles-rise", nothing).word == "not measured"


def test_an_idle_device_beside_those_that_work_does_not_answer_for_them():
    idle = [
        replace(each, facts={"device": {"id": "nx2"}})
        for each in both_platforms({"power_mean_w": 5.0}, workload="idle")
    ]
    working = [replace(each, store=1) for each in both_platforms({"step_s": STEP}, workload="torch_train")]

    assert "it takes the syscalls probe" in said("s0.more-system-calls", [*idle, *working]).why
    assert "DVFS was not switched" in said("s3.idle-power-by-state", [*idle, *working]).why


def test_inference_in_a_container_and_on_bare_metal_is_not_said_to_lack_its_like():
    why = said("s0.compute-rises-for-all-models", both_platforms({"step_s": STEP}, workload="torch_infer")).why

    assert why == "No training in a container has its like on bare metal."

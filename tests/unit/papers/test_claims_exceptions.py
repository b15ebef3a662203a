"""A claim that holds on the whole, and surely not in one of its cells: it is undecided, and the cell is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from claim_case import MODELS, cell
from claim_cases_s4 import pinning
from claimed import DEVICE, Cell, answer, stores

from tare.papers.claims.checks import THE_REST, labels

PINNING = "s4.pinning-lowers-the-overhead"
CACHE, MEDIUM, WORKERS = "control.page_cache.state", "control.storage.emulate", "workload.workers"


def containers(figures: dict[str, float], odd: dict[str, float]) -> list[Cell]:
    """Bare metal and a container for each model; the last one's figures change in another way."""
    return [
        cell({"platform": platform, "workload.model": model}, {n: 1 + by * (platform != "bare") for n, by in by_name})
        for model in (*MODELS, "vgg11")
        for by_name in [(odd if model == "vgg11" else figures).items()]
        for platform in ("bare", "docker")
    ]


@pytest.mark.parametrize(
    ("claim", "figures", "odd"),
    [
        ("s2.faults-and-cycles-rise", "minor_faults major_faults cycles", {"cycles": -0.2}),
        ("s0.optimiser-step-grows-most", "optimiser_s forward_s backward_s", {"forward_s": 2.0}),
    ],
)
def test_every_part_of_what_is_claimed_is_looked_at_cell_by_cell(claim, figures, odd):
    usual = dict.fromkeys(figures.split(), 0.5)
    if claim.startswith("s0"):
        usual |= {"forward_s": 0.1, "backward_s": 0.1}

    assert answer(claim, *stores(containers(usual, usual))).word == "holds here"
    found = answer(claim, *stores(containers(usual, {**usual, **odd})))

    assert found.word == "undecided"
    assert "it holds on the whole, and for sure not for VGG-11 (" in found.why


def test_a_condition_need_not_be_met_in_every_cell():
    """The optimiser step of one model does not grow; what it grows more than, it need not either."""
    usual = {"optimiser_s": 0.5, "forward_s": 0.1, "backward_s": 0.1}
    still = {"optimiser_s": 0.0, "forward_s": -0.2, "backward_s": -0.2}

    assert answer("s0.optimiser-step-grows-most", *stores(containers(usual, still))).word == "holds here"


def test_a_cell_counts_however_many_there_are_before_it():
    def energies(order: int) -> list[Cell]:
        batches = range(64)[::order]
        return [
            cell({"platform": platform, "workload.batch": batch}, {"energy_step_j": 1 + by * (platform != "bare")})
            for batch in batches
            for by in [-0.2 if batch == 0 else 0.5]
            for platform in ("bare", "docker")
        ]

    for order in (1, -1):
        found = answer("s0.total-energy-rises", *stores(energies(order), n=12))
        assert found.word == "undecided"
        assert "for sure not for batch 0." in found.why


# Names of cells


def test_cells_are_named_by_as_few_settings_as_tell_them_apart():
    cells = [
        frozenset({"workload.model": model, "workload.batch": batch, "workload.items": 10 * batch, "a": 1}.items())
        for model in ("lenet5", "resnet18")
        for batch in (4, 16)
    ]

    assert labels(cells) == ["LeNet-5, batch 4", "LeNet-5, batch 16", "ResNet-18, batch 4", "ResNet-18, batch 16"]


def test_no_two_cells_have_one_name_and_none_has_none():
    settings = [{f"workload.s{n}": place >> n & 1 for n in range(6)} for place in range(64)]
    cells = [frozenset(each.items()) for each in settings]

    assert len(set(labels(cells))) == 64
    assert labels([frozenset(), frozenset({("tenants", 4)})]) == [THE_REST, "tenants 4"]
    assert labels(cells[:1]) == [""]


# Pinning


def test_bare_metal_that_was_never_pinned_is_not_placed_alike():
    cells = [
        each for each in pinning(0.2) if each.settings["platform"] == "docker" or each.settings["platform.pin"] is False
    ]

    found = answer(PINNING, *stores(cells))

    assert found.word == "not measured"
    assert "on a virtual platform and on bare metal" in found.why


def test_a_platform_that_costs_nothing_is_no_exception_where_another_is_lowered():
    dear = [each for each in pinning(0.2) if each.settings["platform"] != "bare"]
    qemu = [cell({**each.settings, "platform": "qemu"}, each.metrics) for each in dear]

    assert answer(PINNING, *stores([*pinning(0.0, costs=0.0), *qemu])).word == "holds here"


# Media


def media(cache: str, epoch0: float) -> list[Cell]:
    return [
        cell(
            {CACHE: cache, MEDIUM: medium, WORKERS: workers},
            {"step_mean_s": 1.0, "step_s": 1.0, "stall_s": 0.5, "epoch0_step_s": 1 + by, "epoch0_stall_s": 0.5 + by},
        )
        for medium, by in (("hdd", epoch0), ("ssd", 0.0))
        for workers in (0, 1, 4)
    ]


def test_a_cache_that_held_all_from_the_start_tells_nothing_of_the_medium():
    claims = ("s1.page-cache-makes-the-medium-irrelevant", "s1.more-workers-help-only-slow-media-or-fast-gpus")
    for claim in claims:
        assert answer(claim, *stores(media("warm", 0.0))).word == "not measured", claim


# Devices, modes


def test_devices_that_vary_in_opposite_ways_vary():
    claim = "s3.devices-vary-little"
    cells = [
        cell({"workload.model": model}, {"step_s": time}, facts={"device": {**DEVICE, "id": name}})
        for name, times in (("nx1", (1.0, 1.0)), ("nx2", (1.3, 0.75)))
        for model, time in zip(("lenet5", "resnet18"), times, strict=True)
    ]
    sources = [store for name in ("nx1", "nx2") for store in stores(_of(cells, name), n=12)]

    assert answer(claim, *sources).word == "does not hold here"


def _of(cells: list[Cell], name: str) -> list[Cell]:
    return [each for each in cells if each.facts["device"]["id"] == name]


def test_a_clock_that_never_changes_makes_no_power_modes_of_numbers_of_cores():
    cells = [
        cell({"workload.model": model, "platform.cores": n, "control.power_mode.gpu_mhz": 990}, {"step_s": size / n})
        for model, size in (("lenet5", 1.0), ("resnet18", 4.0))
        for n in (1, 2, 3, 4, 6, 8)
    ]

    found = answer("s3.four-modes-predict-time", *stores(cells))

    assert found.word != "holds here"
    assert "modes measured" not in found.why


def test_the_same_check_is_told_in_every_process():
    """Sets have another order in each: what is told first must not hang on it."""
    code = """
import sys
sys.path[:0] = sys.argv[1:]
from claim_cases import CASES
from claimed import answer, stores
case = CASES["s3.default-mode-may-not-be-pareto"]
print(answer("s3.default-mode-may-not-be-pareto", *stores(case.make(case.holds), case.study)).why)
"""
    here = Path(__file__)
    said = {
        subprocess.run(
            [sys.executable, "-c", code, str(here.parent), str(here.parents[2])],
            check=True, capture_output=True, text=True, env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin"}, timeout=120,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip

    assert len(said) == 1

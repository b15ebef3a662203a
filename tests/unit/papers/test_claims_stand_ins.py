"""Prediction from four modes where a machine has no modes: what stands in for them, how many it takes, what is said."""

from __future__ import annotations

import pytest
from claim_case import STEP, cell
from claimed import Cell, answer, stores

TIME, ENERGY = "s3.four-modes-predict-time", "s3.energy-is-harder-to-predict"
QUOTAS = (0.5, 0.75, 1.0, 1.5, 2.0)
WORDS = {"platform.quota": "shares of the CPU's time", "platform.cores": "numbers of cores"}


def cells(name: str, levels: tuple[float, ...], bent: float = 0.0, **more: object) -> list[Cell]:
    """Two models whose time falls on a line with the level, or is bent off it at every other one."""
    return [
        cell({"workload.model": model, name: level, **more}, {"step_s": size * STEP * _time(place, level, bent)})
        for model, size in (("lenet5", 1.0), ("resnet18", 4.0))
        for place, level in enumerate(levels)
    ]


def _time(place: int, level: float, bent: float) -> float:
    return (20 - level) * (1 + bent * (place % 2))


@pytest.mark.parametrize(("name", "levels"), [("platform.quota", QUOTAS), ("platform.cores", (1, 2, 3, 4, 6, 8, 12))])
def test_what_stands_in_for_modes_shows_an_error_and_decides_nothing(name, levels):
    straight, bent = (answer(TIME, *stores(cells(name, levels, bent=bent))) for bent in (0.0, 2.0))
    assert straight.high < 0.1 < 0.25 < bent.low
    for found in (straight, bent):
        assert found.word == "undecided"
        assert f"four of {len(levels)} {WORDS[name]}, which stand in for modes, measured" in found.why
        assert f"only {WORDS[name]} were changed" in found.why


def test_four_of_them_leave_none_to_be_predicted():
    found = answer(TIME, *stores(cells("platform.quota", QUOTAS[:4])))
    assert found.word == "not measured"
    assert "five shares of the CPU's time" in found.why


def test_without_energy_only_time_is_told():
    found = answer(ENERGY, *stores(cells("platform.quota", QUOTAS)))
    assert found.word == "not measured"
    assert "it takes a power probe" in found.why


def test_the_six_blocks_of_the_small_scale_are_enough():
    assert answer(TIME, *stores(cells("platform.quota", QUOTAS), n=6)).high < 0.1


def test_power_modes_come_before_what_stands_in_for_them():
    modes = [
        cell(
            {"workload.model": model, "control.power_mode.cpu_mhz": cpu, "control.power_mode.gpu_mhz": gpu},
            {"step_s": size * STEP * (20 - cpu / 1000 - gpu / 1000)},
        )
        for model, size in (("lenet5", 1.0), ("resnet18", 4.0))
        for cpu in (1000, 1500, 2000)
        for gpu in (500, 1000)
    ]
    found = answer(TIME, *stores([*modes, *cells("platform.quota", QUOTAS)]))
    assert "four of 6 modes measured" in found.why


def test_clocks_of_a_control_and_cores_of_the_platform_are_modes_together():
    made = [
        one
        for mhz in (345, 990, 1980)
        for one in cells("platform.cores", (2, 8), **{"control.power_mode.gpu_mhz": mhz})
    ]
    found = answer(TIME, *stores(made))
    assert found.word == "holds here", found.why
    assert "four of 6 modes measured" in found.why

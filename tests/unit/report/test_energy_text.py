"""What `tare show STORE energy` prints, kept in files."""

from __future__ import annotations

from dataclasses import replace

import pytest

from golden_files import assert_as_in_file
from metered import BARE, DOCKER, Held, idle_trials, idled, trials
from tare.analysis.resources.energy import Energy
from tare.base.columns import display_width
from tare.base.rulings import Ruling
from tare.report.sections import answer_text

HOSTILE = replace(DOCKER, settings={"platform": "docker\x1b[31m</script>"})


def everything():
    """Two platforms with their baseload, one trial too short, and one platform that was never metered."""
    podman = replace(DOCKER, settings={"platform": "podman"})
    records = [*trials(BARE, DOCKER), *idle_trials(BARE, DOCKER)]
    short = {"energy": {"doubts": ["power_rails: too short: 12 samples in 1.2 s, and it takes 60."]}}
    records[0] = replace(records[0], metrics={"step_s": 0.1}, facts={**records[0].facts, **short})
    unmetered = [replace(each, metrics={"step_s": 0.12}, facts={}) for each in trials(podman, n=2)]
    return Energy().answer(Held([*records, *unmetered]))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_answer_is_as_in_the_file_and_fits_the_terminal(width):
    told = answer_text(everything(), width)
    assert all(display_width(line) <= width for line in told.splitlines())
    assert_as_in_file(told, f"report/energy-{width}.txt")


def test_idle_states_are_as_in_the_file():
    fixed = replace(BARE, settings={**BARE.settings, "control.dvfs.state": "off"}, idle_w=12.0)
    states = [
        idled(place, block, 0.001 * block, logging=on) for place in (BARE, fixed) for on in (False, True)
        for block in range(6)
    ]  # fmt: skip
    assert_as_in_file(answer_text(Energy().answer(Held(states)), 80), "report/idle-states-80.txt")


def test_what_a_platform_is_called_cannot_steer_the_terminal():
    told = answer_text(Energy().answer(Held([*trials(BARE, HOSTILE), *idle_trials(BARE, HOSTILE)])))
    assert "\x1b" not in told


def test_a_reason_that_many_trials_have_is_told_once_with_the_cells():
    records = trials(BARE, DOCKER)
    for place in (0, 1, 2, 3):
        why = Ruling("energy.too-short", "note", "gpu", f"gpu: too short: in 0.{place} s.").as_json()
        short = {**records[place].facts, "energy": {"doubts": [why]}}
        records[place] = replace(records[place], metrics={"step_s": 0.1}, facts=short)
    told = answer_text(Energy().answer(Held(records)), 500)
    assert told.count("too short") == 1
    assert "bare: no energy in 2 trials of 8; docker: no energy in 2 trials of 8. Of the first: gpu: too short" in told

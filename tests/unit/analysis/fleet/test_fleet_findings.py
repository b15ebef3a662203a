"""What is said about the devices of made-up fleets: planted effects, scatter and odd devices come out again."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from some_fleets import STUDY, Board, boards, fleet_store, trial, trials
from tare.analysis.fleet.findings import fleet_of_records, fleet_of_stores
from tare.analysis.fleet.results import Fleet
from tare.analysis.variability.findings import variability
from tare.analysis.variability.samples import store_samples
from tare.analysis.weighing import weigh
from tare.base.errors import StudyError
from tare.base.rulings import Ruling
from tare.papers.claims.deciding import by_device, source_of
from tare.records.model import Record, StoreTrials, device_of
from tare.records.store import Store


@dataclass(frozen=True)
class Kept:
    """As much of a store as a weighing reads."""

    study: Any
    kept: list[Record]

    def records(self) -> list[Record]:
        return self.kept

    def rehearsals(self) -> list[Record]:
        return []

    def states(self) -> dict[str, Any]:
        return {each.trial: each.state for each in self.kept}


def found(records: list[Record], study: Any = STUDY, **asked: Any) -> Fleet:
    return fleet_of_records([StoreTrials("store", records)], study, **asked)


def quantity(records: list[Record], **asked: Any) -> Any:
    return found(records, **asked).quantities[0]


def test_the_effect_is_told_on_each_device_and_over_them() -> None:
    (effect,) = quantity(trials(boards(8, tau=0.01), blocks=8)).effects

    assert (effect.level, effect.against, effect.where) == ("docker", "bare", "")
    assert [each.device for each in effect.devices] == [f"orin-{n}" for n in range(1, 9)]
    assert all(each.effect.low <= each.effect.value <= each.effect.high for each in effect.devices)
    (over,) = effect.populations
    assert over.mean.n == 8
    assert over.mean.low < 0.02 < over.mean.high
    assert over.tau.low < 0.01 < over.tau.high
    assert over.next_low < over.mean.low < over.mean.high < over.next_high
    assert over.verdict == "equivalent"


def test_more_trials_on_few_devices_do_not_make_the_devices_more() -> None:
    """The interval counts devices: forty times the trials on three devices leave it about as wide."""
    widths = []
    for blocks in (6, 60):
        (effect,) = quantity(trials(boards(3, tau=0.03), blocks=blocks, noise=0.005)).effects
        widths.append(effect.populations[0].mean.high - effect.populations[0].mean.low)

    assert widths[1] > 0.8 * widths[0]


@pytest.mark.parametrize("count", [1, 2])
def test_fewer_than_three_devices_stand_for_themselves(count: int) -> None:
    answer = found(trials(boards(count)))

    if count == 1:
        assert answer.quantities == ()
        assert "one device" in answer.notes[0]
        return
    (of_steps,) = answer.quantities
    assert [len(each.devices) for each in of_steps.effects] == [2]
    assert of_steps.effects[0].populations == ()
    assert any("cannot be estimated from fewer than 3" in note for note in of_steps.notes)
    assert any("takes a third device to see" in note for note in of_steps.notes)
    assert not any(each.unlike for each in of_steps.standings)


def test_each_type_has_its_own_population_beside_that_of_all() -> None:
    nano = [Board(f"nano-{n}", type="nano", base_s=0.3, effect=0.1) for n in range(4)]
    (effect,) = quantity(trials([*boards(4), *nano])).effects

    told = {each.of: each for each in effect.populations}
    assert list(told) == ["", "orin", "nano"]
    assert told["orin"].mean.value == pytest.approx(0.02, abs=0.01)
    assert told["nano"].mean.value == pytest.approx(0.1, abs=0.01)
    assert told["nano"].verdict == "slower"


def test_spread_is_told_by_where_it_comes_from() -> None:
    nano = [replace(each, name=f"nano-{n}", type="nano", base_s=0.3) for n, each in enumerate(boards(6, seed=9))]
    bare, docker = quantity(trials([*boards(6), *nano], blocks=8, noise=0.005)).spreads

    assert (bare.where, docker.where) == ("bare", "docker")
    levels = {each.level: each for each in bare.components}
    assert list(levels) == ["between types", "between devices of a type", "between trials of a device"]
    assert levels["between types"].deviation.low is None  # two types are too few for an interval
    within = levels["between trials of a device"].deviation
    assert within.low < 0.005 < within.high
    between = levels["between devices of a type"].deviation
    assert between.low < 0.01 < between.high
    assert sum(each.share.value for each in bare.components) == pytest.approx(1)


def test_a_device_a_fifth_slower_is_found_with_what_it_does_not_share() -> None:
    odd = Board("odd", slower=0.2, facts={"kernel": "4.9.1", "cpu.governor": "powersave"},
                inside={"torch": {"version": "1.13.0"}})  # fmt: skip
    of_steps = quantity(trials([*boards(5), odd]))

    (told,) = of_steps.odd
    assert (told.device, told.what, told.twins) == ("odd", "", 5)
    assert told.deviation == pytest.approx(0.2, abs=0.02)
    assert [each.what for each in told.candidates] == ["cpu.governor", "kernel", "torch.version"]
    assert told.sentence.startswith(
        "odd is an outlier among identical devices (orin-1, orin-2, orin-3, orin-4 and 1 more): its step_s is"
    )
    assert "cpu.governor powersave (the others: schedutil)" in told.sentence
    assert [each.device for each in of_steps.standings if each.unlike] == ["odd"]
    assert any(note.startswith("Without odd the spread between devices") for note in of_steps.notes)


def test_its_random_effect_is_shown_and_its_twins_are_not_moved_by_it() -> None:
    """faults.md I8: a device is 20 % slower than its twins."""
    standings = {each.device: each for each in quantity(trials([*boards(5), Board("odd", slower=0.2)])).standings}

    assert standings["odd"].random_effect == pytest.approx(0.2, abs=0.02)
    assert all(abs(standings[f"orin-{n}"].random_effect) < 0.03 for n in range(1, 6))
    assert all(abs(standings[f"orin-{n}"].deviation) < 0.03 for n in range(1, 6))


def test_a_device_on_which_only_the_container_is_slow_is_found_by_its_effect() -> None:
    (told,) = quantity(trials([*boards(5, between=0.002), Board("odd", slower=-0.06, effect=0.16)])).odd

    assert (told.device, told.what) == ("odd", "the effect of docker against bare")
    assert "the effect of docker against bare on step_s differs by 13" in told.sentence


def test_where_nothing_recorded_differs_it_says_where_to_look() -> None:
    (told,) = quantity(trials([*boards(5), Board("odd", slower=0.2)])).odd

    assert told.candidates == ()
    assert told.sentence.endswith("check cooling, power supply and storage.")


def test_heat_and_throttling_come_first_among_the_candidates() -> None:
    throttled = "the device was throttled: thermal.cpu_throttled rose by 3 during the trial."
    reason = Ruling("heat.throttled", "invalid", "cpu_throttled", throttled)
    odd = Board("odd", slower=0.2, facts={"kernel": "4.9.1"}, reasons=(reason,))

    def channels(each: Any) -> list[dict[str, Any]]:
        warm = 85.0 if each.device == "odd" else 52.0
        return [{"name": "temperature.cpu_c", "unit": "C", "quantiles": [warm - 5, warm, warm + 1]}]

    answer = fleet_of_records([StoreTrials("store", trials([*boards(5), odd]))], STUDY, channels)
    told = [each.text() for each in answer.quantities[0].odd[0].candidates]

    assert told[0].startswith("throttled or doubted in 12 of 12 trials: the device was throttled")
    assert told[1] == "temperature cpu (°C) 85 (the others: 52 to 52)"
    assert told[2].startswith("kernel 4.9.1")


def test_a_fact_that_differs_on_every_device_is_no_candidate() -> None:
    devices = [replace(each, facts={"boot_id": each.name, "memory_bytes": n}) for n, each in enumerate(boards(6))]
    devices[0] = replace(devices[0], slower=0.2)

    assert quantity(trials(devices)).odd[0].candidates == ()


def test_a_healthy_fleet_says_what_it_would_have_seen() -> None:
    of_steps = quantity(trials(boards(8)))

    assert of_steps.odd == ()
    assert 0.01 < of_steps.could_see["orin"] < 0.2


def test_a_a_twins_and_broken_trials_do_not_count() -> None:
    records = trials(boards(4))
    more = [replace(each, trial=f"{each.trial}-t", twin=1, metrics={"step_s": 9.0}) for each in records[:8]]
    more += [replace(each, trial=f"{each.trial}-f", state="failed", metrics={}) for each in records[:4]]

    assert found(records + more).as_json() == found(records).as_json()


def test_a_copy_of_a_store_is_no_further_device() -> None:
    records = trials(boards(4))

    twice = fleet_of_records([StoreTrials("a", records), StoreTrials("b", records)], STUDY)
    assert twice.types == found(records).types
    assert twice.quantities[0].standings == found(records).quantities[0].standings


def test_stores_of_unnamed_devices_are_told_apart_by_store_and_joined_by_boot() -> None:
    def unnamed(board: Board, boot: str) -> list[Record]:
        made = []
        for each in trials([board]):
            settings = {key: value for key, value in each.settings.items() if not key.startswith("device")}
            facts = {**each.facts, "device": {**each.facts["device"], "boot_id": boot}}
            made.append(replace(each, settings=settings, facts=facts, trial=each.trial.removeprefix(board.name)))
        return made

    three = [StoreTrials(name, unnamed(Board(name, slower=place / 100), name)) for place, name in enumerate("abc")]
    answer = fleet_of_records(three, STUDY)

    assert answer.devices == ("a", "b", "c")
    assert answer.types == {"Orin aarch64": ("a", "b", "c")}
    assert [each.trials for each in answer.quantities[0].standings] == [12, 12, 12]
    again = [StoreTrials(name, unnamed(Board(name), "one boot")) for name in "abc"]
    assert fleet_of_records(again, STUDY).devices == ("a",)


def test_blocks_that_miss_a_side_and_few_blocks_are_said() -> None:
    of_steps = quantity(trials(boards(4), blocks=3))

    assert all(each.effect.low is None for each in of_steps.effects[0].devices)
    assert of_steps.effects[0].populations[0].mean.low is not None
    assert any("no interval of its own" in note for note in of_steps.notes)


def test_one_trial_a_device_still_has_standings() -> None:
    of_steps = quantity(trials(boards(6, between=0.01), blocks=1, platforms=("bare",)))

    assert of_steps.effects == ()
    assert of_steps.spreads == ()  # within and between cannot be told apart
    assert all(each.low is None for each in of_steps.standings)
    assert all(each.deviation is not None for each in of_steps.standings)


def test_a_study_that_compares_devices_still_tells_the_platforms_effect() -> None:
    study = {"study": "s", "compare": {"by": "device", "against": {"device": "orin-1"}}}

    assert found(trials(boards(3)), study).by == "platform"
    assert found(trials(boards(3), platforms=("bare",)), study).by is None
    with pytest.raises(StudyError, match="--by names another factor"):
        found(trials(boards(3)), by="device")


def test_nothing_usable_is_an_error_with_advice() -> None:
    broken = [replace(each, state="failed", metrics={}) for each in trials(boards(3))]

    with pytest.raises(StudyError, match="`tare show STORE` lists how"):
        found(broken)


def test_power_is_told_beside_time_and_a_hungry_device_is_found() -> None:
    records = [
        replace(
            each,
            metrics={**each.metrics, "power_mean_w": 10 * (1.3 if "orin-3" in each.trial else 1) * (1 + n % 5 / 500)},
        )
        for n, each in enumerate(trials(boards(6)))
    ]
    answer = found(records)

    assert [each.metric for each in answer.quantities] == ["step_s", "power_mean_w"]
    assert [each.device for each in answer.quantities[1].odd] == ["orin-3"]


def test_it_can_be_written_as_json(tmp_path: Path) -> None:
    with Store.open(fleet_store(tmp_path / "store", [*boards(3), Board("odd", slower=0.5)], blocks=2)) as store:
        answer = fleet_of_stores([store])

    assert json.loads(json.dumps(answer.as_json(), allow_nan=False))["devices"] == ["odd", "orin-1", "orin-2", "orin-3"]


# Elsewhere: no pool without the device (faults.md I8)


def test_the_fleets_name_tells_devices_apart_before_their_facts() -> None:
    assert device_of(trial(Board("orin-7"), "bare", 0)) == "orin-7"


def test_claims_do_not_pool_twins(tmp_path: Path) -> None:
    with Store.open(fleet_store(tmp_path / "store", boards(3), blocks=2)) as store:
        source = source_of(store, "store")

    assert [part.name for part in by_device([source])] == ["store (orin-1)", "store (orin-2)", "store (orin-3)"]


def test_variability_of_a_fleet_has_its_devices_as_a_level(tmp_path: Path) -> None:
    nano = [Board(f"nano-{n}", type="nano", base_s=0.3) for n in range(2)]
    store = fleet_store(tmp_path / "store", [*boards(3), *nano], blocks=2)
    told = variability(store_samples(store), "step_s")

    assert [each.level for each in told.components] == ["between devices", "between trials"]
    assert told.cells == 4  # two platforms on two types
    assert told.components[0].deviation.value < 0.05


def test_devices_are_compared_with_one_of_them() -> None:
    study = {"study": "s", "compare": {"by": "device", "against": {"device": "orin-1"}, "margin": 0.05}}
    odd = Board("odd", slower=0.2)
    told = weigh(Kept(study, trials([*boards(2), odd], platforms=("bare",))))

    assert {each.level: each.verdict for each in told.comparisons} == {"orin-2": "equivalent", "odd": "slower"}


def test_types_are_compared_device_by_device_and_not_trial_by_trial() -> None:
    nano = [replace(each, name=f"nano-{n}", type="nano", base_s=0.11) for n, each in enumerate(boards(7, seed=5))]
    for devices, verdict in (([*boards(7), *nano], "slower"), ([*boards(3), *nano[:3]], "cannot_tell")):
        (told,) = weigh(Kept(STUDY, trials(devices, platforms=("bare",))), by="device.type", against="orin").comparisons
        assert (told.n, told.verdict) == (len(devices) // 2, verdict)
        assert any("Each device counts once" in note for note in map(str, told.notes))

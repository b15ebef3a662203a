"""Where variation comes from, whether it drifts, and how many repeats are enough."""

import math
from dataclasses import replace

import numpy as np
import pytest

from some_records import draft
from tare.analysis.numeric.nested import nested, variances
from tare.analysis.variability.findings import variability
from tare.analysis.variability.repeats import cheapest, half_width, plans
from tare.analysis.variability.samples import NestedValue, epoch_medians, store_samples, table_samples
from tare.base.errors import StudyError
from tare.records.spool import SpoolWriter
from tare.records.store import Store


def fleet(devices, trials, epochs, deviations, seed=1, first=1.0, cells=("",)):
    """Samples with known deviations between devices, trials and epochs; `epochs` may be a function of chance."""
    chance = np.random.default_rng(seed)
    made = []
    for cell_number, cell in enumerate(cells):
        for device in range(devices):
            of_device = chance.normal(0, deviations[0])
            for trial in range(trials):
                of_trial = chance.normal(0, deviations[1])
                for epoch in range(epochs(chance) if callable(epochs) else epochs):
                    log = cell_number + of_device + of_trial + chance.normal(0, deviations[2])
                    value = math.exp(log) * (first if epoch == 0 else 1.0)
                    made.append(NestedValue(value, cell, f"d{device}", None, f"{device}.{trial}", float(epoch)))
    return made


def deviations(found):
    return {each.level: each.deviation for each in found.components}


def test_known_components_are_recovered_from_balanced_groups():
    found = deviations(variability(fleet(60, 6, 6, (0.03, 0.02, 0.01)), "epoch_s", keep_first=True))

    assert found["between devices"].value == pytest.approx(0.03, rel=0.25)
    assert found["between trials"].value == pytest.approx(0.02, rel=0.12)
    assert found["between epochs"].value == pytest.approx(0.01, rel=0.06)
    for level, truth in (("between devices", 0.03), ("between trials", 0.02), ("between epochs", 0.01)):
        assert found[level].low < truth < found[level].high


def test_known_components_are_recovered_from_groups_of_unequal_size():
    samples = fleet(80, 5, lambda chance: int(chance.integers(1, 12)), (0.03, 0.02, 0.01), seed=2)
    found = deviations(variability(samples, "epoch_s", keep_first=True))

    assert found["between devices"].value == pytest.approx(0.03, rel=0.25)
    assert found["between trials"].value == pytest.approx(0.02, rel=0.12)
    assert found["between epochs"].value == pytest.approx(0.01, rel=0.06)


def test_balanced_groups_give_the_textbook_figures():
    values = np.array([1.0, 2.0, 4.0, 6.0, 5.0, 9.0])  # three groups of two
    found = variances(nested(values, [""] * 6, [[0, 0, 1, 1, 2, 2]]))

    within = (0.5 + 2.0 + 8.0) / 3
    between = 2 * np.var([1.5, 5.0, 7.0], ddof=1)
    assert found == pytest.approx([(between - within) / 2, within])


def test_intervals_hold_the_truth_as_often_as_they_say_with_eight_groups():
    truth = (0.02, 0.01, 0.005)
    levels = ("between devices", "between trials", "between epochs")
    held = []
    for seed in range(100):
        found = deviations(variability(fleet(8, 4, 5, truth, seed=seed), "epoch_s", keep_first=True))
        held += [[found[level].low <= true <= found[level].high for level, true in zip(levels, truth, strict=True)]]

    assert (np.mean(held, axis=0) > 0.88).all()  # a bootstrap over the eight devices had 75 % for the first


def test_a_component_that_would_be_below_zero_is_zero():
    values = np.array([1.0, 9.0, 1.0, 9.0])

    assert variances(nested(values, [""] * 4, [[0, 0, 1, 1]]))[0] == 0.0


def test_configurations_are_not_taken_for_variation():
    one = deviations(variability(fleet(12, 4, 4, (0.0, 0.02, 0.01)), "x", keep_first=True))
    several = deviations(variability(fleet(12, 4, 4, (0.0, 0.02, 0.01), cells=("a", "b", "c")), "x", keep_first=True))

    assert several["between trials"].value == pytest.approx(0.02, rel=0.2)
    assert one["between trials"].value == pytest.approx(0.02, rel=0.3)


def test_few_groups_get_no_interval_and_a_sentence():
    found = variability(fleet(3, 4, 4, (0.03, 0.02, 0.01)), "x")

    assert deviations(found)["between devices"].low is None
    assert any("3 devices are too few for intervals" in note for note in found.notes)


def test_the_first_epoch_is_kept_apart():
    found = variability(fleet(8, 4, 6, (0.01, 0.01, 0.005), first=1.3), "x")

    assert found.first_epoch.value == pytest.approx(0.3, abs=0.02)
    assert deviations(found)["between epochs"].value < 0.01
    assert found.samples == 8 * 4 * 5


def test_a_drift_within_trials_is_seen_and_a_steady_trial_has_none():
    samples = fleet(1, 8, 11, (0.0, 0.01, 0.002))
    warming = [replace(each, value=each.value * (1 + 0.005 * each.epoch)) for each in samples]

    assert variability(warming, "x").drift_in_trial.low > 0.03
    steady = variability(samples, "x").drift_in_trial
    assert steady.low < 0 < steady.high


def test_a_drift_over_the_hours_of_a_study_is_seen():
    chance = np.random.default_rng(2)
    samples = [
        NestedValue(math.exp(0.001 * hour + chance.normal(0, 0.005)), "", trial=str(hour), when_s=3600.0 * hour)
        for hour in range(40)
    ]
    found = variability(samples, "x").drift_in_study

    assert found.value == pytest.approx(0.04, abs=0.01)
    assert found.low > 0


def test_rows_that_stand_alone_are_trials():
    chance = np.random.default_rng(2)
    found = variability([NestedValue(math.exp(chance.normal(0, 0.02)), "") for _ in range(200)], "x")

    assert list(deviations(found)) == ["between trials"]
    assert deviations(found)["between trials"].value == pytest.approx(0.02, rel=0.12)
    assert found.components[0].share == 1.0


def test_one_trial_alone_cannot_say_how_many_are_enough():
    found = variability(fleet(1, 1, 12, (0.0, 0.0, 0.01)), "x")

    assert list(deviations(found)) == ["between epochs"]
    assert found.cheapest is None
    assert any("run more trials" in note for note in found.notes)


def test_the_farthest_device_and_value_are_named():
    samples = [replace(each, value=each.value * (1.08 if each.device == "d2" else 1)) for each in
               fleet(6, 3, 4, (0.001, 0.001, 0.001))]  # fmt: skip
    value, device = variability(samples, "x").worst

    assert (device.what, device.where) == ("device", "d2")
    assert device.deviation == pytest.approx(0.08, abs=0.01)
    assert value.what == "value" and "d2" in value.where


def test_equal_values_have_no_variance_to_share():
    found = variability([NestedValue(1.0, "", trial=str(n)) for n in range(6)], "x")

    assert found.components[0].share is None
    assert found.cheapest.trials == 2


def test_too_few_values_are_refused():
    with pytest.raises(StudyError, match="too few"):
        variability([NestedValue(1.0, ""), NestedValue(1.1, "")], "x")


@pytest.mark.parametrize(("target", "trials"), [(0.02, 7), (0.05, 3)])
def test_the_fewest_trials_hold_the_target_and_one_fewer_does_not(target, trials):
    (plan,) = plans(0.02, 0.0, target)[:1]

    assert plan.trials == trials
    assert half_width(0.02, 0.0, plan.trials, 1) <= target < half_width(0.02, 0.0, plan.trials - 1, 1)


def test_a_plan_says_what_it_takes_if_the_spread_is_as_large_as_it_may_be():
    """Of eight trials their spread is known to a factor of two: the plan by the estimate alone may be far too short."""
    rng = np.random.default_rng(3)
    found = variability([NestedValue(float(np.exp(rng.normal(0, 0.03))), "", trial=str(n)) for n in range(8)], "x")
    (spread,) = [each.deviation for each in found.components if each.level == "between trials"]
    wider = cheapest(plans(spread.high, 0.0, found.target))

    assert wider.trials > found.cheapest.trials
    told = f"may differ by {100 * spread.high:.2g} % (95 %): then it takes {wider.trials} trials instead of"
    assert any(told in note for note in found.notes)


def test_more_epochs_are_listed_only_where_they_save_trials():
    found = plans(0.005, 0.03, 0.02)

    assert [plan.epochs for plan in found] == sorted({plan.epochs for plan in found})
    assert [plan.trials for plan in found] == sorted({plan.trials for plan in found}, reverse=True)
    assert cheapest(found) in found


def test_no_number_of_trials_is_enough_for_the_impossible():
    assert plans(1.0, 0.0, 0.001) == []
    assert cheapest([]) is None


def test_a_table_becomes_samples_by_the_columns_that_are_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("board,run,epoch,model,s\nnx,1,0,a,5\nnx,1,1,a,4\nnx,1,2,a,\n")

    first, second = table_samples(path, "s", settings=["model"], epoch="epoch", trial="run", device="board")

    assert first == NestedValue(5.0, "a", "nx", None, "1", 0.0)
    assert second.epoch == 1.0


@pytest.mark.parametrize(
    ("text", "said"), [("s\n0\n", "must be more than zero"), ("s,x\n,1\n", "no figure in any row")]
)
def test_a_table_without_usable_values_is_refused(tmp_path, text, said):
    path = tmp_path / "t.csv"
    path.write_text(text)

    with pytest.raises(StudyError, match=said):
        table_samples(path, "s")


def epoch_marks(durations, steps=3):
    marks, now, step = [], 0, 0
    for number, duration in enumerate(durations):
        marks.append((now, "epoch", "begin", number))
        for _ in range(steps):
            marks += [(now, "step", "begin", step), (now + duration, "step", "end", step)]
            now, step = now + duration, step + 1
        marks.append((now, "epoch", "end", number))
    return marks


def test_epochs_come_from_the_marks_of_a_stores_trials(tmp_path):
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s\n") as store:
        for trial, duration in (("aa", 4_000_000), ("bb", 6_000_000)):
            begun = draft(trial, settings={"platform": "bare"}, started_utc="2026-11-15T06:00:00.000+00:00")
            writer = store.begin(begun)
            with SpoolWriter(writer.spool):
                pass
            ended = replace(begun, state="ok", metrics={"step_s": duration / 1e9, "wall_s": 1.0}, end_ns=300)
            writer.seal(ended, epoch_marks([9_000_000, duration, duration]), "", "")

    samples = store_samples(tmp_path / "store")

    assert [(s.trial, s.epoch, round(s.value, 6)) for s in samples] == [
        ("aa", 0.0, 0.009), ("aa", 1.0, 0.004), ("aa", 2.0, 0.004),
        ("bb", 0.0, 0.009), ("bb", 1.0, 0.006), ("bb", 2.0, 0.006),
    ]  # fmt: skip
    assert samples[0].day == "2026-11-15"
    assert [s.value for s in store_samples(tmp_path / "store", "wall_s")] == [1.0, 1.0]
    with pytest.raises(StudyError, match=r"No figure 'nope'. Available: step_s, wall_s"):
        store_samples(tmp_path / "store", "nope")


def test_marks_without_epochs_have_no_epoch_medians():
    names = np.array(["step", "step"])
    marks = {"t_ns": np.array([0, 5]), "name": names, "edge": np.array(["begin", "end"]), "step": np.array([0, 0])}

    assert epoch_medians(marks, "step") == []


def test_values_within_a_trial_that_are_no_epochs_count_in_what_is_enough():
    chance = np.random.default_rng(4)
    samples = [
        NestedValue(math.exp(trial + chance.normal(0, 0.1)), "", None, None, f"{place}")
        for place, trial in enumerate(chance.normal(0, 0.01, 40))
        for _ in range(5)
    ]
    found = variability(samples, "x")

    assert [each.level for each in found.components] == ["between trials", "between values of a trial"]
    assert found.plans[0].epochs == 1
    assert found.plans[0].trials > 80  # 1.96 x 10 % / 2 %, squared, and not 1.96 x 1 % / 2 %


def test_configurations_with_one_value_each_are_refused_with_a_sentence():
    samples = [NestedValue(1.0 + place, f"mode={place}") for place in range(5)]

    with pytest.raises(StudyError, match="each of 5 configurations has one value"):
        variability(samples, "ms")


def test_copied_rows_are_not_taken_for_repeats_in_silence():
    copied = variability([NestedValue(1.1 + cell, f"mode={cell}") for cell in range(6) for _ in range(3)], "ms")
    real = variability(
        [NestedValue(1.1 + cell + 0.01 * k, f"mode={cell}") for cell in range(6) for k in range(3)], "ms"
    )

    assert any("Were rows copied" in note for note in copied.notes)
    assert not any("Were rows copied" in note for note in real.notes)

"""Which configuration to use: what fits, how surely, what it gains, and what to measure next.

What the predictor offers to a recommendation, on modes of a real GPU of which most were hidden from it.
"""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from some_records import MARKS, draft
from tare.analysis.choose.jobs import Job, Limit, job_observations, word_for
from tare.analysis.choose.offers import Predicted, predictions
from tare.analysis.choose.recommend import recommend
from tare.analysis.model import Estimate
from tare.base.errors import StudyError
from tare.records.model import TrialRow
from tare.records.spool import SpoolWriter
from tare.records.store import Store

DEADLINE = Limit("deadline", "time", 100.0)


def rows(modes, trials=8, noise=0.01, seed=3, **settings):
    """Observations of modes by name: (time, energy) each, a few times."""
    chance = np.random.default_rng(seed)
    made = []
    for mode, (time, energy) in modes.items():
        for trial in range(trials):
            factor = float(np.exp(chance.normal(0, noise)))
            values = {"time": time * factor, "energy": energy * factor, "power": energy / time}
            made.append(TrialRow.foreign({"mode": mode, **settings}, values, f"{mode}.{trial}"))
    return made


def the(found):
    (only,) = found
    return only


def test_the_thriftiest_that_keeps_the_deadline_is_recommended():
    modes = {"fast": (50.0, 9.0), "middle": (90.0, 5.0), "slow": (120.0, 3.0)}

    found = the(recommend(rows(modes), Job("energy", (DEADLINE,)), default={"mode": "fast"}))

    assert found.best.settings == {"mode": "middle"}
    assert found.best.chances["deadline"] == pytest.approx(1 - 0.5 / 25)  # 24 trials cannot promise more
    assert found.best_share == 1.0
    assert found.gain["energy"].value == pytest.approx(5 / 9 - 1, abs=0.02)
    assert found.gain["energy"].low < 5 / 9 - 1 < found.gain["energy"].high
    assert found.nearest_miss is None


def test_a_mode_that_keeps_the_deadline_only_half_the_time_is_not_recommended():
    modes = {"fast": (50.0, 9.0), "edge": (99.8, 5.0)}

    found = the(recommend(rows(modes, noise=0.03), Job("energy", (DEADLINE,))))

    assert found.best.settings == {"mode": "fast"}


def test_nothing_fits_names_the_nearest_miss_and_by_how_much():
    found = the(recommend(rows({"a": (150.0, 1.0), "b": (120.0, 9.0)}), Job("energy", (DEADLINE,))))

    assert found.best is None and found.best_share is None and found.gain == {}
    assert found.nearest_miss.candidate.settings == {"mode": "b"}
    assert (found.nearest_miss.limit, round(found.nearest_miss.over, 1)) == ("deadline", 0.2)
    assert found.next_trial is None


def test_one_that_fits_by_its_median_but_not_surely_is_the_next_to_measure():
    found = the(recommend(rows({"edge": (99.0, 5.0)}, trials=6, noise=0.03), Job("energy", (DEADLINE,))))

    assert found.best is None
    assert found.nearest_miss.over < 0
    assert found.next_trial.settings == {"mode": "edge"}


def test_where_nothing_was_run_twice_nothing_is_claimed():
    found = the(recommend(rows({"a": (50.0, 2.0), "b": (60.0, 1.0)}, trials=1), Job("energy", (DEADLINE,))))

    assert found.best.settings == {"mode": "b"}
    assert found.best.keeps_all is None and found.best_share is None and found.held_to is None
    assert found.next_trial.expected_gain is None
    assert "measured twice" in found.notes[0]


def test_a_stated_spread_makes_a_chance_of_a_single_trial():
    made = rows({"a": (99.0, 1.0), "b": (50.0, 2.0)}, trials=1, noise=0.0)

    calm = the(recommend(made, Job("energy", (DEADLINE,)), stated_spread=0.001))
    rough = the(recommend(made, Job("energy", (DEADLINE,)), stated_spread=0.05))

    assert calm.best.settings == {"mode": "a"}
    assert rough.best.settings == {"mode": "b"}


def test_few_trials_borrow_the_spread_of_the_others_where_it_is_larger():
    rough = rows({f"m{n}": (50.0 + n, 9.0) for n in range(5)}, trials=8, noise=0.10)
    lucky = [TrialRow.foreign({"mode": "lucky"}, {"time": 97.0 + n / 100, "energy": 1.0}, f"l{n}") for n in range(2)]

    found = the(recommend([*rough, *lucky], Job("energy", (DEADLINE,))))

    assert found.best.settings != {"mode": "lucky"}


def test_the_next_trial_is_that_of_the_rival_that_may_be_better():
    modes = {"best": (50.0, 5.0), "rival": (50.0, 5.02), "far": (50.0, 9.0)}

    found = the(recommend(rows(modes, noise=0.03), Job("energy", (DEADLINE,))))

    assert found.next_trial.settings["mode"] in ("best", "rival")
    assert 0 < found.next_trial.expected_gain < 0.05


def test_a_clear_answer_asks_for_no_further_trial():
    assert the(recommend(rows({"a": (50.0, 1.0), "b": (50.0, 9.0)}), Job("energy", (DEADLINE,)))).next_trial is None


def test_a_better_prediction_is_offered_beside_the_best_measured_and_is_the_next_to_measure():
    time, energy = Estimate(60.0, 58.0, 62.0, 8, "model"), Estimate(1.0, 0.9, 1.1, 8, "model")
    offered = [Predicted({"mode": "new"}, {"time": time, "energy": energy})]

    found = the(recommend(rows({"a": (50.0, 2.0)}), Job("energy", (DEADLINE,)), predicted=offered))

    assert found.best.settings == {"mode": "a"}
    assert found.predicted.settings == {"mode": "new"} and found.predicted.n == 0
    assert found.next_trial.settings == {"mode": "new"}


def test_a_prediction_that_is_worse_or_unsure_is_not_offered():
    wide, low = Estimate(60.0, 20.0, 180.0, 8, "model"), Estimate(1.0, 0.9, 1.1, 8, "model")
    worse = Predicted({"mode": "worse"}, {"time": low, "energy": Estimate(5.0, 4.9, 5.1, 8, "model")})
    unsure = Predicted({"mode": "unsure"}, {"time": wide, "energy": low})

    found = the(recommend(rows({"a": (50.0, 2.0)}), Job("energy", (DEADLINE,)), predicted=[worse, unsure]))

    assert found.predicted is None


def test_without_limits_the_lowest_is_recommended():
    assert the(recommend(rows({"a": (50.0, 2.0), "b": (60.0, 1.0)}), Job("time"))).best.settings == {"mode": "a"}


def test_no_row_with_all_figures_is_refused():
    with pytest.raises(StudyError, match="no row has all of energy, time"):
        recommend([TrialRow.foreign({}, {"time": 1.0}, "row 1")], Job("energy", (DEADLINE,)))


# The best practices, each with its own evidence


def said(found, source):
    return [each for each in found.practices if each.source == source]


def test_a_default_off_the_front_is_said_with_what_it_wastes():
    modes = {"default": (100.0, 10.0), "better": (95.0, 6.0)}

    found = the(recommend(rows(modes), Job("energy"), default={"mode": "default"}))

    (beaten,) = said(found, "S3 5.6.1")
    assert "not on the time-energy front" in beaten.statement
    assert beaten.estimate.value == pytest.approx(-0.4, abs=0.03)
    assert len(beaten.trials) == 16


def test_a_default_on_the_front_is_said_too():
    found = the(recommend(rows({"a": (1.0, 2.0), "b": (2.0, 1.0)}), Job("energy"), default={"mode": "a"}))

    assert "is on the time-energy front" in said(found, "S3 5.6.1")[0].statement


@pytest.mark.parametrize(("energy", "word"), [(1.05, "hardly costs"), (1.5, "only for a deadline")])
def test_the_fastest_costs_energy_or_not(energy, word):
    found = the(recommend(rows({"fast": (1.0, energy), "slow": (2.0, 1.0)}), Job("energy")))

    assert word in said(found, "S3 5.6.3")[0].statement


def test_the_fastest_that_is_also_the_thriftiest_is_said_to_be_both():
    found = the(recommend(rows({"fast": (1.0, 1.0), "slow": (2.0, 3.0)}), Job("energy")))

    (both,) = said(found, "S3 5.6.3")
    assert both.statement.endswith("takes the least energy too: take it")
    assert both.estimate is None


def test_the_fastest_is_not_said_to_take_the_least_energy_where_that_may_be_chance():
    found = the(recommend(rows({"fast": (1.0, 1.0), "slow": (2.0, 1.0005)}), Job("energy")))

    assert said(found, "S3 5.6.3")[0].statement.endswith("by its median, which may be chance")


@pytest.mark.parametrize("noise", [0.001, 0.1])
def test_what_a_practice_advises_is_what_its_interval_shows(noise):
    """Equal clocks and cores: their medians differ, and nothing is advised by that."""
    rng = np.random.default_rng(3)
    equal = [
        TrialRow.foreign({"cores": float(n)}, {"time": float(np.exp(rng.normal(0, noise))),
                                               "energy": float(np.exp(rng.normal(0, noise)))}, f"{n}.{t}")
        for n in (1, 2, 4) for t in range(8)
    ]  # fmt: skip
    found = the(recommend(equal, Job("time")))

    (costs,) = [each.statement for each in said(found, "S3 5.6.3")]
    (more,) = [each.statement for each in said(found, "S4 IV-A")]
    assert ("take it" in costs and "may cost" not in costs) == (noise < 0.01) or "which may be chance" in costs
    assert ("is enough" in more) == (noise < 0.01)
    assert noise < 0.01 or "not decided by these trials" in more


def cores(times):
    return [
        TrialRow.foreign({"cores": float(n), "mhz": 9.0}, {"time": time * (1 + t / 1000), "energy": 1.0}, f"{n}.{t}")
        for n, time in times.items()
        for t in range(6)
    ]


def test_more_cores_help_up_to_a_point():
    found = the(recommend(cores({1: 4.0, 2: 2.0, 4: 1.02, 8: 1.0}), Job("time")))

    assert "cores of 4 is enough" in said(found, "S4 IV-A")[0].statement


def test_where_more_cores_still_help_that_is_said():
    found = the(recommend(cores({1: 4.0, 2: 2.0, 4: 1.0}), Job("time")))

    assert "still helps" in said(found, "S4 IV-A")[0].statement


def loader(workers, storage, time, stall):
    return [
        TrialRow.foreign(
            {"workers": float(workers), "storage": storage},
            {"time": time * (1 + t / 1000), "stall": stall},
            f"{workers}.{storage}.{t}",
        )
        for t in range(6)
    ]


def test_one_worker_and_the_medium_speak_where_they_were_varied():
    made = [*loader(0, "ssd", 2.0, 1.0), *loader(1, "ssd", 1.2, 0.2), *loader(1, "hdd", 1.22, 0.21)]

    found = the(recommend(made, Job("time")))

    assert said(found, "S3 5.1.3")[0].estimate.value == pytest.approx(-0.8)
    assert "does not matter" in said(found, "S3 5.2.2")[0].statement


def test_a_medium_that_matters_is_said():
    found = the(recommend([*loader(1, "ssd", 1.2, 0.2), *loader(1, "hdd", 2.0, 1.0)], Job("time")))

    assert "the medium matters" in said(found, "S3 5.2.2")[0].statement


@pytest.mark.parametrize(("noise", "word"), [(0.01, "a few trials speak"), (0.2, "repeat them")])
def test_how_much_trials_differ_is_said(noise, word):
    found = the(recommend(rows({"a": (1.0, 1.0), "b": (2.0, 2.0)}, noise=noise), Job("time")))

    assert word in said(found, "S3 5.4.1")[0].statement


# The job: units, scaling, made figures


def job_rows(path: Path, job: Job, text: str, settings):
    path.write_text(text)
    return job_observations(path, job, settings=settings)


def test_figures_are_scaled_to_the_job_in_base_units(tmp_path):
    text = "mhz,ms,joules\n345,5,0.4\n"

    (row,) = job_rows(tmp_path / "t.csv", Job("energy", (DEADLINE,), times=1000), text, ["mhz"])

    assert row.metrics["time"] == pytest.approx(5.0)
    assert row.metrics["energy"] == pytest.approx(400.0)
    assert row.metrics["power"] == pytest.approx(80.0)


def test_samples_become_steps_by_the_batch_of_each_configuration(tmp_path):
    text = "batch,step_s\n10,1\n30,2\n"

    small, large = job_rows(tmp_path / "t.csv", Job("time", samples=100), text, ["batch"])

    assert (small.metrics["time"], large.metrics["time"]) == (10.0, 8.0)


def test_samples_without_a_batch_are_refused(tmp_path):
    with pytest.raises(StudyError, match="needs a setting called batch"):
        job_rows(tmp_path / "t.csv", Job("time", samples=100), "mhz,step_s\n10,1\n", ["mhz"])


def test_a_price_makes_a_cost_of_a_time(tmp_path):
    text = "platform,time_s,usd_per_hour\nvm,3600,2\nmetal,1800,8\n"

    by_column = job_rows(tmp_path / "t.csv", Job("cost", price_per_h="usd_per_hour"), text, ["platform"])
    fixed = job_rows(tmp_path / "t.csv", Job("cost", price_per_h="3"), text, ["platform"])

    assert [row.metrics["cost"] for row in by_column] == [2.0, 4.0]
    assert [row.metrics["cost"] for row in fixed] == [3.0, 1.5]


@pytest.mark.parametrize(
    ("job", "said_"),
    [
        (Job("cost"), "give --price"),
        (Job("energy"), "name its column with `--columns energy=COLUMN`"),
        (Job("time", columns={"time": "nope"}), "No column for time 'nope'"),
    ],
)
def test_a_figure_that_cannot_be_had_is_refused_with_how_to_get_it(tmp_path, job, said_):
    with pytest.raises(StudyError, match=said_):
        job_rows(tmp_path / "t.csv", job, "mhz,time_s\n1,1\n", ["mhz"])


def test_a_column_that_has_a_word_of_its_own_is_known_by_it():
    known = ["mhz", "ms", "joules", "other"]

    assert [word_for(name, known, {}) for name in ("joules", "ms", "other", "energy")] == [
        "energy",
        "time",
        "other",
        "energy",
    ]
    assert word_for("other", known, {"time": "other"}) == "time"


def test_of_a_store_figures_of_the_whole_run_are_divided_by_its_steps(tmp_path):
    with Store.create(tmp_path / "store", {"study": "s"}, "study: s\n") as store:
        for trial, batch in (("aa", 16), ("bb", 64)):
            begun = draft(trial, settings={"platform": "bare", "workload": "t", "workload.batch": batch})
            writer = store.begin(begun)
            with SpoolWriter(writer.spool):
                pass
            metrics = {"step_s": 0.5, "energy_j": 40.0 * batch, "steps": 20.0}
            writer.seal(replace(begun, state="ok", metrics=metrics, end_ns=300), MARKS, "", "")

    small, large = job_observations(tmp_path / "store", Job("energy", times=1000), settings=["batch"])

    assert small.metrics["time"] == pytest.approx(500.0)
    assert small.metrics["energy"] == pytest.approx(40.0 * 16 * 1000 / 20)
    assert large.settings == {"batch": 64.0}


def test_a_limit_on_a_column_keeps_the_columns_own_unit(tmp_path):
    text = "mhz,ms,stall_ms\n1,10,4\n"
    job = Job("time", (Limit("stall", "stall_ms", 5.0),), times=100)

    (row,) = job_rows(tmp_path / "t.csv", job, text, ["mhz"])

    assert row.metrics["stall_ms"] == 4.0


@pytest.mark.parametrize("trials", [1, 2, 8])
def test_a_figure_of_zero_makes_no_share_and_no_error(trials):
    made = rows({"idle": (50.0, 0.0), "busy": (60.0, 2.0)}, trials)

    found = the(recommend(made, Job("energy", (DEADLINE,)), default={"mode": "idle"}))

    assert found.best.settings == {"mode": "idle"}
    json.dumps(found.as_json(), allow_nan=False)


MODES = Path(__file__).parents[3] / "recordings" / "h200" / "modes.csv"
SETTINGS = ("gpu_mhz", "cores")


@pytest.fixture
def some_modes(tmp_path):
    """Every third mode of one network with its figures, the others without; and what the others really took."""
    path, hidden = tmp_path / "modes.csv", {}
    with MODES.open() as file, path.open("w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow([*SETTINGS, "ms", "joules"])
        rows = [row for row in csv.DictReader(file) if row["model"] == "resnet50"]
        for place, row in enumerate(rows):
            known = place % 3 == 0
            writer.writerow([row["gpu_mhz"], row["cores"], *((row["ms"], row["joules"]) if known else ("", ""))])
            if not known:
                hidden[float(row["gpu_mhz"]), float(row["cores"])] = (float(row["ms"]), float(row["joules"]))
    return path, hidden


def test_predictions_are_of_the_whole_job_in_base_units_and_near_the_truth(some_modes):
    path, hidden = some_modes
    job = Job("energy", times=1000)
    rows = job_observations(path, job, settings=SETTINGS)

    offered, doubts = predictions(path, job, rows)

    assert doubts == ()
    assert {tuple(each.settings[name] for name in SETTINGS) for each in offered} == set(hidden)
    errors = []
    for each in offered:
        ms, joules = hidden[tuple(each.settings[name] for name in SETTINGS)]
        assert each.figures["time"].low < each.figures["time"].value < each.figures["time"].high
        errors.append(abs(each.figures["time"].value / ms - 1))  # 1,000 steps of ms are as many seconds
        errors.append(abs(each.figures["energy"].value / (1000 * joules) - 1))
    assert sorted(errors)[len(errors) // 2] < 0.10


def test_a_recommendation_names_what_is_predicted_to_be_better(some_modes):
    path, hidden = some_modes
    job = Job("energy", (Limit("deadline", "time", 25.0),), times=1000)
    rows = [row for row in job_observations(path, job, settings=SETTINGS) if row.metrics]
    offered, _ = predictions(path, job, rows)

    (found,) = recommend(rows, job, stated_spread=0.03, predicted=offered)

    assert found.predicted is None or tuple(found.predicted.settings[name] for name in SETTINGS) in hidden
    assert found.best.figures["time"].value <= 25.0


def test_where_every_combination_was_measured_nothing_is_asked():
    job = Job("energy")
    rows = [row for row in job_observations(MODES, job, settings=SETTINGS, group="model") if row.group == "vgg11"]

    assert predictions(MODES, job, rows, group="model") == ([], ())


def test_names_cannot_be_predicted():
    rows = [TrialRow.foreign({"platform": name}, {"time": 1.0}, name) for name in ("bare", "docker")]

    assert predictions(MODES, Job("energy"), rows) == ([], ())


def test_why_nothing_is_predicted_is_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("mhz,cores,ms,joules\n1,1,5,1\n2,2,5,1\n")
    job = Job("energy")

    offered, (doubt,) = predictions(path, job, job_observations(path, job, settings=["mhz", "cores"]))

    assert offered == []
    assert doubt.startswith("Nothing is predicted:")


def test_the_rate_of_a_load_and_the_page_cache_are_conditions_and_no_choice():
    given = []
    for rate, cache, times in ((300.0, "warm", (3.0, 3.6)), (450.0, "cold", (13.0, 12.0))):
        modes = {mode: (time, time) for mode, time in zip(("bare", "runc"), times, strict=True)}
        given += rows(modes, **{"workload.rate": rate, "control.page_cache.state": cache, "workload.items": rate})

    low, high = recommend(given, Job("time", ()), default={"workload.rate": 450.0, "mode": "bare"})

    assert (low.group, low.best.settings, low.default) == ("300/s", {"mode": "bare"}, None)
    assert (high.group, high.best.settings, high.default.settings) == ("450/s", {"mode": "runc"}, {"mode": "bare"})
    assert high.conditions == {"workload.rate": 450.0, "control.page_cache.state": "cold", "workload.items": 450.0}


def test_a_job_with_one_configuration_is_noted_and_needs_no_default():
    given = rows({"bare": (3, 3)}, **{"workload.rate": 300.0}) + rows({"bare": (5, 5), "runc": (4, 4)})
    given += rows({"runc": (9, 9)}, **{"workload.rate": 450.0})

    closed = the(recommend(given, Job("time", ()), default={"mode": "bare"}))

    assert (closed.group, closed.best.settings) == ("no rate", {"mode": "runc"})
    for group in ("300/s", "450/s"):
        assert f"{group}: one configuration, no choice." in closed.notes


def test_a_job_without_the_figure_is_named():
    small = [replace(row, metrics={"time": 1.0}) for row in rows({"a": (1, 1)}, **{"workload.model": "lenet5"})]
    large = rows({"a": (2, 2), "b": (3, 3)}, **{"workload.model": "resnet18"})
    found = the(recommend([*large, *small], Job("energy", ())))

    assert found.group == "ResNet-18"
    told = "LeNet-5: no answer: none of its 8 trials has energy. `--minimise time` answers it."
    assert told in found.notes

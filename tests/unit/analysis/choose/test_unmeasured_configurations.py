"""What the predictor offers to a recommendation, on modes of a real GPU of which most were hidden from it."""

import csv
from pathlib import Path

import pytest

from tare.analysis.choose.recommend.candidates import predictions
from tare.analysis.choose.recommend.decide import recommend
from tare.analysis.choose.recommend.job import Job, Limit, job_observations
from tare.records.trials import TrialRow

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

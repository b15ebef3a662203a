"""pareto, recommend, variability and anatomy as a user types them.

`tare choose predict` as the studies end in it, on stores of machines with and without a power sensor.
"""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from metered import Place, kept, trials
from tare.api.running import built_in
from tare.base.errors import StudyError
from tare.cli import tare as verbs
from tare.studies.load import at_every_scale


def tare(*words: str):
    """What a verb prints, or the error that it raises."""
    done = CliRunner().invoke(verbs, list(words), standalone_mode=False, catch_exceptions=True)
    if done.exception is not None:
        raise done.exception
    return done.stdout


def written(*words: str) -> dict:
    return json.loads(tare(*words, "--json"))


@pytest.fixture
def modes(tmp_path) -> Path:
    """Two models, 3 clocks, 6 trials each, in a shuffled order: the slower the clock, the less energy."""
    chance = random.Random(3)
    rows = []
    for model, size in (("lenet", 1.0), ("vgg", 10.0)):
        for mhz, ms, joules in ((500, 4.0, 1.0), (1000, 2.0, 1.5), (2000, 1.9, 3.0), (1500, 2.5, 2.0)):
            for run in range(6):
                noise = chance.gauss(1, 0.01)
                rows.append(f"{model},{mhz},{run},{size * ms * noise:.5f},{size * joules * noise:.5f}")
    chance.shuffle(rows)
    path = tmp_path / "modes.csv"
    path.write_text("\n".join(["model,mhz,run,ms,joules", *rows]))
    return path


BY_MODEL = ("--settings", "mhz", "--group", "model")


def test_pareto_prints_a_front_for_each_model(modes):
    fronts = written("choose", "front", str(modes), *BY_MODEL, "--default", "mhz=1500")["fronts"]

    assert [front["group"] for front in fronts] == ["lenet", "vgg"]
    assert [point["settings"]["mhz"] for point in fronts[0]["points"] if point["on_front"]] == [2000, 1000, 500]
    (default,) = fronts[0]["defaults"]
    assert default["dominated_by"]["settings"] == {"mhz": 1000.0}
    assert default["dominated_share"] == 1.0


def test_pareto_says_what_a_default_loses(modes):
    said = tare("choose", "front", str(modes), *BY_MODEL, "--minimise", "ms,joules", "--default", "mhz=1500")

    assert "3 of 4 configurations are on the ms and joules front" in said
    assert "default mhz=1500: beaten by mhz=1000; the default has" in said


def test_configurations_that_were_run_one_after_another_are_not_surely_better(modes, tmp_path):
    """What drifts from the first to the last looks like a difference; the order can be stated."""
    header, *rows = modes.read_text().splitlines()
    ordered = tmp_path / "sorted.csv"
    ordered.write_text("\n".join([header, *sorted(rows)]))
    words = (str(ordered), *BY_MODEL, "--default", "mhz=1500")

    (default,) = written("choose", "front", *words)["fronts"][0]["defaults"]
    found = written("choose", "recommend", *words, "--minimise", "time")["recommendations"][0]
    assert (default["word"], default["dominated_by"]) == ("cannot_tell", None)
    assert (found["verdict"], found["practices"]) == ("cannot_tell", [])
    (default,) = written("choose", "front", *words, "--order", "shuffled")["fronts"][0]["defaults"]
    assert default["word"] == "beaten"
    assert written("choose", "recommend", *words, "--minimise", "time", "--order", "shuffled")["recommendations"][0][
        "verdict"
    ] == "better"  # fmt: skip


@pytest.fixture
def rates(tmp_path) -> Path:
    """The higher the clock, the more samples a second, and the more energy; 4 MHz is no quicker than 3."""
    path = tmp_path / "rates.csv"
    rows = [(mhz, min(mhz, 3) * (1 + run / 1000), mhz * (1 + run / 1000)) for run in range(6) for mhz in (1, 2, 3, 4)]
    random.Random(3).shuffle(rows)
    lines = (f"{mhz},{rate},{joules},{mhz}" for mhz, rate, joules in rows)
    path.write_text("\n".join(["mhz,samples_per_s,joules,system_calls", *lines]))
    return path


def test_a_front_has_the_highest_of_a_rate(rates):
    words = ("choose", "front", str(rates), "--settings", "mhz", "--minimise", "joules,samples_per_s")
    (front,) = written(*words, "--default", "mhz=4", "--order", "shuffled")["fronts"]

    assert [point["settings"]["mhz"] for point in front["points"] if point["on_front"]] == [1, 2, 3]
    assert front["points"][-1]["figures"]["samples_per_s"]["value"] == pytest.approx(3, rel=0.01)
    (default,) = front["defaults"]
    assert (default["word"], default["dominated_by"]["settings"]) == ("beaten", {"mhz": 3.0})
    assert default["loss"]["samples_per_s"]["value"] == pytest.approx(0, abs=0.01)
    assert "higher is better" in front["notes"][0]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("recommend", "--minimise", "samples_per_s"), "higher is better"),
        (("recommend", "--minimise", "system_calls"), "neither better nor worse"),
        (("front", "--minimise", "joules,system_calls"), "neither better nor worse"),
    ],
)
def test_nothing_is_chosen_by_a_figure_that_has_no_lowest_best(rates, words, reason):
    verb, *options = words
    with pytest.raises(StudyError, match=reason):
        tare("choose", verb, str(rates), "--settings", "mhz", *options)


def test_one_configuration_is_held_against_limits_and_is_no_choice(rates):
    one = rates.with_name("one.csv")
    header, *rows = rates.read_text().splitlines()
    one.write_text("\n".join([header, *(row for row in rows if row.startswith("1,"))]))
    words = ("choose", "recommend", str(one), "--settings", "mhz", "--minimise", "joules")

    with pytest.raises(StudyError, match="there is nothing to choose"):
        tare(*words)
    said = tare(*words, "--at-most", "joules=2")
    assert "chance that the next run keeps" in said and "of resamples" not in said


def test_recommend_keeps_the_deadline_and_names_the_gain(modes):
    words = (
        "choose",
        "recommend",
        str(modes),
        *BY_MODEL,
        "--deadline",
        "30s",
        "--steps",
        "10000",
        "--default",
        "mhz=2000",
    )
    lenet, vgg = written(*words)["recommendations"]

    assert lenet["best"]["settings"] == {"mhz": 1000.0}
    assert lenet["best"]["figures"]["time"]["value"] == pytest.approx(20, rel=0.02)
    assert lenet["gain"]["energy"]["value"] == pytest.approx(-0.5, abs=0.02)
    assert vgg["best"] is None and vgg["nearest_miss"]["limit"] == "deadline"
    said = tare(*words)
    assert "lenet: use mhz=1000" in said
    assert "vgg: nothing fits" in said


def test_recommend_by_cost_and_by_a_limit_of_ones_own(modes):
    words = (
        "choose",
        "recommend",
        str(modes),
        *BY_MODEL,
        "--minimise",
        "cost",
        "--price",
        "3.6",
        "--at-most",
        "ms=2.3",
    )
    (lenet, _) = written(*words)["recommendations"]

    assert lenet["best"]["settings"] == {"mhz": 2000.0}
    assert lenet["best"]["figures"]["cost"]["value"] == pytest.approx(1.9e-6, rel=0.02)
    assert lenet["limits"][0] == {"name": "ms at most", "figure": "ms", "at_most": 2.3}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--deadline", "2"), "has no unit"),
        (("--deadline", "2W"), "not a unit of time"),
        (("--power-cap", "0W"), "more than zero"),
        (("--steps", "5", "--epochs", "5"), "give one"),
        (("--at-most", "joules=many"), "must be a number above zero"),
        (("--minimise", "latency_p99"), "no figure is known for 'latency_p99'"),
        (("--confidence", "95"), "did you mean 95%"),
    ],
)
def test_a_wrong_option_of_recommend_is_refused_with_a_sentence(modes, words, said):
    with pytest.raises((StudyError, click.ClickException)) as told:
        tare("choose", "recommend", str(modes), *BY_MODEL, *words)

    assert said in (told.value.message if isinstance(told.value, click.ClickException) else str(told.value))


@pytest.mark.parametrize("verb", ["choose front", "choose recommend", "show variability", "show pipeline"])
def test_a_file_that_is_not_there_is_said(verb, tmp_path):
    with pytest.raises(StudyError, match="no such file"):
        tare(*verb.split(), str(tmp_path / "nothing.csv"), *(("--metric", "ms") if "variability" in verb else ()))


def test_a_column_that_is_not_there_is_answered_with_the_nearest(modes):
    with pytest.raises(StudyError, match="Did you mean 'joules'"):
        tare("choose", "front", str(modes), "--minimise", "ms,joule", "--settings", "mhz")


def test_variability_names_where_it_comes_from(modes):
    words = ("show", "variability", str(modes), "--metric", "ms", "--settings", "model,mhz")
    found = written(*words)

    assert found["cells"] == 8
    (component,) = found["components"]
    assert component["level"] == "between trials"
    assert component["deviation"]["value"] == pytest.approx(0.01, rel=0.4)
    assert "between trials" in tare(*words)


def test_variability_of_a_table_needs_a_value(modes):
    with pytest.raises(StudyError, match="--metric COLUMN"):
        tare("show", "variability", str(modes))


def test_anatomy_names_workers_and_what_binds(tmp_path):
    rows = ["workers,disk,step_s,stall_s"]
    for disk, fetch in (("hdd", 0.06), ("ssd", 0.02)):
        for workers in (0, 1, 2, 4):
            for run in range(6):
                stall = max(0.0001, (fetch / workers - 0.025) if workers else fetch) * (1 + run / 1000)
                rows.append(f"{workers},{disk},{0.025 + stall:.6f},{stall:.6f}")
    path = tmp_path / "loader.csv"
    path.write_text("\n".join(rows))

    found = written("show", "pipeline", str(path))
    assert [each["workers_measured"] for each in found["pipelines"]] == [4.0, 1.0]
    said = tare("show", "pipeline", str(path))
    assert "on hdd" in said and "predicted 3" in said
    assert "Slowest medium that hides the stall" in said and said.split()[-4:] == ["4", "hdd", "hdd", "hdd"]


def test_help_documents_the_json_of_each_verb():
    for verb in ("choose front", "choose recommend", "show variability", "show pipeline"):
        assert "--json: {" in " ".join(tare(*verb.split(), "--help").split())


@pytest.fixture
def batches(tmp_path) -> Path:
    """Batch 16 and 64 on one device, without energy: a step of 64 takes longer, a sample of it less."""
    chance = random.Random(4)
    rows = ["batch,run,step_ms"]
    for batch, ms in ((16, 12.9), (64, 40.0)):
        rows += [f"{batch},{run},{ms * chance.gauss(1, 0.01):.5f}" for run in range(6)]
    path = tmp_path / "batches.csv"
    path.write_text("\n".join(rows))
    return path


def test_the_least_work_does_not_win_and_samples_tell_which_batch_is_quicker(batches):
    with pytest.raises(StudyError, match="differ in the work of a step, batch"):
        tare("choose", "recommend", str(batches), "--settings", "batch", "--minimise", "time")
    (front,) = written("choose", "front", str(batches), "--settings", "batch", "--minimise", "step_ms,run")["fronts"]
    assert front["minimised"] == ["step_ms_per_sample", "run"]  # 64 images take longer than 16, and less time each
    assert [each["settings"]["batch"] for each in front["points"] if each["on_front"]] == [64.0]

    words = ("choose", "recommend", str(batches), "--settings", "batch", "--samples", "64000")
    (found,) = written(*words)["recommendations"]

    assert found["minimised"] == "time"  # no energy and no power was measured
    assert found["best"]["settings"] == {"batch": 64.0}


def test_of_a_language_model_the_time_per_token_is_minimised_whatever_the_batch(tmp_path):
    path = tmp_path / "tokens.csv"
    rows = [f"{batch},{run},{ms + run / 100},{ms / batch + run / 100}" for run in range(6) for batch, ms in TOKENS]
    path.write_text("\n".join(["batch,run,step_ms,time_token_s", *rows]))
    (found,) = written("choose", "recommend", str(path), "--settings", "batch")["recommendations"]
    assert (found["minimised"], found["best"]["settings"]) == ("time", {"batch": 8.0})
    with pytest.raises(StudyError, match="the least work would win"):
        tare("choose", "recommend", str(path), "--settings", "batch", "--minimise", "step_ms")
    with pytest.raises(StudyError, match="the least work would win"):  # a budget is of a job, and never of a token
        tare("choose", "recommend", str(path), "--settings", "batch", "--deadline", "1h")


TOKENS = ((1, 10.0), (8, 24.0))


QUOTAS = (0.5, 0.75, 1.0, 1.5, 2.0)
PLACES = [
    Place({"platform": "bare", "platform.quota": quota, "workload.model": model}, step_s=size * (0.02 + 0.05 / quota))
    for model, size in (("lenet5", 1.0), ("mobilenet_v3_large", 6.0))
    for quota in QUOTAS
]


def store(root: Path, *, sensor: bool) -> Path:
    """What s3-predict leaves at its small scale."""
    made = [
        replace(each, metrics={**(each.metrics if sensor else {}), "step_mean_s": each.metrics["step_s"]})
        for each in trials(*PLACES, n=6)
    ]
    return kept(root, made, {"study": "s3-predict"})


def ending(scale: str) -> list[str]:
    """The words after `choose predict` with which the study ends at this scale."""
    group, verb, *words = at_every_scale(built_in()["s3-predict"], trust=True)[scale].ends_in[0].split()
    assert (group, verb) == ("choose", "predict")
    return words


@pytest.mark.parametrize("scale", ["smoke", "small"])
def test_a_study_of_times_alone_ends_in_predicted_times(tmp_path: Path, scale: str) -> None:
    words = ["choose", "predict", str(store(tmp_path / "store", sensor=False)), *ending(scale)]
    told = json.loads(tare(*words, "--json"))["predictions"]

    assert [each["group"] for each in told] == ["lenet5", "mobilenet_v3_large"]
    for each in told:
        (mode,) = each["modes"]  # five were measured, four are taken as known
        assert mode["time"]["low"] < mode["time"]["value"] < mode["time"]["high"]
        assert set(each["errors"]) == {"time"}
    said = " ".join(tare(*words).split())
    assert "note: no energy was measured, so only times are predicted" in said


def test_the_same_words_take_the_energy_where_there_is_one(tmp_path: Path) -> None:
    words = ["choose", "predict", str(store(tmp_path / "store", sensor=True)), *ending("small"), "--json"]
    told, named = json.loads(tare(*words)), json.loads(tare(*words, "--columns", "energy=energy_step_j"))

    assert told["units"] == {"time": "step_mean_s", "power": "power_w", "energy": "energy_step_j"}
    assert told == named
    assert not any("no energy" in note for note in told["notes"])


def test_no_measured_time_is_given_up_for_an_energy_that_nobody_asked_for(tmp_path: Path) -> None:
    made = [
        replace(each, metrics={"step_mean_s": each.metrics["step_s"], **(each.metrics if each.block else {})})
        for each in trials(*PLACES, n=6)
    ]
    folder = kept(tmp_path / "store", made, {"study": "s3-predict"})

    told = json.loads(tare("choose", "predict", str(folder), *ending("small"), "--json"))

    assert set(told["units"]) == {"time"}
    assert any("some trials have no energy" in note for note in told["notes"])


def test_help_says_that_time_alone_is_enough() -> None:
    assert "Where no energy was measured, time alone is predicted" in " ".join(
        tare("choose", "predict", "--help").split()
    )

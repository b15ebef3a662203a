"""What the deciding verbs print: it fits the terminal, says what is unknown, and nothing in a label can steer it."""

import numpy as np
import pytest

from tare.analysis.choose.configurations import settings_words
from tare.analysis.choose.front import fronts_answer, pareto
from tare.analysis.choose.jobs import Job, Limit
from tare.analysis.choose.recommend import chance_text, recommend, recommendations_answer
from tare.analysis.resources.pipeline import anatomy, anatomy_answer
from tare.analysis.variability.findings import variability, variability_answer
from tare.analysis.variability.samples import NestedValue
from tare.base.columns import display_width
from tare.records.model import TrialRow
from tare.report.sections import answer_text


def modes(trials=6, name="mode"):
    chance = np.random.default_rng(1)
    return [
        TrialRow.foreign(
            {name: float(mode), "platform": "docker"},
            {"time": time * f, "energy": energy * f, "power": energy / time},
            f"{mode}.{trial}",
            group="resnet18",
        )
        for mode, (time, energy) in enumerate([(10.0, 500.0), (20.0, 300.0), (25.0, 400.0)])
        for trial in range(trials)
        for f in [float(np.exp(chance.normal(0, 0.01)))]
    ]


def front(trials=6, name="mode"):
    return pareto(modes(trials, name), ["time", "energy"], defaults=[{name: 2.0}])


def choice(trials=6, name="mode", deadline=22.0):
    job = Job("energy", (Limit("deadline", "time", deadline),))
    return recommend(modes(trials, name), job, default={name: 0.0})


def pipelines():
    return anatomy(
        [
            TrialRow.foreign(
                {"workers": float(workers), "storage": disk},
                {"step": 0.1 + stall * (1 + trial / 1000), "stall": stall * (1 + trial / 1000)},
                f"{workers}.{disk}.{trial}",
            )
            for workers, stall in ((0, 0.2), (2, 0.001))
            for disk in ("ssd", "hdd")
            for trial in range(6)
        ]
    )


def varied():
    chance = np.random.default_rng(1)
    return variability(
        [
            NestedValue(float(np.exp(chance.normal(0, 0.01))), "", f"board {d}", None, f"{d}.{t}", float(e))
            for d in range(6)
            for t in range(3)
            for e in range(4)
        ],
        "epoch_s",
    )


TEXTS = {
    "pareto": lambda width: answer_text(fronts_answer(front()), width),
    "recommend": lambda width: answer_text(recommendations_answer(choice()), width),
    "nothing fits": lambda width: answer_text(recommendations_answer(choice(deadline=1.0)), width),
    "variability": lambda width: answer_text(variability_answer(varied()), width),
    "anatomy": lambda width: answer_text(anatomy_answer(pipelines()), width),
}


@pytest.mark.parametrize("width", [24, 40, 80, 200])
@pytest.mark.parametrize("name", TEXTS)
def test_no_line_is_wider_than_the_terminal(name, width):
    assert max(map(display_width, TEXTS[name](width).splitlines())) <= width


def test_the_front_says_how_sure_each_place_is():
    said = answer_text(fronts_answer(front()))

    assert "2 of 3 configurations are on the time and energy front" in said
    assert "yes" in said
    assert "default mode=2, docker: beaten by mode=1" in said.replace("\n  ", " ")


def test_what_was_measured_once_is_said_to_be_unknown():
    assert "unknown" in answer_text(fronts_answer(front(trials=1)))
    said = answer_text(recommendations_answer(choice(trials=1)), 200)
    assert "chance that the next run keeps the deadline, 22.0 s: unknown, measured once" in said
    assert "1 trial, no interval" in said


def test_a_recommendation_says_gain_chance_and_practice():
    said = answer_text(recommendations_answer(choice()), 200)

    assert "resnet18: use mode=1, docker: energy 30" in said
    assert "against the default (mode=0, docker): energy -4" in said
    assert "it has the lowest energy of those that fit in 100 % of resamples" in said
    assert "(S3 5.6.3)" in said


def test_settings_of_a_store_are_words_that_tell_them_apart():
    assert settings_words({"tenants": 2.0, "platform": "docker"}) == "tenants 2, docker"
    states = {"control.dvfs.state": "on", "control.wake_on_lan.state": "off", "workload.state": "suspended"}
    assert settings_words(states) == "DVFS on, Wake-on-LAN off, suspended"
    assert settings_words({"platform.0.vm.cores": 2.0, "platform.1.docker.cores": 4.0}) == "vm 2 cores, docker 4 cores"
    assert settings_words({"gpu_mhz": 1980.0, "cores": 8.0}) == "gpu_mhz=1980, cores=8"


def test_nothing_fits_is_said_with_the_nearest():
    said = answer_text(recommendations_answer(choice(deadline=1.0)), 200)

    assert "nothing fits: none of 3 configurations keeps deadline 1.00 s with 95 % probability" in said
    assert "nearest: mode=0, docker" in said
    assert "% over the deadline" in said


def test_a_label_cannot_steer_the_terminal():
    wicked = "mo\x1b[2Jde"

    for said in (
        answer_text(fronts_answer(front(name=wicked))),
        answer_text(recommendations_answer(choice(name=wicked))),
    ):
        assert "\x1b" not in said


def test_what_is_nearly_sure_is_not_called_sure():
    assert [chance_text(each) for each in (1.0, 0.9999, 0.5, 0.0)] == [
        "over 99.9 %",
        "over 99.9 %",
        "50 %",
        "below 0.1 %",
    ]


def test_variability_says_where_it_comes_from_and_what_is_enough():
    said = answer_text(variability_answer(varied()))

    assert "between devices" in said and "between epochs" in said
    assert "enough for a mean known to ±2 %" in said
    assert "fewest epochs in all" in said


def test_an_anatomy_says_what_binds_and_what_hides_the_stall():
    said = answer_text(anatomy_answer(pipelines()), 200)

    assert "on ssd" in said and "compute" in said
    assert said.startswith("Fewest workers that hide the stall (below 5 % of the step): 2 (on hdd); 2 (on ssd).")
    assert "Slowest medium that hides the stall" in said


def test_a_long_note_about_modes_wraps_without_blank_lines_in_it(tmp_path):
    from tare.analysis.choose.modes import Columns, read_modes
    from tare.analysis.choose.predictions import predict, predictions_answer

    path = tmp_path / "modes.csv"
    path.write_text("mhz,ms,joules\n500,9,1\n500,27,1\n700,7,1.5\n900,6,\n1100,5,2.5\n")
    table = read_modes(path, Columns(("mhz",), "ms", "joules"))
    said = answer_text(predictions_answer(table, predict(table)), 60)

    about = said[said.index("note:") :]
    assert about.count("note:") == 3
    assert "\n\n" not in about

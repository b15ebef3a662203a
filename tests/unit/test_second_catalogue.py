"""The written rule by which an answer about a planted cause is judged."""

import re

import pytest
import yaml

from benchmarks.second_catalogue.__main__ import HERE, judge

CATALOGUE = yaml.safe_load((HERE / "plants.yaml").read_text())
PLANT = {"named": "libyaml", "located": "yaml/scanner"}
IMAGE = (
    "Slower: 2x slower\nCause{}: it is in the image's software: the images differ in something else than\n"
    "        Python, C library, torch, NumPy and BLAS.\n"
)
WHERE = "Where: most of it is in check_token() of\n        yaml/scanner.py.\n"


@pytest.mark.parametrize("plant", CATALOGUE["plants"], ids=lambda plant: plant["name"])
def test_a_plant_is_complete_and_its_answer_is_recognised(plant):
    assert plant["program"] in CATALOGUE["programs"]
    assert plant["link"].startswith("https://")
    assert {"image", "limits"} & set(plant)
    assert re.search(plant["named"], plant["answer"])
    assert re.compile(plant["located"])


def test_no_two_plants_have_one_answer():
    answers = [plant["answer"] for plant in CATALOGUE["plants"]]
    assert len(answers) == len(set(answers))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Cause: the image's software: libyaml is missing here.\n", "named"),
        ("Cause (sure): the image's software:\n        libyaml is missing here.\nLeft: nothing\n", "named"),
        ("Suspect (not yet proved): libyaml.\n", "named"),
        ("Cause: the seccomp filter.\nWhere: libyaml\n", "wrong"),
        ("Cause (sure): the seccomp filter.\n" + WHERE, "wrong"),
        ("Cause (not yet proved): the seccomp filter.\n", "nothing"),
        (IMAGE.format("") + WHERE, "located"),
        (IMAGE.format(" (sure)") + WHERE, "located"),
        (IMAGE.format(""), "nothing"),
        (IMAGE.format("") + "Where: in\n        (second-catalogue:yaml/scanner-planted)\n", "nothing"),
        ("Nothing is slower.\n", "nothing"),
    ],
)
def test_an_answer_is_judged(text, outcome):
    assert judge(PLANT, text) == outcome

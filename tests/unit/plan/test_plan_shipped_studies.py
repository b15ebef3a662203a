"""The studies that come with tare, on the real parts: each loads, plans and asks a question that it can answer."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import tare.papers
from tare.plan.matrix import baseline, cells, trials
from tare.studies.load import load
from tare.studies.model import ENOUGH_REPEATS, Study

STUDIES = sorted(Path(tare.papers.__file__).parent.glob("studies/*.yaml"))


def test_there_are_studies() -> None:
    assert "container-tax" in [path.stem for path in STUDIES]


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_a_shipped_study_is_called_as_its_file_and_can_be_planned(path: Path) -> None:
    study = load(path, trust=True)
    found = cells(study)

    assert study.study == path.stem
    assert study.about
    assert baseline(study, found)
    assert study.repeat.min >= ENOUGH_REPEATS
    assert Study.model_validate(study.as_plain()) == study
    blocks = itertools.groupby(trials(study, found), key=lambda trial: trial.block)
    assert len(list(blocks)) == study.repeat.max

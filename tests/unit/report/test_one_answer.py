"""Over kept stores: whatever verb shows a difference shows the effect that `compare` finds, with its interval."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tare.analysis.answer import weighing_json
from tare.analysis.model import Comparison
from tare.analysis.resources.energy import Energy
from tare.analysis.resources.pipeline import Loader
from tare.analysis.resources.tenants import Tenants
from tare.analysis.sections import Answer, Chart, Question, Shown, Table
from tare.analysis.weighing import weigh
from tare.base.errors import StudyError
from tare.records.store import Store
from tare.records.unpack import each_pack_once
from tare.report.export import as_markdown
from tare.report.html import page
from tare.report.sections import answer_text
from tare.report.text.verdict import verdict_text

KEPT = Path(__file__).parents[3] / "studies-results"
QUICK = {  # a store for each kind of answer: several levels, energy, tenants, a server, unlike work, one trial a side
    "cpu2/s0-colocation", "cpu2/s1-workers", "cpu2/s3-batch", "h200/llm-batch-energy", "h200/llm-container-tax",
    "h200/s0-phase-breakup", "h200/s3-predict", "h200/serve-knee",
}  # fmt: skip
NAMES = sorted(f"{path.parent.name}/{path.stem}" for path in KEPT.glob("*/*.tare"))
ALLOWED = {  # what may hold a per cent without an interval, and why; this list only shrinks
    r"the two medians alone differ by": "it tells why a row's medians look unlike its effect, and claims nothing",
    r"mean step.* is .*, the median step": "what a metric hides is a doubt: it takes a word away and gives none",
    r"are worse than|were worse than": "the same",
    r"a whole epoch is": "the same",
    r"does not exceed the noise": "it says that nothing is claimed",
    r"a trial began|minutes|drift": "a note on the order of the trials",
}

SIGNED = re.compile(r"(?<![\w.\[,])[+-]\d[\d.,]* %")
VALUE = re.compile(r"(?<![\w.])([+-]?\d[\d.,]*) ?([^\W\d][\w/°]*|%)? \[([+-]?\d[\d.,]*), ([+-]?\d[\d.,]*)\]")


@pytest.fixture(params=[name if name in QUICK else pytest.param(name, marks=pytest.mark.deep) for name in NAMES])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    with each_pack_once(), Store.open(KEPT / f"{request.param}.tare") as opened:
        yield opened


def test_every_verb_shows_the_same_answer(store: Store) -> None:
    weighing = weigh(store)
    found = [*weighing.comparisons, *weighing.tested, *weighing.others]
    texts = [verdict_text(weighing, 1000, verbose=verbose) for verbose in (False, True)]
    texts += list(_told(json.loads(json.dumps(weighing_json(weighing), default=str))))
    texts.append(as_markdown(page(weighing, store.records(), "", "", (), None)).replace("\\[", "["))
    energy = _answer(store, Energy())
    if energy is not None and energy.contrasts:
        texts.append(answer_text(energy, 1000))
        _same_figures(energy)
        _same_effects(found, energy.contrasts)
        for metric in {each.metric for each in energy.contrasts}:
            asked = weigh(store, metric=metric).comparisons
            _same_effects(asked, [each for each in energy.contrasts if each.metric == metric])
    if (tenants := _answer(store, Tenants())) is not None:
        texts.append(answer_text(tenants, 1000))
        _same_figures(tenants)
        _as_levels_of_tenants(store, tenants)
    if (pipeline := _answer(store, Loader())) is not None:
        texts.append(answer_text(pipeline, 1000))
        _same_figures(pipeline)
    for text in texts:
        _has_intervals(text)
        _in_one_unit(text)
    for each in found:
        _agrees_with_its_row(each, texts[1])


def _answer(store: Store, question: Question[Any]) -> Answer[Any] | None:
    try:
        return question.answer(store)
    except StudyError:
        return None


def _same_figures(answer: Answer[Any]) -> None:
    """A figure that is shown twice is the same, and a difference in a sentence has an interval."""
    told: dict[tuple[str, str], tuple[float, ...]] = {}
    for in_sentence, figure in _figures(answer):
        if figure.of:
            assert told.setdefault((figure.metric, figure.of), figure.numbers) == figure.numbers, figure
        assert not (in_sentence and figure.signed) or len(figure.numbers) == 3, f"{figure} has no interval"


def _figures(answer: Answer[Any]) -> Iterator[tuple[bool, Shown]]:
    """Every figure of an answer, and whether it is in a sentence."""
    sentences = [answer.sentence]
    for _, body in answer.shown():
        held = body.table if isinstance(body, Chart) else body
        if isinstance(held, Table):
            yield from ((False, cell) for row in held.rows for cell in row if isinstance(cell, Shown))
        sentences += (
            [body.reading] if isinstance(body, Chart) else body.notes if isinstance(body, Table) else body.sentences
        )
    yield from ((True, piece) for sentence in sentences for piece in sentence if isinstance(piece, Shown))


def _as_levels_of_tenants(store: Store, answer: Answer[Any]) -> None:
    """The measured tenant beside others, against alone: the same trials as a comparison of the levels of tenants."""
    asked = weigh(store, by="tenants", against="1", metric="step_s")
    effects = {round(each.effect, 12) for each in asked.comparisons if each.effect is not None}
    assert (
        answer.contrasts and {round(each.effect, 12) for each in answer.contrasts if each.effect is not None} <= effects
    )


def _told(data: object) -> Iterator[str]:
    """Every sentence of a JSON document."""
    if isinstance(data, str):
        yield data
    for each in data.values() if isinstance(data, dict) else data if isinstance(data, list) else ():
        yield from _told(each)


def _same_effects(ours: Sequence[Comparison], others: Sequence[Comparison]) -> None:
    known = {(each.metric, each.level, each.against): each for each in ours}
    for each in others:
        if (same := known.get((each.metric, each.level, each.against))) is not None:
            assert each.effect == pytest.approx(same.effect, abs=1e-12), (each.metric, each.level, each.against)


def _has_intervals(text: str) -> None:
    for sentence in re.split(r"\n|(?<=\.) (?=[A-Z])", text):
        if any(re.search(pattern, sentence) for pattern in ALLOWED):
            continue
        for figure in SIGNED.finditer(sentence):
            rest = sentence[figure.end() :]
            assert "[" in rest or "too small for" in rest, f"{figure[0]} has no interval: {sentence}"


def _in_one_unit(text: str) -> None:
    for number, unit, low, high in VALUE.findall(text):
        value, least, most = (float(each.replace(",", "")) for each in (number, low, high))
        assert least <= value <= most, f"{number} {unit} [{low}, {high}]"


def _agrees_with_its_row(each: Comparison, text: str) -> None:
    """Two medians in a row that say the opposite of its effect are explained below it."""
    if not each.sure or each.ours is None or each.theirs is None or each.effect is None:
        return
    alone = each.ours.value / each.theirs.value - 1
    if alone * each.effect < 0 and abs(alone - each.effect) >= 0.01:
        assert f"{each.level}: the two medians alone" in text, (each.metric, each.level, alone, each.effect)

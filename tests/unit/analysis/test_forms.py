"""The headline of each form of a question, held against figures that are computed here from the kept trials."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean, median

import pytest

import tare.papers
from tare.analysis.answer import sentences_of
from tare.analysis.questions.forms import FORMS, is_plural_metric
from tare.analysis.weighing import weigh
from tare.base.declare import before
from tare.records.model import Record, is_usable
from tare.records.store import Store
from tare.studies.load import at_every_scale
from tare.studies.model import Question

KEPT = Path(__file__).parents[3] / "studies-results"
STUDIES = Path(tare.papers.__file__).parent / "studies"


@pytest.fixture
def kept() -> Iterator[Callable[[str], Store]]:
    opened = []

    def of(name: str) -> Store:
        opened.append(Store.open(KEPT / f"{name}.tare"))
        return opened[-1].__enter__()

    yield of
    for store in opened:
        store.__exit__(None, None, None)


def _answer(store: Store, **asked: str) -> list[str]:
    return list(sentences_of(weigh(store, **asked)))


def _medians(store: Store, metric: str, *names: str) -> dict[tuple[object, ...], float]:
    values: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for record in _first_runs(store):
        if metric in record.metrics:
            values[tuple(record.settings[name] for name in names)].append(record.metrics[metric])
    return {key: median(held) for key, held in values.items()}


def _first_runs(store: Store) -> list[Record]:
    return [record for record in store.records() if is_usable(record) and not record.twin]


def test_every_built_in_study_asks_a_question_and_each_form_has_a_class() -> None:
    studies = {path.stem: [*at_every_scale(path, trust=True).values()][-1] for path in STUDIES.glob("*.yaml")}
    asked = {name: study.question for name, study in studies.items()}
    assert all(asked.values()), [name for name, question in asked.items() if question is None]
    assert set(FORMS) == set(Question.model_fields["form"].annotation.__args__)
    for name, question in before().questions.items():  # of stores from before studies had questions
        assert question == asked[name].as_plain(), name


def test_the_first_level_that_is_enough_is_held_against_the_next(kept: Callable[[str], Store]) -> None:
    """`Takes 78 to 80 % less time than 0 workers` was the stall; the mean step fell by 9 to 10 %."""
    store = kept("cpu2/s1-workers")
    first, gain, *rest = _answer(store)

    assert first.startswith("1 worker is enough (by the mean step")
    effects = [float(each) for each in re.findall(r"(-?[\d.]+) % \[", gain)]
    steps = _medians(store, "step_mean_s", "workload.workers", "control.storage.emulate")
    by_hand = [100 * (steps[1, medium] / steps[0, medium] - 1) for medium in ("hdd", "sd", "ssd")]
    assert mean(effects[:2]) == pytest.approx(mean(by_hand), abs=1)
    assert effects[2] < -75  # the stall, told beside it
    assert any(each.startswith("2 workers are the same as 1 worker") for each in rest)
    assert any("emulated sd and emulated ssd are the same as emulated hdd within 5 %" in each for each in rest)


@pytest.mark.parametrize("place", ["cpu2", "h200"])
def test_the_best_batch_is_that_with_the_least_time_per_sample(place: str, kept: Callable[[str], Store]) -> None:
    """`Faster -89.4 % (batch 1)` was the time of a step, which holds as many samples as its batch."""
    store = kept(f"{place}/s3-batch")
    per_step = _medians(store, "step_s", "workload.model", "workload.batch")
    first = _answer(store)[0]
    for model, title in (("lenet5", "LeNet-5"), ("resnet18", "ResNet-18"), ("mobilenet_v3_large", "MobileNetV3-L")):
        if its := {batch: step / batch for (name, batch), step in per_step.items() if name == model}:
            best = min(its, key=its.get)
            assert re.search(rf"with batch {best} for [^.]*{title} training", first), (title, best, first)
    assert {each.metric for each in weigh(store).comparisons} == {"sample_s"}
    asked = weigh(store, metric="step_s")  # a study that names the step names it as what a sample takes
    assert {each.metric for each in asked.comparisons} == {"sample_s"}


def test_of_a_front_the_winner_is_named_with_time_and_energy(kept: Callable[[str], Store]) -> None:
    store = kept("h200/llm-batch-energy")
    *heads, time, energy = _answer(store)[:4]
    for metric, head in zip(("time_token_s", "energy_token_j"), heads, strict=True):
        medians = _medians(store, metric, "workload.batch", "workload.precision")
        batch, precision = min(medians, key=medians.get)
        assert f"with batch {batch}, precision {precision}" in head
    assert heads[0].startswith("Cannot tell whether time per token is lowest with batch 64, precision bf16 or")
    assert heads[1].startswith("Energy per token is lowest by the medians, of too few trials to tell, with batch 64")
    assert "precision fp32 may be as good" in time and "too few trials to hold it against" in energy
    assert re.match(r"Time per token: [\d.]+ µs \[", time) and re.match(r"Energy per token: [\d.]+ mJ \[", energy)
    assert "Not measured here: energy per token." in _answer(kept("cpu2/llm-batch-energy"))


class Asked:
    """A kept store whose study asks another question."""

    def __init__(self, store: Store, question: dict[str, object]) -> None:
        self.study = {**store.study, "question": question}
        self.records, self.rehearsals, self.states = store.records, store.rehearsals, store.states


def test_each_metric_of_a_front_is_per_sample_where_batches_differ(kept: Callable[[str], Store]) -> None:
    store = kept("h200/llm-batch-energy")
    question = {"form": "front", "metrics": ["step_s", "energy_step_j"]}
    told = " ".join(sentences_of(weigh(Asked(store, question))))

    assert "time per sample" in told.lower() and "nergy per sample" in told
    assert "per step" not in told and "edian step" not in told


def test_a_question_of_cost_answers_in_each_of_its_metrics(kept: Callable[[str], Store]) -> None:
    question = {"form": "cost", "metrics": ["step_mean_s", "stall_mean_s"]}
    told = sentences_of(weigh(Asked(kept("cpu2/s1-workers"), question)))

    assert any("mean step" in each for each in told) and any("stall" in each for each in told)


def test_a_question_per_sample_is_answered_per_sample_where_the_work_is_alike(kept: Callable[[str], Store]) -> None:
    store = kept("cpu2/s0-container-tax")
    assert {record.settings["workload.batch"] for record in store.records()} == {16}
    by_step, by_sample = (weigh(Asked(store, {"form": "cost", "per": per})) for per in (None, "sample"))

    assert (by_step.metric, by_sample.metric) == ("step_s", "sample_s")
    theirs = [by.comparisons[0].theirs for by in (by_step, by_sample)]
    assert theirs[0].value == pytest.approx(16 * theirs[1].value)
    assert by_step.comparisons[0].effect == pytest.approx(by_sample.comparisons[0].effect)


@pytest.mark.parametrize(
    ("called", "plural"),
    [("minor faults", True), ("page faults", True), ("requests that failed", True), ("energy per step", False),
     ("time in steps", False), ("loss", False), ("imports to the first fetch", True), ("ms", False),
     ("pre-process", False), ("CPU time, user", False)],
)  # fmt: skip
def test_a_metric_in_the_plural_are_lowest(called: str, plural: bool) -> None:
    assert is_plural_metric(called) == plural


def test_a_prediction_is_told_by_its_error_beside_the_papers(kept: Callable[[str], Store]) -> None:
    """The error is the one that `choose predict` prints for each network."""
    first, *_ = _answer(kept("cpu2/s3-predict"))
    assert "26 to 30 % by the paper's regression and 13 to 15 % by tare's model; the paper has 12 %" in first


def test_emulated_machines_and_empty_workloads_stand_apart(kept: Callable[[str], Store]) -> None:
    """`docker, qemu and qemu+runc are slower` was of a program that does nothing, in emulated machines."""
    answer = _answer(kept("cpu2/s4-platforms"))
    *of_applications, apart = answer
    assert not any("qemu" in each or "slower than" in each for each in of_applications)
    assert "recommendation" in of_applications[0]
    assert apart.startswith("Apart, as no evidence of that: empty workload in docker (it does nothing)")
    assert "qemu+runc (it does nothing, emulated processor)" in apart


def test_who_asks_for_another_metric_or_baseline_gets_that_answer(kept: Callable[[str], Store]) -> None:
    store = kept("cpu2/s1-workers")
    assert not weigh(store, metric="step_mean_s").headline
    assert "slower than 1 worker" in " ".join(_answer(store, against="1"))


@pytest.mark.parametrize("path", sorted(KEPT.glob("*/*.tare")), ids=lambda path: f"{path.parent.name}-{path.stem}")
@pytest.mark.deep
def test_no_headline_of_a_kept_store_is_a_tally(path: Path) -> None:
    with Store.open(path) as store:
        told = _answer(store)
    assert not any(re.search(r"\bin (all|both|\d+ of) \d*\s*(comparisons|levels)", each) for each in told), told

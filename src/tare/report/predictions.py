"""Predictions, and how good they are, as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tare.analysis.model import Estimate
from tare.analysis.predict.evaluate import Outcome
from tare.analysis.predict.linear import SOLVER
from tare.analysis.predict.modes import ModeTable
from tare.analysis.predict.predictions import Answer, Prediction
from tare.analysis.predict.surface import LEVEL
from tare.report.columns import table, wrap
from tare.report.words import safe_text

MOST_ROWS = 60  # of one workload on a terminal; --json has all


def answers_text(modes: ModeTable, answers: Sequence[Answer], width: int = 80) -> str:
    """Each workload's predictions, and what to measure next."""
    parts = [_answer_text(modes, answer, width) for answer in answers]
    notes = _notes(modes, width)
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def outcomes_text(modes: ModeTable, outcomes: Sequence[Outcome], designs: Sequence[Outcome], width: int = 80) -> str:
    """The error of each method in per cent, and how much the choice of modes matters."""
    splits = max(outcome.splits for outcome in outcomes)
    head = f"Mean absolute error of the modes that were held out, in %: medians over {splits} random splits."
    figures = tuple(modes.columns.names)
    rows = [_outcome_row(outcome) for outcome in outcomes]
    lines = [*wrap(head, width), "", table(rows, ("workload", "k", "method", *figures), width)]
    lines += _regression_lines(outcomes, width)
    if designs:
        lines += ["", *wrap("The same with modes chosen on purpose instead of at random:", width), ""]
        chosen = [[*_outcome_row(outcome)[:3], outcome.design, *_outcome_row(outcome)[3:]] for outcome in designs]
        lines.append(table(chosen, ("workload", "k", "method", "choice", *figures), width))
    return "\n".join([*lines, *_notes(modes, width)])


def _answer_text(modes: ModeTable, answer: Answer, width: int) -> str:
    headers = [*modes.columns.features, *(part for name in modes.columns.names.values() for part in (name, "±"))]
    shown = answer.predictions[:MOST_ROWS]
    lines = [*wrap(_head(answer), width), table([_row(each) for each in shown], headers, width, indent="  ")]
    if len(answer.predictions) > len(shown):
        lines.append(f"  … and {len(answer.predictions) - len(shown)} more; --json has them all.")
    lines += [line for sentence in _sentences(modes, answer) for line in wrap(sentence, width, indent="  ")]
    return "\n".join(lines)


def _head(answer: Answer) -> str:
    who = f"{safe_text(answer.group)}, " if answer.group is not None else ""
    level = f"; a measurement lies within ± of it, {100 * LEVEL:.0f} % sure" if answer.method != "linear" else ""
    return f"{who}by {answer.method} from {len(answer.measured)} measured modes{level}:"


def _row(prediction: Prediction) -> list[str]:
    cells = [f"{value:g}" for value in prediction.mode]
    for estimate in prediction.figures.values():
        cells += [f"{estimate.value:.4g}", _reach(estimate)]
    return cells


def _reach(estimate: Estimate) -> str:
    """How far the interval reaches; it is as far both ways as a factor, so the upper end tells."""
    return "" if estimate.high is None else f"{100 * (estimate.high / estimate.value - 1):.0f} %"


def _sentences(modes: ModeTable, answer: Answer) -> Iterable[str]:
    features = modes.columns.features
    if answer.taught_by:
        yield f"Learnt from the modes of {', '.join(map(safe_text, answer.taught_by))} as well."
    if answer.stages:
        stages = ", ".join(f"{name} {value:.3g}" for name, value in answer.stages.items())
        yield f"Stages at the highest clocks on the fewest cores, in {modes.columns.time}: {stages}."
    if answer.regression:
        yield _regression_text(answer.regression.rank, answer.regression.unknowns, answer.regression.condition)
    if answer.errors:
        errors = ", ".join(f"{name} {100 * value:.1f} %" for name, value in answer.errors.items())
        yield f"These modes were measured too; off by, on average: {errors}."
    if answer.next:
        yield "Measure next: " + "; ".join(
            ", ".join(f"{name} {value:g}" for name, value in zip(features, choice.mode, strict=True))
            + f" ({100 * choice.removes:.0f} % of the variance that is left)"
            for choice in answer.next
        )


def _outcome_row(outcome: Outcome) -> list[str]:
    errors = [each for each in (outcome.time_mape, outcome.power_mape, outcome.energy_mape) if each is not None]
    name = safe_text(outcome.group) if outcome.group is not None else "all"
    return [name, str(outcome.k), outcome.method, *(f"{100 * error:.1f}" for error in errors)]


def _regression_lines(outcomes: Sequence[Outcome], width: int) -> list[str]:
    by_count = {outcome.k: outcome for outcome in outcomes if outcome.method == "linear"}
    sentences = [
        f"k = {k}: {_regression_text(outcome.rank, outcome.unknowns, outcome.condition)}"
        for k, outcome in by_count.items()
    ]
    lines = [f"linear: {SOLVER}.", *sentences] if sentences else []
    return ["", *(line for sentence in lines for line in wrap(sentence, width, indent="  "))] if lines else []


def _regression_text(rank: object, unknowns: object, condition: object) -> str:
    short = float(str(rank)) < float(str(unknowns))
    doubt = " So the modes do not determine it; of the many solutions it is the one of least norm." if short else ""
    return f"Rank {float(str(rank)):g} of {unknowns} unknowns, condition number {float(str(condition)):.3g}.{doubt}"


def _notes(modes: ModeTable, width: int) -> list[str]:
    return [line for note in modes.notes for line in wrap(f"note: {safe_text(note)}", width, indent="  ")]

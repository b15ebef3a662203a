"""What the deciding verbs show: laws of an overhead, fronts, predictions, recommendations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tare.analysis.choose.configurations import setting_text, settings_words
from tare.analysis.choose.front import Default, Front
from tare.analysis.labels import name_words
from tare.analysis.model import Estimate, Finding
from tare.base.columns import wrap
from tare.base.declare import STEP
from tare.base.text import (
    count_text,
    effect_text,
    estimate_texts,
    interval_text,
    metric_name,
    quantity_text,
    quantity_texts,
    safe_text,
    share_text,
)
from tare.report.columns import sentences, table

if TYPE_CHECKING:  # a front is shown without them
    from tare.analysis.choose.candidates import Candidate, Recommendation
    from tare.analysis.choose.modes import ModeTable
    from tare.analysis.choose.overhead import OverheadLaw
    from tare.analysis.choose.predictions import Answer, Prediction

NEARLY = 0.999  # beyond this a rounded 100 % would claim too much


def shown_settings(settings: Mapping[str, str | float]) -> str:
    """`gpu_mhz=1980, cores=8` of a table, `docker, batch 8` of a store; safe for a terminal."""
    return safe_text(settings_words(settings))


def chance_text(chance: float) -> str:
    """`97 %`; what is nearly sure, or nearly impossible, is not called so."""
    if chance > NEARLY:
        return "over 99.9 %"
    return "below 0.1 %" if chance < 1 - NEARLY else share_text(chance)


def loss_text(loss: Estimate) -> str:
    """`+47.4 %`, with its interval where there is one."""
    if loss.low is None or loss.high is None:
        return effect_text(loss.value)
    return f"{effect_text(loss.value)} {interval_text(loss.low, loss.high, [loss.value])}"


def overheads_text(laws: Sequence[OverheadLaw], width: int = 80) -> str:
    """Each law of an overhead, one below the other."""
    return "\n\n".join(_overhead_text(law, width) for law in laws)


def _overhead_text(law: OverheadLaw, width: int) -> str:
    from tare.analysis.choose.surface import LEVEL

    job = f"{safe_text(law.job)}: " if law.job else ""
    who = f"{safe_text(law.level)} over {safe_text(law.against)}"
    pairs = count_text(sum(each.pairs for each in law.modes), "pair")
    modes = count_text(len(law.modes), "mode")
    title = f"{job}overhead of {who}, {modes}, {pairs}: {safe_text(law.formula)}"
    rows = [
        [_mode_text(law, each.mode), effect_text(each.overhead), f"{each.pairs}",
         UNKNOWN if each.left_out is None else loss_text(each.left_out)]
        for each in law.modes
    ]  # fmt: skip
    lines = [*wrap(title, width), table(rows, ["mode", "measured", "pairs", f"without it, {LEVEL:.0%}"], width)]
    if law.error is not None and law.held is not None:
        inside, of = law.held
        points = f"{100 * law.error:.2g} percentage points"
        told = f"modes that were left out: off by {points} on average; {inside} of {of} inside their intervals"
        lines += sentences([told], width)
    lines += [f"at {_mode_text(law, mode)}: {loss_text(found)}" for mode, found in law.predictions]
    return "\n".join([*lines, *sentences((f"note: {note}" for note in law.notes), width)])


def _mode_text(law: OverheadLaw, mode: Sequence[float]) -> str:
    return ", ".join(f"{safe_text(name)}={value:g}" for name, value in zip(law.features, mode, strict=True))


UNKNOWN = "unknown"


def fronts_text(fronts: Sequence[Front], width: int = 80, unit: str = STEP) -> str:
    """Each group's front, one below the other; `unit`: what a step is for people."""
    return "\n\n".join(_front_text(front, width, unit) for front in fronts)


def _front_text(front: Front, width: int, unit: str) -> str:
    on_it = sum(point.on_front for point in front.points)
    title = f"{safe_text(front.group)}: " if front.group is not None else ""
    spoken = " and ".join(metric_name(figure, unit) for figure in front.minimised)
    lines = wrap(f"{title}{on_it} of {front.configurations:,} configurations are on the {spoken} front", width)
    settings = list(dict.fromkeys(name for point in front.points for name in point.settings))
    short = [name_words(name) for name in settings]
    names = [one if short.count(one) == 1 else name for name, one in zip(settings, short, strict=True)]
    heads = [*map(safe_text, names), *map(safe_text, front.minimised), "trials", "on the front"]
    columns = [quantity_texts(figure, [p.figures[figure].value for p in front.points]) for figure in front.minimised]
    rows = []
    for place, point in enumerate(front.points):
        # A setting that another point has, and this one lacks, stays empty.
        place_of = [setting_text(point.settings.get(name, "")) for name in settings]
        how_sure = f"how sure is {UNKNOWN}" if point.front_share is None else share_text(point.front_share)
        standing = f"{'yes' if point.on_front else 'no'}, {how_sure}"
        rows.append([*place_of, *(column[place] for column in columns), str(point.n), standing])
    lines += [table(rows, heads, width)]
    lines += sentences(_likes(front), width)
    lines += [line for default in front.defaults for line in _default_lines(default, width, unit)]
    return "\n".join([*lines, *sentences((f"note: {note}" for note in front.notes), width)])


_PLACES = {
    "on_front": "on the front: every other is surely worse in a figure",
    "equivalent": "not beaten by more than 5 %",
    "cannot_tell": "whether anything beats it is not known",
}


def _default_lines(default: Default, width: int, unit: str) -> list[str]:
    name = shown_settings(default.point.settings)
    lost = ", ".join(f"{loss_text(loss)} {metric_name(figure, unit)}" for figure, loss in default.loss.items())
    if default.dominated_by is not None:
        other = shown_settings(default.dominated_by.settings)
        return wrap(f"default {name}: beaten by {other}; it takes {lost}", width, indent="  ")
    ahead = ""
    if default.ahead is not None:
        ahead = f"; by the medians {shown_settings(default.ahead.settings)} is ahead: it takes {lost}"
    return wrap(f"default {name}: {_PLACES[default.word]}{ahead}", width, indent="  ")


def _likes(front: Front) -> list[str]:
    """`cannot be told apart: a; b`, once for each set of points that are all alike to each other or to the first."""
    told: list[str] = []
    seen: set[str] = set()
    for point in front.points:
        name = shown_settings(point.settings)
        others = [shown_settings(each) for each in point.not_told_from]
        if others and name not in seen:
            seen |= {name, *others}
            told.append(f"not distinguishable from {name}: {'; '.join(others)}")
    return told


MOST_ROWS = 60  # of one workload on a terminal; --json has all


def answers_text(modes: ModeTable, answers: Sequence[Answer], width: int = 80) -> str:
    """Each workload's predictions, and what to measure next."""
    parts = [_answer_text(modes, answer, width) for answer in answers]
    notes = notes_lines(modes, width)
    return "\n\n".join([*parts, *(["\n".join(notes)] if notes else [])])


def _answer_text(modes: ModeTable, answer: Answer, width: int) -> str:
    headers = [*modes.columns.features, *(part for name in modes.columns.names.values() for part in (name, "±"))]
    shown = answer.predictions[:MOST_ROWS]
    lines = [*wrap(_head(answer), width), table([_row(each) for each in shown], headers, width, indent="  ")]
    if len(answer.predictions) > len(shown):
        lines.append(f"  … and {len(answer.predictions) - len(shown)} more; --json has them all.")
    return "\n".join([*lines, *sentences(_sentences(modes, answer), width)])


def _head(answer: Answer) -> str:
    from tare.analysis.choose.surface import LEVEL

    who = f"{safe_text(answer.group)}, " if answer.group is not None else ""
    level = f"; a measurement lies within ± of it, {100 * LEVEL:.0f} % sure" if answer.method != "linear" else ""
    return f"{who}by {answer.method} from {len(answer.measured)} measured modes{level}:"


def _row(prediction: Prediction) -> list[str]:
    cells = [f"{value:g}" for value in prediction.mode]
    for estimate in prediction.figures.values():
        # The interval is as far both ways as a factor, so the upper end tells how far it reaches.
        reach = "" if estimate.high is None else f"{100 * (estimate.high / estimate.value - 1):.0f} %"
        cells += [f"{estimate.value:.4g}", reach]
    return cells


def _sentences(modes: ModeTable, answer: Answer) -> Iterable[str]:
    features = modes.columns.features
    if answer.taught_by:
        yield f"Learnt from the modes of {', '.join(map(safe_text, answer.taught_by))} as well."
    if answer.stages:
        stages = ", ".join(f"{name} {value:.3g}" for name, value in answer.stages.items())
        yield f"Stages at the highest clocks on the fewest cores, in {modes.columns.time}: {stages}."
    if answer.regression:
        from tare.analysis.choose.regression import SOLVER

        yield f"Solved by {SOLVER}."
        yield regression_text(answer.regression.rank, answer.regression.unknowns, answer.regression.condition)
    if answer.expected:
        how = "as the other workloads were off" if answer.taught_by else "by the uncertainty of the model"
        yield f"Expected error of a prediction, on average ({how}): {shares_text(answer.expected)}."
    if answer.errors:
        yield f"These modes were measured too; off by, on average: {shares_text(answer.errors)}."
    if answer.next:
        yield "Measure next: " + "; ".join(
            ", ".join(f"{name} {value:g}" for name, value in zip(features, choice.mode, strict=True))
            + f" ({100 * choice.removes:.0f} % of the variance that is left)"
            for choice in answer.next
        )


def shares_text(of: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in of.items())


def regression_text(rank: object, unknowns: object, condition: object) -> str:
    short = float(str(rank)) < float(str(unknowns))
    doubt = " So the modes do not determine it; of the many solutions it is the one of least norm." if short else ""
    return f"Rank {float(str(rank)):g} of {unknowns} unknowns, condition number {float(str(condition)):.3g}.{doubt}"


def notes_lines(modes: ModeTable, width: int) -> list[str]:
    return sentences((f"note: {note}" for note in modes.notes), width)


# A word of a job has no unit in its name; this is the name that would have it.
_WITH_UNIT = {"time": "time_s", "energy": "energy_j", "power": "power_w"}


def recommendations_text(found: Sequence[Recommendation], width: int = 80) -> str:
    """Each group's answer, one below the other."""
    alike = [note for note in found[0].notes if len(found) > 1 and all(note in each.notes for each in found)]
    told = [replace(each, notes=tuple(note for note in each.notes if note not in alike)) for each in found]
    notes = sentences((f"note: {note}" for note in alike), width)
    return "\n\n".join("\n".join(lines) for lines in (*(_answer(each, width) for each in told), notes) if lines)


def _answer(found: Recommendation, width: int) -> list[str]:
    title = f"{safe_text(found.group)}: " if found.group is not None else ""
    told = _nothing_fits(found, title) if found.best is None else _choice(found, found.best, title)
    told += _about_prediction(found)
    if found.next_trial is not None:
        gain = found.next_trial.expected_gain
        worth = "" if gain is None else f" (expected gain {share_text(gain)})"
        where = shown_settings(found.next_trial.settings)
        told.append(f"measure next: {where}: {safe_text(found.next_trial.reason)}{worth}")
    told += [_practice(each) for each in found.practices]
    return sentences([*told, *(f"note: {note}" for note in found.notes)], width)


def _choice(found: Recommendation, best: Candidate, title: str) -> list[str]:
    told = [f"{title}use {shown_settings(best.settings)}: {_figures(best)} ({count_text(best.n, 'trial')})"]
    if found.default is not None:
        told.append(_gain(found, best, found.default))
    for limit in found.limits:
        chance = best.chances[limit.name]
        kept = "unknown, measured once" if chance is None else chance_text(chance)
        what = f"{safe_text(limit.name)}, {_shown(limit.figure, limit.at_most)}"
        told.append(f"chance that the next run keeps the {what}: {kept}")
    if found.held_to is not None and found.held_to > found.confidence:
        told.append(
            f"held to {share_text(found.held_to)}, not {share_text(found.confidence)}, as several were in question"
        )
    lowest = f"the lowest {safe_text(found.minimised)}{' of those that fit' if found.limits else ''}"
    if found.best_share is None:
        told.append(f"whether it has {lowest} is not sure: it was measured once")
    else:
        told.append(f"it has {lowest} in {share_text(found.best_share)} of resamples")
    if found.rivals:  # who else may be the best
        named = "; ".join(shown_settings(each) for each in found.rivals[:3])
        more = f"; and {len(found.rivals) - 3:,} more" if len(found.rivals) > 3 else ""
        told.append(f"not surely better than {count_text(len(found.rivals), 'other')}: {named}{more}")
    return told


def _gain(found: Recommendation, best: Candidate, default: Candidate) -> str:
    if best.settings == default.settings:
        return "that is the default already"
    changes = ", ".join(f"{safe_text(name)} {loss_text(gain)}" for name, gain in found.gain.items())
    sure = f" {_VERDICTS[found.verdict]}" if found.verdict in _VERDICTS else ""
    return f"against the default ({shown_settings(default.settings)}): {changes}{sure}"


_VERDICTS = {
    "better": "(surely better, also after the search for the best)",
    "equivalent": "(within 5 %: the default is as good)",
    "cannot_tell": "(cannot tell: it may be no better than the default, so there is no reason yet to leave it)",
}


def _nothing_fits(found: Recommendation, title: str) -> list[str]:
    limits = ", ".join(f"{safe_text(limit.name)} {_shown(limit.figure, limit.at_most)}" for limit in found.limits)
    kept = f"{limits} with {share_text(found.confidence)} probability"
    told = [f"{title}nothing fits: none of {found.configurations:,} configurations keeps {kept}"]
    miss = found.nearest_miss
    if miss is not None:
        far = f"{share_text(miss.over)} over the {safe_text(miss.limit)}"
        if miss.over <= 0:
            chance = miss.candidate.keeps_all
            far = f"within the {safe_text(miss.limit)}" + (
                "" if chance is None else f", but its chance to keep all limits is {chance_text(chance)}"
            )
        told.append(f"nearest: {shown_settings(miss.candidate.settings)}: {_figures(miss.candidate)}; {far}")
    return told


def _about_prediction(found: Recommendation) -> list[str]:
    if found.predicted is None:
        return []
    hoped = found.predicted.figures[found.minimised]
    told = estimate_texts(_with_unit(found.minimised), hoped.value, hoped.low, hoped.high)
    where = shown_settings(found.predicted.settings)
    return [f"predicted to be better, not measured: {where}: {' '.join(filter(None, told))}"]


def _practice(finding: Finding) -> str:
    """`- the stall with one worker against none: -45.0 % [-47.1, -43.0] (S3 5.1.3)`."""
    if finding.estimate is None:
        return f"- {safe_text(finding.statement)} ({safe_text(finding.source)})"
    unsure = "" if finding.estimate.low is not None else f"; {count_text(finding.estimate.n, 'trial')}, no interval"
    return f"- {safe_text(finding.statement)}: {loss_text(finding.estimate)} ({safe_text(finding.source)}{unsure})"


def _figures(candidate: Candidate) -> str:
    return ", ".join(f"{safe_text(name)} {_shown(name, each.value)}" for name, each in candidate.figures.items())


def _shown(figure: str, value: float) -> str:
    return quantity_text(_with_unit(figure), value)


def _with_unit(figure: str) -> str:
    return _WITH_UNIT.get(figure, figure)

"""What `tare recommend` shows: the choice, what it gains, how sure it is, what to measure next, and what helps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.model import Finding
from tare.analysis.recommend import Candidate, Limit, Recommendation
from tare.report.deciding import chance_text, loss_text, sentences, shown_settings
from tare.report.words import count_text, quantity_text, safe_text, share_text

# A word of a job has no unit in its name; this is the name that would have it.
_WITH_UNIT = {"time": "time_s", "energy": "energy_j", "power": "power_w"}


def recommendations_text(found: Sequence[Recommendation], width: int = 80) -> str:
    """Each group's answer, one below the other."""
    return "\n\n".join("\n".join(_answer(each, width)) for each in found)


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
    told += [_kept(limit, best.chances) for limit in found.limits]
    if found.held_to is not None and found.held_to > found.confidence:
        told.append(
            f"held to {share_text(found.held_to)}, not {share_text(found.confidence)}, as several were in question"
        )
    lowest = f"the lowest {safe_text(found.minimised)}{' of those that fit' if found.limits else ''}"
    if found.best_share is None:
        told.append(f"whether it has {lowest} is not sure: it was measured once")
    else:
        told.append(f"it has {lowest} in {share_text(found.best_share)} of resamples")
    return told


def _gain(found: Recommendation, best: Candidate, default: Candidate) -> str:
    if best.settings == default.settings:
        return "that is the default already"
    changes = ", ".join(f"{safe_text(name)} {loss_text(gain)}" for name, gain in found.gain.items())
    return f"against the default ({shown_settings(default.settings)}): {changes}"


def _kept(limit: Limit, chances: Mapping[str, float | None]) -> str:
    chance = chances[limit.name]
    told = "unknown, measured once" if chance is None else chance_text(chance)
    return f"chance that the next run keeps the {safe_text(limit.name)}, {_shown(limit.figure, limit.at_most)}: {told}"


def _nothing_fits(found: Recommendation, title: str) -> list[str]:
    told = [f"{title}nothing fits: none of {found.configurations:,} configurations keeps {_limits(found)}"]
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


def _limits(found: Recommendation) -> str:
    each = [f"{safe_text(limit.name)} {_shown(limit.figure, limit.at_most)}" for limit in found.limits]
    return f"{', '.join(each)} with {share_text(found.confidence)} probability"


def _about_prediction(found: Recommendation) -> list[str]:
    if found.predicted is None:
        return []
    hoped = found.predicted.figures[found.minimised]
    within = (
        ""
        if hoped.low is None or hoped.high is None
        else (f" [{_shown(found.minimised, hoped.low)}, {_shown(found.minimised, hoped.high)}]")
    )
    where = shown_settings(found.predicted.settings)
    return [f"predicted to be better, not measured: {where}: {_shown(found.minimised, hoped.value)}{within}"]


def _practice(finding: Finding) -> str:
    """`- the stall with one worker against none: -45.0 % [-47.1, -43.0] (S3 5.1.3)`."""
    if finding.estimate is None:
        return f"- {safe_text(finding.statement)} ({safe_text(finding.source)})"
    unsure = "" if finding.estimate.low is not None else f"; {count_text(finding.estimate.n, 'trial')}, no interval"
    return f"- {safe_text(finding.statement)}: {loss_text(finding.estimate)} ({safe_text(finding.source)}{unsure})"


def _figures(candidate: Candidate) -> str:
    return ", ".join(f"{safe_text(name)} {_shown(name, each.value)}" for name, each in candidate.figures.items())


def _shown(figure: str, value: float) -> str:
    return quantity_text(_WITH_UNIT.get(figure, figure), value)

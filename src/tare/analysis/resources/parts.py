"""What a step, a request and a trial are made of, by level: sections with a stack for each level."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tare.analysis.model import Estimate, Weighing
from tare.analysis.sections import Section, Sentence, Shown, stack_chart
from tare.base.declare import Group, Role
from tare.base.text import in_units, metric_name
from tare.records.model import Record

Parts = Mapping[str, Mapping[str, float]]  # level -> part -> its amount

STEP_MEAN = Role.STEP_MEAN.metric
TIME, SHARE = "time_s", "part_share"
# Name of the section, title, and the parts in their order: marked by `phases: true`, or by an application.
MARKED = (
    ("training-parts", "Forward, backward and optimiser step", Group.TRAINING_PARTS.metrics),
    ("request-parts", "Pre-process, inference and post-process", Group.REQUEST_PARTS.metrics),
)


def parts_sections(weighing: Weighing, usable: Mapping[str, Sequence[Record]]) -> list[Section]:
    """Those that the trials have data for. `usable`: level -> its trials, in the order of the levels."""
    unit, levels = weighing.unit, list(dict.fromkeys([*usable, *weighing.medians]))
    medians = {level: weighing.medians[level] for level in levels if level in weighing.medians}
    means = _mean_parts(usable)
    if means:
        about = in_units("The mean step of the trial in the middle of its level; its parts add up to it. ", unit)
        names = {part: metric_name(part.replace("_mean_s", "_s")) for part in Group.MEAN_PARTS.metrics}
        found = [_section("step-parts", f"What a {unit} is made of", means, names, about)]
    else:
        about = f"Medians of the trials; they do not add up to the {unit}. "
        found = [_of_medians("step-parts", f"What a {unit} is made of", Group.STEP_PARTS.metrics, medians, about)]
    found += [_of_medians(*each, medians, "Medians of the trials. ") for each in MARKED]
    phases = {level: known for level in levels if (known := weighing.phases.get(level))}
    names = {phase: phase for known in phases.values() for phase in known}
    about = "`open` and `close` make and remove the platform; outside the run, the rest is tare's own. "
    found.append(_section("phases", "What a trial is made of", phases, names, about))
    return [section for section in found if section is not None]


def _of_medians(
    name: str, title: str, metrics: Sequence[str], medians: Mapping[str, Mapping[str, Estimate]], about: str
) -> Section | None:
    """Of the levels that have at least two of the parts."""
    parts = {
        level: {part: estimates[part].value for part in metrics if part in estimates}
        for level, estimates in medians.items()
    }
    parts = {level: known for level, known in parts.items() if len(known) > 1}
    return _section(name, title, parts, {part: metric_name(part) for part in metrics}, about)


def _section(name: str, title: str, parts: Parts, names: Mapping[str, str], about: str) -> Section | None:
    if not parts:
        return None
    return Section(name, title, lambda: stack_chart(parts, names, TIME, (about, *_widest(parts, names))))


def _mean_parts(usable: Mapping[str, Sequence[Record]]) -> dict[str, dict[str, float]]:
    """Level -> part -> its mean in the middle trial, or in both that are in the middle: as its median is made."""
    found = {}
    for level, records in usable.items():
        held = sorted((each.metrics for each in records if STEP_MEAN in each.metrics), key=lambda each: each[STEP_MEAN])
        middle = held[(len(held) - 1) // 2 : len(held) // 2 + 1]
        known = [part for part in Group.MEAN_PARTS.metrics if middle and all(part in each for each in middle)]
        if len(known) > 1:
            found[level] = {part: sum(each[part] for each in middle) / len(middle) for part in known}
    return found


def _widest(parts: Parts, names: Mapping[str, str]) -> Sentence:
    """The part whose share of the whole differs most between levels."""
    shares: dict[str, list[Shown]] = {}
    for level, known in parts.items():
        total = sum(known.values())
        for part, amount in known.items():
            if total > 0:
                shares.setdefault(part, []).append(Shown(SHARE, amount / total, level))
    if not shares:
        return ()
    part = max(
        shares, key=lambda name: max(s.numbers for s in shares[name])[0] - min(s.numbers for s in shares[name])[0]
    )
    return (f"{names[part][:1].upper()}{names[part][1:]}: ", *range_of(shares[part]), ".")


def range_of(figures: Sequence[Shown]) -> Sentence:
    """`12 % (bare) to 30 % (docker)`: the least and the most, and what they are of."""
    ordered = sorted(figures, key=lambda figure: figure.numbers[0])
    least, most = ordered[0], ordered[-1]
    if len(ordered) == 1:
        return (least, f" ({least.of})")
    return (least, f" ({least.of}) to ", most, f" ({most.of})")

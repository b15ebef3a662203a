"""What a comparison says, in words: the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tare.analysis.labels import name_words
from tare.analysis.model import Comparison, Difference, Estimate, FlaggedTrial, Weighing, Word
from tare.analysis.resources.bottlenecks import ADVICE, BUSY, NAMES, GpuUse, gpu_uses
from tare.analysis.selection import START_UP
from tare.analysis.sentences import (
    NO_TRIAL,
    confidence_text,
    direction_text,
    effect_of,
    floor_of,
    interaction_sentence,
    interval_of,
    note_text,
    sensitivity_of,
    verdict_phrase,
    what_costs,
)
from tare.base.columns import display_width, wrap
from tare.base.rulings import Ruling
from tare.base.text import (
    count_text,
    effect_text,
    estimate_texts,
    in_units,
    natural_key,
    quantity_text,
    quantity_texts,
    safe_text,
    share_text,
)
from tare.records.model import USABLE, grouped
from tare.report.columns import Chunk, Paint, flow, table
from tare.report.layout import some_of, varying_names

# Two medians and a paired effect are three different figures; from here on a reader would stumble over it.
VISIBLE_GAP = 0.01
VISIBLE_GAP_OF_SIGNS = 0.005
ANY_WIDTH = 10_000
NAMED_LEVELS = 3  # of trials that are left out for one reason
LISTED = 10  # trials named on the terminal; the report names all

_GPU = {  # metric -> what stands around its median
    BUSY: "busy {}",
    "gpu_idle_share": "idle {}",
    "gpu_memory_bytes": "{}",
    "gpu_power_w": "{}",
    "energy_gpus_step_j": "{} per step",
}
_SEVERAL = 1.5  # counts per step: below that it is one

_COLOURS: Mapping[Word, str] = {"slower": "31", "faster": "32", "equivalent": "36", "cannot_tell": "33"}


def medians_of(comparison: Comparison) -> tuple[str, str]:
    """The medians of `against` and of `level`, in one unit and one precision."""
    known = [estimate.value for estimate in (comparison.theirs, comparison.ours) if estimate is not None]
    texts = iter(quantity_texts(comparison.metric, known))
    theirs = next(texts) if comparison.theirs is not None else NO_TRIAL
    ours = next(texts) if comparison.ours is not None else NO_TRIAL
    return theirs, ours


def median_text(metric: str, estimate: Estimate) -> tuple[str, str]:
    """A median and its interval; the second is empty where there is no interval."""
    return estimate_texts(metric, estimate.value, estimate.low, estimate.high)


def medians_disagree(comparison: Comparison) -> str:
    """A sentence where the two medians alone tell another story than the paired effect; nothing otherwise."""
    ours, theirs = comparison.ours, comparison.theirs
    if comparison.effect is None or ours is None or theirs is None or theirs.value == 0:
        return ""
    alone = ours.value / theirs.value - 1
    other_sign = alone * comparison.effect < 0
    if abs(alone - comparison.effect) < (VISIBLE_GAP_OF_SIGNS if other_sign else VISIBLE_GAP):
        return ""
    paired = "paired block by block, which takes out what drifted between blocks"
    middle = "the middle of all differences between the two sides, not the difference of their medians"
    return (
        f"{safe_text(comparison.level)}: the two medians alone differ by {effect_text(alone)}; "
        f"the effect is {paired if comparison.paired else middle}."
    )


def counts_text(counts: Mapping[str, int]) -> str:
    """`22 of 24 trials; 2 invalid`: how much of the plan the figures rest on, and what became of the rest."""
    ended = {state: count for state, count in counts.items() if state != "planned" and count}
    usable = sum(ended.get(state, 0) for state in USABLE)
    planned = max(counts.get("planned", 0), sum(ended.values()))
    suspect = f" ({ended['suspect']:,} suspect)" if "suspect" in ended else ""
    pieces = [f"{usable:,} of {count_text(planned, 'trial')}{suspect}"]
    pieces += [f"{count:,} {safe_text(state)}" for state, count in ended.items() if state not in (*USABLE, "running")]
    if (missing := planned - sum(ended.values()) + ended.get("running", 0)) > 0:
        pieces.append(f"{missing:,} not run yet")
    return "; ".join(pieces)


def is_complete(counts: Mapping[str, int]) -> bool:
    """Whether every planned trial is there and plainly ok."""
    return counts.get("ok", 0) >= max(counts.get("planned", 0), sum(counts.values()) - counts.get("planned", 0))


def left_text(left: FlaggedTrial) -> str:
    """`docker, block 3: invalid: the machine swapped`."""
    why = " ".join(safe_text(reason) for reason in left.reasons)
    how = [] if left.state in USABLE else [safe_text(left.state)]
    return ": ".join([f"{safe_text(left.label)}, block {left.block}", *how, *([why] if why else [])])


def difference_text(difference: Difference) -> str:
    """`torch.version: docker has 2.13.0, bare has 2.12.1 (another build of torch)`."""
    why = f" ({safe_text(difference.why)})" if difference.why else ""
    return (
        f"{safe_text(difference.key)}: {safe_text(difference.level)} has {_held(difference.ours)}, "
        f"{safe_text(difference.against)} has {_held(difference.theirs)}{why}"
    )


def baselines(comparisons: Sequence[Comparison]) -> dict[str, list[Comparison]]:
    """The comparisons by what they are against: one baseline as a rule, several where other factors vary too."""
    return grouped(comparisons, lambda comparison: comparison.against)


def baseline_of(comparisons: Sequence[Comparison]) -> Estimate | None:
    """The median of the baseline that these comparisons share; None where it has no usable trial."""
    return next((each.theirs for each in comparisons if each.theirs is not None), None)


def coverage_text(comparisons: Sequence[Comparison]) -> str:
    """`98.3 % interval`, or just `interval` where Holm gave each its own coverage."""
    told = {confidence_text(each) for each in comparisons}
    return f"{told.pop()} interval" if len(told) == 1 else "interval"


def taints(weighing: Weighing) -> list[str]:
    """What makes the effect hard to blame on the level alone, each once."""
    told = [safe_text(taint) for comparison in weighing.comparisons for taint in comparison.tainted]
    known = told or [difference_text(difference) for difference in weighing.differences if difference.matters]
    return list(dict.fromkeys(known))


def hidden_by(weighing: Weighing) -> list[str]:
    """What the judged metric hides, with the code of each."""
    found = [each for comparison in weighing.comparisons for each in comparison.withheld]
    return list(dict.fromkeys(f"{safe_text(note_text(each))} ({each.code})" for each in found))


def _held(value: object) -> str:
    return "none" if value is None else safe_text(value)


def verdict_text(weighing: Weighing, width: int = 80, color: bool = False) -> str:
    """The whole answer for a terminal of `width` columns, the verdict first."""
    headline = _several if len(weighing.comparisons) > 1 else _one
    lines = [
        *_painted(wrap(safe_text(weighing.question), width), "1" if color else ""),
        # A side that never ran comes before every figure: nothing was compared with it.
        *_painted(_hanging_each(map(safe_text, weighing.never_ran), width), "1;31" if color else ""),
        *headline(weighing, width, color),
        *_hanging_each(map(safe_text, weighing.knees), width),
        *_also_tested(weighing, width, color),
        *_hanging_each(map(interaction_sentence, weighing.interactions), width),
        *_hanging_each([direction_text([*weighing.comparisons, *weighing.tested])], width),
        *_supporting(weighing.others, width),
        *_gpu_lines(weighing, width),
        *_doubts(weighing, width),
    ]
    return "\n".join(lines)


def _one(weighing: Weighing, width: int, color: bool) -> list[str]:
    if weighing.never_ran and all(each.effect is None for each in weighing.comparisons):
        return []
    if not weighing.comparisons and len(weighing.medians) > 1:
        return [_cells(weighing, width), *_hanging(counts_text(weighing.counts), width)]
    if not weighing.comparisons:
        return _hanging(f"nothing to compare yet: {counts_text(weighing.counts)}", width)
    comparison = weighing.comparisons[0]
    theirs, ours = medians_of(comparison)
    chunks = [
        Chunk(comparison.called),
        Chunk(f"{theirs} -> {ours}"),
        Chunk(effect_of(comparison), "   "),
        Chunk(interval_of(comparison)),
        Chunk(verdict_phrase(comparison), "   ", _colour(comparison, color)),
    ]
    seen = [
        Chunk(f"smallest effect this run could have seen: {sensitivity_of(comparison)}"),
        Chunk(f"A/A noise floor: {floor_of(comparison)}", "   "),
    ]
    return [*flow([chunk for chunk in chunks if chunk.text], width), *flow(seen, width, indent="")]


def _cells(weighing: Weighing, width: int) -> str:
    """Cells of which none is compared with another: the median of each."""
    known = {level: held[weighing.metric] for level, held in weighing.medians.items() if weighing.metric in held}
    rows = [[safe_text(level), *median_text(weighing.metric, each), str(each.n)] for level, each in known.items()]
    return _whole_rows(rows, [_factor(weighing), weighing.called, "interval", "trials"], width)


def _factor(weighing: Weighing) -> str:
    return safe_text(name_words(weighing.by.removesuffix(".state")))


def _several(weighing: Weighing, width: int, color: bool) -> list[str]:
    comparisons = weighing.comparisons
    headers = [_factor(weighing), weighing.called, "effect", coverage_text(comparisons), "verdict"]
    rows: list[list[str]] = []
    painted: dict[int, Comparison] = {}
    for against, held in baselines(comparisons).items():
        theirs = baseline_of(held)
        median = quantity_text(weighing.metric, theirs.value) if theirs is not None else NO_TRIAL
        rows.append([safe_text(against), median, "", "", "baseline"])
        for each in held:
            painted[len(rows)] = each
            figures = [medians_of(each)[1], effect_of(each), interval_of(each)]
            rows.append([safe_text(each.level), *figures, verdict_phrase(each).replace(", and ", ", ")])

    def paint(row: int, column: int) -> Paint | None:
        return _colour(painted[row], color) if column == len(headers) - 1 and row in painted else None

    seen = [sensitivity_of(each) for each in comparisons]
    if len(set(seen)) > 1:
        seen = [f"{safe_text(each.level)}: {told}" for each, told in zip(comparisons, seen, strict=True)]
    smallest = f"smallest effect this run could have seen: {'; '.join(dict.fromkeys(seen))}"
    known = [each for each in comparisons if each.aa_floor is not None]
    floor = floor_of(max(known, key=lambda each: each.aa_floor or 0.0)) if known else "not measured"
    rows_text = _whole_rows(rows, headers, width, paint)
    return [rows_text, *_hanging_each([smallest, f"A/A noise floor: {floor}"], width)]


def _also_tested(weighing: Weighing, width: int, color: bool) -> list[str]:
    """The tail and the start-up, tested in one family with the headline, and in words which of them costs."""
    if not weighing.tested:
        return []
    several = len(weighing.comparisons) > 1
    rows = []
    for each in weighing.tested:
        theirs, ours = medians_of(each)
        figures = [f"{theirs} -> {ours}", effect_of(each), interval_of(each), verdict_phrase(each)]
        rows.append([*([safe_text(each.level)] if several else []), each.called, *figures])

    def paint(row: int, column: int) -> Paint | None:
        return _colour(weighing.tested[row], color) if column == len(rows[row]) - 1 else None

    return [_whole_rows(rows, (), width, paint), *_hanging_each(costs_of(weighing), width)]


def costs_of(weighing: Weighing) -> list[str]:
    """Which costs, steady state or start-up, of each level that has both lines."""
    starts = {(each.level, each.against): each for each in weighing.tested if each.metric == START_UP}
    pairs = [(each, starts.get((each.level, each.against))) for each in weighing.comparisons]
    return [what_costs(steady, start) for steady, start in pairs if start is not None and steady.effect is not None]


def _hanging_each(sentences: Iterable[str], width: int) -> list[str]:
    return [line for sentence in sentences if sentence for line in _hanging(sentence, width)]


def _supporting(others: Sequence[Comparison], width: int) -> list[str]:
    """Further metrics, without a word of claim: the family of tests was declared on the headline."""
    if not others:
        return []
    levels = dict.fromkeys(each.level for each in others)
    lines = ["", *wrap("other metrics (not tested):", width)]
    for level in levels:
        indent = "  " if len(levels) == 1 else "    "
        lines += _hanging(safe_text(level), width, start="  ") if len(levels) > 1 else []
        rows = []
        for each in (one for one in others if one.level == level):
            theirs, ours = medians_of(each)
            rows.append([each.called, f"{theirs} -> {ours}", effect_of(each), interval_of(each)])
        lines.append(_whole_rows(rows, (), width, indent=indent))
    return lines


def _gpu_lines(weighing: Weighing, width: int) -> list[str]:
    """Busy, memory, power and energy of each level, what binds it, what to change; nothing where no GPU was watched."""
    sides = [side for each in weighing.comparisons for side in (each.against, each.level)]
    order = {side: place for place, side in enumerate(dict.fromkeys(sides))}  # as in the table above
    uses = sorted(gpu_uses(weighing.medians), key=lambda use: order.get(use.level, len(order)))
    if not uses:
        return []
    widest = max(display_width(safe_text(use.level)) for use in uses)
    lines = [""]
    for use in uses:
        name = safe_text(use.level)
        first = f"GPU, {name}:{' ' * (widest - display_width(name))} "
        if widest > width // 3:  # a long name has a line of its own
            lines, first = [*lines, *wrap(f"GPU, {name}:", width, indent="  ")], "  "
        lines += flow(_gpu_chunks(use, weighing.unit), width, first=first, indent="  ")
    for sentence in _gpu_advice(uses):
        lines += [f"  {line}" for line in wrap(in_units(sentence, weighing.unit), width - 2, indent="  ")]
    return lines


def _gpu_chunks(use: GpuUse, unit: str) -> list[Chunk]:
    """`busy 62.5 % [61.9, 63.0]`, and so on."""
    told = [
        Chunk(in_units(shown.format(" ".join(filter(None, median_text(metric, use.figures[metric])))), unit), "  ")
        for metric, shown in _GPU.items()
        if metric in use.figures
    ]
    if use.bound_share is not None and "energy_gpus_step_j" in use.figures:
        told.append(Chunk(f"(within {share_text(use.bound_share)})"))
    if use.binds is not None:
        told.append(Chunk(NAMES[use.binds], "   "))
    return told


def _gpu_advice(uses: list[GpuUse]) -> list[str]:
    """What to change, each sentence once; with the calls and copies that a step has."""
    told = []
    for use in uses:
        if use.binds is None:
            continue
        told.append(f"{NAMES[use.binds]}: {ADVICE[use.binds]}")
        if use.syncs >= 1 and use.binds != "gpu":
            calls = count_text(round(use.syncs), "call") if use.syncs < _SEVERAL else f"{use.syncs:.0f} calls"
            told.append(f"each step has {calls} that wait for the GPU.")
        if use.pageable >= 1 and use.binds != "gpu":
            told.append("each step copies from or to pageable memory: `pin_memory=True` of the DataLoader avoids it.")
    return list(dict.fromkeys(told))


def _whole_rows(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str],
    width: int,
    paint: Callable[[int, int], Paint | None] = lambda row, column: None,
    indent: str = "",
) -> str:
    """A table with nothing cut off; where it is too wide, each row flows over as many lines as it takes."""
    aligned = table(rows, headers, ANY_WIDTH, indent=indent)
    if max(map(display_width, aligned.splitlines())) <= width:
        return table(rows, headers, ANY_WIDTH, indent=indent, paint=paint)
    lines = wrap(f"{', '.join(headers)}:", width, indent="  ") if headers else []
    for number, row in enumerate(rows):
        chunks = [Chunk(cell, paint=paint(number, column)) for column, cell in enumerate(row) if cell]
        lines += flow(chunks, width, first=indent, indent=indent + "  ")
    return "\n".join(lines)


def _doubts(weighing: Weighing, width: int) -> list[str]:
    """What was left out, what taints the verdict and what else to know: nothing where all is well."""
    sentences = [f"tainted: {taint}" for taint in taints(weighing)]
    sentences += [f"not equivalent: {hidden}" for hidden in hidden_by(weighing)]
    sentences += [f"note: {text}" for each in weighing.comparisons if (text := medians_disagree(each))]
    sentences += [f"note: {note}" for note in notes_together(weighing)]
    sentences += [f"note: {safe_text(note)}" for note in weighing.notes]
    lines = [line for sentence in dict.fromkeys(sentences) for line in _hanging(sentence, width)]
    if weighing.comparisons and not is_complete(weighing.counts):
        lines += _hanging(counts_text(weighing.counts), width)
    lines += _listed("left out:", weighing.left_out, width)
    lines += _listed("outliers (marked, and included):", weighing.outliers, width)
    return ["", *lines] if lines else []


def notes_together(weighing: Weighing) -> list[str]:
    """The notes of all comparisons; one that several levels have is told once, with some of their names.

    Which way the metric is better stands by itself (`direction_text`).
    """
    names = varying_names([each.level for each in weighing.comparisons], weighing.by)
    alike: dict[str, dict[str, Ruling]] = {}  # the sentence -> the note of each level that has it
    for note in (note for each in weighing.comparisons for note in each.notes if note.code != "compare.rate"):
        alike.setdefault(note.sentence, {})[note.subject] = note
    told = []
    for held in alike.values():
        first, *others = held.values()
        every = "both" if len(names) == 2 else f"all {len(names)}"
        whose = every if len(held) == len(names) else some_of([names.get(level, level) for level in held])
        one = replace(first, subject=whose) if others else first
        told.append(safe_text(note_text(one)))
    return told


def _listed(heading: str, trials: Sequence[FlaggedTrial], width: int) -> list[str]:
    if not trials:
        return []
    lines = wrap(heading, width)
    reasons = list(grouped(trials, _same_reason).values())
    for same in reasons[:LISTED]:
        lines += _hanging(_together(same), width, start="  ", indent="    ")
    if (rest := sum(map(len, reasons[LISTED:]))) > 0:
        lines += _hanging(f"and {rest:,} more, all of them in the report", width, start="  ")
    return lines


def counted_reasons(trials: Sequence[FlaggedTrial]) -> list[tuple[int, str]]:
    """One line for each distinct reason, with how many trials have it, the most first."""
    groups = sorted(grouped(trials, _same_reason).values(), key=len, reverse=True)
    return [(len(same), _together(same)) for same in groups]


def _same_reason(left: FlaggedTrial) -> tuple[str, str, str]:
    """What makes two trials be left out for one reason; figures in the sentence differ. An outlier stands alone."""
    if left.state in USABLE or not left.reasons:
        return left.state, left.trial, ""
    return left.state, left.reasons[0].code, left.reasons[0].subject


def _together(same: Sequence[FlaggedTrial]) -> str:
    """Trials with one reason on one line: how many of each level, and the first one's own words."""
    first = same[0]
    example = f"{safe_text(first.trial)[:8]}"
    if len(same) == 1:
        return f"{left_text(first)} ({example})"
    levels = grouped(same, lambda each: each.label)
    counts = [f"{len(levels[level])} of {safe_text(level)}" for level in sorted(levels, key=natural_key)]
    which = ", ".join(counts) if len(counts) <= NAMED_LEVELS else f"{len(same)} in {len(counts)} cells"
    why = " ".join(safe_text(reason) for reason in first.reasons)
    return f"{which}: {safe_text(first.state)}: {why} ({example}, for one)"


def _hanging(text: str, width: int, *, start: str = "", indent: str = "  ") -> list[str]:
    first, *later = wrap(text, max(1, width - len(start)), indent=indent[len(start) :]) or [""]
    return [start + first, *(start + line for line in later)]


def _colour(comparison: Comparison, color: bool) -> Paint | None:
    code = _COLOURS[comparison.verdict]
    return (lambda text: f"\x1b[1;{code}m{text}\x1b[0m") if color else None


def _painted(lines: Iterable[str], code: str) -> list[str]:
    return [f"\x1b[{code}m{line}\x1b[0m" if code and line else line for line in lines]

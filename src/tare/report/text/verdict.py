"""What a comparison says, in words: the same on the terminal and on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from tare.analysis.answer import answer, medians_disagree, names_of, some_names
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
    open_reason,
    plain_verdict,
    row_word,
    sensitivity_of,
    what_costs,
)
from tare.base.columns import display_width, wrap
from tare.base.declare import Role
from tare.base.rulings import Ruling
from tare.base.text import (
    count_text,
    estimate_texts,
    in_units,
    natural_key,
    quantity_texts,
    safe_text,
    share_text,
)
from tare.records.model import USABLE, grouped
from tare.report.columns import Chunk, Paint, flow, table
from tare.report.layout import some_of, varying_names, whole_names

ANY_WIDTH = 10_000
NAMED_LEVELS = 3  # of trials that are left out for one reason
LISTED = 10  # trials named on the terminal; the report names all
MOST_ROWS = 10  # contrasts with a row of their own
MOST_DOUBTS = 2  # told beside the short answer
OUTSIDE_TIME = "compare.outside-time"

_GPU = {  # metric -> what stands around its median, of those where that is anything
    BUSY: "busy {}",
    Role.GPU_IDLE.metric: "idle {}",
    Role.GPU_ENERGY.metric: "{} per step",
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
    """What the judged metrics hide, with the code of each, and what that did to the verdict."""
    found = [(each, why) for each in (*weighing.comparisons, *weighing.tested) for why in each.withheld]
    return list(
        dict.fromkeys(f"{_made_of(each, why)}: {safe_text(note_text(why))} ({why.code})" for each, why in found)
    )


def _made_of(comparison: Comparison, why: Ruling) -> str:
    if comparison.verdict in ("slower", "faster"):
        return "doubtful"
    return "no verdict" if why.code == OUTSIDE_TIME else "not equivalent"


def judged_instead(weighing: Weighing) -> list[str]:
    """Why whole runs are judged, where the sides report a step that the time from outside contradicts."""
    found = [note for each in weighing.comparisons for note in each.notes if note.code == OUTSIDE_TIME]
    return list(dict.fromkeys(safe_text(note_text(note)) for note in found))


def _held(value: object) -> str:
    return "none" if value is None else safe_text(value)


def verdict_text(weighing: Weighing, width: int = 80, color: bool = False, *, verbose: bool = False) -> str:
    """The answer for a terminal of `width` columns: a sentence, then a row for each contrast, then what taints it.

    `verbose`: then all else that is known.
    """
    lines = [
        # A side that never ran comes before every figure: nothing was compared with it.
        *_painted(_hanging_each(map(safe_text, weighing.never_ran), width), "1;31" if color else ""),
        *_answer(weighing, width, color),
        *_hanging_each(map(safe_text, weighing.knees), width),
        *_rows(weighing, width, color),
        *_hanging_each(_guessed(weighing), width),
    ]
    lines += _all_else(weighing, width) if verbose else _first_doubts(weighing, width)
    return "\n".join(lines)


def _is_compared(weighing: Weighing) -> bool:
    """Whether there is a side to compare: where one never ran, that has been said."""
    never = weighing.never_ran and all(each.effect is None for each in weighing.comparisons)
    return bool(weighing.comparisons) and not never


def _answer(weighing: Weighing, width: int, color: bool) -> list[str]:
    if _is_compared(weighing):
        return _painted(wrap(answer(weighing), width, indent="  "), "1" if color else "")
    if weighing.never_ran:
        return []
    what = "nothing was compared" if len(weighing.medians) > 1 else "nothing to compare yet"
    said = f"{safe_text(weighing.question)}: {what}, {counts_text(weighing.counts)}"
    lines = _painted(_hanging(said, width), "1" if color else "")
    if len(weighing.medians) > 1:
        lines.append(_cells(weighing, width))
    return [*lines, *_hanging_each(map(safe_text, weighing.notes), width)]


def _cells(weighing: Weighing, width: int) -> str:
    """Cells of which none is compared with another: the median of each."""
    known = {level: held[weighing.metric] for level, held in weighing.medians.items() if weighing.metric in held}
    rows = [[safe_text(level), *median_text(weighing.metric, each), str(each.n)] for level, each in known.items()]
    return _whole_rows(rows, [_factor(weighing), weighing.called, "interval", "trials"], width)


def _factor(weighing: Weighing) -> str:
    return safe_text(name_words(weighing.by.removesuffix(".state")))


def _rows(weighing: Weighing, width: int, color: bool) -> list[str]:
    """A row for each contrast that is judged; of many those that are decided or decide the question, others by name."""
    if not _is_compared(weighing):
        return []
    judged = [*weighing.comparisons, *weighing.tested]
    shown = _to_show(weighing)
    names, pairs = _row_names(weighing), len({(each.level, each.against) for each in judged})
    named, mixed = pairs > 1, len({each.metric for each in shown}) > 1
    rows = []
    for each in shown:
        theirs, ours = medians_of(each)
        figures = [_from_to(theirs, ours), effect_of(each), interval_of(each), row_word(each)]
        name = [names[each.level, each.against]] if named else []
        rows.append([*name, *([each.called] if mixed or not named else []), *figures])
    # Rows are named by what the contrasts differ in; where all levels are one, that is not the factor.
    of_rows = "" if names_of(weighing.comparisons).subject else _factor(weighing)
    headers = [of_rows, *(["metric", "medians"] if mixed else [weighing.called])] if named else []
    headers += ["effect", coverage_text(shown), "verdict"] if named else []

    def paint(row: int, column: int) -> Paint | None:
        return _colour(shown[row], color) if column == len(rows[row]) - 1 else None

    lines = [_whole_rows(rows, headers, width, paint, indent="  ", drop=len(rows[0]) - 4)]
    rest = [each for each in judged if each not in shown]
    for (metric, word), its in grouped(rest, lambda each: (each.called, plain_verdict(each))).items():
        of = f"{metric}, " if mixed or metric != weighing.called else ""
        which = some_names([names[each.level, each.against] for each in its])
        lines += _hanging(f"{of}{word}: {len(its)} ({which})", width, start="  ", indent="    ")
    return lines


def _from_to(theirs: str, ours: str) -> str:
    """`13.2 -> 14.8 ms`: where both are in one unit it stands once."""
    number, _, unit = theirs.partition(" ")
    return f"{number if unit and ours.endswith(f' {unit}') else theirs} -> {ours}"


def _to_show(weighing: Weighing) -> list[Comparison]:
    """All where they are few; else what is decided, the largest first where that is too much, and what is open."""
    judged = [*weighing.comparisons, *weighing.tested]
    if len(judged) <= MOST_ROWS:
        return judged
    decided = [each for each in judged if each.verdict in ("slower", "faster")]
    largest = sorted(decided, key=lambda each: (each.metric != weighing.metric, -abs(each.effect or 0.0)))
    still_open = [each for each in weighing.comparisons if each.verdict == "cannot_tell"]
    chosen = [*largest, *still_open, *judged][:MOST_ROWS]
    return [each for each in judged if each in chosen]


def _row_names(weighing: Weighing) -> dict[tuple[str, str], str]:
    """What each contrast is called in its row; a number of a table is named with its column."""
    found = weighing.comparisons
    short = names_of(found).rest if len(found) > 1 else [safe_text(each.level) for each in found]
    named = whole_names(short, weighing.by)
    return {(each.level, each.against): named.get(one, one) for each, one in zip(found, short, strict=True)}


def _guessed(weighing: Weighing) -> list[str]:
    """Which way is better, where neither the name of the metric nor the user says it."""
    return [direction_text([each for each in weighing.comparisons[:1] if not each.direction.settled])]


def _first_doubts(weighing: Weighing, width: int) -> list[str]:
    """What taints the answer, and how much of the plan it rests on; the rest is in the long form."""
    told = [f"judged by whole runs: {why}" for why in judged_instead(weighing)]
    told += [f"tainted: {taint}" for taint in taints(weighing)]
    told += hidden_by(weighing)
    told += _why_open(weighing)
    told += [medians_disagree(each) for each in weighing.comparisons if _other_way(each)]
    if len(told) > MOST_DOUBTS:
        told = [*told[:MOST_DOUBTS], f"{len(told) - MOST_DOUBTS} more of this kind: -v"]
    if weighing.comparisons and not is_complete(weighing.counts):
        told.append(counts_text(weighing.counts))
    return _hanging_each(told, width)


def _why_open(weighing: Weighing) -> list[str]:
    """Why an interval without zero tells nothing, where `hidden_by` does not say so."""
    unclear = [
        each
        for each in weighing.comparisons
        if each.verdict == "cannot_tell" and not each.withheld and ((each.low or 0.0) > 0 or (each.high or 0.0) < 0)
    ]
    names = _row_names(weighing)
    told = []
    for why, its in grouped(unclear, open_reason).items():
        of = f", {some_names([names[each.level, each.against] for each in its])}" if len(names) > 1 else ""
        told.append(f"cannot tell{of}: {why}")
    return told


def _other_way(each: Comparison) -> bool:
    """Whether the two medians stand in the row as if the effect had the other sign."""
    if each.ours is None or each.theirs is None or each.effect is None:
        return False
    return bool(medians_disagree(each)) and (each.ours.value - each.theirs.value) * each.effect < 0


def _all_else(weighing: Weighing, width: int) -> list[str]:
    """What was asked, what could have been seen, the metrics that are not tested, and everything there is to doubt."""
    seen = {safe_text(each.level): (sensitivity_of(each), floor_of(each)) for each in weighing.comparisons}
    alike = len(set(seen.values())) == 1
    lines = ["", *wrap(f"question: {safe_text(weighing.question)}", width, indent="  ")]
    for level, (smallest, noise) in list(seen.items())[: 1 if alike else None]:
        of = "" if alike else f"{level}: "
        lines += _hanging(f"{of}smallest effect this run could have seen: {smallest}", width)
        lines += _hanging(f"{of}two runs of the same thing differ by: {noise}", width)
    lines += _hanging_each([direction_text([*weighing.comparisons, *weighing.tested])], width)
    lines += _hanging_each([*costs_of(weighing), *map(interaction_sentence, weighing.interactions)], width)
    return [*lines, *_supporting(weighing.others, width), *_gpu_lines(weighing, width), *_doubts(weighing, width)]


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
        Chunk(in_units(_GPU.get(metric, "{}").format(" ".join(filter(None, median_text(metric, value)))), unit), "  ")
        for metric, value in use.figures.items()
    ]
    if use.bound_share is not None and Role.GPU_ENERGY.metric in use.figures:
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
    drop: int | None = None,
) -> str:
    """A table with nothing cut off; where it is too wide, without the column `drop`, and where that is not enough each
    row flows over as many lines as it takes.
    """
    wanted = [(rows, headers, paint)]
    if drop is not None:
        fewer = [[*row[:drop], *row[drop + 1 :]] for row in rows]
        wanted.append((fewer, [*headers[:drop], *headers[drop + 1 :]], lambda row, at: paint(row, at + (at >= drop))))
    for its, heads, painter in wanted:
        if max(map(display_width, table(its, heads, ANY_WIDTH, indent=indent).splitlines())) <= width:
            return table(its, heads, ANY_WIDTH, indent=indent, paint=painter)
    lines = wrap(f"{', '.join(filter(None, headers))}:", width, indent="  ") if headers else []
    for number, row in enumerate(rows):
        chunks = [Chunk(cell, paint=paint(number, column)) for column, cell in enumerate(row) if cell]
        lines += flow(chunks, width, first=indent, indent=indent + "  ")
    return "\n".join(lines)


def _doubts(weighing: Weighing, width: int) -> list[str]:
    """What was left out, what taints the verdict and what else to know: nothing where all is well."""
    sentences = [f"tainted: {taint}" for taint in taints(weighing)]
    sentences += hidden_by(weighing)
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

"""What an analysis tells people: a closed list of notes, so that their wording is in one place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tare.analysis.statistics import FLOOR
from tare.base.rulings import Ruling

NO_COMMON_BLOCK = Ruling(
    "compare.no-common-block",
    "note",
    "",
    "No block has both sides, so nothing can be paired: no interval and no verdict.",
)
SOME_WITHOUT_BLOCK = Ruling(
    "compare.without-block",
    "note",
    "",
    "Some trials have no block, so the sides are compared as two samples, not block by block.",
)
SEVERAL_IN_A_BLOCK = Ruling(
    "compare.several-in-block",
    "note",
    "",
    "Where a side has several trials in a block, their median is used: the block is the unit.",
)
LOOKING = (
    "The run looked at its intervals after each block, so they have 96.5 % coverage instead of 95 %: "
    "that is the price of stopping when they are tight enough."
)


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def signed_percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:+.{digits}f} %"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def blocks_left_out(count: int) -> Ruling:
    return Ruling(
        "compare.blocks-left-out",
        "note",
        "",
        f"{counted(count, 'block')} left out: one of the two sides is missing there.",
    )


def unit(paired: bool) -> str:
    return "block" if paired else "trial"


def about(level: str, note: Ruling) -> Ruling:
    """The same of one level; whoever prints it names the level (`note_text`)."""
    return replace(note, subject=level)


def note_text(note: Ruling) -> str:
    """A note of a comparison as people read it: `docker: only 3 blocks with both sides ...`."""
    said = note.sentence
    return f"{note.subject}: {said[:1].lower()}{said[1:]}" if note.subject else said


def too_few(n: int, paired: bool) -> Ruling:
    have = f"{counted(n, 'block')} with both sides" if paired else f"{counted(n, 'trial')} on the smaller side"
    return Ruling(
        "compare.too-few",
        "note",
        "",
        f"Only {have}: no 95 % interval and no claim below {FLOOR}. "
        f"{counted(FLOOR - n, f'more {unit(paired)}')} {'is' if FLOOR - n == 1 else 'are'} needed.",
    )


def too_few_for_interval(n: int, paired: bool) -> str:
    return f"too few {unit(paired)}s for an interval ({n})"


def no_trial(level: str) -> Ruling:
    return Ruling(
        "compare.no-trial",
        "note",
        "",
        f"No usable trial of {level!r}.",
    )


def below_floor(effect: float, floor: float) -> Ruling:
    return Ruling(
        "compare.below-floor",
        "note",
        "",
        f"The effect ({signed_percent(effect)}) does not exceed the A/A noise floor ({percent(floor)}): "
        "two runs of the same thing differed by as much here.",
    )


def holm(levels: Sequence[float]) -> Ruling:
    least, most = percent(1 - max(levels)), percent(1 - min(levels))
    at = least if least == most else f"{least} to {most}"
    return Ruling(
        "compare.holm",
        "note",
        "",
        f"Holm over {len(levels)} comparisons: their intervals are at {at}, so that the claims hold together.",
    )


def few_ranks(n: int, paired: bool, confidence: float) -> Ruling:
    return Ruling(
        "compare.few-ranks",
        "note",
        "",
        f"{counted(n, unit(paired))} cannot reach {percent(confidence)} by ranks alone: the interval is the wider of "
        "their range and of Student's t on the logarithms, which leans on noise being normal. More trials avoid that.",
    )


UNLIKE_SIDES = Ruling(
    "compare.unlike-sides",
    "note",
    "",
    "The two samples differ much in size or in spread, which ranks alone would take for a shift too often: "
    "the interval is the wider of theirs and Welch's t on the logarithms. Blocks with both sides avoid that.",
)


def stands_out(metric: str) -> Ruling:
    sentence = (
        f"its {metric} is more than ten robust standard deviations from the median of its level "
        "(where most trials tie: more than 10 % off it)."
    )
    return Ruling("figure.outlier", "note", metric, sentence)


def out_of_reach(most: int) -> Ruling:
    return Ruling(
        "compare.out-of-reach",
        "note",
        "",
        f"At this noise a verdict would take more than {most:,} trials: lower the noise or widen the margin.",
    )


def more_is_faster(metric: str) -> Ruling:
    return Ruling(
        "compare.rate",
        "note",
        "",
        f"{metric} is a rate: more of it is taken as faster.",
    )


def baseline_chosen(level: str) -> Ruling:
    return Ruling(
        "compare.baseline-chosen",
        "note",
        "",
        f"Compared against {level!r}, the default.",
    )


def one_level(by: str, level: str) -> str:
    return f"There is only one level of {by} ({level!r}) so far: nothing to compare it with."


def not_a_ratio(metric: str, trials: int) -> str:
    return f"{metric} is zero in {counted(trials, 'trial')}, so it is not compared: a ratio needs more than zero."


def suspects_kept(count: int) -> str:
    return f"{counted(count, 'suspect trial')} {'is' if count == 1 else 'are'} included; see `tare show`."


def run_again(count: int) -> str:
    return f"{counted(count, 'attempt')} {'was' if count == 1 else 'were'} invalid and repeated; all are kept."


def stop_rule(until: float, most: int | None, blocks: int, run: int, met: bool) -> str:
    """`blocks` could be used, of those that were `run`."""
    cap = f", at most {most} blocks" if most is not None else ""
    used = counted(blocks, "block") if blocks >= run else f"{counted(blocks, 'block')} usable, of {run}"
    how = f"met after {used}" if met else f"not met after {used}"
    return f"Stop rule, declared before the run: every interval within ±{percent(until)}{cap}. It was {how}."

"""What an analysis tells people: a closed list of notes and verdicts, so that their wording is in one place.

The terminal, the report and `--json` print these sentences and make none of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any, NamedTuple

from tare.analysis.cells import KEPT_BACK
from tare.analysis.directions import Direction, direction_of, kind_of
from tare.analysis.model import Comparison, Interaction, Marked, Word
from tare.analysis.numeric.medians import FLOOR
from tare.base.declare import Role
from tare.base.rulings import Ruling
from tare.base.text import count_text, effect_text, going_on, in_units, interval_text, safe_text, share_text
from tare.records.model import Record


def _note(code: str, sentence: str) -> Ruling:
    """A note on a comparison, of no subject yet (`about`)."""
    return Ruling(code, "note", "", sentence)


def _note_of(subject: str, code: str, sentence: str) -> Ruling:
    return Ruling(code, "note", subject, sentence)


NO_COMMON_BLOCK = _note(
    "compare.no-common-block", "No block has both sides, so nothing can be paired: no interval and no verdict."
)
SOME_WITHOUT_BLOCK = _note(
    "compare.without-block", "Some trials have no block, so the sides are compared as two samples, not block by block."
)
SEVERAL_IN_A_BLOCK = _note(
    "compare.several-in-block",
    "Where a side has several trials in a block, their median is used: the block is the unit.",
)
CPU_TIME = (
    "CPU time leaves out all waiting: for other processes on the same cores, for a quota, for locks, for disks and the "
    "network. A side that waits longer has no more of it; the mean step has both."
)
MANY_BLOCKS = 15  # more than that is worth another design
LOOKING = (
    "The run looked at its intervals after each block, so they have 96.5 % coverage instead of 95 %: "
    "that is the price of stopping when they are tight enough."
)


def noisy(of: Sequence[str] = ()) -> str:
    """What helps against noise; `of`: the levels, where it is not all."""
    which = f" of {'; '.join(of)}" if of else ""
    return (
        f"the noise of this machine hides the answer{which}: `--set design.cpu_time=true` judges what "
        "it leaves alone. See docs/how-to/noisy-machine.md."
    )


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"


def signed_percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:+.{digits}f} %"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def blocks_left_out(count: int) -> Ruling:
    return _note(
        "compare.blocks-left-out", f"{counted(count, 'block')} left out: one of the two sides is missing there."
    )


def unit(paired: bool) -> str:
    return "block" if paired else "trial"


def about(level: str, note: Ruling) -> Ruling:
    """The same of one level; whoever prints it names the level (`note_text`)."""
    return replace(note, subject=level)


def note_text(note: Ruling) -> str:
    """A note of a comparison as people read it: `docker: only 3 blocks with both sides ...`."""
    said = note.sentence
    return f"{note.subject}: {going_on(said)}" if note.subject else said


def too_few(n: int, paired: bool) -> Ruling:
    have = f"{counted(n, 'block')} with both sides" if paired else f"{counted(n, 'trial')} on the smaller side"
    return _note(
        "compare.too-few",
        f"Only {have}: no 95 % interval and no claim below {FLOOR}. "
        f"{counted(FLOOR - n, f'more {unit(paired)}')} {'is' if FLOOR - n == 1 else 'are'} needed.",
    )


def too_few_for_interval(n: int, paired: bool) -> str:
    return f"too few {unit(paired)}s for an interval ({n})"


def no_trial(level: str) -> Ruling:
    return _note("compare.no-trial", f"No usable trial of {level!r}.")


def below_floor(effect: float, floor: float) -> Ruling:
    return _note(
        "compare.below-floor",
        f"The effect ({signed_percent(effect)}) does not exceed the noise: two runs of the same thing differed by "
        f"{percent(floor)} here.",
    )


def holm(levels: Sequence[float]) -> Ruling:
    least, most = percent(1 - max(levels)), percent(1 - min(levels))
    at = least if least == most else f"{least} to {most}"
    return _note(
        "compare.holm",
        f"{len(levels)} comparisons are judged together: their intervals are at {at}, so that all their claims hold.",
    )


def few_ranks(n: int, paired: bool, confidence: float) -> Ruling:
    return _note(
        "compare.few-ranks",
        f"{counted(n, unit(paired))} cannot reach {percent(confidence)} by ranks alone: the interval is the wider of "
        "their range and of Student's t on the logarithms, which leans on noise being normal. More trials avoid that.",
    )


UNLIKE_SIDES = _note(
    "compare.unlike-sides",
    "The two samples differ much in size or in spread, which ranks alone would take for a shift too often: "
    "the interval is the wider of theirs and Welch's t on the logarithms. Blocks with both sides avoid that.",
)


def stands_out(metric: str) -> Ruling:
    sentence = (
        f"its {metric} is more than ten robust standard deviations from the median of its level "
        "(and more than 1 % off it; where most trials tie, more than 10 %)."
    )
    return Ruling("figure.outlier", "note", metric, sentence)


def out_of_reach(most: int) -> Ruling:
    return _note(
        "compare.out-of-reach",
        f"At this noise a verdict would take more than {most:,} trials: lower the noise or widen the margin.",
    )


def by_error_rate(metric: str) -> str:
    return f"{metric} is compared by its error rate: 0.99 is an error of 0.01, and 0.95 is five times that."


def direction_note(metric: str, direction: Direction) -> Ruling:
    code = "compare.rate" if direction.settled else "compare.direction-guessed"
    return Ruling(code, "note", "", f"{metric}: {direction}.")


def baseline_chosen(level: str) -> Ruling:
    return _note("compare.baseline-chosen", f"Compared against {level!r}, the default.")


def no_baseline(by: str, levels: Sequence[str]) -> str:
    """Why nothing is compared: there is one level, or several of which none was named."""
    if len(levels) == 1:
        return f"There is only one level of {by} ({levels[0]!r}) so far: nothing to compare it with."
    which = f"the study does not say which of the {len(levels)} levels of {by} the others are compared with"
    how = f"`tare compare STORE --against '{levels[0]}'` compares them with one, `--by NAME` by another factor"
    return f"Nothing was compared: {which}. {how}."


def not_a_ratio(metric: str, trials: int) -> str:
    return f"{metric} is zero in {counted(trials, 'trial')}, so it is not compared: a ratio needs more than zero."


def in_turns(facts: Sequence[Mapping[str, Any]]) -> list[str]:
    """How trials took turns, from what their records tell; nothing where none did."""
    of_turns = [each["turns"] for each in facts if "turns" in each]
    turns = {(each["steps"], each["count"], "core" in each) for each in of_turns}
    told = [
        f"the sides took turns of {steps:,} steps, {count:,} in a pair{', both on one core' if one_core else ''}"
        for steps, count, one_core in sorted(turns)
    ]
    lengths = sorted({round(each["slices"]["length_s"] * 1e3) for each in facts if "slices" in each})
    if lengths:
        span = " to ".join(str(each) for each in dict.fromkeys((lengths[0], lengths[-1])))
        told.append(f"the sides took turns in slices of {span} ms")
    made = [f"{each}. Start-up and the whole run are timed without the stops." for each in told]
    if any(each.get("together") for each in of_turns):
        made.append(
            "the sides of a pair started at the same time, so that their start-up is shown and not judged: with more "
            "time (`--budget 5min`) they start one after the other."
        )
    return made


def run_again(count: int) -> str:
    return f"{counted(count, 'attempt')} {'was' if count == 1 else 'were'} invalid and repeated; all are kept."


def ran_as_root(levels: Sequence[str]) -> str:
    names = " and ".join(levels)
    how = "`user: caller` or `user: 1000` there runs it as another user."
    return f"{names}: the workload was root in its container; {how}"


def stop_rule(until: float, most: int | None, blocks: int, run: int, met: bool) -> str:
    """`blocks` could be used, of those that were `run`."""
    cap = f", at most {most} blocks" if most is not None else ""
    used = counted(blocks, "block") if blocks >= run else f"{counted(blocks, 'block')} usable, of {run}"
    how = f"met after {used}" if met else f"not met after {used}"
    return f"Stop rule, declared before the run: every interval within ±{percent(until)}{cap}. It was {how}."


def added(seen: Sequence[int], alpha: float) -> str:
    """That blocks were added to a run that had been judged, and what that costs."""
    looks = " and ".join(f"{count}" for count in seen)
    return (
        f"Blocks were added after the run had been judged with {looks}, so its intervals have {percent(1 - alpha)} "
        "coverage instead of 95 %: that is the price of a second look."
    )


# What a metric hides: with any of these no level is called equivalent


def long_steps(found: Comparison, level: str, share: float) -> Ruling:
    return _note_of(
        found.level,
        "compare.long-steps",
        in_units(
            f"the five longest steps of {level!r} hold {percent(share)} of the time of all, which is more than half of "
            f"the margin: how many of them a run has is chance. More blocks tell.",
            found.unit,
        ),
    )


def carried_over(found: Comparison, later: Comparison) -> Ruling:
    return _note_of(
        found.level,
        "compare.carry-over",
        in_units(
            f"without the first three steps of each turn the mean step is {effect_of(later)}, which is outside the "
            "interval: one side slows the other's first steps. `--set design.runs=blocks` runs them apart.",
            found.unit,
        ),
    )


def mean_and_median(mean: Comparison, median: Comparison, per: str = "") -> Ruling:
    return _note_of(
        mean.level,
        "compare.mean-and-median",
        in_units(
            f"mean and median of the steps disagree by more than the margin: the mean step{per} is {effect_of(mean)}, "
            f"the median step{per} {effect_of(median)}. Some steps are much longer on one side.",
            mean.unit,
        ),
    )


def throttled_sides(level: str, against: str, ours: Stops, theirs: Stops, *, unit: str) -> Ruling:
    return _note_of(
        level,
        "compare.throttled",
        f"the CPU quota stopped {level!r} for {ours.text()} and {against!r} for {theirs.text()}: a {unit} that is "
        "stopped is rare and long.",
    )


class Stops(NamedTuple):
    """How often and how long a CPU quota stopped the trials of one side, in the mean.

    The kernel adds up the time of every core on which a thread was stopped, which may be longer than the trial.
    """

    seconds: float
    times: float
    stopped: int  # trials in which it did
    trials: int

    @classmethod
    def of(cls, records: Sequence[Record]) -> Stops:
        seconds = [record.metrics.get(Role.THROTTLED.metric, 0.0) for record in records] or [0.0]
        times = [record.metrics.get(Role.THROTTLES.metric, 0.0) for record in records] or [0.0]
        stopped = sum(bool(each or count) for each, count in zip(seconds, times, strict=True))
        return cls(fmean(seconds), fmean(times), stopped, len(records))

    def text(self) -> str:
        some = f" in {self.stopped} of {self.trials} trials" if 0 < self.stopped < self.trials else ""
        often = f", {self.times:.0f} times{some}" if self.times >= 1 else some
        return f"{self.seconds:.2f} s per trial (summed over cores{often})"


def outside_of_steps(level: str, against: str, ours_s: float, theirs_s: float, more: Comparison) -> Ruling:
    return _note_of(
        level,
        "compare.outside-steps",
        f"evaluation, checkpoints and exit take {ours_s:.3g} s of a trial of {level!r} and "
        f"{theirs_s:.3g} s of {against!r}: {effect_of(more)} {interval_of(more)} of the whole run, which "
        f"neither the {more.unit}s nor the start-up show.",
    )


def major_faults(level: str, against: str, ours: float, theirs: float) -> Ruling:
    return _note_of(
        level,
        "compare.major-faults",
        f"a trial of {level!r} had {ours:,.0f} major page faults and one of {against!r} {theirs:,.0f}: the sides did "
        "not read the same from disk.",
    )


def epoch_tail(epoch: Comparison, step: Comparison) -> Ruling:
    return _note_of(
        epoch.level,
        "compare.epoch-tail",
        f"a whole epoch is {effect_of(epoch)} and its steps {effect_of(step)}: the sides differ between the steps.",
    )


def failed_trials(level: str, against: str, ours: int, theirs: int, trials: int) -> Ruling:
    return _note_of(
        level,
        "compare.failed-trials",
        f"{ours} of {trials} trials of {level!r} failed, and {theirs} of {against!r}: what is compared are those that "
        "came to their end.",
    )


def dropped_trials(level: str, side: str, dropped: Mapping[str, int], trials: int) -> Ruling:
    return _note_of(
        level,
        "compare.dropped-trials",
        f"{dropped_text(side, dropped, trials)}: what is compared are the others.",
    )


def dropped_text(side: str, dropped: Mapping[str, int], trials: int) -> str:
    """How many of a side's trials could not be used, by reason."""
    why = ", ".join(f"{code} {count}" for code, count in dropped.items())
    return f"{sum(dropped.values())} of {counted(trials, 'trial')} of {side!r} could not be used ({why})"


def outside_time(found: Comparison, why: str, whole: float | None) -> Ruling:
    """`whole`: the change of the whole run, where that is judged instead."""
    seen = "" if whole is None else f", and the whole run, timed from outside, {signed_percent(whole)}"
    reported = "" if found.effect is None else f" is {signed_percent(found.effect)}"
    return _note_of(
        found.level,
        "compare.outside-time",
        f"the {found.called} that {found.level!r} reports{reported} against {found.against!r}{seen}: {why}. "
        "What a program reports of its steps is its own statement, and is not judged here.",
    )


def outside_start_up(found: Comparison) -> Ruling:
    reported = "" if found.effect is None else f" is {signed_percent(found.effect)}"
    return _note_of(
        found.level,
        "compare.outside-time",
        f"the {found.called} that {found.level!r} reports{reported} against {found.against!r}, and time of the run "
        "that no other part accounts for takes the difference back. Where a start-up ends is a program's own "
        "statement, and is not judged here.",
    )


def timed_runs(found: Comparison, ours: float, theirs: float) -> Ruling:
    return _note_of(
        found.level,
        "compare.timed-runs",
        f"{found.level!r} did {ours:g} steps and {found.against!r} {theirs:g} in runs that took about as long: the "
        "number of steps is the program's own statement, and the time per step follows from it.",
    )


def rare_and_slow(found: Comparison, whose: str, count: int, trials: int, mean: float) -> Ruling:
    other = found.against if whose == found.level else found.level
    what = "the mean of what the same work takes" if found.direction.rises else "the mean over all trials"
    return _note_of(
        found.level,
        "compare.rare-and-slow",
        f"{count} of {trials} trials of {whose!r} were worse than those of {other!r} by more than "
        f"{percent(found.margin)}, so that {what} is {signed_percent(mean)}: too few to move the estimate, and too "
        "many to leave out.",
    )


# The verdict

NO_TRIAL = "no usable trial"
_WORDS: Mapping[Word, str] = {
    "equivalent": "equivalent within {margin}",
    "slower": "slower",
    "faster": "faster",
    "cannot_tell": "cannot tell",
}
_HIDDEN = {
    "compare.mean-and-median": "mean and median disagree",
    "compare.throttled": "throttling differs",
    "compare.outside-steps": "the rest of the run differs",
    "compare.major-faults": "major faults differ",
    "compare.epoch-tail": "the time between steps differs",
    "compare.failed-trials": "one side fails",
    "compare.dropped-trials": "trials were dropped",
    "compare.rare-and-slow": "a few trials are slow",
    "compare.long-steps": "a few steps are long",
    "compare.carry-over": "the sides disturb each other",
    "compare.outside-time": "the time from outside disagrees",
    "compare.coarse-values": "values are rounded",
    "compare.copied-side": "one side may be a copy",
    "compare.mixed-work": "unlike work is mixed",
}


def verdict_phrase(comparison: Comparison) -> str:
    """The verdict as one phrase: `equivalent within 5 %, and slower`, `cannot tell (about 9 more blocks)`."""
    word, doubts = verdict_word(comparison), verdict_doubts(comparison)
    return f"{word} ({doubts})" if doubts else word


def verdict_word(comparison: Comparison) -> str:
    """One of the four words; of *equivalent* what it is within, and the sign where that is sure: `slower, by less
    than 5 %`."""
    if (sign := sign_within(comparison)) is not None:
        return f"{plain_word(comparison, sign)}, by less than {share_text(comparison.margin)}"
    return plain_verdict(comparison)


def sign_within(comparison: Comparison) -> Word | None:
    """The sign of a difference that is sure and smaller than the margin; None of any other."""
    if comparison.verdict != "equivalent" or not comparison.sure:
        return None
    return "slower" if (comparison.harm or 0.0) > 0 else "faster"


def plain_word(comparison: Comparison, word: Word) -> str:
    """The word, in the terms of the metric: a time is slower, energy more or less, accuracy better or worse."""
    if word not in ("slower", "faster"):
        return _WORDS[word]
    _, _, worse, better = _spoken(comparison)
    told = worse if word == "slower" else better
    return {"more": "higher", "less": "lower"}[told] if _manner(comparison) == "rate" else told


def plain_verdict(comparison: Comparison) -> str:
    """Its own word in these terms; of *equivalent* without a sign that is sure."""
    return plain_word(comparison, comparison.verdict).format(margin=share_text(comparison.margin))


def _manner(comparison: Comparison) -> str:
    """How a difference of this metric is spoken of: only times are slower, and what no name settles is a value, as is
    a time of which more is wanted.
    """
    kind, natural = kind_of(comparison.metric), direction_of(comparison.metric)
    if not natural.settled:
        return "value"
    if kind != "quality" and natural.settled and natural.rises:
        return "rate"
    if kind != "speed":
        return kind
    return "value" if comparison.direction.rises else "speed"


def _spoken(comparison: Comparison) -> tuple[str, str, str, str]:
    """The verb of one subject and of several, and what it is where it is worse, and where it is better."""
    manner = _manner(comparison)
    one, many, first, second = _VERBS[manner]
    if manner in _BY_SIGN and comparison.direction.rises:
        return one, many, second, first
    return one, many, first, second


def row_word(comparison: Comparison) -> str:
    """The word and what there is to doubt, without how much more it takes: that is the next step."""
    word, hidden = verdict_word(comparison), verdict_doubts(comparison, more=False)
    return f"{word} ({hidden})" if hidden else word


def verdict_doubts(comparison: Comparison, *, more: bool = True) -> str:
    """What belongs behind the word in brackets, or nothing."""
    needed = more_text(comparison) if more and comparison.verdict == "cannot_tell" else ""
    hidden = dict.fromkeys(_HIDDEN[each.code] for each in comparison.withheld)
    unlike = ["unlike work"] if any(note.code == "compare.unlike-work" for note in comparison.notes) else []
    return "; ".join([*([needed] if needed else []), *hidden, *(["tainted"] if comparison.tainted else []), *unlike])


def more_text(comparison: Comparison) -> str:
    """About how much more it would take to tell, or nothing where that is not known."""
    if comparison.more_trials is None:
        return ""
    one, many = ("more block", "more blocks") if comparison.paired else ("more trial per side", "more trials per side")
    return f"about {count_text(comparison.more_trials, one, many)}"


def verdict_reading(comparison: Comparison) -> str:
    """Why it is this word and no other, in a sentence or two."""
    low, high, margin = comparison.low, comparison.high, share_text(comparison.margin)
    if comparison.effect is None:
        none = "One side has no usable trial, so there is no verdict, and nothing is known of a difference."
        return refusal_of(comparison) or none
    if low is None or high is None:
        return f"A {confidence_text(comparison)} interval needs at least six on each side; here n = {comparison.n}."
    if comparison.verdict == "equivalent":
        return f"The whole interval lies within ±{margin}, the declared margin.{_beyond_zero(comparison)}"
    if comparison.verdict != "cannot_tell":
        side = "above" if low > 0 else "below"
        return f"The whole interval lies {side} zero, and not all of it within the declared margin of ±{margin}."
    why = open_reason(comparison)
    more = more_text(comparison)
    return f"{why[:1].upper()}{why[1:]}." + (f" It would take {more} to tell." if more else "")


def _beyond_zero(comparison: Comparison) -> str:
    """What an interval inside the margin says of zero; below the A/A noise floor it says nothing."""
    low, high = comparison.low, comparison.high
    if low is None or high is None or low <= 0 <= high:
        return ""
    if not comparison.sure:
        return (
            f" It excludes zero, but two runs of the same thing differ by as much ({floor_of(comparison)}): no claim."
        )
    return " It excludes zero: there is a difference, but it is smaller than the margin."


def open_reason(comparison: Comparison) -> str:
    """Why it cannot be told, as part of a sentence."""
    if comparison.low is None or comparison.high is None:
        return f"no interval is drawn, n = {comparison.n} is too small for one"
    margin = comparison.margin
    if comparison.withheld and -margin <= comparison.low and comparison.high <= margin:
        return f"the interval lies within the margin, but {comparison.withheld[0].sentence.rstrip('.')}"
    if kept := [note for note in comparison.notes if note.code in KEPT_BACK]:
        said = kept[0].sentence.rstrip(".")
        return going_on(said)
    if comparison.low <= 0 <= comparison.high:
        return f"the interval contains zero and exceeds the declared margin of ±{share_text(margin)}"
    if comparison.withheld:
        return going_on(comparison.withheld[-1].sentence.rstrip("."))
    return f"the effect does not exceed the difference of two runs of the same thing ({floor_of(comparison)})"


def confidence_text(comparison: Comparison) -> str:
    """`95 %`, or the higher coverage that Holm asked for."""
    return f"{comparison.confidence * 100:.3g} %"


def effect_of(comparison: Comparison) -> str:
    """`+1.6 %`, or nothing where a side has no usable trial."""
    if comparison.effect is None:
        return ""
    return effect_text(comparison.effect, beside=(comparison.low, comparison.high))


def interval_of(comparison: Comparison) -> str:
    """`[+0.4, +2.9]`; where n is too small there is none, and the text says so."""
    if comparison.effect is None:
        return ""
    if comparison.low is None or comparison.high is None:
        return f"n = {comparison.n}: too small for {confidence_text(comparison)}"
    return interval_text(comparison.low, comparison.high, beside=(comparison.effect,))


def figures_of(comparison: Comparison) -> str:
    """The effect with its interval: `+1.6 % [+0.4, +2.9]`."""
    return f"{effect_of(comparison)} {interval_of(comparison)}".strip()


def sensitivity_of(comparison: Comparison) -> str:
    """The smallest effect that this run could have seen."""
    return share_text(comparison.mde) if comparison.mde is not None else "not known"


def floor_of(comparison: Comparison) -> str:
    """The A/A noise floor of this run."""
    return noise_text(comparison.aa_floor, comparison.aa_most)


def noise_text(seen: float | None, most: float | None) -> str:
    """`0.01 % seen, may be up to 0.9 %`: one draw of the noise is no bound on it."""
    if seen is None:
        return "not measured"
    return share_text(seen) if most is None else f"{share_text(seen)} seen, may be up to {share_text(most)}"


def answer_sentence(comparison: Comparison) -> str:
    """Against whom, what, by how much, how sure: `against bare: step time +1.6 %, 95 % interval [+0.4, +2.9].`"""
    against = f"against {safe_text(comparison.against)}"
    if refused := refusal_of(comparison):
        return f"{against}: {going_on(refused)}"
    if comparison.effect is None:
        missing = comparison.level if comparison.ours is None else comparison.against
        return f"{against}: there is {NO_TRIAL} of {safe_text(missing)}."
    figure = f"{comparison.called} {effect_of(comparison)}"
    known = comparison.low is not None
    figure += f", {f'{confidence_text(comparison)} interval ' if known else ''}{interval_of(comparison)}"
    basis = f"paired over {count_text(comparison.n, 'block')}" if comparison.paired else f"n = {comparison.n} per side"
    return f"{against}: {figure}, {basis}."


def refusal_of(comparison: Comparison) -> str:
    """Why two sides that both have trials are not compared; nothing where they are."""
    if comparison.effect is not None:
        return ""
    return next((note.sentence for note in comparison.notes if note.code == "compare.unlike-work"), "")


_VERBS: Mapping[str, tuple[str, str, str, str]] = {  # of one subject and of several; worse and better, or more and less
    "speed": ("is", "are", "slower", "faster"),
    "amount": ("takes", "take", "more", "less"),
    "quality": ("is", "are", "worse", "better"),
    "rate": ("reaches", "reach", "more", "less"),
    "value": ("is", "are", "higher", "lower"),
}
_BY_SIGN = ("amount", "rate", "value")  # more is more, whether it is better or worse


def contrast_sentence(comparison: Comparison) -> str:
    """The answer with its subject: `docker is slower than bare: mean step +12.1 % [+8.3, +16.0].`"""
    level, against = safe_text(comparison.level), safe_text(comparison.against)
    if refused := refusal_of(comparison):
        return f"{level} and {against}: {going_on(refused)}"
    if comparison.effect is None:
        missing = level if comparison.ours is None else against
        return f"{level} was not compared with {against}: there is {NO_TRIAL} of {missing}."
    claim = begun(claim_of(comparison, level, f" than {against}", f" as {against}"))
    if comparison.low is None:
        return f"{claim}: {too_few_text(comparison)}."
    return f"{claim}: {comparison.called} {effect_of(comparison)} {interval_of(comparison)}."


def begun(sentence: str) -> str:
    """With a capital, unless it begins with a name."""
    return sentence[:1].upper() + sentence[1:] if sentence.startswith("cannot tell") else sentence


def too_few_text(comparison: Comparison) -> str:
    """`3 blocks with both sides, and it takes 6`."""
    have = counted(comparison.n, unit(comparison.paired))
    of = "with both sides" if comparison.paired else "on the smaller side"
    return f"{comparison.called}, {have} {of}, and it takes {FLOOR}"


def claim_of(comparison: Comparison, who: str, than: str, as_: str, *, several: bool = False) -> str:
    """Who is what, without a figure: `docker is slower than bare`; `than` and `as_` name the baseline."""
    one, many, worse, better = _spoken(comparison)
    verb = many if several else one
    if comparison.verdict == "cannot_tell":
        return f"cannot tell whether {who} {verb} {worse} or {better}{than}"
    if (within := sign_within(comparison)) is not None:
        how = worse if within == "slower" else better
        return f"{who} {verb} {how}{than}, by less than the margin of {share_text(comparison.margin)}"
    if comparison.verdict == "equivalent":
        same = f"{'are' if several else 'is'} the same{as_}"
        return f"{who} {same} within {share_text(comparison.margin)}"
    return f"{who} {verb} {worse if comparison.verdict == 'slower' else better}{than}"


def direction_text(comparisons: Sequence[Comparison]) -> str:
    """`mean step time: lower is better`, once for each metric that is tested."""
    told = dict.fromkeys(f"{each.called}: {each.direction}" for each in comparisons)
    return "; ".join(told).replace(" (by its name)", "")


# Several lines, several cells, marked trials

_STEADY = "steady state"


def what_costs(steady: Comparison, start: Comparison) -> str:
    """Which of the two tested lines of a level costs, in words."""
    level, against, begin = safe_text(steady.level), safe_text(steady.against), start.called
    told = {_STEADY: steady, begin: start}
    dear = [name for name, found in told.items() if found.verdict == "slower"]
    open_still = [name for name, found in told.items() if found.verdict == "cannot_tell"]
    if len(dear) == 2:
        return f"{level} costs more than {against} both in the {_STEADY} and in the {begin}."
    if dear:
        other = begin if dear[0] == _STEADY else _STEADY
        rest = "undecided" if other in open_still else verdict_word(told[other])
        return f"{level} costs more than {against} in the {dear[0]}; the {other} is {rest}."
    if open_still:
        return f"It is undecided whether {level} costs more than {against} in the {' or in the '.join(open_still)}."
    return f"{level} costs no more than {against} by the margin, neither in the {_STEADY} nor in the {begin}."


def interaction_sentence(found: Interaction) -> str:
    """`docker against bare costs more with batch 16 than with batch 64: +3.1 % [+1.0, +5.2] on top.`"""
    each = found.found
    who = f"{safe_text(found.level)} against {safe_text(found.against)}"
    cells = f"with {safe_text(found.here)} than with {safe_text(found.there)}"
    verb, worse, better = ("gain", "less", "more") if found.gains else ("cost", "more", "less")
    figures = f"{effect_of(each)} {interval_of(each)}".strip()
    if each.effect is None:
        return f"{who}: whether it {verb}s more {cells} is not known, no block holds all four sides."
    if each.verdict == "slower":
        return f"{who} {verb}s {worse} {cells}: ratio of the effects {figures}."
    if each.verdict == "faster":
        return f"{who} {verb}s {better} {cells}: ratio of the effects {figures}."
    if each.verdict == "equivalent":
        alike = f"with {safe_text(found.here)} and with {safe_text(found.there)}"
        harm = each.effect * (-1 if each.direction.rises else 1)
        sign = f", and {worse if harm > 0 else better} with {safe_text(found.here)}" if each.sure else ""
        return f"{who} {verb}s the same within {share_text(each.margin)} {alike}{sign}: ratio of the effects {figures}."
    more = more_text(each)
    told = f"{who}: cannot tell whether it {verb}s {worse} {cells}: ratio of the effects {figures}"
    return f"{told} ({more})." if more else f"{told}."


def marked_sentence(marked: Sequence[Marked], found: Sequence[Comparison]) -> str:
    """The share of each side that is suspect, and whether leaving them out would change a word."""
    shares = ", ".join(f"{each.suspect} of {each.trials} of {safe_text(each.level)}" for each in marked if each.suspect)
    words = {each.level: each for each in found}
    changed = [
        f"{safe_text(each.level)} would be {_WORDS[each.without].format(margin=share_text(words[each.level].margin))}"
        for each in marked
        if each.without is not None and each.without != words[each.level].verdict
    ]
    told = [each for each in marked if each.without is not None]
    rest = (
        f"without them {'; '.join(changed)}"
        if changed
        else "without them no word changes"
        if told
        else f"without them no side has the {FLOOR} blocks that a verdict takes"
    )
    return f"suspect trials, included: {shares}; {rest}."


def shared_condition(code: str, count: int, trials: int, example: str = "") -> str:
    """Of a mark that all sides have alike: it is about the run, and no reason to prefer a side."""
    return f"{count} of {trials} trials, on all sides alike ({code})" + (f": {example}" if example else ".")


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison, with the words that people read."""
    return {
        **comparison.as_json(),
        "phrase": verdict_phrase(comparison),
        "sentence": answer_sentence(comparison),
        "reading": verdict_reading(comparison),
    }

"""From checks to a word, by the statistics of every comparison in tare: intervals over blocks, Holm, margins."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from tare.base.errors import StudyError, unknown_name
from tare.ext.analysis import (
    ALPHA,
    DEVICE,
    FLOOR,
    LOOKING_ALPHA,
    MOST,
    TIE,
    TYPE,
    Comparison,
    Contest,
    Record,
    Sides,
    Store,
    StoreSides,
    StoreTrials,
    TrialRow,
    collected,
    counted,
    device_of,
    epoch_means,
    far_from_block,
    grouped,
    has_most_of,
    is_idle,
    is_usable,
    judge,
    line_up,
    percent,
    records_of,
    seen_alpha,
    sides_of_stores,
    signed_percent,
    started_s,
    too_few_for_interval,
    usable_attempts,
    usable_trials,
    with_figures,
    without_copies,
)
from tare.ext.analysis import unit_words as unit
from tare.papers import claims as folder
from tare.papers.claims import metrics
from tare.papers.claims.metrics import LATER_EPOCHS, OF_PLATFORMS, cell_of, has_network, is_medium, platforms_with
from tare.papers.claims.model import (
    ASSUMED,
    COUNTED,
    FAILS,
    HOLDS,
    NOT_MEASURED,
    UNDECIDED,
    Answer,
    Check,
    Claim,
    Population,
    Wants,
    Word,
    device_facts,
    effect_words,
    figure_words,
    software,
    store_of,
)

# Stores in, evidence out: trials are pooled where device and software are the same, else kept apart.

EPOCHS_OF = 24  # trials of a model on a device whose marks are read for their epochs: more would not change a word
SERIES_OF = 24  # blocks whose series are read: a report of a thousand trials must not wait for all of them
_FIGURES = ("step_s", "wall_s", "stall_mean_s", "compute_s", "energy_j")


@dataclass(frozen=True)
class DeviceTrials:
    """The trials of one device in one store, and everything that is known of its device and software."""

    name: str
    trials: tuple[TrialRow, ...]
    twins: tuple[TrialRow, ...]
    known: Mapping[str, frozenset[str]]
    baseline: Mapping[str, Any] | None
    seen: tuple[int, ...]  # blocks that had been judged, each time that more were added
    looked: bool  # the study stops when its intervals are tight enough, so that it looked at them

    def agrees_with(self, other: DeviceTrials) -> bool:
        """Whether what is known of both is the same."""
        return all(self.known[key] == other.known[key] for key in self.known.keys() & other.known.keys())


def source_of(store: Store, name: str, figures: Collection[str] = ()) -> StoreTrials:
    """A store's records with the figures that claims need beside their own, and the epochs of some of its trials.

    `figures`: further ones, which every record gets.
    """
    records = _with_figures(store, _with_latencies(store, records_of(store)), figures)
    marked = _spread(usable_attempts(records, _FIGURES))
    epochs = {each.trial: [mean for _, mean in epoch_means(store.marks(each.trial, each.attempt), "step")]
              for each in marked}  # fmt: skip
    study = store.study if isinstance(store.study, Mapping) else {}
    return StoreTrials(name, records, study, epochs, (*store.problems, *_unused(records)))


def _with_latencies(store: Store, records: Sequence[Record]) -> list[Record]:
    """With flush latencies; where they are simulated here, the record says that they rest on an assumption."""
    made = []
    for record in records:
        simulated = with_figures(store, record, {*metrics.FLUSH, *metrics.FLUSH_WITH_NVM} - record.metrics.keys())
        figures = sorted(simulated.metrics.keys() - record.metrics.keys())
        made.append(replace(simulated, facts={**simulated.facts, ASSUMED: figures}) if figures else record)
    return made


def _with_figures(store: Store, records: Sequence[Record], figures: Collection[str]) -> list[Record]:
    """What is made of series and marks, beyond these only where a claim could use it: that takes reading them."""
    media = {value for record in records for name, value in cell_of(record) if is_medium(name)}
    wanted = [name for probe, names in OF_PLATFORMS.items() if platforms_with(probe, records) > 1 for name in names]
    wanted += metrics.EPOCH0 if len(media) > 1 else ()
    wanted += metrics.EPOCH_ENERGY if any(_is_long(each) and "energy_j" in each.metrics for each in records) else ()
    blocks = list(dict.fromkeys(record.block for record in records))[:SERIES_OF] if wanted else []
    both = {*figures, *wanted}
    return [with_figures(store, record, both if record.block in blocks else figures) for record in records]


def _is_long(record: Record) -> bool:
    """Whether it has epochs enough to say how they vary."""
    return (record.settings.get("workload.epochs") or 0) > LATER_EPOCHS


def _spread(records: Sequence[Record]) -> list[Record]:
    """Trials with enough epochs, some of each model on each device, spread over the store; none beside a tracer."""
    long = [each for each in records if _is_long(each) and not each.traced]
    models = grouped(long, lambda each: (str(each.settings.get("workload.model")), device_of(each)))
    return [one for many in models.values() for one in many[:: max(1, -(-len(many) // EPOCHS_OF))]]


def _unused(records: Sequence[Record]) -> list[str]:
    every, usable = {each.trial for each in records}, {each.trial for each in records if is_usable(each)}
    lost, other = len(every) - len(usable), len({each.trial for each in records if not has_network(each)})
    reasons = [(lost, "did not end well", "; see `tare show`"), (other, "drove a server or ran no network", "")]
    return [
        f"{count} of {len(every)} trials {why} and {'is' if count == 1 else 'are'} no evidence{see}."
        for count, why, see in reasons
        if count
    ]


def by_device(sources: Sequence[StoreTrials]) -> list[DeviceTrials]:
    """The devices of the stores, each by itself: two devices may have done the very same trial."""
    made = []
    for number, (source, fresh) in enumerate(
        zip(sources, without_copies(each.records for each in sources), strict=True)
    ):
        compared, repeat = source.study.get("compare"), source.study.get("repeat")
        looked = isinstance(repeat, Mapping) and repeat.get("until") is not None
        seen = tuple(repeat.get("seen") or ()) if isinstance(repeat, Mapping) else ()
        against = compared.get("against") if isinstance(compared, Mapping) else None
        baseline = against if isinstance(against, Mapping) else None
        rows = [
            replace(
                TrialRow.of(each, block_id=f"{number}/{each.block}", store=number, epochs=epochs),
                # The device stands beside the settings of a fleet's trials: it is no cell of its own.
                settings={name: value for name, value in each.settings.items() if name not in (DEVICE, TYPE)},
            )
            for each in filter(has_network, fresh)
            for epochs in [tuple(source.epochs.get(each.trial, ()))]
        ]
        for device, records in grouped(rows, lambda each: str(each.device)).items():
            trials = _trials_together(usable_trials(records, has_most_of(_FIGURES), repeats=False))
            twins = tuple(usable_trials(each for each in records if each.twin))
            name = f"{source.name} ({device})" if source.name else device
            made.append(DeviceTrials(name, trials, twins, _known(trials), baseline, seen, looked))
    return made


def _trials_together(trials: Sequence[TrialRow]) -> tuple[TrialRow, ...]:
    """Without those that were run again far from the rest of their block: they are not of it any more."""
    times = [(trial.block_id, started_s(trial)) for trial in trials]
    known = [(block, time) for block, time in times if time is not None]
    if len(known) < len(times):
        return tuple(trials)
    return tuple(trial for trial, far in zip(trials, far_from_block(known), strict=True) if not far)


def populations(found: Sequence[DeviceTrials]) -> list[Population]:
    """Each device's trials join the first population that nothing of them contradicts."""
    pools: list[list[DeviceTrials]] = []
    for part in found:
        pool = next((pool for pool in pools if all(part.agrees_with(each) for each in pool)), None)
        if pool is None:
            pools.append([part])
        else:
            pool.append(part)
    return [population_of(pool) for pool in pools]


def population_of(parts: Sequence[DeviceTrials]) -> Population:
    """All of these as one population."""
    trials = [trial for part in parts for trial in part.trials]
    return Population(
        [trial for trial in trials if not is_idle(trial)],
        [twin for part in parts for twin in part.twins],
        [part.baseline for part in parts if part.baseline is not None],
        ", ".join(part.name for part in parts),
        min(
            [LOOKING_ALPHA if any(part.looked for part in parts) else ALPHA, *(seen_alpha(part.seen) for part in parts)]
        ),
        [trial for trial in trials if is_idle(trial)],
    )


def _known(trials: Sequence[TrialRow]) -> dict[str, frozenset[str]]:
    """Everything that is known of these trials' device, and of the software of each platform, with its values."""
    known: list[tuple[str, str]] = []
    for trial in trials:
        platform = str(trial.settings.get("platform"))
        known += device_facts(trial).items()
        known += ((f"{platform}: {key}", value) for key, value in software(trial).items())
    return {key: frozenset(values) for key, values in collected(known).items()}


NAMED = 3

Judged = tuple[Check, Comparison, Word]


def decide(claim: Claim, evidence: Population, where: str = "") -> Answer:
    """One claim on one population."""
    look = claim.look(evidence)
    judged = [
        # Where its pairs contradict each other, and it surely holds for one, a mean of them does not speak for all.
        (check, found, UNDECIDED if word == FAILS and _is_mixed(check, evidence.alpha) else word)
        for check, found, word in _judged(look.checks, evidence.alpha)
    ]
    if not judged:
        return _answer(claim, NOT_MEASURED, None, _sentence([*look.missing] or ["no trial speaks to it"]), (), where)
    word = UNDECIDED if look.depends_on else _together(claim, [found for _, _, found in judged], look.missing)
    decisive = _decisive(claim, judged, word)
    told = _told_first(judged, decisive, evidence.alpha, advises=not look.depends_on)
    if word == HOLDS and not claim.any_of and (against := _exceptions(look.checks, evidence.alpha)):
        word = UNDECIDED
        more = f" and {len(against) - NAMED} more" if len(against) > NAMED else ""
        told.append(f"it holds on the whole, and for sure not for {'; '.join(against[:NAMED])}{more}")
    trials = sorted(frozenset().union(*(check.trials for check in look.checks)))
    missing = [f"not measured: {each}" for each in look.missing]
    why = _sentence([*told, *([look.depends_on] if look.depends_on else []), *missing])
    return _answer(claim, word, decisive, why, trials, where)


def _judged(checks: Sequence[Check], alpha: float) -> list[Judged]:
    """The checks of a claim are one family; each is held to its own margin."""
    usable = [check for check in checks if check.ours and check.theirs]
    sides = [_of_stores(check) or line_up(check.ours, check.theirs) for check in usable]  # once for all margins
    family = [Contest(c.about, "", c.ours, c.theirs, c.floor, sides=s) for c, s in zip(usable, sides, strict=True)]
    by_margin = {
        margin: judge(family, margin=margin, metric="value", alpha=alpha, resamples=0, power=False)
        for margin in dict.fromkeys(check.margin for check in usable)
    }
    found = [(check, by_margin[check.margin][place]) for place, check in enumerate(usable)]
    return [(check, comparison, word_for(check, comparison)) for check, comparison in found]


def _of_stores(check: Check) -> Sides | None:
    """Blocks of several stores are no replicates of each other: store by store, then as a random effect."""
    return sides_of_stores([(store_of(str(each.block)), math.log(each.value)) for each in check.ours])


def words_of(checks: Sequence[Check], alpha: float) -> list[Word]:
    """The word of each of these checks that has values, as one family."""
    return [word for _, _, word in _judged(checks, alpha)]


def word_for(check: Check, found: Comparison) -> Word:
    """What an interval says of a check; a side with other software, or too few blocks, leaves it undecided."""
    if check.tainted or found.low is None or found.high is None or _is_no_evidence(check, found):
        return UNDECIDED
    return _by_interval(check.wants, found)


def _is_no_evidence(check: Check, found: Comparison) -> bool:
    """Whether it fails in a way that does not speak against the claim."""
    return bool(check.no_evidence) and _by_interval(check.wants, found) == FAILS


def _by_interval(wants: Wants, found: Comparison) -> Word:
    """The whole interval beyond the margin holds, the whole interval short of it fails, one that straddles it tells
    nothing: 4.3 to 5.1 % is no rise of more than 5 %, and no rise of less.

    Beyond is more than the same thing differs from itself, too: else the verdict is held back.
    """
    low, high, margin = found.low or 0.0, found.high or 0.0, found.margin + TIE
    is_told, is_same = found.verdict != "cannot_tell", found.verdict == "equivalent"
    above, below = is_told and low > margin, is_told and high < -margin
    holds, fails = {
        "rises": (above, high <= margin),
        "falls": (below, low >= -margin),
        "same": (is_same, above or below),
        "apart": (above or below, is_same),
    }[wants]
    return HOLDS if holds else FAILS if fails else UNDECIDED


def _together(claim: Claim, words: Sequence[Word], missing: Sequence[str]) -> Word:
    """All must hold, or one where that is enough; what was not measured leaves the rest undecided."""
    settled, other = (HOLDS, FAILS) if claim.any_of else (FAILS, HOLDS)
    if settled in words:
        return settled
    return other if all(word == other for word in words) and not missing else UNDECIDED


def _decisive(claim: Claim, judged: Sequence[Judged], word: Word) -> Judged:
    """The check that the word rests on: the first that has it, else the first of all.

    Where all must hold and do, of what is claimed and about the same figure, the one that holds most narrowly.
    """
    if word == HOLDS and not claim.any_of:
        claimed = [each for each in judged if not each[0].is_condition] or judged
        return min((each for each in claimed if _figure(each) == _figure(claimed[0])), key=_room)
    return next((each for each in judged if each[2] == word), judged[0])


def _figure(judged: Judged) -> tuple[object, ...]:
    """What a check is about, up to whose it is, and what it is held against: `farthest epoch of a trial`, below 5 %."""
    check, _, _ = judged
    return check.about.partition(",")[0], check.wants, check.margin, check.bound, check.kind


def _room(judged: Judged) -> float:
    """How far its interval's end is from where the check would no longer hold."""
    check, found, _ = judged
    low, high, margin = found.low or 0.0, found.high or 0.0, found.margin
    return {
        "rises": low - margin,
        "falls": -high - margin,
        "same": min(low, -high) + margin,
        "apart": max(low, -high) - margin,
    }[check.wants]


def _answer(claim: Claim, word: Word, decisive: Judged | None, why: str, trials: Iterable[str], where: str) -> Answer:
    effect = low = high = None
    n, kind = 0, Check.kind
    if decisive is not None:
        check, found, _ = decisive
        effect, low, high = _shown(check, found)
        n, kind = found.n, check.kind
    return Answer(
        claim.id, claim.paper, claim.section, claim.statement, word, effect, low, high, n, tuple(trials), why,
        claim.command, where, kind,
    )  # fmt: skip


def _shown(check: Check, found: Comparison) -> list[float | None]:
    """Effect and interval as they are, not as they were held against a bound; of a share, the share or its points."""
    start = 0.0 if check.kind == "share" else 1.0
    values = (found.effect, found.low, found.high)
    shown = [None if value is None else (1 + value) * (1 + check.bound) - start for value in values]
    return [math.log1p(value) if check.kind == "points" and value is not None else value for value in shown]


def _told_first(judged: Sequence[Judged], decisive: Judged, alpha: float, *, advises: bool) -> list[str]:
    """The check that the word rests on, two more, and how many there are beside them.

    Advice on how many more blocks would tell is for claims that they could decide.
    """
    ordered = [decisive, *(each for each in judged if each is not decisive)]
    told = [_told(each, alpha, advises) for each in ordered[:NAMED]]
    others = Counter(word for _, _, word in ordered[NAMED:])
    if which := counted(others.total(), "further check") if others else "":
        # `3 further checks hold too`, `3 further checks: 2 hold, 1 undecided`
        counts = ", ".join(f"{count} {COUNTED[word][count > 1]}" for word, count in others.items())
        all_hold = all(word == HOLDS for _, _, word in ordered)
        told.append(f"{which} {COUNTED[HOLDS][others.total() > 1]} too" if all_hold else f"{which}: {counts}")
    return told


_SAID: Mapping[Wants, str] = {
    "rises": "should rise by more than",
    "falls": "should fall by more than",
    "same": "should stay within",
    "apart": "should differ by more than",
}


def _told(judged: Judged, alpha: float, advises: bool) -> str:
    check, found, word = judged
    pairs, disagree = _pairs(check, alpha)
    effect, low, high = _shown(check, found)
    if effect is None or low is None or high is None:
        stores = len({store_of(str(each.block)) for each in check.ours})
        shown = too_few_for_interval(found.n, found.paired)
        shown = (
            f"none of {stores} stores has {FLOOR} blocks, and blocks of several are not pooled" if stores > 1 else shown
        )
    else:
        shown = f"{figure_words(check.kind, effect, low, high)} over {_rests_on(check, found)}{pairs}"
    why = f" ({_undecided(check, found, disagree)})" if word == UNDECIDED and (advises or check.tainted) else ""
    return f"{check.about}: {shown}, {_expected(check)}{why}"


def _pairs(check: Check, alpha: float) -> tuple[str, bool]:
    """Of a mean over several pairs, how many and how far apart they are, and whether some surely contradict others.

    ` and 4 pairs (from -12.0 % to -3.1 %)`, ` and 4 pairs that disagree (from -31.7 % for LeNet-5 to 2.4x for VGG-11)`.
    """
    found = [(part, _shown(part, comparison), word) for part, comparison, word in _judged(check.parts, alpha)]
    ends = sorted((effect, part.about) for part, (effect, low, _), _ in found if effect is not None and low is not None)
    if len(ends) < 2:
        return "", False
    if check.kind == "share":
        disagree = {HOLDS, FAILS} <= {word for _, _, word in found}
    else:
        above = any(low is not None and low > check.margin for _, (_, low, _), _ in found)
        disagree = above and any(high is not None and high < -check.margin for _, (_, _, high), _ in found)
    words = [f"{effect_words(check.kind, effect)}{f' for {name}' if disagree else ''}" for effect, name in ends]
    many = f"{len(ends)} {'cells' if check.kind == 'share' else 'pairs'}{' that disagree' if disagree else ''}"
    span = f"from {words[0]} to {words[-1]}" if words[0] != words[-1] else f"each {words[0]}"
    return f" and {many} ({span})", disagree


def _is_mixed(check: Check, alpha: float) -> bool:
    """Whether its pairs contradict each other, and it surely holds for one: a mean of them does not speak for all."""
    return _pairs(check, alpha)[1] and HOLDS in words_of(check.parts, alpha)


def _rests_on(check: Check, found: Comparison) -> str:
    """`6 blocks`, `18 blocks of 3 stores`; where no store has six blocks, each counts once: `7 stores`."""
    held = Counter(store_of(str(each.block)) for each in check.ours)
    enough = sum(count >= FLOOR for count in held.values())
    blocks = counted(found.n, unit(found.paired))
    if _of_stores(check) is None:
        return blocks
    if not enough:
        return counted(len(held), "store")
    few = f" ({counted(len(held) - enough, 'other')} with less than {FLOOR} left out)" if enough < len(held) else ""
    return f"{blocks} of {counted(enough, 'store')}{few}"


def _expected(check: Check) -> str:
    if check.bound:
        side = "above" if check.wants == "rises" else "below"
        bound = percent(1 + check.bound) if check.kind == "share" else signed_percent(check.bound)
        return f"should be {side} {bound}"
    return f"{_SAID[check.wants]} {check.margin:.0%}".replace("%", " points" if check.kind == "points" else " %")


def _undecided(check: Check, found: Comparison, disagree: bool) -> str:
    """Why, and what would help."""
    if check.tainted:
        return f"the sides differ in more: {check.tainted[0].rstrip('.')}"
    if _is_no_evidence(check, found):
        return f"undecided: {check.no_evidence}"
    if disagree:
        return "undecided: more of them would not make them agree"
    if isinstance(_of_stores(check), StoreSides):
        return "undecided: it rests on several stores, and more of them would tell"
    more = _more(check, found)
    if more is None:
        return f"undecided: more than {MOST:,} blocks would not tell, lower the noise"
    return f"undecided: about {counted(more, f'more {unit(found.paired)}')}"


def _more(check: Check, found: Comparison) -> int | None:
    """About how many more blocks would part the interval from the margin: it shrinks with the root of their number.

    Fewer than an interval takes, and a difference no larger than the same thing's from itself, have their own number.
    """
    if found.effect is None or found.low is None or found.high is None:
        return found.more_trials
    if found.verdict == "cannot_tell" and (found.low > 0 or found.high < 0):
        return found.more_trials
    half = (math.log1p(found.high) - math.log1p(found.low)) / 2
    effect, margin = math.log1p(found.effect), math.log1p(found.margin)
    towards = {"rises": effect, "falls": -effect}.get(check.wants, abs(effect))
    way = abs(towards - margin)
    if way * math.sqrt(MOST / found.n) <= half:
        return None
    return max(1, math.ceil(found.n * (half / way) ** 2) - found.n)


def _exceptions(checks: Sequence[Check], alpha: float) -> list[str]:
    """Cells in which a tendency surely fails, whatever the mean does; those of a claim are one family."""
    claimed = [check for check in checks if not check.is_condition]
    parts = [
        replace(part, about=f"{part.about} ({check.about})") if len(claimed) > 1 else part
        for check in claimed
        for part in check.parts
    ]
    return [each.about for each, _, word in _judged(parts, alpha) if word == FAILS]


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(part.rstrip(".") for part in parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


_PAPER = re.compile(r"s\d+")


def papers() -> list[str]:
    """The papers that have a file here, in order."""
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if _PAPER.fullmatch(module.name))


@lru_cache(maxsize=1)
def every_claim() -> tuple[Claim, ...]:
    """The claims of all papers, in the order of their files."""
    modules = [importlib.import_module(f"{folder.__name__}.{name}") for name in papers()]
    return tuple(claim for module in modules for claim in module.CLAIMS)


def claims_of(paper: str | None = None) -> tuple[Claim, ...]:
    """The claims of one paper, also those that it shares with another; of all where none is named."""
    if paper is None:
        return every_claim()
    if paper.lower() not in papers():
        raise StudyError(unknown_name("paper", paper, papers()))
    return tuple(claim for claim in every_claim() if paper.lower() in claim.papers)


def answers(claims: Sequence[Claim], sources: Sequence[StoreTrials]) -> list[Answer]:
    """One answer a claim; where populations differ, one for each that has something to say about it."""
    devices = by_device(sources)
    together = population_of(devices)  # for claims that compare devices or software with each other
    apart = populations(devices)
    found: list[Answer] = []
    for claim in claims:
        if claim.across:
            found.append(decide(claim, together))
            continue
        asked = [one for one in apart if (one.idle if claim.of_idle else one.trials)]
        each = [decide(claim, one, one.name if len(apart) > 1 else "") for one in asked] or [decide(claim, together)]
        found += [answer for answer in each if answer.word != NOT_MEASURED] or each[:1]
    return found

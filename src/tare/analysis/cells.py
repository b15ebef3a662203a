"""Which trials may be compared with which: the same in everything but the factor that is asked about."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tare.analysis.labels import Labels, Levels, Words, distinguishing, make_labels, place, text
from tare.analysis.model import Comparison, Measurement
from tare.analysis.numeric.distributions import heads_at_most, normal_quantile
from tare.base.errors import StudyError, unknown_name
from tare.base.rulings import Ruling
from tare.records.model import COMMAND, DEVICE, LABEL, TYPE, Record, collected, grouped


class SeveralWays(StudyError):
    """A baseline of which there are several."""


@dataclass(frozen=True)
class Cells:
    """How records fall into levels of one factor, within equal settings of the others.

    Levels, surroundings and labels are texts for people, each unique among these records (labels.py).
    """

    by: str
    own: tuple[str, ...] = ()  # settings of the factor itself, where one level comes in several (two docker images)
    rest: tuple[str, ...] = ()  # other factors that the records differ in
    levels: Labels | None = None
    around: Labels | None = None
    known: Mapping[tuple[str, str], str] = field(default_factory=dict)  # level, surroundings -> label
    words: Mapping[str, Words] = field(default_factory=dict)  # of each level and of each surroundings
    # Level, surroundings and label by the identity of the settings, which stand beside them so that they stay: each
    # figure and each test asks again for all trials of a store.
    _named: dict[int, tuple[Mapping[str, Any], str, str, str]] = field(default_factory=dict, compare=False, repr=False)

    def level(self, record: Record) -> str:
        """`docker`, or `docker, seccomp off` where docker was run in several ways."""
        return self._names(record.settings)[1]

    def surroundings(self, record: Record) -> str:
        """`batch 64`: what else tells this record's cell from others; empty where nothing does."""
        return self._names(record.settings)[2]

    def label(self, record: Record) -> str:
        return self._names(record.settings)[3]

    def _names(self, settings: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, str, str]:
        if (known := self._named.get(id(settings))) is None:
            level = text(settings[self.by]) if self.levels is None else str(self.levels.words(settings))
            around = "" if self.around is None else str(self.around.words(settings))
            known = self._named[id(settings)] = settings, level, around, self.joined(level, around)
        return known

    def joined(self, level: str, surroundings: str) -> str:
        """The label of a level within surroundings; neither need have been run."""
        if (level, surroundings) in self.known:
            return self.known[level, surroundings]
        as_platform = Words(platform=level) if self.by == "platform" else Words(others=(level,))
        return str(self.words.get(level, as_platform) + self.words.get(surroundings, Words(others=(surroundings,))))


def join(level: str, surroundings: str) -> str:
    return f"{level}, {surroundings}" if surroundings else level


def cells(records: Sequence[Record], by: str) -> Cells:
    """The levels of `by` and the other factors that vary, each told by as few settings as possible."""
    names = sorted({name for record in records for name in record.settings}, key=place)
    own = [name for name in names if name.startswith(f"{by}.")]
    rest = [name for name in names if name != by and name not in own and not (by == TYPE and name == DEVICE)]
    again = _other_names(records, by, rest)
    rest = [name for name in rest if name not in again]
    several = [record.settings for record in records]
    return _labelled(records, Cells(by, distinguishing(several, own, (by,)), distinguishing(several, rest)))


def _labelled(records: Sequence[Record], plain: Cells) -> Cells:
    having = [record.settings for record in records if plain.by in record.settings]
    ours = (plain.by, *plain.own)
    levels, around = make_labels(having, ours, plain.rest), make_labels(having, plain.rest, ours)
    pairs = {(levels.words(settings), around.words(settings)) for settings in having}
    called = grouped(pairs, lambda pair: str(pair[0] + pair[1]))
    known = {
        (str(level), str(where)): label if len(held) == 1 else f"{level}; {where or '-'}"
        for label, held in called.items()
        for level, where in held
    }
    words = {str(each): each for pair in pairs for each in pair}
    return Cells(plain.by, plain.own, plain.rest, levels, around, known, words)


def _other_names(records: Sequence[Record], by: str, names: Sequence[str]) -> set[str]:
    """Fields of the same control that only say `by` again: a power mode has a name beside its clocks.

    Only there: a workload's data that goes with its model is a difference that a reader must see.
    """
    part, _, _ = by.rpartition(".")
    levels = Levels([record.settings for record in records])
    if part == "workload" and any(COMMAND in record.settings for record in records):
        return _said_by_others(levels, by, names)
    if not part.startswith("control."):
        return set()
    beside = [name for name in names if name.rpartition(".")[0] == part]
    again = {name for name in beside if _determines(levels, (by,), name)}
    kept = [name for name in beside if name not in again]
    for name in sorted(kept, key=lambda each: -levels.count([each])):
        others = tuple(each for each in kept if each != name)
        if others and _determines(levels, (by, *others), name):
            kept.remove(name)
            again.add(name)
    return again


def _said_by_others(levels: Levels, by: str, names: Sequence[str]) -> set[str]:
    """Of a command its line and its label, where the levels in it stand alone as well (`vary` of a study)."""
    own = [name for name in names if name.startswith("workload.")]
    again: set[str] = set()
    for name in (COMMAND, LABEL, *own):
        others = tuple(each for each in own if each not in (name, COMMAND, LABEL, *again))
        if name in own and name not in again and _determines(levels, (by, *others), name):
            again.add(name)
    return again


def _determines(levels: Levels, names: tuple[str, ...], name: str) -> bool:
    """Whether whoever knows `names` of a record knows `name` of it."""
    return levels.count((*names, name)) == levels.count(names)


def resolve_factor(records: Iterable[Record], name: str) -> str:
    """The setting that `name` means: itself, or the one setting that ends in it (`batch` for `workload.batch`)."""
    known = sorted({setting for record in records for setting in record.settings})
    if name in known:
        return name
    ending = [setting for setting in known if setting.endswith(f".{name}")]
    if len(ending) == 1:
        return ending[0]
    if ending:
        raise StudyError(f"{name!r} could be any of {', '.join(ending)}. Write the whole name.")
    raise StudyError(f"{unknown_name('factor', name, known)} `tare show STORE --json` has all of them.")


def baseline_level(records: Sequence[Record], label: Cells, against: Any) -> str:
    """The level that `against` names: by its label, settings or name, or with fields (`{docker: {cpus: 1}}`)."""
    name, fields = level_name(against)
    levels = {label.level(record): record for record in records}
    if name in levels:
        return name
    written = {assigned(record.settings, label.by, label.own): level for level, record in levels.items()}
    if name in written:
        return written[name]
    of_name = [level for level, record in levels.items() if _means(text(record.settings[label.by]), name)]
    exact = [level for level in of_name if _has(levels[level].settings, label.by, fields)]
    found = exact if fields and exact else of_name
    if len(found) > 1:
        raise SeveralWays(f"{name!r} was run in several ways; name one of them: {'; '.join(found)}.")
    return found[0] if found else name


def _means(level: str, name: str) -> bool:
    """`2` means the level 2.0 of a setting that takes fractions."""
    try:
        return level == name or float(level) == float(name)
    except ValueError:
        return False


def level_name(against: Any) -> tuple[str, Mapping[str, Any]]:
    """A level as a study writes it: the name that records have, and the fields that it fixes."""
    if isinstance(against, Mapping) and against:
        name, fields = next(iter(against.items()))
        return str(name), fields if isinstance(fields, Mapping) else {}
    if isinstance(against, list) and against and not all(isinstance(each, str) for each in against):
        stack = against[0] if isinstance(against[0], list) else against
        return "+".join(level_name(platform)[0] for platform in stack), {}
    return text(against), {}


def _has(settings: Mapping[str, Any], by: str, fields: Mapping[str, Any]) -> bool:
    return all(settings.get(f"{by}.{name}") == value for name, value in fields.items())


def assigned(settings: Mapping[str, Any], by: str, own: Iterable[str]) -> str:
    """A level in the words of a study: `docker, platform.seccomp=false`."""
    return ", ".join([text(settings[by]), *(f"{name}={text(settings[name])}" for name in own if name in settings)])


# Where a trial ran

PLACEMENT = ("cores", "pin", "numa", "leave_idle", "quota", "cpuset")  # settings of a platform


def placed(record: Record) -> Record:
    """A stack has one placement, its outermost platform's: `platform.0.qemu.cores` becomes `platform.cores`.

    A container in a machine of four cores runs on four cores, even without a setting of its own. What an inner
    platform limits further keeps its name. Whatever compares trials by their placement reads this.
    """
    if "+" not in str(record.settings.get("platform", "")):
        return record
    settings = dict(record.settings)
    for name in PLACEMENT:
        layers = sorted(key for key in settings if key.startswith("platform.") and key.endswith(f".{name}"))
        whole = next((key for key in layers if settings[key] is not None), None)
        value = None if whole is None else settings[whole]
        for key in layers:
            if key == whole or not settings[key]:
                del settings[key]
        if layers:
            settings[f"platform.{name}"] = value
    return replace(record, settings=settings)


CACHE, EMULATED, WORKERS = "control.page_cache.state", "control.storage.emulate", "workload.workers"
ALWAYS_COLD, COLD, WARM = "cold_every_epoch", "cold", "warm"

When: TypeAlias = Literal["in every epoch", "in the first epoch", "never"]
EVERY: When = "in every epoch"
FIRST: When = "in the first epoch"  # later ones find in the page cache what it has read
NEVER: When = "never"  # all of it was in the page cache before
_WHEN: Mapping[object, When] = {ALWAYS_COLD: EVERY, COLD: FIRST, WARM: NEVER}


def reads(cache: object) -> When | None:
    """When the medium is read under this state of the page cache; None where it was left alone, and nobody knows."""
    return _WHEN.get(cache)


# In which order the trials of a table were run, and whether that order could make a difference by itself.
#
# A machine's speed wanders: what is run next to each other is alike. All trials of one level and then all of the other
# differ by that alone (60 % false claims in noise that wanders), and so do levels that come in the same order in every
# block (54 % in a drift), and levels of blocks that interleave, A0-4 B0-4 B5-9 A5-9 (40 %). Ranks assume that order was
# left to chance, so where it was not, nothing is claimed: the effect and its interval are shown, and the word is
# "cannot tell". docs/decisions/0024 has the simulation.
#
# A block is what was run together. A trial that was run again later, since its first attempt could not be used, is
# compared with what was run an hour before: it is no longer of its block, and is left out.

FEW_RUNS = 0.10  # a shuffled order has as few runs of one level as this with at most this probability
FIXED = 0.05  # and the same level first in as many blocks with this

SEQUENTIAL, FIXED_ORDER = "compare.run-one-after-another", "compare.fixed-order"
CODES = (SEQUENTIAL, FIXED_ORDER)


RARE = "compare.rare-and-slow"
KEPT_BACK = (*CODES, RARE, "compare.copied-rows")  # notes that take a sure word away


def kept_back(found: Comparison, ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Comparison:
    """The same without a sure word, and with the reason, where the order alone could have made the difference."""
    why = order_doubt(ours, theirs)
    if why is None:
        return found
    return replace(found, verdict="cannot_tell", notes=(*found.notes, replace(why, subject=found.level)),
                   more_trials=None)  # fmt: skip


def order_doubt(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Ruling | None:
    """What is wrong with the order, by the places that the trials have in it; None where chance explains it."""
    if not ours or not theirs or any(each.place is None for each in (*ours, *theirs)):
        return None
    every = [(each, 0) for each in ours] + [(each, 1) for each in theirs]
    placed = sorted(every, key=lambda pair: pair[0].place or 0.0)
    if all(each.block is not None for each, _ in placed):
        blocks = [each.block for each, _ in placed]
        doubt = _same_in_every_block(ours, theirs)
        if doubt is not None or _runs(blocks) == len(set(blocks)):  # else one block was begun before another ended
            return doubt
    if runs_at_most(_runs([side for _, side in placed]), len(ours), len(theirs)) > FEW_RUNS:
        return None
    sentence = (
        "The trials of one level were run after those of the other, not shuffled (by their order in the table): what "
        "drifted meanwhile cannot be separated from a difference, so nothing is claimed. Name the order in which they "
        "were run (--order COLUMN), or what was run together (--block COLUMN), or run them shuffled."
    )
    return Ruling(SEQUENTIAL, "note", "", sentence)


def _same_in_every_block(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Ruling | None:
    first = list(_ours_first(ours, theirs))
    if not first:
        return None
    rare = min(sum(first), len(first) - sum(first))
    if 2 * heads_at_most(rare, len(first)) > FIXED:
        return None
    sentence = (
        f"One level was run first in {len(first) - rare} of {len(first)} blocks (by their order in the table): what "
        "changes within a block cannot be separated from a difference, so nothing is claimed. Name the order in which "
        "they were run (--order COLUMN), or shuffle within blocks."
    )
    return Ruling(FIXED_ORDER, "note", "", sentence)


def _ours_first(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> Iterator[bool]:
    """Of each block with both sides, whether ours came first on the whole."""
    left, right = (grouped(side, lambda each: each.block) for side in (ours, theirs))
    for block in left.keys() & right.keys():
        mine, other = (sum(each.place or 0.0 for each in side[block]) / len(side[block]) for side in (left, right))
        if mine != other:
            yield mine < other


def _runs(labels: Sequence[Hashable]) -> int:
    return 1 + sum(one != other for one, other in pairwise(labels))


def runs_at_most(runs: int, n: int, m: int) -> float:
    """How likely a shuffled order of n and m has so few runs of one side, or fewer (Wald and Wolfowitz)."""
    whole = _log_choose(n + m, n)
    found = 0.0
    for count in range(2, runs + 1):
        half = count // 2
        if count % 2 == 0:
            terms = [math.log(2) + _log_choose(n - 1, half - 1) + _log_choose(m - 1, half - 1)]
        else:
            terms = [_log_choose(n - 1, half) + _log_choose(m - 1, half - 1),
                     _log_choose(n - 1, half - 1) + _log_choose(m - 1, half)]  # fmt: skip
        found += sum(math.exp(term - whole) for term in terms)
    return min(1.0, found)


def few_runs(levels: Sequence[Hashable]) -> bool:
    """Whether equal ones of many levels stand together more often than shuffled ones do (runs of several kinds)."""
    counts, n = list(Counter(levels).values()), len(levels)
    if len(counts) < 2 or max(counts) < 2:
        return False
    squares, cubes = sum(count**2 for count in counts), sum(count**3 for count in counts)
    mean = 1 + (n**2 - squares) / n
    variance = (squares * (squares + n * (n + 1)) - 2 * n * cubes - n**3) / (n**2 * (n - 1))
    return variance > 0 and (_runs(levels) + 0.5 - mean) / math.sqrt(variance) < normal_quantile(FEW_RUNS)


_SHUFFLES = 199
_SEED = 20_261_117


def fixed_in_rounds(levels: Sequence[Hashable]) -> bool:
    """Whether levels come at the same places of a round more often than shuffled ones do.

    A round ends before the first level that it has had already, so that shuffling it gives another that was as likely,
    whether levels were shuffled in rounds or throughout. A level's places, counted from the middle of each round, are
    summed; the squares of these sums are small where it came early as often as late.
    """
    number = {level: place for place, level in enumerate(dict.fromkeys(levels))}
    rounds: list[dict[int, None]] = [{}]
    for level in levels:
        if number[level] in rounds[-1]:
            rounds.append({})
        rounds[-1][number[level]] = None
    if len(rounds) < 2:
        return False
    which = np.repeat(np.arange(len(rounds)), [len(each) for each in rounds])
    places = np.concatenate([np.arange(len(each)) - (len(each) - 1) / 2 for each in rounds])
    ordered = np.array([level for each in rounds for level in each])

    def apart(order: NDArray[np.int64]) -> float:
        return float((np.bincount(order, places) ** 2).sum())

    chance, found = np.random.default_rng(_SEED), apart(ordered)
    as_far = sum(apart(ordered[np.argsort(which + chance.random(len(which)))]) >= found for _ in range(_SHUFFLES))
    return (1 + as_far) / (1 + _SHUFFLES) <= FIXED


def _log_choose(n: int, k: int) -> float:
    if k < 0 or k > n:
        return -math.inf
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)


FAR_TIMES = 4.0  # as far from the middle of its block as this many times what blocks usually reach, and
WHOLE_TIMES = 1.5  # the same, of what blocks reach with all their levels: no trial of them lies farther out
FAR_S = 120.0  # at least so far: a machine does not change much in less


def usual_reach(started: Iterable[tuple[Hashable, float]]) -> float:
    """How far from the middle of a block its trials begin at most.

    The median over blocks, so that a few of which a trial was run again do not set the scale.
    """
    several = [(median(times), times) for times in collected(started).values()]
    reach = [max(abs(time - middle) for time in times) for middle, times in several]
    return median(reach) if reach else 0.0


def far_from_block(started: Sequence[tuple[Hashable, float]], usual_s: float = 0.0) -> list[bool]:
    """Of each `(block, start in seconds)`, whether it began far from the rest of its block.

    `usual_s` is how far blocks reach with the trials of other levels, which may lie between these and take long. Of a
    block of two both are far: neither is more of it than the other.
    """
    middles = {block: median(times) for block, times in collected(started).items()}
    far = max(FAR_TIMES * usual_reach(started), WHOLE_TIMES * usual_s, FAR_S)
    return [abs(time - middles[block]) > far for block, time in started]


def together(
    ours: Sequence[Measurement], theirs: Sequence[Measurement]
) -> tuple[list[Measurement], list[Measurement], Ruling | None]:
    """Both sides without what was run far from the rest of its block, and what there is to say of it."""
    every = [*ours, *theirs]
    if any(each.started_s is None or each.block is None for each in every):
        return list(ours), list(theirs), None
    flags = far_from_block(
        [(each.block, each.started_s or 0.0) for each in every], max((each.reach_s for each in every), default=0.0)
    )
    if not any(flags):
        return list(ours), list(theirs), None
    lost = {each.block for each, far in zip(every, flags, strict=True) if far}
    kept = [None if far else each for each, far in zip(every, flags, strict=True)]
    left, right = ([each for each in side if each is not None] for side in (kept[: len(ours)], kept[len(ours) :]))
    return left, right, apart_note(_minutes_apart(every, lost), len(lost))


def _minutes_apart(every: Sequence[Measurement], blocks: set[str | None]) -> float:
    times: Mapping[Hashable, list[float]] = collected((each.block, each.started_s or 0.0) for each in every)
    return max(max(times[block]) - min(times[block]) for block in blocks) / 60


def apart_note(minutes: float, blocks: int) -> Ruling:
    which = "1 block has" if blocks == 1 else f"{blocks} blocks have"
    sentence = (
        f"{which} trials that began up to {minutes:.0f} min apart, far more than the others: one was run again later. "
        "They are not compared with each other: such a block is left out, or what was run far from the rest of it."
    )
    return Ruling("compare.block-apart", "note", "", sentence)

"""Why one side is slower: where the time goes, and what became of each cause that was tried.

A cause is tried by an intervention: the slow side without it and, where that can be made, the other side with it, in
interleaved blocks with both sides as they are. All comparisons that answer one question are one family (Holm).
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from tare.analysis.compare import Contest, judge
from tare.analysis.labels import text
from tare.analysis.model import Comparison, Difference, Measurement
from tare.analysis.parity import differences, flat
from tare.analysis.statistics import median_estimate
from tare.analysis.why.layers import Moved, moved
from tare.base.errors import StudyError, TareError
from tare.base.text import natural_key, script_and_options, unit_of
from tare.records.model import Record, grouped, is_usable, usable_trials

Role: TypeAlias = str
QUICK, SLOW = "quick", "slow"
Outcome: TypeAlias = Literal["the cause", "a part", "located", "not it", "cannot tell"]

STEP, WHOLE, START = "step_mean_s", "wall_s", "startup_s"
_PARTS = (  # the parts of a step, and the figures that tell them, the first that both sides have
    ("data", ("stall_mean_s",)),
    ("gpu", ("gpu_step_mean_s", "gpu_step_s")),
    ("compute", ("compute_mean_s",)),
)
_MOST = 0.8  # whoever removes as much of the cost leaves none to look for
_SMALL = 0.25  # of the cost: whoever is found to have less is accused after further blocks only
_CLEAR = 1.5  # times longer, the quickest trial of the slow side than the slowest of the other
_SEEN = 0.1  # of the whole cost: a phase that has less of it is not named


def without(cause: str) -> Role:
    return f"without {cause}"


def added(cause: str) -> Role:
    return f"with {cause}"


@dataclass(frozen=True, slots=True)
class Phase:
    """One part of a run, on both sides, in seconds per run."""

    name: str
    quick_s: float
    slow_s: float
    share: float  # of what the whole run has more


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one cause."""

    cause: str
    outcome: Outcome
    removed: Comparison | None  # the slow side without it, against the slow side as it is
    left: Comparison | None  # the slow side without it, against the other side
    brought: Comparison | None = None  # the other side with it, against the other side as it is
    share: float | None = None  # of the cost that went with it, in logs
    same: bool = False  # without it both sides are the same: nothing can be left
    alone: bool = True  # nothing else had been removed: else `left` is without those too

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole cost and what explains it."""

    metric: str
    total: Comparison  # the slow side against the other one
    tried: tuple[Tried, ...] = ()
    cured: Comparison | None = None  # the slow side without all that was found, against the other one, if it was run

    @property
    def causes(self) -> tuple[Tried, ...]:
        """What surely costs: the causes first, then parts, the largest first."""
        found = [each for each in self.tried if each.outcome in ("the cause", "a part")]
        return tuple(sorted(found, key=lambda each: (each.outcome != "the cause", -(each.share or 0.0))))

    @property
    def located(self) -> tuple[Tried, ...]:
        """Those that exchange many things at once and took cost with them: it is among those things."""
        return tuple(each for each in self.tried if each.outcome == "located")

    @property
    def remainder(self) -> Comparison | None:
        """What is left without all that was found, against the other side; None where nothing was removed."""
        lefts = [each.left for each in self.tried if each.outcome in ("the cause", "a part") and each.left is not None]
        known = [each for each in (*lefts, self.cured) if each is not None and each.effect is not None]
        return min(known, key=lambda each: each.effect or 0.0, default=None)

    @property
    def explained(self) -> bool:
        """Whether nothing beyond the margin is left without the causes."""
        if any(each.outcome == "the cause" or (each.same and each.outcome == "a part") for each in self.tried):
            return True
        rest = self.remainder
        if rest is None or rest.effect is None or not self.total.effect or self.total.effect <= 0:
            return False
        small = math.log1p(rest.effect) <= (1 - _MOST) * math.log1p(self.total.effect)
        return _is_gone(rest) or (small and not _is_surely_left(rest))

    def open_for(self, causes: Sequence[str]) -> list[str]:
        """Those of these that more trials would make surer: they seem to cost something beyond the margin, and are not
        seen to; or they are a small part of a cost, which chance may have made of noise. Where one explains it all,
        only whoever is called a part beside it: one of the two is not needed."""
        mine = [each for each in self.tried if each.cause in causes]
        if any(each.outcome == "the cause" for each in mine):
            return [each.cause for each in mine if each.outcome == "a part"]
        return [each.cause for each in mine if not self.explained and (_is_open(each) or _is_small(each))]

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "causes": [each.cause for each in self.causes],
            "located": [each.cause for each in self.located],
            "explained": self.explained,
        }


def _is_open(tried: Tried) -> bool:
    removed = tried.removed
    return tried.outcome == "cannot tell" and removed is not None and (removed.effect or 0.0) < -removed.margin


def _is_small(tried: Tried) -> bool:
    return tried.outcome == "a part" and tried.share is not None and tried.share < _SMALL


def facts_of(records: Iterable[Record]) -> dict[str, Any]:
    """What the trials of one side recorded about software, place and device: flat, of each key the first value."""
    found: dict[str, Any] = {}
    for record in records:
        facts = record.facts
        device = {f"device.{key}": value for key, value in flat(facts.get("device") or {}).items()}
        place = {f"place.{key}": value for key, value in flat(facts.get("place") or {}).items()}
        output = {f"output.{key}": value for key, value in (facts.get("output") or {}).items()}
        served = {f"served.{key}": value for key, value in (facts.get("served") or {}).items()}
        told = {**flat(facts.get("inside") or {}), **place, **device, **output, **served}
        told |= {"variables": facts["variables"]} if "variables" in facts else {}
        found = {**told, "command.words": words_of(record), **found}
    return found


def words_of(record: Record) -> list[str]:
    """The words of a command line, which a store has as one text; none where no command of the user's was run."""
    argv = record.settings.get("workload.argv") or []
    try:
        words = json.loads(argv) if isinstance(argv, str) and (argv == "[]" or argv.startswith('["')) else argv
        return shlex.split(words) if isinstance(words, str) else [str(word) for word in words]
    except ValueError:  # no command line: an open quote
        return []


def metrics_of(records: Sequence[Record]) -> dict[str, float]:
    """The median of each figure over the trials of one side."""
    names = dict.fromkeys(name for record in records for name in record.metrics)
    return {
        name: median_estimate(values).value
        for name in names
        if (values := [record.metrics[name] for record in records if math.isfinite(record.metrics.get(name, math.nan))])
    }


def phases(slow: Mapping[str, float], quick: Mapping[str, float], metric: str = WHOLE) -> tuple[Phase, ...]:
    """Where what was judged is slower, the largest difference first: start-up, exit, and the parts of its steps.

    Of a mean step only its parts are looked at. The tail is what rare, long steps add beyond the median one.
    """
    both = (quick, slow)
    parts: list[tuple[str, float, float]] = []
    if metric != START and all(side.get("steps") for side in both):
        parts += _step_parts(slow, quick)
    if metric in (START, WHOLE):
        if all(START in side for side in both):
            parts.append(("start-up", quick[START], slow[START]))
            if metric == WHOLE and all("exit_s" in side for side in both):
                parts.append(("exit", quick["exit_s"], slow["exit_s"]))
        elif parts and all(WHOLE in side for side in both):
            steps = [side["steps"] * side.get(STEP, 0.0) for side in both]
            parts.append(("start-up", quick[WHOLE] - steps[0], slow[WHOLE] - steps[1]))
    if not parts and all(0 < side.get("cpu_s", 0.0) <= side.get(WHOLE, 0.0) for side in both):  # nothing was marked
        used = [side["cpu_s"] for side in both]
        parts = [("cpu", used[0], used[1]), ("wait", quick[WHOLE] - used[0], slow[WHOLE] - used[1])]
    more = sum(max(0.0, after - before) for _, before, after in parts)
    if more <= 0:
        return ()
    found = [Phase(name, before, after, (after - before) / more) for name, before, after in parts]
    return tuple(sorted((each for each in found if each.share >= _SEEN), key=lambda each: -each.share))


def _step_parts(slow: Mapping[str, float], quick: Mapping[str, float]) -> list[tuple[str, float, float]]:
    """Seconds per run of each part of a step; where steps have none, of the median step and of the tail."""
    found = []
    for name, figures in _PARTS:
        figure = next((each for each in figures if each in slow and each in quick), None)
        if figure is not None:
            found.append((name, quick["steps"] * quick[figure], slow["steps"] * slow[figure]))
    if found or not (STEP in slow and STEP in quick):
        return found
    if not ("step_s" in slow and "step_s" in quick):
        return [("steps", quick["steps"] * quick[STEP], slow["steps"] * slow[STEP])]
    tails = [side["steps"] * max(0.0, side[STEP] - side["step_s"]) for side in (quick, slow)]
    usual = [side["steps"] * side["step_s"] for side in (quick, slow)]
    return [("steps", usual[0], usual[1]), ("tail", tails[0], tails[1])]


def judged_metric(records: Sequence[Record]) -> str:
    """The mean step where every usable trial has one, else the whole run."""
    usable = [record for record in records if is_usable(record)]
    return STEP if usable and all(STEP in record.metrics for record in usable) else WHOLE


@dataclass(frozen=True)
class Wave:
    """Trials that were interleaved with each other: both sides, and some interventions."""

    records: Sequence[Record]
    roles: Mapping[Role, Mapping[str, Any]]  # the platform settings of each
    is_whole: bool = True  # whether the slow side is there as it was found, with nothing removed yet

    def are_same(self, one: Role, other: Role) -> bool:
        """Whether two roles are one side: then its trials say nothing of a difference."""
        sides = [self.roles.get(role) for role in (one, other)]
        return None not in sides and _plain(sides[0]) == _plain(sides[1])

    def joined(self, more: Wave) -> Wave:
        """With further blocks of the same sides."""
        later = 1 + max((record.block for record in self.records), default=0)
        records = [replace(record, block=record.block + later, trial=f"more-{record.trial}") for record in more.records]
        return Wave([*self.records, *records], self.roles, self.is_whole)

    def causes(self) -> list[str]:
        return list(dict.fromkeys(role.partition(" ")[2] for role in self.roles if role not in (QUICK, SLOW)))


def answer(waves: Sequence[Wave], *, margin: float, metric: str | None = None, bundles: Collection[str] = ()) -> Answer:
    """What the trials of both sides, and of each intervention, show.

    An intervention is compared with the sides of its own wave. All waves that have the slow side as it was found tell
    how much slower it is. Each question is one family over all waves (Holm): does removing a cause help, what is then
    left, does it bring the cost to the other side, and what is left where several were removed before. `bundles`:
    causes whose removal exchanges many things at once, which are located and never named.
    """
    name = metric or judged_metric([record for wave in waves for record in wave.records])
    sides = [
        {role: _trials(wave.records, of, name, str(n)) for role, of in wave.roles.items()}
        for n, wave in enumerate(waves)
    ]
    for role in (QUICK, SLOW):
        if any(not each.get(role) for each in sides):
            raise TareError(f"no trial of the {'other' if role == QUICK else 'slow'} side could be used.")
    whole = [each for each, wave in zip(sides, waves, strict=True) if wave.is_whole]
    pooled = [[one for each in whole for one in each[role]] for role in (SLOW, QUICK)]
    unit = unit_of(record.settings.get("workload") for wave in waves for record in wave.records)
    (total,) = judge([Contest(SLOW, QUICK, pooled[0], pooled[1], unit=unit)], margin=margin, metric=name, resamples=0)
    tried = [(n, cause) for n, wave in enumerate(waves) for cause in wave.causes()]
    questions: dict[str, list[tuple[int, Role, Role]]] = {
        "removed": [(n, without(cause), SLOW) for n, cause in tried],
        "left": [(n, without(cause), QUICK) for n, cause in tried if not waves[n].are_same(without(cause), QUICK)],
        "brought": [(n, added(cause), QUICK) for n, cause in tried],
        "base": [(n, SLOW, QUICK) for n, wave in enumerate(waves) if not wave.is_whole],
    }
    judged: dict[tuple[int, Role, Role], Comparison] = {}
    for asked in questions.values():
        held = [each for each in asked if sides[each[0]].get(each[1])]
        family = [Contest(ours, theirs, sides[n][ours], sides[n][theirs]) for n, ours, theirs in held]
        judged |= zip(held, judge(family, margin=margin, metric=name, resamples=0), strict=True)
    found = {}
    for n, cause in tried:  # who was tried twice is told by the second time, when a larger cost had been removed
        base = total if waves[n].is_whole else judged[n, SLOW, QUICK]
        same = waves[n].are_same(without(cause), QUICK)
        each = _tried(cause, n, judged, total, base, alone=waves[n].is_whole, same=same)
        costs = cause in bundles and each.outcome in ("the cause", "a part")
        found[cause] = replace(each, outcome="located") if costs else each
    return Answer(name, total, tuple(found.values()), _cured(waves, found, judged))


def _cured(
    waves: Sequence[Wave], found: Mapping[str, Tried], judged: Mapping[tuple[int, Role, Role], Comparison]
) -> Comparison | None:
    """What the last wave found was still there on its slow side; two that it found were not run without each other."""
    last = len(waves) - 1
    if waves[last].is_whole:
        return None
    late = [found[cause] for cause in waves[last].causes() if found[cause].outcome == "a part"]
    if not late:
        return judged[last, SLOW, QUICK]
    return late[0].left if len(late) == 1 else None


def is_clear(wave: Wave, metric: str, margin: float) -> bool:
    """Whether every trial of the slow side takes much longer than every one of the other: then few blocks will do to
    look for suspects, though not to judge."""
    sides = [[one.value for one in _trials(wave.records, wave.roles[role], metric, "")] for role in (SLOW, QUICK)]
    blocks = {record.block for record in wave.records}
    if any(len(side) < len(blocks) for side in sides):
        return False
    return min(sides[0]) > max(_CLEAR, (1 + margin) ** 2) * max(sides[1])


def _trials(records: Sequence[Record], settings: Mapping[str, Any], metric: str, wave: str) -> list[Measurement]:
    """The usable trials with these settings. Blocks are a wave's own."""
    usable = usable_trials(records, lambda record: is_usable(record) and metric in record.metrics, repeats=False)
    return [
        Measurement("", record.metrics[metric], f"{wave}.{record.block}", trial=record.trial)
        for record in having(settings, usable)
    ]


def having(settings: Mapping[str, Any], records: Iterable[Record]) -> list[Record]:
    """Those with these settings; what a record does not know counts as not set."""
    wanted = {name: _plain(value) for name, value in settings.items()}
    return [each for each in records if all(_plain(each.settings.get(name)) == wanted[name] for name in wanted)]


def _plain(value: Any) -> str:
    """A setting as a store may have it: containers are texts there."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return str(value)
    return json.dumps(value or None, sort_keys=True, default=str)


def _tried(
    cause: str,
    wave: int,
    judged: Mapping[tuple[int, Role, Role], Comparison],
    total: Comparison,
    base: Comparison,
    *,
    alone: bool,
    same: bool,
) -> Tried:
    removed, left = judged.get((wave, without(cause), SLOW)), judged.get((wave, without(cause), QUICK))
    brought = judged.get((wave, added(cause), QUICK))
    share = None
    if removed is not None and removed.effect is not None and total.effect:
        share = -math.log1p(removed.effect) / math.log1p(total.effect)
    outcome = _outcome(removed, left, brought, base, total.margin)
    if same and outcome == "a part":
        outcome = "the cause"
    if outcome == "the cause" and not alone:
        outcome = "a part"  # the last one: others had been removed before
    return Tried(cause, outcome, removed, left, brought, share, same, alone)


def _outcome(
    removed: Comparison | None, left: Comparison | None, brought: Comparison | None, base: Comparison, margin: float
) -> Outcome:
    if removed is None or removed.low is None or removed.high is None:
        return _by_addition(brought, margin)
    if removed.high < 0 and removed.verdict != "equivalent":
        gone = left is not None and _is_gone(left)
        return "the cause" if gone or (_share(removed, base) >= _MOST and not _is_surely_left(left)) else "a part"
    if removed.low > -margin:
        return "not it"
    return "cannot tell"


def _share(removed: Comparison, base: Comparison) -> float:
    """Of the cost that the slow side had in this wave, in logs."""
    if removed.effect is None or not base.effect or base.effect <= 0:
        return 0.0
    return -math.log1p(removed.effect) / math.log1p(base.effect)


def _by_addition(brought: Comparison | None, margin: float) -> Outcome:
    """Where it could not be removed, putting it on the other side tells whether it costs at all."""
    if brought is None or brought.low is None or brought.high is None:
        return "cannot tell"
    return "a part" if brought.verdict == "slower" else "not it" if brought.high < margin else "cannot tell"


def _is_gone(left: Comparison) -> bool:
    """Whether nothing beyond the margin is left."""
    return left.high is not None and left.high <= left.margin


def _is_surely_left(left: Comparison | None) -> bool:
    """Whether more than the margin is left."""
    return left is None or left.low is None or left.low > left.margin


# Why one store is slower than another: two machines, or one machine at two times.
#
# The trials of a side that both stores have are two samples: they were not run in turn, so that what changed between
# the two times, and was not recorded, is part of the difference.

_NOT_THE_WORK = ("workload.env", "workload.cwd", "workload.reads", "workload.writes")
_LOAD = ("api", "requests", "count", "concurrency", "rate", "arrivals", "burst", "trace")
_LOAD_FILES = ("requests", "trace")  # known by name: where a file lies is no difference
_SAME_DEVICE = ("machine", "cpu", "cores", "memory_bytes")
_NO_DIFFERENCE = ("boot_id", "cpu.online")


@dataclass(frozen=True)
class Pair:
    """The slower store and the other one, in the side that both have."""

    slow: str
    quick: str
    side: str  # `runc, train.py`
    total: Comparison
    phases: tuple[Phase, ...]
    counters: tuple[Moved, ...]
    software: tuple[Difference, ...]
    device: Mapping[str, tuple[Any, Any]]  # what the slow side's device has, and the other's
    settings: Mapping[str, tuple[Any, Any]]  # what was set differently
    records: tuple[Sequence[Record], Sequence[Record]]

    @property
    def load(self) -> dict[str, tuple[str, str]]:
        """How the requests to a server differ; then the two did not do the same work."""
        return _differing(*map(_load, self.records))

    def as_json(self) -> dict[str, Any]:
        return {
            "slower": self.slow,
            "quicker": self.quick,
            "side": self.side,
            "total": self.total.as_json(),
            "phases": [asdict(each) for each in self.phases],
            "counters": [asdict(each) for each in self.counters],
            "software": [asdict(each) for each in self.software],
            "device": self.device,
            "settings": self.settings,
            "load": self.load,
        }


def pair(stores: Mapping[str, Sequence[Record]], *, margin: float, metric: str | None = None) -> Pair:
    """Two stores by their names: the side that both have with the most trials, and which store is slower in it."""
    (one, first), (other, second) = stores.items()
    usable = [usable_trials(each, repeats=False) for each in (first, second)]
    groups = [grouped(each, _work) for each in usable]
    if not groups[0].keys() & groups[1].keys():  # an option of the command may be the difference
        groups = [_of_one_command(grouped(each, _program)) for each in usable]
    common = [work for work in groups[0] if work in groups[1]]
    if not common:
        raise StudyError(
            f"{one} and {other} have no platform with the same workload: {_listed(groups[0])}; {_listed(groups[1])}."
        )
    work = max(common, key=lambda each: min(len(groups[0][each]), len(groups[1][each])))
    sides = {one: groups[0][work], other: groups[1][work]}
    name = metric or judged_metric([*sides[one], *sides[other]])
    total = _judged(one, other, sides, name, margin)
    slow, quick = (one, other) if (total.effect or 0.0) >= 0 else (other, one)
    total = _judged(slow, quick, sides, name, margin)
    ours, theirs = sides[slow], sides[quick]
    return Pair(
        slow, quick, _called(work, ours), total,
        phases(metrics_of(ours), metrics_of(theirs), name),
        moved(ours, theirs),
        tuple(differences(ours, theirs, level=slow, against=quick, by="store")),
        _differing(_device(ours), _device(theirs)),
        _differing(ours[0].settings, theirs[0].settings),
        (ours, theirs),
    )  # fmt: skip


def is_here(records: Sequence[Record], here: Mapping[str, Any]) -> bool:
    """Whether these trials ran on a device like this one, by its CPU, cores and memory."""
    device = records[0].facts.get("device") or {}
    return all(device.get(key) == here.get(key) for key in _SAME_DEVICE)


def _work(record: Record) -> str:
    """Platform and program: not their limits, variables and folders, which may be the difference."""
    words = {key: value for key, value in record.settings.items() if key.startswith("workload.")}
    told = words.get("workload.argv") or [value for key, value in sorted(words.items()) if key not in _NOT_THE_WORK]
    plain = told if isinstance(told, str) else " ".join(map(str, told))
    return f"{record.settings['platform']}, {record.settings.get('workload')} {plain}"


def _called(work: str, records: Sequence[Record]) -> str:
    """The same for people: a built-in workload by its title."""
    title = records[0].facts.get("title")
    if not title or "workload.argv" in records[0].settings:
        return work
    return f"{records[0].settings['platform']}, {title}"


def _program(record: Record) -> str:
    """Platform, script and the words that are no option of it; code on the command line is a program of its own."""
    words = words_of(record)
    if not words or "-c" in words[1:3]:
        return _work(record)
    script, options = script_and_options(words)
    plain = [script, *(each for each in options if not each.startswith("-"))]
    return f"{record.settings['platform']}, {record.settings.get('workload')} {' '.join(plain)}"


def _of_one_command(groups: Mapping[str, list[Record]]) -> dict[str, list[Record]]:
    """Those in which a store has one command line: of several, the mean of them all would stand for each."""
    return {name: held for name, held in groups.items() if len({tuple(words_of(each)) for each in held}) == 1}


def _listed(groups: Mapping[str, Any]) -> str:
    return "; ".join(groups) or "no usable trial"


def _judged(ours: str, theirs: str, sides: Mapping[str, Sequence[Record]], metric: str, margin: float) -> Comparison:
    values = {
        name: [Measurement("", each.metrics[metric], trial=each.trial) for each in records if metric in each.metrics]
        for name, records in sides.items()
    }
    unit = unit_of(each.settings.get("workload") for records in sides.values() for each in records)
    contest = Contest(ours, theirs, values[ours], values[theirs], unit=unit)
    (found,) = judge([contest], margin=margin, metric=metric, resamples=0)
    return found


def _device(records: Sequence[Record]) -> dict[str, Any]:
    return {k: v for k, v in flat(records[0].facts.get("device") or {}).items() if k not in _NO_DIFFERENCE}


def _load(records: Sequence[Record]) -> dict[str, str]:
    """Each setting of the load, in words: all its values."""
    found = {}
    for name in _LOAD if records[0].settings.get("workload") == "server" else ():
        values = [each.settings.get(f"workload.{name}") for each in records]
        words = {"not set" if value is None else text(value) for value in values}
        words = {word.rpartition("/")[2] for word in words} if name in _LOAD_FILES else words
        found[name] = ", ".join(sorted(words, key=natural_key))
    return found


def _differing(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    keys = dict.fromkeys((*ours, *theirs))
    return {key: (ours.get(key), theirs.get(key)) for key in keys if ours.get(key) != theirs.get(key)}

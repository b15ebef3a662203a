"""Why one side is slower: where the time goes, and what became of each cause that was tried.

A cause is tried by an intervention: the slow side without it and, where that can be made, the other side with it, in
interleaved blocks with both sides as they are. What is sure, and after how many blocks, is for proof.py to say.
"""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from tare.analysis.compare import Contest, judge
from tare.analysis.directions import direction_of
from tare.analysis.labels import text
from tare.analysis.model import Comparison, Difference, Measurement
from tare.analysis.numeric.medians import median_estimate
from tare.analysis.parity import differences, flat
from tare.analysis.selection import without_throttled_alone
from tare.analysis.why.layers import Moved, moved
from tare.analysis.why.proof import Share, Table, Timed, level_of
from tare.base.command_words import script_and_options
from tare.base.errors import StudyError, TareError
from tare.base.ledger import OF_LAUNCHER, ledger
from tare.base.text import natural_key, unit_of
from tare.records.model import COMMAND, Record, grouped, is_usable, usable_trials

Role: TypeAlias = str
QUICK, SLOW = "quick", "slow"
Outcome: TypeAlias = Literal["the cause", "a part", "located", "not it", "cannot tell", "does not run"]

STEP, WHOLE, START = "step_mean_s", "wall_s", "startup_s"
_PARTS = (  # the parts of a step, and the figures that tell them, the first that both sides have
    ("data", ("stall_mean_s",)),
    ("gpu", ("gpu_step_mean_s", "gpu_step_s")),
    ("compute", ("compute_mean_s",)),
)
_MOST = 0.8  # whoever removes as much of the cost leaves none to look for
_SMALL = 0.25  # of the cost: whoever is found to have less is accused after further blocks only
_LITTLE = 0.1  # of the cost: whoever surely has less is not it
_DISTURBED = frozenset({"cpu.foreign", "cpu.steal"})  # why a trial is invalid whose time is a time, with more scatter
MOST_BLOCKS = 12  # of one wave
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

    @property
    def more_s(self) -> float:
        return self.slow_s - self.quick_s


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
    share_low: float | None = None
    share_high: float | None = None

    @property
    def blocks(self) -> int:
        """In which it was tried."""
        return max((each.n for each in (self.removed, self.brought) if each is not None), default=0)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Answer:
    """The whole cost and what explains it."""

    metric: str
    total: Comparison  # the slow side against the other one
    tried: tuple[Tried, ...] = ()
    cured: Comparison | None = None  # the slow side without all that was found, against the other one, if it was run
    most: int = MOST_BLOCKS  # blocks that a wave may have

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
        return min(known, key=lambda each: each.in_time().effect or 0.0, default=None)

    @property
    def explained(self) -> bool:
        """Whether nothing beyond the margin is left without the causes."""
        if any(each.outcome == "the cause" or (each.same and each.outcome == "a part") for each in self.tried):
            return True
        rest = None if self.remainder is None else self.remainder.in_time()
        whole = self.total.in_time().effect
        if rest is None or rest.effect is None or not whole or whole <= 0:
            return False
        small = math.log1p(rest.effect) <= (1 - _MOST) * math.log1p(whole)
        return _is_gone(rest) or (small and not _is_surely_left(rest))

    @property
    def is_open(self) -> bool:
        """Whether more blocks may show a cost: up to half of the most, and beyond it where there seems to be one."""
        if self.total.verdict != "cannot_tell":
            return False
        seems = (self.total.in_time().effect or 0.0) > self.total.margin
        return self.total.n < (self.most if seems else self.most // 2)

    def open_for(self, causes: Sequence[str]) -> list[str]:
        """Those of these that more blocks would make surer. Where one explains it all, only whoever is called a part
        beside it: one of the two is not needed."""
        mine = [each for each in self.tried if each.cause in causes]
        if proved := [each for each in mine if each.outcome == "the cause"]:
            unsure = [each.cause for each in proved if each.blocks < self.most // 2 and _is_vague(each)]
            beside = [each for each in mine if each.outcome in ("a part", "located")]
            return unsure + [each.cause for each in beside if each.blocks < self.most]
        return [each.cause for each in mine if not self.explained and self._is_open(each)]

    def _is_open(self, tried: Tried) -> bool:
        """A small part of a cost may be noise; who seems to cost something has all blocks, who does not has half."""
        if tried.outcome in ("a part", "located"):
            return tried.share is not None and tried.share < _SMALL and tried.blocks < self.most
        if tried.outcome in ("not it", "does not run"):
            return False
        removed = tried.removed
        seems = removed is not None and (removed.in_time().effect or 0.0) < -removed.margin
        small = tried.share_high is not None and tried.share_high < _SMALL
        return tried.blocks < (self.most if seems and not small else self.most // 2)

    def as_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "causes": [each.cause for each in self.causes],
            "located": [each.cause for each in self.located],
            "explained": self.explained,
        }


def _is_vague(tried: Tried) -> bool:
    """Whether it may be less than half of the cost after all."""
    return not tried.same and (tried.share_low is None or tried.share_low < 0.5)


def facts_of(records: Iterable[Record]) -> dict[str, Any]:
    """What the trials of one side recorded about software, place and device: flat, of each key the first value."""
    found: dict[str, Any] = {}
    for record in records:
        facts = record.facts
        device = {f"device.{key}": value for key, value in flat(facts.get("device") or {}).items()}
        place = {f"place.{key}": value for key, value in flat(facts.get("place") or {}).items()}
        output = {f"output.{key}": value for key, value in (facts.get("output") or {}).items()}
        served = {f"served.{key}": value for key, value in (facts.get("served") or {}).items()}
        inside = {**flat(facts.get("around") or {}), **flat(facts.get("inside") or {})}
        told = {**inside, **place, **device, **output, **served}
        told |= {"variables": facts["variables"]} if "variables" in facts else {}
        found = {**told, "command.words": words_of(record), **found}
    return found


def words_of(record: Record) -> list[str]:
    """The words of a command line, which a store has as one text; none where no command of the user's was run."""
    argv = record.settings.get(COMMAND) or []
    try:
        words = json.loads(argv) if isinstance(argv, str) and (argv == "[]" or argv.startswith('["')) else argv
        return shlex.split(words) if isinstance(words, str) else [str(word) for word in words]
    except ValueError:  # no command line: an open quote
        return []


def metrics_of(records: Sequence[Record]) -> dict[str, float]:
    """The median of each figure over the trials of one side, with what the launcher counted for the ledger alone."""
    known = [{**record.metrics, **_counted(record)} for record in records]
    names = dict.fromkeys(name for each in known for name in each)
    return {
        name: median_estimate(values).value
        for name in names
        if (values := [each[name] for each in known if math.isfinite(each.get(name, math.nan))])
    }


def _counted(record: Record) -> dict[str, float]:
    counted = record.facts.get("counted") or {}
    return {name: float(counted[name]) for name in OF_LAUNCHER if isinstance(counted.get(name), int | float)}


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
    if not parts:  # nothing was marked
        spent = [ledger(side) for side in both]
        return phases_of(spent[1], spent[0]) if all(each.keys() & {"wait", "off"} for each in spent) else ()
    return _phases(parts)


def phases_of(slow: Mapping[str, float], quick: Mapping[str, float]) -> tuple[Phase, ...]:
    """Of two ledgers, the entries that both have and that grew."""
    return _phases([(name, quick[name], slow[name]) for name in slow if name in quick])


def _phases(parts: Sequence[tuple[str, float, float]]) -> tuple[Phase, ...]:
    """Those that have a share of what all are longer by, the largest first."""
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

    def causes(self) -> list[str]:
        return list(dict.fromkeys(role.partition(" ")[2] for role in self.roles if role not in (QUICK, SLOW)))


def answer(
    waves: Sequence[Wave], *, margin: float, metric: str | None = None, bundles: Collection[str] = (),
    most: int = MOST_BLOCKS, share: float = 1.0,
) -> Answer:  # fmt: skip
    """What the trials of both sides, and of each intervention, show; `most`: blocks that a wave may have; `share`: of
    what the whole cost may be wrong in, where another metric is judged too.

    All trials are one table (see proof.py): a side that several waves have is one side of it, and all tell the scatter.
    Each trial of a suspect has its part of what all may be wrong, by the order in which they were tried. `bundles`:
    causes whose removal exchanges many things at once, which are located and never named.
    """
    name = metric or judged_metric([record for wave in waves for record in wave.records])
    held = [each for n, wave in enumerate(waves) for each in _timed(wave.records, name, str(n))]
    sides = {each.side for each in held}
    table = Table(held)
    for role in (QUICK, SLOW):
        if not any(_side(wave.roles[role], wave.records) in sides for wave in waves):
            raise TareError(f"no trial of the {'other' if role == QUICK else 'slow'} side could be used.")
    unit = unit_of(record.settings.get("workload") for wave in waves for record in wave.records)

    def judged(wave: Wave, ours: Role, theirs: Role, suspect: int = 0) -> Comparison | None:
        mine, other = (_side(wave.roles.get(role), wave.records) for role in (ours, theirs))
        if not sides >= {mine, other} or mine == other:
            return None
        level = level_of(most, suspect, share)
        return table.compared(mine, other, (ours, theirs), metric=name, margin=margin, level=level, unit=unit)

    whole = next(wave for wave in waves if wave.is_whole)
    total = judged(whole, SLOW, QUICK)
    if total is None:
        raise TareError("both sides are the same.")
    found: dict[str, Tried] = {}
    place = 0
    for wave in waves:  # who was tried twice is told by the second time, when a larger cost had been removed
        for cause in wave.causes():
            place += 1
            base = total if wave.is_whole else judged(wave, SLOW, QUICK)
            three = [judged(wave, *pair, place) for pair in _questions(cause)]
            same = wave.are_same(without(cause), QUICK)
            ends = [_side(whole.roles[role], whole.records) for role in (SLOW, QUICK)]
            at = [_side(wave.roles.get(role), wave.records) for role in (SLOW, without(cause))]
            gone = table.share(ends[0], ends[1], at[0], at[1], level_of(most, place))
            each = _tried(cause, three, gone, total, base or total, alone=wave.is_whole, same=same)
            if each.outcome == "cannot tell" and _fails(wave, without(cause)):
                each = replace(each, outcome="does not run")
            costs = cause in bundles and each.outcome in ("the cause", "a part")
            found[cause] = replace(each, outcome="located") if costs else each
    return Answer(name, total, tuple(found.values()), _cured(waves[-1], found, judged(waves[-1], SLOW, QUICK)), most)


def _fails(wave: Wave, role: Role) -> bool:
    """Whether the program ended with an error in every trial of this role: what was changed does not work so."""
    its = having(wave.roles[role], wave.records) if role in wave.roles else []
    return bool(its) and all(each.state == "failed" for each in its)


def _questions(cause: str) -> tuple[tuple[Role, Role], ...]:
    """Does removing it help; what is then left; does it bring the cost to the other side."""
    return (without(cause), SLOW), (without(cause), QUICK), (added(cause), QUICK)


def _cured(last: Wave, found: Mapping[str, Tried], base: Comparison | None) -> Comparison | None:
    """What the last wave found was still there on its slow side; two that it found were not run without each other."""
    if last.is_whole:
        return None
    late = [found[cause] for cause in last.causes() if found[cause].outcome == "a part"]
    if not late:
        return base
    return late[0].left if len(late) == 1 else None


def disturbed(records: Iterable[Record]) -> int:
    """How many trials count although other processes disturbed them: each was tried again, and none was better."""
    return sum(not is_usable(each) for each in usable_trials(records, _fitness, repeats=False))


def _fitness(record: Record) -> int:
    """How fit an attempt is: usable, or disturbed by others, which has a time all the same; its scatter tells."""
    if is_usable(record):
        return 2
    wrong = {each.code for each in record.reasons if each.weight == "invalid"}
    return int(record.state == "invalid" and bool(wrong) and wrong <= _DISTURBED)


def _timed(records: Sequence[Record], metric: str, wave: str) -> list[Timed]:
    """The trials that have this figure. Blocks are a wave's own."""
    fit = usable_trials(records, lambda each: _fitness(each) if each.metrics.get(metric, 0) > 0 else 0, repeats=False)
    cool = without_throttled_alone(fit)
    sign = -1.0 if direction_of(metric).rises else 1.0
    return [Timed(f"{wave}.{each.block}", _of_record(each), sign * math.log(each.metrics[metric])) for each in cool]


def _of_record(record: Record) -> str:
    """What tells its platform from others: what is not set is as what is not known."""
    its = {name: _plain(value) for name, value in record.settings.items() if name.partition(".")[0] == "platform"}
    return json.dumps({name: value for name, value in its.items() if value != "null"}, sort_keys=True)


def _side(settings: Mapping[str, Any] | None, records: Sequence[Record]) -> str | None:
    """The side of these settings, as its records have it: they may know more of it than was asked for."""
    if settings is None:
        return None
    its = having(settings, records)
    return _of_record(its[0]) if its else None


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
    three: Sequence[Comparison | None],
    share: Share | None,
    total: Comparison,
    base: Comparison,
    *,
    alone: bool,
    same: bool,
) -> Tried:
    removed, left, brought = three
    timed = [None if each is None else each.in_time() for each in three]
    outcome = _outcome(timed[0], timed[1], timed[2], base.in_time(), share, total.margin)
    if same and outcome == "a part":
        outcome = "the cause"
    if outcome == "the cause" and not alone:
        outcome = "a part"  # the last one: others had been removed before
    known = share or Share(None, None, None)
    return Tried(cause, outcome, removed, left, brought, known.share, same, alone, known.low, known.high)


def _outcome(
    removed: Comparison | None, left: Comparison | None, brought: Comparison | None, base: Comparison,
    share: Share | None, margin: float,
) -> Outcome:  # fmt: skip
    if removed is None or removed.low is None or removed.high is None:
        return _by_addition(brought, margin)
    if removed.high < 0 and removed.verdict != "equivalent":
        gone = left is not None and _is_gone(left)
        return "the cause" if gone or (_share(removed, base) >= _MOST and not _is_surely_left(left)) else "a part"
    too_little = share is not None and share.high is not None and share.high < _LITTLE
    return "not it" if removed.low > -margin or too_little else "cannot tell"


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
    usable = [without_throttled_alone(usable_trials(each, repeats=False)) for each in (first, second)]
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
    slow, quick = (one, other) if (total.harm or 0.0) >= 0 else (other, one)
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
    told = words.get(COMMAND) or [value for key, value in sorted(words.items()) if key not in _NOT_THE_WORK]
    plain = told if isinstance(told, str) else " ".join(map(str, told))
    return f"{record.settings['platform']}, {record.settings.get('workload')} {plain}"


def _called(work: str, records: Sequence[Record]) -> str:
    """The same for people: a built-in workload by its title."""
    title = records[0].facts.get("title")
    if not title or COMMAND in records[0].settings:
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

"""A claim, what it looks at, and what was found.

The usable trials of one population, as logs by cell and block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from statistics import fmean, median
from typing import Any, Literal, TypeAlias

from tare.ext.analysis import (
    ALPHA,
    DEFAULT_MARGIN,
    DEVICE_KEYS,
    PLACEMENT,
    Measurement,
    Record,
    TrialRow,
    device_of,
    differences,
    flat,
    grouped,
    noise_floor,
    rule_for,
    taints,
    title_of,
)
from tare.ext.analysis import label_text as text
from tare.papers.claims.metrics import (
    COMPUTE,
    Cell,
    Factor,
    Names,
    Value,
    absent,
    cell_of,
    factor_named,
    is_bare,
    level,
    weight,
)

# Ratios, interactions, trends and tendencies, block by block, on the log scale.
#
# Everything that a claim says comes down to one log value a block: the difference of two cells (a ratio), the
# difference of two such differences (an interaction), or a trend over ordered levels. A trend is the least-squares
# slope over the ranks of the levels, times the number of steps: by how much the last level differs from the first.
# Blocks are then what is tested, by signed ranks (docs/decisions/0002-statistics.md).

FEW = 0.5  # a cell with less than this share of the blocks says too little to be pooled


@dataclass(frozen=True)
class Series:
    """One log value a block, and the trials that it comes from."""

    values: Mapping[str, float]  # block ("0/3": of the first store, the fourth) -> log
    trials: frozenset[str]
    tainted: tuple[str, ...] = ()

    def minus(self, other: Series) -> Series:
        return joined([self, other], lambda ours, theirs: ours - theirs)

    def over(self, number: float) -> Series:
        """Each log as so many equal parts has one of them."""
        return replace(self, values={block: log / number for block, log in self.values.items()})

    def of_store(self, store: str) -> Series:
        return replace(self, values={block: log for block, log in self.values.items() if store_of(block) == store})


Cells: TypeAlias = Mapping[Cell, Series]


def joined(series: Iterable[Series], how: Callable[..., float]) -> Series:
    """Several series as one, in the blocks that all of them have."""
    all_of_them = list(series)
    blocks = [block for block in all_of_them[0].values if all(block in each.values for each in all_of_them)]
    return Series(
        {block: how(*(each.values[block] for each in all_of_them)) for block in blocks},
        frozenset().union(*(each.trials for each in all_of_them)),
        tuple(dict.fromkeys(sentence for each in all_of_them for sentence in each.tainted)),
    )


def without(cell: Cell, *names: str) -> Cell:
    return frozenset(item for item in cell if item[0] not in names)


def where(cells: Cells, keep: Callable[[Cell], bool]) -> Cells:
    return {cell: series for cell, series in cells.items() if keep(cell)}


def at(cells: Cells, factor: Factor, value: Value | None) -> Cells:
    """The cells that have this level."""
    return where(cells, lambda cell: level(cell, factor) == value)


def minus(ours: Cells, theirs: Cells) -> Cells:
    """Two figures of the same cells, one less the other."""
    return _filled({cell: series.minus(theirs[cell]) for cell, series in ours.items() if cell in theirs})


def by_level(cells: Cells, factor: Factor) -> dict[Cell, dict[Value, Series]]:
    """The cells that are equal in all but one factor, together, by its levels."""
    made: dict[Cell, dict[Value, Series]] = {}
    for cell, series in cells.items():
        if factor is not None and (value := level(cell, factor)) is not None:
            made.setdefault(without(cell, factor), {})[value] = series
    return made


def by_level_of_store(cells: Cells, factor: Factor) -> Iterator[tuple[Cell, dict[Value, Series]]]:
    """The same, store by store: a level that only another store has shares no block with these."""
    for rest, found in by_level(cells, factor).items():
        for store in _stores(found.values()):
            parts = {value: series.of_store(store) for value, series in found.items()}
            yield rest, {value: part for value, part in parts.items() if part.values}


def gathered(pairs: Iterable[tuple[Cell, Series]]) -> Cells:
    """What several stores have of a cell, as one series."""
    made: dict[Cell, Series] = {}
    for cell, series in pairs:
        before = made.get(cell, Series({}, frozenset()))
        tainted = tuple(dict.fromkeys((*before.tainted, *series.tainted)))
        made[cell] = Series({**before.values, **series.values}, before.trials | series.trials, tainted)
    return _filled(made)


def levels(cells: Cells, factor: Factor) -> list[Value]:
    return list(dict.fromkeys(value for cell in cells if (value := level(cell, factor)) is not None))


def split(cells: Cells, factor: Factor) -> dict[Value | None, Cells]:
    """Level -> the cells that have it; None: those that have none."""
    return {
        value: {cell: cells[cell] for cell in its}
        for value, its in grouped(cells, lambda cell: level(cell, factor)).items()
    }


def each_model(cells: Cells) -> dict[str, Cells]:
    """`, LeNet-5` -> its cells; all of them under no name where no setting is the model."""
    name = factor_named(cells, "model")
    if name is None:
        return {"": cells} if cells else {}
    return {
        f", {title_of('models', str(model))}": mine for model, mine in split(cells, name).items() if model is not None
    }


def against(cells: Cells, factor: Factor, one: Value, other: Value) -> Cells:
    """The cells with level `one`, each less the same with level `other`."""
    return _filled(
        {
            rest: found[one].minus(found[other])
            for rest, found in by_level(cells, factor).items()
            if one in found and other in found
        }
    )


def ends(cells: Cells, factor: Factor, order: Callable[[Value], float | None]) -> Cells:
    """The last level in this order, less the first, of every set of cells that has two or more."""
    return gathered(
        (rest, ordered[-1].minus(ordered[0]))
        for rest, found in by_level_of_store(cells, factor)
        if len(ordered := _ordered(found, order)) > 1
    )


def trend(cells: Cells, factor: Factor, order: Callable[[Value], float | None]) -> Cells:
    """By how much the last level differs from the first, by a line through all of them."""
    return gathered(
        (rest, joined(ordered, _rise))
        for rest, found in by_level_of_store(cells, factor)
        if len(ordered := _ordered(found, order)) > 1
    )


def last_doubling(cells: Cells, factor: Factor) -> Cells:
    """What a doubling changes between the two largest levels; where there are three or more."""
    return gathered(
        (rest, last.minus(before).over(math.log2(above / below)))
        for rest, (below, before), (above, last) in _two_largest(cells, factor)
    )


def largest_levels(cells: Cells, factor: Factor) -> list[str]:
    """Between which two levels the last doubling lies: `["16 to 64"]`, one for each pair where cells have others."""
    return list(dict.fromkeys(f"{below:g} to {above:g}" for _, (below, _), (above, _) in _two_largest(cells, factor)))


def _two_largest(cells: Cells, factor: Factor) -> Iterator[tuple[Cell, tuple[float, Series], tuple[float, Series]]]:
    """Of every set of cells that has three levels or more, the two largest."""
    for rest, found in by_level_of_store(cells, factor):
        numbered = [(number, series) for value, series in found.items() if (number := rising(value) or 0.0) > 0]
        if len(numbered) >= 3:
            before, last = sorted(numbered, key=lambda each: each[0])[-2:]
            yield rest, before, last


def pooled(cells: Cells) -> Series | None:
    """The mean over all cells, block by block; a block that misses a cell is adjusted by that cell's own median.

    Only cells of the same store share blocks; a cell with less than half of the store's blocks is left out.
    """
    values: dict[str, float] = {}
    used: list[Series] = []
    for store in _stores(cells.values()):
        parts = [series.of_store(store) for series in cells.values()]
        most = max(len(part.values) for part in parts)
        kept = [part for part in parts if len(part.values) >= FEW * most]
        values |= _adjusted([part.values for part in kept])
        used += kept
    if not values:
        return None
    whole = joined(used, lambda *_: 0.0)
    return Series(values, whole.trials, whole.tainted)


def _adjusted(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    centred = [(part, median(part.values())) for part in parts]
    whole = fmean(centre for _, centre in centred)
    return {
        block: whole + fmean(part[block] - centre for part, centre in centred if block in part)
        for block in dict.fromkeys(block for part in parts for block in part)
    }


def typical(cells: Cells) -> float:
    """The median of all logs of these cells."""
    return median(log for series in cells.values() for log in series.values.values())


def store_of(block: str) -> str:
    """`0` of `0/3`."""
    return block.partition("/")[0]


def _stores(several: Iterable[Series]) -> list[str]:
    return list(dict.fromkeys(store_of(block) for series in several for block in series.values))


def _ordered(found: Mapping[Value, Series], order: Callable[[Value], float | None]) -> list[Series]:
    ranked = [(rank, series) for value, series in found.items() if (rank := order(value)) is not None]
    return [series for _, series in sorted(ranked, key=lambda pair: pair[0])]


def _rise(*values: float) -> float:
    middle = (len(values) - 1) / 2
    weights = [place - middle for place in range(len(values))]
    slope = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(w * w for w in weights)
    return slope * (len(values) - 1)


def _filled(cells: dict[Cell, Series]) -> Cells:
    return {cell: series for cell, series in cells.items() if series.values}


def rising(value: Value) -> float | None:
    """The order of numbers; a level that is none has no place in it."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def falling(value: Value) -> float | None:
    number = rising(value)
    return None if number is None else -number


_HOW_MANY = ("cores", "leave_idle", "quota", "cpuset")  # cores: as many must be compared, pinned or not
_UNSAID: Cell = frozenset({("platform.pin", False), ("platform.leave_idle", 0)})  # as where nothing is said of it


@dataclass(frozen=True)
class Population:
    """Trials that may be compared with each other, of one or several stores, and the A/A repeats that tell their noise.

    Each has a cell: its settings, as claims compare them.
    """

    trials: Sequence[TrialRow]
    twins: Sequence[TrialRow] = ()
    baselines: Sequence[Mapping[str, Any]] = ()  # what the studies compare against: {"control.power_mode": "15W"}
    name: str = ""
    alpha: float = ALPHA  # stricter where a run looked at its intervals to know when to stop
    idle: Sequence[TrialRow] = ()  # trials of an idle device: no evidence of what work costs
    _floors: dict[str, float | None] = field(default_factory=dict)
    _taints: dict[tuple[Cell, Cell], tuple[str, ...]] = field(default_factory=dict)

    def first(self, names: Names, among: Callable[[Record], bool] = lambda _: True) -> str | None:
        """The first of these figures that any trial may be compared by: one without it must not change the others'."""
        chosen = [trial.compared for trial in self.trials if among(trial)]
        return next((name for name in names if any(name in metrics for metrics in chosen)), None)

    def absent(self, names: Names) -> str:
        """Why no trial has any of these figures, in words."""
        return absent(names, self.trials) if self.trials else "no trial trained or used a network outside of a server"

    def cells(self, names: Names, among: Callable[[Record], bool] = lambda _: True) -> Cells:
        """The logs of a figure, by cell and block."""
        name = self.first(names, among)
        if name is None:
            return {}
        return self.figured(lambda record: record.compared.get(name), among)

    def figured(
        self, figure: Callable[[TrialRow], float | None], among: Callable[[Record], bool] = lambda _: True
    ) -> Cells:
        """The same for a figure that is worked out of a trial; what is not more than zero has no log and is left."""
        known = [(trial, value) for trial in filter(among, self.trials) if (value := figure(trial)) is not None]
        positive = [(trial, math.log(value)) for trial, value in known if math.isfinite(value) and value > 0]
        made = {}
        for cell, pairs in grouped(positive, lambda pair: self.cell(pair[0])).items():
            blocks = grouped(pairs, lambda pair: str(pair[0].block_id))
            values = {block: median(log for _, log in inside) for block, inside in blocks.items()}
            made[cell] = Series(values, frozenset(trial.trial for trial, _ in pairs))
        return made

    def cell(self, trial: TrialRow) -> Cell:
        return self._cells[id(trial)]

    @cached_property
    def _cells(self) -> dict[int, Cell]:
        once: dict[Cell, Cell] = {}  # equal ones are one object, which is compared in no time
        return {id(trial): once.setdefault(cell := cell_of(trial), cell) for trial in (*self.trials, *self.twins)}

    def floor(self, names: Names) -> float | None:
        """By how much a twin differed from its first in this figure, at most; None where nothing was run twice."""
        name = self.first(names)
        if name is None:
            return None
        if name not in self._floors:
            self._floors[name] = max(self._twin_differences(name), default=None)
        return self._floors[name]

    def _twin_differences(self, name: str) -> list[float]:
        found = []
        twins, trials = (grouped(side, self.cell) for side in (self.twins, self.trials))
        for cell in twins:
            sides = [
                [
                    Measurement("", value, trial.block_id)
                    for trial in side.get(cell, [])
                    if (value := trial.compared.get(name, 0.0)) > 0
                ]
                for side in (twins, trials)
            ]
            if all(sides) and (apart := noise_floor(*sides)) is not None:
                found.append(apart.seen)
        return found

    # Platforms

    def over(
        self,
        cells: Cells,
        ours: Callable[[Cell], bool],
        theirs: Callable[[Cell], bool] = is_bare,
        ways: Sequence[Sequence[str]] = (PLACEMENT, _HOW_MANY),
    ) -> Cells:
        """Each cell of our platforms less the like cell of theirs, with what their software does not share.

        Alike are those that agree in all of this placement; where there is none, in all of the next.
        """
        # Of several cells of theirs with the same surroundings, the one with fewest settings of its own.
        of_theirs = sorted(filter(theirs, cells), key=lambda each: (len(each), sorted(map(str, each))), reverse=True)
        likes = [{_surroundings(cell, names): cell for cell in of_theirs} for names in ways]
        made = {}
        for cell in filter(ours, cells):
            keys = [_surroundings(cell, names) for names in ways]
            like = next((index[key] for index, key in zip(likes, keys, strict=True) if key in index), None)
            if like is not None and (ratio := self.ratio(cells, cell, like)).values:
                made[cell] = ratio
        return made

    def ratio(self, cells: Cells, cell: Cell, like: Cell) -> Series:
        """One cell less another of another platform, with what their software does not share."""
        found = cells[cell].minus(cells[like])
        return Series(found.values, found.trials, self._tainted(cell, like)) if found.values else found

    def _tainted(self, cell: Cell, like: Cell) -> tuple[str, ...]:
        if (cell, like) not in self._taints:
            ours, theirs = self.by_cell[cell], self.by_cell[like]
            names = [str(level(each, "platform")) for each in (cell, like)]
            found = differences(ours, theirs, level=names[0], against=names[1], by="platform")
            self._taints[cell, like] = tuple(taints(found))
        return self._taints[cell, like]

    @cached_property
    def by_cell(self) -> dict[Cell, list[TrialRow]]:
        return grouped(self.trials, self.cell)

    # Models

    @cached_property
    def model_order(self) -> dict[Any, float]:
        """Every model's place from light to heavy: by multiply-adds where all are known, else by measured compute."""
        cells = self.cells(COMPUTE)
        name = factor_named(cells, "model")
        if name is None:
            return {}
        models = dict.fromkeys(level(cell, name) for cell in cells)
        known = {model: weight(model) for model in models if model is not None}
        if all(each is not None for each in known.values()):
            return {model: float(each) for model, each in known.items() if each is not None}
        bare = split(where(cells, is_bare) or cells, name)
        return {model: typical(bare[model]) for model in known if model in bare}

    def lightest(self, cells: Cells, model: Factor) -> Value | None:
        """Of the models of these cells."""
        return min((level(cell, model) for cell in cells), key=lambda name: self.model_order.get(name, math.inf))

    def heavier(self, cells: Cells, model: Factor) -> Cells:
        """The cells of all models but the lightest."""
        lightest = self.lightest(cells, model)
        return where(cells, lambda cell: level(cell, model) != lightest)


def _surroundings(cell: Cell, placement: Sequence[str]) -> Cell:
    """A cell without its platform, but with how many cores it has, and which."""
    kept = {f"platform.{name}" for name in placement}
    return frozenset(
        item
        for item in cell - _UNSAID
        if item[0] in kept or not (item[0] == "platform" or item[0].startswith("platform."))
    )


def device_facts(record: Record) -> dict[str, str]:
    """What must be the same of the device, for trials to be pooled."""
    facts = flat(record.facts.get("device") or {})
    found = {key: text(facts[key]) for key in DEVICE_KEYS if key in facts}
    return found | {"device": str(device_of(record))}


def software(record: Record) -> dict[str, str]:
    """What the work was done with: libraries and versions, but not what a study sets (threads, cores, malloc)."""
    facts = flat(record.facts.get("inside") or {})
    return {key: text(facts[key]) for key in facts if (rule := rule_for(key)).matters and not rule.factors}


Word: TypeAlias = Literal["holds here", "does not hold here", "undecided", "not measured"]
HOLDS: Word = "holds here"
FAILS: Word = "does not hold here"
UNDECIDED: Word = "undecided"
NOT_MEASURED: Word = "not measured"
ASSUMED = "assumed"  # facts: figures of a record that rest on an assumption of ours, which no paper has made

Wants: TypeAlias = Literal["rises", "falls", "same", "apart"]
Kind: TypeAlias = Literal["change", "share", "points"]  # what a figure is: 30 % more, 30 % of it, 30 points more of it


@dataclass(frozen=True)
class Check:
    """One figure that a claim says something about: what it is, what it should do, and its values block by block."""

    about: str  # "step time, docker against bare"
    wants: Wants
    ours: tuple[Measurement, ...]
    theirs: tuple[Measurement, ...]
    margin: float = DEFAULT_MARGIN  # within this it has not changed
    bound: float = 0.0  # a share that the effect must lie above (rises) or below (falls); then the margin is 0
    kind: Kind = "change"  # "share": the values are shares of a whole; "points": their logs are
    floor: float | None = None  # by how much the same thing differed from itself
    trials: frozenset[str] = frozenset()
    tainted: tuple[str, ...] = ()  # what else differs between the sides
    parts: tuple[Check, ...] = ()  # of a tendency: the same in each of its cells
    no_evidence: str = ""  # why failing would not speak against the claim, in words: then it is undecided
    is_condition: bool = False  # says whether there was anything to see; it need not hold in every cell


@dataclass(frozen=True)
class Look:
    """What the records have to say about a claim: checks, and in words what they do not have."""

    checks: Sequence[Check] = ()
    missing: Sequence[str] = ()
    depends_on: str = ""  # an assumption that could turn the word, in words: then it is undecided

    @classmethod
    def of(cls, checks: Sequence[Check], *instead: str, depends_on: str = "") -> Look:
        """These checks; where there are none, only what is missing."""
        return cls(checks, depends_on=depends_on) if checks else cls(missing=instead)


@dataclass(frozen=True)
class Claim:
    """A take-away of a paper."""

    id: str  # "s0.lighter-models-lose-more": the paper, then the statement in short
    section: str
    statement: str
    study: str  # the study that would measure it: `tare run` with this name
    look: Callable[[Population], Look]
    any_of: bool = False  # one check that holds is enough ("can be", "may not be")
    across: bool = False  # it compares devices or software with each other: all populations are looked at together
    of_idle: bool = False  # it is about a device that does nothing
    also: tuple[str, ...] = ()  # further papers that say the same
    scale: str = ""  # of the study, where not each of its scales has what the claim is about

    @property
    def papers(self) -> tuple[str, ...]:
        return self.id.partition(".")[0], *self.also

    @property
    def paper(self) -> str:
        """`S1/S3`."""
        return "/".join(name.upper() for name in self.papers)

    @property
    def command(self) -> str:
        return f"tare run {self.study}{f' --scale {self.scale}' if self.scale else ''}"


@dataclass(frozen=True)
class Answer:
    """One claim on one population, in one word, with what the word rests on. Effects are shares."""

    id: str
    paper: str
    section: str
    statement: str
    word: Word
    effect: float | None
    low: float | None
    high: float | None
    n: int  # blocks that hold all that is compared, or trials on the smaller side
    trials: tuple[str, ...]
    why: str
    study: str
    where: str = ""  # the population, where there are several
    kind: Kind = "change"  # what the effect is: of a share it is the share itself, or the points by which it changed

    def as_json(self, ready: Collection[str]) -> dict[str, Any]:
        """All of it, and whether its study is among those that are `ready` to be run."""
        return {**asdict(self), "trials": list(self.trials), "study_ready": study_of(self.study) in ready}


def study_of(command: str) -> str:
    """The study in `tare run STUDY --scale SCALE`."""
    return command.removeprefix("tare run ").partition(" ")[0]


COUNTED: Mapping[Word, tuple[str, str]] = {  # how one is counted, and how several are
    HOLDS: ("holds", "hold"), FAILS: ("does not hold", "do not hold"), UNDECIDED: ("undecided", "undecided"),
}  # fmt: skip
LARGE = 1.0  # from +100 % on, a factor reads better than percent
LEAST_SHARE, BELOW_LEAST = 0.001, "below 0.1 %"  # a share that is less is not told in digits


def figure_words(kind: Kind, effect: float, low: float, high: float) -> str:
    """`+1.6 % [+0.4, +2.9]`, `94x [48x, 185x]`, `31.0 % [28.4, 33.0]`, `+30.0 points [+22.1, +38.0]`."""
    if kind == "change" and effect >= LARGE:
        return f"{times(1 + effect)} [{times(1 + low)}, {times(1 + high)}]"
    if kind == "share" and is_tiny(high):
        return BELOW_LEAST
    number = _share if kind == "share" else _signed
    return f"{effect_words(kind, effect)} [{number(low)}, {number(high)}]"


def effect_words(kind: Kind, effect: float) -> str:
    """`+1.6 %`, `94x`, `31.0 %`, `+30.0 points`."""
    if kind == "change" and effect >= LARGE:
        return times(1 + effect)
    return f"{(_share if kind == 'share' else _signed)(effect)} {'points' if kind == 'points' else '%'}"


def is_tiny(share: float) -> bool:
    """Whether a share is more than nothing, and less than is told."""
    return 0 < share < LEAST_SHARE


def times(factor: float) -> str:
    """`185x`, `3.6x`, `0.97x`: near one, which is no change, with one digit more."""
    decimals = 0 if factor >= 100 else 1 if factor >= 2 else 2
    return f"{factor:,.{decimals}f}x"


def _share(share: float) -> str:
    return f"{100 * share:.1f}"


def _signed(share: float) -> str:
    """`+1.6`; what is shown as nothing has no sign."""
    shown = f"{100 * share:+.1f}"
    return shown if float(shown) else "0.0"

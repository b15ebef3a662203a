"""Trials of the same settings, together: what is placed on a front, recommended, or compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Literal, TypeAlias

import numpy as np

from tare.analysis.cells import few_runs, fixed_in_rounds
from tare.analysis.directions import direction_of
from tare.analysis.estimators import Sides, line_up
from tare.analysis.labels import Namer, is_of_store, name_words, setting_words
from tare.analysis.model import Estimate, Measurement
from tare.analysis.numeric.medians import ALPHA, FLOOR, Floats
from tare.analysis.observations import Setting, number, setting_column
from tare.analysis.tables.table import Table, read_table, run_order
from tare.analysis.work import MODELS
from tare.base.declare import Role, before
from tare.base.errors import StudyError, unknown_name
from tare.records.model import TrialRow, collected, grouped
from tare.records.schema import is_store


@dataclass(frozen=True, slots=True)
class Configuration:
    """One set of settings and every trial of it that has all the figures that are asked about."""

    settings: Mapping[str, Setting]
    trials: tuple[TrialRow, ...]
    group: str | None = None

    @property
    def n(self) -> int:
        return len(self.trials)

    @property
    def label(self) -> str:
        return settings_text(self.settings)

    def values(self, figure: str) -> Floats:
        return np.array([trial.metrics[figure] for trial in self.trials], dtype=np.float64)

    def centre(self, figure: str) -> float:
        """The median over the trials: the trial is the unit (validity.md M1)."""
        if len(self.trials) == 1:
            return self.trials[0].metrics[figure]
        return median([trial.metrics[figure] for trial in self.trials])  # numpy costs ten times as much for a few


def configurations(rows: Iterable[TrialRow], figures: Sequence[str]) -> list[Configuration]:
    """The rows by group and settings; rows that lack a figure are left out.

    Groups come in the order in which they appear. Within a group all is sorted: chance draws by place, and what it
    draws must not depend on the order of the rows.
    """
    whole = (row for row in rows if all(figure in row.metrics for figure in figures))
    made = []
    for group, its in grouped(whole, lambda row: row.group).items():
        settings = collected(zip(settings_keys(its), its, strict=True))
        for key in sorted(settings, key=_sort_key):
            trials = settings[key]
            if len(trials) > 1:
                trials = sorted(trials, key=lambda row: [row.metrics[figure] for figure in figures])
            made.append(Configuration(settings[key][0].settings, tuple(trials), group))
    return made


def settings_keys(rows: Sequence[TrialRow]) -> list[tuple[tuple[str, Setting], ...]]:
    """The settings of each row, by name: equal where they are the same."""
    names = sorted(rows[0].settings) if rows else []
    if all(len(row.settings) == len(names) and all(map(row.settings.__contains__, names)) for row in rows):
        return [tuple([(name, row.settings[name]) for name in names]) for row in rows]
    return [tuple(sorted(row.settings.items())) for row in rows]


def configurations_of_jobs(
    rows: Sequence[TrialRow], figures: Sequence[str], source: Path | str
) -> tuple[Sequence[TrialRow], list[Configuration], tuple[str, ...]]:
    """The rows with a group for each job, their configurations (there are some), and what to say of the jobs."""
    rows, apart = models_apart(rows)
    found = configurations(rows, figures)
    if not found:
        raise StudyError(f"{source}: no row has all of {', '.join(figures)}.")
    return rows, found, apart


def models_apart(rows: Sequence[TrialRow]) -> tuple[list[TrialRow], tuple[str, ...]]:
    """The rows with a group for each job (workload, model, data, load), and a note, where nobody has grouped them.

    The lightest model, and the lowest rate, would always be recommended: which one to run is no question of speed.
    """
    if any(row.group is not None for row in rows):
        return list(rows), ()
    known = dict.fromkeys(name for row in rows for name in row.settings)
    names = [*filter(names_work, known), *(name for name in before().saying("condition") if name in known)]
    several: list[str] = []
    for name in names:
        if len({row.settings.get(name) for row in rows}) > 1 and not (several and _follows(rows, name, several)):
            several.append(name)
    if not several:
        return list(rows), ()
    made = [
        replace(
            row,
            group=", ".join(_value_words(name, row.settings[name]) for name in several if name in row.settings)
            or ", ".join(f"no {name_words(name)}" for name in several),
        )
        for row in rows
    ]
    told = " and ".join(name_words(name.removesuffix(".state")) for name in several)
    return made, (f"the trials differ in {told}: each is answered by itself, and none is ranked against another.",)


def shared_settings(found: Sequence[Configuration]) -> dict[str, Setting]:
    """What all of them have alike; of a single one, what is no choice."""
    first, *others = (each.settings for each in found)
    return {
        name: value
        for name, value in first.items()
        if (all(each.get(name) == value for each in others) if others else _is_given(name))
    }


def _is_given(name: str) -> bool:
    """Whether nobody chooses it for speed."""
    return names_work(name) or "condition" in before().setting(name).says


@lru_cache(maxsize=1024)
def names_work(name: str) -> bool:
    """Whether a setting says which work is done: what another model takes says nothing about this one."""
    return "work" in before().setting(name).says or name.rpartition(".")[2].lower() in MODELS


def _follows(rows: Sequence[TrialRow], name: str, others: Sequence[str]) -> bool:
    """Whether a setting changes only with others: a data set that each model brings makes no further job."""
    seen: dict[tuple[object, ...], object] = {}
    return all(
        seen.setdefault(tuple(map(row.settings.get, others)), row.settings.get(name)) == row.settings.get(name)
        for row in rows
    )


def default_among(
    found: Sequence[Configuration], every: Sequence[Configuration], wanted: Mapping[str, Setting], source: Path | str
) -> Configuration | None:
    """The default, in a group that has it; None where another group of `every` has it."""
    try:
        return find_configuration(found, wanted, source)
    except StudyError:
        known = list(dict.fromkeys(name for each in every for name in each.settings))
        named = {_known_as(name, known, source): value for name, value in wanted.items()}
        if any(_fits(each, named) for each in found) or not any(_fits(each, named) for each in every):
            raise
        return None


def centres(found: Sequence[Configuration], figures: Sequence[str]) -> Floats:
    """Configurations x figures: the median of each."""
    return np.array([[each.centre(figure) for figure in figures] for each in found], dtype=np.float64).reshape(
        len(found), len(figures)
    )


def copied_rows(found: Iterable[Configuration], figures: Sequence[str]) -> tuple[str, ...]:
    """A sentence where trials of a configuration are equal to the last digit: a copy is no repeat."""
    several = (each.trials for each in found if len(each.trials) > 1)
    count = sum(
        len({tuple(trial.metrics[figure] for figure in figures) for trial in trials}) < len(trials)
        for trials in several
    )
    if not count:
        return ()
    few = "1 configuration has" if count == 1 else f"{count} configurations have"
    return (f"{few} trials with exactly the same values. Were rows copied? A copy is not a repeat.",)


def settings_text(settings: Mapping[str, Setting]) -> str:
    """`gpu_mhz=1980, cores=8`."""
    return ", ".join(f"{name}={setting_text(value)}" for name, value in settings.items()) or "the only configuration"


def settings_words(settings: Mapping[str, Setting]) -> str:
    """The same for people: `docker, batch 8` of a store, and of a table its columns."""
    own = Namer([settings], [name for name in settings if is_of_store(name)])
    words = (own.setting(n, each) if is_of_store(n) else f"{n}={setting_text(each)}" for n, each in settings.items())
    return ", ".join(words) or settings_text(settings)


def _value_words(name: str, value: Setting) -> str:
    return setting_words(name, value) if is_of_store(name) else setting_text(value)


def setting_text(value: Setting) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def assignments(written: str) -> dict[str, Setting]:
    """`gpu_mhz=1980,cores=8` as settings; numbers where they are numbers."""
    found: dict[str, Setting] = {}
    for part in written.split(","):
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not (name and sign and value):
            raise StudyError(f"{written!r} is not a list of settings; write it like 'gpu_mhz=1980,cores=8'.")
        parsed = number(value)
        found[name] = value if parsed is None else parsed
    return found


def find_configuration(
    found: Sequence[Configuration], wanted: Mapping[str, Setting], source: Path | str
) -> Configuration:
    """The one configuration that has these settings; a sentence where there is none, or more than one."""
    known = list(dict.fromkeys(name for each in found for name in each.settings))
    wanted = {_known_as(name, known, source): value for name, value in wanted.items()}
    fitting = [each for each in found if _fits(each, wanted)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        among = "; ".join(each.label for each in fitting[:4]) + (" ..." if len(fitting) > 4 else "")
        raise StudyError(f"{source}: {settings_text(wanted)} fits {len(fitting)} configurations ({among}). Name more.")
    spreads = {name: _spread(found, name) for name in wanted}
    nearest = min(
        found, key=lambda each: sum(_distance(each.settings.get(name), v, spreads[name]) for name, v in wanted.items())
    )
    where = "" if nearest.group is None else f" for {nearest.group}"
    raise StudyError(f"{source}: {settings_text(wanted)} was not measured{where}. The nearest is {nearest.label}.")


def _fits(one: Configuration, wanted: Mapping[str, Setting]) -> bool:
    return all(_same(one.settings.get(name), value) for name, value in wanted.items())


def _spread(found: Sequence[Configuration], name: str) -> float:
    """From the least to the greatest number that a setting has; 1 where that is no distance."""
    numbers = [value for each in found if isinstance(value := each.settings.get(name), float)]
    return (max(numbers) - min(numbers) if numbers else 0.0) or 1.0


def _distance(ours: Setting | None, theirs: Setting, spread: float) -> float:
    """How far a setting is from the one asked for, in spreads; texts that differ are one apart."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) / spread
    return 0.0 if _same(ours, theirs) else 1.0


def _sort_key(settings: Sequence[tuple[str, Setting]]) -> list[tuple[str, str, float]]:
    """Numbers by their size, texts by their letters, also where a setting has both."""
    return [(name, value, 0.0) if isinstance(value, str) else (name, "", value) for name, value in settings]


def _known_as(name: str, known: Sequence[str], source: Path | str) -> str:
    """`workload.batch` for `batch`, where only one setting ends so."""
    if name in known:
        return name
    ending = [each for each in known if each.rpartition(".")[2] == name]
    if len(ending) != 1:
        raise StudyError(f"{source}: {unknown_name('setting', name, ending or known)}")
    return ending[0]


def _same(ours: Setting | None, theirs: Setting) -> bool:
    """A number that was written in a column of text is still that text."""
    return ours is not None and (ours == theirs or setting_text(ours) == setting_text(theirs))


# What a word may be called in a store or in a table, the likeliest first.
NAMES: Mapping[str, tuple[str, ...]] = {
    "time": (
        Role.STEP_MEDIAN.metric, "time_s", "step_ms", "time_ms", Role.EPOCH.metric, "e2e_s", "ms", "seconds", "s",
        Role.WHOLE_RUN.metric, "time",
    ),
    "energy": (
        Role.ENERGY_STEP.metric, "step_j", Role.ENERGY.metric, "energy_mj", "joules", "j", "energy_wh", "wh", "energy",
    ),
    "power": (Role.POWER.metric, "power_w", "watts", "w", "power_mw", "power"),
    "cost": ("cost", "cost_usd", "usd", "dollars"),
    "latency": ("latency_s", "latency_ms", "request_s", "latency", Role.STEP_MEDIAN.metric),
    "latency_p99": (
        "latency_p99_s", "latency_p99_ms", "p99_s", "p99_ms", "latency_p99", "p99", Role.STEP_TAIL.metric,
    ),
    "stall": (Role.STALL.metric, "stall_ms", "fetch_stall_s", "stall"),
    "compute": (Role.COMPUTE.metric, "compute_ms", "compute"),
}  # fmt: skip
_UNITS: Mapping[str, float] = {  # the last part of a column's name -> base units in one of it
    "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "seconds": 1.0, "min": 60.0, "minutes": 60.0, "h": 3600.0,
    "j": 1.0, "mj": 1e-3, "kj": 1e3, "joules": 1.0, "wh": 3600.0, "kwh": 3.6e6,
    "w": 1.0, "mw": 1e-3, "kw": 1e3, "watts": 1.0,
}  # fmt: skip
_MEGA: Mapping[str, float] = {"MJ": 1e6, "MW": 1e6}  # only here the case of a letter tells units apart


@dataclass(frozen=True, slots=True)
class Column:
    """A column that holds a figure, and how many base units (seconds, joules, watts) one of its units is."""

    name: str
    factor: float


def column_for(word: str, known: Sequence[str]) -> Column | None:
    """The column of this name, else the one that the word usually means; None where there is neither."""
    found = word if word in known else next((name for name in NAMES.get(word, ()) if name in known), None)
    return None if found is None else Column(found, base_factor(found))


def need_less_is_better(figures: Iterable[str], source: Path) -> None:
    """Refuse to minimise what is better when it is more: the slowest would win."""
    for name in figures:
        if (direction := direction_of(name)).rises and direction.settled:
            raise StudyError(f"{source}: {name}: {direction}, so it is not minimised. Name the time of the same work.")


def need_column(word: str, known: Sequence[str], option: str, source: Path) -> Column:
    """The same, where nothing can be said without it; `option` is how a user names it."""
    found = column_for(word, known)
    if found is None:
        raise StudyError(f"{source}: {unknown_name('column', word, list(known))} {option} names it.")
    return found


def base_factor(name: str) -> float:
    """`step_ms` is a thousandth of a second; a name that ends in no unit is taken as it is."""
    unit = name.rpartition("_")[2]
    return _MEGA[unit] if unit in _MEGA else _UNITS.get(unit.lower(), 1.0)


def mixed_notes(source: Path, settings: Sequence[str] | None, group: str | None) -> list[str]:
    """A sentence for each column of text that differs within configurations; of a store there is none."""
    if is_store(source) or settings is None or group is not None:
        return []
    table = read_table(source)
    labels = {name: _labels(table, name) for name in table.columns if name not in settings}
    # Labels that never recur name rows, and part nothing.
    labels = {
        name: cells for name, cells in labels.items() if any(n > 1 for n in Counter(filter(None, cells)).values())
    }
    if not labels:
        return []
    columns = [setting_column(table, name) for name in settings]
    configurations = list(zip(*columns, strict=True))
    told = []
    for name, cells in labels.items():
        present = [pair for pair in zip(configurations, cells, strict=True) if pair[1] is not None]
        if any(len(set(found)) > 1 for found in collected(present).values()):
            told.append(f"column {name!r} differs within configurations: --group {name} keeps its values apart.")
    return told


def _labels(table: Table, name: str) -> list[str | None]:
    """The cells of a column of text; nothing where the column is one of numbers."""
    cells = [cell.strip() if cell is not None and cell.strip() else None for cell in table.column(name)]
    return [None] * len(cells) if all(number(cell) is not None for cell in cells if cell is not None) else cells


RESAMPLES = 2_000
FEWEST = 199
BUDGET = 20_000_000  # resampled values in all: many configurations get fewer resamples, and the result says how many
_SEED = 20_240_229  # fixed: the same figures give the same answer, on every machine


def resampled_centres(found: Sequence[Configuration], figures: Sequence[str], count: int = RESAMPLES) -> Floats:
    """Resamples x configurations x figures: medians over trials drawn with replacement.

    A trial keeps its figures together: time and energy come from the same run (validity.md M10). Where every trial
    has a block, the same blocks are drawn for all configurations, so that what moved a whole block moves them all.
    """
    generator = np.random.default_rng(_SEED)
    blocks = _blocks(found)
    widest = max((each.n for each in found), default=1)
    picked = generator.integers(0, len(blocks), (count, len(blocks))) if blocks else None
    drawn = np.empty((count, len(found), len(figures)))
    for place, each in enumerate(found):
        values = np.stack([each.values(figure) for figure in figures], axis=1)
        if picked is not None:
            drawn[:, place] = _by_block(each, values, blocks, picked, generator)
        else:
            own = generator.integers(0, each.n, (count, each.n)) if widest > 1 else np.zeros((count, 1), dtype=int)
            drawn[:, place] = np.median(values[own], axis=1)
    return drawn


def affordable(found: Sequence[Configuration], figures: Sequence[str]) -> int:
    """How many resamples so many trials allow."""
    values = sum(each.n for each in found) * max(1, len(figures))
    return max(FEWEST, min(RESAMPLES, BUDGET // max(1, values)))


def _blocks(found: Sequence[Configuration]) -> list[str]:
    """The blocks in which the trials were run; none where a trial has none, or where there is only one."""
    names = [trial.block_id for each in found for trial in each.trials]
    known = sorted({name for name in names if name is not None})
    return known if len(known) > 1 and None not in names else []


def _by_block(
    each: Configuration, values: Floats, blocks: Sequence[str], picked: np.ndarray, generator: np.random.Generator
) -> Floats:
    """Medians over the blocks that were drawn and that this configuration was run in."""
    per_block = np.full((len(blocks), values.shape[1]), np.nan)
    of_trial = np.array([blocks.index(trial.block_id) for trial in each.trials if trial.block_id is not None])
    for block in np.unique(of_trial):
        per_block[block] = values[of_trial == block].mean(axis=0)
    drawn = per_block[picked]
    empty = np.isnan(drawn[:, :, 0]).all(axis=1)
    if empty.any():  # none of the drawn blocks has it: its own blocks are drawn instead
        present = np.unique(of_trial)
        drawn[empty] = per_block[generator.choice(present, (int(empty.sum()), len(blocks)))]
    return np.asarray(np.nanmedian(drawn, axis=1))


# One configuration against others, in four words, with intervals that stay right although the best was looked for.
#
# Whoever takes the lowest of twenty has given luck twenty chances: its lead is partly luck (the winner's curse). So the
# intervals are simultaneous (Bonferroni): with 95 % confidence all of those that might have been shown hold at once,
# and so does the one that is. Configurations that share blocks are paired by block, as everywhere
# (docs/decisions/0024).

CONSIDERED = 1_000  # the nearest to beating a default: those far from it do not change the word
MARGIN = 0.05  # within this a configuration is as good as another
Standing: TypeAlias = Literal["better", "worse", "equivalent", "cannot_tell"]
Place: TypeAlias = Literal["beaten", "on_front", "equivalent", "cannot_tell"]


@dataclass(frozen=True)
class Contrast:
    """What one configuration takes more (or less) than another, as a share, and the word for it; less is better."""

    estimate: Estimate
    word: Standing

    @property
    def surely_below(self) -> bool:
        """Ours takes less, for sure."""
        return self.estimate.high is not None and self.estimate.high < 0

    @property
    def surely_above(self) -> bool:
        """Ours takes more, for sure."""
        return self.estimate.low is not None and self.estimate.low > 0

    @property
    def surely_not_worse(self) -> bool:
        """No worse than by the margin, for sure."""
        return self.estimate.high is not None and self.estimate.high <= MARGIN

    @property
    def surely_not_better(self) -> bool:
        """No better than by the margin, for sure."""
        return self.estimate.low is not None and self.estimate.low >= -MARGIN


def contrast(ours: Configuration, theirs: Configuration, figure: str, tries: int = 1) -> Contrast:
    """Ours against theirs, where it is one of `tries` that might have been shown instead."""
    level = 1 - ALPHA / max(1, tries)
    values = [each.values(figure) for each in (ours, theirs)]
    if any((side <= 0).any() for side in values):
        return Contrast(_medians(ours, theirs, figure, "some trials have nothing to be a share of"), "cannot_tell")
    sides = _lined_up(ours, theirs, figure)
    if sides.n < FLOOR:
        return Contrast(_medians(ours, theirs, figure, f"{sides.n} trials are too few for an interval"), "cannot_tell")
    shift = sides.shift(level)
    low, high = map(math.expm1, shift.interval(level))
    many = f"; one of {tries} that were looked at" if tries > 1 else ""
    method = f"{shift.method} ({100 * level:.4g} %{many})"
    word: Standing = "equivalent" if low >= -MARGIN and high <= MARGIN else "cannot_tell"
    if high < 0 and low < -MARGIN:
        word = "better"
    elif low > 0 and high > MARGIN:
        word = "worse"
    return Contrast(Estimate(math.expm1(shift.centre), low, high, sides.n, method, level), word)


def _lined_up(ours: Configuration, theirs: Configuration, figure: str) -> Sides:
    """Paired by the blocks that both were run in, where these are enough; else as two samples."""
    left, right = ([Measurement("", trial.metrics[figure], trial.block_id) for trial in each.trials]
                   for each in (ours, theirs))  # fmt: skip
    paired = line_up(left, right)
    if paired.paired and paired.n >= FLOOR:
        return paired
    return line_up(*([Measurement("", each.value) for each in side] for side in (left, right)))


def _medians(ours: Configuration, theirs: Configuration, figure: str, why: str) -> Estimate:
    below = theirs.centre(figure)
    value = ours.centre(figure) / below - 1 if below > 0 else 0.0
    return Estimate(value, None, None, min(ours.n, theirs.n), f"ratio of medians; {why}")


@dataclass(frozen=True)
class Against:
    """A default against all other configurations: the word, and the one that surely beats it by most."""

    word: Place
    winner: Configuration | None = None


def default_against(today: Configuration, found: Iterable[Configuration], figures: Sequence[str]) -> Against:
    """*beaten*: another is surely better in a figure and surely no worse (within the margin) in the others;
    *on_front*: every other is surely worse in a figure; *equivalent*: every other is in a figure surely no better than
    by the margin; else *cannot_tell*.
    """
    others = [each for each in found if each is not today]
    tries = len(others) * len(figures)
    if len(others) > CONSIDERED:
        others.sort(key=lambda each: max(_ratio(each.centre(figure), today.centre(figure)) for figure in figures))
        others = others[:CONSIDERED]
    contrasts = [(other, [contrast(other, today, figure, tries) for figure in figures]) for other in others]
    beating = [
        (other, math.prod(1 + each.estimate.value for each in several))
        for other, several in contrasts
        if any(each.surely_below for each in several) and all(each.surely_not_worse for each in several)
    ]
    if beating:
        return Against("beaten", min(beating, key=lambda pair: (pair[1], pair[0].label))[0])
    if all(any(each.surely_above for each in several) for _, several in contrasts):
        return Against("on_front")
    if all(any(each.surely_not_better for each in several) for _, several in contrasts):
        return Against("equivalent")
    return Against("cannot_tell")


IN_SEQUENCE, FIXED = (
    f"{what} (by their order in the table): what drifted meanwhile cannot be separated from a difference, so nothing "
    "is called beaten or surely better. --order names the column with the order in which they were run, or is "
    "`shuffled`."
    for what in (
        "the trials of a configuration were run one after another, not shuffled",
        "configurations were run in the same order in every round, not shuffled",
    )
)


def order_note(source: Path | Table, rows: Sequence[TrialRow], order: str | None) -> str | None:
    """What is wrong with the order of a table's trials; None where chance explains it. A store shuffles in blocks."""
    places = None if isinstance(source, Path) and is_store(source) else run_order(source, order)
    if places is None or len(places) != len(rows):
        return None
    ordered = [row for _, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]
    groups = grouped(ordered, lambda row: row.group).values()
    levels = [settings_keys(its) for its in groups]
    return IN_SEQUENCE if any(map(few_runs, levels)) else FIXED if any(map(fixed_in_rounds, levels)) else None


def _ratio(ours: float, theirs: float) -> float:
    return ours / theirs if theirs > 0 else math.inf if ours > 0 else 1.0


def told_apart(ours: Configuration, theirs: Configuration, figures: Sequence[str], tries: int) -> bool:
    """Whether the two surely differ in any of the figures."""
    found = (contrast(ours, theirs, figure, tries) for figure in figures)
    return any(each.surely_below or each.surely_above for each in found)

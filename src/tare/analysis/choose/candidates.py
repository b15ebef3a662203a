"""The job that is to be run, and configurations, measured or predicted, held against its limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from tare.analysis.choose.configurations import NAMES, Column, Configuration, Standing, column_for, settings_text
from tare.analysis.model import Estimate, Finding
from tare.analysis.numeric.distributions import normal_cdf, normal_quantile, t_cdf
from tare.analysis.numeric.medians import FLOOR, Floats, median_estimate
from tare.analysis.observations import Setting, columns_of, number, observations
from tare.base.declare import Role
from tare.base.errors import StudyError, unknown_name
from tare.records.model import TrialRow, grouped
from tare.records.schema import is_store

# The job that is to be run: its limits, and what each trial's figures say about the whole of it, in base units.

GROWS_WITH_THE_JOB = ("time", "energy", "cost")
# Of a store: figures of the whole trial, not of one step.
OF_THE_RUN = (Role.WHOLE_RUN.metric, Role.CPU.metric, Role.ENERGY.metric)
ALSO = ("time", "energy", "power", "stall", "compute")  # taken along where they are there: evidence, and gains
_MADE_FROM = {"power": ("energy", "time"), "energy": ("power", "time"), "cost": ("time",)}


@dataclass(frozen=True, slots=True)
class Limit:
    """A figure that must not be passed."""

    name: str  # "deadline"
    figure: str  # "time", or a column
    at_most: float  # seconds, joules, watts; else in the column's own unit


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked. Without `times` and `samples` a trial's figures are taken as those of the whole job."""

    minimise: str
    limits: tuple[Limit, ...] = ()
    times: float | None = None  # steps (or epochs, where a table's figures are of an epoch)
    samples: float | None = None  # then the steps are samples / batch, configuration by configuration
    price_per_h: str | None = None  # a number, or the column that has it
    columns: Mapping[str, str] | None = None  # word -> column, where the caller names it

    @property
    def needed(self) -> list[str]:
        """The figures that every configuration must have."""
        return list(dict.fromkeys([self.minimise, *(limit.figure for limit in self.limits)]))

    def column_for(self, word: str, known: Sequence[str]) -> Column | None:
        """The column of this word, as the caller names it or as it is usually called."""
        return column_for((self.columns or {}).get(word, word), known)


def word_for(name: str, known: Sequence[str], columns: Mapping[str, str]) -> str:
    """`energy` for `joules`: a column that has a word of its own is known by it, so that it is scaled as such."""
    if name in known:
        for word in ("time", "energy", "power", "cost"):
            column = column_for(columns.get(word, word), known)
            if column is not None and column.name == name:
                return word
    return name


def job_observations(
    source: Path, job: Job, *, settings: Sequence[str] | None, group: str | None = None
) -> list[TrialRow]:
    """Each trial with the figures of the whole job, by word (time, energy, power, cost) or by column."""
    known = columns_of(source)
    columns = _job_columns(source, job, known)
    of_run = is_store(source) and job.times is not None
    asked = [column.name for column in columns.values()]
    asked += [job.price_per_h] if job.price_per_h is not None and number(job.price_per_h) is None else []
    asked += ["steps"] if of_run and "steps" in known else []
    rows = observations(source, settings=settings, values=list(dict.fromkeys(asked)), group=group)
    return [of_job(row, job, columns, of_run) for row in rows]


_HOW_TO_GET: Mapping[str, str] = {
    "cost": "give --price, as a number per hour or as a column, and a time",
    "time": "name its column with --time",
    "energy": "name its column with --energy, or --power and --time",
    "power": "name its column with --power, or --energy and --time",
}


def _job_columns(source: Path, job: Job, known: Sequence[str]) -> dict[str, Column]:
    """Word -> column, for what is needed and what is good to have; a figure that cannot be had is refused."""
    found: dict[str, Column] = {}
    for word in dict.fromkeys([*job.needed, *ALSO, "cost"]):
        column = job.column_for(word, known)
        if column is not None:
            found[word] = column
        elif (named := (job.columns or {}).get(word, word)) != word:
            raise StudyError(f"{source}: {unknown_name(f'column for {word}', named, list(known))}")
    made_from = {word: parts for word, parts in _MADE_FROM.items() if word != "cost" or job.price_per_h is not None}
    for word in job.needed:
        if word not in found and not (word in made_from and found.keys() >= {*made_from[word]}):
            hint = _HOW_TO_GET.get(word, "name one of the columns")
            raise StudyError(f"{source}: no figure is known for {word!r}: {hint}. Available: {', '.join(known)}.")
    return found


def of_job(row: TrialRow, job: Job, columns: Mapping[str, Column], of_run: bool) -> TrialRow:
    """The row with its figures in base units and for the whole job."""
    values: dict[str, float] = {}
    for word, column in columns.items():
        if column.name in row.metrics:
            times = _times(row, job, column.name, of_run) if word in GROWS_WITH_THE_JOB else 1.0
            unit = column.factor if word in NAMES else 1.0  # a column that is asked for by name keeps its unit
            values[word] = row.metrics[column.name] * unit * times
    if "power" not in values and values.get("time") and "energy" in values:
        values["power"] = values["energy"] / values["time"]
    if "energy" not in values and {"power", "time"} <= values.keys():
        values["energy"] = values["power"] * values["time"]
    if "cost" not in values and job.price_per_h is not None and "time" in values:
        fixed = number(job.price_per_h)
        if (price := row.metrics.get(job.price_per_h) if fixed is None else fixed) is not None:
            values["cost"] = values["time"] / 3600 * price
    return replace(row, metrics=values)


def _times(row: TrialRow, job: Job, column: str, of_run: bool) -> float:
    """How many of what this row measured the job is made of."""
    if job.samples is not None:
        found = [value for name, value in row.settings.items() if name.rpartition(".")[2] == "batch"]
        if len(found) != 1 or not isinstance(found[0], float) or found[0] <= 0:
            raise StudyError(f"{row.trial}: --samples needs a setting called batch, to know how many steps that makes.")
        return math.ceil(job.samples / found[0])
    if job.times is None:
        return 1.0
    steps = row.metrics.get("steps") if of_run and column in OF_THE_RUN else None
    return job.times / steps if steps else job.times


# Configurations, measured or predicted, held against the limits.
#
# How likely the next run of a configuration keeps a limit.
#
# The next trial is predicted from the logs of those that were run: their mean, and their standard deviation times
# sqrt(1 + 1/n), by Student's t. Where a configuration has fewer trials than an interval takes, the spread is that of
# all configurations together, or its own where that is larger. Where nothing was run twice, nothing is claimed.


@dataclass(frozen=True, slots=True)
class Predicted:
    """A configuration that nobody has measured, as a predictor sees it: figures by their word, with intervals."""

    settings: Mapping[str, Setting]
    figures: Mapping[str, Estimate]
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration, its figures for the whole job, and how likely its next run keeps each limit."""

    settings: Mapping[str, Setting]
    figures: Mapping[str, Estimate]
    n: int  # trials; 0 where it is predicted
    chances: Mapping[str, float | None]  # limit -> probability; None where it was measured once
    keeps_all: float | None  # at least this likely, however the limits depend on each other
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class Miss:
    """Why nothing fits, by the candidate that comes nearest."""

    candidate: Candidate
    limit: str
    over: float  # share above the limit; below zero where it keeps it, but not surely enough


@dataclass(frozen=True, slots=True)
class NextTrial:
    """The one measurement that would help most, and why."""

    settings: Mapping[str, Setting]
    reason: str
    expected_gain: float | None  # share of the recommended figure; None where nothing is known of the spread


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The answer for one group of configurations."""

    group: str | None
    minimised: str
    limits: tuple[Limit, ...]
    confidence: float
    held_to: float | None  # the probability that the best was held to: higher, the more were in question
    configurations: int
    best: Candidate | None  # measured; None where nothing fits
    best_share: float | None  # of the resamples in which it is the best of those that fit; None where unknown
    predicted: Candidate | None  # only where it is better than the best that was measured
    default: Candidate | None
    gain: Mapping[str, Estimate]  # share that the best takes more (or less) than the default; corrected for the search
    verdict: Standing | None  # of the best against the default, by the figure that is minimised; None without a default
    rivals: tuple[Mapping[str, Setting], ...]  # others that fit, and of which the best is not surely the better one
    nearest_miss: Miss | None
    next_trial: NextTrial | None
    practices: tuple[Finding, ...]
    notes: tuple[str, ...] = ()
    conditions: Mapping[str, Setting] = field(default_factory=dict)  # of a job's group: what is alike, and no choice

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


UNSEEN = math.log(1.5)  # how slow a run may be that none of the trials has shown
STATED_FREEDOM = 1e6  # a spread that the user states is taken as known


@dataclass(frozen=True, slots=True)
class Spread:
    """The standard deviation of one trial, in logs (0.02 is about 2 %), and on how much it rests."""

    deviation: float
    freedom: float


def pooled_spread(found: Sequence[Configuration], figure: str) -> Spread | None:
    """The spread between trials of the same configuration, over all of them; None where nothing was run twice."""
    squares, freedom = 0.0, 0
    for each in found:
        if each.n >= 2:
            logs = _logs(each.values(figure))
            squares += float(((logs - logs.mean()) ** 2).sum())
            freedom += each.n - 1
    return Spread(math.sqrt(squares / freedom), freedom) if freedom else None


def spread_of(each: Configuration, figure: str, shared: Spread | None) -> Spread | None:
    """Its own where it has trials enough, else the shared one, or its own where that is larger."""
    own = Spread(float(_logs(each.values(figure)).std(ddof=1)), each.n - 1) if each.n >= 2 else None
    if own is not None and (each.n >= FLOOR or shared is None):
        return own
    if own is None or shared is None:
        return shared
    return Spread(max(own.deviation, shared.deviation), shared.freedom)


def chance_at_most(each: Configuration, figure: str, at_most: float, shared: Spread | None) -> float | None:
    """The probability that the next trial's figure is at most this; None where the spread is unknown."""
    spread = spread_of(each, figure, shared)
    if spread is None:
        return None
    logs = _logs(each.values(figure))
    room = _log(at_most) - float(logs.mean())
    scale = spread.deviation * math.sqrt(1 + 1 / len(logs))
    if scale == 0:
        return float(room >= 0)
    return t_cdf(spread.freedom, room / scale)


def predicted_chance(estimate: Estimate, at_most: float) -> float | None:
    """The same for a prediction with an interval, taken as log-normal; None where it has none."""
    if estimate.low is None or estimate.high is None or estimate.low <= 0:
        return None
    scale = math.log(estimate.high / estimate.low) / (2 * normal_quantile(0.5 + estimate.level / 2))
    room = _log(at_most) - _log(estimate.value)
    return float(room >= 0) if scale == 0 else normal_cdf(room / scale)


def chance_like_the_others(each: Configuration, figure: str, at_most: float, pool: Floats) -> float | None:
    """The same, by how far runs of any of the configurations lay from the others of their own; None without any.

    A tenth of the runs may be slow, and most configurations of six trials have none of them: what a slow run does is
    known from all of them together. Beside those that were seen, half a run is counted that nobody has seen (Jeffreys)
    and that takes half as much again: a few trials cannot promise that there is none.
    """
    if not len(pool):
        return None
    centre, limit = _log(each.centre(figure)), _log(at_most)
    over = int((centre + pool > limit).sum()) + 0.5 * (centre + UNSEEN > limit)
    return 1 - over / (len(pool) + 1)


def residuals(found: Sequence[Configuration], figure: str) -> Floats:
    """Of every trial, how far its log lies from the median of the other trials of its configuration."""
    made: list[float] = []
    for each in found:
        logs = _logs(each.values(figure))
        if len(logs) >= 2:
            made += [float(logs[place] - np.median(np.delete(logs, place))) for place in range(len(logs))]
    return np.array(made)


def all_kept(chances: Sequence[float | None]) -> float | None:
    """At least this likely are all limits kept, however they depend on each other; None where one is unknown."""
    known = [chance for chance in chances if chance is not None]
    return max(0.0, 1 - sum(1 - chance for chance in known)) if len(known) == len(chances) else None


def _logs(values: Floats) -> Floats:
    return np.log(np.maximum(values, np.finfo(np.float64).tiny))  # a stall may be zero, and is below every limit


def _log(value: float) -> float:
    return math.log(max(value, float(np.finfo(np.float64).tiny)))


HOPELESS = 0.01  # below this chance luck will not let a configuration pass, and it is not in question


@dataclass(frozen=True)
class Judged:
    """A configuration with the chances that its next run keeps each limit."""

    configuration: Configuration
    chances: Mapping[str, float | None]
    keeps_all: float | None
    over: Mapping[str, float]  # limit -> share above it, by the median
    by_its_own: float | None = None  # that it keeps all, by its own trials alone

    @property
    def within(self) -> bool:
        """Whether it keeps every limit by its median."""
        return all(over <= 0 for over in self.over.values())

    def objective(self, figure: str) -> tuple[float, str]:
        return self.configuration.centre(figure), self.configuration.label

    @property
    def worst(self) -> tuple[str, float]:
        """The limit that it comes nearest to breaking, or breaks by most."""
        known = {name: chance for name, chance in self.chances.items() if chance is not None}
        name = min(known, key=known.__getitem__) if known else max(self.over, key=self.over.__getitem__)
        return name, self.over[name]


def judged(found: Sequence[Configuration], limits: Sequence[Limit], stated: Spread | None) -> list[Judged]:
    """Every configuration against every limit."""
    shared = {limit.name: stated or pooled_spread(found, limit.figure) for limit in limits}
    pools = {limit.name: residuals(found, limit.figure) for limit in limits}
    made = []
    for each in found:
        own: dict[str, float | None] = {}
        chances: dict[str, float | None] = {}
        for limit in limits:
            chance = chance_at_most(each, limit.figure, limit.at_most, shared[limit.name])
            like = chance_like_the_others(each, limit.figure, limit.at_most, pools[limit.name])
            own[limit.name] = chance
            chances[limit.name] = chance if chance is None or like is None else min(chance, like)
        over = {limit.name: each.centre(limit.figure) / limit.at_most - 1 for limit in limits}
        made.append(Judged(each, chances, all_kept(list(chances.values())), over, all_kept(list(own.values()))))
    return made


def fitting(all_of_them: Sequence[Judged], minimise: str, confidence: float) -> list[tuple[Judged, float]]:
    """Those that keep the limits surely enough, the lowest figure first, each with the probability it was held to.

    Whoever picks the first that passes gives luck one chance with each that is tried, so the allowed probability of
    breaking a limit is shared among those in question so far (Bonferroni): of all answers, no more than 1 - confidence
    break one. That is of chance in its own trials; what all runs together show must only reach the confidence itself.
    Where nothing was run twice, a configuration is held to having kept the limits that once.
    """
    found: list[tuple[Judged, float]] = []
    in_question = 0
    for one in sorted(all_of_them, key=lambda each: each.objective(minimise)):
        in_question += bool(one.chances) and one.by_its_own is not None and one.by_its_own >= HOPELESS
        held_to = 1 - (1 - confidence) / max(1, in_question)
        surely = True
        if one.keeps_all is not None and one.by_its_own is not None:
            surely = one.by_its_own >= held_to and one.keeps_all >= confidence
        if one.within and surely:
            found.append((one, held_to))
    return found


def candidate(one: Judged, figures: Sequence[str]) -> Candidate:
    """A configuration as the answer shows it."""
    each = one.configuration
    shown = {
        figure: median_estimate(each.values(figure).tolist())
        for figure in figures
        if all(figure in trial.metrics for trial in each.trials)
    }
    return Candidate(each.settings, shown, each.n, one.chances, one.keeps_all)


def best_predicted(
    offered: Sequence[Predicted], limits: Sequence[Limit], minimise: str, confidence: float
) -> Candidate | None:
    """The lowest prediction that keeps every limit surely enough, by its own interval."""
    made = []
    for each in offered:
        if not all(name in each.figures for name in [minimise, *(limit.figure for limit in limits)]):
            continue
        chances = {limit.name: predicted_chance(each.figures[limit.figure], limit.at_most) for limit in limits}
        keeps = all_kept(list(chances.values()))
        if keeps is not None and keeps >= confidence:
            made.append(Candidate(each.settings, each.figures, 0, chances, keeps, predicted=True))
    return min(made, key=lambda one: (one.figures[minimise].value, settings_text(one.settings)), default=None)


def nearest_miss(all_of_them: Sequence[Judged], figures: Sequence[str]) -> Miss | None:
    """The configuration that comes nearest to keeping every limit."""
    if not all_of_them:
        return None

    def distance(one: Judged) -> tuple[float, float, str]:
        return -(one.keeps_all or 0.0), max(one.over.values(), default=0.0), one.configuration.label

    nearest = min(all_of_them, key=distance)
    name, over = nearest.worst
    return Miss(candidate(nearest, figures), name, over)


FIGURES = ("time", "energy", "power")


def predictions(
    source: Path, job: Job, rows: Sequence[TrialRow], *, group: str | None = None
) -> tuple[list[Predicted], tuple[str, ...]]:
    """What the predictor offers, and why it offers nothing where it was asked in vain."""
    known = columns_of(source)
    columns = {word: column.name for word in FIGURES if (column := job.column_for(word, known)) is not None}
    # The predictor knows clocks and counts, not names: settings must be numbers in every row.
    features = tuple(dict.fromkeys(name for row in rows for name in row.settings))
    numeric = all(isinstance(row.settings.get(name), float) for row in rows for name in features)
    if not features or not numeric or "time" not in columns or not ({"energy", "power"} & columns.keys()):
        return [], ()
    if _nothing_is_left(rows):
        return [], ()
    if is_store(source) and job.times is not None and set(columns.values()) & set(OF_THE_RUN):
        return [], ()  # how many steps a run that was not made would have had, nobody knows
    from tare.analysis.choose.modes import Columns, read_modes
    from tare.analysis.choose.predictions import NothingToPredict, predict

    asked = Columns(features, columns["time"], columns.get("energy"), columns.get("power"), group)
    try:
        table = read_modes(source, asked)
        answers = predict(table, ("tare",), count_next=0)
    except NothingToPredict:
        return [], ()
    except StudyError as error:
        return [], (f"Nothing is predicted: {error}",)
    constant = {name: rows[0].settings[name] for name in features if name not in table.columns.features}
    offered = []
    for answer in answers:
        for each in answer.predictions:
            mode = dict(zip(table.columns.features, each.mode, strict=True))
            offered.append(_predicted(job, columns, answer.group, {**constant, **mode}, each.figures))
    return offered, ()


def _nothing_is_left(rows: Sequence[TrialRow]) -> bool:
    """Whether each group was measured in every combination of the settings' levels."""
    timed = grouped((row for row in rows if "time" in row.metrics), lambda row: row.group)
    levels = math.prod(len(set(column)) for column in zip(*(row.settings.values() for row in rows), strict=True))
    return all(len({tuple(row.settings.values()) for row in its}) == levels for its in timed.values())


def _predicted(
    job: Job,
    columns: Mapping[str, str],
    group: str | None,
    settings: Mapping[str, Setting],
    figures: Mapping[str, Estimate],
) -> Predicted:
    """A prediction of one step, in the columns' units, made one of the whole job in base units."""
    values = {columns[word]: figures[word].value for word in columns}
    known = {word: column for word in columns if (column := column_for(columns[word], [columns[word]])) is not None}
    whole = of_job(TrialRow.foreign(settings, values, "predicted", group=group), job, known, of_run=False)
    scaled = {
        word: _scaled(estimate, whole.metrics[word] / estimate.value)
        for word, estimate in figures.items()
        if word in whole.metrics and estimate.value > 0
    }
    if "cost" in whole.metrics:
        scaled["cost"] = _scaled(figures["time"], whole.metrics["cost"] / figures["time"].value)
    return Predicted(settings, scaled, group)


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    low = None if estimate.low is None else estimate.low * factor
    high = None if estimate.high is None else estimate.high * factor
    return replace(estimate, value=estimate.value * factor, low=low, high=high)

"""The front of a table or a store: how sure each place on it is, and what a default loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from tare.analysis.choose.columns import is_better_higher
from tare.analysis.choose.configurations import (
    Configuration,
    centres,
    configurations_of_jobs,
    copied_rows,
    default_among,
    names_work,
    setting_text,
    settings_words,
)
from tare.analysis.choose.pareto import Flags, could_be_on_front, dominates, on_front
from tare.analysis.choose.resampling import affordable, resampled_centres
from tare.analysis.choose.standing import Place, contrast, default_against, told_apart
from tare.analysis.labels import name_words
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import FLOOR, Floats, median_estimate
from tare.analysis.observations import Setting
from tare.analysis.sections import Answer, Column, Note, Section, Sentence, Shown, Table, share_shown
from tare.analysis.tables.table import Table as SourceTable
from tare.analysis.tables.table import read_table
from tare.analysis.work import unlike_work
from tare.base.declare import STEP
from tare.base.errors import StudyError
from tare.base.text import metric_name, safe_text
from tare.records.model import TrialRow, grouped

SEEN = 0.05  # of the resamples: below this a configuration is not listed


@dataclass(frozen=True, slots=True)
class Point:
    """One configuration, where it lies and how often it is on the front when trials are drawn again."""

    settings: Mapping[str, Setting]
    figures: Mapping[str, Estimate]
    n: int
    on_front: bool
    front_share: float | None  # of the resamples; None where it was measured once, so that nothing is known
    not_told_from: tuple[Mapping[str, Setting], ...] = ()  # other listed points that may be the same in every figure


@dataclass(frozen=True, slots=True)
class Default:
    """What a configuration that is in use loses against the front."""

    point: Point
    word: Place  # beaten for sure, on the front for sure, equivalent (not beaten by more than the margin), cannot tell
    dominated_by: Point | None  # what surely beats it, by the most; None with any other word
    ahead: Point | None  # where nothing surely does: the front point that is ahead of it by the medians
    loss: Mapping[str, Estimate]  # share more than either takes, by figure; corrected for how many were looked at
    dominated_share: float | None  # of the resamples in which anything is ahead of it; None where that is unknown

    def without_sure_word(self) -> Default:
        """The same where the order of the runs could have made the difference."""
        return replace(self, word="cannot_tell", dominated_by=None, ahead=self.dominated_by or self.ahead)


@dataclass(frozen=True, slots=True)
class Front:
    """The front of one group (a model, say), from the lowest to the highest of the first figure."""

    group: str | None
    minimised: tuple[str, ...]
    configurations: int
    points: tuple[Point, ...]  # on the front, or seen there in a twentieth of the resamples
    defaults: tuple[Default, ...]
    resamples: int  # 0 where no configuration was measured twice
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def pareto(
    rows: Sequence[TrialRow],
    minimised: Sequence[str],
    *,
    defaults: Sequence[Mapping[str, Setting]] = (),
    source: Path | str = "",
) -> list[Front]:
    """The front of each group. A figure that is better higher counts by its inverse, so that less is better of all."""
    if len(set(minimised)) < 2:
        raise StudyError("A front needs two figures or more, such as --minimise time,energy.")
    rows, costs, rising = _with_costs(rows, minimised, source)
    rows, found, apart = configurations_of_jobs(rows, minimised, source)
    dropped = len(rows) - sum(each.n for each in found)
    missing = (f"{dropped} of {len(rows)} rows lack one of the figures and are left out.",) if dropped else ()
    made = []
    for group, each in grouped(found, lambda each: each.group).items():
        every = found if apart else each  # where a user grouped them, each group has the default
        asked = [default_among(each, every, wanted, source) for wanted in defaults]
        today = [one for one in asked if one is not None]
        made.append(_front(group, each, costs, today, (*missing, *apart, *rising)))
    return made


def _with_costs(
    rows: Sequence[TrialRow], figures: Sequence[str], source: Path | str
) -> tuple[Sequence[TrialRow], dict[str, str], tuple[str, ...]]:
    """The rows, the name under which each figure is better lower, and a note on those that are better higher."""
    inverse = {name: f"1/{name}" for name in figures if is_better_higher(name)}
    for row, name in ((row, name) for row in rows for name in inverse):
        if row.metrics.get(name, 1.0) <= 0:
            raise StudyError(f"{source}, {row.trial}: {name} is {row.metrics[name]:g}; it must be more than zero.")
    if inverse:
        rows = [
            replace(row, metrics={**row.metrics, **{new: 1 / row.metrics[name] for name, new in inverse.items()
                                                    if name in row.metrics}})
            for row in rows
        ]  # fmt: skip
    notes = tuple(f"{name}: higher is better, so the front has its highest values." for name in inverse)
    return rows, {name: inverse.get(name, name) for name in figures}, notes


def front_of_singles(
    table: Path | SourceTable,
    settings: Sequence[str],
    minimised: Sequence[str],
    numbers: Mapping[str, Floats] | None = None,
) -> list[Front] | None:
    """The front of a table whose rows each have settings of their own, by whole columns; None for any other table.

    What is said of a row that is not on the front is only that it is one more: most of a long table is not looked at.
    `numbers`: columns that were read as numbers already.
    """
    if len(set(minimised)) < 2 or any(map(names_work, settings)) or any(map(is_better_higher, minimised)):
        return None
    if unlike_work(dict.fromkeys(settings, level) for level in (0.0, 1.0)):
        return None
    columns: list[npt.NDArray[Any]] = []
    for name in (*settings, *minimised):
        cells = numbers[name] if numbers and name in numbers else _whole_column(read_table(table).column(name))
        if cells is None:
            return None
        columns.append(cells)
    each_settings, points = columns[: len(settings)], np.array(columns[len(settings) :]).T
    if points.dtype.kind != "f" or (points < 0).any() or _any_twice(each_settings):
        return None
    kept = np.flatnonzero(on_front(points))
    levels = zip(*(cells[kept].tolist() for cells in each_settings), strict=True)
    rows = [
        TrialRow.foreign(
            dict(zip(settings, its, strict=True)), dict(zip(minimised, figures, strict=True)), f"row {place + 1}"
        )
        for place, its, figures in zip(kept.tolist(), levels, points[kept].tolist(), strict=True)
    ]
    return [replace(each, configurations=len(points)) for each in pareto(rows, minimised)]


def _whole_column(cells: Sequence[str | None]) -> npt.NDArray[Any] | None:
    """Numbers where all are, else texts; None where a cell is missing, or is to be read by itself."""
    if None in cells:
        return None
    whole = cast("Sequence[str]", cells)
    with suppress(ValueError):
        numbers = np.fromiter(map(float, whole), np.float64, len(whole))
        return numbers if np.isfinite(numbers).all() and "_" not in "".join(whole) else None
    texts = [cell.strip() for cell in whole]
    return np.array(texts, object) if all(texts) else None


def _any_twice(columns: Sequence[npt.NDArray[Any]]) -> bool:
    """Whether two rows are the same."""
    if any(column.dtype.kind == "O" for column in columns):
        rows = [*zip(*(column.tolist() for column in columns), strict=True)]
        return len(set(rows)) < len(rows)
    ordered = np.array(columns)[:, np.lexsort(columns)]
    return bool((ordered[:, 1:] == ordered[:, :-1]).all(axis=0).any())


@dataclass(frozen=True)
class _Drawn:
    """The configurations that can be on the front at all, and where resampling put them."""

    columns: Mapping[int, int]  # place among the group's configurations -> column of the arrays below
    figures: Floats  # resamples x places x figures
    flags: Flags  # resamples x places: on the front in this resample

    @property
    def count(self) -> int:
        return len(self.flags)

    def share(self, place: int, n: int) -> float | None:
        """How often it was on the front; None where it was measured once."""
        if n < 2 or not self.count:
            return None
        column = self.columns.get(place)
        return 0.0 if column is None else float(self.flags[:, column].mean())


def _front(
    group: str | None,
    found: Sequence[Configuration],
    costs: Mapping[str, str],
    defaults: Sequence[Configuration],
    notes: tuple[str, ...],
) -> Front:
    """`costs`: figure -> the name under which it is better lower."""
    lower = tuple(costs.values())
    where = centres(found, lower)
    flags = on_front(where)
    wanted = set(map(id, defaults))
    asked = [place for place, each in enumerate(found) if id(each) in wanted]
    drawn = _draw(found, lower, asked)
    shares = [drawn.share(place, each.n) for place, each in enumerate(found)] if drawn.count else [None] * len(found)
    shown = [place for place in range(len(found)) if flags[place] or (shares[place] or 0.0) >= SEEN]
    shown.sort(key=lambda place: (*where[place], found[place].label))
    points = {
        place: _point(found[place], tuple(costs), bool(flags[place]), shares[place]) for place in {*shown, *asked}
    }
    if drawn.count:
        points |= _with_likes(points, found, shown, lower)
    return Front(
        group,
        tuple(costs),
        len(found),
        tuple(points[place] for place in shown),
        tuple(_default(place, points, where, flags, drawn, costs, found) for place in asked),
        drawn.count,
        (*notes, *_doubts(found, drawn), *copied_rows(found, lower)),
    )


def _draw(found: Sequence[Configuration], minimised: tuple[str, ...], asked: Sequence[int]) -> _Drawn:
    """Resample those that can be on the front (and the defaults): the others cannot change the answer."""
    nothing = _Drawn({}, np.empty((0, 0, len(minimised))), np.zeros((0, 0), dtype=bool))
    if all(each.n < 2 for each in found):
        return nothing
    spans = [[[trial.metrics[figure] for trial in each.trials] for figure in minimised] for each in found]
    best = np.array([[min(values) for values in each] for each in spans])
    worst = np.array([[max(values) for values in each] for each in spans])
    possible = could_be_on_front(best, worst)
    places = [place for place in range(len(found)) if possible[place] or place in asked]
    chosen = [found[place] for place in places]
    figures = resampled_centres(chosen, minimised, affordable(chosen, minimised))
    columns = {place: column for column, place in enumerate(places)}
    return _Drawn(columns, figures, np.array([on_front(each) for each in figures]))


def _point(each: Configuration, minimised: Sequence[str], kept: bool, share: float | None) -> Point:
    figures = {figure: median_estimate(each.values(figure).tolist()) for figure in minimised}
    return Point(each.settings, figures, each.n, kept, share)


MOST_LIKES = 60  # points of which each is held against every other


def _with_likes(
    points: Mapping[int, Point], found: Sequence[Configuration], shown: Sequence[int], minimised: Sequence[str]
) -> dict[int, Point]:
    """The listed points, each with those that it cannot be told from."""
    if len(shown) > MOST_LIKES:
        return {}
    pairs = list(combinations(shown, 2))
    tries = len(pairs) * len(minimised)
    alike = [pair for pair in pairs if not told_apart(found[pair[0]], found[pair[1]], minimised, tries)]
    likes = {place: [one if other == place else other for one, other in alike if place in (one, other)]
             for place in shown}  # fmt: skip
    return {
        place: replace(points[place], not_told_from=tuple(found[other].settings for other in others))
        for place, others in likes.items()
    }


def _default(
    place: int,
    points: Mapping[int, Point],
    where: Floats,
    flags: Flags,
    drawn: _Drawn,
    costs: Mapping[str, str],
    found: Sequence[Configuration],
) -> Default:
    unknown = points[place].n < 2 or not drawn.count
    share = None if unknown else float(1 - drawn.flags[:, drawn.columns[place]].mean())
    judged = default_against(found[place], found, tuple(costs.values()))
    ahead = [int(other) for other in np.flatnonzero(flags) if dominates(where[other], where[place])]
    if judged.winner is not None:
        winner = next(other for other, each in enumerate(found) if each is judged.winner)
    elif ahead:
        winner = min(ahead, key=lambda other: float(np.prod(_ratio(where[other], where[place]))))
    else:
        return Default(points[place], judged.word, None, None, {}, share)
    tries = (len(found) - 1) * len(costs)
    loss = {
        figure: contrast(found[place], found[winner], figure, tries).estimate
        for axis, figure in enumerate(costs)
        if where[winner, axis] > 0  # more than nothing is no share
    }
    point = points.get(winner) or _point(found[winner], tuple(costs), bool(flags[winner]), None)
    sure = judged.winner is not None
    return Default(points[place], judged.word, point if sure else None, None if sure else point, loss, share)


def _ratio(ours: Floats, theirs: Floats) -> Floats:
    """Ours over theirs; equal figures are 1, also where both are zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ours == theirs, 1.0, ours / theirs)


def _doubts(found: Sequence[Configuration], drawn: _Drawn) -> tuple[str, ...]:
    counts = [found[place].n for place in drawn.columns] if drawn.count else [each.n for each in found]
    once = sum(n < 2 for n in counts)
    if once == len(counts):
        return ("Each configuration was measured once: how sure its place on the front is, is unknown.",)
    notes = []
    if once:
        notes.append(f"{once} of {len(counts)} near the front were measured once; their own spread is unknown.")
    if any(2 <= n < FLOOR for n in counts):
        notes.append(f"Fewer than {FLOOR} trials of a configuration show less than all of its spread: run more.")
    return tuple(notes)


_PLACES: Mapping[Place, str] = {
    "on_front": "on the front: every other is surely worse in a figure",
    "equivalent": "not beaten by more than 5 %",
    "cannot_tell": "whether anything beats it is not known",
}


def fronts_answer(fronts: Sequence[Front], unit: str = STEP) -> Answer[Sequence[Front]]:
    """Each group's front; `unit`: what a step is for people."""
    counts = [_count(front, unit) for front in fronts]
    alone = len(fronts) == 1
    sections: list[Section] = []
    for place, (front, count) in enumerate(zip(fronts, counts, strict=True), 1):
        notes = tuple((note,) for note in front.notes)
        sections.append(Section(f"front-{place}", "" if alone else count, partial(_table, front, unit)))
        sections.append(Section(f"front-{place}-notes", "", partial(Note, notes)))
    return Answer((f"{counts[0]}.",) if alone else (), fronts, tuple(sections))


def _count(front: Front, unit: str) -> str:
    title = f"{front.group}: " if front.group is not None else ""
    figures = " and ".join(metric_name(figure, unit) for figure in front.minimised)
    on_it = sum(point.on_front for point in front.points)
    return f"{title}{on_it} of {front.configurations:,} configurations are on the {figures} front"


def _table(front: Front, unit: str) -> Table:
    settings = list(dict.fromkeys(name for point in front.points for name in point.settings))
    short = [name_words(name) for name in settings]
    names = [one if short.count(one) == 1 else name for name, one in zip(settings, short, strict=True)]
    titles = [*names, *front.minimised, "trials", "on the front", "of resamples"]
    rows = []
    for point in front.points:
        name = settings_words(point.settings)
        share = "unknown" if point.front_share is None else Shown("front_share", point.front_share, name)
        # A setting that another point has, and this one lacks, stays empty.
        cells = (setting_text(point.settings.get(setting, "")) for setting in settings)
        figures = (Shown(figure, point.figures[figure].value, name) for figure in front.minimised)
        rows.append((*cells, *figures, str(point.n), "yes" if point.on_front else "no", share))
    notes = (*_likes(front), *(_default_sentence(default, unit) for default in front.defaults))
    return Table(tuple(Column(safe_text(title)) for title in titles), tuple(rows), notes)


def _default_sentence(default: Default, unit: str) -> Sentence:
    name = settings_words(default.point.settings)
    if default.dominated_by is not None:
        standing = f"default {name}: beaten by {settings_words(default.dominated_by.settings)}"
    elif default.ahead is not None:
        ahead = settings_words(default.ahead.settings)
        standing = f"default {name}: {_PLACES[default.word]}; by the medians {ahead} is ahead"
    else:
        return (f"default {name}: {_PLACES[default.word]}",)
    sentence: list[str | Shown] = [standing]
    for figure, loss in default.loss.items():
        before = "; the default has " if len(sentence) == 1 else ", "
        sentence += [before, share_shown(loss, f"{name}, {figure}"), f" {metric_name(figure, unit)}"]
    return sentence


def _likes(front: Front) -> list[Sentence]:
    """`not distinguishable from a: b; c`, once for each set of points that are all alike, or like the first."""
    sentences: list[Sentence] = []
    seen: set[str] = set()
    for point in front.points:
        name = settings_words(point.settings)
        others = [settings_words(each) for each in point.not_told_from]
        if others and name not in seen:
            seen |= {name, *others}
            sentences.append((f"not distinguishable from {name}: {'; '.join(others)}",))
    return sentences

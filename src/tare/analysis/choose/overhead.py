"""What a platform costs over another, as a law of numeric settings such as cores (S4's future work: an overhead model).

A mode is one combination of the settings. In each mode the overhead is measured in pairs (of one block, so that a slow
hour falls out) as log(time here / time on the baseline); the law is linear in one function of every setting, which is
chosen among FORMS by the error of modes that were left out. Intervals are of the overhead that a mode would be measured
to have: Student's t, from how far the modes lie off the law, and never less than their own noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tare.analysis.cells import placed, resolve_factor
from tare.analysis.choose.law import Array
from tare.analysis.choose.modes import Mode, mode_of
from tare.analysis.choose.surface import LEVEL
from tare.analysis.labels import text
from tare.analysis.model import Estimate
from tare.analysis.numeric.distributions import t_quantile
from tare.analysis.observations import NOTHING_USABLE, records_of, table_observations, usable_attempts
from tare.analysis.sections import EFFECT, Answer, Column, Note, Section, Sentence, Shown, Table, share_shown
from tare.analysis.tables.table import read_table
from tare.base.errors import StudyError, unknown_name
from tare.base.text import count_text
from tare.records.model import grouped, varied
from tare.records.schema import is_store
from tare.records.store import Store

PLATFORM = "platform"
FEWEST_PAIRS = 2  # of a mode, to know its noise
FORMS: Mapping[str, Callable[[Array], Array]] = {  # a function of each setting; the first is taken where none is better
    "b / {}": lambda values: 1 / values,
    "b log {}": np.log,
    "b {}": lambda values: values,
    "": lambda values: np.zeros((*values.shape[:-1], 0)),  # a constant overhead
}
_NO_LOG = ("b {}", "")  # forms for settings that may be zero


@dataclass(frozen=True)
class _Timed:
    """One time: of which platform, of which job, in which mode and block."""

    level: str
    job: str
    mode: Mode
    block: str | None
    seconds: float


@dataclass(frozen=True)
class MeasuredMode:
    """What the platform costs in one mode, over so many pairs; and what the law says where this mode is left out."""

    mode: Mode
    overhead: float  # a share
    pairs: int
    left_out: Estimate | None


@dataclass(frozen=True)
class OverheadLaw:
    """One platform against the baseline, of one job."""

    job: str
    level: str
    against: str
    features: tuple[str, ...]
    form: str  # of each setting: `b / {}`
    coefficients: tuple[float, ...]  # the constant first, of the log of the ratio
    modes: tuple[MeasuredMode, ...]
    predictions: tuple[tuple[Mode, Estimate], ...]
    error: float | None  # mean distance of left-out modes, as a share of the baseline's time
    held: tuple[int, int] | None  # left-out modes inside of their intervals, of how many
    notes: tuple[str, ...] = ()

    @property
    def formula(self) -> str:
        """`log ratio = 0.012 + 0.31 / cores`."""
        told = [f"{self.coefficients[0]:.3g}"]
        parts = zip(self.coefficients[1:], self.features, strict=False)
        for value, name in parts:
            sign = "-" if value < 0 else "+"
            told.append(f"{sign} {abs(value):.3g}{self.form.removeprefix('b').format(name)}")
        return f"log ratio = {' '.join(told)}"


def overheads(
    source: Path,
    features: Sequence[str],
    time: str,
    against: str,
    *,
    group: str | None = None,
    at: Sequence[Mapping[str, float]] = (),
) -> list[OverheadLaw]:
    """A law for each job and each platform but the baseline; what cannot be fitted is refused with a sentence."""
    timed = _of_store(source, features, time, group) if is_store(source) else _of_table(source, features, time, group)
    levels = list(dict.fromkeys(each.level for each in timed))
    if against not in levels:
        raise StudyError(f"{source}: {unknown_name('platform', against, levels)}")
    wanted = [mode_of(each, features) for each in at]
    found = []
    for job, mine in grouped(timed, lambda each: each.job).items():
        theirs = [each for each in mine if each.level == against]
        for level in (level for level in levels if level != against):
            pairs = _pairs([each for each in mine if each.level == level], theirs)
            if pairs:
                found.append(_law(source, (job, level, against), tuple(features), pairs, wanted))
    if not found:
        raise StudyError(f"{source}: no other platform was measured in the same mode as {against}.")
    return found


def _of_store(source: Path, features: Sequence[str], time: str, group: str | None) -> list[_Timed]:
    with Store.open(source) as store:
        records = [placed(record) for record in usable_attempts(records_of(store), [time])]
    having = [record for record in records if record.compared.get(time, 0.0) > 0]
    if not having:
        known = list(dict.fromkeys(name for record in records for name in record.compared))
        raise StudyError(f"{source}: {unknown_name('figure', time, known) if records else NOTHING_USABLE}")
    names = [resolve_factor(having, name) for name in features]
    numbers = [r for r in having if all(_is_number(r.settings.get(name)) for name in names)]
    if not numbers:
        raise StudyError(f"{source}: no trial has a number for all of {', '.join(features)}.")
    # What tells jobs apart: settings that every platform has; an image is of containers alone, and part of them.
    apart = varied([record.settings for record in numbers])
    shared = [name for name in apart if name not in (PLATFORM, *names) and all(name in r.settings for r in numbers)]
    by = [resolve_factor(having, group)] if group is not None else _few(shared, [r.settings for r in numbers])
    return [
        _Timed(
            text(record.settings[PLATFORM]),
            ", ".join(text(record.settings.get(name)) for name in by),
            tuple(float(record.settings[name]) for name in names),
            str(record.block),
            record.compared[time],
        )
        for record in numbers
    ]


def _few(names: Sequence[str], settings: Sequence[Mapping[str, object]]) -> list[str]:
    """One setting that tells all jobs apart, where there is one (an application's name); else all of them."""
    whole = len({tuple(text(each.get(name)) for name in names) for each in settings})
    alone = [name for name in names if len({text(each.get(name)) for each in settings}) == whole]
    worded = [name for name in alone if any(isinstance(each.get(name), str) for each in settings)]
    return (worded or alone)[:1] or list(names)


def _of_table(source: Path, features: Sequence[str], time: str, group: str | None) -> list[_Timed]:
    table = read_table(source)
    rows = table_observations(table, settings=[PLATFORM, *features], values=[time], group=group)
    for row in rows:
        if any(isinstance(row.settings.get(name), str) for name in features):
            raise StudyError(f"{source}, {row.trial}: a feature is not a number; features are numbers.")
    whole = [row for row in rows if row.metrics.get(time, 0.0) > 0 and all(name in row.settings for name in features)]
    return [
        _Timed(str(row.settings[PLATFORM]), row.group or "", tuple(float(row.settings[name]) for name in features),
               None, row.metrics[time])
        for row in whole
    ]  # fmt: skip


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _pairs(ours: Sequence[_Timed], theirs: Sequence[_Timed]) -> dict[Mode, list[float]]:
    """Mode -> log ratios: block by block; of a table, which has no blocks, each time against the mean of the others."""
    found: dict[Mode, list[float]] = {}
    for mode, mine in sorted(grouped(ours, lambda each: each.mode).items()):
        same = [each for each in theirs if each.mode == mode]
        logs = {each.block: math.log(each.seconds) for each in same if each.block is not None}
        if logs:
            ratios = [math.log(each.seconds) - logs[each.block] for each in mine if each.block in logs]
        else:
            middle = float(np.mean([math.log(each.seconds) for each in same])) if same else 0.0
            ratios = [math.log(each.seconds) - middle for each in mine] if same else []
        if len(ratios) >= FEWEST_PAIRS:
            found[mode] = ratios
    return found


@dataclass(frozen=True)
class _Fit:
    """Least squares through the means of modes, with what it takes for an interval."""

    form: str
    coefficients: Array
    inverse: Array  # of X'X
    variance: float  # of a mode around the law
    degrees: float

    def at(self, mode: Mode) -> Estimate:
        row = _design(self.form, np.array([mode]))[0]
        middle = float(row @ self.coefficients)
        error = math.sqrt(self.variance * (1 + float(row @ self.inverse @ row)))
        reach = t_quantile(self.degrees, (1 + LEVEL) / 2) * error
        value, low, high = (math.expm1(each) for each in (middle, middle - reach, middle + reach))
        return Estimate(value, low, high, round(self.degrees), "a law of the overhead, Student's t", LEVEL)


def _design(form: str, modes: Array) -> Array:
    return np.hstack([np.ones((len(modes), 1)), FORMS[form](modes)])


def _fitted(form: str, pairs: Mapping[Mode, Sequence[float]]) -> _Fit | None:
    """None where the modes do not determine the coefficients."""
    design = _design(form, np.array(list(pairs)))
    means = np.array([float(np.mean(each)) for each in pairs.values()])
    count, unknowns = design.shape
    if count < unknowns or np.linalg.matrix_rank(design) < unknowns:
        return None
    inverse: Array = np.asarray(np.linalg.inv(design.T @ design), dtype=np.float64)
    coefficients = inverse @ design.T @ means
    noise = sum(float(np.var(each, ddof=1)) * (len(each) - 1) for each in pairs.values())
    spare = sum(len(each) - 1 for each in pairs.values())
    of_a_mean = noise / spare / min(map(len, pairs.values()))
    if count == unknowns:
        return _Fit(form, coefficients, inverse, of_a_mean, spare)
    off = float(np.sum((means - design @ coefficients) ** 2)) / (count - unknowns)
    return _Fit(form, coefficients, inverse, max(off, of_a_mean), count - unknowns)


def _left_out(form: str, pairs: Mapping[Mode, Sequence[float]]) -> dict[Mode, Estimate] | None:
    """What the law says of each mode without having seen it; None where too few are left for that."""
    found = {}
    for mode in pairs:
        fit = _fitted(form, {other: held for other, held in pairs.items() if other != mode})
        if fit is None:
            return None
        found[mode] = fit.at(mode)
    return found


def _error(found: Mapping[Mode, Estimate], pairs: Mapping[Mode, Sequence[float]]) -> float:
    return float(np.mean([abs(found[mode].value - _measured(pairs[mode])) for mode in pairs]))


def _measured(ratios: Sequence[float]) -> float:
    return math.expm1(float(np.mean(ratios)))


def _law(
    source: Path,
    who: tuple[str, str, str],
    features: tuple[str, ...],
    pairs: Mapping[Mode, Sequence[float]],
    wanted: Sequence[Mode],
) -> OverheadLaw:
    some_zero = any(value <= 0 for mode in (*pairs, *wanted) for value in mode)
    forms = [form for form in FORMS if not some_zero or form in _NO_LOG]
    tried = {form: found for form in forms if (found := _left_out(form, pairs)) is not None}
    if len(pairs) > 2 and tried:
        form = min(tried, key=lambda each: _error(tried[each], pairs))
    else:  # two modes, or fewer than the law has coefficients: what can be drawn through them
        form = next((each for each in forms if _fitted(each, pairs) is not None), "")
        tried = {}
    fit = _fitted(form, pairs)
    if fit is None:
        raise StudyError(f"{source}: too few modes of {', '.join(features)} for a law of the overhead.")
    found = tried.get(form)
    held = None
    if found is not None:
        ends = [(found[mode].low, _measured(pairs[mode]), found[mode].high) for mode in pairs]
        held = sum(low is not None and high is not None and low <= value <= high for low, value, high in ends)
    return OverheadLaw(
        *who,
        features=features,
        form=form,
        coefficients=tuple(map(float, fit.coefficients)),
        modes=tuple(
            MeasuredMode(mode, _measured(ratios), len(ratios), None if found is None else found[mode])
            for mode, ratios in pairs.items()
        ),
        predictions=tuple((mode, fit.at(mode)) for mode in wanted),
        error=None if found is None else _error(found, pairs),
        held=None if held is None else (held, len(pairs)),
        notes=_notes(features, pairs, wanted, checked=found is not None),
    )


def _notes(
    features: Sequence[str], pairs: Mapping[Mode, Sequence[float]], wanted: Sequence[Mode], *, checked: bool
) -> tuple[str, ...]:
    told = []
    if not checked:
        told.append(
            f"{len(pairs)} modes are too few to leave one out: neither the form of the law nor its error is known, and"
            " intervals show noise alone. Three modes or more tell both."
        )
    ends = [(min(column), max(column)) for column in zip(*pairs, strict=True)]
    beyond = [mode for mode in wanted if any(not low <= at <= high for at, (low, high) in zip(mode, ends, strict=True))]
    if beyond:
        shown = "; ".join(", ".join(f"{n}={v:g}" for n, v in zip(features, mode, strict=True)) for mode in beyond)
        told.append(f"{shown}: outside of what was measured, where nothing tests the law.")
    return tuple(told)


def overheads_answer(found: Sequence[OverheadLaw]) -> Answer[Sequence[OverheadLaw]]:
    """Each law of an overhead, with the modes that it rests on."""
    sections: list[Section] = []
    for place, law in enumerate(found, 1):
        sections.append(Section(f"overhead-{place}", _title(law), partial(_table, law)))
        notes = tuple((note,) for note in law.notes)
        sections.append(Section(f"overhead-{place}-notes", "", partial(Note, notes)))
    return Answer((), found, tuple(sections))


def _title(law: OverheadLaw) -> str:
    job = f"{law.job}: " if law.job else ""
    pairs, modes = count_text(sum(each.pairs for each in law.modes), "pair"), count_text(len(law.modes), "mode")
    return f"{job}overhead of {law.level} over {law.against}, {modes}, {pairs}: {law.formula}"


def _table(law: OverheadLaw) -> Table:
    interval = f"{LEVEL:.0%} interval".replace("%", " %")
    columns = (Column("mode"), Column("measured"), Column("pairs"), Column("without it", interval))
    rows = []
    for each in law.modes:
        mode = _mode_text(law, each.mode)
        left_out = "unknown" if each.left_out is None else share_shown(each.left_out, f"{mode}, left out")
        rows.append((mode, Shown(EFFECT, each.overhead, mode, signed=True), f"{each.pairs}", left_out))
    notes: list[Sentence] = []
    if law.error is not None and law.held is not None:
        inside, of = law.held
        points = f"{100 * law.error:.2g} percentage points"
        notes.append(
            (f"modes that were left out: off by {points} on average; {inside} of {of} inside their intervals",)
        )
    predicted = ((_mode_text(law, mode), estimate) for mode, estimate in law.predictions)
    notes += [(f"at {mode}: ", share_shown(estimate, f"{mode}, predicted")) for mode, estimate in predicted]
    return Table(columns, tuple(rows), tuple(notes))


def _mode_text(law: OverheadLaw, mode: Mode) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in zip(law.features, mode, strict=True))

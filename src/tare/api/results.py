"""What a comparison found, for Python: the word, the effect and its interval, as text, as HTML and as figures.

Columns with units, for other libraries: pandas, polars, Arrow. None of them is needed to read the values.

Stores and packs, opened from Python: trials, readings and marks as tables, and comparisons of their levels.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.base.errors import ObstacleError, StudyError, unknown_name

if TYPE_CHECKING:
    from tare.analysis.model import Comparison, Weighing, Word
    from tare.records.model import Record
    from tare.records.store import Store
    from tare.report.figure import Figure

_ENDINGS = {"_s": "s", "_ns": "ns", "_j": "J", "_w": "W", "_bytes": "B", "_share": "1", "_mhz": "MHz", "_c": "°C",
            "_per_s": "1/s"}  # fmt: skip
_FEWEST_SHOWN = 8


def unit_of(name: str) -> str:
    """The unit that a column's name ends in: `step_s` is in seconds; empty where there is none."""
    found = [ending for ending in _ENDINGS if name.endswith(ending)]
    return _ENDINGS[max(found, key=len)] if found else ""


@dataclass(frozen=True)
class Table:
    """Columns of equal length, each with its unit.

    >>> table = Table({"platform": ["bare", "runc"], "step_s": [0.010, 0.011]})
    >>> len(table), table.units["step_s"], table["platform"]
    (2, 's', ['bare', 'runc'])
    """

    columns: Mapping[str, Sequence[Any]]
    units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len({len(column) for column in self.columns.values()}) > 1:
            raise ValueError("the columns of a table are of one length")
        units = {name: self.units.get(name, unit_of(name)) for name in self.columns}
        object.__setattr__(self, "units", {name: unit for name, unit in units.items() if unit})

    @classmethod
    def of_rows(cls, names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Table:
        """From rows, of which each may lack some of the columns."""
        return cls({name: [row.get(name) for row in rows] for name in names})

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> Sequence[Any]:
        return self.columns[name]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Row by row."""
        for values in zip(*self.columns.values(), strict=True):
            yield dict(zip(self.columns, values, strict=True))

    def __repr__(self) -> str:
        shown = ", ".join(list(self.columns)[:_FEWEST_SHOWN])
        more = ", ..." if len(self.columns) > _FEWEST_SHOWN else ""
        return f"<tare.Table of {len(self)} rows: {shown}{more}>"

    def to_pandas(self) -> Any:
        """A pandas DataFrame; its `attrs["units"]` has the units."""
        frame = _library("pandas").DataFrame(dict(self.columns))
        frame.attrs["units"] = dict(self.units)
        return frame

    def to_polars(self) -> Any:
        """A polars DataFrame."""
        return _library("polars").DataFrame(dict(self.columns), strict=False)

    def to_arrow(self) -> Any:
        """An Arrow table; each field's metadata has its `unit`."""
        arrow = _library("pyarrow")
        made = arrow.table({name: list(column) for name, column in self.columns.items()})
        fields = [each.with_metadata({"unit": self.units.get(each.name, "")}) for each in made.schema]
        return made.cast(arrow.schema(fields))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ObstacleError(f"there is no {name} in this Python; `pip install {name}` brings it.", []) from None


_HEIGHT_PX = 560


@dataclass(frozen=True)
class Chart:
    """A figure of the report: shown in a notebook, or saved as svg, pdf or png."""

    figure: Figure

    @property
    def reading(self) -> str:
        """One sentence: what to see in it."""
        return self.figure.reading

    def svg(self) -> str:
        """As an SVG document."""
        from tare.report.figure import as_file

        return as_file(self.figure, "svg").decode()

    def save(self, path: str | Path, *, width_mm: float = 162) -> Path:
        """Into a file, whose name says the kind: .svg, .pdf or .png."""
        from tare.report.figure import as_file

        target = Path(path)
        if target.suffix not in (".svg", ".pdf", ".png"):
            raise StudyError(f"{target}: a figure ends in .svg, .pdf or .png.")
        target.write_bytes(as_file(self.figure, target.suffix[1:], width_mm / 25.4 * 72))
        return target

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"<tare.Chart {self.figure.name}: {self.figure.reading}>"


@dataclass(frozen=True)
class Result:
    """Levels against a baseline. With one level, `verdict`, `effect` and `interval` are its; else see `comparisons`.

    Printing it gives what `tare compare` prints; in a notebook it is the first screen of the report.
    """

    weighing: Weighing
    store: Path | None = None
    """Where the trials lie; None for a table."""

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """One for each level, in the order of the report."""
        return self.weighing.comparisons

    @property
    def verdict(self) -> Word:
        """`slower`, `faster`, `equivalent` or `cannot_tell`."""
        return self._only().verdict

    @property
    def effect(self) -> float | None:
        """A share: 0.07 is +7 %. None where a side has no usable trial."""
        return self._only().effect

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the effect; None where there are too few blocks for one."""
        return self._only().low, self._only().high

    @property
    def sentence(self) -> str:
        """The answer for people."""
        from tare.analysis.answer import weighing_json

        return str(weighing_json(self.weighing)["comparisons"][self._place()]["sentence"])

    @property
    def notes(self) -> Sequence[str]:
        """What there is to doubt."""
        return self.weighing.notes

    def __str__(self) -> str:
        from tare.report.text.verdict import verdict_text

        return verdict_text(self.weighing, 80)

    def __repr__(self) -> str:
        if len(self.comparisons) != 1:
            return f"<tare.Result of {len(self.comparisons)} comparisons of {self.weighing.metric}>"
        low, high = self.interval
        found = "" if self.effect is None else f" {self.effect:+.1%}"
        bounds = "" if low is None or high is None else f" [{low:+.1%}, {high:+.1%}]"
        return f"<tare.Result {self.weighing.metric}: {self.verdict}{found}{bounds}>"

    def _repr_html_(self) -> str:
        from tare.report.html import first_screen

        with _opened(self.store) as store:
            shown = first_screen(self.weighing, store.records() if store is not None else [])
        return (
            f'<iframe title="tare" sandbox srcdoc="{html.escape(shown)}" '
            f'style="width: 100%; height: {_HEIGHT_PX}px; border: 0"></iframe>'
        )

    def as_json(self) -> Mapping[str, Any]:
        """What `tare compare --json` prints."""
        from tare.analysis.answer import weighing_json

        return weighing_json(self.weighing)

    def plots(self) -> dict[str, Chart]:
        """The figures of the report, by name; one of a table has none."""
        from tare.report.html import page

        with _opened(self.store) as store:
            if store is None:
                return {}
            content = page(self.weighing, store.records(), "", "", (), store)
        return {figure.name: Chart(figure) for figure in content.figures}

    def plot(self, name: str | None = None) -> Chart:
        """One figure of the report; the first where none is named."""
        found = self.plots()
        if not found:
            raise StudyError("nothing to draw: there is no store, or no trial of it has a figure.")
        if name is not None and name not in found:
            raise StudyError(unknown_name("figure", name, list(found)))
        return found[name or next(iter(found))]

    def _only(self) -> Comparison:
        return self.comparisons[self._place()]

    def _place(self) -> int:
        if len(self.comparisons) != 1:
            raise StudyError(
                f"there are {len(self.comparisons)} comparisons, and no single verdict: look at `comparisons`."
            )
        return 0


@contextmanager
def _opened(path: Path | None) -> Iterator[Store | None]:
    from tare.records.store import Store

    if path is None:
        yield None
        return
    with Store.open(path) as store:
        yield store


def open(*sources: str | Path) -> Stores:
    """A store (a folder or a pack), or several, to be read.

    >>> store = tare.open("studies-results/cpu2/s0-seccomp.tare")
    >>> trials = store.trials()
    >>> sorted(set(trials["setting.platform"]))
    ['docker']
    """
    from tare.records.store import Store

    if not sources:
        raise StudyError("name a store: the folder that `tare run` or `tare weigh` made, or a pack.")
    paths = [Path(source) for source in sources]
    for path in paths:
        with Store.open(path):  # refused at once, and not at the first look
            pass
    return Stores(paths)


class Stores:
    """What was measured. Each look reads the files again: a run that goes on is seen as it grows."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __repr__(self) -> str:
        return f"<tare.Stores {', '.join(map(str, self.paths))}>"

    @property
    def study(self) -> dict[str, Any]:
        """The study of the first store, as it was written down when it began."""
        with self._each() as stores:
            return dict(stores[0].study)

    def trials(self, *, usable: bool = False) -> Table:
        """One row a trial: `setting.NAME`, `metric.NAME`, `phase.NAME_s`, its state and its reasons.

        `usable`: those that count, each by the attempt that counts.
        """
        from tare.records.model import usable_trials
        from tare.report.export import trial_rows

        with self._each() as stores:
            found = [list(store.records()) for store in stores]
        kept = [usable_trials(records) if usable else records for records in found]
        names, rows = trial_rows([record for records in kept for record in records])
        stored = [str(path) for path, records in zip(self.paths, kept, strict=True) for _ in records]
        table = Table.of_rows(names, rows)
        return Table({"store": stored, **table.columns}, table.units) if len(self.paths) > 1 else table

    def channels(self) -> Table:
        """What can be asked of `readings`: the name, unit and meaning of each channel."""
        found: dict[str, dict[str, Any]] = {}
        with self._each() as stores:
            for store, record in _attempts(stores):
                for channel in store.channels(record.trial, record.attempt, quantiles=False):
                    found.setdefault(str(channel["name"]), channel)
        names = ("name", "unit", "kind", "about")
        return Table({name: [channel.get(name, "") for channel in found.values()] for name in names})

    def readings(self, channel: str, *, trial: str | None = None) -> Table:
        """A series of a probe, over all trials or of one: seconds since the trial's first reading, and the value."""
        import numpy as np

        made: dict[str, list[Any]] = {"trial": [], "attempt": [], "t_s": [], "value": []}
        known: dict[str, str] = {}
        with self._each() as stores:
            for store, record in _attempts(stores, trial):
                series = store.readings(record.trial, record.attempt)
                known |= dict.fromkeys(series, "")
                if channel not in series:
                    continue
                known |= {str(each["name"]): str(each.get("unit", ""))
                          for each in store.channels(record.trial, record.attempt, quantiles=False)}  # fmt: skip
                t_ns, values = (np.asarray(column) for column in series[channel])
                made["trial"] += [record.trial] * len(values)
                made["attempt"] += [record.attempt] * len(values)
                made["t_s"] += ((t_ns - t_ns[:1].sum()) / 1e9).tolist()
                made["value"] += values.tolist()
        if channel not in known:
            raise StudyError(unknown_name("channel", channel, list(known)))
        return Table(made, {"t_s": "s", "value": known[channel]})

    def marks(self, name: str | None = None, *, trial: str | None = None) -> Table:
        """What the workloads marked, begin and end as one row: `marks("step")` has every step of every trial."""
        from tare.records.intervals import intervals

        made: dict[str, list[Any]] = {"trial": [], "attempt": [], "name": [], "step": [], "begin_s": [], "end_s": []}
        with self._each() as stores:
            for store, record in _attempts(stores, trial):
                found = intervals(store.marks(record.trial, record.attempt), *([name] if name else []))
                made["trial"] += [record.trial] * len(found)
                made["attempt"] += [record.attempt] * len(found)
                made["name"] += found.name.tolist()
                made["step"] += found.step.tolist()
                made["begin_s"] += ((found.begin_ns - record.start_ns) / 1e9).tolist()
                made["end_s"] += ((found.end_ns - record.start_ns) / 1e9).tolist()
        return Table(made)

    def compare(
        self, by: str | None = None, *, metric: str | None = None, against: str | None = None,
        margin: float | None = None,
    ) -> Result:  # fmt: skip
        """The levels of a factor against a baseline, as `tare compare` does; what is left open the study decides."""
        from tare.analysis.weighing import weigh

        if len(self.paths) != 1:
            raise StudyError("one store is compared at a time; over several, see `tare show STORE devices`.")
        with self._each() as stores:
            found = weigh(stores[0], by=by, metric=metric, against=against, margin=margin)
        return Result(found, self.paths[0])

    @contextmanager
    def _each(self) -> Iterator[list[Store]]:
        from contextlib import ExitStack

        from tare.records.store import Store

        with ExitStack() as stack:
            yield [stack.enter_context(Store.open(path)) for path in self.paths]


def _attempts(stores: list[Store], trial: str | None = None) -> Iterator[tuple[Store, Record]]:
    """Those that were sealed with their series; of one trial where it is named by the beginning of its id."""
    found = [(store, record) for store in stores for record in store.records()]
    chosen = [pair for pair in found if trial is None or pair[1].trial.startswith(trial)]
    if trial is not None and not chosen:
        raise StudyError(f"no trial begins with {trial!r}.")
    yield from chosen


def compare(
    table: str | Path, by: str, metric: str, *, block: str | None = None, against: str | None = None,
    margin: float | None = None, order: str | None = None,
) -> Result:  # fmt: skip
    """The levels in a table of your own (CSV, TSV, Parquet, JSON lines), one row a run.

    >>> from pathlib import Path
    >>> lines = [f"{run},{level},{1.2 if level == 'docker' else 1}" for run in range(8) for level in ("bare", "docker")]
    >>> _ = Path("runs.csv").write_text("\\n".join(["run,platform,step_s", *lines]))
    >>> tare.compare("runs.csv", by="platform", metric="step_s", block="run", order="shuffled").verdict
    'slower'
    """
    from tare.analysis.weighing import weigh_table

    path = Path(table)
    return Result(
        weigh_table(path, by=by, value=metric, block=block, against=against, margin=margin, order=order)
    )  # fmt: skip

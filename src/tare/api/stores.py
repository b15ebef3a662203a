"""Stores and packs, opened from Python: trials, readings and marks as tables, and comparisons of their levels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tare.api.results import Result
from tare.api.tables import Table
from tare.base.errors import StudyError
from tare.base.near_name import unknown_name

if TYPE_CHECKING:
    from tare.records.model import Record
    from tare.records.store import Store


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
        from tare.records.trials import usable_trials
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
            raise StudyError("one store is compared at a time; over several, see `tare analyse devices`.")
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

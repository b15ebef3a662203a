"""A store: a folder that keeps everything that a study's trials have left. `schema.py` shows what is in it.

One writer at a time, any number of readers beside it. Sealed trials never change; the catalogue is an index of them.
A store that came as one file (pack.py) is read like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tare.base import strict_json
from tare.base.errors import StoreError, StudyError
from tare.base.files import explained, replace_file
from tare.base.sides import is_rehearsal
from tare.records import seal
from tare.records.creation import (
    Catalogue,
    CatalogueDamaged,
    WriteLock,
    identity,
    lay_out,
    refuse_name,
    refuse_network_disk,
)
from tare.records.model import Json, MadeWhenAsked, Record, State, grouped
from tare.records.parquet import (
    TableName,
    columns_of,
    read_distributions,
    read_marks,
    read_readings,
)
from tare.records.schema import (
    CATALOGUE_FILE,
    CHANNELS_FILE,
    ERR_FILE,
    MARKS_FILE,
    OUT_FILE,
    READINGS_FILE,
    SPOOL_FILE,
    SPOOL_FOLDER,
    STUDY_FILE,
    TRIALS_FOLDER,
    Header,
    is_pack,
    read_header,
    write_header,
)
from tare.records.seal import Writer, plain, start
from tare.records.sealed import Key, Shelf, Thinned, folder_name, keys_in, verify_sealed
from tare.records.spool import read_channels, read_spool
from tare.records.unpack import header_of, unpacked

if TYPE_CHECKING:
    import numpy.typing as npt

    from tare.records.parquet import Tables
    from tare.records.spool import Times, Values
    from tare.records.unpack import KeptFolder, Unpacked


class Store:
    """An open store. Made by `create` or `open`; `problems` says in sentences what is damaged and was left out."""

    def __init__(
        self,
        root: Path,
        header: Header,
        *,
        write: bool,
        pack: Path | None = None,
        unpacked: Unpacked | KeptFolder | None = None,
    ) -> None:
        self.root = root  # where its files lie
        self.path = pack or root  # what it is called: the folder, or the pack
        self.header = header
        self.study: Json = header.study
        self.problems: list[str] = []
        self._write = write
        self._lock: WriteLock | None = None
        self._unpacked = unpacked
        self._identity = identity(root)
        self._catalogue = seal.readable_catalogue(root, self.problems)
        self._shelf = Shelf(root / TRIALS_FOLDER, self.problems, unpacked.sealed if unpacked is not None else {})
        self._shelf.look()
        self.problems += seal.missing_folders(self._shelf, self._catalogue)
        self.problems += seal.set_aside_earlier(root)

    @classmethod
    def create(cls, root: Path, study: Json, text: str) -> Self:
        """A new store, in a folder that is new or empty."""
        lay_out(root, study, text)
        return cls.open(root, write=True)

    @classmethod
    def open(cls, root: Path, *, write: bool = False) -> Self:
        """The store that is there. With `write`, the first call that writes takes the store's lock, until `close`."""
        if not is_pack(root):
            refuse_name(root)
            return cls(root, read_header(root), write=write)
        if write:
            raise StoreError(f"{root}: a pack is never written; `tare store merge STORE {root}` takes over its trials.")
        found = unpacked(root)
        return cls(found.folder, read_header(found.folder), write=False, pack=root, unpacked=found)

    @staticmethod
    def header_at(root: Path) -> Header:
        """What a store or a pack is, without a look at its trials."""
        return header_of(root) if is_pack(root) else read_header(root)

    # What was seen

    def records(self) -> list[Record]:
        """Every whole sealed record, in the order of the plan; of a trial all attempts, the newest last."""
        return [record for record in self._sealed() if not is_rehearsal(record.trial)]

    def rehearsals(self) -> list[Record]:
        """What was run once before the blocks: sealed like trials, and no data."""
        return [record for record in self._sealed() if is_rehearsal(record.trial)]

    def _sealed(self) -> list[Record]:
        sealed = (found.record for _, found in sorted(self._shelf.look().items()))
        attempts = grouped(sealed, lambda record: record.trial)
        newest = [its[-1] for its in attempts.values()]
        newest.sort(key=lambda record: (record.block, record.position, record.twin, record.trial))
        return [record for each in newest for record in attempts[each.trial]]

    def states(self) -> dict[str, State]:
        """The state of each trial's newest attempt; of planned trials first, in the order of the plan."""
        with explained(self.root, "reading the catalogue"):
            newest: dict[str, tuple[int, State]] = {row["trial"]: (0, "planned") for row in self._catalogue.planned()}
            begun = [(row.trial, row.attempt, row.state) for row in self._catalogue.attempts() if not row.sealed]
        # In this order: a trial that is sealed meanwhile is then seen as running or as sealed, never as neither.
        begun += [(trial, attempt, "running") for trial, attempt in self.spooled()]
        begun += [(*key, sealed.record.state) for key, sealed in self._shelf.look().items()]
        for trial, attempt, state in begun:
            if attempt >= newest.get(trial, (0, state))[0]:
                newest[trial] = (attempt, state)
        return {trial: state for trial, (_, state) in newest.items() if not is_rehearsal(trial)}

    def damaged(self) -> set[str]:
        """The trials that ended and of which no attempt is whole; `states` has them as still to be run."""
        spooled = {trial for trial, _ in self.spooled()}
        with explained(self.root, "reading the catalogue"):
            ended = {row.trial for row in self._catalogue.attempts() if row.sealed}
        ended |= {trial for trial, _ in self._shelf.seen()}
        ended = {trial for trial in ended if not is_rehearsal(trial)}
        return ended - spooled - {trial for trial, _ in self._shelf.look()}  # last: one may be sealed meanwhile

    def planned(self) -> list[dict[str, Json]]:
        """The planned trials in order, as `plan` was given them; empty after the catalogue was lost."""
        with explained(self.root, "reading the catalogue"):
            return self._catalogue.planned()

    def find(self, prefix: str) -> Record:
        """The newest attempt at the one trial whose id begins like this; TRIAL.ATTEMPT names an older one."""
        records = self._sealed()
        found = [r for r in records if r.trial.startswith(prefix) or folder_name(r.trial, r.attempt) == prefix]
        names = list(dict.fromkeys(r.trial for r in found))
        if len(names) == 1:
            return found[-1]
        among = ", ".join(names[:6] or list(dict.fromkeys(r.trial for r in records))[:6]) or "none"
        if names:
            raise StudyError(f"{self.path}: {len(names)} trials begin with {prefix!r}: {among}. Write more of the id.")
        raise StudyError(f"{self.path}: no trial begins with {prefix!r}. Trials here: {among}.")

    def readings(self, trial: str, attempt: int) -> dict[str, tuple[Times, Values]]:
        """Channel to (t_ns, value); of a trial that runs, what there is so far."""
        if self._runs((trial, attempt)):
            return read_spool(self._spool_file((trial, attempt)))
        return read_readings(self._shelf.file((trial, attempt), READINGS_FILE))

    def channels(self, trial: str, attempt: int, *, quantiles: bool = True) -> list[dict[str, Any]]:
        """Name, unit, kind and about of each channel; of a sealed trial also `count` and `quantiles` (schema.py).

        A thinned trial has none of the latter: they are made from its readings, unless nobody wants them.
        """
        if self._runs((trial, attempt)):
            return [dict(channel) for channel in read_channels(self._spool_file((trial, attempt)))]
        channels: list[dict[str, Any]] = strict_json.load(self._shelf.data((trial, attempt), CHANNELS_FILE))
        if not quantiles or self.thinned(trial, attempt) is None:
            return channels
        again = self.distributions(trial, attempt, channels)
        return [
            channel | {"count": again[place][0], "quantiles": again[place][1]} if place in again else channel
            for place, channel in enumerate(channels)
        ]

    def distributions(
        self, trial: str, attempt: int, channels: Sequence[Mapping[str, Any]]
    ) -> dict[int, tuple[int, list[float]]]:
        """Count and quantiles of these channels, by their places, from the readings of a sealed trial."""
        counters = [place for place, channel in enumerate(channels) if channel["kind"] == "counter"]
        path = self._shelf.file((trial, attempt), READINGS_FILE)
        return read_distributions(path, [channel["name"] for channel in channels], counters)

    def thinned(self, trial: str, attempt: int) -> Thinned | None:
        """What a trial of a thinned pack was before; None for one that is as it was sealed."""
        return self._shelf.get((trial, attempt)).thinned

    def marks(self, trial: str, attempt: int) -> dict[str, npt.NDArray[Any]]:
        """The marks as columns: t_ns, name, edge, step."""
        from tare.records.intervals import MarkColumns

        return MarkColumns(read_marks(self._shelf.file((trial, attempt), MARKS_FILE)))

    def traces(self, trial: str, attempt: int) -> list[TableName]:
        """The tables that recorders kept of this trial."""
        names = [TableName.of(file) for file in self._shelf.get((trial, attempt)).files]
        return [name for name in names if name is not None]

    def tables(self, trial: str, attempt: int, probe: str) -> Tables:
        """Those of one recorder."""
        mine = [name for name in self.traces(trial, attempt) if name.probe == probe]
        return MadeWhenAsked({name.table: partial(self.trace, trial, attempt, *name) for name in mine})

    def trace(self, trial: str, attempt: int, probe: str, table: str) -> Mapping[str, npt.NDArray[Any]]:
        """One of them, as columns; the recorder's docstring says what is in them."""
        if (name := TableName(probe, table)) not in self.traces(trial, attempt):
            raise StoreError(f"trial {trial}: {probe} kept no table {table!r} of it.")
        return columns_of(self._shelf.file((trial, attempt), name.file))

    def lost_marks(self, trial: str, attempt: int) -> int:
        """How many marks the workload made after its buffer was full."""
        return self._shelf.get((trial, attempt)).lost_marks

    def output(self, trial: str, attempt: int) -> tuple[str, str]:
        """What the workload printed: stdout, stderr."""
        out, err = (self._shelf.data((trial, attempt), name) for name in (OUT_FILE, ERR_FILE))
        return out.decode("utf-8", "surrogatepass"), err.decode("utf-8", "surrogatepass")

    def text(self) -> str:
        """The study as it was written."""
        with explained(self.root, "reading the study"):
            return (self.root / STUDY_FILE).read_bytes().decode("utf-8", "surrogatepass")

    def verify(self) -> list[str]:
        """Everything that is wrong with the store, every byte looked at; empty means whole."""
        found = [f"{CATALOGUE_FILE}: {damage}." for damage in [self._catalogue.damage()] if damage]
        # Of a pack every byte was looked at when it was opened: one that is not whole is refused.
        for key in sorted(self._shelf.seen()) if self._unpacked is None else ():
            found += verify_sealed(self.root / TRIALS_FOLDER / folder_name(*key))
        found += seal.missing_folders(self._shelf, self._catalogue)
        return found

    # What is being seen

    def plan(self, rows: Iterable[Record | Mapping[str, Json]]) -> None:
        """Note what is planned, in order: trial, block, position, twin and settings of each."""
        catalogue = self._writing()
        with explained(self.root, "noting the plan"):
            catalogue.plan(row.as_json() if isinstance(row, Record) else row for row in rows)

    def redeclare(self, study: Json, text: str) -> None:
        """Keep the study with another number of blocks; what the trials of a cell are stays as it was."""
        self._writing()
        with explained(self.root, "noting the study"):
            replace_file(self.root / STUDY_FILE, text.encode("utf-8", "surrogatepass"))
            write_header(self.root, study, self.header)
        self.header = replace(self.header, study=study)
        self.study = study

    def begin(self, draft: Record) -> Writer:
        """The next attempt at a trial; an earlier one is never replaced."""
        catalogue = self._writing()
        doing = f"beginning trial {draft.trial}"
        with explained(self.root, doing, need_bytes=128 * 1024):
            begun = {(row.trial, row.attempt) for row in catalogue.attempts(draft.trial)}
            begun |= self.spooled() | self._shelf.seen(draft.trial)
            attempt = 1 + max((number for trial, number in begun if trial == draft.trial), default=0)
            draft = plain(replace(draft, attempt=attempt, state="running"))
            start(self.root, draft)
            catalogue.note([draft], sealed=False)
        return Writer(self.root, draft, self._note_sealed)

    def recover(self) -> list[Record]:
        """Put the store in order after a crash; returns what was sealed as interrupted."""
        catalogue = self._writing()
        with explained(self.root, "recovering what an earlier run left", need_bytes=1024 * 1024):
            seal.remove_half_made(self.root)
            self.problems += seal.note_lost(self.root, self._shelf, catalogue)
            seal.adopt(self.root, self._shelf, catalogue)
            return seal.seal_left_over(self.root, self._shelf, self._note_sealed, self.problems)

    def adopt(self, records: Sequence[Record]) -> None:
        """Note trials that the writer of this store has put into it sealed, every byte looked at."""
        catalogue = self._writing()
        if records:
            with explained(self.root, "noting what was merged"):
                catalogue.note(records, sealed=True)

    def close(self) -> None:
        """Let the lock go. A trial that is not sealed stays as it is, for `recover`."""
        self._catalogue.close()
        if self._lock is not None:
            self._lock.release()
            self._lock = None
        if self._unpacked is not None:
            self._unpacked.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Inside

    def _writing(self) -> Catalogue:
        """The catalogue, for whoever writes: ours alone, whole, and of the folder that was opened."""
        if not self._write:
            raise StoreError(f"{self.path}: this store was opened to be read, not to be written.")
        self._refuse_if_moved()
        if self._lock is None:
            refuse_network_disk(self.root)
            with explained(self.root, "opening the store to write"):
                lock = WriteLock.take(self.root)
                try:
                    catalogue = self._whole_catalogue()
                except BaseException:
                    lock.release()
                    raise
            self._catalogue.close()
            self._catalogue, self._lock = catalogue, lock
        return self._catalogue

    def _whole_catalogue(self) -> Catalogue:
        try:
            return Catalogue.to_write(self.root)
        except CatalogueDamaged:
            catalogue = Catalogue.create(self.root)
            seal.adopt(self.root, self._shelf, catalogue)
            return catalogue

    def _refuse_if_moved(self) -> None:
        # An open database would go on without complaint in a folder that is gone from this path.
        if identity(self.root) != self._identity:
            raise StoreError(
                f"{self.root}: the store was removed or moved while it was in use. "
                "It was not made again; move the folder to its place, then run the same command."
            )

    def _note_sealed(self, record: Record) -> None:
        self._refuse_if_moved()
        self._catalogue.note([record], sealed=True)

    def spooled(self) -> set[Key]:
        """The attempts that run now, or were cut off: trial and attempt of each."""
        with suppress(FileNotFoundError):  # a copy of a finished store may have come without its empty folders
            return keys_in(self.root / SPOOL_FOLDER)
        return set()

    def _runs(self, key: Key) -> bool:
        return not self._shelf.holds(key) and self._spool_file(key).parent.is_dir()

    def _spool_file(self, key: Key) -> Path:
        return self.root / SPOOL_FOLDER / folder_name(*key) / SPOOL_FILE

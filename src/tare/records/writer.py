"""One attempt at a trial, from its draft to its seal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from tare.errors import StoreError
from tare.records import strict
from tare.records.durable import explained, make_folder, publish, remove_folder, replace_file, write_file
from tare.records.model import Record
from tare.records.schema import DRAFT_FILE, HALF_MADE, RAW_FOLDER, SPOOL_FILE, SPOOL_FOLDER, TABLES_FOLDER
from tare.records.seal import Content, plain, seal
from tare.records.sealed import folder_name

MarkRow: TypeAlias = tuple[int, str, str | int, int]  # t_ns, name, edge (begin, end, point; or 0, 1, 2), step


class Writer:
    """What `Store.begin` gives. `spool` is the file for the sampler; `seal` ends the attempt, once."""

    def __init__(self, root: Path, draft: Record, note: Callable[[Record], None]) -> None:
        self.attempt = draft.attempt
        self.spool = root / SPOOL_FOLDER / folder_name(draft.trial, draft.attempt) / SPOOL_FILE
        self._root = root
        self._trial = draft.trial
        self._note = note

    @property
    def raw(self) -> Path:
        """Where recorders write while the trial runs, each in a folder with its name."""
        return self.spool.parent / RAW_FOLDER

    @property
    def tables(self) -> Path:
        """Where the tables made of that wait for the seal."""
        return self.spool.parent / TABLES_FOLDER

    def keep(self, draft: Record) -> None:
        """Replace the draft: what is in it now is what an interrupted trial will be sealed with."""
        self._check(draft)
        draft = plain(replace(draft, attempt=self.attempt, state="running"))
        with explained(self._root, f"keeping the draft of trial {self._trial}"):
            replace_file(self.spool.parent / DRAFT_FILE, strict.dump(draft.as_json()))

    def seal(self, record: Record, marks: Iterable[MarkRow], out: str, err: str, lost_marks: int = 0) -> Record:
        """The end of the attempt: on the disk when this returns. Returns the record as it was kept."""
        self._check(record)
        if record.state in ("planned", "running"):
            raise StoreError(
                f"trial {self._trial}: a sealed record says how it ended, and this one is {record.state!r}."
            )
        content = Content(plain(replace(record, attempt=self.attempt)), list(marks), out, err, lost_marks)
        folder = self.spool.parent
        with explained(self._root, f"sealing trial {folder.name}", content.need_bytes(folder)):
            return seal(self._root, folder, content, self._note)

    def _check(self, record: Record) -> None:
        if record.trial != self._trial:
            raise StoreError(f"this writer is for trial {self._trial}, not for {record.trial}.")
        if not self.spool.parent.is_dir():
            raise StoreError(
                f"{self.spool.parent}: the spool of this attempt is not there any more: "
                "the attempt was sealed already, or the folder was removed while it ran."
            )


def start(root: Path, draft: Record) -> None:
    """Make the spool's folder with the draft in it, all or nothing."""
    folder = root / SPOOL_FOLDER / folder_name(draft.trial, draft.attempt)
    half_made = folder.with_name(HALF_MADE + folder.name)
    remove_folder(half_made)
    make_folder(half_made)
    write_file(half_made / DRAFT_FILE, strict.dump(draft.as_json()))
    publish(half_made, folder)

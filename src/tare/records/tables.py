"""Tables that a recorder kept beside the readings: one Parquet file each, written in pieces, read when asked for."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tare.errors import StoreError
from tare.records.durable import settle_file
from tare.records.parquet import columns_of, engine, insert, write_table

if TYPE_CHECKING:
    import numpy.typing as npt

_FILE = re.compile(r"trace-([a-z0-9_]+)-([a-z0-9_]+)\.parquet")


class TableName(NamedTuple):
    """Which recorder kept it, and what it called it."""

    probe: str
    table: str

    @property
    def file(self) -> str:
        name = f"trace-{self.probe}-{self.table}.parquet"
        if not _FILE.fullmatch(name):
            raise StoreError(
                f"a table is named with small letters, digits and '_', not {self.probe!r}, {self.table!r}."
            )
        return name

    @classmethod
    def of(cls, file: str) -> Self | None:
        """The reverse of `file`; None for a file that is no table."""
        match = _FILE.fullmatch(file)
        return cls(match[1], match[2]) if match else None


class TableFiles(AbstractContextManager["TableFiles"]):
    """Tables on their way into `folder`; pieces of one are put together, past half a GiB on the disk."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._engine = engine(folder / "spill")
        self._db = self._engine.__enter__()
        self._rows: dict[TableName, int] = {}

    def add(self, name: TableName, columns: Mapping[str, Any]) -> None:
        """One piece of a table; the first one says which columns there are."""
        table = f"t{list(self._rows).index(name)}" if name in self._rows else f"t{len(self._rows)}"
        self._rows[name] = self._rows.get(name, 0) + insert(self._db, table, columns, new=name not in self._rows)

    def write(self) -> dict[TableName, int]:
        """Every table to its file; returns the rows of each."""
        for number, name in enumerate(self._rows):
            write_table(self._db, f"t{number}", self._folder / name.file)
            settle_file(self._folder / name.file)
        return self._rows

    def __exit__(self, *exc: Any) -> None:
        self._engine.__exit__(*exc)


class TablesIn(Mapping[str, Mapping[str, "npt.NDArray[Any]"]]):
    """The tables of one recorder in a folder, by name; each is read when it is asked for, and not kept."""

    def __init__(self, folder: Path, probe: str) -> None:
        found = [TableName.of(path.name) for path in sorted(folder.iterdir())] if folder.is_dir() else []
        self._files = {name.table: folder / name.file for name in found if name is not None and name.probe == probe}

    def __getitem__(self, table: str) -> Mapping[str, npt.NDArray[Any]]:
        return columns_of(self._files[table])

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

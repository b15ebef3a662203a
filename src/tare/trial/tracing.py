"""After a traced trial, with the device as it was found: raw files become tables of the store, and figures."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tare.errors import TareError
from tare.parts.protocols import Probe, Recorder
from tare.records.tables import TableFiles, TableName, TablesIn

NOT_COMPARED = "a tracer ran beside it, so its times are not compared with those of other trials."


@dataclass
class Traced:
    """What recorders left of one trial."""

    probes: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)  # "ftrace.writeback_start" -> rows
    figures: dict[str, float] = field(default_factory=dict)
    trouble: list[str] = field(default_factory=list)  # sentences: what could not be made of the raw files


def recorders_of(probes: Iterable[Probe]) -> list[Recorder]:
    return [probe for probe in probes if isinstance(probe, Recorder)]


def make_tables(recorders: Iterable[Recorder], raw: Path, tables: Path, steps: int | None) -> Traced:
    """Decode each recorder's raw files, write its tables, and take its figures; one that fails costs only its own."""
    traced = Traced()
    for recorder in recorders:
        name = recorder.part_name()
        traced.probes.append(name)
        folder = raw / name
        if not folder.is_dir():
            continue  # it could not start; the sampler has said why
        try:
            traced.rows |= _write(recorder, folder, tables)
            traced.figures |= recorder.figures(TablesIn(tables, name), steps)
        except (TareError, OSError, ValueError, KeyError) as error:
            said = str(error).rstrip(".")
            traced.trouble.append(f"{name}: what it recorded could not be decoded: {said}.")
        shutil.rmtree(folder, ignore_errors=True)  # the spool's own removal takes what is left
    return traced


def _write(recorder: Recorder, folder: Path, tables: Path) -> dict[str, int]:
    name = recorder.part_name()
    with TableFiles(tables) as files:
        for table in recorder.tables(folder):
            files.add(TableName(name, table.name), table.columns)
        return {f"{name}.{written.table}": rows for written, rows in files.write().items()}

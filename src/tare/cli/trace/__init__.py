"""`tare trace`: recordings of other tools: kernel traces, tegrastats logs; and an NVM layer simulated on a trace."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tare.base.errors import StoreError, TareError, damage_named
from tare.cli.options import json_option
from tare.cli.scaffold import Verbs, print_json, say, spinner, width
from tare.cli.trace import simulate

if TYPE_CHECKING:
    from tare.traces.importing import Opened, Summary
    from tare.traces.recording import Chunk

_PROBE = "ftrace"  # the tables are those that this probe keeps of a trial
_PLAIN = re.compile(r"[a-z0-9_]+")


@click.group("trace", cls=Verbs)
def command() -> None:
    """Read recordings of other tools (kernel traces, tegrastats), or simulate an NVM layer on a trace."""


@command.command("import")
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", metavar="DIR|FILE.parquet", type=click.Path(path_type=Path),
    help="A folder for all tables, or a file for the page writes alone, as `tare trace simulate` takes them.",
)  # fmt: skip
@json_option
def import_trace(path: Path, output: Path | None, as_json: bool) -> None:
    """Convert FILE into tables, and show what is in it.

    FILE is a trace.dat of trace-cmd (versions 6 and 7), a text as `cat trace` or `trace-cmd report` print it, or a
    folder of raw pages. Each kind of event becomes a table; `page_writes` has one row for each page that was written
    to a disk, where the trace has block_bio_queue.
    """
    from tare.traces.importing import Summary, opened

    summary = Summary()
    all_tables = output is not None and output.suffix != ".parquet"
    with spinner(f"reading {path}"), opened(path, whole=all_tables) as trace:
        summary.lost |= trace.lost
        with damage_named(path):
            written = _read(trace, summary, output)
        found = _as_json(path, trace, summary, written)
    if as_json:
        print_json(found)
        return
    _tell(found)
    if output is None:
        say(f"Nothing was written; `tare trace import {path} -o DIR` writes the tables.")


def _read(trace: Opened, summary: Summary, output: Path | None) -> list[str]:
    """Read the trace once; the files that were written."""
    if output is None:
        for chunk in trace.chunks:
            summary.add(chunk)
        return []
    try:
        if output.suffix == ".parquet":
            return _write_page_writes(trace, summary, output)
        return _write_tables(trace, summary, output)
    except OSError as error:
        raise StoreError(f"{output}: it could not be written: {error.strerror}.") from None


def _write_tables(trace: Opened, summary: Summary, folder: Path) -> list[str]:
    from tare.records.parquet import TableFiles, TableName

    with TableFiles(folder) as files:
        for chunk in trace.chunks:
            summary.add(chunk)
            if len(next(iter(chunk.columns.values()))) and _PLAIN.fullmatch(chunk.name.lower()):
                files.add(TableName(_PROBE, chunk.name.lower()), chunk.columns)
        return [str(folder / name.file) for name in files.write()]


def _write_page_writes(trace: Opened, summary: Summary, file: Path) -> list[str]:
    """`t_s, dev, inode, page, tenant`: what anyone's simulator can read."""
    from tempfile import TemporaryDirectory

    from tare.records.parquet import engine, insert, write_table

    first_ns: int | None = None
    file.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="tare-trace-") as spill, engine(Path(spill)) as db:
        for chunk in trace.chunks:
            summary.add(chunk)
            if chunk.name == "page_writes":
                new = first_ns is None
                first_ns = int(chunk.columns["t_ns"][0]) if first_ns is None else first_ns
                insert(db, "page_writes", _for_simulation(chunk, first_ns), new=new)
        if first_ns is None:
            raise TareError(
                "no page writes are in this trace: it has no block_bio_queue events of writes, so nothing was written "
                f"to {file}. Record with `-e block:block_bio_queue -e writeback`."
            )
        write_table(db, "page_writes", file)
    return [str(file)]


def _for_simulation(chunk: Chunk, first_ns: int) -> dict[str, Any]:
    """A page is one of the device; its file is left at 0, for it is not known for each write of the same page."""
    columns = chunk.columns
    return {
        "t_s": (columns["t_ns"] - first_ns) / 1e9,
        "dev": columns["dev"],
        "inode": columns["inode"] * 0,
        "page": columns["page"],
        "tenant": columns["role"],
    }


def _as_json(path: Path, trace: Opened, summary: Summary, written: list[str]) -> dict[str, Any]:
    return {
        "file": str(path),
        "kind": trace.kind,
        "clock": trace.clock,
        "seconds": summary.seconds,
        "tables": summary.rows,
        "roles": summary.roles,
        "writebacks": summary.reasons,
        "lost_events_at_least": {str(cpu): count for cpu, count in summary.lost.items()},
        "notes": list(trace.notes),
        "written": written,
    }


def _tell(found: dict[str, Any]) -> None:
    at_least = "at least " if found["lost_events_at_least"] else ""
    events = sum(rows for name, rows in found["tables"].items() if name != "page_writes")
    click.echo(f"{found['file']}: {found['kind']}, {at_least}{events:,} events in {found['seconds']:.3g} s")
    for name, rows in sorted(found["tables"].items(), key=lambda row: -row[1]):
        click.echo(f"  {rows:>12,} {name}")
    if found["writebacks"]:
        shares = ", ".join(f"{reason} {count}" for reason, count in sorted(found["writebacks"].items()))
        click.echo(f"  write-backs by reason: {shares}")
    for cpu, count in found["lost_events_at_least"].items():
        click.echo(f"  core {cpu}: at least {count:,} events were lost before they were recorded")
    for note in found["notes"]:
        say(note)
    for file in found["written"]:
        say(f"written: {file}")


command.add_command(simulate.command, "simulate")


NAMED = 20  # lines that are not of the tool are named up to so many; all of them are counted


class Line(NamedTuple):
    """One line of the log: its number, its text, and what was understood of it."""

    number: int
    text: str
    said: dict[str, Any] | None


@command.command("tegrastats")
@click.argument("log", metavar="FILE", type=click.File("r", encoding="utf-8-sig", errors="replace"))
@json_option
def tegrastats(log: Iterable[str], as_json: bool) -> None:
    """Read a log of NVIDIA's tegrastats, of any Jetson, as the probes would have read it; `-` reads a pipe.

    With --json it prints one JSON object for each line of the log: bytes, hertz, watts, degrees Celsius, and shares
    from 0 to 1. What a line does not have is not in its object; a core that is off is null.
    """
    from tare.report.text.tegrastats import tegrastats_table

    strange: list[Line] = []
    understood = _understood(log, strange)
    if as_json:
        found = sum(_print_line(line) for line in understood)
    else:
        rows = [(line.number, line.said or {}) for line in understood]
        found = len(rows)
        if rows:
            click.echo(tegrastats_table(rows, width()))
    for line in strange[:NAMED]:
        say(f"line {line.number} is not of tegrastats: {line.text[:60]!r}")
    if strange:
        say(f"{len(strange)} of {len(strange) + found} lines are not of tegrastats, and were passed over.")
    if not found:
        raise TareError("there is no line of tegrastats in this log; one begins like `RAM 534/3964MB (lfb 98x4MB)`.")


def _understood(log: Iterable[str], strange: list[Line]) -> Iterator[Line]:
    """The lines that were understood, one by one; the others go to `strange`."""
    from tare.drivers.sensors.rails import parse_line

    for number, text in enumerate(log, start=1):
        line = Line(number, text.strip(), parse_line(text))
        if line.said is None:
            strange.append(line)
        else:
            yield line


def _print_line(line: Line) -> bool:
    click.echo(json.dumps(line.said, allow_nan=False, ensure_ascii=False))
    return True

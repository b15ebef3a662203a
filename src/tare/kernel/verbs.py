"""`tare trace`: recordings of other tools: kernel traces, tegrastats logs; and an NVM layer simulated on a trace."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from tare.base.errors import StoreError, StudyError, TareError, damage_named
from tare.base.units import parse_seconds, parse_size, positive
from tare.ext.verbs import (
    STORE,
    NamesOption,
    QuantityOption,
    Result,
    Verb,
    Verbs,
    draw,
    json_option,
    need,
    need_drawable,
    output_option,
    print_json,
    prints,
    reading,
    say,
    spinner,
    width,
)

if TYPE_CHECKING:
    from tare.kernel.nvm.model import Layer, Trace
    from tare.kernel.nvm.replay import Simulation
    from tare.kernel.traces.importing import Opened, Summary
    from tare.kernel.traces.recording import Chunk


# `tare trace simulate`: a trace of page writes through a non-volatile flushing layer in front of a disk.

UNLIMITED = "unlimited"
SWEEP = "256KiB,512KiB,1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB,128MiB,256MiB,512MiB,1GiB"


TIME = QuantityOption("time", lambda text: positive(parse_seconds(text)))
SIZE = QuantityOption("size", parse_size)
SIZES = QuantityOption("sizes", parse_size, several=True, words={UNLIMITED: None, "0": 0})


@click.command("simulate", cls=Verb)
@click.argument("source", metavar="TRACE|DIR", type=STORE)
@click.option("--disk", "disk_s", type=TIME, default="8ms", show_default=True, help="One access of the disk.")
@click.option("--nvm", "nvm_s", type=TIME, default="350ns", show_default=True, help="One page written to the NVM.")
@click.option(
    "--nvm-size",
    "sizes",
    type=SIZES,
    default=SWEEP,
    show_default="256KiB to 1GiB",
    help="Sizes of the buffer, such as 64MB,256MB; or 'unlimited'.",
)
@click.option(
    "--policy",
    "policies",
    type=NamesOption("policy", ("none", "lru")),
    default="none,lru",
    show_default=True,
    help="Which page makes room.",
)
@click.option(
    "--destage",
    "destages",
    type=NamesOption("way to destage", ("sync", "async")),
    default="sync",
    show_default=True,
    help="Who waits for a page to be written to the disk: the writer, or nobody.",
)
@click.option(
    "--buffer",
    type=click.Choice(["shared", "divided"]),
    default="shared",
    show_default=True,
    help="One buffer for all tenants, or an equal share for each.",
)
@click.option("--page-size", "page_bytes", type=SIZE, help="Of the trace.  [default: as the trace says, else 4KiB]")
@output_option("Draw the paper's Figure 6 into this file: .svg, .pdf or .png.")
@prints
def simulate(
    source: Path, disk_s: float, nvm_s: float, sizes: tuple[int | None, ...], policies: tuple[str, ...],
    destages: tuple[str, ...], buffer: str, page_bytes: int | None, output: Path | None,
) -> Result:  # fmt: skip
    """Simulate a non-volatile layer in front of a disk, on write-backs that were traced.

    TRACE is a CSV or Parquet file with columns t_s, dev, inode, page and perhaps tenant, one row per page that was
    written back, in the order of time. Of a store DIR, each traced trial is a trace.

    tare trace simulate trace.csv --nvm-size 64MB,256MB --policy lru --destage sync,async -o figure6.svg

    --json: {"runs": [{"policy", "nvm_bytes" (null: unlimited), "page_writes", "disk_writes", "nvm_writes",
    "latency_s", "latency_disk_only_s", "improvement", "p99_s", "latency_mean_s", "destage", "nvm_pages", "absorbed",
    "direct_writes", "waited_writes", "destaged_writes", "destage_s", "avoided_disk_writes", "left_in_nvm",
    "disk_busy_share", "tenants", "trace"}], "writes_per_s", "reads_per_s", "traces", "assumptions"}; latencies are
    sums over all write-backs, writes_per_s is page writes simulated, over all runs.
    """
    from tare.kernel.charts import flushing_figure
    from tare.kernel.nvm.replay import simulate
    from tare.kernel.text import simulation_text

    need(page_bytes is None or page_bytes > 0, "--page-size: a page has at least one byte.")
    need_drawable(output)
    asked = layers(policies, sizes, destages, disk_s, nvm_s)
    found = []
    with spinner("replaying the trace"), _traces(source) as traces:
        for trace in traces:
            found.append(simulate(trace, asked, page_bytes, divided=buffer == "divided"))
    if output is not None:
        draw(flushing_figure(found), output)
    return Result(lambda: _simulation_json(found, disk_s, nvm_s, buffer), lambda: simulation_text(found, width()))


def layers(
    policies: Sequence[str], sizes: Sequence[int | None], destages: Sequence[str], disk_s: float, nvm_s: float
) -> list[Layer]:  # fmt: skip
    """Every policy with every size and way to destage; without a buffer there is one of them."""
    from tare.kernel.nvm.model import DESTAGES, POLICIES, Layer

    made = []
    for way in (DESTAGES[name] for name in destages):
        for policy in (POLICIES[name] for name in policies):
            its_sizes = sizes if policy.buffers else (0,)
            made += [Layer(policy, size, way, disk_s, nvm_s) for size in its_sizes]
    return made


@contextmanager
def _traces(source: Path) -> Iterator[Iterator[Trace]]:
    from tare.ext.analysis import is_store
    from tare.kernel.nvm.sources import NO_TRACE, store_traces, trace_file

    if not is_store(source):
        need(
            not source.exists() or os.access(source, os.R_OK), f"{source}: no permission to read it. Run as its owner."
        )
        with trace_file(source) as trace:
            yield iter([trace])
        return
    with reading(source) as store:
        traces = store_traces(store)
        first = next(traces, None)
        if first is None:
            raise StudyError(f"{source}: {NO_TRACE}.")
        yield chain([first], traces)


def _simulation_json(found: Sequence[Simulation], disk_s: float, nvm_s: float, buffer: str) -> dict[str, Any]:
    from tare.kernel.nvm.replay import writes_per_s

    read_s = sum(each.read_s for each in found)
    return {
        "runs": [run.as_json() for each in found for run in each.runs],
        "writes_per_s": writes_per_s(found),
        "reads_per_s": sum(each.trace.writes for each in found) / read_s if read_s else None,
        "traces": [
            {
                "trace": each.trace.name,
                "page_writes": each.trace.writes,
                "distinct_pages": each.distinct_pages,
                "page_bytes": each.page_bytes,
                "tenants": [name for name in each.trace.tenants if name],
                "duration_s": each.trace.duration_s,
                "trial": each.trace.settings.get("trial"),
            }
            for each in found
        ],
        "assumptions": {
            "disk_s": disk_s,
            "nvm_s": nvm_s,
            "buffer": buffer,
            "queueing": False,
            "reads": "not simulated",
            "paper": "states neither capacity nor policy; its improvements are 0.77 to 0.90",
        },
    }


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
    from tare.kernel.traces.importing import Summary, opened

    summary = Summary()
    all_tables = output is not None and output.suffix != ".parquet"
    with spinner(f"reading {path}"), opened(path, whole=all_tables) as trace:
        summary.lost |= trace.lost
        with damage_named(path):
            written = _read(trace, summary, output)
        found = {
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
    from tare.ext.analysis import TableFiles, TableName

    with TableFiles(folder) as files:
        for chunk in trace.chunks:
            summary.add(chunk)
            if len(next(iter(chunk.columns.values()))) and _PLAIN.fullmatch(chunk.name.lower()):
                files.add(TableName(_PROBE, chunk.name.lower()), chunk.columns)
        return [str(folder / name.file) for name in files.write()]


def _write_page_writes(trace: Opened, summary: Summary, file: Path) -> list[str]:
    """`t_s, dev, inode, page, tenant`: what anyone's simulator can read."""
    from tempfile import TemporaryDirectory

    from tare.ext.analysis import engine, insert, write_table

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


command.add_command(simulate, "simulate")


NAMED = 20  # lines that are not of the tool are named up to so many; all of them are counted
MOST_LINE = 1 << 16  # characters; a line of the largest board has some hundred
MOST_ROWS = 100_000  # of a table, which is held whole to be aligned: a day and more, one line a second


@command.command("tegrastats")
@click.argument("log", metavar="FILE", type=click.File("r", encoding="utf-8-sig", errors="replace"))
@json_option
def tegrastats(log: TextIO, as_json: bool) -> None:
    """Read a log of NVIDIA's tegrastats, of any Jetson, as the probes would have read it; `-` reads a pipe.

    With --json it prints one JSON object for each line of the log: bytes, hertz, watts, degrees Celsius, and shares
    from 0 to 1. What a line does not have is not in its object; a core that is off is null.
    """
    from tare.ext.verbs import parse_line
    from tare.kernel.text import tegrastats_table

    named: list[tuple[int, str]] = []
    rows: list[tuple[int, dict[str, Any]]] = []
    found = strange = 0
    for number, text in enumerate(iter(lambda: log.readline(MOST_LINE), ""), start=1):
        if len(text) == MOST_LINE:
            raise TareError(f"line {number} has more than {MOST_LINE:,} characters: this is no log of tegrastats.")
        line = parse_line(text)
        if line is None:
            strange += 1
            named += [(number, text.strip())] * (len(named) < NAMED)
            continue
        found += 1
        if len(rows) == MOST_ROWS:
            raise TareError(f"this log has more than {MOST_ROWS:,} lines, too many for one table: --json has no limit.")
        if as_json:  # at once: the log may be a pipe
            print_json(line, compact=True)
        else:
            rows.append((number, line))
    if rows:
        click.echo(tegrastats_table(rows, width()))
    for number, text in named:
        say(f"line {number} is not of tegrastats: {text[:60]!r}")
    if strange:
        say(f"{strange} of {strange + found} lines are not of tegrastats, and were passed over.")
    if not found:
        raise TareError("there is no line of tegrastats in this log; one begins like `RAM 534/3964MB (lfb 98x4MB)`.")

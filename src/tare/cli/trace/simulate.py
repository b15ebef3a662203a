"""`tare trace simulate`: a trace of page writes through a non-volatile flushing layer in front of a disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from pydantic import TypeAdapter, ValidationError

from tare.base.errors import pip_install
from tare.base.units import PositiveSeconds, SizeBytes
from tare.cli.options import SHARE, STORE, NamesOption, QuantityOption, json_option, need, output_option
from tare.cli.report import draw, need_drawable
from tare.cli.scaffold import Verb, print_json, reading, say, spinner, width

if TYPE_CHECKING:
    from tare.analysis.nvm.model import Layer
    from tare.analysis.nvm.replay import Simulation
    from tare.analysis.nvm.trace import Trace

UNLIMITED = "unlimited"
SWEEP = "256KiB,512KiB,1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB,128MiB,256MiB,512MiB,1GiB"


def _of_type(kind: Any) -> Callable[[str], Any]:
    """A parser of one quantity; what pydantic says becomes a plain sentence."""
    adapter = TypeAdapter(kind)

    def parse(text: str) -> Any:
        try:
            return adapter.validate_python(text)
        except ValidationError as error:
            raise ValueError(str(error.errors()[0]["ctx"]["error"])) from None

    return parse


TIME = QuantityOption("time", _of_type(PositiveSeconds))
SIZE = QuantityOption("size", _of_type(SizeBytes))
SIZES = QuantityOption("sizes", _of_type(SizeBytes), several=True, words={UNLIMITED: None, "0": 0})


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
    type=NamesOption("policy", ("none", "lru", "clock", "hot")),
    default="none,lru,clock,hot",
    show_default=True,
    help="Which page makes room.",
)
@click.option(
    "--destage",
    "destages",
    type=NamesOption("way to destage", ("sync", "idle", "async")),
    default="sync",
    show_default=True,
    help="Who waits for a page to be written to the disk: the writer, the writer if the idle disk has freed "
    "no place, nobody.",
)
@click.option("--reserve", type=SHARE, default="10%", show_default=True, help="Of the buffer: what 'idle' keeps free.")
@click.option(
    "--buffer",
    type=click.Choice(["shared", "divided"]),
    default="shared",
    show_default=True,
    help="One buffer for all tenants, or an equal share for each.",
)
@click.option("--page-size", "page_bytes", type=SIZE, help="Of the trace.  [default: as the trace says, else 4KiB]")
@output_option("Draw the paper's Figure 6 into this file: .svg, .pdf or .png.")
@json_option
def command(
    source: Path, disk_s: float, nvm_s: float, sizes: tuple[int | None, ...], policies: tuple[str, ...],
    destages: tuple[str, ...], reserve: float, buffer: str, page_bytes: int | None, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Simulate a non-volatile layer in front of a disk, on write-backs that were traced.

    TRACE is a CSV or Parquet file with columns t_s, dev, inode, page and perhaps tenant, one row per page that was
    written back, in the order of time. Of a store DIR, each traced trial is a trace.

    tare trace simulate trace.csv --nvm-size 64MB,256MB --policy lru,hot --destage sync,idle -o figure6.svg

    --json: {"runs": [{"policy", "nvm_bytes" (null: unlimited), "page_writes", "disk_writes", "nvm_writes",
    "latency_s", "latency_disk_only_s", "improvement", "p99_s", "latency_mean_s", "destage", "nvm_pages", "absorbed",
    "direct_writes", "waited_writes", "destaged_writes", "destage_s", "avoided_disk_writes", "left_in_nvm",
    "disk_busy_share", "tenants", "trace"}], "writes_per_s", "reads_per_s", "traces", "assumptions"}; latencies are
    sums over all write-backs, writes_per_s is page writes simulated, over all runs.
    """
    from tare.analysis.nvm.replay import IS_COMPILED, WITHOUT, compile_ahead, simulate
    from tare.report.charts.nvm import flushing_figure
    from tare.report.text.kernel import simulation_text

    need(page_bytes is None or page_bytes > 0, "--page-size: a page has at least one byte.")
    need_drawable(output)
    asked = layers(policies, sizes, destages, reserve, disk_s, nvm_s)
    if not IS_COMPILED:
        say(f"note: {WITHOUT}: `{pip_install('fast')}` brings it.")
    compile_ahead()
    found = []
    with spinner("replaying the trace"), _traces(source) as traces:
        for trace in traces:
            found.append(simulate(trace, asked, page_bytes, divided=buffer == "divided"))
    if output is not None:
        draw(flushing_figure(found), output)
    if as_json:
        print_json(_as_json(found, disk_s, nvm_s, buffer))
    else:
        click.echo(simulation_text(found, width()))


def layers(
    policies: Sequence[str], sizes: Sequence[int | None], destages: Sequence[str], reserve: float, disk_s: float,
    nvm_s: float,
) -> list[Layer]:  # fmt: skip
    """Every policy with every size and way to destage; without a buffer there is one of them."""
    from tare.analysis.nvm.model import DESTAGES, POLICIES, Layer

    ways = [DESTAGES[name] for name in destages]
    ways = [replace(way, reserve=reserve) if way.reserve else way for way in ways]
    made = []
    for way in ways:
        for policy in (POLICIES[name] for name in policies):
            its_sizes = sizes if policy.buffers else (0,)
            made += [Layer(policy, size, way, disk_s, nvm_s) for size in its_sizes]
    return made


@contextmanager
def _traces(source: Path) -> Iterator[Iterator[Trace]]:
    from tare.analysis.nvm.files import trace_file
    from tare.analysis.nvm.stores import NO_TRACE, store_traces
    from tare.base.errors import StudyError
    from tare.records.schema import is_store

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
        yield _chained(first, traces)


def _chained(first: Trace, others: Iterator[Trace]) -> Iterator[Trace]:
    yield first
    yield from others


def _as_json(found: Sequence[Simulation], disk_s: float, nvm_s: float, buffer: str) -> dict[str, Any]:
    from tare.analysis.nvm.replay import writes_per_s

    read_s = sum(each.read_s for each in found)
    return {
        "runs": [run.as_json() for each in found for run in each.runs],
        "writes_per_s": writes_per_s(found),
        "reads_per_s": sum(each.trace.writes for each in found) / read_s if read_s else None,
        "traces": [_trace_json(each) for each in found],
        "assumptions": {
            "disk_s": disk_s,
            "nvm_s": nvm_s,
            "buffer": buffer,
            "queueing": False,
            "reads": "not simulated",
            "paper": "states neither capacity nor policy; its improvements are 0.77 to 0.90",
        },
    }


def _trace_json(simulation: Simulation) -> dict[str, Any]:
    trace = simulation.trace
    return {
        "trace": trace.name,
        "page_writes": trace.writes,
        "distinct_pages": simulation.distinct_pages,
        "page_bytes": simulation.page_bytes,
        "tenants": [name for name in trace.tenants if name],
        "duration_s": trace.duration_s,
        "trial": trace.settings.get("trial"),
    }

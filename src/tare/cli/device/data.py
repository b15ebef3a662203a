"""`tare device data`: make a synthetic data set on disk, or check what lies in a folder."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from tare.base.errors import ObstacleError, StudyError, TareError, unknown_name
from tare.cli.scaffold import Result, Verbs, need, prints, say

REDRAW_S = 0.5
SAY_S = 10.0  # between lines, where there is no terminal
SHOWN_PROBLEMS = 20

Report = Callable[[int, int], None]


@click.group("data", cls=Verbs)
def command() -> None:
    """Make synthetic data sets on disk, or check a folder; `tare list data` lists them.

    A synthetic data set has the format, the number of items and the file sizes of the real one, so that reading and
    decoding cost what they should. Workloads make their own; with this verb it is done beforehand, or elsewhere.
    """


@command.command("make")
@click.argument("name")
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path), required=False)
@click.option("--scale", type=click.FloatRange(0, min_open=True), help="So many times the real one's items, as 0.25.")
@click.option("--items", type=click.IntRange(1), help="So many items.  [default: as many as the real one]")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed makes other data.")
@click.option("--processes", type=click.IntRange(1), help="Processes at work.  [default: one a core]")
@prints
def make(
    name: str, folder: Path | None, scale: float | None, items: int | None, seed: int, processes: int | None
) -> Result:
    """Make the data set NAME in DIR, or continue one that is not complete.

    The same seed gives the same files, whatever the number of processes. After a kill or on a full disk the same
    command continues where it stopped. Without DIR it is made where workloads look for it ($TARE_DATA, else the user's
    cache; they use seed 0).
    """
    from tare.base.text import duration_text, size_text
    from tare.drivers.storage.data_sets import synthetic_folder
    from tare_inside import named

    need(scale is None or items is None, "give either --scale or --items, not both.")
    known = named.names("data")
    need(name in known, unknown_name("data set", name, known))
    data = named.find("data", name)
    count = items or max(1, round(data.ITEMS * (scale or 1.0)))
    into = (folder or synthetic_folder(name, count, seed)).absolute()
    begin_s = time.monotonic()
    with _progress(f"making {data.TITLE}", into) as report:
        _make(data, name, into, count, seed, processes, report)
    took_s = time.monotonic() - begin_s
    size_bytes = sum(path.stat().st_size for path in into.rglob("*") if path.is_file())
    said = {"folder": str(into), "data": name, "items": count, "seed": seed, "bytes": size_bytes, "seconds": took_s}
    size = f"{count:,} items, {size_text(size_bytes)}"
    return Result(lambda: said, lambda: f"{into}: {data.TITLE}, {size}, in {duration_text(took_s)}")


@command.command("check")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@prints
def check(folder: Path) -> Result:
    """Check every file in DIR, and show what the data set is; exit 1 if something is broken or missing."""
    looking = _inside("make")
    try:
        said = looking.look(str(folder))
    except ValueError as problem:
        raise StudyError(str(problem)) from None
    said["whole"] = not said["problems"]
    return Result(lambda: said, lambda: "\n".join(_looked(said)), exit_code=0 if said["whole"] else 1)


def _looked(said: dict[str, Any]) -> Iterator[str]:
    from tare.base.text import size_text

    if "title" in said:
        origin = "synthetic, made by tare" if said["synthetic"] else "not made by tare"
        yield f"{said['folder']}: {said['title']} ({said['format']}), {origin}"
    if "items" in said:
        yield f"  {said['items']:,} items (the real one has {said['real_items']:,})"
    if "bytes" in said:
        yield f"  {size_text(said['bytes'])} in all"
    if "item_bytes" in said:
        yield "  an item: " + ", ".join(f"{name} {size_text(size)}" for name, size in said["item_bytes"].items())
    if "commonest_pixels" in said:
        yield f"  pixels, the commonest: {', '.join(said['commonest_pixels'])}"
    if "classes" in said:
        yield f"  {said['classes']:,} classes"
    problems = said["problems"]
    yield from (f"  broken: {sentence}" for sentence in problems[:SHOWN_PROBLEMS])
    if len(problems) > SHOWN_PROBLEMS:
        yield f"  and {len(problems) - SHOWN_PROBLEMS:,} more; --json has them all"
    if not problems:
        yield "  nothing is broken or missing"


def _make(data: Any, name: str, into: Path, count: int, seed: int, processes: int | None, report: Report) -> None:
    making = _inside("make")
    if sentence := making.missing(data):
        raise ObstacleError(sentence)
    try:
        making.make_named(name, str(into), count, seed, processes, report)
    except ValueError as problem:
        raise StudyError(str(problem)) from None
    except OSError as problem:
        raise TareError(making.failure(problem, str(into))) from None


def _inside(name: str) -> Any:
    """A module of `tare_inside`, which old Pythons must read: it carries no types."""
    return importlib.import_module(f"tare_inside.workloads.formats.{name}")


@contextmanager
def _progress(title: str, into: Path) -> Iterator[Report]:
    """A bar on a terminal, a line now and then elsewhere; on stderr."""
    if not sys.stderr.isatty():
        yield _lines(title, into)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(title), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=1 / REDRAW_S) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str, into: Path) -> Report:
    said_s = time.monotonic()
    say(f"{title} in {into}")

    def report(done: int, total: int) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= SAY_S:
            said_s = time.monotonic()
            say(f"{done:,} of {total:,} items")

    return report

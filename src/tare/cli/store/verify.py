"""`tare store verify`: kept results, derived again from the bytes up to the pages that describe them.

Commands in pages are run in this process, never by a shell, and only those that read.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    chdir,
    contextmanager,
    redirect_stderr,
    redirect_stdout,
    suppress,
)
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from tare.base import rooms
from tare.base.errors import StoreError, StudyError, TareError, damage_named
from tare.cli.scaffold import STORE, Verb, json_option, numpy_on_one_thread, print_json, say, width

if TYPE_CHECKING:
    from tare.figures.rederive import Rederived
    from tare.report.page_blocks import Block, Change

    Printed: TypeAlias = dict[tuple[str, Block], tuple[str, ...]]


Item = TypeVar("Item")
Made = TypeVar("Made")
PAGES_FILE = "pages.txt"
MOST_TOLD = 40  # sentences on a terminal
_READING = frozenset({
    "choose front", "choose predict", "choose recommend", "compare", "list workloads", "show devices",
    "show energy", "show pipeline", "show tenants", "show trials", "show variability",
})  # fmt: skip
# Of any verb that has them: the folder of results is this one, and what can be Markdown is.
_DEFAULTS = {"results": ".", "form": "md"}
WIDTH = 100  # columns, whatever the terminal of whoever runs it
_SURROUNDINGS = {"COLUMNS": str(WIDTH), "LINES": "50", "NO_COLOR": "1", "TERM": "dumb"}


@dataclass
class StoreLooked:
    """One store: how many figures came out again, which were taken as recorded, and what is wrong."""

    store: str
    trials: int = 0
    thinned: int = 0  # trials of which only what the figures need was kept
    derived: int = 0
    said: int = 0
    taken: dict[str, str] = field(default_factory=dict)  # figure -> why
    taken_count: int = 0
    problems: list[str] = field(default_factory=list)

    def add(self, found: Rederived) -> None:
        """What came of one trial."""
        self.derived += found.derived
        self.said += found.said
        self.taken |= found.taken
        self.taken_count += len(found.taken)
        where = f"{self.store}: trial {found.trial}.{found.attempt}"
        self.problems += [f"{where}: {difference}." for difference in found.differences]


@dataclass
class PageLooked:
    """One page: how many blocks it has, and which of them say something else now."""

    page: str
    blocks: int
    changes: list[str] = field(default_factory=list)
    written: bool = False


@click.command("verify", cls=Verb)
@click.argument("results", type=STORE)
@click.option(
    "--page", "pages", multiple=True, type=click.Path(path_type=Path), help="Another page with figures of them."
)
@click.option(
    "--write", is_flag=True, help="Put what the commands print now into the pages, in place of what is there."
)
@json_option
def verify(results: Path, pages: tuple[Path, ...], write: bool, as_json: bool) -> None:
    """Derive everything in RESULTS again: a folder with stores and packs in it, or one of them.

    Every byte of every store is looked at; every figure of every record is made again from the marks, readings and
    trace tables of its trial by the code that made it; every generated block of every page is made again by its
    command. Where a store is not as it was sealed, no page is written. Pages are those of --page and of
    RESULTS/pages.txt, one path a line, relative to RESULTS. The exit code is 1 where anything differs; each is named.

    Of a thinned pack the figures are derived to 2 microseconds; what was left out rests on the hashes in it.

    --json: {"stores": [{"store", "trials", "thinned", "derived", "said", "taken", "taken_count", "problems"}],
    "pages": [{"page", "blocks", "changes", "written"}]}
    """
    from tare.records.pack import stores_in
    from tare.records.unpack import each_pack_once

    numpy_on_one_thread()
    paths, shown = stores_in(results), _pages(results, pages)
    import tare.figures.rederive  # noqa: F401  (every store takes it: before the processes, which are forked)

    with ExitStack() as entered, each_pack_once(shared=True):
        for target in rooms.offers("pages").values():
            entered.enter_context(rooms.load(target)(_by_subject(shown)))
        workers = entered.enter_context(_Workers(len(paths)))
        stores = workers.each(partial(_look_at_store, results=results), paths, _size_bytes)
        # From stores that are not as they were sealed, no page is made anew.
        may_write = write and not any(each.problems for each in stores)
        found, broken = _look_at_pages(shown, results, may_write, workers)
    if as_json:
        print_json({"stores": [vars(each) for each in stores], "pages": [vars(each) for each in found]})
    else:
        from tare.base.columns import wrap

        for line in _told(stores, found):
            click.echo("\n".join(wrap(line, width(), indent="  ")) if sys.stdout.isatty() else line)
    problems = [problem for each in stores for problem in each.problems]
    changes = [change for each in found if not each.written for change in each.changes]
    wrong = problems + changes
    for sentence in wrong[:MOST_TOLD]:
        say(sentence)
    if (more := len(wrong) - MOST_TOLD) > 0:
        say(f"and {more:,} more; --json has all of them.")
    for error in broken[1:]:
        say(str(error))
    if broken:
        raise broken[0]
    if wrong:
        again = shlex.join(["tare", "store", "verify", str(results), *(f"--page={page}" for page in pages), "--write"])
        raise TareError(f"{results}: {_summary(len(problems), len(changes), again)}")


class _Workers(AbstractContextManager["_Workers"]):
    """Processes forked from this one, as many as it has cores, where there is work for several.

    None where DuckDB is loaded, which does not survive a fork: it is not before the first store is looked at.
    """

    def __init__(self, stores: int) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        cores = min(len(os.sched_getaffinity(0)), stores)
        self._pool: ProcessPoolExecutor | None = None
        if cores > 1 and "duckdb" not in sys.modules:
            self._pool = ProcessPoolExecutor(cores, get_context("fork"), signal.signal, (signal.SIGINT, signal.SIG_DFL))
            self._pool.submit(int).result()  # all are forked now

    def each(self, do: Callable[[Item], Made], items: Sequence[Item], weight: Callable[[Item], float]) -> list[Made]:
        """What comes of each item; the heaviest are begun first."""
        from concurrent.futures.process import BrokenProcessPool

        if self._pool is None or len(items) < 2:
            return [do(item) for item in items]
        order = sorted(range(len(items)), key=lambda place: weight(items[place]), reverse=True)
        try:
            made = dict(zip(order, self._pool.map(do, [items[place] for place in order]), strict=True))
        except BrokenProcessPool:
            raise TareError(
                "a process of tare was ended from outside while it verified, perhaps for want of memory. Run it again; "
                "`taskset -c 0 tare store verify ...` takes one process, and half the memory."
            ) from None
        return [made[place] for place in range(len(items))]

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


def _size_bytes(store: Path) -> float:
    return sum(path.stat().st_size for path in ([store] if store.is_file() else store.rglob("*")))


def _summary(problems: int, changes: int, again: str) -> str:
    """Pages that have grown old are no damage: whoever adds a machine of his own has them written anew."""
    things = f"{problems} {'thing is' if problems == 1 else 'things are'} not as recorded"
    one, more = (
        "1 block of the pages differs from what its command prints",
        "blocks of the pages differ from what their",
    )
    differ = f"{one if changes == 1 else f'{changes:,} {more} commands print'} now"
    if not problems:
        return f"every store is as recorded; {differ}. `{again}` rewrites the pages."
    return f"{things}; {differ}. No page is written before that is mended." if changes else f"{things}."


def _look_at_store(path: Path, results: Path) -> StoreLooked:
    from tare.figures.rederive import rederive
    from tare.records.store import Store

    name = str(path if path == results else path.relative_to(results))
    looked = StoreLooked(name)
    try:
        with damage_named(name), Store.open(path) as store:
            looked.problems += [f"{name}: {problem}" for problem in store.verify()]
            for record in store.records():
                looked.trials += 1
                looked.thinned += store.thinned(record.trial, record.attempt) is not None
                try:
                    looked.add(rederive(store, record))
                except StoreError as error:
                    if not any(str(error) in problem for problem in looked.problems):  # by the look at every byte
                        looked.problems.append(f"{name}: {error}")
    except StoreError as error:
        looked.problems.append(str(error))
    return looked


def _pages(results: Path, more: Sequence[Path]) -> list[Path]:
    """The pages of pages.txt, then those of the command line, each once."""
    listed = results / PAGES_FILE
    lines = listed.read_text().splitlines() if listed.is_file() else []
    kept = [_short(results / line.strip()) for line in lines if line.strip() and not line.startswith("#")]
    return list({page.resolve(): page for page in [*kept, *more]}.values())


def _short(page: Path) -> Path:
    """`docs/s3.md` for `results/../docs/s3.md`, where no link on the way makes that another file."""
    short = Path(os.path.normpath(page))
    return short if short.resolve() == page.resolve() else page


def _look_at_pages(
    pages: Sequence[Path], results: Path, write: bool, workers: _Workers
) -> tuple[list[PageLooked], list[TareError]]:
    """Each page; one that cannot be made again is told after everything else that was found."""
    folder = results if results.is_dir() else results.parent
    subjects = list(_by_subject(pages).values())
    printed: Printed = {}
    for some in workers.each(partial(_run_blocks, results=folder), subjects, lambda blocks: -subjects.index(blocks)):
        printed |= some
    found: list[PageLooked] = []
    broken: list[TareError] = []
    for page in pages:
        try:
            found.append(_look_at_page(page, folder, printed, write))
        except TareError as error:
            broken.append(error)
    return found, broken


def _by_subject(pages: Sequence[Path]) -> dict[tuple[str, ...], list[tuple[str, Block]]]:
    """The blocks of all pages, those of one paper or store together: they are made of the same things."""
    found: dict[tuple[str, ...], list[tuple[str, Block]]] = {}
    for page in pages:
        from tare.report.page_blocks import blocks_in

        with suppress(TareError):  # said when the page is looked at
            for block in blocks_in(_page_text(page), str(page)):
                found.setdefault(block.words[:3], []).append((str(page), block))
    return found


def _run_blocks(blocks: Sequence[tuple[str, Block]], results: Path) -> Printed:
    """What their commands print; one that cannot be run is left out, and run again where its error is told."""
    made: Printed = {}
    for page, block in blocks:
        with suppress(TareError):
            made[page, block] = run_block(block, page, results)
    return made


def _page_text(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{page}: the page cannot be read: {error}.") from None


def _look_at_page(page: Path, folder: Path, printed: Printed, write: bool) -> PageLooked:
    from tare.cli.report import written
    from tare.report.page_blocks import renewed

    name, text = str(page), _page_text(page)
    new, changes, count = renewed(
        text, name, lambda block: printed.get((name, block)) or run_block(block, name, folder)
    )
    looked = PageLooked(name, count, [_told_change(change) for change in changes])
    if write and new != text:
        written(page, new.encode())
        looked.written = True
    return looked


def _told_change(change: Change) -> str:
    """A line that is not there and one that is empty are told alike: who reads it sees nothing in both."""
    if not (change.stands or change.now):
        what = "more" if change.stands is None else "less"
        lines = f"{change.lines} {'line differs' if change.lines == 1 else 'lines differ'}"
        return f"{change.page}:{change.line}: `{change.command}` prints {what} than the page says ({lines})."
    return str(replace(change, stands=change.stands or None, now=change.now or None))


def _told(stores: Sequence[StoreLooked], pages: Sequence[PageLooked]) -> Iterator[str]:
    from tare.base.text import count_text

    for each in stores:
        state = "every byte as packed (thinned)" if each.thinned else "every byte as sealed"
        if each.problems:
            state = count_text(len(each.problems), "problem")
        yield (
            f"{each.store}: {count_text(each.trials, 'trial')}, {state}; {each.derived:,} figures derived again, "
            f"{each.said:,} as the launcher and the program reported, {each.taken_count:,} taken as recorded."
        )
    if thinned := sum(each.thinned for each in stores):
        yield (
            f"{count_text(thinned, 'trial')} thinned: figures derived to 2 µs from rounded times; other readings, "
            "exact times, single page faults and further columns of kernel traces rest on the SHA-256 of each sealed "
            "file, kept in the pack."
        )
    reasons: dict[str, Any] = {}
    for each in stores:
        for figure, why in each.taken.items():
            reasons.setdefault(why, {})[figure] = None
    yield from (f"taken as recorded, since {why}: {', '.join(figures)}." for why, figures in reasons.items())
    for page in pages:
        state = "written" if page.written else f"{len(page.changes)} differ" if page.changes else "all as they stand"
        yield f"{page.page}: {count_text(page.blocks, 'block')}, {state}."


# The commands in pages


def run_block(block: Block, page: str, results: Path) -> tuple[str, ...]:
    """What the block's command prints now, as the lines of the block; paths in it are relative to the results."""
    from tare.report.page_blocks import as_block

    where = f"{page}:{block.line}"
    verb, rest = _reading_verb(block.words, where)
    out, messages = _stream(), _stream()
    try:
        # In the folder of the results, at one width, without colours.
        with chdir(results), _environment(_SURROUNDINGS), redirect_stdout(out), redirect_stderr(messages):
            given = _given(verb, rest, where)
            code = _run(block.words)
    except click.ClickException as error:
        raise StudyError(f"{where}: `{block.command}`: {error.format_message()}") from None
    except TareError as error:
        # Its class says the exit code; not every class is made of a sentence alone.
        error.args = (f"{where}: `{block.command}`: {error}",)
        raise
    if code:
        raise TareError(f"{where}: `{block.command}` ended with code {code}. {_text(messages).strip()}".strip())
    is_markdown = given.get("form") == "md" and not given.get("as_json")
    return as_block(_text(out), is_markdown=is_markdown, where=where)


def _run(words: Sequence[str]) -> object:
    """The verb, as `tare` runs it; its exit code, if it has one."""
    from tare.cli import tare

    defaults = {words[0]: {**_DEFAULTS, **({words[1]: _DEFAULTS} if len(words) > 1 else {})}}
    try:
        return tare.main(list(words), "tare", standalone_mode=False, default_map=defaults)
    except SystemExit as end:
        return end.code


def _reading_verb(words: Sequence[str], where: str) -> tuple[click.Command, list[str]]:
    """The verb that these words name, and the words after it; refused if it does more than read."""
    from tare.cli import tare

    found: click.Command | None = tare
    path: list[str] = []
    rest = list(words)
    while isinstance(found, click.Group) and rest:
        first = rest[0]
        try:
            word, found, rest = found.resolve_command(click.Context(found), rest)
        except click.UsageError:
            word, found = first, None
        path.append(word or first)
    name = " ".join(path if found is None else [*path[:-1], str(found.name)])
    if found is None or name not in reading_verbs():
        raise StudyError(
            f"{where}: a page may not run `tare {name}`; it may run: {', '.join(sorted(reading_verbs()))}."
        )
    return found, rest


def reading_verbs() -> frozenset[str]:
    """The verbs that a page may run, those of rooms among them."""
    return _READING.union(*(room.READING for room in rooms.rooms()))


def _given(verb: click.Command, rest: list[str], where: str) -> dict[str, Any]:
    """What the command line asks for; a verb that reads may still be asked to write what it found into a file."""
    from tare.cli import tare

    root = click.Context(tare, info_name="tare")
    options = {"resilient_parsing": True, "default_map": _DEFAULTS}
    given = verb.make_context(verb.name, rest, parent=root, **options).params
    if given.get("output") is not None:
        raise StudyError(f"{where}: a page's command prints, and writes no file: leave -o out.")
    return given


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: Any) -> str:
    data: bytes = stream.buffer.getvalue()
    return data.decode("utf-8")

"""`tare verify`: results that were kept, looked at from the bytes up to the pages that tell of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from tare.cli.options import json_option, print_json, say
from tare.errors import NoSuchInput, StoreError, StudyError, TareError

PAGES_FILE = "pages.txt"
MOST_TOLD = 40  # sentences on a terminal


@dataclass
class StoreLooked:
    """One store: how many figures came out again, which were taken as recorded, and what is wrong."""

    store: str
    trials: int = 0
    derived: int = 0
    said: int = 0
    taken: dict[str, str] = field(default_factory=dict)  # figure -> why
    taken_count: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass
class PageLooked:
    """One page: how many blocks it has, and which of them say something else now."""

    page: str
    blocks: int
    changes: list[str] = field(default_factory=list)
    written: bool = False


@click.command("verify")
@click.argument("results", type=click.Path(path_type=Path))
@click.option("--page", "pages", multiple=True, type=click.Path(path_type=Path), help="A page that tells of them, too.")
@click.option(
    "--write", is_flag=True, help="Put what the commands print now into the pages, in place of what is there."
)
@json_option
def command(results: Path, pages: tuple[Path, ...], write: bool, as_json: bool) -> None:
    """Derive everything in RESULTS again: a folder with stores and packs in it, or one of them.

    Every byte of every store is looked at; every figure of every record is made again from the marks, readings and
    trace tables of its trial by the code that made it; every generated block of every page is made again by its
    command. Pages are those of --page and of RESULTS/pages.txt, one path a line, relative to RESULTS. The exit code
    is 1 where anything differs, and each is named.

    --json: {"stores": [{"store", "trials", "derived", "said", "taken", "taken_count", "problems"}],
    "pages": [{"page", "blocks", "changes", "written"}]}
    """
    from tare.records.unpacking import each_pack_once

    with each_pack_once():
        stores = [_look_at_store(path, results) for path in stores_in(results)]
        found = [_look_at_page(page, results, write) for page in _pages(results, pages)]
    if as_json:
        print_json({"stores": [vars(each) for each in stores], "pages": [vars(each) for each in found]})
    else:
        for line in _told(stores, found):
            click.echo(line)
    wrong = [problem for each in stores for problem in each.problems]
    wrong += [change for each in found if not each.written for change in each.changes]
    if wrong:
        for sentence in wrong[:MOST_TOLD]:
            say(sentence)
        if (more := len(wrong) - MOST_TOLD) > 0:
            say(f"and {more:,} more; --json has all of them.")
        raise TareError(f"{results}: {len(wrong)} {'thing is' if len(wrong) == 1 else 'things are'} not as recorded.")


def stores_in(results: Path) -> list[Path]:
    """Every store and pack in a folder, sorted; a store or a pack itself is the only one."""
    from tare.records.packing import SUFFIX
    from tare.records.schema import STORE_FILE
    from tare.records.unpacking import is_pack

    if is_pack(results) or (results / STORE_FILE).is_file():
        return [results]
    if not results.is_dir():
        raise NoSuchInput(f"{results}: there is no such folder of results.")
    folders = {path.parent for path in results.rglob(STORE_FILE)}
    packs = {path for path in results.rglob(f"*{SUFFIX}") if path.is_file()}
    if not folders | packs:
        raise StoreError(f"{results}: there is no store in this folder, and no pack (*{SUFFIX}).")
    return sorted(folders | packs)


def _look_at_store(path: Path, results: Path) -> StoreLooked:
    from tare.records.store import Store
    from tare.trial.rederive import rederive

    name = str(path if path == results else path.relative_to(results))
    looked = StoreLooked(name)
    try:
        with Store.open(path) as store:
            looked.problems += [f"{name}: {problem}" for problem in store.verify()]
            for record in store.records():
                found = rederive(store, record)
                looked.trials += 1
                looked.derived += found.derived
                looked.said += found.said
                looked.taken |= found.taken
                looked.taken_count += len(found.taken)
                looked.problems += [
                    f"{name}: trial {found.trial}.{found.attempt}: {each}." for each in found.differences
                ]
    except StoreError as error:
        looked.problems.append(str(error))
    return looked


def _pages(results: Path, more: Sequence[Path]) -> list[Path]:
    """The pages of pages.txt, then those of the command line, each once."""
    listed = results / PAGES_FILE
    lines = listed.read_text().splitlines() if listed.is_file() else []
    kept = [results / line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return list({page.resolve(): page for page in [*kept, *more]}.values())


def _look_at_page(page: Path, results: Path, write: bool) -> PageLooked:
    from tare.cli.page_commands import run_block
    from tare.cli.report import written
    from tare.report.pages import renewed

    name = str(page)
    try:
        text = page.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{page}: the page cannot be read: {error}.") from None
    folder = results if results.is_dir() else results.parent
    new, changes, count = renewed(text, name, lambda block: run_block(block, name, folder))
    looked = PageLooked(name, count, [str(change) for change in changes])
    if write and new != text:
        written(page, new.encode())
        looked.written = True
    return looked


def _told(stores: Sequence[StoreLooked], pages: Sequence[PageLooked]) -> Iterator[str]:
    from tare.report.words import count_text

    for each in stores:
        state = "every byte as sealed" if not each.problems else f"{count_text(len(each.problems), 'problem')}"
        yield (
            f"{each.store}: {count_text(each.trials, 'trial')}, {state}; {each.derived:,} figures derived again, "
            f"{each.said:,} as the launcher and the program said, {each.taken_count:,} taken as recorded."
        )
    reasons: dict[str, Any] = {}
    for each in stores:
        for figure, why in each.taken.items():
            reasons.setdefault(why, {})[figure] = None
    yield from (f"taken as recorded, since {why}: {', '.join(figures)}." for why, figures in reasons.items())
    for page in pages:
        state = "written" if page.written else f"{len(page.changes)} differ" if page.changes else "all as they stand"
        yield f"{page.page}: {count_text(page.blocks, 'block')}, {state}."

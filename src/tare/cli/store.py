"""`tare store`: stores themselves, as folders and as files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tare.cli.options import STORE, json_option, print_json, say
from tare.errors import StoreError


@click.group("store")
def command() -> None:
    """Put stores together, pack one into a file, or look whether one is whole."""


@command.command("merge")
@click.argument("into", type=STORE)
@click.argument("others", nargs=-1, required=True, type=STORE)
@json_option
def merge(into: Path, others: tuple[Path, ...], as_json: bool) -> None:
    """Copy the sealed trials of OTHERS into the store INTO; done twice, it is as done once.

    Every byte is checked first. A trial that INTO has already is left alone; where the two differ, the other one is
    refused, and named.
    """
    from tare.records.merging import merge as merge_stores
    from tare.records.store import Store
    from tare.report.words import count_text

    with Store.open(into, write=True) as store:
        found = merge_stores(store, others)
    if as_json:
        print_json({"store": str(into), **asdict(found)})
    else:
        click.echo(f"{into}: {count_text(len(found.copied), 'trial')} copied, {len(found.there)} there already.")
    for sentence in found.notes:
        say(sentence)
    if found.refused:
        raise StoreError("\n".join(found.refused))


@command.command("pack")
@click.argument("store", type=STORE)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The file; else STORE.tare.")
@json_option
def pack(store: Path, output: Path | None, as_json: bool) -> None:
    """Put a whole STORE into one file, to keep or to send; every verb that reads a store reads it.

    Every byte is checked first. The same store makes the same file, byte for byte: its sealed trials, its study and
    its plan are in it, and no time, user or machine of the packing. A pack is never written again. Folders above the
    file that are missing are made.
    """
    from tare.records.packing import SUFFIX
    from tare.records.packing import pack as pack_store
    from tare.records.store import Store
    from tare.report.words import count_text

    place = store.resolve()
    with Store.open(store) as opened:
        made = pack_store(opened, output or place.with_name(f"{place.name.removesuffix(SUFFIX)}{SUFFIX}"))
    if as_json:
        print_json({"store": str(store), **asdict(made), "file": str(made.file)})
    else:
        click.echo(f"{made.file}: {count_text(made.trials, 'trial')}, {made.size_bytes:,} bytes.")
    for sentence in made.notes:
        say(sentence)


@command.command("verify")
@click.argument("store", type=STORE)
@json_option
def verify(store: Path, as_json: bool) -> None:
    """Look at every byte of STORE, and say what is not as it was sealed."""
    from tare.records.store import Store

    with Store.open(store) as opened:
        problems = opened.verify()
    if as_json:
        print_json({"store": str(store), "problems": problems})
    if problems:
        raise StoreError("\n".join(problems))
    if not as_json:
        click.echo(f"{store}: every sealed trial is whole.")

"""`tare store`: stores themselves, as folders and as files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tare.base.errors import StoreError
from tare.cli.options import STORE, json_option, output_option
from tare.cli.scaffold import Verbs, print_json, say
from tare.cli.store import verify


@click.group("store", cls=Verbs)
def command() -> None:
    """Merge stores, pack one into a file, check every byte, derive every figure again."""


@command.command("merge")
@click.argument("into", type=STORE)
@click.argument("others", nargs=-1, required=True, type=STORE)
@json_option
def merge(into: Path, others: tuple[Path, ...], as_json: bool) -> None:
    """Copy the sealed trials of OTHERS into the store INTO; done twice, it is as done once.

    Every byte is checked first. A trial that INTO has already is left alone; where the two differ, the other one is
    refused, and named.
    """
    from tare.base.text import count_text
    from tare.records.merging import merge as merge_stores
    from tare.records.store import Store

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
@output_option("The file; else STORE.tare.")
@click.option("--thin", is_flag=True, help="Keep only what the figures are made of, and hashes of the rest.")
@json_option
def pack(store: Path, output: Path | None, thin: bool, as_json: bool) -> None:
    """Put a whole STORE into one file, to keep or to send; every verb that reads a store reads it.

    Every byte is checked first. The same store makes the same file, byte for byte: its sealed trials, its study and
    its plan are in it, and no time, user or machine of the packing. A pack is never written again. Folders above the
    file that are missing are made.

    --thin makes it about six times smaller: times to a microsecond, every fifth reading of channels that no figure
    is made of, page faults without their addresses, and the SHA-256 of every sealed file. Each figure is derived again
    from what is left; where one cannot be, no pack is made.
    """
    from tare.base.text import count_text
    from tare.records.pack import SUFFIX
    from tare.records.pack import pack as pack_store
    from tare.records.store import Store

    place = store.resolve()
    with Store.open(store) as opened:
        target = output or place.with_name(f"{place.name.removesuffix(SUFFIX)}{SUFFIX}")
        if thin:
            from tare.cli.store.thin import thin_pack

            made = thin_pack(opened, target)
        else:
            made = pack_store(opened, target)
    if as_json:
        print_json({"store": str(store), **asdict(made), "file": str(made.file)})
    else:
        click.echo(f"{made.file}: {count_text(made.trials, 'trial')}, {made.size_bytes:,} bytes.")
    for sentence in made.notes:
        say(sentence)


@command.command("check")
@click.argument("store", type=STORE)
@json_option
def check(store: Path, as_json: bool) -> None:
    """Compare every byte of STORE with what was sealed, and list what differs; exit 4 if something does."""
    from tare.records.store import Store

    with Store.open(store) as opened:
        problems = opened.verify()
    if as_json:
        print_json({"store": str(store), "problems": problems})
    if problems:
        raise StoreError("\n".join(problems))
    if not as_json:
        click.echo(f"{store}: every sealed trial is whole.")


command.add_command(verify.command, "verify")

"""`tare store`: stores themselves, as folders."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from tare.cli.options import json_option, print_json, say
from tare.errors import StoreError


@click.group("store")
def command() -> None:
    """Put stores together, or look whether one is whole."""


@command.command("merge")
@click.argument("into", type=click.Path(path_type=Path))
@click.argument("others", nargs=-1, required=True, type=click.Path(path_type=Path))
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


@command.command("verify")
@click.argument("store", type=click.Path(path_type=Path))
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

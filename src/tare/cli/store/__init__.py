"""`tare store`: stores themselves, as folders and as files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tare.base import rooms
from tare.base.errors import StoreError
from tare.base.text import safe_text
from tare.cli.scaffold import STORE, Verbs, json_option, output_option, print_json, say
from tare.cli.store.verify import verify

if TYPE_CHECKING:
    from tare.records.model import Record
    from tare.records.pack import Packed
    from tare.records.store import Store
    from tare.records.thin_pack import Thinning


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
        click.echo(
            f"{safe_text(into)}: {count_text(len(found.copied), 'trial')} copied, {len(found.there)} there already."
        )
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
    is made of, page faults without their addresses, page writes in order with times to 10 ms, and the SHA-256 of every
    sealed file. Each figure is derived again from what is left; where one cannot be, no pack is made.
    """
    from tare.base.text import count_text
    from tare.records.pack import pack as pack_store
    from tare.records.schema import PACK_SUFFIX
    from tare.records.store import Store

    place = store.resolve()
    with Store.open(store) as opened:
        target = output or place.with_name(f"{place.name.removesuffix(PACK_SUFFIX)}{PACK_SUFFIX}")
        made = thin_pack(opened, target) if thin else pack_store(opened, target)
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
        click.echo(f"{safe_text(store)}: every sealed trial is whole.")


command.add_command(verify, "verify")


# `--thin`: what the figures need is known to those who make them; here they are asked together.


def thin_pack(store: Store, output: Path) -> Packed:
    """The store as a thinned pack, every figure of which comes out again; else no pack.

    A trial with a figure that does not is packed with its times to the nanosecond.
    """
    from tare.records.pack import pack

    thinning = _thinning()
    made = pack(store, output, thinning)
    if wrong := _not_derived(store, output):
        made = pack(store, output, replace(thinning, exact=frozenset(wrong)))
        wrong = _not_derived(store, output)
    if wrong:
        output.unlink()
        raise StoreError(
            f"{output}: no thinned pack is made: figures of {len(wrong)} trials do not follow from it, among them "
            f"{next(iter(wrong.items()))}. Pack it without --thin."
        )
    return made


def _thinning() -> Thinning:
    """What `records.thin_pack` keeps."""
    from tare.analysis.derived import CHANNELS, CLOCKS
    from tare.figures.rederive import needs_all_readings
    from tare.records.thin_pack import Thinning

    kept = [rooms.load(target)() for target in rooms.offers("thinning").values()]
    return Thinning(
        in_full=lambda channel: (
            channel["name"] in CHANNELS or channel["name"].startswith(CLOCKS) or needs_all_readings(channel)
        ),
        counted={table: columns for each in kept for table, columns in each.counted.items()},
        in_order={table: order for each in kept for table, order in each.in_order.items()},
    )


def _not_derived(store: Store, output: Path) -> dict[str, str]:
    """TRIAL.ATTEMPT -> the first figure that the thinned pack gives otherwise than the whole store."""
    from tare.analysis.derived import with_figures
    from tare.figures.rederive import rederive
    from tare.records.sealed import folder_name
    from tare.records.store import Store

    def all_figures(store: Store, record: Record) -> Mapping[str, float]:
        return with_figures(store, record).metrics

    wrong: dict[str, str] = {}
    whole = {(record.trial, record.attempt): record for record in store.records()}
    with Store.open(output) as thinned:
        for record in thinned.records():
            found = []
            if differences := rederive(thinned, record).differences:
                # An older tare may have claimed less: what the whole store does not give either is not lost here.
                known = {each.figure for each in rederive(store, whole[record.trial, record.attempt]).differences}
                found = [str(each) for each in differences if each.figure not in known]
            before = all_figures(store, whole[record.trial, record.attempt])
            after = all_figures(thinned, record)
            found += [
                f"{name}: {before.get(name)!r} and {after.get(name)!r}"
                for name in {*before, *after}
                if name not in before or name not in after or not _alike(name, before[name], after[name])
            ]
            if found:
                wrong[folder_name(record.trial, record.attempt)] = found[0]
    return wrong


def _alike(name: str, before: float, after: float) -> bool:
    """Rates are divided by times of a tenth of a second, rounded to a microsecond; an epoch is a sum of such."""
    return math.isclose(before, after, rel_tol=2e-4 if name.startswith("epoch_") else 2e-5, abs_tol=2e-6)

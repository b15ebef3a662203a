"""`tare clean`: remove what dead runs left on the device: containers, machines, groups, mounts, folders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tare.cli.engines import left_overs, stop_left_overs
from tare.cli.options import json_option, print_json, say, width
from tare.errors import TareError

if TYPE_CHECKING:
    from tare.trial.cleaning import Failure, Remains


@click.command("clean")
@click.option("--plan", "plan_only", is_flag=True, help="Only list what is there and what would be removed.")
@click.argument("sites", metavar="[SITE]...", nargs=-1)
@json_option
def command(plan_only: bool, sites: tuple[str, ...], as_json: bool) -> None:
    """Remove what dead runs left behind; what a living run uses is listed, and left alone.

    With SITE, only what has that name. Only what carries our mark is touched, also where no journal knows of it. Knobs
    that a dead run left turned are put back by `tare restore`.
    """
    from tare.host import LocalHost
    from tare.trial.cleaning import find_remains, remove
    from tare.trial.device import device_id, state_dir
    from tare.trial.journal import Journal
    from tare.trial.restoration import status

    host, state = LocalHost(), state_dir()
    remains = [each for each in find_remains(host, state / "scratch") if not sites or each.site in sites]
    still_on = [] if sites else left_overs()
    failures = [] if plan_only else remove(host, remains, state / "scratch")
    stopped = [] if plan_only or sites else stop_left_overs()
    turned = [row for row in status(host, Journal(state / "devices" / device_id(host))) if row.wanted is not None]
    if as_json:
        print_json(
            {
                "removed": [] if plan_only else [each.as_json() for each in _gone(remains, failures)],
                "planned": [each.as_json() for each in remains if each.owner is None] if plan_only else [],
                "alive": [each.as_json() for each in remains if each.owner is not None],
                "would_stop": still_on if plan_only else [],
                "stopped": stopped,
                "failed": [{"site": each.site, "why": each.why} for each in failures],
                "knobs_turned": len(turned),
            }
        )
    else:
        _tell(remains, failures, plan_only)
        for thing in still_on if plan_only else ():
            _line(f"would be stopped: {thing}")
        for sentence in stopped:
            say(sentence)
        if not (remains or still_on or stopped):
            say("nothing of ours is left on this device.")
        if turned:
            say(f"{len(turned)} knobs are as an interrupted run left them; `tare restore` puts them back.")
    if failures:
        raise TareError("not everything could be removed; see above.")


def _gone(remains: Sequence[Remains], failures: Sequence[Failure]) -> list[Remains]:
    failed = {each.site for each in failures}
    return [each for each in remains if each.owner is None and each.site not in failed]


def _tell(remains: Sequence[Remains], failures: Sequence[Failure], plan_only: bool) -> None:
    gone = _gone(remains, failures)
    verb = "would be removed" if plan_only else "removed"
    for each in remains:
        if each.owner is not None:
            _line(f"in use by pid {each.owner.pid}, left alone: {each.site} ({', '.join(each.things)})")
    for each in gone:
        _line(f"{verb}: {each.site} ({', '.join(each.things)})")
    for failure in failures:
        say(f"NOT removed: {failure.site}: {failure.why}")


def _line(text: str) -> None:
    click.echo(click.wrap_text(text, width(), "", "  "))

"""`tare restore`: put back what an interrupted run left changed; needs no study and no store."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tare.cli.engines import stop_left_overs
from tare.cli.options import json_option, print_json, say, width
from tare.errors import NotPermittedError, NotRestoredError

if TYPE_CHECKING:
    from tare.trial.restoration import Restoration, StatusRow


@click.command("restore")
@click.option("--plan", "plan_only", is_flag=True, help="Only say what would be put back.")
@click.option("--force", is_flag=True, help="Also put back what someone else has changed since.")
@json_option
def command(plan_only: bool, force: bool, as_json: bool) -> None:
    """Put back every knob, and remove every container, that an interrupted run left behind.

    What root's runs left only root can put back: for another user, with nothing left of his own, the exit code is 77.
    """
    from tare.host import LocalHost
    from tare.trial.device import DeviceLock, device_id, out_of_sight, state_dir
    from tare.trial.journal import Journal
    from tare.trial.restoration import restore, status

    host = LocalHost()
    state, device = state_dir(), device_id(host)
    journal, scratch = Journal(state / "devices" / device), state / "scratch"
    if plan_only:
        report = restore(host, journal, scratch=scratch, plan_only=True)
        rows = status(host, journal)
    else:
        with DeviceLock(state, device, "restore"):
            report = restore(host, journal, scratch=scratch, force=force)
            stopped = stop_left_overs()
        rows = []
        for sentence in stopped:
            say(sentence)
    unseen = out_of_sight()
    if as_json:
        told = {**report.as_json(), "knobs": [asdict(row) for row in rows]}
        print_json({**told, "out_of_sight": unseen} if unseen else told)
    else:
        _tell(report, rows)
    if unseen and not report.sentences():
        raise NotPermittedError(f"nothing of this user's is changed; {unseen}")
    if not report.sentences():
        say("nothing to put back: the device is as it was found.")
    if not plan_only and not report.clean:
        raise NotRestoredError("not everything could be put back; see above.", force=bool(report.foreign))


def _tell(report: Restoration, rows: list[StatusRow]) -> None:
    """What there is to put back as a table, then what was done about it; the bad news last."""
    from tare.report.terminal import table
    from tare.report.words import duration_text

    if rows:
        body = [
            [r.knob, _shown(r.baseline), _shown(r.now), f"pid {r.owner.partition(':')[0]}", duration_text(r.age_s)]
            for r in rows
        ]
        click.echo(table(body, ["knob or place", "as found", "now", "owner", "age"], width()))
    for sentence in report.sentences():
        say(sentence)


def _shown(value: object) -> str:
    return "" if value is None else str(value)

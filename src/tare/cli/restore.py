"""`tare restore`: put back what an interrupted run left changed; needs no study and no store."""

from __future__ import annotations

from collections.abc import Sequence
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

    While a run owns the device nothing is put back, and the exit code is 75; --plan says whose run it is, and what
    would be done if it died. What root's runs left only root can put back: for another user, with nothing left of his
    own, the exit code is 77.
    """
    from tare.host import LocalHost
    from tare.trial.device import DeviceLock, device_id, in_use, out_of_sight, state_dir
    from tare.trial.journal import Journal
    from tare.trial.restoration import restore, status

    host = LocalHost()
    state, device = state_dir(), device_id(host)
    journal, scratch = Journal(state / "devices" / device), state / "scratch"
    owner = in_use(state, device) if plan_only else None
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
        told = {**report.as_json(), "knobs": [asdict(row) for row in rows], **({"in_use": owner} if owner else {})}
        print_json({**told, "out_of_sight": unseen} if unseen else told)
    else:
        _tell(report, rows)
    if unseen and not report.sentences():
        raise NotPermittedError(f"nothing of this user's is changed; {unseen}")
    if owner and not rows:
        say(f"nothing is changed at this moment, but {owner} Until it ends a restore is refused.")
    elif not report.sentences():
        say("nothing to put back: the device is as it was found.")
    if not plan_only and not report.clean:
        raise NotRestoredError("not everything could be put back; see above.", force=bool(report.foreign))


def _tell(report: Restoration, rows: Sequence[StatusRow]) -> None:
    """What there is to put back as a table, then what was done about it; the bad news last."""
    tell_rows(rows)
    for sentence in report.sentences():
        say(sentence)


def tell_rows(rows: Sequence[StatusRow]) -> None:
    """How each knob stands, as a table."""
    from tare.report.terminal import table
    from tare.report.words import duration_text

    body = []
    for row in rows:
        owner = [f"pid {row.owner.partition(':')[0]}", duration_text(row.age_s)]
        body += [[knob, found, now, *owner] for knob, found, now in _pieces(row)]
    if body:
        click.echo(table(body, ["knob or place", "as found", "now", "owner", "age"], width()))


def _pieces(row: StatusRow) -> list[tuple[str, str, str]]:
    """One line a setting, where a knob is made of several and some differ; one line otherwise."""
    now = row.now if row.now is not None else row.trouble
    if not isinstance(row.baseline, dict) or not isinstance(row.now, dict):
        return [(row.knob, "" if row.baseline is None else str(row.baseline), "" if now is None else str(now))]
    moved = {key: value for key, value in row.baseline.items() if row.now.get(key) != value}
    if not moved:
        return [(row.knob, "as found", "the same")]
    return [(f"{row.knob} {key}", str(value), str(row.now.get(key, "missing"))) for key, value in moved.items()]

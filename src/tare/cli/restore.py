"""`tare restore`: put back what an interrupted run left changed; needs no study and no store."""

from __future__ import annotations

import click

from tare.cli.engines import stop_left_over_engine
from tare.cli.options import json_option, print_json, say
from tare.errors import NotRestoredError


@click.command("restore")
@click.option("--plan", "plan_only", is_flag=True, help="Only say what would be put back.")
@click.option("--force", is_flag=True, help="Also put back what someone else has changed since.")
@json_option
def command(plan_only: bool, force: bool, as_json: bool) -> None:
    """Put back every knob, and remove every container, that an interrupted run left behind."""
    from tare.host import LocalHost
    from tare.trial.device import DeviceLock, device_id, state_dir
    from tare.trial.journal import Journal
    from tare.trial.restoration import restore

    host = LocalHost()
    state, device = state_dir(), device_id(host)
    with DeviceLock(state, device, "restore"):
        journal = Journal(state / "devices" / device)
        report = restore(host, journal, scratch=state / "scratch", plan_only=plan_only, force=force)
        if not plan_only and (stopped := stop_left_over_engine()):
            say(stopped)
    if as_json:
        print_json(report.as_json())
    else:
        for sentence in report.sentences():
            say(sentence)
        if not report.sentences():
            say("nothing to put back: the device is as it was found.")
    if not plan_only and not report.clean:
        raise NotRestoredError("not everything could be put back; see above.")

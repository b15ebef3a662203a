"""`tare device`: the state of this device, what it can be set to, its idle power, and what is prepared on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tare.api.needs import left_overs, stop_left_overs
from tare.base.errors import NotPermittedError, NotRestoredError, TareError
from tare.cli.device import baseload, data, fleet, image
from tare.cli.options import json_option
from tare.cli.scaffold import Verbs, print_json, say, width

if TYPE_CHECKING:
    from tare.trial.undo.restoration import Failure, Remains, Restoration, StatusRow

_TUPLE = ("cores", "cpu_mhz", "gpu_mhz", "mem_mhz")


@click.group("device", cls=Verbs)
def command() -> None:
    """This device: its state, power modes, idle power; restore, clean up; images, data, and a fleet of devices."""


@command.command("status")
@json_option
def status(as_json: bool) -> None:
    """Print each setting that a run has changed: as found, now, by which run, and when. Changes nothing."""
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import device_id, out_of_sight
    from tare.trial.undo import restoration
    from tare.trial.undo.journal import Journal

    host = LocalHost()
    device = device_id(host)
    journal = Journal(state_dir() / "devices" / device)
    rows = restoration.status(host, journal)
    unseen = out_of_sight()
    changed = [row for row in rows if row.trouble or row.baseline is None or row.now != row.baseline]
    if as_json:
        knobs = [{**asdict(row), "changed": row in changed} for row in rows]
        told = {"device": device, "changed": len(changed), "knobs": knobs, "problems": journal.problems}
        print_json({**told, "out_of_sight": unseen} if unseen else told)
        return
    _tell_rows(rows)
    for problem in [*journal.problems, *(restoration.guardians_log(journal) if rows else [])]:
        say(problem)
    if unseen:
        say(unseen)
    elif not rows:
        say("no run has left anything changed: the device is as it was found.")


@command.command("modes")
@json_option
def modes(as_json: bool) -> None:
    """List everything that `power_mode` can set here, with all supported values.

    --json: {"modes": [NAME, ...], "values": {FIELD: [VALUE, ...] or {"from", "to"}}, "combinations"}. Modes are those
    that the board itself names (MAXN, no limits, is known everywhere); fields are those of `power_mode`, in its units,
    and one that the device lacks is absent; combinations is how many tuples of cores and clocks there are, or null
    where a clock can be anything from one value to another.
    """
    from tare.base.host import LocalHost

    found = supported(LocalHost())
    if as_json:
        print_json(found)
        return
    names, values = found["modes"], found["values"]
    if not names and not values:
        say("nothing can be set on this device: no cores with switches, no CPU clocks, no GPU that can be locked.")
        return
    click.echo(f"mode: {', '.join(names) if names else 'MAXN (no limits)'}")
    for field, value in values.items():
        click.echo(f"{field}: {_shown(value)}")
    if found["combinations"] is not None:
        counts = " x ".join(str(len(values[field])) for field in _TUPLE if field in values)
        click.echo(f"{counts} = {found['combinations']:,} combinations")


def supported(host: Any) -> dict[str, Any]:
    """The modes with names, the values of each field, and how many combinations of cores and clocks those make."""
    from tare.drivers.power.everything import offered

    values: dict[str, Any] = {}
    for field, backends in offered(host).items():
        had = backends[0].values(host).get(field)
        if had:
            values[field] = {"from": had[0], "to": had[1]} if isinstance(had, tuple) else list(had)
    names = values.pop("mode", [])
    order = [*_TUPLE, *sorted(values.keys() - set(_TUPLE))]
    return {"modes": names, "values": {key: values[key] for key in order if key in values}, **_counted(values)}


def _counted(values: Mapping[str, Any]) -> dict[str, Any]:
    lists = [values[field] for field in _TUPLE if field in values]
    countable = bool(lists) and all(isinstance(one, list) for one in lists)
    return {"combinations": math.prod(len(one) for one in lists) if countable else None}


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['from']:g} to {value['to']:g}"
    return " ".join(f"{one:g}" if isinstance(one, float) else str(one) for one in value)


command.add_command(baseload.command, "baseload")


@command.command("restore")
@click.option("--plan", "plan_only", is_flag=True, help="Only list what would be restored.")
@click.option("--force", is_flag=True, help="Also restore what someone else has changed since.")
@json_option
def restore(plan_only: bool, force: bool, as_json: bool) -> None:
    """Restore every setting, and remove every container, that an interrupted run left behind.

    While a run owns the device nothing is restored, and the exit code is 75; --plan shows whose run it is, and what
    would be done if it died. What root's runs left only root can restore: for another user, with nothing left of
    their own, the exit code is 77.
    """
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import DeviceLock, device_id, in_use, out_of_sight
    from tare.trial.undo import restoration
    from tare.trial.undo.journal import Journal

    host = LocalHost()
    state, device = state_dir(), device_id(host)
    journal, scratch = Journal(state / "devices" / device), state / "scratch"
    owner = in_use(state, device) if plan_only else None
    if plan_only:
        report = restoration.restore(host, journal, scratch=scratch, plan_only=True)
        rows = restoration.status(host, journal)
    else:
        with DeviceLock(state, device, "restore") as lock:
            report = restoration.restore(host, journal, scratch=scratch, force=force)
            stopped = stop_left_overs()
        rows = []
        for sentence in [lock.overruled] * bool(lock.overruled) + stopped:
            say(sentence)
    unseen = out_of_sight()
    if as_json:
        told = {**report.as_json(), "knobs": [asdict(row) for row in rows], **({"in_use": owner} if owner else {})}
        print_json({**told, "out_of_sight": unseen} if unseen else told)
    else:
        _tell_restored(report, rows)
    if unseen and not report.sentences():
        raise NotPermittedError(f"nothing of this user's is changed; {unseen}")
    if owner and not rows:
        say(f"nothing is changed at this moment, but {owner} Until it ends a restore is refused.")
    elif not report.sentences():
        say("nothing to restore: the device is as it was found.")
    if not plan_only and not report.clean:
        raise NotRestoredError("not everything could be restored; see above.", force=bool(report.foreign))


def _tell_restored(report: Restoration, rows: Sequence[StatusRow]) -> None:
    """What there is to put back as a table, then what was done about it; the bad news last."""
    _tell_rows(rows)
    for sentence in report.sentences():
        say(sentence)


def _tell_rows(rows: Sequence[StatusRow]) -> None:
    """How each knob stands, as a table."""
    from tare.base.text import duration_text
    from tare.report.columns import table

    body = []
    for row in rows:
        owner = [f"pid {row.owner.partition(':')[0]}", duration_text(row.age_s)]
        body += [[knob, found, now, *owner] for knob, found, now in _pieces(row)]
    if body:
        click.echo(table(body, ["setting or place", "as found", "now", "owner", "age"], width()))


def _pieces(row: StatusRow) -> list[tuple[str, str, str]]:
    """One line a setting, where a knob is made of several and some differ; one line otherwise."""
    now = row.now if row.now is not None else row.trouble
    if not isinstance(row.baseline, dict) or not isinstance(row.now, dict):
        return [(row.knob, "" if row.baseline is None else str(row.baseline), "" if now is None else str(now))]
    moved = {key: value for key, value in row.baseline.items() if row.now.get(key) != value}
    if not moved:
        return [(row.knob, "as found", "the same")]
    return [(f"{row.knob} {key}", str(value), str(row.now.get(key, "missing"))) for key, value in moved.items()]


@command.command("clean")
@click.option("--plan", "plan_only", is_flag=True, help="Only list what is there and what would be removed.")
@click.argument("sites", metavar="[SITE]...", nargs=-1)
@json_option
def clean(plan_only: bool, sites: tuple[str, ...], as_json: bool) -> None:
    """Remove what dead runs left behind: containers, machines, groups, mounts, folders.

    What a living run uses is listed, and left alone. With SITE, only what has that name. Only what carries tare's mark
    is touched, also if no journal knows of it. Settings that a dead run left changed are restored by
    `tare device restore`.
    """
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import device_id
    from tare.trial.undo import restoration
    from tare.trial.undo.journal import Journal
    from tare.trial.undo.restoration import find_remains, remove

    host, state = LocalHost(), state_dir()
    remains = [each for each in find_remains(host, state / "scratch") if not sites or each.site in sites]
    still_on = [] if sites else left_overs()
    failures = [] if plan_only else remove(host, remains, state / "scratch")
    stopped = [] if plan_only or sites else stop_left_overs()
    turned = [
        row for row in restoration.status(host, Journal(state / "devices" / device_id(host))) if row.wanted is not None
    ]
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
        _tell_cleaned(remains, failures, plan_only)
        for thing in still_on if plan_only else ():
            _line(f"would be stopped: {thing}")
        for sentence in stopped:
            say(sentence)
        if not (remains or still_on or stopped):
            say("nothing of ours is left on this device.")
        if turned:
            say(f"{len(turned)} settings are as an interrupted run left them; `tare device restore` restores them.")
    if failures:
        raise TareError("not everything could be removed; see above.")


def _gone(remains: Sequence[Remains], failures: Sequence[Failure]) -> list[Remains]:
    failed = {each.site for each in failures}
    return [each for each in remains if each.owner is None and each.site not in failed]


def _tell_cleaned(remains: Sequence[Remains], failures: Sequence[Failure], plan_only: bool) -> None:
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


command.add_command(image.command, "image")
command.add_command(data.command, "data")
command.add_command(fleet.command, "fleet")

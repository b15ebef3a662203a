"""`tare device`: the state of this device, what it can be set to, its idle power, and what is prepared on it."""

from __future__ import annotations

import json
import math
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import left_overs, needs_of, stop_left_overs
from tare.base.errors import LineLost, NotPermittedError, NotRestoredError, ObstacleError, TareError
from tare.cli.device import baseload, data
from tare.cli.scaffold import (
    FOLDER,
    Result,
    Verbs,
    json_option,
    need,
    output_option,
    print_json,
    prints,
    say,
    trust_option,
    width,
)

if TYPE_CHECKING:
    from tare.analysis.parity import Line
    from tare.fleet.inspection import Inspection
    from tare.trial.undo.restoration import Failure, Remains, StatusRow


# `tare device fleet`: look at the devices of an inventory; and what the controller has a device do.


@click.group("fleet", cls=Verbs)
def fleet() -> None:
    """Check the devices of a fleet, or be a worker of one; `tare run STUDY --fleet FILE` runs a study on it."""


@fleet.command("check")
@click.argument("inventory", type=click.Path(path_type=Path), default=Path("devices.yaml"))
@click.option("--on", "words", multiple=True, metavar="NAME", help="Only devices of this name, type or tag.")
@trust_option
@json_option
def fleet_check(inventory: Path, words: tuple[str, ...], trust: bool, as_json: bool) -> None:
    """Check each device of INVENTORY: is it reachable, what can it do, who uses it now."""
    from tare.fleet.inspection import inspect_all_devices
    from tare.fleet.inventory import load_inventory

    found = inspect_all_devices(load_inventory(inventory, trust=trust).called(words))
    if as_json:
        print_json({"devices": [device.as_json() for device in found]})
    else:
        _tell_devices(found)
    if not all(device.ready for device in found):
        raise SystemExit(1)


def _tell_devices(found: Sequence[Inspection]) -> None:
    from tare.report.columns import table

    head = ["device", "type", "ready", "tare", "python", "free", "clock", "platforms"]
    click.echo(table([_row(device) for device in found], head, width()))
    for device in found:
        for trouble in device.troubles:
            say(f"{device.name}: {trouble}")


def _row(device: Inspection) -> list[str]:
    free = "" if device.free_bytes is None else f"{device.free_bytes / 2**30:.1f} GiB"
    within = device.clock_within_s or 0.0
    clock = "" if device.clock_offset_s is None else f"{device.clock_offset_s:+.2f} ±{within:.2f} s"
    ready = "yes" if device.ready else "no" if device.reachable else "unreachable"
    tare = "lean" if device.driven == "lean" else device.tare
    words = [device.name, device.type, ready, tare, device.python, free, clock, " ".join(device.platforms or ())]
    return [word or "" for word in words]


@fleet.command("worker")
@click.option("--cluster", "address", required=True, metavar="ADDRESS", help="The scheduler, like tls://10.0.0.1:8786.")
@click.option("--name", help="What this device is called, as the factor `device`; its host name by default.")
@click.option("--ca", type=click.Path(path_type=Path), help="TLS: who vouches for the others.")
@click.option("--cert", type=click.Path(path_type=Path), help="TLS: who vouches for this worker.")
@click.option("--key", type=click.Path(path_type=Path), help="TLS: this worker's private key.")
def worker(address: str, name: str | None, ca: Path | None, cert: Path | None, key: Path | None) -> None:
    """Be a worker of a dask cluster, on this device, until the scheduler goes; as quiet as dask can be made."""
    import os

    from tare.fleet.clusters import is_encrypted, over_tls, require_dask, worker_command, worker_environment

    given = {"--tls-ca-file": ca, "--tls-cert": cert, "--tls-key": key}
    keys = {option: path for option, path in given.items() if path is not None}
    require_dask()
    address = over_tls(address)
    argv = worker_command(address, name or os.uname().nodename, keys)
    if not is_encrypted(address):
        say(f"{address} is not encrypted: whoever can reach it can run what they like on this device.")
    os.execve(argv[0], argv, worker_environment(address))


@fleet.command("obstacles", hidden=True)
def obstacles() -> None:
    """Say whether this device can run the study on standard input; the controller of a fleet asks this."""
    from tare.fleet.on_device import eligibility_here, platforms_here, study_of

    request = json.loads(sys.stdin.readline())
    with needs_of(platforms_here(request, study_of(request))):
        print_json(eligibility_here(request).as_json())


@fleet.command("trial", hidden=True)
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("lock", type=int)
def trial(folder: Path, lock: int) -> None:
    """Run the trial that the controller of a fleet has claimed in FOLDER."""
    from tare.fleet.on_device import hold, keep_result, platforms_here, read_request, run_here, study_of

    hold(lock)
    request = read_request(folder)
    try:
        study = study_of(request)
        with needs_of(platforms_here(request, study)):
            outcome, notes = run_here(request, study)
    except LineLost as error:
        keep_result(folder, None, str(error), [])
        raise
    except TareError as error:
        keep_result(folder, error.exit_code, str(error), [])
        raise
    except Exception:  # whoever waits for an answer at the other end must have one
        keep_result(folder, 1, traceback.format_exc(limit=-4), [])
        raise
    # Asked to stop (the device is shut down, say), it has restored the settings, and the trial has not come to its end.
    keep_result(folder, None if outcome.interrupted else 0, outcome.why if outcome.interrupted else "", notes)


# `tare device image`: make an image that carries this device's own software, and check that one does.


@click.group("image", cls=Verbs)
def image() -> None:
    """Make an image with this device's own software, or check what an image carries.

    A comparison of bare metal with a container means little when the two run different software.
    """


@image.command("build")
@click.option("--name", default="tare/same", show_default=True, help="What the image is called.")
@click.option("--packages", default="torch,numpy", show_default=True, help="Python packages, with what they require.")
@click.option("--engine", type=click.Choice(["docker", "podman", "folder"]), default="docker", show_default=True)
@click.option("--python", default=sys.executable, help="The interpreter.  [default: the one that runs tare]")
@output_option("The folder to make, with --engine folder.", FOLDER)
@json_option
def build(name: str, packages: str, engine: str, python: str, output: Path | None, as_json: bool) -> None:
    """Make an image offline from what is installed here: a Python, some packages, every library that they need.

    Nothing is fetched. The same installation gives the same files.

    tare device image build --name tare/same --packages torch,numpy
    """
    need((engine == "folder") == (output is not None), "`-o DIR` and `--engine folder` go together.")
    from tare.base.text import duration_text, size_text
    from tare.drivers.images.content import gather
    from tare.drivers.images.takers import TAKERS

    begin_s = time.monotonic()
    with ExitStack() as stack:
        if engine != "folder":
            _refuse_if_unusable(engine, stack)
        say(f"looking for the files of {python}")
        content = gather(python, [package.strip() for package in packages.split(",") if package.strip()])
        with click.progressbar(length=content.size_bytes, label="copying", file=sys.stderr) as bar:
            made = TAKERS[engine](content, name if output is None else str(output), bar.update)
    took_s = time.monotonic() - begin_s
    for library in content.missing:
        say(f"no file here is {library}, which a library names; what needs it will not work inside.")
    if as_json:
        print_json(
            {"image": made, "engine": engine, "python": content.version, "packages": dict(content.packages),
             "files": len(content.entries), "size_bytes": content.size_bytes, "seconds": round(took_s, 3)}
        )  # fmt: skip
        return
    what = f"Python {content.version}" + "".join(f", {each} {v}" for each, v in sorted(content.packages.items()))
    size = f"{len(content.entries):,} files, {size_text(content.size_bytes)}, {duration_text(took_s)}"
    click.echo(click.wrap_text(f"{made}: {what} ({size}).", width()))


@image.command("check")
@click.argument("image")
@click.option("--in", "inside", metavar="PLATFORM", default="docker", show_default=True, help="Where it is opened.")
@prints
def image_check(image: str, inside: str) -> Result:
    """Check whether IMAGE carries the same software as this device; exit 1 if something that matters differs.

    A container of the image and bare metal are opened, torch is imported on both sides, and what each says of itself
    is compared: versions, builds, libraries by their content, thread pools, code paths.
    """
    from tare.analysis.parity import compared, is_same
    from tare.parts.find import find

    part: Any = find("platforms", inside)
    need("image" in part.model_fields, f"{inside} takes no image: it has no field of that name.")
    with ExitStack() as stack:
        _refuse_if_unusable(inside, stack, image=image)
        device, other = _fingerprints([find("platforms", "bare")(), part(image=image)])
    lines = compared(device, other)
    same = is_same(lines)
    return Result(
        lambda: {"image": image, "platform": inside, "same": same, "facts": [line.as_json() for line in lines]},
        lambda: _image_text(image, lines, same),
        exit_code=0 if same else 1,
    )


def _refuse_if_unusable(platform: str, stack: ExitStack, **fields: str) -> None:
    from tare.base.host import LocalHost
    from tare.parts.find import find

    stack.enter_context(needs_of([platform]))
    part: Any = find("platforms", platform)
    if obstacles := part(**fields).obstacles(LocalHost()):
        raise ObstacleError(f"{platform} cannot be used here:", obstacles)


def _fingerprints(platforms: Sequence[Any]) -> list[dict[str, Any]]:
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import DeviceLock, device_id
    from tare.trial.facts import software_of
    from tare.trial.undo.journal import Journal

    host = LocalHost()
    state, device = state_dir(), device_id(host)
    with DeviceLock(state, device, "image check"):
        journal = Journal(state / "devices" / device, "image check")
        return [software_of(platform, host, journal, state / "scratch") for platform in platforms]


def _image_text(image: str, lines: Sequence[Line], same: bool) -> str:
    """What differs as a table, then the verdict."""
    from tare.report.columns import table

    apart = [line for line in lines if not line.same]
    rows = [
        ["none" if value is None else value for value in (line.key, line.device, line.image)]
        + ["yes" if line.matters else "no", line.why]
        for line in apart
    ]
    differing = [table(rows, ["differs", "device", "image", "matters", "because"], width())] if rows else []
    alike = len(lines) - len(apart)
    verdict = (
        f"{image} carries the same software as this device: {alike} facts agree, and nothing that matters differs."
        if same
        else f"{image} does NOT carry the same software as this device: see what matters above."
    )
    return "\n".join([*differing, click.wrap_text(verdict, width())])


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
@prints
def modes() -> Result:
    """List everything that `power_mode` can set here, with all supported values.

    --json: {"modes": [NAME, ...], "values": {FIELD: [VALUE, ...] or {"from", "to"}}, "combinations"}. Modes are those
    that the board itself names (MAXN, no limits, is known everywhere); fields are those of `power_mode`, in its units,
    and one that the device lacks is absent; combinations is how many tuples of cores and clocks there are, or null
    where a clock can be anything from one value to another.
    """
    from tare.base.host import LocalHost

    found = supported(LocalHost())
    return Result(lambda: found, lambda: _modes_text(found))


def _modes_text(found: Mapping[str, Any]) -> str:
    names, values = found["modes"], found["values"]
    if not names and not values:
        say("nothing can be set on this device: no cores with switches, no CPU clocks, no GPU that can be locked.")
        return ""
    lines = [f"mode: {', '.join(names) if names else 'MAXN (no limits)'}"]
    for field, value in values.items():
        if isinstance(value, dict):
            lines.append(f"{field}: {value['from']:g} to {value['to']:g}")
        else:
            lines.append(f"{field}: {' '.join(f'{one:g}' if isinstance(one, float) else str(one) for one in value)}")
    if found["combinations"] is not None:
        counts = " x ".join(str(len(values[field])) for field in _TUPLE if field in values)
        lines.append(f"{counts} = {found['combinations']:,} combinations")
    return "\n".join(lines)


def supported(host: Any) -> dict[str, Any]:
    """The modes with names, the values of each field, and how many combinations of cores and clocks those make."""
    from tare.drivers.power.everything import offered

    values: dict[str, Any] = {}
    for field, backends in offered(host).items():
        had = backends[0].values(host).get(field)
        if had:
            values[field] = {"from": had[0], "to": had[1]} if isinstance(had, tuple) else list(had)
    names = values.pop("mode", [])
    lists = [values[field] for field in _TUPLE if field in values]
    countable = bool(lists) and all(isinstance(one, list) for one in lists)
    count = math.prod(len(one) for one in lists) if countable else None
    order = [*_TUPLE, *sorted(values.keys() - set(_TUPLE))]
    return {"modes": names, "values": {key: values[key] for key in order if key in values}, "combinations": count}


command.add_command(baseload.command, "baseload")


@command.command("restore")
@click.option("--dry-run", is_flag=True, help="Only list what would be restored.")
@click.option("--force", is_flag=True, help="Also restore what someone else has changed since.")
@json_option
def restore(dry_run: bool, force: bool, as_json: bool) -> None:
    """Restore every setting, and remove every container, that an interrupted run left behind.

    While a run owns the device nothing is restored, and the exit code is 75; --dry-run shows whose run it is, and what
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
    owner = in_use(state, device) if dry_run else None
    if dry_run:
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
        _tell_rows(rows)
        for sentence in report.sentences():  # the bad news last
            say(sentence)
    if unseen and not report.sentences():
        raise NotPermittedError(f"nothing of this user's is changed; {unseen}")
    if owner and not rows:
        say(f"nothing is changed at this moment, but {owner} Until it ends a restore is refused.")
    elif not report.sentences():
        say("nothing to restore: the device is as it was found.")
    if not dry_run and not report.clean:
        raise NotRestoredError("not everything could be restored; see above.", force=bool(report.foreign))


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
@click.option("--dry-run", is_flag=True, help="Only list what is there and what would be removed.")
@click.argument("sites", metavar="[SITE]...", nargs=-1)
@json_option
def clean(dry_run: bool, sites: tuple[str, ...], as_json: bool) -> None:
    """Remove what dead runs left behind: containers, machines, groups, mounts, folders.

    What a living run uses is listed, and left alone. With SITE, only what has that name: root removes what another
    user's run left only where it is named. Only what carries tare's mark is touched, also if no journal knows of it.
    Settings that a dead run left changed are restored by `tare device restore`.
    """
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import device_id
    from tare.trial.undo import restoration
    from tare.trial.undo.journal import Journal
    from tare.trial.undo.restoration import find_remains, remove

    host, state = LocalHost(), state_dir()
    found = [each for each in find_remains(host, state / "scratch") if not sites or each.site in sites]
    others = [each for each in found if each.uid is not None and each.owner is None and not sites]
    remains = [each for each in found if each not in others]
    still_on = [] if sites else left_overs()
    failures = [] if dry_run else remove(host, remains, state / "scratch")
    stopped = [] if dry_run or sites else stop_left_overs()
    turned = [
        row for row in restoration.status(host, Journal(state / "devices" / device_id(host))) if row.wanted is not None
    ]
    if as_json:
        print_json(
            {
                "removed": [] if dry_run else [each.as_json() for each in _gone(remains, failures)],
                "planned": [each.as_json() for each in remains if each.owner is None] if dry_run else [],
                "alive": [each.as_json() for each in remains if each.owner is not None],
                "others": [each.as_json() for each in others],
                "would_stop": still_on if dry_run else [],
                "stopped": stopped,
                "failed": [{"site": each.site, "why": each.why} for each in failures],
                "knobs_turned": len(turned),
            }
        )
    else:
        _tell_cleaned(remains, failures, dry_run)
        for each in others:
            _line(f"of user {each.uid}, left alone: {each.site} ({', '.join(each.things)})")
        if others:
            say(f"`tare device clean {others[0].site}` removes what is named, whoever left it.")
        for thing in still_on if dry_run else ():
            _line(f"would be stopped: {thing}")
        for sentence in stopped:
            say(sentence)
        if not (found or still_on or stopped):
            say("nothing of ours is left on this device.")
        if turned:
            say(f"{len(turned)} settings are as an interrupted run left them; `tare device restore` restores them.")
    if failures:
        raise TareError("not everything could be removed; see above.")


def _gone(remains: Sequence[Remains], failures: Sequence[Failure]) -> list[Remains]:
    failed = {each.site for each in failures}
    return [each for each in remains if each.owner is None and each.site not in failed]


def _tell_cleaned(remains: Sequence[Remains], failures: Sequence[Failure], dry_run: bool) -> None:
    gone = _gone(remains, failures)
    verb = "would be removed" if dry_run else "removed"
    for each in remains:
        if each.owner is not None:
            whose = f"pid {each.owner.pid}" if each.owner.pid else "a process that cannot be seen from here"
            _line(f"in use by {whose}, left alone: {each.site} ({', '.join(each.things)})")
    for each in gone:
        _line(f"{verb}: {each.site} ({', '.join(each.things)})")
    for failure in failures:
        say(f"NOT removed: {failure.site}: {failure.why}")


def _line(text: str) -> None:
    click.echo(click.wrap_text(text, width(), "", "  "))


command.add_command(image, "image")
command.add_command(data.command, "data")
command.add_command(fleet, "fleet")

"""`tare check` and `tare plan`: what this device can do, whether it can run a study, and what would be run of it.

Nothing is run.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import load_study, needs_of, needs_of_study, sensitivity
from tare.base.errors import NothingLeft, ObstacleError, cannot_run
from tare.base.host import LocalHost
from tare.base.installed import other_tares
from tare.base.text import count_text, safe_text
from tare.cli.scaffold import Verb, json_option, need, print_json, python_option, say, scale_option, trust_option, width
from tare.parts.find import KINDS, Kind, find, names
from tare.studies.model import Study

if TYPE_CHECKING:
    from tare.plan.check import Check
    from tare.plan.why import Suspects

_ON_DEVICES: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != "causes")  # those that a device may lack


@click.command("check", cls=Verb)
@click.argument("study", type=click.Path(path_type=Path), required=False)
@scale_option
@python_option
@click.option("--image", metavar="NAME", help="An image of Docker's engine: what in it may be slow, without a run.")
@click.option("--quota", type=float, help="With --image: the container's CPU quota, in cores.")
@click.option("--cpuset", help="With --image: the container's cores, like 0-1.")
@click.option("--memory", help="With --image: the container's memory limit, like 2GiB.")
@click.option("--shm", default="64MiB", show_default=True, help="With --image: the size of its /dev/shm.")
@trust_option
@json_option
def command(
    study: Path | None,
    scale: str | None,
    python: str | None,
    image: str | None,
    quota: float | None,
    cpuset: str | None,
    memory: str | None,
    shm: str,
    trust: bool,
    as_json: bool,
) -> None:
    """Check what this device can do, and why not the rest; with STUDY, whether it can run that study.

    With --image, what makes a container of this image slower than bare metal, as far as it can be known without
    running anything; `tare why --image NAME -- COMMAND` measures it.
    """
    from tare.drivers.containers.oci import advice
    from tare.trial.facts import abilities, device_facts

    host = LocalHost()
    limits = {"quota": quota, "cpuset": cpuset, "memory": memory}
    need(image is not None or not any(limits.values()), "--quota, --cpuset and --memory are for --image.")
    if image is not None:
        need(study is None, "give either a study or --image, not both.")
        _check_image({"image": image, **{name: each for name, each in limits.items() if each}, "shm": shm}, as_json)
        return
    if study is not None:
        _check_study(study, load_study(study, trust, scale, python), as_json)
        return
    need(python is None, "--python is for the workloads of a study: name one.")
    found: dict[str, Any] = {
        "device": device_facts(host),
        "abilities": [{"name": name, "yes": yes, "why": why} for name, yes, why in abilities(host)],
        **{kind: [_part(kind, name, host) for name in names(kind)] for kind in _ON_DEVICES},
        "advice": [*other_tares(), *advice(host)],
    }
    if as_json:
        print_json(found)
        return
    device = found["device"]
    groups = f"cgroups {device['cgroups']}" if "cgroups" in device else "no cgroups"
    click.echo(f"{device.get('os', 'Linux')}, kernel {device['kernel']}, {device['cores']} cores, {groups}")
    for ability in found["abilities"]:
        _line("yes" if ability["yes"] else "no", ability["name"], ability["why"])
    for kind in _ON_DEVICES:
        for part in found[kind]:
            why = " ".join(map(str, part["obstacles"]))
            facts = ", ".join(f"{name} {value}" for name, value in part["facts"].items())
            works = f"works here ({facts})." if facts else "works here."
            _line("no" if why else "yes", f"{kind[:-1]} {part['name']}", why or works)
    for sentence in found["advice"]:
        _line("note", "advice", sentence)


def _part(kind: Kind, name: str, host: Any) -> dict[str, Any]:
    """Whether it works here, else why not, and what is worth knowing about it.

    One that needs fields is asked with those of its example.
    """
    part: Any = find(kind, name).model_validate(find(kind, name).example)
    obstacles = [replace(each, subject=f"{kind[:-1]} {name}") for each in part.obstacles(host)]
    facts: dict[str, Any] = {}
    if kind == "platforms":
        facts = part.brought_by_run(host) if obstacles else part.here(host)
        obstacles = [] if facts else obstacles
    return {"name": name, "ok": not obstacles, "obstacles": obstacles, "facts": facts}


def _check_image(fields: dict[str, Any], as_json: bool) -> None:
    """What each cause suspects of a container, by the image's own settings, the limits and this device."""
    from tare.analysis.parity import flat
    from tare.cli.why import refuse_wrong
    from tare.drivers.cgroups.limits import placement_facts
    from tare.drivers.containers import engine
    from tare.drivers.containers.docker import image_facts, variables_here
    from tare.parts.protocols import Side
    from tare.plan.why import examined
    from tare_inside import fingerprint

    host = LocalHost()
    refuse_wrong("docker", fields, {"command": ["true"]}, None)
    part: Any = find("platforms", "docker").model_validate(fields)
    with needs_of(["docker"]):
        if obstacles := part.obstacles(host):
            raise ObstacleError(f"{fields['image']} cannot be checked:", obstacles)
        with engine.opened(host) as client:
            inside = image_facts(client, fields["image"])
    place = placement_facts(host, part.quota, part.cpuset)
    # What this device's own Python would record, without torch: nothing is imported for it.
    here = {**flat(fingerprint.gather()), "variables": variables_here()}  # type: ignore[no-untyped-call]
    facts = {**inside, **{f"place.{key}": value for key, value in place.items()}}
    found = examined(Side(fields["image"], "docker", part.fields(), facts), Side("bare metal", "bare", {}, here))
    _tell_suspects(fields["image"], found, as_json)


def _tell_suspects(image: str, found: Suspects, as_json: bool) -> None:
    from tare.cli.why.runs import suspects_json

    suspects, ruled_out, titles = found.held, found.ruled_out, found.titles()
    if as_json:
        print_json({"image": image, **suspects_json(found)})
        return
    click.echo(f"{safe_text(image)}: {count_text(len(suspects), 'suspect')} (nothing was run)")
    for name, each in suspects.items():
        cure = f" Cure: {each.cure}" * (name in found.offered())
        _line("-", f"{name} ({titles[name]})", f"{each.evidence}{cure}")
    click.echo(click.wrap_text(f"ruled out: {', '.join(ruled_out)}", width(), "", "  "))
    click.echo(click.wrap_text(f"not looked at: {', '.join(found.not_looked)}", width(), "", "  "))


def _check_study(path: Path, study: Study, as_json: bool) -> None:
    from tare.plan.check import check, possible

    with needs_of_study(study):
        try:
            study, cells = possible(study, LocalHost())
        except NothingLeft as nothing:
            if as_json:
                print_json({"study": study.study, "obstacles": nothing.obstacles, "not_measured": nothing.gaps})
            raise nothing.for_a_look() from None
        checked = check(study, cells, LocalHost())
    if as_json:
        print_json({"study": study.study, "obstacles": checked.blocked, "not_measured": list(study.left_out)})
    if checked.blocked:
        raise cannot_run(str(path), checked.blocked)
    if not as_json:
        click.echo(f"{safe_text(path)}: this device can run it{', but for:' if study.left_out else '.'}")
        for sentence in study.left_out:
            _line("no", "not measured here", str(sentence))


def _line(mark: str, name: str, why: str) -> None:
    click.echo(click.wrap_text(f"{mark:4} {name}: {why}", width(), "", "     "))


@click.command("plan", cls=Verb)
@click.argument("study", type=click.Path(path_type=Path))
@scale_option
@python_option
@trust_option
@json_option
def plan(study: Path, scale: str | None, python: str | None, trust: bool, as_json: bool) -> None:
    """List the trials of STUDY in order, with the time and the disk they take. Runs nothing.

    Where something keeps this device from running it, the plan is still printed, and the exit code is 3, as of
    `tare check STUDY` and `tare run STUDY`; 2 where that is a program or file of a command that is not there.
    """
    from tare.plan.check import check, possible
    from tare.plan.matrix import cells, trials

    whole = load_study(study, trust, scale, python)
    nothing_left: NothingLeft | None = None
    try:
        loaded, its_cells = possible(whole, LocalHost(), brought=True)
    except NothingLeft as nothing:  # the study as written is shown, and then why
        loaded, its_cells, nothing_left = whole, tuple(cells(whole)), nothing
    checked = check(loaded, its_cells, LocalHost(), brought=True)
    planned = trials(loaded, its_cells)
    rows: list[dict[str, Any]] = [
        {"trial": t.id, "block": t.block, "position": t.position, "twin": t.twin, "settings": dict(t.settings)}
        for t in planned
    ]
    if as_json:
        print_json(
            {
                "study": loaded.study,
                "trials": rows,
                "seconds": checked.seconds,
                "disk_bytes": checked.disk_bytes,
                "obstacles": checked.blocked if nothing_left is None else list(nothing_left.obstacles),
                "not_measured": list(loaded.left_out if nothing_left is None else nothing_left.gaps),
            }
        )
    else:
        _tell_plan(loaded, checked, rows)
    if nothing_left is not None:
        raise nothing_left.for_a_look()
    if checked.blocked:
        raise cannot_run(str(study), checked.blocked)


def _tell_plan(study: Study, checked: Check, rows: list[dict[str, Any]]) -> None:
    from tare.base.text import duration_text, size_text
    from tare.records.model import varied
    from tare.report.columns import table

    most = (
        f"{count_text(len(rows), 'trial')}, about {duration_text(checked.seconds)} and {size_text(checked.disk_bytes)}"
    )
    least = ""
    if checked.least_trials < len(rows):
        least = (
            f"; at the least {count_text(checked.least_trials, 'trial')}, about {duration_text(checked.least_seconds)}"
        )
        most = f"at the most {most}"
    click.echo(click.wrap_text(f"{study.study}: {most}{least} (times are guesses).", width(), "", "  "))
    click.echo(click.wrap_text(f"Stop rule: {study.repeat.sentence()}", width(), "", "  "))
    varying = varied([row["settings"] for row in rows])
    body = [[str(row["block"]), row["trial"][:8], *(_cell(row, key) for key in varying)] for row in rows]
    click.echo(table(body, ["block", "trial", *varying], width()))
    say(sensitivity(study))
    for sentence in (*checked.unasked, *checked.notes):
        say(f"note: {sentence}")
    for sentence in study.left_out:
        say(f"not measured here: {sentence}")


def _cell(row: dict[str, Any], key: str) -> str:
    from tare.records.model import AA_REPEAT

    value = row["settings"].get(key, "")
    text = "" if value is None else str(value)
    return f"{text} ({AA_REPEAT})" if key == "platform" and row["twin"] else text

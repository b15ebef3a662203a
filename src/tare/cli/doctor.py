"""`tare doctor`: what this device can do, and what may make a container of an image slow. Nothing is run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import needs_of
from tare.base.errors import ObstacleError
from tare.base.host import LocalHost
from tare.base.installed import other_tares
from tare.base.text import count_text, safe_text
from tare.cli.limits import limit_option
from tare.cli.scaffold import Verb, json_option, need, print_json, width
from tare.parts.find import KINDS, Kind, find, names

if TYPE_CHECKING:
    from tare.plan.why import Suspects

_ON_DEVICES: tuple[Kind, ...] = tuple(kind for kind in KINDS if kind != "causes")  # those that a device may lack
USUAL_SHM = "64MiB"  # of a container's /dev/shm, by Docker's engine


@click.command("doctor", cls=Verb)
@click.option("--image", metavar="NAME", help="An image of Docker's engine: what may be slow in its containers.")
@limit_option
@json_option
def command(image: str | None, limits: dict[str, Any], as_json: bool) -> None:
    """Check what this device can do: platforms, probes, controls, workloads, and what each of the others needs.

    With --image, list what may make a container of that image slower than bare metal, without running anything. `tare
    why --image NAME -- COMMAND` then measures it.

    tare doctor

    tare doctor --image app:1 --limit cpus=2,shm=64MiB
    """
    from tare.drivers.containers.oci import advice
    from tare.trial.facts import abilities, device_facts

    host = LocalHost()
    need(image is not None or not limits, "--limit is for the container of --image.")
    if image is not None:
        _check_image({"image": image, "shm": USUAL_SHM, **limits}, as_json)
        return
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
    from tare.drivers.containers.unpacked import image_facts, variables_here
    from tare.parts.protocols import Side
    from tare.plan.why import examined
    from tare_inside import fingerprint

    host = LocalHost()
    refuse_wrong("docker", fields, {"command": ["true"]})
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


def _line(mark: str, name: str, why: str) -> None:
    click.echo(click.wrap_text(f"{mark:4} {name}: {why}", width(), "", "     "))

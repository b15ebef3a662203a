"""`tare check`: what this device can and cannot do, and why, in sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tare.cli.engines import engine_for
from tare.cli.options import json_option, print_json, width
from tare.cli.studies import load_study
from tare.errors import ObstacleError


@click.command("check")
@click.argument("study", type=click.Path(path_type=Path), required=False)
@click.option("--trust", is_flag=True, help="Accept a study file that others may write.")
@json_option
def command(study: Path | None, trust: bool, as_json: bool) -> None:
    """Say what this device can and cannot do, and why; with STUDY, whether it can run that study."""
    from tare.host import LocalHost
    from tare.parts.advisories import advice
    from tare.trial.facts import abilities, device_facts

    host = LocalHost()
    if study is not None:
        _check_study(study, trust, as_json)
        return
    found: dict[str, Any] = {
        "device": device_facts(host),
        "abilities": [{"name": name, "yes": yes, "why": why} for name, yes, why in abilities(host)],
        "parts": _parts(host),
        "advice": advice(host),
    }
    if as_json:
        print_json(found)
        return
    device = found["device"]
    click.echo(
        f"{device.get('os', '')}, kernel {device['kernel']}, {device['cores']} cores, cgroups {device['cgroups']}"
    )
    for ability in found["abilities"]:
        _line(ability["yes"], ability["name"], ability["why"])
    for part in found["parts"]:
        _line(
            not part["obstacles"], f"{part['kind'][:-1]} {part['name']}", " ".join(part["obstacles"]) or "works here."
        )


def _parts(host: Any) -> list[dict[str, Any]]:
    """Every part with its obstacles here; one that needs fields cannot be asked without a study."""
    from tare.parts.find import KINDS, find, names

    rows = []
    for kind in KINDS:
        for name in names(kind):
            part = find(kind, name)
            if any(field.is_required() for field in part.model_fields.values()):
                continue
            obstacles = part().obstacles(host)  # type: ignore[attr-defined]
            rows.append({"kind": kind, "name": name, "obstacles": obstacles})
    return rows


def _check_study(path: Path, trust: bool, as_json: bool) -> None:
    from tare.host import LocalHost
    from tare.plan.check import check
    from tare.plan.matrix import cells

    study = load_study(path, trust)
    with engine_for(study):
        checked = check(study, cells(study), LocalHost())
    if as_json:
        print_json({"study": study.study, "obstacles": checked.blocked})
    if checked.blocked:
        raise ObstacleError(f"this device cannot run {path}:", checked.blocked)
    if not as_json:
        click.echo(f"{path}: this device can run it.")


def _line(good: bool, name: str, why: str) -> None:
    mark = "yes" if good else "no "
    click.echo(click.wrap_text(f"{mark}  {name}: {why}", width(), "", "     ", preserve_paragraphs=False))

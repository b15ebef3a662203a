"""`tare parts`: what can be plugged into a study, found by itself."""

from __future__ import annotations

from typing import Any

import click

from tare.cli.options import json_option, need, print_json, width
from tare.parts.find import KINDS, Kind, find, names


@click.command("parts")
@click.argument("which", metavar="[KIND|NAME]", required=False)
@json_option
def command(which: str | None, as_json: bool) -> None:
    """List the parts that a study can name, with their fields: all, those of a kind (platforms), or one by name."""
    kinds, named = _asked(which)
    found = [describe(each, name) for each in kinds for name in names(each) if named in (None, name)]
    if as_json:
        print_json(found)
        return
    for each in kinds:
        click.echo(each)
        for part in (p for p in found if p["kind"] == each):
            click.echo(_text(part))


def _asked(which: str | None) -> tuple[list[Kind], str | None]:
    """The kinds to look in, and the one name to look for."""
    if which is None or which in KINDS:
        return ([which] if which else list(KINDS)), None
    holding = [kind for kind in KINDS if which in names(kind)]
    known = [*KINDS, *(name for kind in KINDS for name in names(kind))]
    need(bool(holding), f"there is no kind and no part {which!r}. There is: {', '.join(known)}.")
    return holding, which


def describe(kind: Kind, name: str) -> dict[str, Any]:
    """One part as plain data."""
    part = find(kind, name)
    schema = part.model_json_schema()
    return {
        "kind": kind,
        "name": name,
        "about": (part.__doc__ or "").strip().splitlines()[0],
        "fields": {
            field: {
                "default": _default(part, field),
                "required": part.model_fields[field].is_required(),
                "about": details.get("description", ""),
            }
            for field, details in schema.get("properties", {}).items()
        },
    }


def _default(part: Any, field: str) -> Any:
    value = part.model_fields[field].get_default(call_default_factory=True)
    return value if isinstance(value, str | int | float | bool | None | list | dict) else None


def _text(part: dict[str, Any]) -> str:
    head = click.wrap_text(f"{part['name']}: {part['about']}", width(), "  ", "      ")
    fields = ", ".join(
        name if details["required"] else f"{name}={_shown(details['default'])}"
        for name, details in part["fields"].items()
    )
    return head + ("\n" + click.wrap_text(fields, width(), "      ", "      ") if fields else "")


def _shown(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

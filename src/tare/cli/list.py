"""`tare list`: what a study can name: parts, workloads, studies, data sets; and the schema of study files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any

import click

from tare.base.errors import unknown_name
from tare.cli import studies
from tare.cli.scaffold import Verbs, json_option, need, print_json, width
from tare.drivers.torch_programs import PRESETS, Preset, preset
from tare.parts.find import KINDS, Kind, find, names
from tare_inside import named

_PREFIXES = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


@click.group("list", cls=Verbs)
def command() -> None:
    """List what a study can name: parts, built-in workloads and studies, data sets; print the schema."""


@command.command("parts")
@click.argument("which", metavar="[KIND|NAME]", required=False)
@json_option
def parts(which: str | None, as_json: bool) -> None:
    """List the parts that a study can name, with their fields: all, those of a kind (platforms), or one by name."""
    kinds, name = _asked(which)
    found = [describe(kind, each) for kind in kinds for each in names(kind) if name in (None, each)]
    if as_json:
        print_json(found)
        return
    for each in kinds:
        click.echo(each)
        for part in (p for p in found if p["kind"] == each):
            click.echo(_part_text(part))


def _asked(which: str | None) -> tuple[list[Kind], str | None]:
    """The kinds to look in, and the one name to look for."""
    if which is None or which in KINDS:
        return ([which] if which else list(KINDS)), None
    holding = [kind for kind in KINDS if which in names(kind)]
    known = [*KINDS, *(name for kind in KINDS for name in names(kind))]
    need(bool(holding), unknown_name("kind or part", which, known))
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


def _part_text(part: dict[str, Any]) -> str:
    head = click.wrap_text(f"{part['name']}: {part['about']}", width(), "  ", "      ")
    fields = ", ".join(
        name if details["required"] else f"{name}={_default_text(details['default'])}"
        for name, details in part["fields"].items()
    )
    return head + ("\n" + click.wrap_text(fields, width(), "      ", "      ") if fields else "")


def _default_text(value: Any) -> str:
    return "-" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


@command.command("workloads")
@click.argument("name", required=False)
@json_option
def workloads(name: str | None, as_json: bool) -> None:
    """List the built-in workloads; with NAME, print the lines of a study that run that one."""
    if name is None:
        if as_json:
            print_json([each.described() for each in PRESETS])
        else:
            click.echo(_workloads_text())
        return
    asked = preset(name)
    if as_json:
        print_json(asked.described())
    else:
        click.echo(_workload_text(asked))


def _workloads_text() -> str:
    from tare.report.columns import table, wrap

    rows = [
        (each["name"], each["mode"], _title(each["model"]), each["data"], _short(each["params"]), _short(each["flops"]))
        for each in (preset.described() for preset in PRESETS)
    ]
    lines = [table(rows, ("workload", "mode", "network", "data", "params", "FLOPs"), width())]
    for network in dict.fromkeys(named.find("models", each.model) for each in PRESETS):
        if hasattr(network, "PAPER_FLOPS"):
            said = (
                f"The papers say {_short(network.PAPER_FLOPS)} for {network.TITLE}; it is {_short(network.FLOPS)} "
                "counted as they count the others (docs/reference/workloads.md)."
            )
            lines += ["", *wrap(said, width())]
    lines += [
        "",
        *wrap("`tare list workloads NAME` prints a study's lines, `tare weigh --workload NAME` weighs it.", width()),
    ]
    return "\n".join(lines)


def _workload_text(asked: Preset) -> str:
    from tare.report.columns import wrap

    network = named.find("models", asked.model)
    about = f"{network.TITLE}, {'training' if asked.mode == 'train' else 'inference'}, data: {asked.data}"
    head = [about, *([asked.note] if asked.note else []), f"timed: {', '.join(asked.phases)}"]
    lines = [f"# {line}" for text in head for line in wrap(text, width() - 2)]
    lines += ["workload:", *_yaml(asked.workload(), "  ")]
    if asked.quick:
        lines += ["# shorter, as `tare weigh` has it (`scale: 0.25` makes a smaller network):"]
        lines += [f"# {line}" for line in _yaml(asked.workload(quick=True), "  ")]
    return "\n".join(lines)


def _yaml(workload: Mapping[str, Mapping[str, Any]], indent: str) -> list[str]:
    """A part and its fields as YAML, a line each."""
    lines = []
    for part, fields in workload.items():
        lines.append(f"{indent}{part}:")
        lines += [f"{indent}  {field}: {_scalar(value)}" for field, value in fields.items()]
    return lines


def _scalar(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _title(model: str) -> str:
    return str(named.find("models", model).TITLE)


def _short(count: int) -> str:
    """Three figures and a prefix: 61.7 k, 5.48 M, 1.82 G."""
    for size, prefix in _PREFIXES:
        if count >= size:
            return f"{count / size:.3g} {prefix}"
    return str(count)


command.add_command(studies.command, "studies")


@command.command("data")
@json_option
def data(as_json: bool) -> None:
    """List the synthetic data sets: their formats, and the size of the real ones; `tare device data` makes them."""
    from tare.base.text import size_text
    from tare.report.columns import wrap

    rows = [_data_row(name) for name in named.names("data")]
    if as_json:
        print_json(rows)
        return
    for row in rows:
        size = f"{row['items']:,} items, {size_text(row['bytes'])}"
        line = f"{row['name']:10} {row['title']}: {size}; {row['format']}"
        click.echo("\n".join(wrap(line, width(), indent=" " * 11)) if sys.stdout.isatty() else line)


def _data_row(name: str) -> dict[str, Any]:
    data = named.find("data", name)
    row = {"name": name, "title": data.TITLE, "kind": data.KIND, "format": data.FORMAT}
    row |= {"items": data.ITEMS, "bytes": data.BYTES}
    return row | ({"classes": data.CLASSES} if hasattr(data, "CLASSES") else {})


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of study files.

    Save it next to a study and start the study with
    `# yaml-language-server: $schema=study.schema.json`: the editor then completes and checks it.
    """
    from tare.studies.schema import json_schema

    print_json(json_schema())

"""`tare list`: what a study can name: parts, workloads, studies, data sets; and the schema of study files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import unknown_name
from tare.cli.scaffold import Result, Verbs, need, prints, width
from tare_inside import named

if TYPE_CHECKING:  # parts are pydantic's, of which the list of studies needs nothing
    from tare.drivers.torch_programs import Preset
    from tare.parts.find import Kind

_PREFIXES = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


@click.group("list", cls=Verbs)
def command() -> None:
    """List what a study can name: parts, built-in workloads and studies, data sets; print the schema."""


@command.command("parts")
@click.argument("which", metavar="[KIND|NAME]", required=False)
@prints
def parts(which: str | None) -> Result:
    """List the parts that a study can name, with their fields: all, those of a kind (platforms), or one by name."""
    from tare.parts.find import KINDS, names

    its = {kind: names(kind) for kind in KINDS}
    if which in KINDS:
        its = {which: its[which]}
    elif which is not None:
        known = [*KINDS, *(name for kind in KINDS for name in its[kind])]
        its = {kind: [which] for kind in KINDS if which in its[kind]}
        need(bool(its), unknown_name("kind or part", which, known))
    found = {kind: [describe(kind, name) for name in ours] for kind, ours in its.items()}
    return Result(
        lambda: {"parts": [part for parts in found.values() for part in parts]},
        lambda: "\n".join(line for kind, parts in found.items() for line in (kind, *map(_part_text, parts))),
    )


def describe(kind: Kind, name: str) -> dict[str, Any]:
    """One part as plain data."""
    from tare.parts.find import find
    from tare.parts.protocols import Probe

    part = find(kind, name)
    fields = {}
    for field, details in part.model_json_schema().get("properties", {}).items():
        default = part.model_fields[field].get_default(call_default_factory=True)
        fields[field] = {
            "default": default if isinstance(default, str | int | float | bool | None | list | dict) else None,
            "required": part.model_fields[field].is_required(),
            "about": details.get("description", ""),
        }
    described = {
        "kind": kind,
        "name": name,
        "about": (part.__doc__ or "").strip().splitlines()[0],
        "fields": fields,
    }
    channels = [
        {"name": each.name, "unit": each.unit, "kind": each.kind, "about": each.about, **each.declared()}
        for each in (part.CHANNELS if issubclass(part, Probe) else ())
    ]
    return {**described, "channels": channels} if channels else described


def _part_text(part: dict[str, Any]) -> str:
    lines = [click.wrap_text(f"{part['name']}: {part['about']}", width(), "  ", "      ")]
    fields = []
    for name, details in part["fields"].items():
        default = details["default"]
        shown = "-" if default is None else str(default).lower() if isinstance(default, bool) else str(default)
        fields.append(name if details["required"] else f"{name}={shown}")
    if fields:
        lines.append(click.wrap_text(", ".join(fields), width(), "      ", "      "))
    for channel in part.get("channels", ()):
        text = f"{channel['name']} ({channel['kind']}, {channel['unit']}): {channel['about']}"
        lines.append(click.wrap_text(text, width(), "      ", "        "))
    return "\n".join(lines)


@command.command("workloads")
@click.argument("name", required=False)
@prints
def workloads(name: str | None) -> Result:
    """List the built-in workloads; with NAME, print the lines of a study that run that one."""
    from tare.drivers.torch_programs import PRESETS, preset

    if name is None:
        return Result(lambda: {"workloads": [each.described() for each in PRESETS]}, _workloads_text)
    asked = preset(name)
    return Result(asked.described, lambda: _workload_text(asked))


def _workloads_text() -> str:
    from tare.base.columns import wrap
    from tare.drivers.torch_programs import PRESETS
    from tare.report.columns import table

    rows = [
        (
            each["name"],
            each["mode"],
            str(named.find("models", each["model"]).TITLE),
            each["data"],
            _short(each["params"]),
            _short(each["flops"]),
        )
        for each in (preset.described() for preset in PRESETS)
    ]
    lines = [table(rows, ("workload", "mode", "network", "data", "params", "FLOPs"), width())]
    for network in dict.fromkeys(named.find("models", each.model) for each in PRESETS):
        if hasattr(network, "PAPER_FLOPS"):
            said = (
                f"The papers say {_short(network.PAPER_FLOPS)} for {network.TITLE}; it is {_short(network.FLOPS)} "
                "counted as they count the others (docs/reference/parts.md)."
            )
            lines += ["", *wrap(said, width())]
    lines += [
        "",
        *wrap("`tare list workloads NAME` prints a study's lines, `tare weigh --workload NAME` weighs it.", width()),
    ]
    return "\n".join(lines)


def _workload_text(asked: Preset) -> str:
    from tare.base.columns import wrap

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
        written = {field: value if isinstance(value, str) else json.dumps(value) for field, value in fields.items()}
        lines += [f"{indent}  {field}: {value}" for field, value in written.items()]
    return lines


def _short(count: int) -> str:
    """Three figures and a prefix: 61.7 k, 5.48 M, 1.82 G."""
    for size, prefix in _PREFIXES:
        if count >= size:
            return f"{count / size:.3g} {prefix}"
    return str(count)


@command.command("data")
@prints
def data() -> Result:
    """List the synthetic data sets: their formats, and the size of the real ones; `tare device data` makes them."""
    rows = []
    for name in named.names("data"):
        each = named.find("data", name)
        row = {"name": name, "title": each.TITLE, "kind": each.KIND, "format": each.FORMAT}
        row |= {"items": each.ITEMS, "bytes": each.BYTES}
        rows.append(row | ({"classes": each.CLASSES} if hasattr(each, "CLASSES") else {}))
    return Result(lambda: {"data_sets": rows}, lambda: "\n".join(map(_data_text, rows)))


def _data_text(row: Mapping[str, Any]) -> str:
    from tare.base.columns import wrap
    from tare.base.text import size_text

    size = f"{row['items']:,} items, {size_text(row['bytes'])}"
    line = f"{row['name']:10} {row['title']}: {size}; {row['format']}"
    return "\n".join(wrap(line, width(), indent=" " * 11)) if sys.stdout.isatty() else line


@command.command("schema")
def schema() -> None:
    """Print the JSON Schema of study files.

    Save it next to a study and start the study with
    `# yaml-language-server: $schema=study.schema.json`: the editor then completes and checks it.
    """
    from tare.studies.load import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))

"""`tare workloads`: the papers' workloads by name, and the lines of a study that run them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from tare.cli.options import json_option, print_json, width
from tare.parts.presets import PRESETS, Preset, preset
from tare_inside import named

_PREFIXES = ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k"))


@click.command("workloads")
@click.argument("name", required=False)
@json_option
def command(name: str | None, as_json: bool) -> None:
    """List the built-in workloads; with NAME, print the lines of a study that run that one."""
    if name is None:
        if as_json:
            print_json([each.described() for each in PRESETS])
        else:
            click.echo(_listed())
        return
    asked = preset(name)
    if as_json:
        print_json(asked.described())
    else:
        click.echo(_lines(asked))


def _listed() -> str:
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
        *wrap("`tare workloads NAME` prints a study's lines, `tare weigh --workload NAME` weighs it.", width()),
    ]
    return "\n".join(lines)


def _lines(asked: Preset) -> str:
    from tare.report.columns import wrap

    network = named.find("models", asked.model)
    about = f"{network.TITLE}, {'training' if asked.mode == 'train' else 'inference'}, data: {asked.data}"
    head = [about, *([asked.note] if asked.note else []), f"timed: {', '.join(asked.phases)}"]
    lines = [f"# {line}" for text in head for line in wrap(text, width() - 2)]
    lines += ["workload:", *_part(asked.workload(), "  ")]
    if asked.quick:
        lines += ["# shorter, as `tare weigh` has it (`scale: 0.25` makes a smaller network):"]
        lines += [f"# {line}" for line in _part(asked.workload(quick=True), "  ")]
    return "\n".join(lines)


def _part(workload: Mapping[str, Mapping[str, Any]], indent: str) -> list[str]:
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

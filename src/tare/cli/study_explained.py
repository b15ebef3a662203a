"""`tare papers studies NAME`: one experiment of the papers: what it asks, varies, takes, needs, and what it ends in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.base.text import count_text, duration_text

if TYPE_CHECKING:
    from tare.plan.model import Cell
    from tare.study.model import Study

_SHOWN = 6  # levels of a setting
_KERNEL = ("ftrace", "perf", "syscalls")
_IDENTITY = ("platform", "workload", "workload.model", "workload.name")
_NAMED_ONCE = "control.power_mode.mode"  # the name of a mode, whose cores and clocks are settings of their own


def explained(name: str, at: Mapping[str, Study]) -> dict[str, Any]:
    """All of it as plain data, as `--json` has it; `at` is the study at each of its scales, from the smallest."""
    from tare.plan.matrix import aa_repeats, cells

    whole = list(at.values())[-1]
    scales: dict[str, dict[str, Any]] = {}
    for scale, study in at.items():
        found = cells(study)
        scales[scale] = {
            "seconds": round(_seconds(study)),
            "cells": len(found),
            "trials": (len(found) + len(aa_repeats(study, found))) * study.repeat.max,
            "varies": varied(found),
            "needs": needs(study),
        }
    return {
        "name": name,
        "asks": whole.about,
        "paper": whole.paper,
        "section": whole.section,
        "scales": scales,
        "compares": {"by": whole.compare.by, "metric": whole.compare.metric, "margin": whole.compare.margin},
        "claims": _claims(name),
        "rows": _rows(name),
        "charts": charts(whole, list(scales.values())[-1]["varies"]),
        "commands": list(whole.ends_in),
    }


def _seconds(study: Study) -> float:
    from tare.cli.studies import planned_seconds

    return planned_seconds(study)


def varied(found: Sequence[Cell]) -> dict[str, list[Any]]:
    """Setting -> its levels, where there are several; without those that only follow from platform and workload."""
    from tare.analysis.labels import text
    from tare.records.model import varied as varying

    several = [cell.settings for cell in found]
    names = [name for name in varying(several) if name != _NAMED_ONCE] or varying(several)
    known = [name for name in _IDENTITY if name in names]

    def follows(name: str) -> bool:
        pairs = {(tuple(text(each.get(one)) for one in known), text(each.get(name))) for each in several}
        return len(pairs) == len({identity for identity, _ in pairs})

    kept = [name for name in names if name in known or not follows(name)]
    levels = {name: list({text(each.get(name)): each.get(name) for each in several}.values()) for name in kept}
    return {name: values for name, values in levels.items() if len(values) > 1}


def needs(study: Study) -> list[str]:
    """What the device must have, in words; `tare check NAME` says what of it is missing here."""
    return list(dict.fromkeys(_needs(study)))


def _needs(study: Study) -> Iterator[str]:
    from tare.analysis.resources.energy import POWER_PROBES

    values = study.factors.values
    for stack in study.platforms:
        for choice in stack:
            yield from [] if choice.name == "bare" else [f"{choice.name}"]
    yield from ["KVM"] if any("kvm" in each for name, each in values.items() if name.endswith(".accel")) else []
    cores = [v for name, each in values.items() if name.endswith(".cores") for v in each if isinstance(v, int | float)]
    yield from [f"{max(cores):g} cores"] if cores and max(cores) > 2 else []
    yield from ["a GPU"] if "cuda" in values.get("workload.device", ()) else []
    for levels in study.controls:
        yield f"control {levels[0].name}"
    probes = [choice.name for choice in study.probes]
    power = [probe for probe in probes if probe in POWER_PROBES]
    yield from [f"for energy: {' or '.join(power)}"] if power else []
    kernel = [probe for probe in probes if probe in _KERNEL]
    yield from [f"for the kernel's view: root, {', '.join(kernel)}"] if kernel else []


def charts(study: Study, varies: Mapping[str, Sequence[Any]]) -> list[str]:
    """What its report draws, as far as the device reports it."""
    from tare.analysis.resources.energy import POWER_PROBES

    probes = {choice.name for choice in study.probes}
    numbers = {
        name: [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
        for name, values in varies.items()
    }
    curves = [name.rpartition(".")[2] for name, values in numbers.items() if len(values) >= 3]
    phases = True in study.factors.values.get("workload.phases", ())
    found = [
        "effect and interval of each level" if varies else "",
        *(f"curve by {name}" for name in dict.fromkeys(curves)),
        "trials by block",
        "parts of a step",
        "forward, backward and optimiser step" if phases else "",
        "energy, and time by energy" if probes & set(POWER_PROBES) else "",
        "use of CPU, memory and what else is sampled, over time",
        "system calls, page faults, write-backs" if probes & set(_KERNEL) else "",
        "claims",
    ]
    return [each for each in found if each]


def _claims(name: str) -> list[dict[str, str]]:
    from tare.papers.claims.deciding import every_claim

    mine = [claim for claim in every_claim() if claim.study == name]
    return [{"id": each.id, "statement": each.statement, "command": each.command} for each in mine]


def _rows(name: str) -> list[dict[str, str]]:
    """The rows of the papers' tables that ask this study, or a claim that it decides."""
    from tare.papers.claims.deciding import every_claim
    from tare.papers.tables.model import ByClaim, names, paper

    claims = {claim.id for claim in every_claim() if claim.study == name}
    return [
        {"id": row.id, "section": row.section, "quantity": row.quantity}
        for each in names()
        for row in paper(each).rows
        if any(one.claim in claims if isinstance(one, ByClaim) else one.study == name for one in row.ours)
    ]


def explained_text(found: Mapping[str, Any], width: int) -> str:
    """The same for people."""
    from tare.report.columns import table, wrap

    lines = wrap(f"{found['name']}: {found['asks']} ({found['paper']} {found['section']})", width, indent="  ")
    compares = found["compares"]
    by = f" by {compares['by']}" if compares["by"] else ""
    lines += ["", *wrap(f"Compares {compares['metric']}{by}, margin {compares['margin']:.0%}.", width), ""]
    scales = found["scales"]
    timed = [
        (name or "only", count_text(each["cells"], "cell"), str(each["trials"]), duration_text(each["seconds"]))
        for name, each in scales.items()
    ]
    lines += [table(timed, ("scale", "cells", "trials at most", "about"), width), ""]
    last = list(scales.values())[-1]
    for heading, key in (("Varies", "varies"), ("Needs", "needs")):
        for name, each in scales.items():
            if each is not last and each[key] == last[key]:
                continue
            said = _levels(each[key]) if key == "varies" else "; ".join(each[key])
            lines += wrap(f"{heading}{f' ({name})' if name else ''}: {said or 'nothing'}.", width, indent="  ")
    lines += ["", "Ends in:"]
    lines += _listed("claims", [f"{each['id']}: {each['statement']}" for each in found["claims"]], width)
    lines += _listed("rows", [f"{each['id']} {each['quantity']}" for each in found["rows"]], width)
    lines += _listed("charts", found["charts"], width)
    lines += _listed("commands", [f"tare {each}" for each in found["commands"]], width)
    smallest = next(iter(scales))
    option = f" --scale {smallest}" if smallest else ""
    lines += ["", *wrap(f"`tare check {found['name']}{option}` says what is missing here; `tare run` runs it.", width)]
    return "\n".join(lines)


def _levels(varied_by: Mapping[str, Sequence[Any]]) -> str:
    from tare.analysis.labels import text

    parts = []
    for name, values in varied_by.items():
        more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
        shown = [each for each in values if each is not None]
        ordered = sorted(shown) if all(isinstance(each, int | float) for each in shown) else shown
        told = ", ".join([*map(text, ordered[:_SHOWN]), *(["unset"] if len(shown) < len(values) else [])])
        parts.append(f"{name} {told}{more}")
    return "; ".join(parts)


def _listed(heading: str, items: Sequence[str], width: int) -> list[str]:
    from tare.report.columns import wrap

    lines = [f"  {heading}:" if items else f"  {heading}: none"]
    for item in items:
        lines += ["    " + line for line in wrap(item, width - 4, indent="  ")]
    return lines


def described_study(name: str, path: Path) -> dict[str, Any]:
    """The study in this file, explained."""
    from tare.study.load import at_every_scale

    return explained(name, at_every_scale(path, trust=True))

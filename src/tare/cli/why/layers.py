"""A container taken apart layer by layer: the options of `tare why` for it, the run, and what is printed."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.needs import needs_of
from tare.base.errors import ObstacleError
from tare.cli.options import NamesOption, need
from tare.cli.report import write_report
from tare.cli.scaffold import reading, say, weighed, width
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL

if TYPE_CHECKING:
    from tare.analysis.why.layers import Calls, Waterfall
    from tare.cli.why.runs import Trying
    from tare.plan.why import Stages

ROOT, ENGINE = "mounts", "docker"  # layers that cannot be switched: they are measured whatever --only names
_OPTIONS = (
    click.option("--layers", is_flag=True, help="Take it apart layer by layer, whatever was found before."),
    click.option("--no-layers", is_flag=True, help="Do not, even if the cost stays unexplained."),
    click.option("--only", metavar="LAYERS", type=NamesOption("layer", (ROOT, *LAYERS, ENGINE)),
                 help="Only these layers, such as cpu,seccomp; mounts and docker are always measured.  [default: all]"),
    click.option("--cumulative", is_flag=True, help="Only put layers on one after the other; take none off singly."),
    click.option("--no-calls", is_flag=True,
                 help="Do not count system calls (one more trial a layer, traced, untimed)."),
)  # fmt: skip


@dataclass(frozen=True)
class Layering:
    """What its options say: whether to take it apart, and how."""

    always: bool
    never: bool
    only: tuple[str, ...] | None
    cumulative: bool
    calls: bool  # whether system calls are counted


def layer_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which the verb gets as one value called `layering`."""

    @functools.wraps(verb)
    def taking(
        *, layers: bool, no_layers: bool, only: tuple[str, ...] | None, cumulative: bool, no_calls: bool, **others: Any
    ) -> Any:
        need(not (layers and no_layers), "give either --layers or --no-layers, not both.")
        return verb(layering=Layering(layers, no_layers, only, cumulative, not no_calls), **others)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking


@dataclass(frozen=True)
class Apart:
    """A container that was taken apart: what each layer costs, and how many system calls it makes."""

    waterfall: Waterfall
    calls: Calls
    skipped: dict[str, str]  # layer: why it was not tried

    def as_json(self) -> dict[str, Any]:
        return {**self.waterfall.as_json(), "system_calls": self.calls.as_json(), "skipped": self.skipped}

    def tell(self, folder: Path) -> None:
        from tare.report.text.why import waterfall_text

        report = folder / "report.html"
        with reading(folder / "layers") as store:
            write_report(store, weighed(store), report)
        click.echo(waterfall_text(self.waterfall, self.skipped, width(), self.calls))
        click.echo(f"report: {report}")


def taken_apart(
    run: Trying, platform: str, fields: dict[str, Any], profile: dict[str, Any], layering: Layering
) -> Apart | None:
    """Run each layer put on and taken off; `fields` are the container's, `profile` is for runc alone."""
    from tare.analysis.why.layers import Calls

    has_image = "image" in fields
    if has_image and platform != "runc":
        say(f"{platform} does not take an image apart layer by layer: unpack it, and add `--in runc --image FOLDER`.")
        return None
    with needs_of([] if has_image else ["docker"]):
        skipped = _skipped(fields, layering.only)
        stages = _stages({**fields, **profile}, fields, skipped)
        without = [] if layering.cumulative else stages.without
        sides = [*stages.chain, *stages.aside, *without, *stages.engines]
        say(f"layer by layer: {len(sides) + 1} sides in {run.repeat} blocks, about {run.time_text(len(sides) + 1)}.")
        found = run.waterfall("layers", sides)
        if not layering.calls:
            return Apart(found, Calls(missing="system calls were not counted (--no-calls)."), skipped)
        return Apart(found, run.calls([*stages.chain, *stages.aside, *stages.engines]), skipped)


def _stages(runc: dict[str, Any], shared: dict[str, Any], skipped: dict[str, str]) -> Stages:
    from tare.base.host import LocalHost
    from tare.parts.find import find
    from tare.plan.why import Stages

    host = LocalHost()
    whole = find("platforms", "runc").model_validate(runc)
    if obstacles := whole.obstacles(host):  # type: ignore[attr-defined]
        raise ObstacleError("a container cannot be taken apart here, and nothing was run:", obstacles)
    engines = []
    if "image" in shared:
        skipped["docker"] = "the image is a folder here, which docker does not take."
    elif why := find("platforms", "docker").model_validate(shared).obstacles(host):  # type: ignore[attr-defined]
        skipped["docker"] = " ".join(map(str, why))
    elif "seccomp_profile" not in runc:
        engines.append({"docker": shared} if shared else "docker")
    return Stages(runc, tuple(layer for layer in USUAL if layer not in skipped), engines)


def _skipped(limits: dict[str, Any], only: tuple[str, ...] | None) -> dict[str, str]:
    from tare.plan.why import skipped_layers

    skipped = skipped_layers(limits, only)
    missing = ", ".join(sorted(NEEDED_BY_USER & skipped.keys()))
    need(not (only and "user" in only and missing), f"--only: the layer user needs {missing}; name them too.")
    return skipped

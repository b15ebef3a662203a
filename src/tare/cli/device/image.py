"""`tare device image`: make an image that carries this device's own software, and check that one does."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.needs import needs_of
from tare.base.errors import ObstacleError
from tare.cli.options import FOLDER, json_option, need, output_option
from tare.cli.scaffold import Verbs, print_json, say, width

if TYPE_CHECKING:
    from tare.analysis.parity import Line


@click.group("image", cls=Verbs)
def command() -> None:
    """Make an image with this device's own software, or check what an image carries.

    A comparison of bare metal with a container means little when the two run different software.
    """


@command.command("build")
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
    from tare.drivers.images import TAKERS, gather

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


@command.command("check")
@click.argument("image")
@click.option("--in", "inside", metavar="PLATFORM", default="docker", show_default=True, help="Where it is opened.")
@json_option
def check(image: str, inside: str, as_json: bool) -> None:
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
    if as_json:
        print_json({"image": image, "platform": inside, "same": same, "facts": [line.as_json() for line in lines]})
    else:
        _tell(image, lines, same)
    if not same:
        raise SystemExit(1)


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


def _tell(image: str, lines: Sequence[Line], same: bool) -> None:
    """What differs as a table, then the verdict."""
    from tare.report.columns import table

    apart = [line for line in lines if not line.same]
    if apart:
        rows = [
            [line.key, _shown(line.device), _shown(line.image), "yes" if line.matters else "no", line.why]
            for line in apart
        ]
        click.echo(table(rows, ["differs", "device", "image", "matters", "because"], width()))
    alike = len(lines) - len(apart)
    verdict = (
        f"{image} carries the same software as this device: {alike} facts agree, and nothing that matters differs."
        if same
        else f"{image} does NOT carry the same software as this device: see what matters above."
    )
    click.echo(click.wrap_text(verdict, width()))


def _shown(value: str | None) -> str:
    return "none" if value is None else value

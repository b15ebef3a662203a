"""A figure into the file that the user named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tare.cli.options import need, say
from tare.cli.report import written

if TYPE_CHECKING:
    from tare.report.figure import Figure

KINDS = ("svg", "pdf", "png")


def need_kind(output: Path | None) -> None:
    """Refuse a file that we cannot draw, before anything is read."""
    need(output is None or output.suffix[1:] in KINDS, f"-o: a figure ends in .{', .'.join(KINDS)}.")


def draw(figure: Figure, output: Path, width_points: int | None = None) -> None:
    """What kind of file it is, its name says."""
    from tare.report.drawing import WIDTH_POINTS, as_file

    need_kind(output)
    written(output, as_file(figure, output.suffix[1:], width_points or WIDTH_POINTS))
    say(f"{figure.title}: {output}")

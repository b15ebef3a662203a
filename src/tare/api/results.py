"""What a comparison found, for Python: the word, the effect and its interval, as text, as HTML and as figures."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.base.errors import StudyError
from tare.base.near_name import unknown_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tare.analysis.model import Comparison, Weighing, Word
    from tare.records.store import Store
    from tare.report.figure import Figure

_HEIGHT_PX = 560


@dataclass(frozen=True)
class Chart:
    """A figure of the report: shown in a notebook, or saved as svg, pdf or png."""

    figure: Figure

    @property
    def reading(self) -> str:
        """One sentence: what to see in it."""
        return self.figure.reading

    def svg(self) -> str:
        """As an SVG document."""
        from tare.report.figure import as_file

        return as_file(self.figure, "svg").decode()

    def save(self, path: str | Path, *, width_mm: float = 162) -> Path:
        """Into a file, whose name says the kind: .svg, .pdf or .png."""
        from tare.report.figure import as_file

        target = Path(path)
        if target.suffix not in (".svg", ".pdf", ".png"):
            raise StudyError(f"{target}: a figure ends in .svg, .pdf or .png.")
        target.write_bytes(as_file(self.figure, target.suffix[1:], width_mm / 25.4 * 72))
        return target

    def _repr_svg_(self) -> str:
        return self.svg()

    def __repr__(self) -> str:
        return f"<tare.Chart {self.figure.name}: {self.figure.reading}>"


@dataclass(frozen=True)
class Result:
    """Levels against a baseline. With one level, `verdict`, `effect` and `interval` are its; else see `comparisons`.

    Printing it gives what `tare compare` prints; in a notebook it is the first screen of the report.
    """

    weighing: Weighing
    store: Path | None = None
    """Where the trials lie; None for a table."""

    @property
    def comparisons(self) -> Sequence[Comparison]:
        """One for each level, in the order of the report."""
        return self.weighing.comparisons

    @property
    def verdict(self) -> Word:
        """`slower`, `faster`, `equivalent` or `cannot_tell`."""
        return self._only().verdict

    @property
    def effect(self) -> float | None:
        """A share: 0.07 is +7 %. None where a side has no usable trial."""
        return self._only().effect

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of the effect; None where there are too few blocks for one."""
        return self._only().low, self._only().high

    @property
    def sentence(self) -> str:
        """The answer for people."""
        from tare.analysis.sentences import weighing_json

        return str(weighing_json(self.weighing)["comparisons"][self._place()]["sentence"])

    @property
    def notes(self) -> Sequence[str]:
        """What there is to doubt."""
        return self.weighing.notes

    def __str__(self) -> str:
        from tare.report.text.verdict import verdict_text

        return verdict_text(self.weighing, 80)

    def __repr__(self) -> str:
        if len(self.comparisons) != 1:
            return f"<tare.Result of {len(self.comparisons)} comparisons of {self.weighing.metric}>"
        low, high = self.interval
        found = "" if self.effect is None else f" {self.effect:+.1%}"
        bounds = "" if low is None or high is None else f" [{low:+.1%}, {high:+.1%}]"
        return f"<tare.Result {self.weighing.metric}: {self.verdict}{found}{bounds}>"

    def _repr_html_(self) -> str:
        from tare.report.html import first_screen

        with _opened(self.store) as store:
            shown = first_screen(self.weighing, store.records() if store is not None else [])
        return (
            f'<iframe title="tare" sandbox srcdoc="{html.escape(shown)}" '
            f'style="width: 100%; height: {_HEIGHT_PX}px; border: 0"></iframe>'
        )

    def as_json(self) -> Mapping[str, Any]:
        """What `tare compare --json` prints."""
        from tare.analysis.sentences import weighing_json

        return weighing_json(self.weighing)

    def plots(self) -> dict[str, Chart]:
        """The figures of the report, by name; one of a table has none."""
        from tare.report.html import page

        with _opened(self.store) as store:
            if store is None:
                return {}
            content = page(self.weighing, store.records(), "", "", (), store)
        return {figure.name: Chart(figure) for figure in content.figures}

    def plot(self, name: str | None = None) -> Chart:
        """One figure of the report; the first where none is named."""
        found = self.plots()
        if not found:
            raise StudyError("nothing to draw: there is no store, or no trial of it has a figure.")
        if name is not None and name not in found:
            raise StudyError(unknown_name("figure", name, list(found)))
        return found[name or next(iter(found))]

    def _only(self) -> Comparison:
        return self.comparisons[self._place()]

    def _place(self) -> int:
        if len(self.comparisons) != 1:
            raise StudyError(
                f"there are {len(self.comparisons)} comparisons, and no single verdict: look at `comparisons`."
            )
        return 0


@contextmanager
def _opened(path: Path | None) -> Iterator[Store | None]:
    from tare.records.store import Store

    if path is None:
        yield None
        return
    with Store.open(path) as store:
        yield store

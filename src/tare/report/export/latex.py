"""The verdict table for an article: booktabs, nothing else is needed."""

from __future__ import annotations

from collections.abc import Sequence

from tare.report.page import Page
from tare.report.words import safe_text

_SIGNS = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "µ": r"\textmu{}", "±": r"$\pm$", "\N{MINUS SIGN}": r"$-$", "\N{RIGHTWARDS ARROW}": r"$\to$", "|": r"\textbar{}",
}  # fmt: skip


def as_latex(page: Page) -> str:
    """One table environment; what was measured and how sure it is stands in its caption."""
    rows = [(row.level, row.median, row.effect, row.interval, row.phrase, row.n) for row in page.verdicts]
    caption = " ".join(filter(None, [f"{page.question}: {page.metric}.", f"{page.counts}.", page.coverage]))
    lines = [
        r"% needs \usepackage{booktabs}",
        r"\begin{table}",
        rf"  \caption{{{_safe(caption)}}}",
        r"  \begin{tabular}{lrrrlr}",
        r"    \toprule",
        "    " + _line(("level", "median", "effect", "interval", "verdict", "n")),
        r"    \midrule",
        *("    " + _line(row) for row in rows),
        r"    \bottomrule",
        r"  \end{tabular}",
        *(f"  % {_safe(sentence)}" for sentence in (*page.taints, *(cell.text for cell in page.left_out))),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return " & ".join(map(_safe, cells)) + r" \\"


def _safe(text: str) -> str:
    return "".join(_SIGNS.get(sign, sign) for sign in safe_text(text).replace("\n", " "))

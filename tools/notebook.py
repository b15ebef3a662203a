"""Makes docs/examples/notebook.ipynb and runs it, on a kept store: what `import tare` looks like in a notebook.

    python -m venv .venv-notebook && .venv-notebook/bin/pip install -e . nbclient ipykernel
    .venv-notebook/bin/python tools/notebook.py

`tests/unit/api/test_notebook.py` runs its cells without nbclient and compares what they print with what is kept.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "examples" / "notebook.ipynb"
CELLS = (
    (
        "markdown",
        "# tare in a notebook\n\nA kept store of this repository: does seccomp cost training anything in Docker? Run "
        "from `docs/examples`; made and executed by `tools/notebook.py`.",
    ),
    (
        "code",
        'import tare\n\nstore = tare.open("../../studies-results/cpu2/s0-seccomp.tare")\n'
        "trials = store.trials(usable=True)\nlen(trials)",
    ),
    ("markdown", "Every trial is a row; `.to_pandas()`, `.to_polars()` and `.to_arrow()` give a frame of it."),
    (
        "code",
        "for row in list(trials)[:4]:\n"
        '    step_ms = row["metric.step_s"] * 1e3\n'
        '    print(row["block"], row["setting.workload.model"], row["state"], f"{step_ms:.2f} ms")',
    ),
    ("markdown", "The verdicts, each with its effect and interval. `result` alone shows the report's first screen."),
    (
        "code",
        "result = store.compare(margin=0.05)\n"
        "for each in result.comparisons:\n"
        '    print(f"{each.level}: {each.verdict}, {each.effect:+.1%} [{each.low:+.1%}, {each.high:+.1%}]")',
    ),
    ("markdown", "Every step of every trial."),
    (
        "code",
        'steps = store.marks("step")\n'
        'times = sorted(row["end_s"] - row["begin_s"] for row in steps)\n'
        'print(f"{len(times):,} steps, median {times[len(times) // 2] * 1e3:.1f} ms")',
    ),
    ("markdown", "A figure for a paper: one column, 84 mm. `.save(\"effects.pdf\", width_mm=84)` writes it."),
    ("code", "print(*sorted(result.plots())[:3])"),
)  # fmt: skip


def made() -> Any:
    import nbformat

    book = nbformat.v4.new_notebook()
    for number, (kind, text) in enumerate(CELLS):
        make = nbformat.v4.new_markdown_cell if kind == "markdown" else nbformat.v4.new_code_cell
        book.cells.append(make(text, id=f"cell-{number}"))
    return book


def main() -> int:
    import nbformat
    from nbclient import NotebookClient

    book = made()
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(FILE.parent)}}).execute()
    for cell in book.cells:
        cell.metadata.pop("execution", None)  # times of this machine
    book.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(book, FILE)
    sys.stderr.write(f"notebook: {FILE.relative_to(ROOT)}, {FILE.stat().st_size:,} bytes\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The notebook of the docs: its cells still run, and still print what is kept in it."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import json
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[3]
FILE = REPOSITORY / "docs" / "examples" / "notebook.ipynb"


def run(source: str, names: dict[str, Any]) -> str:
    """What a cell prints, and the value of its last line, as a notebook shows it."""
    *first, last = ast.parse(source).body
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(ast.Module(first, []), "cell", "exec"), names)
        exec(compile(ast.Interactive([last]), "cell", "single"), names)  # shows the value of an expression
    return out.getvalue()


def kept(cell: dict[str, Any]) -> str:
    texts = []
    for output in cell["outputs"]:
        text = output.get("text") or output["data"]["text/plain"]
        texts.append("".join(text).rstrip("\n") + "\n")
    return "".join(texts)


def test_its_cells_run_and_print_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILE.parent)
    names: dict[str, Any] = {}
    cells = [cell for cell in json.loads(FILE.read_text("utf-8"))["cells"] if cell["cell_type"] == "code"]
    assert len(cells) >= 4
    for cell in cells:
        assert run("".join(cell["source"]), names) == kept(cell)


def test_it_is_the_one_that_the_tool_makes_and_is_small() -> None:
    spec = importlib.util.spec_from_file_location("tools_notebook", REPOSITORY / "tools" / "notebook.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    cells = json.loads(FILE.read_text("utf-8"))["cells"]
    assert [(cell["cell_type"], "".join(cell["source"])) for cell in cells] == [tuple(each) for each in tool.CELLS]
    assert FILE.stat().st_size < 50_000

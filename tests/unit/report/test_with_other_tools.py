"""A store in other tools, by the lines that docs/reference/stores-and-json.md has for them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from click.testing import CliRunner

from tare.cli import tare
from tare.records.store import Store

ROOT = Path(__file__).parents[3]
PACK = ROOT / "studies-results" / "cpu2" / "s4-platforms.tare"
PAGE = (ROOT / "docs" / "reference" / "stores-and-json.md").read_text("utf-8")


def lines_for(tool: str) -> list[str]:
    """The statements after `import TOOL`, up to the next import."""
    (block,) = re.findall(
        r"```python\n(.*?)```", PAGE.partition("## In other tools")[2].partition("\n## ")[0], re.DOTALL
    )
    found = block.partition(f"import {tool}\n")[2].partition("\nimport ")[0]
    return [each for each in re.split(rf"\n(?={tool}\.)", found.strip()) if each]


@pytest.fixture(scope="module")
def medians(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """In a folder with `trials.parquet` and `STORE`; what their medians are."""
    folder, before = tmp_path_factory.mktemp("tools"), Path.cwd()
    with Store.open(PACK) as store:
        (folder / "STORE").symlink_to(store.root)
        assert CliRunner().invoke(tare, ["report", str(PACK), "-o", str(folder / "trials.parquet")]).exit_code == 0
        os.chdir(folder)
        usable = [record for record in store.records() if record.state == "ok"]
        levels = {str(record.settings["platform"]) for record in usable}
        walls = {
            level: [record.metrics["wall_s"] for record in usable if record.settings["platform"] == level]
            for level in levels
        }
        yield {level: pytest.approx(median(found)) for level, found in walls.items()}
        os.chdir(before)


def test_duckdb(medians: dict[str, Any]) -> None:
    import duckdb

    table, series = (eval(line, {"duckdb": duckdb}).fetchall() for line in lines_for("duckdb"))  # noqa: S307

    assert dict(table) == medians
    assert len(series) > 1 and all(least > 1e6 for _, least in series)


@pytest.mark.parametrize("tool", ["pandas", "polars"])
def test_a_data_frame(tool: str, medians: dict[str, Any]) -> None:
    library = pytest.importorskip(tool, reason=f"there is no {tool} in this Python.")

    (line,) = lines_for(tool)
    found = eval(line, {tool: library})  # noqa: S307

    assert dict(found.items() if tool == "pandas" else found.rows()) == medians

"""No module imports another one that imports it back, neither at the top of a file nor inside a function."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter

import grimp
import pytest


def cycle(imports: dict[str, set[str]]) -> list[str]:
    """The modules along one cycle; empty where there is none."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_a_cycle_is_found() -> None:
    assert set(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})) == {"a", "b", "c"}


@pytest.mark.parametrize("package", ["tare", "tare_inside"])
def test_there_is_no_import_cycle(package: str) -> None:
    graph = grimp.build_graph(package, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    # What `import tare` gives is named in its own file for type checkers, and imported when it is used.
    imports["tare"] = {each for each in imports.get("tare", ()) if not each.startswith("tare.api.")}
    assert cycle(imports) == []

"""tools/counts.py on a small tree made for it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def counts() -> ModuleType:
    spec = importlib.util.spec_from_file_location("counts", REPOSITORY / "tools" / "counts.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["counts"] = module
    spec.loader.exec_module(module)
    return module


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / "pkg" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "pkg" / "__init__.py").touch()
    return root


def test_blank_lines_comments_and_docstrings_are_no_code(counts: ModuleType, tmp_path: Path) -> None:
    source = write(
        tmp_path,
        a='"""About\nit."""\n\n# why\nX = """two\nlines"""  # of code\n\n\ndef f():\n    "doc"\n    return X\n',
    )

    assert len(counts.read_modules(source)["pkg.a"].code) == 4


def test_a_cycle_through_a_function_is_told_apart_and_types_make_none(counts: ModuleType, tmp_path: Path) -> None:
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pkg.a\n"
    source = write(
        tmp_path,
        a="from pkg.b import f\n",
        b="def f():\n    from pkg import a\n    return a\n",
        c="import pkg.a\n" + typed,
    )

    modules = counts.read_modules(source)

    assert counts.cycles(counts.graph(modules, "module")) == []
    assert counts.cycles(counts.graph(modules, "module", "function")) == [["pkg.a", "pkg.b"]]


def test_relative_imports_are_found(counts: ModuleType, tmp_path: Path) -> None:
    source = write(tmp_path, a="from . import b\nfrom .c import X\n", b="", c="X = 1\n")

    assert counts.graph(counts.read_modules(source), "module")["pkg.a"] == {"pkg.b", "pkg.c"}


def test_private_functions_used_once_are_counted_with_their_size(counts: ModuleType, tmp_path: Path) -> None:
    source = write(
        tmp_path,
        a="def _one():\n    return 1\n\ndef _two():\n    return 2\n\ndef f():\n    return _one(), _two(), _two()\n",
    )

    assert counts.private_functions(counts.read_modules(source).values()) == (3, [("pkg.a._one", 2)])


def test_entries_of_a_folder_are_its_modules_and_folders(counts: ModuleType, tmp_path: Path) -> None:
    source = write(tmp_path, a="", b="", **{"sub/c": ""})

    assert counts.entries_per_folder(source) == {"pkg": 3, "pkg/sub": 1}

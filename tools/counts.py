"""Counts the code of src: how much there is, how finely it is cut, what is there twice, which imports run in a circle.

    tools/counts.py             print the counts; --json for machines
    tools/counts.py --check     and exit with 1 where one is over its limit (LIMITS)

A code line is one with a token on it that is neither a comment nor part of a docstring.
"""

from __future__ import annotations

import argparse
import ast
import gc
import io
import json
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
SMALL_MODULE = 40  # lines besides imports, at most
SMALL_FUNCTION = 6  # code lines, at most

# What --check refuses, as "at most"; a count without a limit is only printed.
LIMITS: dict[str, float] = {
    "code_lines": 78_330,  # the aim is 60,000: docs/decisions/0047-size.md
    "largest_folder": 28,
    "verbs": 16,
    "cycles": 0,
}

SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


@dataclass(frozen=True)
class Import:
    """One import statement: the modules it needs, and when it is run."""

    names: tuple[str, ...]
    when: str  # "module", "function", or "types" (under TYPE_CHECKING)


@dataclass(frozen=True)
class Module:
    """One file of the source."""

    name: str
    path: Path
    tree: ast.Module
    nodes: tuple[ast.AST, ...]  # all of the tree's
    code: frozenset[int]  # the numbers of its code lines
    import_lines: int
    imports: tuple[Import, ...] = field(default=())

    @property
    def own_lines(self) -> int:
        return len(self.code) - self.import_lines


def read_modules(source: Path) -> dict[str, Module]:
    """Every module under `source`, by its dotted name."""
    paths = {dotted(path, source): path for path in sorted(source.rglob("*.py"))}
    return {name: read_module(name, path, frozenset(paths)) for name, path in paths.items()}


def dotted(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def read_module(name: str, path: Path, known: frozenset[str]) -> Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    nodes = tuple(ast.walk(tree))
    code = code_lines(text, nodes)
    statements = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = {line for node in statements for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    return Module(name, path, tree, nodes, frozenset(code), len(lines & code), tuple(imports_of(tree, package, known)))


def code_lines(text: str, nodes: Iterable[ast.AST]) -> set[int]:
    """The lines with code on them: blank ones, comments and docstrings are none."""
    docstrings: set[int] = set()
    for node in nodes:
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                docstrings |= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SKIPPED:
            lines.update(range(token.start[0], token.end[0] + 1))
    return lines - docstrings


def imports_of(tree: ast.AST, package: str, known: frozenset[str], when: str = "module") -> Iterator[Import]:
    """Every import below this node, and whether it is run with the module, in a function, or for types only."""
    for node in statements_in(tree):
        if isinstance(node, ast.Import):
            yield Import(tuple(found for alias in node.names if (found := nearest(alias.name, known))), when)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parts, *([node.module] if node.module else [])])
            whole = [found for alias in node.names if (found := nearest(f"{base}.{alias.name}", known))]
            yield Import(tuple(dict.fromkeys(whole)), when)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imports_of(node, package, known, "types" if when == "types" else "function")
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.body:
                yield from imports_of(ast.Module([child], []), package, known, "types")
            for child in node.orelse:
                yield from imports_of(ast.Module([child], []), package, known, when)
        else:
            yield from imports_of(node, package, known, when)


def statements_in(node: ast.AST) -> Iterator[ast.AST]:
    """The statements right below it, and what holds some: no expression does, and most nodes are expressions."""
    for name in ("body", "orelse", "handlers", "finalbody", "cases"):
        below = getattr(node, name, ())
        yield from below if isinstance(below, list) else ()


def nearest(name: str, known: frozenset[str]) -> str | None:
    """The module that an imported name lies in: `tare.base.host.Host` is `tare.base.host`."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name or None


def graph(modules: Mapping[str, Module], *when: str) -> dict[str, set[str]]:
    """Module -> the modules that it imports then."""
    return {
        name: {other for each in module.imports if each.when in when for other in each.names if other != name}
        for name, module in modules.items()
    }


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other in a circle (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in sorted(edges):
        if node not in index:
            visit(node)
    return sorted(found)


def private_functions(modules: Iterable[Module]) -> tuple[int, list[tuple[str, int]]]:
    """How many top-level functions there are, and the private ones that are used once: name, code lines."""
    total, once = 0, []
    for module in modules:
        used = Counter(node.id for node in module.nodes if isinstance(node, ast.Name))
        used += Counter(node.attr for node in module.nodes if isinstance(node, ast.Attribute))
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                total += 1
                if node.name.startswith("_") and not node.name.startswith("__") and used[node.name] == 1:
                    lines = module.code & set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
                    once.append((f"{module.name}.{node.name}", len(lines)))
    return total, once


def entries_per_folder(source: Path) -> dict[str, int]:
    """Folder -> its modules and the folders in it, `__init__.py` left out."""
    counts: Counter[str] = Counter()
    for path in source.rglob("*.py"):
        if path.name != "__init__.py":
            counts[str(path.parent.relative_to(source))] += 1
    for folder in {path.parent for path in source.rglob("*.py")}:
        if folder != source and folder.parent != source:
            counts[str(folder.parent.relative_to(source))] += 1
    return dict(counts.most_common())


def twice(names: Iterable[str]) -> dict[str, int]:
    return {name: count for name, count in Counter(names).most_common() if count > 1}


def verb_counts() -> dict[str, int]:
    """Verbs at the top, verbs that do something, and all their options; by walking the command tree."""
    import click

    sys.path.insert(0, str(SOURCE))
    from tare.cli import tare

    def walk(command: click.Command, context: click.Context) -> Iterator[click.Command]:
        yield command
        if isinstance(command, click.Group):
            for name in command.list_commands(context):
                below = command.get_command(context, name)
                assert below is not None
                yield from walk(below, click.Context(below, info_name=name, parent=context))

    root = click.Context(tare, info_name="tare")
    _, *below = walk(tare, root)
    options = sum(isinstance(parameter, click.Option) for command in below for parameter in command.params)
    groups = sum(isinstance(command, click.Group) for command in below)
    return {"verbs": len(tare.list_commands(root)), "all_verbs": len(below) - groups, "options": options}


def count(source: Path) -> dict[str, object]:
    """Every count, by its name."""
    modules = read_modules(source)
    lines = sum(len(module.code) for module in modules.values())
    importers: defaultdict[str, set[str]] = defaultdict(set)
    for name, others in graph(modules, "module", "function", "types").items():
        for other in others:
            importers[other].add(name)
    lonely = [module for name, module in modules.items() if len(importers[name]) == 1]
    total, once = private_functions(modules.values())
    folders = entries_per_folder(source)
    classes = [node.name for m in modules.values() for node in m.tree.body if isinstance(node, ast.ClassDef)]
    at_start = cycles(graph(modules, "module"))
    any_time = cycles(graph(modules, "module", "function"))
    return {
        "code_lines": lines,
        "files": len(modules),
        "import_share": round(sum(module.import_lines for module in modules.values()) / lines, 4),
        "one_importer": len(lonely),
        "one_importer_lines": sum(len(module.code) for module in lonely),
        "small_modules": sum(module.own_lines <= SMALL_MODULE for module in modules.values()),
        "top_level_functions": total,
        "private_used_once": len(once),
        "private_used_once_share": round(len(once) / total, 4),
        "private_used_once_small": sum(size <= SMALL_FUNCTION for _, size in once),
        "largest_folder": max(folders.values()),
        "folders": folders,
        "module_names_twice": twice(m.path.name for m in modules.values() if m.path.name != "__init__.py"),
        "class_names_twice": twice(classes),
        **verb_counts(),
        "cycles": len(any_time),
        "cycles_of_modules": at_start,
        "cycles_with_functions": [group for group in any_time if group not in at_start],
    }


def told(found: Mapping[str, object]) -> Iterator[str]:
    """The counts as lines for people."""
    most = 8

    def listed(counts: object) -> str:
        assert isinstance(counts, dict)
        return ", ".join(f"{name} x{count}" for name, count in list(counts.items())[:most]) or "none"

    folders = found["folders"]
    assert isinstance(folders, dict)
    yield f"code lines / files             {found['code_lines']:,} / {found['files']:,}"
    yield f"share of import lines          {found['import_share']:.1%}"
    yield f"modules with one importer      {found['one_importer']} ({found['one_importer_lines']:,} lines)"
    yield f"modules of <= {SMALL_MODULE} own lines     {found['small_modules']}"
    yield (
        f"private functions used once    {found['private_used_once']} of {found['top_level_functions']:,} functions "
        f"({found['private_used_once_share']:.0%}); {found['private_used_once_small']} of <= {SMALL_FUNCTION} lines"
    )
    yield f"entries per folder, largest    {', '.join(f'{name} {n}' for name, n in list(folders.items())[:most])}"
    yield f"module names twice             {listed(found['module_names_twice'])}"
    yield f"class names twice              {listed(found['class_names_twice'])}"
    below = f"{found['all_verbs']} with those below, {found['options']} options"
    yield f"verbs                          {found['verbs']}, {below}"
    for name, kind in (("cycles_of_modules", "at import"), ("cycles_with_functions", "with functions")):
        groups = found[name]
        assert isinstance(groups, list)
        yield f"import cycles {kind:<16} {len(groups)}"
        yield from (f"    {', '.join(group)}" for group in groups)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a count is over its limit")
    parser.add_argument("--json", action="store_true", help="print every count as JSON")
    arguments = parser.parse_args()
    gc.disable()  # half a million nodes that stay, which it would look at again and again
    found = count(SOURCE)
    sys.stdout.write(json.dumps(found, indent=2) + "\n" if arguments.json else "\n".join(told(found)) + "\n")
    over = [name for name, most in LIMITS.items() if float(str(found[name])) > most]
    for name in over if arguments.check else ():
        sys.stderr.write(f"counts: {name} is {found[name]}, over its limit of {LIMITS[name]:g}\n")
    return 1 if over and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())

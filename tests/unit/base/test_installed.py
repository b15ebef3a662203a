"""How to get what tare needs, without naming tare to a package index, where the name is another project's."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from tare.base.installed import other_tares, pip_install
from tare.cli import tare

ROOT = Path(__file__).parents[3]
_INSTALLER = re.compile(
    r"\b(?:(?:pip3?|uv pip|pipx|uv tool) (?:install|download|run|upgrade|inject|wheel)|uv add|uvx|pipx run|poetry add)"
    r"\s+([^`\n|&;#]*)"
)
_OURS = re.compile(r"tare(?:[-_.]bench)?(?:\[[^]]*\])?(?:[=<>!~ ].*)?", re.IGNORECASE)


def named_to_an_index(text: str) -> Iterator[str]:
    """Commands of an installer that are given tare's name, and no folder, wheel or address."""
    for found in _INSTALLER.finditer(text.replace("\\\n", " ")):
        try:
            words = shlex.split(found[1])
        except ValueError:
            words = found[1].replace("'", " ").replace('"', " ").split()
        if any(_OURS.fullmatch(word) for word in words) and "--from" not in words and " @ " not in found[1]:
            yield found[0]


def a_package(site: Path, name: str, version: str, *wanted: str) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {w}" for w in wanted)]
    (folder / "METADATA").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("command", "is_wrong"),
    [
        ('pip install "tare[report]"', True),
        ("run: pip install 'tare-bench[nvidia]>=0.1'", True),
        ("pip install -U tare", True),
        ("uv pip install --python /opt/python tare_bench", True),
        ("pipx run tare-bench", True),
        ("uvx tare weigh", True),
        ("pip install '/path/to/tare[report]'", False),
        ("pip install ./tare_bench-0.1.0-py3-none-any.whl", False),
        ("uvx --from ./tare_bench-0.1.0-py3-none-any.whl tare weigh", False),
        ("pip install pandas", False),
    ],
)
def test_a_command_that_asks_an_index_for_tare_is_found(command: str, is_wrong: bool) -> None:
    assert bool([*named_to_an_index(command)]) is is_wrong


def test_no_page_and_no_message_asks_an_index_for_tare() -> None:
    pages = [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml", *ROOT.glob("*.yml")]
    pages += [path for path in (ROOT / "docs").rglob("*") if path.suffix in (".md", ".ipynb", ".py")]
    pages += [path for path in (ROOT / "tools").iterdir() if path.is_file()]
    sources = [*(ROOT / "src").rglob("*.py")]
    texts = [(path, path.read_text(errors="replace")) for path in pages]
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append((path, node.value))
    wrong = [f"{path.relative_to(ROOT)}: {each}" for path, text in texts for each in named_to_an_index(text)]

    assert len(pages) > 100
    assert len(sources) > 200
    assert not wrong, "\n".join(wrong)


def test_an_extra_is_its_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ("click>=8.1", "starlette>=0.40; extra == 'serve'", 'uvicorn[standard]>=0.30 ; extra == "serve"')
    a_package(tmp_path, "tare-bench", "9.9", *wanted)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert shlex.split(pip_install("serve")) == ["pip", "install", "starlette>=0.40", "uvicorn[standard]>=0.30"]
    assert shlex.split(pip_install("newer")) == ["pip", "install", f"{ROOT}[newer]"]  # not in what was installed


def test_of_sources_that_are_not_installed_it_comes_from_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])

    assert shlex.split(pip_install("serve")) == ["pip", "install", f"{ROOT}[serve]"]


def test_every_message_of_an_extra_here_names_its_libraries_and_never_tare() -> None:
    for extra in ("nvidia", "report", "serve", "fleet", "slurm", "mlflow", "wandb"):
        assert not [*named_to_an_index(pip_install(extra))]
        assert "[" not in pip_install(extra)  # the environment of tests is an installed one


def test_another_project_s_tare_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_package(tmp_path / "site", "tare", "0.3")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    script = tmp_path / "bin" / "tare"
    script.parent.mkdir()
    script.write_text("#!/usr/bin/python3\nfrom tare import main\nmain()\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:/usr/bin")

    package, program = other_tares()
    assert "the package tare 0.3 of another project" in package
    assert str(script) in program
    assert "-m tare" in program

    done = CliRunner().invoke(tare, ["doctor"])
    assert "tare 0.3 of another project" in " ".join(done.stdout.split())


def test_our_own_script_is_no_other_project_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "tare"
    script.write_text("#!/usr/bin/python3\nimport sys\nfrom tare.cli import main\nsys.exit(main())\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert other_tares() == []

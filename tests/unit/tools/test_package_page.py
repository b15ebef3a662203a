"""What a release needs: one version everywhere, and a page on the index whose links lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from tare import __version__

ROOT = Path(__file__).parents[3]
AT = "https://forge.example/them/tare"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The build hook, with a stand-in for the class of hatchling, which is only there while a package is built."""
    interface = ModuleType("hatchling.metadata.plugin.interface")
    interface.MetadataHookInterface = type("MetadataHookInterface", (), {"root": str(ROOT)})  # type: ignore[attr-defined]
    for name in ("hatchling", "hatchling.metadata", "hatchling.metadata.plugin"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, interface.__name__, interface)
    spec = importlib.util.spec_from_file_location("package_page", ROOT / "tools" / "package_page.py")
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_every_link_of_the_page_is_an_address_of_a_file_that_is_here(
    page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARE_REPOSITORY", f"{AT}/")
    metadata = {"version": __version__}
    page.PackagePage().update(metadata)
    text = metadata["readme"]["text"]  # type: ignore[index]
    targets = re.findall(r"\]\(([^)\s]+)\)", text)

    assert len(targets) > 30
    assert f"{AT}/blob/v{__version__}/docs/how-to/why-slower.md" in targets
    for target in [*targets, *metadata["urls"].values()]:  # type: ignore[attr-defined]
        assert target.startswith(AT)
        path = re.sub(rf"^{AT}(?:/issues|/(?:raw|blob|tree)/v{re.escape(__version__)}/)?", "", target).partition("#")[0]
        assert (ROOT / path).exists(), target


def test_addresses_and_anchors_stay_as_they_are(page: ModuleType) -> None:
    text = "[a](https://x.example/y) [b](#here) ![c\nd](p.png) [e [f]](docs/g.md#h)"

    assert page.with_addresses(text, AT, "v1") == (
        f"[a](https://x.example/y) [b](#here) ![c\nd]({AT}/raw/v1/p.png) [e [f]]({AT}/blob/v1/docs/g.md#h)"
    )


def test_without_an_address_the_page_is_the_readme(page: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TARE_REPOSITORY", raising=False)
    metadata = {"version": __version__}
    page.PackagePage().update(metadata)

    assert metadata["readme"]["text"] == (ROOT / "README.md").read_text()  # type: ignore[index]
    assert metadata["urls"] == {}


def test_the_version_is_in_one_place_and_the_change_log_has_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/tare/__init__.py"
    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_the_package_can_be_run_by_its_own_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    assert scripts["tare-bench"] == scripts["tare"] == "tare.cli:main"

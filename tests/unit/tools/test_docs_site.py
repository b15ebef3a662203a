"""The docs as a site: links lead somewhere, examples load and run, and nothing that the site lacks is linked in it."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tare.base.errors import TareError
from tare.studies.load import loads

REPOSITORY = Path(__file__).parents[3]
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def tools() -> dict[str, ModuleType]:
    found = {}
    for name in ("site", "reference"):
        spec = importlib.util.spec_from_file_location(f"tools_{name}", REPOSITORY / "tools" / f"{name}.py")
        assert spec is not None and spec.loader is not None
        found[name] = sys.modules[f"tools_{name}"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found[name])
    return found


def anchors(page: Path) -> set[str]:
    """Of the headings, as forges and the site make them."""
    titles = re.findall(
        r"^#+ (.+)$", _CODE.sub(lambda found: found[0].replace("#", " "), page.read_text("utf-8")), re.M
    )
    plain = (re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title)).strip().lower() for title in titles)
    return {title.replace(" ", "-") for title in plain}


def lost(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for target in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        address, _, anchor = target.partition("#")
        if "://" in address or address.startswith("mailto:"):
            continue
        aimed = (page.parent / address).resolve() if address else page
        if not aimed.exists() or (anchor and aimed.suffix == ".md" and anchor not in anchors(aimed)):
            found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert lost(page) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# One two\n```\n# no heading\n```\n")
    (tmp_path / "a.md").write_text("[a](b.md#one-two) [b](b.md#three) [c](none.md) [d](b.md#no-heading) `[e](x.md)`\n")
    assert lost(tmp_path / "a.md") == ["b.md#three", "none.md", "b.md#no-heading"]


STUDIES = [
    pytest.param(text, id=f"{page.relative_to(REPOSITORY)}-{number}")
    for page in PAGES
    for number, text in enumerate(_YAML.findall(page.read_text("utf-8")))
    if re.search(r"^study:", text, re.MULTILINE) and "..." not in text
]


@pytest.mark.parametrize("text", STUDIES)
def test_every_study_in_the_docs_loads(text: str) -> None:
    try:
        loads(text, "docs")
    except TareError as error:
        pytest.fail(str(error))


def test_there_are_studies_to_load_and_a_wrong_one_does_not() -> None:
    assert len(STUDIES) > 5
    with pytest.raises(TareError):
        loads("study: a\nplatfrom: bare\nworkload: {command: {argv: [true]}}\n", "docs")


def test_the_example_in_python_runs(tools: dict[str, ModuleType], capsys: pytest.CaptureFixture[str]) -> None:
    kept = REPOSITORY / "studies-results" / "cpu2" / "s4-platforms.tare"
    exec(compile(tools["reference"].EXAMPLE.replace("out/my-study", str(kept)), "example", "exec"), {})
    assert re.search(r"(slower|faster|equivalent|cannot_tell)$", capsys.readouterr().out, re.MULTILINE)


def test_links_of_a_page_become_those_of_the_site(tools: dict[str, ModuleType]) -> None:
    linked = tools["site"].linked
    readme, page = REPOSITORY / "README.md", REPOSITORY / "docs" / "how-to" / "README.md"
    assert linked("[a](docs/reference/study.md#scales)", readme) == "[a](reference/study.md#scales)"
    assert linked("[k](studies-results), [c](CHANGELOG.md)", readme) == "[k](studies/index.md), [c](changes.md)"
    assert linked("![p](../pictures/why-cpu2-390.png)", page) == "![p](../pictures/why-cpu2-390.png)"
    assert linked("[t](../../tests/conftest.py)", page) == "t (`tests/conftest.py` in the repository)"
    assert linked("[w](https://example.org/a) [h](#here)", page) == "[w](https://example.org/a) [h](#here)"


def test_a_built_page_with_a_dead_link_or_anchor_is_named(tools: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "b.html").write_text('<h1 id="one">b</h1>')
    (tmp_path / "a.html").write_text('<a href="b.html#one"></a><a href="b.html#two"></a><img src="c.png"><a href="#x">')
    assert list(tools["site"].broken(tmp_path)) == ["a.html: b.html#two", "a.html: c.png"]


def test_the_staged_site_has_every_page_in_its_menu_and_no_link_into_nothing(
    tools: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the sources and one kept study, without Zensical, which the full build needs (`make site`)."""
    site = tools["site"]
    monkeypatch.setattr(site, "STAGE", tmp_path)
    site.stage_docs()
    site.stage_studies(["s4-platforms"])
    menu = site.settings()
    staged = sorted((tmp_path / "docs").rglob("*.md"))
    assert [page for page in staged if str(page.relative_to(tmp_path / "docs")) not in menu] == []
    assert {str(page.relative_to(tmp_path)): lost(page) for page in staged if lost(page)} == {}
    report = tmp_path / "docs" / "studies" / "cpu2" / "s4-platforms-report.html"
    assert "<svg" in report.read_text("utf-8")

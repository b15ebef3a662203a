"""Pages of the docs: links lead somewhere, examples load and run, sentences are short."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tare.base.errors import TareError
from tare.studies.load import loads

REPOSITORY = Path(__file__).parents[3]
PAGES = [*sorted(REPOSITORY.glob("*.md")), *sorted((REPOSITORY / "docs").rglob("*.md"))]
_CODE = re.compile(r"^ *```.*?^ *```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
_YAML = re.compile(r"^ *```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


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


SITE = [page for page in PAGES if page.is_relative_to(REPOSITORY / "docs") and "decisions" not in page.parts]
_GENERATED = re.compile(r"(<!-- (?:tare|generated|planted).*?-->).*?<!-- /\w+ -->", re.DOTALL)
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
LONGEST = 40  # words


def sentences(text: str) -> Iterator[str]:
    """What people wrote: each sentence of a paragraph, of an item of a list, and of a cell of a table."""
    text = re.sub(r"<!--.*?-->", "", _FENCED.sub("", _GENERATED.sub("", text)), flags=re.DOTALL)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\.) ?)", text):
        for cell in block.split("|"):
            yield from re.split(r"(?<=[.!?:])[*_)]*\s+(?=[A-Z*`\"(\d]|tare\b)", cell.strip())


def test_the_site_has_the_pages_that_it_should_have() -> None:
    folders = Counter(page.parent.name for page in SITE)
    assert folders == {"tutorial": 1, "how-to": 16, "reference": 8, "explanation": 4, "papers": 6}


@pytest.mark.parametrize("page", [REPOSITORY / "README.md", *SITE], ids=lambda page: page.name)
def test_no_sentence_is_longer_than_forty_words(page: Path) -> None:
    assert [each for each in sentences(page.read_text("utf-8")) if len(each.split()) > LONGEST] == []


def test_a_long_sentence_is_found() -> None:
    long = " ".join(["word"] * 41)
    page = f"Short one. {long}\n\n| a | {long} |\n- item\n- {long}\n"
    printed = f"```\n{long}\n```\n<!-- tare x -->\n{long}\n<!-- /tare -->\n"
    assert [len(each.split()) > LONGEST for each in sentences(page)].count(True) == 3
    assert not any(len(each.split()) > LONGEST for each in sentences(printed))


STUDIES = [
    pytest.param(text, id=f"{page.relative_to(REPOSITORY)}-{number}")
    for page in PAGES
    for number, text in enumerate(map(dedent, _YAML.findall(page.read_text("utf-8"))))
    if re.search(r"^study:", text, re.MULTILINE) and "..." not in text
]


@pytest.mark.parametrize("text", STUDIES)
def test_every_study_in_the_docs_loads(text: str) -> None:
    try:
        loads(text, "docs")
    except TareError as error:
        pytest.fail(str(error))


def test_the_example_in_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    kept = REPOSITORY / "studies-results" / "cpu2" / "s4-platforms.tare"
    example = runpy.run_path(str(REPOSITORY / "tools" / "reference.py"))["EXAMPLE"]
    exec(compile(example.replace("out/my-study", str(kept)), "example", "exec"), {})
    assert re.search(r"(slower|faster|equivalent|cannot_tell)$", capsys.readouterr().out, re.MULTILINE)

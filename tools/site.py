"""Builds the documentation site into out/site: docs, README, change log, the study schema, and every kept study as a
page with its report. Decisions are for people who change the code: they are not in the site, nor in its search.
`make site` installs Zensical into an environment of its own and runs this.

    .venv/bin/python tools/site.py [--only-studies NAME...] [--stage]     --stage: only write build/site, build nothing
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tare.analysis.weighing import weigh
from tare.records.store import Store
from tare.report.export import as_markdown, safe
from tare.report.html import Page, page, render
from tare.studies.load import json_schema

ROOT = Path(__file__).resolve().parent.parent
DECISIONS = ROOT / "docs" / "decisions"
STAGE = ROOT / "build" / "site"
OUT = ROOT / "out" / "site"
ZENSICAL = ROOT / ".venv-site" / "bin" / "zensical"
# Pages outside of docs, and where they are in the site.
BROUGHT = {
    "README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}  # fmt: skip
# Folders that people link to: the page that lists them.
LISTED = {
    "studies-results": "studies/index.md",
    "docs/papers": "papers/index.md",
}
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
_TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
SECTIONS = (
    ("Tutorial", "tutorial"), ("How to", "how-to"), ("Reference", "reference"), ("Explanation", "explanation"),
    ("Papers", "papers"), ("Kept studies", "studies"),
)  # fmt: skip


@dataclass(frozen=True)
class Kept:
    """One kept study as it stands in the list."""

    machine: str
    study: str
    title: str
    answer: str
    trials: str


def place_of(path: Path) -> Path | None:
    """Where a file of the repository is in the site; None if it is not in it."""
    name = path.relative_to(ROOT).as_posix()
    if name in LISTED:
        return Path(LISTED[name])
    if name in BROUGHT:
        return Path(BROUGHT[name])
    is_page = path.is_relative_to(ROOT / "docs") and not path.is_relative_to(DECISIONS) and path.is_file()
    return path.relative_to(ROOT / "docs") if is_page else None


def linked(text: str, source: Path) -> str:
    """The page with its links as they are in the site; what is not in the site is named and not linked."""
    here = place_of(source)
    assert here is not None

    def renamed(found: re.Match[str]) -> str:
        sign, words, target = found.groups()
        address, _, anchor = target.partition("#")
        if not address or "://" in address or address.startswith("mailto:"):
            return found.group()
        aimed = (source.parent / address).resolve()
        there = place_of(aimed) if aimed.is_relative_to(ROOT) and aimed.exists() else None
        if there is None:
            return words if sign else f"{words} (`{address.replace('../', '')}` in the repository)"
        relative = Path(*[".."] * len(here.parent.parts), there).as_posix()
        return f"{sign}[{words}]({relative}{'#' + anchor if anchor else ''})"

    return _LINK.sub(renamed, text)


def stage_docs() -> None:
    """Every page and picture of docs, and those from above it."""
    for file in sorted((ROOT / "docs").rglob("*")):
        if file.is_relative_to(DECISIONS):
            continue
        if file.suffix == ".md":
            put(file.relative_to(ROOT / "docs"), linked(file.read_text("utf-8"), file))
        elif file.is_file():
            target = STAGE / "docs" / file.relative_to(ROOT / "docs")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    for name, place in BROUGHT.items():
        put(Path(place), linked((ROOT / name).read_text("utf-8"), ROOT / name))
    schema = STAGE / "docs" / "reference" / "study.schema.json"
    schema.write_text(json.dumps(json_schema(), indent=1) + "\n", encoding="utf-8")
    study = STAGE / "docs" / "reference" / "study.md"
    told = "The [JSON Schema](study.schema.json) of this page is what `tare list schema` prints.\n"
    study.write_text(study.read_text("utf-8") + f"\n{told}", encoding="utf-8")


def put(place: Path, text: str) -> None:
    target = STAGE / "docs" / place
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")


def title_of(file: Path) -> str:
    found = _TITLE.search(file.read_text("utf-8"))
    return re.sub(r"[`*]", "", found[1]) if found else file.stem


def stage_studies(only: list[str]) -> None:
    """A page for each kept study with its numbers, which the search finds, and its whole report without the library."""
    packs = sorted((ROOT / "studies-results").glob("*/*.tare"))
    with ProcessPoolExecutor() as pool:
        rows = list(pool.map(stage_study, [pack for pack in packs if not only or pack.stem in only]))
    lines = ["| machine | study | question | answer | trials |", "|---|---|---|---|---|"]
    lines += [
        f"| {each.machine} | [{each.study}]({each.machine}/{each.study}.md) | {safe(each.title)} | {safe(each.answer)} "
        f"| {safe(each.trials)} |"
        for each in rows
    ]
    about = (
        "# Kept studies\n\nResults that are kept in the repository (`studies-results`): each has a page with "
        "its numbers, and its report. `cpu2` is a 2-core ARM virtual machine, `h200` a shared GPU server.\n\n"
    )
    put(Path("studies/index.md"), about + "\n".join(lines) + "\n")


def stage_study(pack: Path) -> Kept:
    machine, study = pack.parent.name, pack.stem
    say(f"{machine}/{study}")
    with Store.open(pack) as store:
        weighing, records = weigh(store), store.records()
        made_utc = max(record.started_utc for record in records)
        content: Page = page(weighing, records, made_utc, store.text(), store.problems, store)
        whole = render(
            weighing, records, made_utc,
            study_text=store.text(), problems=store.problems, store=store, interactive=False,
        )  # fmt: skip
    put(Path("studies", machine, f"{study}-report.html"), whole)
    first, _, rest = as_markdown(content).partition("\n")
    report = f"**[Open the report]({study}-report.html)**: charts, every trial, the study file.\n"
    put(Path("studies", machine, f"{study}.md"), f"{first}\n\n`{study}` on {machine}. {report}\n{rest}")
    return Kept(machine, study, content.question, content.headline.title, content.counts)


def settings() -> str:
    """`zensical.toml`: nothing is asked of any other site, so that the pages also work without a network."""
    features = ["navigation.sections", "navigation.indexes", "navigation.top", "navigation.path", "navigation.footer",
                "content.code.copy", "search.highlight", "toc.follow"]  # fmt: skip
    palettes = [("light", "default", "dark"), ("dark", "slate", "light")]
    lines = [
        "[project]", 'site_name = "tare"', f"site_description = {json.dumps(description())}", 'docs_dir = "docs"',
        'site_dir = "site"', "use_directory_urls = false", f"nav = {nav()}",
        "[project.theme]", 'language = "en"', "font = false", f"features = {json.dumps(features)}",
    ]  # fmt: skip
    for scheme, name, other in palettes:
        lines += [
            "[[project.theme.palette]]", f'media = "(prefers-color-scheme: {scheme})"', f'scheme = "{name}"',
            'toggle.icon = "lucide/sun-moon"', f'toggle.name = "Switch to {other} mode"',
        ]  # fmt: skip
    extensions = ("tables", "admonition", "attr_list", "toc.permalink", "pymdownx.superfences", "pymdownx.highlight")
    lines.append("[project.markdown_extensions]")
    lines += [f"{name} = {'true' if name.endswith('permalink') else '{}'}" for name in extensions]
    return "\n".join(lines) + "\n"


def description() -> str:
    found = re.search(r'^description = "(.*)"$', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE)
    return found[1] if found else ""


def nav() -> str:
    """The folders in the order in which people need them, each with its pages by title."""
    entries = ['{ "Start" = "index.md" }']
    for title, folder in SECTIONS:
        pages = sorted((STAGE / "docs" / folder).rglob("*.md"), key=lambda file: (file.name != "index.md", file))
        listed = ", ".join(
            f"{{ {json.dumps(nav_title(file))} = {json.dumps(str(file.relative_to(STAGE / 'docs')))} }}"
            for file in pages
        )
        entries.append(f"{{ {json.dumps(title)} = [{listed}] }}")
    project = {"Changes": "changes.md", "Contributing": "contributing.md", "Security": "security.md"}
    entries.append(
        f'{{ "Project" = [{", ".join(f"{{ {json.dumps(k)} = {json.dumps(v)} }}" for k, v in project.items())}] }}'
    )
    return f"[{', '.join(entries)}]"


def nav_title(file: Path) -> str:
    if file.parent.parent.name == "studies":
        return f"{file.stem} ({file.parent.name})"
    return title_of(file)


def broken(site: Path) -> Iterator[str]:
    """Links and anchors of the built pages that lead nowhere; what others serve is not looked at."""
    known: dict[Path, set[str]] = {}
    for file in sorted(site.rglob("*.html")):
        text = file.read_text("utf-8")
        for target in re.findall(r'(?:href|src)="([^"]+)"', text):
            address, _, anchor = target.partition("#")
            if "://" in address or address.startswith(("data:", "mailto:", "/")) or target.startswith("#"):
                continue
            aimed = (file.parent / address.partition("?")[0]).resolve() if address else file
            if aimed.is_dir():
                aimed /= "index.html"
            if not aimed.exists():
                yield f"{file.relative_to(site)}: {target}"
            elif anchor and aimed.suffix == ".html":
                anchors = known.setdefault(aimed, set(re.findall(r'id="([^"]+)"', aimed.read_text("utf-8"))))
                if anchor not in anchors:
                    yield f"{file.relative_to(site)}: {target}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only-studies", nargs="*", default=[], metavar="NAME", help="only these of the kept studies")
    parser.add_argument("--stage", action="store_true", help="write build/site and build nothing")
    asked = parser.parse_args()
    shutil.rmtree(STAGE, ignore_errors=True)
    stage_docs()
    stage_studies(asked.only_studies)
    (STAGE / "zensical.toml").write_text(settings(), encoding="utf-8")
    if asked.stage:
        return 0
    subprocess.run([ZENSICAL, "build", "--clean"], cwd=STAGE, check=True)
    lost = list(broken(STAGE / "site"))
    for each in lost:
        say(f"leads nowhere: {each}")
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.parent.mkdir(exist_ok=True)
    (STAGE / "site").rename(OUT)
    size = sum(file.stat().st_size for file in OUT.rglob("*") if file.is_file())
    pages = len(list(OUT.rglob("*.html")))
    say(f"{pages} pages, {size / 1e6:.0f} MB in out/site; `python3 -m http.server -d out/site` shows them")
    return 1 if lost else 0


def say(line: str) -> None:
    sys.stderr.write(f"site: {line}\n")


if __name__ == "__main__":
    sys.exit(main())

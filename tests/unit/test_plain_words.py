"""Text that people read keeps to plain technical English: phrases that we no longer use, each with its replacement.

Looked at: README and the other pages, comments of built-in studies, the tools' messages, the help of every verb, the
descriptions of every part, and the sentences in the code (string literals with a space; docstrings are not output).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from tare.cli import tare
from tare.cli.list import describe
from tare.parts.find import KINDS, names

ROOT = Path(__file__).parents[2]

# "30 ms a step", "ten times a second", "one line a row": a figure, then what it is counted by.
_PER = (
    r"(?:\b(?:times|joules|CPU time|requests|files|heartbeats)|\bone (?:line|row|file|worker|machine|study|page|value)"
    r"|[\d}] ?(?:[num]?s|[kMG]?i?B|[kmM]?W|[km]?J|pages))"
    r" an? (?=(?:step|second|minute|hour|trial|block|epoch|sample|request|page|row|device|worker|verb|section|paper)\b)"
    r"|\{\} a (?=(?:second|page|sample|request|row|mini-batch)\b)"
)


@dataclass(frozen=True)
class Phrase:
    """A pattern that is not used any more, what to write instead, and a text that it finds."""

    pattern: str
    instead: str
    example: str


PHRASES = (
    Phrase(_PER, "per step, per second, ...", "CPU time a step"),
    Phrase(r"beside it \(no claim", "other metrics (not tested)", "beside it (no claim is made on these):"),
    Phrase(r"\ball the same\b", "anyway, still; of trials: are included", "2 suspect trials are used all the same"),
    Phrase(r"\btells? no\b", "has no ..., there is no ... information", "device tells no clocks"),
    Phrase(r"\bthat tells? (?:power|energy)\b", "power probe", "no probe that tells power"),
    Phrase(r"\bThere (?:is|are): ", "Available: ", "No column 'energy'. There is: time"),
    Phrase(r"\bcould not be used \(invalid\)", "excluded as invalid; see `tare show`", "1 could not be used (invalid)"),
    Phrase(r"(?<![\w.`\"'])twins?(?![\w`:\"'])", "A/A repeat; identical devices", "bare (A/A twin)"),
    Phrase(r"\bis unlike\b", "outlier among identical devices", "orin-6 is unlike the others"),
    Phrase(r"\bgo(?:es|ne)? on (?:where|with|although)\b", "resume, continue", "Run a study; go on where it stopped"),
    Phrase(
        r"\b(?:begin|start)s? none that\b", "start no block that would exceed this", "begin none that would end later"
    ),
    Phrase(r"\bgiv(?:e|es|en|ing) up\b", "skipped", "given up: no space"),
    Phrase(r"(?<![\w/-])desks?\b", "work directory", "files on the desk"),
    Phrase(r"\blodgers?\b", "tenant", "a lodger"),
    Phrase(r"\bstoreys?\b", "depth", "the third storey"),
    Phrase(r"\bpretend(?:s|ed|ing)?\b(?!\s+yes)", "simulated", "a pretended board"),
    Phrase(r"\bits last words\b", "its last lines", "apt-get failed; its last words:"),
    Phrase(r"\bin silence\b|\bwithout a word\b", "without a message", "never dropped in silence"),
    Phrase(r"\banew\b(?!:)", "again", "the table is made anew"),
    Phrase(r"\bsaid\b(?!\s*[=\"\[\])])", "reported, printed, recorded", "it said nothing"),
    Phrase(r"\btold\b(?! apart| by\b|:)", "reported, recorded", "the user is told"),
    Phrase(r"\basked for\b(?! \{)", "requested", "no probe was asked for"),
    Phrase(r"\btells\b(?! \S+ apart)|\b(?:does|did) not tell\b", "reports, shows", "as the kernel tells it"),
    Phrase(r"\bknobs?\b", "setting", "may turn knobs"),
    Phrase(
        r"\bput(?:s|ting)?(?: (?:it|the device|the folder|this file))? back\b", "restore", "it puts the device back"
    ),
    Phrase(
        r"\b(?:ran|was run|set) beside\b(?! (?:bare|a VM|another))", "during; compared with", "a tracer ran beside it"
    ),
)


@dataclass(frozen=True)
class Text:
    where: str  # a file, or the command that prints it
    text: str
    line: int | None = 1  # the line of the file that the text begins at

    def at(self, offset: int) -> str:
        return self.where if self.line is None else f"{self.where}:{self.line + self.text.count(chr(10), 0, offset)}"


def offences(texts: Iterator[Text]) -> list[str]:
    """Every use of a phrase, with its place and what to write instead; a phrase may go over the end of a line."""
    patterns = [(each, re.compile(each.pattern.replace(" ", r"\s+(?:#\s+)?"), re.IGNORECASE)) for each in PHRASES]
    return [
        f"{text.at(found.start())}: '{' '.join(found.group().split())}': write {phrase.instead}"
        for text in texts
        for phrase, pattern in patterns
        for found in pattern.finditer(text.text)
    ]


def pages() -> Iterator[Text]:
    files = [*ROOT.glob("*.md"), ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    for name in ("stores-and-json.md", "python.md"):  # keys and docstrings of the code
        files.remove(ROOT / "docs" / "reference" / name)
    files += [*(ROOT / "src" / "tare" / "papers" / "studies").glob("*.yaml")]
    files += [path for path in (ROOT / "tools").iterdir() if path.is_file() and "python" not in _first_line(path)]
    for path in sorted(path for path in files if path.is_file()):
        # What tare printed into a page comes from records, some of them older than these words.
        printed = re.compile(r"(?<=-->\n).*?(?=<!-- /tare -->)", re.DOTALL)
        yield Text(
            str(path.relative_to(ROOT)), printed.sub(lambda block: "\n" * block[0].count("\n"), path.read_text())
        )


def _first_line(path: Path) -> str:
    return "python" if path.suffix == ".py" else path.read_text().partition("\n")[0]


def helps() -> Iterator[Text]:
    """The help of every verb, as `tare VERB --help` prints it."""
    waiting: list[tuple[click.Command, click.Context | None, str]] = [(tare, None, "tare")]
    while waiting:
        command, parent, name = waiting.pop()
        # The names of the help option as in tare itself: click keeps that option of the first context.
        context = click.Context(command, info_name=name, parent=parent, help_option_names=["-h", "--help"])
        yield Text(f"`{context.command_path} --help`", command.get_help(context), line=None)
        if isinstance(command, click.Group):
            below = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
            waiting += [(each, context, name) for name, each in below if each is not None]


def parts() -> Iterator[Text]:
    for kind in KINDS:
        for name in names(kind):
            part = describe(kind, name)
            about = "\n".join([part["about"], *(str(field["about"]) for field in part["fields"].values())])
            yield Text(f"`tare list parts {name}`", about, line=None)


def sentences() -> Iterator[Text]:
    for path in sorted([*(ROOT / "src").rglob("*.py"), *(ROOT / "tools").glob("*.py")]):
        for line, literal in literals(path.read_text()):
            if " " in literal.strip() and "CREATE TABLE" not in literal:
                yield Text(f"{path.relative_to(ROOT)}:{line}", literal, line=None)


def literals(source: str) -> Iterator[tuple[int, str]]:
    """The string literals of a module except its docstrings; values within an f-string are {}."""
    tree = ast.parse(source)
    skipped: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(id(value) for value in node.values)
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            pieces = (str(value.value) if isinstance(value, ast.Constant) else "{}" for value in node.values)
            yield node.lineno, "".join(pieces)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            yield node.lineno, node.value


@pytest.mark.parametrize("texts", [pages, helps, parts, sentences])
def test_text_that_people_read_is_in_plain_words(texts):
    found = offences(texts())
    assert not found, f"{len(found)} phrases that are no longer used:\n" + "\n".join(found)


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.instead)
def test_each_phrase_is_found_and_its_replacement_is_fine(phrase):
    assert any(phrase.instead in found for found in offences(iter([Text("page.md", phrase.example)])))
    assert offences(iter([Text("page.md", phrase.instead)])) == []


def test_an_offence_has_file_and_line_even_if_it_is_broken_over_two():
    page = "One line.\nIt is used all\nthe same, and\na lodger is there.\n"
    assert offences(iter([Text("page.md", page)])) == [
        "page.md:2: 'all the same': write anyway, still; of trials: are included",
        "page.md:4: 'lodger': write tenant",
    ]


def test_figures_are_per_step_and_other_uses_of_the_article_are_fine():
    fine = ["the end of a step", "above {} a trial is suspect", "three in a row", "{} of a trial", "within a block"]
    assert offences(iter([Text("page.md", "\n".join(fine))])) == []
    counted = [
        "30 ms a step",
        "ten times a second",
        "one line a row",
        "{} W a sample",
        "joules a step",
        "NVM {} a page",
    ]
    assert len(offences(iter([Text("page.md", each) for each in counted]))) == len(counted)


def test_literals_are_sentences_of_the_code_without_docstrings():
    source = '"""The knob."""\ndef f(x):\n    """A twin."""\n    return f"the {x} knob", "two " "parts"\n'
    assert sorted(literals(source)) == [(4, "the {} knob"), (4, "two parts")]


def test_every_verb_and_part_is_looked_at():
    assert {"`tare show energy --help`", "`tare device fleet check --help`"} <= {text.where for text in helps()}
    assert {"`tare list parts docker`", "`tare list parts torch_train`"} <= {text.where for text in parts()}

"""Every command in the docs exists: its verbs, and the options that it is given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tare.cli import tare
from tare.cli.show import Show

ROOT = Path(__file__).parents[3]
_FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
_IN_A_LINE = re.compile(r"`((?:sudo )?tare [^`]+)`")
_IN_A_BLOCK = re.compile(r"^ *(?:\$ )?(?:sudo )?((?:\.venv/bin/)?tare (?:.*\\\n)*.*)$", re.MULTILINE)


def commands(text: str) -> Iterator[tuple[int, str]]:
    """Line and text of each command: lines of code blocks, and code within sentences (also over the end of a line)."""
    for block in _FENCED.finditer(text):
        for found in _IN_A_BLOCK.finditer(block.group()):
            yield _line(text, block.start() + found.start(1)), found.group(1).replace("\\\n", " ")
    # Blanked, not removed: lines keep their numbers.
    prose = _FENCED.sub(lambda block: re.sub(r"[^\n]", " ", block.group()), text)
    for found in _IN_A_LINE.finditer(prose):
        yield _line(text, found.start(1)), found.group(1)


def _line(text: str, offset: int) -> int:
    return text.count("\n", 0, offset) + 1


def complaint(command: str) -> str | None:
    """What is wrong with a command; None if its verbs and options exist."""
    words = _words(command.split("tare ", 1)[1].split(" # ")[0])
    words = words[: words.index("--")] if "--" in words else words
    found: click.Command = tare
    context = click.Context(tare, info_name="tare")
    while isinstance(found, click.Group) and words and (_is_plain(words[0]) or isinstance(found, Show)):
        words[0] = words[0].rstrip(",.;")
        try:
            name, below, words = found.resolve_command(context, words)
        except click.UsageError:
            return f"no verb {words[0]!r} in `{context.command_path}`"
        assert below is not None
        found, context = below, click.Context(below, info_name=name, parent=context)
    known = {"-h", "--help"} | {name for option in found.params for name in (*option.opts, *option.secondary_opts)}
    if isinstance(found, click.Group):
        return None
    given = (word.split("=")[0].rstrip(",.;)\\") for word in words if re.match(r"--?[a-z]", word) and " " not in word)
    unknown = [word for word in given if word not in known]
    return f"`{context.command_path}` has no option {unknown[0]}" if unknown else None


def _words(text: str) -> list[str]:
    """What is in quotes is one word: the command line of a server has options of its own."""
    try:
        return shlex.split(text)
    except ValueError:  # half a quotation: the rest stands outside of the code
        return text.split()


def _is_plain(word: str) -> bool:
    return re.fullmatch(r"[a-z][a-z_-]*[,.;]?", word) is not None


def pages() -> list[Path]:
    return [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_exist(page):
    wrong = [
        f"{page.relative_to(ROOT)}:{line}: {why}: {' '.join(command.split())}"
        for line, command in commands(page.read_text())
        if (why := complaint(command))
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("tare run study.yaml --scale small", None),
        ("tare weigh --in runc -- python train.py --epochs 1", None),
        ("tare device image build | check", None),
        ("tare energy out", "no verb 'energy' in `tare`"),
        ("tare show out energy --step x", "`tare show STORE energy` has no option --step"),
        ("tare compare out --metrics step_s", "`tare compare` has no option --metrics"),
    ],
)
def test_a_verb_or_option_that_does_not_exist_is_found(command, why):
    assert complaint(command) == why


def test_commands_are_found_in_blocks_and_in_sentences():
    page = "Run `tare show\nout`:\n\n```console\n$ tare run a.yaml \\\n    --json  # a\ntotal\n```\n"
    assert [(line, " ".join(text.split())) for line, text in commands(page)] == [
        (5, "tare run a.yaml --json # a"),
        (1, "tare show out"),
    ]

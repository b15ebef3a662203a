"""Every command in the docs exists: its verbs, and the options that it is given. Those of README, tutorial, how-tos and
papers are run here; a block marked `<!-- needs: engine -->` needs what no test here has, and its commands are parsed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tare.cli import tare
from tare.cli.show import Show

ROOT = Path(__file__).parents[3]
_BLOCK = re.compile(
    r"(?:<!-- needs: (?P<needs>\w+) -->\n *)?(?P<block>```(?:sh|console)\n.*?^ *```)", re.MULTILINE | re.DOTALL
)
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


def _in(folder: str) -> list[Path]:
    return sorted((ROOT / "docs" / folder).glob("*.md"))


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


STEPS = [ROOT / "README.md", *(page for name in ("tutorial", "how-to", "papers") for page in _in(name))]
# What a block may need: an engine or root to start containers, hardware, other machines, or files of the reader's own.
NEEDS = ("engine", "root", "gpu", "board", "sensor", "device", "fleet", "slurm", "server", "disk", "files", "store")


def steps(page: Path) -> Iterator[tuple[str, str]]:
    """Each command of a page's blocks, with what its block needs, or nothing."""
    for block in _BLOCK.finditer(page.read_text()):
        for found in _IN_A_BLOCK.finditer(block["block"]):
            yield block["needs"] or "", " ".join(re.split(r" #| &$|\\\n", found[1].replace("\\\n", " "))[0].split())


COMMANDS = [(page.relative_to(ROOT).as_posix(), needs, words) for page in STEPS for needs, words in steps(page)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader of the docs stands: in a clone, with results of their own."""
    made = tmp_path_factory.mktemp("clone")
    for name in ("studies-results", "tests"):
        (made / name).symlink_to(ROOT / name)
    for name in ("monday", "today"):
        (made / "out" / name).mkdir(parents=True)
        (made / "out" / name / "store.json").touch()
    return made


@pytest.mark.parametrize(("page", "needs", "words"), COMMANDS)
def test_a_command_of_a_page_works(
    page: str, needs: str, words: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    _, *given = shlex.split(words)
    if needs:
        assert needs in NEEDS
        parse(given)
        return
    done = CliRunner().invoke(tare, given)
    assert done.exit_code == 0, f"{page}: {words}\n{done.output}\n{done.exception!r}"


def parse(words: list[str]) -> None:
    """UsageError where this is no command line; files of the reader's own need not be here."""
    found: click.Command = tare
    context = click.Context(tare, info_name="tare")
    while isinstance(found, click.Group):
        name, below, words = found.resolve_command(context, words)
        assert below is not None
        found = below
        if isinstance(found, click.Group):
            context = click.Context(found, info_name=name, parent=context)
    try:
        found.make_context(name, list(words), parent=context)
    except click.BadParameter as error:
        if not error.message.endswith("does not exist."):
            raise


@pytest.mark.parametrize("words", ["compare out --margin 500%", "weigh --port many", "report", "device clear"])
def test_a_command_line_that_is_wrong_is_found(words: str) -> None:
    with pytest.raises(click.UsageError):
        parse(words.split())


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("tare run study.yaml --scale small", None),
        ("tare weigh --in runc -- python train.py --epochs 1", None),
        ("tare device image build | check", None),
        ("tare energy out", "no verb 'energy' in `tare`"),
        ("tare show out energy --step x", "`tare show STORE energy` has no option --step"),
        ("tare store power out", "no verb 'power' in `tare store`"),
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

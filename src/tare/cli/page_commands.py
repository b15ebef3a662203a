"""The commands that pages may name: run in this process, never by a shell, and only those that read."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import click

from tare.errors import StudyError, TareError
from tare.report.pages import Block, as_block

READING = frozenset({
    "anatomy", "claims", "compare", "devices", "energy", "kernel", "pareto", "paper", "predict", "recommend", "show",
    "simulate", "studies", "tenants", "variability", "workloads",
})  # fmt: skip
# Of any verb that has them: the folder of results is this one, and what can be Markdown is.
_DEFAULTS = {"results": ".", "form": "md"}
WIDTH = 100  # columns, whatever the terminal of whoever runs it
_SURROUNDINGS = {"COLUMNS": str(WIDTH), "LINES": "50", "NO_COLOR": "1", "TERM": "dumb"}


def run_block(block: Block, page: str, results: Path) -> tuple[str, ...]:
    """What the block's command prints now, as the lines of the block; paths in it are relative to the results."""
    where = f"{page}:{block.line}"
    verb = block.words[0]
    if verb not in READING:
        raise StudyError(f"{where}: a page may not run `tare {verb}`; it may run: {', '.join(sorted(READING))}.")
    out, talk = _stream(), _stream()
    try:
        with _quiet(results, out, talk):
            given = _asked(block.words, where)
            code = _run(block.words)
    except click.ClickException as error:
        raise StudyError(f"{where}: `{block.command}`: {error.format_message()}") from None
    except TareError as error:
        # Its class says the exit code; not every class is made of a sentence alone.
        error.args = (f"{where}: `{block.command}`: {error}",)
        raise
    if code:
        raise TareError(f"{where}: `{block.command}` ended with code {code}. {_text(talk).strip()}".strip())
    is_markdown = given.get("form") == "md" and not given.get("as_json")
    return as_block(_text(out), is_markdown=is_markdown, where=where)


def _run(words: Sequence[str]) -> object:
    """The verb, as `tare` runs it; its exit code, where it has one."""
    from tare.cli import tare

    try:
        return tare.main(list(words), "tare", standalone_mode=False, default_map={words[0]: _DEFAULTS})
    except SystemExit as end:
        return end.code


def _asked(words: Sequence[str], where: str) -> dict[str, Any]:
    """What the command line asks for; a verb that reads may still be asked to write what it found into a file."""
    from tare.cli import tare

    context = click.Context(tare, info_name="tare")
    verb = tare.get_command(context, words[0])
    if verb is None:
        raise StudyError(f"{where}: there is no verb {words[0]!r}.")
    options = {"resilient_parsing": True, "default_map": _DEFAULTS}
    given = verb.make_context(words[0], list(words[1:]), parent=context, **options).params
    if given.get("output") is not None:
        raise StudyError(f"{where}: a page's command prints, and writes no file: leave -o out.")
    return given


@contextmanager
def _quiet(results: Path, out: io.TextIOWrapper, talk: io.TextIOWrapper) -> Iterator[None]:
    """In the folder of the results, at one width, without colours; what is printed is kept."""
    with chdir(results), _environment(_SURROUNDINGS), redirect_stdout(out), redirect_stderr(talk):
        yield


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: Any) -> str:
    data: bytes = stream.buffer.getvalue()
    return data.decode("utf-8")

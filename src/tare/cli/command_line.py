"""Verbs that take a command of the user's after `--`, and what they say where it was written in another way."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tare.base.errors import NoSuchInput, StudyError, near_names
from tare.cli.scaffold import Verb

_INTERPRETERS = {".py": ("python", "python3"), ".sh": ("bash", "sh")}  # the first that is here is named
_STUDIES = (".yaml", ".yml")


class CommandVerb(Verb):
    """A verb with a command line: what is wrong with its words is reported before anything is started."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        self._refuse_mixed(ctx, args)
        return super().parse_args(ctx, args)

    def _refuse_mixed(self, ctx: click.Context, args: list[str]) -> None:
        """An option behind the command's first word may be ours or the command's: `--` says which."""
        start = self._first_word(ctx, args)
        if start is None or {"-h", "--help"} & {*args[:start]}:
            return
        options, words = [word for word in args[:start] if word != "--"], args[start:]
        mixed = []
        if "--" not in args[:start]:
            words = [word for word in words if word != "--"]
            mixed = [word for word in words if word.startswith("-") and word != "-"]
            if "-h" in mixed or "--help" in mixed:
                return
            ours, words = self._parted(ctx, words)
            options += ours
        verb = shlex.join([*ctx.command_path.split(), *options])
        in_image = any(word.partition("=")[0] in ("--image", "--compose", "--pod") for word in options)
        refuse_words(words, verb, in_image=in_image)
        if mixed and not _is_store(words[0]):
            raise click.UsageError(
                f"{mixed[0].partition('=')[0]} stands behind the command's first word. Put `--` before the command: "
                f"options of tare stand before it, options of the command after it, as in "
                f"`{verb} -- {shlex.join(words)}`.",
                ctx,
            )

    def _parted(self, ctx: click.Context, words: list[str]) -> tuple[list[str], list[str]]:
        """The options among these words that this verb has, with their values, and the others."""
        flags = {
            name: isinstance(param, click.Option) and (param.is_flag or param.count)
            for param in self.get_params(ctx)
            for name in (*param.opts, *param.secondary_opts)
            if name.startswith("-")
        }
        ours: list[str] = []
        left: list[str] = []
        rest = iter(words)
        for word in rest:
            name, equals, _ = word.partition("=")
            (ours if name in flags else left).append(word)
            if name in flags and not flags[name] and not equals:
                ours += [value for value in [next(rest, None)] if value is not None]
        return ours, left

    def _first_word(self, ctx: click.Context, args: list[str]) -> int | None:
        """Where the command begins: the first word that is neither an option nor the value of one."""
        parser = self.make_parser(ctx)
        for end in range(1, len(args) + 1):
            try:
                given, _, _ = parser.parse_args(list(args[:end]))
            except click.UsageError:  # the value of this option comes next; or there is no such option
                continue
            words = given.get("command_line")  # without one: click 8.1 gives an empty tuple, a later one a mark
            if isinstance(words, tuple) and words:
                return end - 1
        return None


def refuse_words(words: Sequence[str], verb: str, *, in_image: bool = False) -> None:
    """A script, a study or a store where the name of a program belongs; `in_image`: it may be in the image alone."""
    first = Path(words[0])
    is_script = first.suffix in _INTERPRETERS and (first.is_file() or not in_image)
    if is_script and not os.access(first, os.X_OK) and shutil.which(words[0]) is None:
        meant = as_command(words)
        if meant is None:
            raise NoSuchInput(f"{first}: there is no such file in {Path.cwd()}. Give the whole path of the script.")
        raise StudyError(f"{first} is a script, and no program. Did you mean `{verb} -- {shlex.join(meant)}`?")
    if first.suffix in _STUDIES and first.is_file():
        raise StudyError(f"{first} is not a program. If it is a study: `tare run {shlex.quote(words[0])}`.")
    if len(words) == 1 and _is_store(words[0]) and verb.startswith("tare weigh"):
        name = shlex.quote(words[0])
        raise StudyError(f"{first} is a store, and not a command: `tare compare {name}` shows what it found.")


def as_command(words: Sequence[str]) -> list[str] | None:
    """The command that runs the script that these words begin with, by the nearest name; None where it is not here."""
    script = Path(words[0])
    programs = _INTERPRETERS.get(script.suffix)
    if programs is None:
        return None
    if not script.is_file():
        there = [each.name for each in script.parent.glob(f"*{script.suffix}")] if script.parent.is_dir() else []
        near = near_names(script.name, there)
        if not near:
            return None
        script = script.with_name(near[0])
    program = next((each for each in programs if shutil.which(each)), programs[0])
    return [program, str(script), *words[1:]]


def refuse_no_program(work: Mapping[str, Any]) -> None:
    """A program or file that the command line names and that is not here, before an engine is started."""
    from pydantic import ValidationError

    from tare.base.host import LocalHost
    from tare.parts.find import find
    from tare.studies.load import from_plain

    try:
        parts = [find("workloads", name).model_validate(work[name]) for name in ("command", "server") if name in work]
    except ValidationError:
        from_plain({"study": "command", "platform": "bare", "workload": work}, "tare weigh")  # says it in words
        raise
    obstacles = [each for part in parts for each in part.obstacles(LocalHost())]  # type: ignore[attr-defined]
    found = [str(each) for each in obstacles if each.code in ("needs.file", "needs.program")]
    if found:
        raise StudyError("\n".join([*found, "Nothing was run."]))


def words_of(line: str, option: str) -> list[str]:
    """A command that is the value of an option."""
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise StudyError(f"{option} {line!r}: {error}.") from None
    if not words:
        raise StudyError(f"{option}: the command is empty.")
    return words


def _is_store(word: str) -> bool:
    from tare.records.schema import STORE_FILE, is_pack

    path = Path(word)
    return (path / STORE_FILE).is_file() or (path.is_file() and is_pack(path))

"""What a command line says: its script, its options with their values, and how one of them is set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from itertools import zip_longest

from tare.base.text import safe_text

_INTERPRETERS = re.compile(r"(python[\d.]*|bash|sh|dash|env|torchrun|accelerate|launch|uv|run|nice|time|-[mu])")
_OPTION = re.compile(r"-+[A-Za-z]")
_SCRIPT = re.compile(r".+\.(py|sh|pl|rb|js|lua|R|jl)")
_SHELLS = re.compile(r"(ba|da|k|z|a)?sh")
_SHELL_CODE = re.compile(r"[-][a-z]*c")  # -c, -lc, -ec
_SHELL_SIGNS = re.compile(r"[$`;&|<>(){}*?\[\]~#!\\\n]")  # more than words: a shell makes something else of it


def script_and_options(argv: Sequence[str]) -> tuple[str, list[str]]:
    """The script of a command line by its file's name, and what follows, an option together with its value.

    `main.py` and `["--batch-size 16"]` of `python3 -u src/main.py --batch-size=16`. Code after `-c` is no name.
    """
    if "-c" in argv[1:3] and _INTERPRETERS.fullmatch(_file_name(argv[0])):
        return f"{_file_name(argv[0])} -c", list(argv[3:])
    named = [at for at, word in enumerate(argv) if _SCRIPT.fullmatch(word)]
    named += [
        at for at, word in enumerate(argv) if not word.startswith("-") and not _INTERPRETERS.fullmatch(_file_name(word))
    ]
    at = named[0] if named else 0
    options: list[str] = []
    for word in argv[at + 1 :]:
        takes_value = bool(options) and options[-1].startswith("-") and " " not in options[-1]
        if takes_value and not _OPTION.match(word):
            options[-1] += f" {word}"
        else:
            options.append(word.replace("=", " ", 1) if word.startswith("-") else word)
    return _file_name(argv[at]).removeprefix("tare_inside.programs."), options


def _shell_text(argv: Sequence[str]) -> int | None:
    """Where the text of `sh -c TEXT` stands in a command line; None where no shell runs it."""
    if len(argv) < 3 or not _SHELLS.fullmatch(_file_name(argv[0])):
        return None
    return next((at + 1 for at, word in enumerate(argv[:-1]) if at and _SHELL_CODE.fullmatch(word)), None)


def _shell_words(text: str) -> list[str] | None:
    """The words of a shell's text, where it is one plain command; None where it is more, or not whole."""
    try:
        return None if _SHELL_SIGNS.search(text) else shlex.split(text)
    except ValueError:
        return None


def options_in(argv: Sequence[str]) -> dict[str, str]:
    """The options of a command line that have a value, by their names: `--threads 8`, `--threads=8`, `-t 8`.

    Of `sh -c TEXT` those of the text, where it is one plain command.
    """
    if (at := _shell_text(argv)) is not None:
        return options_in(_shell_words(argv[at]) or [])
    found = {}
    for word, after in zip_longest(argv, argv[1:]):
        name, equals, value = word.partition("=")
        if not _OPTION.match(word):
            continue
        if equals:
            found[name] = value
        elif after is not None and not _OPTION.match(after):
            found[name] = after
    return found


def why_not_settable(argv: Sequence[str], wanted: Mapping[str, str | None]) -> str | None:
    """Why these options of a command line cannot be given other values; None where they can."""
    words: Sequence[str] | None = argv
    if (at := _shell_text(argv)) is not None and (words := _shell_words(argv[at])) is None:
        return (
            f"the command is a text that a shell runs ({safe_text(argv[at])[:40]!r}) and is more than one plain "
            "command, so that its options are not known. Give the command itself, without the shell, or set a "
            "variable (`env`)."
        )
    for name, value in wanted.items():
        times = sum(word.partition("=")[0] == name for word in words or ())
        if value is not None and times > 1:
            return (
                f"{name} stands {times} times in the command: which of them is meant is not known. Give it once, or "
                "let each side have a command of its own (`vary`)."
            )
    return None


def with_options(argv: Sequence[str], wanted: Mapping[str, str | None]) -> tuple[str, ...]:
    """A command line with these values of its options; None removes one, and one that it lacks goes to its end.

    Of `sh -c TEXT` in the text, where it is one plain command.
    """
    if (at := _shell_text(argv)) is not None and (inner := _shell_words(argv[at])) is not None:
        return (*argv[:at], shlex.join(with_options(inner, wanted)), *argv[at + 1 :])
    kept: list[str] = []
    left, words = dict(wanted), list(argv)
    while words:
        word = words.pop(0)
        name, equals, _ = word.partition("=")
        if name not in wanted or not _OPTION.match(word):
            kept.append(word)
            continue
        if not equals and words and not _OPTION.match(words[0]):
            words.pop(0)
        value = left.pop(name, None)
        kept += [] if value is None else [f"{name}={value}"] if equals else [name, value]
    return (*kept, *(word for name, value in left.items() if value is not None for word in (name, value)))


def option_words(option: str) -> str:
    """An option as people say it: `batch-size 16` for `--batch-size 16`; of a path its last name."""
    name, _, value = option.partition(" ")
    if not name.startswith("-"):
        return _file_name(option)
    return f"{name.lstrip('-')} {_file_name(value)}".strip()


def _file_name(word: str) -> str:
    return word.rstrip("/").rpartition("/")[2] or word

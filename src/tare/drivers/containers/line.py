"""A `docker run` or `podman run` command line as its own command reads it: engine, options, image, command.

Which options there are, and which take a value, is what that command's own help says; of an option that its help leaves
out (`--net`) the command itself is asked. No list of ours could keep up with the versions that people have.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePath
from typing import NamedTuple

from tare.base.errors import StudyError
from tare.base.host import Host
from tare.base.secrets import digest, masked_words, shown_env

ENGINES = ("docker", "podman")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_OPTION = re.compile(r"\s{2,}(?:-(\w), )?--([\w-]+)(?: (\S+))?(?:\s{2,}.*|\s*)")
_VARIABLES = ("--env", "--label", "--annotation")  # a label may tell a proxy who has which password
# Whose value is a setting and what it is set to: several of one option are told apart by the setting.
_SETTINGS = ("--env", "--ulimit", "--sysctl", "--label", "--log-opt", "--security-opt", "--annotation", "--add-host")


class Option(NamedTuple):
    """One option that a command has."""

    name: str  # the long one
    takes_value: bool


Ask = Callable[[str], bool | None]
"""Whether an option that the help leaves out takes a value; None where the command does not have it."""


@dataclass(frozen=True)
class Flag:
    """One option of a line."""

    name: str  # the long one, also where the line has the short one
    value: str
    words: tuple[str, ...]  # as it stands there; one that was written in a cluster (`-it`) stands alone

    @property
    def is_on(self) -> bool:
        """Of one without a value: whether it is switched on."""
        return self.value.lower() not in ("false", "f", "0")

    @property
    def setting(self) -> str:
        """The variable, limit or place that it sets; empty where its name says all."""
        if self.name in _SETTINGS:
            return re.split("[=:]", self.value, maxsplit=1)[0]
        return ""

    def shown(self) -> list[str]:
        """Its words without the value of a variable, unless that tells nothing of anybody."""
        if self.name == "--health-cmd" and self.value:  # a script of theirs, which may log in
            return [word.replace(self.value, digest(self.value)) for word in self.words]
        name, equals, value = self.value.partition("=")
        if self.name not in _VARIABLES or not equals:
            return masked_words(self.words)
        shown = f"{name}={shown_env({name: value})[name]}"
        return [word.replace(self.value, shown) for word in self.words]


@dataclass(frozen=True)
class Line:
    """A line in its parts."""

    engine: tuple[str, ...]  # the program with its own options, and what stands before it
    flags: tuple[Flag, ...]
    image: str
    command: tuple[str, ...]

    @property
    def program(self) -> str:
        """Which engine's it is, whatever path it was called by."""
        return next(PurePath(word).name for word in self.engine if PurePath(word).name in ENGINES)

    def words(self, verb: str = "run") -> tuple[str, ...]:
        return (*self.engine, verb, *(word for flag in self.flags for word in flag.words), self.image, *self.command)

    def shown(self) -> str:
        """For people and records, without secrets."""
        return shlex.join(self.shown_words())

    def shown_words(self) -> list[str]:
        flags = [word for flag in self.flags for word in flag.shown()]
        return [*masked_words(self.engine), "run", *flags, self.image, *masked_words(self.command)]

    def values(self, name: str) -> list[str]:
        return [flag.value for flag in self.flags if flag.name == name]

    def has(self, name: str) -> bool:
        return any(flag.name == name and flag.is_on for flag in self.flags)

    @cached_property
    def named(self) -> Mapping[str, Flag]:
        """Its options by names that differ: `--cpus`, `--env=OMP_NUM_THREADS`, `--volume#2`; never by their values."""
        plain = [f"{flag.name}={flag.setting}" if flag.setting else flag.name for flag in self.flags]
        often, seen = Counter(plain), Counter[str]()
        named = {}
        for name, flag in zip(plain, self.flags, strict=True):
            seen[name] += 1
            named[name if often[name] == 1 else f"{name}#{seen[name]}"] = flag
        return named

    def changed(
        self, env: Mapping[str, str | None], options: Mapping[str, str | None], of_image: Collection[str] = ()
    ) -> Line:
        """With these variables, and these options by their names in `named`; None takes one away.

        `of_image`: variables that the image sets as well, so that to leave the option out is not enough.
        """
        away = {name for name, flag in self.named.items() if flag.name == "--env" and flag.setting in env}
        unset = "--unsetenv" if self.program == "podman" else "--env"  # a name alone takes away what the image sets
        ours = {flag.setting for flag in self.flags if flag.name == "--env"} - {*of_image}
        values = [("--env", f"{name}={value}") for name, value in env.items() if value is not None]
        values += [(unset, name) for name, value in env.items() if value is None and name not in ours]
        for each, value in options.items():
            name, equals, setting = each.partition("=")
            values += [] if value is None else [(name, f"{setting}={value}" if equals else value)]
        added = [Flag(name, value, (f"{name}={value}",)) for name, value in values]
        left = [flag for name, flag in self.named.items() if name not in {*away, *options}]
        return replace(self, flags=(*left, *added))


def is_line(words: Sequence[str]) -> bool:
    """Whether these words are somebody's `docker run ...` or `podman run ...`."""
    start = _program(words)
    return start is not None and "run" in words[start + 1 :]


def _program(words: Sequence[str]) -> int | None:
    """Where the engine's program stands: behind variables for it alone, and `sudo`."""
    for index, word in enumerate(words):
        if PurePath(word).name in ENGINES:
            return index
        if word != "sudo" and not _ASSIGNED.fullmatch(word):
            return None
    return None


def parsed(words: Sequence[str], host: Host, *, as_root: bool = False) -> Line:
    """The line in its parts; `as_root`: we are, so that a `sudo` before it is not needed."""
    start = _program(words)
    if start is None:
        raise StudyError(f"{shlex.join(masked_words(words))} is no `docker run` or `podman run` line.")
    program = words[start]
    before = [word for word in words[:start] if not (word == "sudo" and as_root)]
    before = ["env", *before] if before and _ASSIGNED.fullmatch(before[0]) else before
    if host.run([program, "--version"]).code == 127:
        raise StudyError(f"there is no program {program!r} on this device, so that its line cannot be run here.")
    own, rest = _read(words[start + 1 :], _options(host, program), lambda name: None, program)
    verb = rest[1:] if rest[:1] == ["container"] else rest
    if verb[:1] != ["run"]:
        raise StudyError(f"`{program} {' '.join(rest[:1])}` is not `{program} run`: only a line that runs an image is.")
    known = _options(host, program, "run")
    flags, image = _read(verb[1:], known, lambda name: _asked(host, program, name), f"{program} run")
    if not image:
        raise StudyError(f"this `{program} run` line names no image: every word of it was read as an option.")
    engine = (*before, program, *(word for flag in own for word in flag.words))
    return Line(engine, tuple(flags), image[0], tuple(image[1:]))


def _options(host: Host, *command: str) -> dict[str, Option]:
    return options(host.run([*command, "--help"]).checked().out)


def options(text: str) -> dict[str, Option]:
    """The options that the help of a command lists, by their short and long names."""
    found: dict[str, Option] = {}
    for line in text.splitlines():
        if seen := _OPTION.fullmatch(line):
            short, name, value = seen.groups()
            option = Option(f"--{name}", value is not None)
            found |= {f"--{name}": option} | ({f"-{short}": option} if short else {})
    return found


def _asked(host: Host, program: str, name: str) -> bool | None:
    """By an option alone, which cannot make a container: there is no image behind it."""
    refused = host.run([program, "create", name]).err
    return None if "unknown" in refused else "needs an argument" in refused


def _read(words: Sequence[str], known: Mapping[str, Option], ask: Ask, command: str) -> tuple[list[Flag], list[str]]:
    """The options up to the first word that is none, as pflag reads them, and the words from there on."""

    def option(name: str) -> Option:
        if name in known:
            return known[name]
        takes_value = ask(name)
        if takes_value is None:
            raise StudyError(f"`{command}` has no option {name}: {command} --help lists those that it has.")
        return Option(name, takes_value)

    flags: list[Flag] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found = option(name)
            if equals or not found.takes_value:
                flags.append(Flag(found.name, value if equals else "true", (word,)))
            else:
                flags.append(_with_next(found.name, word, rest, command))
        else:
            flags += _cluster(word, rest, option, command)
    return flags, rest


def _with_next(name: str, word: str, rest: list[str], command: str) -> Flag:
    if not rest:
        raise StudyError(f"{word} of this `{command}` line has no value behind it.")
    value = rest.pop(0)
    return Flag(name, value, (word, value))


def _cluster(word: str, rest: list[str], option: Callable[[str], Option], command: str) -> Iterator[Flag]:
    """`-it`, `-p80:80`, `-itv /a:/b`: short options without values, and one with a value at the end."""
    letters = word[1:]
    while letters:
        short, letters = f"-{letters[0]}", letters[1:]
        found = option(short)
        if letters.startswith("="):
            yield Flag(found.name, letters[1:], (f"{short}{letters}",))
            return
        if not found.takes_value:
            yield Flag(found.name, "true", (short,))
        elif letters:
            yield Flag(found.name, letters, (f"{short}{letters}",))
            return
        else:
            yield _with_next(found.name, short, rest, command)
            return

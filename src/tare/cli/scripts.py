"""What a script of the user's needs beside its command line: the options of `tare weigh` and `tare why` for it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from tare.base.errors import StudyError

_PATH = click.Path(path_type=Path, exists=True, resolve_path=True)
_OPTIONS = (
    click.option("--reads", metavar="PATH", type=_PATH, multiple=True,
                 help="A file or folder of this device that an image or a sealed root is to show; may be repeated."),
    click.option("--writes", metavar="DIR", type=_PATH, multiple=True,
                 help="A folder that the command writes to for real; what it writes elsewhere goes with the trial."),
    click.option("--env", metavar="NAME=VALUE", multiple=True,
                 help="A variable for the command, on both sides; may be repeated."),
    click.option("--network", type=click.Choice(["none", "host"]), default="none", show_default=True,
                 help="host: the container has this device's network; none: the loopback alone."),
    click.option("--keep-outputs", is_flag=True, help="Keep what each trial wrote, in the store's folder outputs."),
)  # fmt: skip
_EVERY_SHELLS = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME"})


@dataclass(frozen=True)
class Script:
    """What was given of these."""

    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    network: str = "none"
    keep_outputs: bool = False

    def workload(self, words: tuple[str, ...], *, image: bool = False) -> dict[str, Any]:
        """The command line as a workload, run where we are; with an image in that, unless it names files here."""
        given: dict[str, Any] = {
            "reads": [str(path) for path in self.reads],
            "writes": [str(path) for path in self.writes],
            "env": dict(self.env),
            "keep_outputs": self.keep_outputs,
        }
        kept = {name: value for name, value in given.items() if value}
        where = {"in_image": True} if image and not names_files_here(words) else {"cwd": str(Path.cwd())}
        return {"command": {"argv": list(words), **where, **kept}}

    def environment(self, in_image: bool = False) -> str:
        """For people: what of their variables the command does not get, and what tare sets."""
        from tare.drivers.places import environment_facts

        facts = environment_facts("default")
        known = {*_EVERY_SHELLS, *facts["fixed"]}
        away = [name for name in facts["left_out"] if name not in known and not name.startswith("TARE_")]
        fixed = [name for name in facts["fixed"] if name != "TARE_MARKS"]
        if in_image:
            added = f" and {', '.join(self.env)}" if self.env else "; --env adds others"
            return f"the command gets the image's variables{added}; tare sets {', '.join(fixed)}."
        less = f" but {', '.join(away)}" if away else ""
        return f"the command gets all your variables{less}, on both sides; tare sets {', '.join(fixed)}."

    def platform(self) -> dict[str, Any]:
        """Fields of the container."""
        return {} if self.network == "none" else {"network": self.network}

    def for_commands(self) -> bool:
        """Whether something was given that only a command has."""
        return bool(self.reads or self.writes or self.env or self.keep_outputs)


def names_files_here(words: tuple[str, ...]) -> bool:
    """Whether a command line names a file or folder of the working folder, by a relative path."""
    return any(word and not word.startswith(("/", "-")) and Path(word).exists() for word in words)


def script_options(verb: Callable[..., Any]) -> Callable[..., Any]:
    """The options, which the verb gets as one value called `script`."""

    @functools.wraps(verb)
    def taking(
        *, reads: Any, writes: Any, env: tuple[str, ...], network: str, keep_outputs: bool, **others: Any
    ) -> Any:
        return verb(script=Script(reads, writes, _variables(env), network, keep_outputs), **others)

    for option in reversed(_OPTIONS):
        taking = option(taking)
    return taking


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    for words in given:
        if not words.partition("=")[0] or "=" not in words:
            raise StudyError(f"--env {words!r}: write NAME=VALUE.")
    return dict(words.split("=", 1) for words in given)

"""`tare weigh -- docker run ...`: the engineer's own line, as it is, against the same command without a container."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from tare.base.errors import StudyError
from tare.base.host import LocalHost
from tare.base.secrets import masked_words
from tare.cli.command_line import refuse_no_program, words_of
from tare.cli.scaffold import Option, as_one, need, say
from tare.drivers.containers.line import Line, is_line


@dataclass(frozen=True)
class Allowed:
    """What its options say."""

    bare: str | None  # what bare metal runs instead
    fields: Mapping[str, bool]  # of the platform `own`

    def refuse_without_line(self, words: tuple[str, ...]) -> None:
        given = ["bare"] if self.bare else []
        given += [name for name, is_given in self.fields.items() if is_given]
        need(
            not given or is_line(words),
            f"--{(given or [''])[0].replace('_', '-')} is about a `docker run` or `podman run` line after --.",
        )


def _allowed(bare: str | None, **fields: bool) -> Allowed:
    return Allowed(bare, fields)


line_options: Option = as_one(
    "allowed", _allowed,
    click.option("--bare", metavar="COMMAND", help="What bare metal runs instead of a `docker run` line's command."),
    click.option("--allow-network", is_flag=True, help="The line's own network, which may lead outside; else none."),
    click.option("--real-volumes", is_flag=True,
                 help="The line's volumes are written to for real; else a copy of them in each trial."),
    click.option("--allow-privileged", is_flag=True,
                 help="Run a line that can change this device: --privileged, --pid host, --device, --cap-add..."),
)  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """A line that can be run, and what bare metal runs against it."""

    line: Line
    fields: dict[str, Any]  # of the platform `own`
    work: dict[str, Any]  # the workload, as a study has it

    @property
    def levels(self) -> list[Any]:
        """Both sides, as platforms of a study."""
        return ["bare", {"own": self.fields}]


def taken(
    words: tuple[str, ...], allowed: Allowed, given: Mapping[str, object], end_early: Callable[[dict[str, Any]], None]
) -> Taken | None:
    """The line after `--`, if it is one; says how it is run, what of it is not honoured, and what bare metal runs.

    `given`: other options about the container, which the line itself says; `end_early` puts into a workload where it
    ends.
    """
    from tare.drivers.containers import own
    from tare.parts.platforms.own import Own, not_honoured, read

    allowed.refuse_without_line(words)
    if not is_line(words):
        return None
    wrong = next((name for name, value in given.items() if value), None)
    need(
        wrong is None,
        f"{wrong} is for a container that tare makes: write it into your line as the engine has it.",
    )
    host = LocalHost()
    text = shlex.join(words)
    line = read(text)
    part = Own(line=text, **allowed.fields)
    own.refuse_remote(host, line)
    seen = own.look_at(host, line, part.allowed)
    if refused := own.refusals(line, seen, part.allowed):
        raise StudyError("\n".join([*refused, "Nothing was run."]))
    variables = {
        name: seen.env[name] for flag in line.flags if (name := flag.setting) in seen.env and flag.name == "--env"
    }
    fields = {"line": text, **{name: True for name, is_given in allowed.fields.items() if is_given}}
    fields |= {"env": variables} if variables else {}
    command, folder = _on_bare_metal(seen, allowed.bare)
    work: dict[str, Any] = {"command": {"argv": command, "cwd": folder, "plain": True}}
    end_early(work)
    runs = shlex.join(masked_words(command))
    try:
        refuse_no_program(work)
    except StudyError as error:
        raise StudyError(
            f"bare metal cannot run `{runs}`, the command of this line's image: {str(error).splitlines()[0]}\n"
            "--bare COMMAND names what runs on this device instead; --image A --against-image B compares two images. "
            "Nothing was run."
        ) from None
    say(f"container: {line.shown()}")
    if away := not_honoured(line, part.fields()):
        shown = " ".join(word for flag in away for word in flag.shown())
        say(f"  not honoured: {shown} (the container has a name of its own, no port and no terminal).")
    if not allowed.fields["allow_network"]:
        say("  its network is `none`: --allow-network gives it the line's own.")
    if not allowed.fields["real_volumes"] and any(mount.writable for mount in seen.mounts):
        say("  each trial writes to a copy of its volumes: --real-volumes lets it write to them.")
    say(f"bare metal: `{runs}` in {folder}")
    return Taken(line, fields, work)


def _on_bare_metal(seen: Any, bare: str | None) -> tuple[list[str], str]:
    """The container's command with the device's files in place of what is mounted inside, and its folder."""
    inside = seen.on_device(seen.folder)
    folder = inside if inside != seen.folder else str(Path.cwd())
    if bare is not None:
        return words_of(bare, "--bare"), folder
    words = [seen.on_device(word) if word.startswith("/") else word for word in seen.argv]
    return words, folder

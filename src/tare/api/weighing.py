"""What is weighed against what: a command or a built-in workload, a platform that works here, images; as a study."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.api.running import needs_of, platform
from tare.base.errors import ObstacleError, StudyError, unknown_name
from tare.base.rulings import Ruling
from tare.base.text import say

if TYPE_CHECKING:
    from tare.studies.model import Study

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


def weigh_study(
    work: Mapping[str, Any], levels: list[Any], against: Mapping[str, Any], *, repeat: int | None, margin: float,
    seconds: int, design: Mapping[str, Any], **more: Any,
) -> Study:  # fmt: skip
    """The study that a weighing is: blocks until the interval is narrow, or as many as requested."""
    from tare.studies.load import from_plain

    return from_plain(
        {
            "study": "weigh",
            "platform": levels,
            "workload": work,
            "repeat": repeat or {"min": 7, "max": 20, "until": margin / 2, "within": f"{seconds} s"},
            "design": design,
            "compare": {**against, "margin": margin},
            "rehearse": True,
            **more,
        },
        "tare weigh",
    )


def sides(
    chosen: str, fields: dict[str, Any], image: str | None, against: str | None, *, command: bool
) -> tuple[list[Any], dict[str, Any]]:
    """What is weighed against what: platforms as a study has them, and its baseline. Says which software bare runs."""
    image, against = (None if each is None else placed(each) for each in (image, against))
    if against:
        by = "platform.image"
        return [{chosen: {**fields, "image": [against, image]}}], {"by": by, "against": {by: against}}
    bare: Any = "bare"
    if image and command:
        bare = {"bare": {"image": image}}
        say(f"bare metal runs in the file system of {image} too: the same bytes on both sides.")
    elif image:
        say(f"bare metal runs this device's software, {chosen} that of {image}: what differs is in the report.")
    fields = {**fields, **({"image": image} if image else {})}
    return [bare, {chosen: fields} if fields else chosen], {"against": {"platform": "bare"}}


def end_early(work: dict[str, Any], steps: int | None, minutes: float | None) -> None:
    """The workload, ended after so many steps or minutes where that is asked for."""
    bounds = {name: value for name, value in (("steps", steps), ("minutes", minutes)) if value is not None}
    if bounds and "command" not in work:
        raise StudyError("--steps and --minutes are for a command after --.")
    if bounds:
        work["command"] |= bounds


def fetched(platform: str, *images: str | None) -> None:
    """Images that are not on this device are fetched before anything is run."""
    from tare.drivers.containers.docker import fetch
    from tare.drivers.containers.roots import refuse_no_image

    for image in dict.fromkeys(images):
        if image:
            refuse_no_image(image)
            fetch(platform, placed(image), say)


def placed(image: str) -> str:
    """An image as a study names it: a file or folder by its whole path."""
    from tare.drivers.containers.roots import is_path

    return str(Path(image).expanduser().resolve()) if is_path(image) else image


def built_in_workload(name: str) -> dict[str, Any]:
    """A workload of the papers, in a size for a few seconds a trial, or any workload part that needs no fields."""
    from tare.drivers.torch_programs import PRESETS
    from tare.parts.find import find, names

    presets = {preset.name: preset.workload(quick=True) for preset in PRESETS}
    plain = [part for part in names("workloads") if not find("workloads", part).example]
    known = {**{part: {part: {}} for part in plain}, **presets}
    if name in known:
        return known[name]
    raise StudyError(unknown_name("built-in workload", name, [*presets, *plain]))


def choose_platform(asked: str | None, stack: ExitStack) -> str:
    """The platform that was asked for, or the first container that works here; says what it passed over."""
    if asked == "bare":
        raise StudyError("bare metal is what the others are weighed against; name a container platform.")
    refused: list[Ruling] = []
    names = [asked] if asked else tried()
    for name in names:
        obstacles = _obstacles(name, stack)
        if not obstacles:
            if refused:
                say(f"weighing in {name} instead:")
                for sentence in refused:
                    say(f"  - {sentence}")
            return name
        refused += obstacles
    what = f"{asked} cannot" if asked else "none of " + ", ".join(names) + " can"
    raise ObstacleError(f"{what} be used here, and nothing was run:", refused)


def _obstacles(name: str, stack: ExitStack) -> list[Ruling]:
    from tare.base.host import LocalHost

    stack.enter_context(needs_of([name]))
    return platform(name)().obstacles(LocalHost())


def tried() -> list[str]:
    """The platforms that are tried where none is named, in this order."""
    from tare.parts.find import names

    ranks = {name: platform(name).tried for name in names("platforms")}
    return sorted((name for name, rank in ranks.items() if rank is not None), key=lambda name: ranks[name] or 0)

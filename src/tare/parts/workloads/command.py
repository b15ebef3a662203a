"""Any command of the user's own, timed as a whole; a PyTorch script's steps are marked without a change to it."""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, PositiveInt, field_validator, model_validator

from tare.base.command_words import script_and_options, why_not_settable, with_options
from tare.base.errors import TrialError
from tare.base.host import Host, Job, OwnDevice, RunsOwn, image_of
from tare.base.rulings import Ruling, obstacle
from tare.base.secrets import masked_env, masked_words
from tare.drivers.places import Malloc, environment_facts, image_env, launched, users_env
from tare.parts.protocols import Json, Workload

Attach: TypeAlias = Literal["torch", "none"]

TITLE_LENGTH = 60
REHEARSED_STEPS = 20
ATTACH_SETTINGS = "TARE_ATTACH"  # a variable of the job, which its hook reads
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
Scalar: TypeAlias = int | float | str
_SHELL_WORDS = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"})
# A container has these from its own image; showing it ours in their place would break it.
_SYSTEM = tuple(
    map(Path, ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr"))
)
_SHARED = (Path("/tmp"), Path("/var/tmp"))  # a file here is shown alone: the folder must stay writable inside

# Runs on the host: where is the command, what is it called that almost has its name, which of these files are missing?
_LOOK = """
import difflib, json, os, shutil, sys
name, path, folder, files = json.loads(sys.argv[1])
said = {"folder": os.path.isdir(folder)}
if said["folder"]:
    os.chdir(folder)
    said["found"] = shutil.which(name, path=path) is not None
    said["missing"] = [file for file in files if not os.path.exists(file)]
    said["near"] = {}
    for file in said["missing"]:
        place = os.path.dirname(file)
        there = sorted(os.listdir(place or ".")) if os.path.isdir(place or ".") else []
        for near in difflib.get_close_matches(os.path.basename(file), there, n=1):
            said["near"][file] = os.path.join(place, near)
    said["closed"] = not said["found"] and os.path.isfile(name)
    if not said["found"] and "/" not in name:
        programs = {entry for place in path.split(os.pathsep) if os.path.isdir(place) for entry in os.listdir(place)}
        said["close"] = difflib.get_close_matches(name, sorted(programs), n=1)
print(json.dumps(said))
"""


def _words(value: Any) -> Any:
    """A command line given as one string is split as a shell would, but no shell runs it."""
    if not isinstance(value, str):
        return tuple(value) if isinstance(value, list) else value
    words = shlex.split(value)
    if found := [word for word in words if word in _SHELL_WORDS]:
        raise ValueError(f"no shell runs the command, so {found[0]!r} means nothing; write ['bash', '-c', '...']")
    return tuple(words)


def _texts(value: Any) -> Any:
    """Variables are texts; a number is taken as it is written, a truth value would be a guess."""
    if not isinstance(value, Mapping):
        return value
    for name, text in value.items():
        if isinstance(text, bool) or not isinstance(text, str | int | float):
            raise ValueError(f"the variable {name} is a text or a number, not {text!r}; put it in quotes")
    return {str(name): str(text) for name, text in value.items()}


def _scalar(value: Any) -> Any:
    """A level of `vary` is a number or a text, as it is written."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"a level of `vary` is a number or a text, not {value!r}; put it in quotes")
    return value


def filled(text: str, vary: Mapping[str, Json]) -> str:
    """The text with `{name}` replaced by its level; braces around any other word stay."""
    return _PLACEHOLDER.sub(lambda found: str(vary.get(found[1], found[0])), text) if vary else text


def combinations(fields: Mapping[str, Json], reserved: Iterable[str]) -> list[dict[str, Json]]:
    """Every combination of the levels in `vary`, in the order of the file; each name stands somewhere in braces."""
    vary, line, env = fields["vary"], fields.get("argv", ()), fields.get("env") or {}
    if not isinstance(vary, Mapping) or not vary:
        raise ValueError("`vary` maps names to their levels, like {batch: [16, 64]}")
    words = [line] if isinstance(line, str) else [str(word) for word in line]
    words += [str(text) for text in env.values()] if isinstance(env, Mapping) else []
    label = str(fields.get("label") or "")
    used = {name for word in words for name in _PLACEHOLDER.findall(word)}
    if unknown := sorted({*used, *_PLACEHOLDER.findall(label)} - set(vary)):
        raise ValueError(f"{{{unknown[0]}}} has no levels: `vary` has {', '.join(map(str, vary))}")
    if unused := [str(name) for name in vary if name not in used]:
        raise ValueError(
            f"`vary` has levels of {unused[0]!r}, but {{{unused[0]}}} stands neither in `argv` nor in `env`"
        )
    if taken := [str(name) for name in vary if name in reserved]:
        raise ValueError(f"{taken[0]!r} is a field of a command: call the levels by another name")
    levels = [each if isinstance(each, list) else [each] for each in vary.values()]
    if empty := [str(name) for name, each in zip(vary, levels, strict=True) if not each]:
        raise ValueError(f"`vary` has no level of {empty[0]!r}")
    return [dict(zip(vary, each, strict=True)) for each in itertools.product(*levels)]


def _attach(value: Any) -> Any:
    """What it was called before it had names: true and false."""
    return {True: "torch", False: "none"}[value] if isinstance(value, bool) else value


class Command(Workload):
    """Run a command of yours. Where it is a PyTorch script, its steps are marked without a change to it."""

    short: ClassVar[str | None] = "argv"
    rehearsed: ClassVar[bool] = True
    example: ClassVar[Mapping[str, Json]] = {"argv": ("true",)}
    layered: ClassVar[bool] = True

    argv: Annotated[tuple[str, ...], BeforeValidator(_words), Field(min_length=1)]
    """The command and its arguments. No shell runs it."""
    cwd: Path | None = None
    """The folder to run it in; the one that tare was started in by default."""
    env: Annotated[dict[str, str], BeforeValidator(_texts)] = Field(default_factory=dict)
    """Variables for it, beside yours, all of which it gets but a few (docs/how-to/my-script.md lists them).

    The value of one whose name speaks of a secret (HF_TOKEN, AWS_SECRET_ACCESS_KEY) is recorded as a digest."""
    attach: Annotated[Attach, BeforeValidator(_attach)] = "torch"
    """`torch`: mark the steps of a PyTorch script, and take the marks that a program makes itself; `none`: the
    program knows nothing of us. (`true` and `false`, as older studies say it, mean the same.)"""
    malloc: Malloc = "default"
    """`fixed`: the allocator keeps freed memory, which else flips between identical runs; `default`: it chooses."""
    reads: tuple[Path, ...] = ()
    """Files and folders that it reads, beside those that its command line names; an image and a sealed root have no
    other files of the device's, every other platform has all."""
    writes: tuple[Path, ...] = ()
    """Folders that it writes to for real. Whatever it writes elsewhere goes with the trial."""
    in_image: bool = False
    """Its files are the image's: it runs as with `docker run`, with the image's entry point, folder and variables, and
    sees of the device's files only `reads`. Every platform needs an `image` then."""
    plain: bool = False
    """Without the variables that tare sets for steadier times, as PYTHONHASHSEED."""
    keep_outputs: bool = False
    """Keep what a trial wrote, in the store's folder `outputs`."""

    steps: PositiveInt | None = None
    """End each trial after so many steps of a PyTorch script: for one that would run for hours."""
    minutes: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """End each trial so many minutes after its first step began."""
    vary: dict[str, Annotated[Scalar, BeforeValidator(_scalar)]] = Field(
        default_factory=dict,  # a study has lists here: the levels, which `expanded` takes apart
        json_schema_extra={"additionalProperties": {"type": ["number", "string", "array"]}},
    )
    """Levels by name, like {batch: [16, 64]}: each combination is a level, with `{batch}` in `argv`, `env` and `label`
    replaced."""
    label: str | None = None
    """What it is called in reports, like "MNIST, batch {batch}"; by default its script and the options that differ."""

    @model_validator(mode="after")
    def _can_be_ended(self) -> Self:
        if (self.steps or self.minutes) and self.attach != "torch":
            raise ValueError("`steps` and `minutes` end a script at a step, and `attach: none` marks none")
        return self

    @classmethod
    def expanded(cls, fields: Mapping[str, Json]) -> list[dict[str, Json]]:
        """One level for each combination in `vary`."""
        if "vary" not in fields:
            return [dict(fields)]
        return [{**fields, "vary": each} for each in combinations(fields, cls.model_fields)]

    def settings(self) -> dict[str, Json]:
        """What was set of the fields that came later, and each name in `vary` as a setting of its own."""
        shown = self.fields() | {"argv": self.masked({"argv": list(self._argv())})["argv"]}
        if self.vary and self.env:
            shown["env"] = self.masked({"env": self._env()})["env"]
        for name in ("writes", "in_image", "plain", "keep_outputs", "steps", "minutes", "vary", "label"):
            if not shown[name]:
                del shown[name]
        if self.vary:
            del shown["vary"]
        if self.label is not None:
            shown["label"] = filled(self.label, self.vary)
        return {**shown, **self.vary}

    def with_options(self, options: Mapping[str, str | None]) -> Self:
        if (why := why_not_settable(self._argv(), options)) is not None:
            raise TrialError(f"`arguments` of a platform: {why}")
        return self.model_copy(update={"argv": with_options(self._argv(), options)})

    def _argv(self) -> tuple[str, ...]:
        return tuple(filled(word, self.vary) for word in self.argv)

    def _env(self) -> dict[str, str]:
        return {name: filled(text, self.vary) for name, text in self.env.items()}

    def shortened(self) -> Self:
        """A few steps, where it is ended at a step at all; a script that runs to its end may fail there."""
        if not (self.steps or self.minutes):
            return self
        return self.model_copy(update={"steps": min(self.steps or REHEARSED_STEPS, REHEARSED_STEPS), "minutes": None})

    def about_units(self) -> int | None:
        return self.steps

    def bound_s(self) -> float | None:
        return None if self.minutes is None else 60 * self.minutes

    def __hash__(self) -> int:
        return hash(json.dumps(self.fields(), sort_keys=True))  # the default cannot hash `env`

    @classmethod
    def masked(cls, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Without the values of secret variables, and of options such as `--token`: jobs are recorded."""
        shown = dict(fields)
        if isinstance(shown.get("env"), Mapping):
            shown["env"] = masked_env(shown["env"])
        if "argv" in shown:
            shown["argv"] = _without_secrets(shown["argv"])
        return shown

    @field_validator("argv")
    @classmethod
    def _names_a_program(cls, argv: tuple[str, ...]) -> tuple[str, ...]:
        if not argv[0]:
            raise ValueError("the first word names the program, and it is empty")
        if any("\0" in word for word in argv):
            raise ValueError("no word of a command line can hold a zero byte")
        return argv

    @field_validator("cwd", "reads", "writes")
    @classmethod
    def _is_absolute(cls, value: Path | tuple[Path, ...] | None) -> Path | tuple[Path, ...] | None:
        for path in value if isinstance(value, tuple) else (value,):
            if path is not None and not path.is_absolute():
                raise ValueError(f"{str(path)!r} depends on where tare is started; write the whole path")
        return value

    def obstacles(self, host: Host) -> list[Ruling]:
        if self.in_image:
            return []
        requested = [self._argv()[0], self._path(), str(self._folder()), self._scripts()]
        answer = host.run([host.python, "-I", "-c", _LOOK, json.dumps(requested)])
        try:
            reported = json.loads(answer.out) if answer.code == 0 else None
        except ValueError:
            reported = None
        if reported is None:
            return [
                obstacle(
                    "host.not-asked",
                    f"the host could not be asked for {self.argv[0]!r}: {(answer.err or answer.out).strip()[-300:]}",
                )
            ]
        return list(self._missing(reported))

    def _missing(self, reported: Mapping[str, Any]) -> Iterator[Ruling]:
        if not reported["folder"]:
            yield obstacle("needs.file", f"no folder {self._folder()} to run the command in; set `cwd`.")
            return
        if not reported["found"]:
            close = reported.get("close") or []
            hint = f"did you mean {close[0]!r}?" if close else "give its whole path, or put its folder on PATH."
            if reported.get("closed"):
                hint = "it is there and may not be executed: `chmod +x` it, or start it with its interpreter."
            yield obstacle("needs.program", f"no program {self._argv()[0]!r} here; {hint}")
        for script in reported["missing"]:
            near = (reported.get("near") or {}).get(script)
            hint = (
                f"did you mean {near!r}?"
                if near
                else "give its whole path, or start tare in its folder (in a study: `cwd`)."
            )
            yield obstacle("needs.file", f"no file {script!r} in {self._folder()}; {hint}")

    def users_program(self, host: Host) -> Path | None:
        if self.in_image:
            return None
        found = shutil.which(self._argv()[0], path=self._path()) if isinstance(host, OwnDevice) else None
        return self._folder() / found if found else None

    def title(self) -> str:
        """Its label; else its script, with all options where they are few."""
        if self.label is not None:
            return filled(self.label, self.vary)
        script, options = script_and_options(masked_words(self._argv()))
        line = " ".join([script, *options])
        return line if len(line) <= TITLE_LENGTH else script

    def inputs(self) -> tuple[Path, ...]:
        """The working folder; the folder of each file, and each folder, that a word of the command line names (also
        after `=`); what `reads` says. The system's own folders are left out, unless `reads` says so, and so are the
        shared ones such as /tmp, which every platform has of its own: of these only the files that are named.
        """
        if self.in_image:
            return self.reads
        folder = self._folder()
        named = [folder, *(found for word in self._argv()[1:] for found in _folders_named(word, folder))]
        wanted = [path for path in named if not _is_system(path) and path not in _SHARED] + list(self.reads)
        return tuple(dict.fromkeys(path for path in wanted if not _is_in_another(path, wanted)))

    def facts(self) -> dict[str, Json]:
        return {"environment": environment_facts(self.malloc)}

    def folder(self) -> Path | None:
        return None if self.in_image else self._folder()

    def outputs(self) -> tuple[Path, ...]:
        return self.writes

    def keeps_outputs(self) -> bool:
        return self.keep_outputs

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        image, attach = image_of(place), self.attach == "torch"
        if isinstance(place, RunsOwn):
            env = users_env(workdir, self.malloc, attach=attach, environ={}, steady=False)
            return place.job({name: env[name] for name in ("PYTHONPATH", "TARE_MARKS")} | self._ends())
        if not self.in_image:
            env = users_env(workdir, self.malloc, attach=attach, steady=not self.plain)
            return self._timed(place, workdir, self._argv(), env, str(self._folder()))
        if image is None:
            raise TrialError("the command's files are an image's (`in_image: true`), and this platform has no `image`.")
        env = image_env(workdir, self.malloc, image, attach=attach)
        return self._timed(place, workdir, (*image.entry, *self._argv()), env, image.folder)

    def _timed(self, place: Host, workdir: Path, argv: tuple[str, ...], env: dict[str, str], folder: str) -> Job:
        """The job under our launcher; in an image without Python as it is, and timed from outside."""
        given = self._env()
        if "PYTHONPATH" in given:  # after ours, or no step would be found
            ours = [each for each in env["PYTHONPATH"].split(os.pathsep) if Path(each).is_relative_to(workdir)]
            given["PYTHONPATH"] = os.pathsep.join((*ours, given["PYTHONPATH"]))
        own = {**env, **given, **self._ends()}
        return Job(launched(place.python, workdir, argv) if place.python else argv, own, folder)

    def _ends(self) -> dict[str, str]:
        """What tells the script's hook to end it (`tare_inside.attach`); nothing where it runs to its own end."""
        wanted = {"stop_after_steps": self.steps, "stop_after_s": self.bound_s()}
        bounds = {name: value for name, value in wanted.items() if value is not None}
        return {ATTACH_SETTINGS: json.dumps(bounds)} if bounds else {}

    def _folder(self) -> Path:
        return self.cwd or Path.cwd()

    def _path(self) -> str:
        return {**os.environ, **self._env()}.get("PATH", os.defpath)

    def _scripts(self) -> list[str]:
        """The script of `python -u script.py`, whose absence would only show at the end of a long preparation."""
        program, *words = self._argv()
        if not Path(program).name.startswith(("python", "torchrun", "bash", "sh")) or {"-c", "-m"} & set(words[:2]):
            return []
        return [word for word in words if word.endswith((".py", ".sh"))][:1]


def _folders_named(word: str, folder: Path) -> Iterator[Path]:
    """The folders that this word of a command line points at, if it names something that exists."""
    for text in filter(None, (word, word.partition("=")[2])):
        path = Path(os.path.normpath(folder / text))
        try:
            if path.is_dir():
                yield path
            elif path.exists():
                yield path if path.parent in _SHARED else path.parent
        except (OSError, ValueError):  # not every word can be a path
            continue


def _without_secrets(line: Json) -> Json:
    """A command line, as words or as one string; one string that holds a secret becomes words."""
    try:
        words = [str(word) for word in _words(line)]
    except (TypeError, ValueError):  # what is no command line is refused elsewhere
        return line
    shown = masked_words(words)
    return line if shown == words else shown


def _is_system(path: Path) -> bool:
    return path == Path("/") or any(path.is_relative_to(system) for system in _SYSTEM)


def _is_in_another(path: Path, others: list[Path]) -> bool:
    return any(path != other and path.is_relative_to(other) for other in others)

"""Weighings and studies from Python: what `tare weigh`, `tare plan` and `tare run` do, on the same engine."""

from __future__ import annotations

import base64
import importlib
import io
import json
import re
import secrets
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.api.results import Result, Stores, Table
from tare.api.running import needs_of, needs_of_study, platform, run_into, study_text
from tare.base.errors import ObstacleError, StudyError, unknown_name
from tare.base.host import LocalHost
from tare.base.rulings import Ruling
from tare.base.text import heard_by, say
from tare.base.units import parse_seconds

if TYPE_CHECKING:
    from tare.studies.model import Study as Written

_RUNNER = "call.py"
_EVERY_SHELLS = frozenset({"PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME"})


USUAL_S = 90  # a weighing begins no further block past the sixth that would end later


def weigh(
    work: str | Sequence[str] | Callable[..., Any], *, setup: Callable[[], Any] | None = None, calls: int = 100,
    on: str | None = None, image: str | None = None, against_image: str | None = None, margin: float = 0.05,
    blocks: int | None = None, budget: str | float | None = None, trial_limit: str | None = None,
    limit: Mapping[str, Any] | None = None, mount: Sequence[str | Path] = (), env: Mapping[str, str] | None = None,
    network: str = "none", store: str | Path | None = None, progress: bool = True,
) -> Result:  # fmt: skip
    """Weigh a command, a built-in workload or a callable on bare metal against a container.

    `work` is a command line (`"python train.py"`, or a list of words), the name of a built-in workload (`"lenet5"`), or
    a callable: then each trial is a fresh process that calls `setup()` once and `work(what setup gave)` `calls` times.
    `on` names the platform; where it is left out, the first container that works here is taken. `limit` holds fields of
    the container, such as `{"quota": 2, "shm": "64MiB"}`. `budget` ("5min"), `trial_limit` ("200steps") and `mount`
    ("PATH:rw") are as in `tare weigh`, and so are the defaults. The trials are kept in `store`, by default a new folder
    below `out`.

        result = tare.weigh("python train.py --epochs 1", on="docker")
        result.verdict, result.effect, result.interval
    """
    folder = Path(store) if store is not None else new_folder("weigh")
    script = Script(*mounted([str(each) for each in mount]), dict(env or {}), network)
    began_s = time.monotonic()
    with ExitStack() as stack:
        stack.enter_context(_progress(progress))
        workload, is_command = _workload(work, setup, calls, script, folder, image)
        end_early(workload, None if trial_limit is None else _parsed("trial_limit", trial_limit, read_limit))
        refuse_no_images(image, against_image)
        chosen = choose_platform(on, stack)
        fetched(chosen, image, against_image)
        container = {**script.platform(), **(limit or {})}
        levels, against = sides(chosen, container, image, against_image, command=is_command)
        budget_s = _parsed("budget", budget, parse_seconds) if isinstance(budget, str) else budget
        left_s = None if budget_s is None else max(1.0, budget_s - (time.monotonic() - began_s))
        made = weigh_study(workload, levels, against, blocks=blocks, margin=margin, budget_s=left_s)
        run_into(made, study_text(made), folder, progress=progress)
    return Stores([folder]).compare()


def _workload(
    work: Any, setup: Callable[[], Any] | None, calls: int, script: Script, folder: Path, image: str | None
) -> tuple[dict[str, Any], bool]:
    """As a study has it, and whether it is a command."""
    if callable(work):
        if image:
            raise StudyError("a callable needs this Python, which an image does not have: leave `image` out.")
        return script.workload(_callable_command(work, setup, calls, folder)), True
    if setup is not None:
        raise StudyError("`setup` is for a callable; a command sets itself up.")
    words = shlex.split(work) if isinstance(work, str) else [str(word) for word in work]
    if not words:
        raise StudyError("there is nothing to weigh: give a command, a built-in workload or a callable.")
    if len(words) == 1 and isinstance(work, str) and "/" not in work and not Path(work).exists():
        return built_in_workload(work), False
    return script.workload(tuple(words), image=bool(image)), True


def _callable_command(
    step: Callable[..., Any], setup: Callable[[], Any] | None, calls: int, folder: Path
) -> tuple[str, ...]:
    """The command line of a process that calls it so often; what it needs is written beside the store."""
    import tare_inside

    if calls < 1:
        raise StudyError("`calls` is how often the callable is called in a trial: at least once.")
    told = {
        "step": reference(step),
        "setup": None if setup is None else reference(setup),
        "calls": calls,
        "path": [str(Path(each or ".").resolve()) for each in sys.path],
    }
    file = folder.with_name(f"{folder.name}.callable.json").resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told), encoding="utf-8")
    runner = Path(tare_inside.__file__).with_name("programs") / _RUNNER
    return sys.executable, str(runner), str(file)


def reference(called: Callable[..., Any]) -> dict[str, str]:
    """How another process gets the same callable.

    >>> reference(json.dumps)
    {'module': 'json', 'name': 'dumps'}
    """
    module, name = getattr(called, "__module__", None), getattr(called, "__qualname__", "")
    if module and module != "__main__" and _is_found(module, name, called):
        return {"module": module, "name": name}
    try:
        import cloudpickle
    except ImportError:
        raise StudyError(
            f"{name or called!r} cannot be imported by another process (it is made in {module or 'no module'}, or "
            "inside a function). Put it into a module, or `pip install cloudpickle`, which carries it as it is."
        ) from None
    try:
        return {"pickle": base64.b64encode(cloudpickle.dumps(called)).decode()}
    except Exception as error:  # whatever an object's own reduction raises
        raise StudyError(f"{name or called!r} cannot be carried to another process: {error}.") from None


def _is_found(module: str, name: str, called: Callable[..., Any]) -> bool:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return found is called


def study(source: str | Path | None = None, *, scale: str | None = None, trust: bool = False, **fields: Any) -> Study:
    """A study: a file, or fields as a study file has them.

    >>> study = tare.study(platform=["bare", "runc"], workload={"command": {"argv": "true"}}, repeat=3)
    >>> len(study.plan())
    9
    """
    from tare.studies.load import from_plain, load

    if (source is None) == (not fields):
        raise StudyError("give either a study file, or the fields of a study: platform=..., workload=...")
    if source is not None:
        return Study(load(source, trust=trust, scale=scale))
    return Study(from_plain({"study": "study", **fields}, "tare.studies"))


class Study:
    """What is to be measured: every combination of its factors, in blocks."""

    def __init__(self, written: Written) -> None:
        self.written = written

    def __repr__(self) -> str:
        return f"<tare.Study {self.written.study!r}>"

    @property
    def name(self) -> str:
        """As the study calls itself."""
        return self.written.study

    def plan(self) -> Table:
        """The trials, in the order in which they are run; nothing is run."""
        from tare.plan.matrix import cells, trials

        planned = trials(self.written, cells(self.written))
        named = dict.fromkeys(name for trial in planned for name in trial.settings)
        rows = [
            {"trial": each.id, "block": each.block, "position": each.position, "twin": each.twin,
             **{f"setting.{name}": value for name, value in each.settings.items()}}
            for each in planned
        ]  # fmt: skip
        return Table.of_rows(["trial", "block", "position", "twin", *(f"setting.{name}" for name in named)], rows)

    def run(
        self, store: str | Path | None = None, *, progress: bool = True, retry_failed: bool = False,
        accept_changes: bool = False,
    ) -> Stores:  # fmt: skip
        """Run it, or resume it where the store is there already; by default into `out/NAME`."""
        folder = Path(store) if store is not None else Path("out") / self.written.study
        with _progress(progress), needs_of_study(self.written):
            run_into(self.written, study_text(self.written), folder, accept_changes, retry_failed, progress=progress)
        return Stores([folder])


@contextmanager
def _progress(shown: bool) -> Iterator[None]:
    """Messages as the verbs print them, or none."""
    with ExitStack() as stack:
        if not shown:
            stack.enter_context(heard_by(io.StringIO().write))
        yield


# What is weighed against what: a command or a built-in workload, a platform that works here, images; as a study.


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
            added = f" and {', '.join(self.env)}" if self.env else "; `--set workload.env.NAME=VALUE` adds others"
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
    work: Mapping[str, Any], levels: list[Any], against: Mapping[str, Any], *, blocks: int | None, margin: float,
    budget_s: float | None, more: Mapping[str, Any] | None = None,
) -> Written:  # fmt: skip
    """The study that a weighing is: blocks until the interval is narrow, or as many as requested.

    `budget_s`: when it ends, whatever it has by then; None: blocks past the sixth end after `USUAL_S`. `more`: other
    fields of the study, which go before those made here.
    """
    from tare.studies.load import from_plain
    from tare.studies.model import ENOUGH_REPEATS, MOST_REPEATS

    limit = {"more_within": f"{USUAL_S} s"} if budget_s is None else {"within": f"{budget_s:.0f} s"}
    if blocks is None:
        rule = {"min": ENOUGH_REPEATS, "max": MOST_REPEATS, "until": margin / 2, **limit}
    else:
        rule = {"min": blocks, "max": blocks, **({} if budget_s is None else limit)}
    plain = {
        "study": "weigh",
        "platform": levels,
        "workload": work,
        "repeat": rule,
        "compare": {**against, "margin": margin},
        "rehearse": True,
    }
    return from_plain(merged(plain, more or {}), "tare weigh")


def merged(fields: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Both, with mappings in mappings; `more` wins.

    >>> merged({"repeat": 3, "compare": {"by": "platform"}}, {"compare": {"margin": 0.02}})
    {'repeat': 3, 'compare': {'by': 'platform', 'margin': 0.02}}
    """
    made = dict(fields)
    for name, value in more.items():
        both = isinstance(value, Mapping) and isinstance(made.get(name), Mapping)
        made[name] = merged(made[name], value) if both else value
    return made


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


def new_folder(verb: str) -> Path:
    """Where a store lies that nobody named: `out/weigh-TIME-...`."""
    return Path("out") / f"{verb}-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def read_limit(text: str) -> dict[str, float]:
    """Where each trial ends: `200steps` or `3min`, as fields of a command.

    >>> read_limit("200 steps"), read_limit("90 s")
    ({'steps': 200}, {'minutes': 1.5})
    """
    if found := re.fullmatch(r"\s*(\d+)\s*steps?\s*", text):
        if int(found[1]) < 1:
            raise ValueError(f"{text} leaves nothing; it must be more than zero")
        return {"steps": int(found[1])}
    try:
        seconds = parse_seconds(text)
    except ValueError:
        raise ValueError(f"{text!r} is neither a number of steps (200steps) nor a time (3min)") from None
    if seconds <= 0:
        raise ValueError(f"{text} leaves nothing; it must be more than zero")
    return {"minutes": seconds / 60}


def _parsed(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise StudyError(f"{name}: {error}.") from None


def end_early(work: dict[str, Any], ends: Mapping[str, float] | None) -> None:
    """The workload, ended after so many steps or minutes where that is asked for."""
    if ends and "command" not in work:
        raise StudyError("--trial-limit is for a command after --.")
    if ends:
        work["command"] |= ends


def mounted(mounts: Iterable[str]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """What is read and what is written, of `PATH` and `PATH:rw`."""
    found: dict[str, list[Path]] = {"ro": [], "rw": []}
    for text in mounts:
        path, mode = (text[:-3], text[-2:]) if text.endswith((":rw", ":ro")) else (text, "ro")
        place = Path(path).expanduser().resolve()
        if not place.exists():
            raise StudyError(f"--mount {text}: there is no file or folder {path}.")
        if mode == "rw" and place == Path("/"):
            raise StudyError(f"--mount {text}: the command would write to the whole device; name its folders.")
        found[mode].append(place)
    return tuple(found["ro"]), tuple(found["rw"])


def fetched(platform: str, *images: str | None) -> None:
    """Images that are not on this device are fetched before anything is run."""
    from tare.drivers.containers.pulling import fetch

    for image in dict.fromkeys(images):
        if image:
            fetch(platform, placed(image), say)


def refuse_no_images(*images: str | None) -> None:
    """A file that is named as an image and is none, before an engine is started."""
    from tare.drivers.containers.unpacked import refuse_no_image

    for image in dict.fromkeys(images):
        if image:
            refuse_no_image(image)


def placed(image: str) -> str:
    """An image as a study names it: a file or folder by its whole path."""
    from tare.drivers.containers.unpacked import is_path

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
        stack.enter_context(needs_of([name]))
        obstacles = platform(name)().obstacles(LocalHost())
        if not obstacles:
            if refused:
                say(f"weighing in {name} instead:")
                for sentence in refused:
                    say(f"  - {sentence}")
            return name
        refused += obstacles
    what = f"{asked} cannot" if asked else "none of " + ", ".join(names) + " can"
    raise ObstacleError(f"{what} be used here, and nothing was run:", refused)


def tried() -> list[str]:
    """The platforms that are tried where none is named, in this order."""
    from tare.parts.find import names

    ranks = {name: platform(name).tried for name in names("platforms")}
    return sorted((name for name, rank in ranks.items() if rank is not None), key=lambda name: ranks[name] or 0)

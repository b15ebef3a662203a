"""What a part is. Adding one is one file: `parts/<kind>/<name>.py` with one class that has these methods.

A part is a value: frozen, comparable, hashable; its fields are the keys of the study file. What runs is what
`open()` returns. `obstacles()` says why a part cannot work on a host, as rulings; empty means that it can:
`tare doctor` prints it, `tare run` refuses on it, machine tests skip with it.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import sys
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler
from pydantic_core import CoreSchema

from tare.base.command_words import with_options
from tare.base.declare import Metric
from tare.base.errors import TareError, TrialError
from tare.base.host import Host, Job, Scope, Site
from tare.base.ledger import ledger
from tare.base.rulings import Ruling
from tare.base.units import Channel
from tare_inside import named
from tare_inside.launch import is_listed

Json: TypeAlias = Any  # None, bool, int, float, str, or lists and dicts of them


class Part(BaseModel):
    """Base of every part: fields are study keys, unknown keys are refused, nothing can be changed later."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    short: ClassVar[str | None] = None
    """The field that a plain value fills: with short = "state", `page_cache: cold` means `{state: cold}`."""
    example: ClassVar[Mapping[str, Json]] = {}
    """Fields for a part that has required ones, so that it can be asked what keeps it from working here."""

    extra_s: ClassVar[float] = 0.0
    """What it adds to a trial before and after the work, roughly, for plans; nothing is judged by it."""

    called: ClassVar[str | None] = None
    """The name that a study knows this very class by; `find` sets it, for an entry point can have any name."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Json]:
        """The text under a field is its description. Read here and not by `use_attribute_docstrings`, which parses the
        source of every part at its import: a tenth of what `tare plan` takes."""
        schema = handler(core_schema)
        described = handler.resolve_ref_schema(schema).get("properties", {})
        for each in reversed(cls.__mro__[: cls.__mro__.index(Part)]):
            for name, text in _texts_under_fields(each.__module__).get(each.__name__, {}).items():
                if name in described:
                    described[name]["description"] = text
        return schema

    @classmethod
    def part_name(cls) -> str:
        """The name in the study: the one that it was found by, else that of its file, or of itself in a shared one."""
        return vars(cls).get("called") or named.name_of(cls)

    @classmethod
    def masked(cls, fields: Mapping[str, Json]) -> dict[str, Json]:
        """Some fields as plain data, without what must not be written down; a part with secrets says what that is.

        Controls and probes are made again from their `fields()` (by `tare device restore`, in the sampler), so that
        none of theirs can be hidden.
        """
        return dict(fields)

    @classmethod
    def expanded(cls, fields: Mapping[str, Json]) -> list[dict[str, Json]]:
        """The levels that these fields of a study stand for; raises `ValueError` where they stand for none."""
        return [dict(fields)]

    def fields(self) -> dict[str, Json]:
        """The fields as plain data; a secret is there as its hash alone."""
        return self.masked(self.model_dump(mode="json"))

    def settings(self) -> dict[str, Json]:
        """The same for records and ids; a part may leave out what is not set, and add what its fields stand for."""
        return self.fields()


@cache
def _texts_under_fields(module: str) -> dict[str, dict[str, str]]:
    """Of each class of a module, the string that follows an annotated name, by that name; none without a source."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):  # no file, as in an interactive interpreter
        return {}
    found: dict[str, dict[str, str]] = {}
    for each in ast.walk(tree):
        for line, after in pairwise(each.body if isinstance(each, ast.ClassDef) else ()):
            match each, line, after:
                case (
                    ast.ClassDef(name=part),
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found.setdefault(part, {})[name] = inspect.cleandoc(text)
    return found


class Reading(NamedTuple):
    """One value of one channel. A value that could not be read is not a reading: missing is absent."""

    t_ns: int
    channel: str
    value: float


class Mark(NamedTuple):
    """What the workload said it did: an edge of a named interval, in a step."""

    t_ns: int
    name: str
    edge: Literal["begin", "end", "point"]
    step: int


class Leftover(NamedTuple):
    """Something of ours on the device: the site that it was made for, and whoever made it, where it says so."""

    site: str
    what: str  # in words: `the Docker container 3f2a`
    owner: str = ""  # `pid:start`, as `Owner` writes it
    boot: str = ""
    uid: int | None = None  # whose it is, of what lies where every user's things lie


class Platform(Part):
    """Turns a host into a host inside it; platforms stack because the result is again a host."""

    tried: ClassVar[int | None] = None
    """Its place among the platforms that are tried where none is named; None: only where it is named."""
    why_no_turns: ClassVar[str | None] = "cannot be stopped in between"
    """Why what runs in it cannot take turns with another side, after its name; None: it can."""

    @classmethod
    def for_run(cls, host: Host) -> AbstractContextManager[str | None]:
        """What it needs on this host for the length of a run; gives a sentence for people where it did something."""
        return nullcontext()

    @classmethod
    def brought_by_run(cls, host: Host) -> dict[str, Json]:
        """Facts of what `for_run` would bring where it is missing now; empty where it could not. Nothing is started."""
        return {}

    @classmethod
    def left_by_dead_run(cls, host: Host) -> str | None:
        """What `after_dead_run` would stop, in words; nothing is changed."""
        return None

    @classmethod
    def after_dead_run(cls, host: Host) -> str | None:
        """Stop what `for_run` of a run that died left behind, unless another run uses it; a sentence if it did."""
        return None

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        """What it has made on this host and is still there, of living runs and dead ones; nothing is changed."""
        return []

    @abstractmethod
    def obstacles(self, host: Host) -> list[Ruling]: ...

    def here(self, host: Host) -> dict[str, Json]:
        """What is worth knowing about it on this host, where it works: versions, how it is set up."""
        return {}

    def hides(self, host: Host, program: Path, shown: Sequence[Path]) -> bool:
        """Whether a program of the host's is not there inside, though `shown` is."""
        return False

    def image_now(self, host: Host) -> str | None:
        """The id of the image that its name stands for now; None where there is none that could be another tomorrow."""
        return None

    def variables(self) -> Mapping[str, str | None]:
        """Variables for the jobs in it, over those that every platform gives them; None takes one away."""
        return {}

    def options(self) -> Mapping[str, str | None]:
        """Options of the command in it that have another value than the study gives them; None takes one away."""
        return {}

    @classmethod
    def limits(cls, fields: Mapping[str, Json]) -> dict[str, Json]:
        """The limits and the image that these fields bring, as other platforms name them, where its own differ."""
        return {}

    @classmethod
    def as_own(cls, fields: Mapping[str, Json], change: Mapping[str, Json]) -> Mapping[str, Json]:
        """A change of those, by the names of its own fields."""
        return change

    def slowness(self) -> float:
        """How many times slower a workload runs in it than on bare metal, roughly, for plans."""
        return 1.0

    @abstractmethod
    def open(self, host: Host, site: Site) -> Host:
        """Make the place. If this raises, it has cleaned up after itself. Closing the place removes it."""

    @classmethod
    @abstractmethod
    def sweep(cls, host: Host, name: str) -> None:
        """Remove whatever a dead run made under this site name; nothing there is no error."""


class Machine(NamedTuple):
    """What a plan knows of the machine that its times are guessed for: a small one, or a board, unless it is known."""

    cores: float = 2
    big_gpu: bool = False  # a server's, and no board's


class TenantPlace(NamedTuple):
    """Where a tenant's workload is about to run, and what it reads there."""

    place: Host
    workdir: Path
    reads: tuple[Path, ...]


class Control(Part):
    """One thing about the device that a study can fix. The engine journals, writes, reads back and restores it."""

    persistence: ClassVar[Literal["volatile", "reboot-persistent"]] = "volatile"
    restore_rank: ClassVar[int] = 50
    """Lower ranks are restored first (faults.md D4: cores come online before anything that needs them)."""
    hold_rank: ClassVar[int] = 50
    """Lower ranks are held first, whatever the order in the study: data lie on their medium before they are cached."""

    def turns(self) -> frozenset[str]:
        """What of the device it turns, for whoever else may want to (`cores`, `cpu_mhz`, `gpu_mhz`, `fan`)."""
        return frozenset()

    def urgent(self, host: Host) -> bool:
        """Whether it must be put back before everything else: a fan, where the board is hot."""
        return False

    def detours(self, host: Host, state: Json) -> list[Json]:
        """What the device may be told on its way to `state` by a tool that does more than it is asked for.

        A run that is killed in the middle leaves pieces of these, and they are its own doing anyway.
        """
        return []

    def knob(self) -> str:
        """Which knob of the device it turns: controls with the same answer share one baseline in the undo journal.

        By default each combination of fields is a knob of its own; say less where the fields are only values.
        """
        return f"{self.part_name()} {json.dumps(self.fields(), sort_keys=True)}"

    @abstractmethod
    def obstacles(self, host: Host) -> list[Ruling]: ...

    @abstractmethod
    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        """The state that the study wants on this host; `inputs` are the files that the workload will read."""

    @abstractmethod
    def read(self, host: Host) -> Json | None:
        """The state now, in a form that `write` takes; None if it has no inverse (then nothing is restored)."""

    @abstractmethod
    def write(self, host: Host, state: Json) -> None:
        """Put the device into `state`; raises `ControlNotHeld` where it can tell that it did not work."""

    def settle(self, host: Host, tenants: Sequence[TenantPlace]) -> Json | None:
        """What can be done and checked only once the places stand, before anything runs in them: a fact, if any.

        What it makes must go with the places: it is not journaled.
        """
        return None


class Feed(Protocol):
    """A probe that is running."""

    channels: tuple[Channel, ...]

    def poll(self) -> Iterable[Reading]: ...
    def close(self) -> Iterable[Reading]: ...


@runtime_checkable
class Deferring(Feed, Protocol):
    """A feed that only reads at a tick, and parses what it read later, many ticks at once: that costs half."""

    def take(self) -> None: ...
    def taken(self) -> Iterable[Reading]: ...


@runtime_checkable
class CountsErrors(Protocol):
    """A feed that counts reads that gave nothing usable, by what was read."""

    errors: Counter[str]


@runtime_checkable
class ReportsLost(Protocol):
    """A feed that says what it could not watch to the end."""

    @property
    def lost(self) -> Sequence[Ruling]: ...


@runtime_checkable
class Paced(Feed, Protocol):
    """A feed with a period of its own, which is not woken before it is due."""

    @property
    def due_ns(self) -> int: ...


class Probe(Part):
    """Watches one aspect of the device. Its feed runs in the sampler's process."""

    scoped: ClassVar[bool] = False
    """Whether it watches one tenant, so that each gets a feed of its own."""
    CHANNELS: ClassVar[tuple[Channel, ...]] = ()
    """The channels that it has everywhere, for the reference; a feed has those of its machine."""
    may_block: ClassVar[bool] = True
    """Whether a read can take long or hang, as hardware may: then it is read in a thread of its own."""
    reads_files_only: ClassVar[bool] = False
    """Whether it reads files and nothing else, each time the same ones: then it works on a lean device too."""

    @classmethod
    def leftovers(cls, host: Host) -> list[Leftover]:
        """What it has made on this host and is still there, of living runs and dead ones; nothing is changed."""
        return []

    @classmethod
    def sweep(cls, host: Host, name: str) -> None:
        """Remove what a dead run made under this name, one of its `leftovers`; nothing there is no error."""
        return None

    @classmethod
    def after_dead_run(cls, host: Host) -> list[str]:
        """Remove what dead runs left and no journal names; a sentence for each."""
        return []

    @abstractmethod
    def obstacles(self, host: Host) -> list[Ruling]: ...

    def aimed(self, inputs: tuple[Path, ...]) -> Self:
        """The same probe, told which files the workloads read; most do not care."""
        return self

    @abstractmethod
    def open(self, host: Host, scope: Scope) -> Feed: ...


@runtime_checkable
class Periodic(Protocol):
    """A probe with a period of its own, in seconds."""

    @property
    def period(self) -> float: ...


class Table(NamedTuple):
    """Rows of one kind that a recorder kept: arrays of equal length, or lists of words, by the name of the column."""

    name: str
    columns: Mapping[str, Any]


class Recorder(Probe):
    """A probe that keeps more than readings: raw files while the trial runs, tables of a sealed trial after it.

    A traced trial's times are not compared with others: what watches every event costs time itself.
    """

    extra_s: ClassVar[float] = 3.0  # what was kept is decoded after the trial

    @abstractmethod
    def record(self, host: Host, scopes: Sequence[Scope], folder: Path) -> Feed:
        """Watch all tenants, the measured one first; raw files go into `folder`, which is empty and its own."""

    @abstractmethod
    def tables(self, folder: Path) -> Iterator[Table]:
        """What is in the raw files. A table may come in several pieces, so that memory stays bounded."""

    @abstractmethod
    def figures(self, tables: Mapping[str, Mapping[str, Any]], steps: int | None) -> dict[str, float]:
        """Figures for the record, from the whole tables; `steps`: so many the workload marked."""

    def open(self, host: Host, scope: Scope) -> Feed:
        raise TareError(f"{self.part_name()} keeps files, and has no folder for them here.")


class Workload(Part):
    """What is run and watched."""

    meets: ClassVar[Literal["ready", "launch"]] = "launch"
    """Where it waits for others that run beside it: by itself once it is ready, or before it is started."""
    layered: ClassVar[bool] = False
    """Whether it sees all files of the device and may write anywhere, to layers that go with the trial."""

    reports: ClassVar[frozenset[str]] = frozenset()
    """What its program may report of itself beside its steps: `outcome` and, in it, `metrics` and `load`; the
    `software` it ran with; marks called `settling` and `gpu_window`. Nothing for programs of the user's: what they
    write is a claim."""

    METRICS: ClassVar[tuple[Metric, ...]] = ()
    """What those of its `metrics` are called for which tare has no words: sealed with each trial that has them."""

    rehearsed: ClassVar[bool] = False
    """Whether a study tries it once on each platform before the blocks unless it says otherwise: the user's programs,
    of which nobody knows whether they run there. Built-in ones are known to."""

    @abstractmethod
    def obstacles(self, host: Host) -> list[Ruling]: ...

    @abstractmethod
    def title(self) -> str:
        """A few words for people: `LeNet-5 training, batch 16`."""

    def users_program(self, host: Host) -> Path | None:
        """Where on the host its program lies, if that is one of the user's."""
        return None

    def shortened(self) -> Self:
        """A short form that needs the same things, for a rehearsal; itself where there is none."""
        return self

    def prepare(self, host: Host) -> None:
        """Make what it needs on the device (data on disk), once, outside every measurement."""

    def inputs(self) -> tuple[Path, ...]:
        """Files and folders of the device that it reads; they are made visible inside every platform."""
        return ()

    def folder(self) -> Path | None:
        """The folder of the device that it is started in, where that is one of the user's."""
        return None

    def facts(self) -> dict[str, Json]:
        """What a record should have of how it was run, beside its fields."""
        return {}

    def outputs(self) -> tuple[Path, ...]:
        """Folders of the device that it writes to for real; whatever else it writes goes with the trial."""
        return ()

    def saves(self) -> bool:
        """Whether it writes to its root, as one that is not layered may not otherwise."""
        return False

    def keeps_outputs(self) -> bool:
        """Whether what it wrote elsewhere is copied into the store."""
        return False

    def units(self) -> int | None:
        """How many steps a complete run marks; None where that is not known beforehand."""
        return None

    def about_units(self) -> int | None:
        """How many steps a run marks as a rule, for estimates only; `units` is held against the run."""
        return self.units()

    def bound_s(self) -> float | None:
        """How long after its first step it ends itself, whatever is left to do; None where it does all of its work."""
        return None

    def asleep_s(self) -> float:
        """How long it has the device itself sleep. A trial that slept otherwise is invalid."""
        return 0.0

    def most_cores(self) -> float:
        """How many cores it can keep busy, for plans."""
        return math.inf

    def guessed_s(self, machine: Machine) -> float | None:
        """What it takes on bare metal of this machine, roughly, for plans; None where nobody can know."""
        return self.bound_s()

    def with_options(self, options: Mapping[str, str | None]) -> Self:
        """The same with other values of its command's options; None takes one away."""
        raise TrialError(f"`arguments` are for a command or a server, and {self.part_name()} is neither.")

    @abstractmethod
    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        """The job as it runs at `place`. `workdir` is the trial's own folder, writable there under the same path."""

    def driver(self, place: Host, workdir: Path, seed: int) -> Job | None:
        """A job on the device that drives the one at `place`, by marks and outcome in the same folder; as a rule none.

        When it has ended, the file `done` is made in the folder."""
        return None


@dataclass(frozen=True, slots=True)
class Known:
    """What was seen."""

    value: Json


@dataclass(frozen=True, slots=True)
class Absent:
    """It was looked for and is not there: a variable that is not set, a limit that does not exist."""


@dataclass(frozen=True, slots=True)
class NotLooked:
    """Nobody looked, or it could not be seen: nothing follows from it, and no cause is ruled out by it."""

    reason: str  # a sentence


Observation: TypeAlias = Known | Absent | NotLooked


def unseen(*observations: Observation) -> NotLooked | None:
    """The first of these that nobody looked at; None where all can be compared."""
    return next((each for each in observations if isinstance(each, NotLooked)), None)


_LOOKED = "kernel"  # whoever looked around inside wrote this down
_LEFT_OUT = ("cgroup.", "shm.")  # of these what is missing is not there; others say so by a `looked` of their own
_ENGINE = "place.engine."  # of bare metal there is none


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a `tare why`, as its trials recorded it; before anything has run, what is known without running."""

    name: str  # for people: `docker`, `bare metal`
    platform: str
    fields: Mapping[str, Json] = field(default_factory=dict)  # of its platform
    facts: Mapping[str, Json] = field(default_factory=dict)  # of the software inside, keys like `torch.threads`
    metrics: Mapping[str, float] = field(default_factory=dict)  # medians over its trials

    def number(self, key: str) -> float | None:
        """A fact as a number; None where it is missing or none."""
        value = self.facts.get(key)
        try:
            return None if value is None or isinstance(value, bool) else float(value)
        except (TypeError, ValueError):
            return None

    def seen(self, key: str) -> Observation:
        """A fact by its name, like `cgroup.cpu_quota_cores`."""
        if (value := self.facts.get(key)) is not None:
            return Known(value)
        if self.facts.get(f"{key.partition('.')[0]}.looked") or (self.platform == "bare" and key.startswith(_ENGINE)):
            return Absent()
        if _LOOKED not in self.facts:
            return self._unrecorded()
        return Absent() if key.startswith(_LEFT_OUT) else NotLooked(f"{key} was not recorded of {self.name}.")

    def _unrecorded(self) -> NotLooked:
        return NotLooked(f"nothing was recorded inside {self.name}: it has not run, or has no Python to look with.")

    def variable(self, name: str) -> Observation:
        """A variable as its jobs have it. Older records have those of a list of names alone."""
        own, whole = self.fields.get("env") or {}, self.facts.get("variables")
        if name in own and name not in (whole or {}):
            return Absent() if own[name] is None else Known(str(own[name]))
        value = self.facts.get(f"env.{name}") if whole is None else whole.get(name)
        if value is not None:
            return Known(str(value))
        if whole is None and _LOOKED not in self.facts:
            return self._unrecorded()
        looked = whole is not None or is_listed(name)  # type: ignore[no-untyped-call]
        return Absent() if looked else NotLooked(f"the variable {name} was not recorded of {self.name}.")

    def variables(self) -> set[str]:
        """The names of all that it is known to have, or not to have."""
        own, whole = self.fields.get("env") or {}, self.facts.get("variables") or {}
        return {*own, *whole, *(key[4:] for key in self.facts if key.startswith("env."))}

    def env(self, name: str) -> str | None:
        """The same where it makes no difference whether it is not set or was not recorded."""
        found = self.variable(name)
        return found.value if isinstance(found, Known) else None

    def words(self) -> tuple[str, ...]:
        """The command line that it runs, with the options of this side; empty where it is none of the user's."""
        words = [str(word) for word in self.facts.get("command.words") or ()]
        return with_options(words, self.fields.get("arguments") or {}) if words else ()

    @property
    def uses_gpu(self) -> bool | None:
        """Whether it computes on a GPU; None where nobody knows."""
        if any(key.startswith("torch.gpu.") for key in self.facts):
            return True
        return False if "torch.threads" in self.facts or self.number("gpu.devices") == 0 else None

    def spent(self) -> dict[str, float]:
        """Seconds of a run by what they went to (ledger.py); nothing where they were not counted."""
        return ledger(self.metrics)

    @property
    def cores(self) -> float | None:
        """How many cores' worth of CPU time it may use, by quota, cpuset and what the device and the load leave it."""
        known = [each for each in map(self.number, ("place.usable_cores", "served.cores")) if each is not None]
        return min(known, default=None)


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A cause that may explain why one side is slower: by what evidence, how it is tried, and what cures it."""

    weight: float  # 0 to 1: how well the evidence fits; the heaviest is tried first
    evidence: str  # a sentence with the figures
    without: Mapping[str, Json] | None = None  # fields of the slow side's platform that remove exactly this
    added: Mapping[str, Json] | None = None  # fields of the other side's platform that bring exactly this
    cure: str = ""  # one line to paste
    untried: str = ""  # why it cannot be tried here, where neither change can be made
    parts: tuple[Suspicion, ...] = ()  # of a bundle: two halves of it, which are tried when it costs something
    guess: bool = False  # suspected by its kind alone: no difference of the two sides was seen
    bundle: bool = False  # the change exchanges many things at once: it tells where the cost is, not what costs
    given: bool = False  # by an option of the user's: always tried
    spends: tuple[str, ...] = ()  # as of its cause, where the evidence says more
    phases: tuple[str, ...] = ()  # the same
    title: str = ""  # where a cause suspects several things: which one this is
    weakens: bool = False  # its cure takes a protection away, as `Cause.weakens`


@dataclass(frozen=True, slots=True)
class RuledOut:
    """A cause that the evidence excludes, and how."""

    why: str


class Cause(Part):
    """A difference that a container brings along and that can make a workload slower."""

    title: ClassVar[str]
    """A few words that go after `it is`: `the CPU quota`."""
    phases: ClassVar[frozenset[str]] = frozenset({"compute"})
    """What it slows down: `start`, `data`, `compute`, `gpu`, `tail`."""
    spends: ClassVar[frozenset[str]] = frozenset()
    """Which entries of the ledger grow by it (ledger.py); where it may be any, none are named."""
    option: ClassVar[str] = ""
    """The field of a platform that brings it, such as `quota`: whoever gives it has it tried."""
    weakens: ClassVar[bool] = False
    """Whether its cure takes a protection away: it is then offered only where it is proved to help."""

    @abstractmethod
    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        """What the recorded facts and counters say of this cause. Ruled out is what was seen on both sides alone."""

    def suspicions(self, slow: Side, quick: Side) -> Mapping[str, Suspicion | RuledOut | NotLooked]:
        """The same where there may be several, each of which is tried by itself: by name, the only one by none."""
        return {"": self.examine(slow, quick)}

    def obstacles(self, host: Host) -> list[Ruling]:
        return []

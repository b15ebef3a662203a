"""The runs of a `tare why`: studies that differ in their platforms alone, wave after wave, and one that is traced.

A container taken apart layer by layer: the options of `tare why` for it, the run, and what is printed.

`tare why STORE STORE`: why the one is slower than the other, and the suspects tried here where that can be done.
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import needs_of, run_into, study_text
from tare.api.studies import merged
from tare.base.errors import ObstacleError, TareError
from tare.base.host import LocalHost
from tare.cli.report import write_report
from tare.cli.scaffold import NamesOption, Option, as_one, need, print_json, reading, say, weighed, width
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL
from tare.records.model import sides_that_never_ran

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from tare.analysis.why.causes import Answer, Pair, Phase, Wave
    from tare.analysis.why.layers import Calls, Waterfall
    from tare.analysis.why.where import Where
    from tare.cli.own_line import Taken
    from tare.fleet.schedule import Enough
    from tare.parts.protocols import Side
    from tare.plan.why import Level, Search, Stages, Suspects
    from tare.records.model import Record
    from tare.report.text.why import Told


_WHOLE_RUNS = {"design": "blocks"}
_OF_THE_STEP = 0.75  # of what may be wrong; the rest is the whole run's, which is judged where the step is not slow


class Stopped(KeyboardInterrupt):
    """The user ended the run; what the study that was running has left."""

    def __init__(self, records: list[Record]) -> None:
        super().__init__()
        self.records = records


@contextmanager
def stopped_by_requests() -> Iterator[None]:
    """SIGTERM and a closed terminal end it as Ctrl-C does, also between two studies."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Trying:
    """The studies of a `why`: some that differ in their platforms alone, and one that is traced."""

    def __init__(
        self,
        folder: Path,
        work: dict[str, Any],
        repeat: int,
        margin: float,
        metric: str | None,
        image: str | None = None,
        line: Taken | None = None,
        budget_s: float | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        from tare.plan.why import Level

        self._folder, self._work, self._more = folder, work, more or {}
        self._ends_s = None if budget_s is None else time.monotonic() + budget_s
        self.repeat, self.margin, self.metric = repeat, margin, metric
        self._is_given = metric is not None  # else two figures are judged: see `answer`
        self.most = 2 * repeat  # blocks of a wave, where fewer leave it open
        # A command whose files are an image's runs in them on bare metal too: the same bytes on both sides.
        in_image = any(isinstance(each, dict) and each.get("in_image") for each in work.values())
        self.quick = Level("bare", {"image": image} if in_image else {})  # the other side: see `other_side`
        self.sides = ("container", "bare metal")  # what the slow side and the other one are called
        self.files = _files_text(image, in_image)
        self.line = line
        self.waves: list[Wave] = []
        self._bundles: frozenset[str] = frozenset()  # of the suspects: see `answer` of causes.py
        self._trials, self._seconds = 0, 0.0
        self._slowest_s = 0.0  # the longest run of the workload so far
        self._known = False  # whether a study ran already: then both sides are known to run
        self._rehearsed: Sequence[Record] = ()  # by that study

    def other_side(self, platform: str, fields: Mapping[str, Any], images: tuple[str, str]) -> None:
        """A container with another image, in the place of bare metal; `images`: the slow side's, and that one."""
        from tare.plan.why import Level

        self.files = f"{images[0]} and {images[1]} run in the same container, each with its own files and variables."
        short = Path(images[0]).name, Path(images[1]).name  # app:2; of a path that differs in its end
        self.quick, self.sides = Level(platform, fields), short if short[0] != short[1] else images

    @property
    def is_out_of_time(self) -> bool:
        """Whether the budget leaves no time for a further study."""
        return self._ends_s is not None and time.monotonic() + self._trial_s() * LEAST > self._ends_s

    def _trial_s(self) -> float:
        return self._seconds / max(1, self._trials)

    def time_text(self, trials: int) -> str:
        """How long so many trials take, by those so far."""
        from tare.base.text import duration_text

        return duration_text(trials * self._trial_s())

    def answer(self, waves: Sequence[Wave] | None = None) -> Answer:
        """What all waves show. A whole run that is surely slower counts where the mean step is not."""
        from tare.analysis.why.causes import STEP, WHOLE, answer, judged_metric

        waves = self.waves if waves is None else waves
        records = [record for wave in waves for record in wave.records]
        name = self.metric or judged_metric(records)
        judged = partial(answer, waves, margin=self.margin, bundles=self._bundles, most=self.most)
        if self._is_given or not any(STEP in record.metrics for record in records):
            return judged(metric=name)
        found = judged(metric=name, share=_OF_THE_STEP if name == STEP else 1 - _OF_THE_STEP)
        if self.metric is None and name != WHOLE and found.total.verdict != "slower":
            whole = judged(metric=WHOLE, share=1 - _OF_THE_STEP)
            if whole.total.verdict == "slower" or (whole.is_open and not found.is_open):
                return whole
        return found

    def look(self, sides: Mapping[str, Level]) -> Answer:
        """Both sides, until it is sure whether the one is slower."""
        found = self.wave("look", sides, lambda found: found.is_open)
        self.metric = found.metric
        return found

    def search(self, search: Search, work: dict[str, Any], metric: str) -> Answer:
        """The interventions between two sides that were recorded before, with this workload."""
        self._work, self.quick, self.metric, self._is_given = work, search.quick, metric, True
        return self.tried(search)

    def tried(self, search: Search) -> Answer:
        """Wave after wave, until the cost is explained or nobody is left to suspect; what is sure is said at once."""
        from tare.report.text.why import tried_text

        found = None
        while sides := search.next():
            if self.is_out_of_time:
                say("the time of --budget is used up: the other suspects were not tried.")
                return found or self.answer()
            names = [each for each in search.candidates() if any(each in role.split() for role in sides)]
            count = len({str(level.as_plain()) for level in sides.values()})  # two roles may be the same side
            takes = f", about {self.time_text(count * LEAST)}" if self._trials else ""
            tries = " and ".join(names) or "what is left"
            say(f"trying {tries}: {count} sides, {LEAST} blocks{takes}; more if needed.")
            self._bundles = search.bundles
            stage, is_open = f"tried-{len(self.waves)}", partial(_is_open_for, tuple(names))
            found = self.wave(stage, sides, is_open, is_whole=not search.removed)
            new = [each for each in found.tried if each.cause in names]
            for each in new:
                say(tried_text(each, self.sides))
            failing = [each.cause for each in new if each.removed is None]
            search.learn({each.cause: each.outcome for each in new}, failing)
            if found.explained and search.checked:
                break
        if found is None:
            raise TareError("there is nothing to try.")
        return found

    def wave(
        self, stage: str, sides: Mapping[str, Level], is_open: Callable[[Answer], bool], *, is_whole: bool = True
    ) -> Answer:
        """Run these sides in interleaved blocks, as many as it takes: a trial that is lost costs a further block."""
        from tare.analysis.why.causes import Wave
        from tare.analysis.why.proof import looks

        roles = {role: level.settings() for role, level in sides.items()}

        def enough(records: Sequence[Record]) -> str | None:
            if len({record.block for record in records}) not in looks(self.most):
                return None
            with suppress(TareError):  # a side without any trial so far
                if not is_open(self.answer([*self.waves, Wave(records, roles, is_whole)])):
                    return "these blocks are enough"
            return None

        # Each level once: two causes may be tried by the same change.
        plain = [level.as_plain() for level in sides.values()]
        levels = [each for n, each in enumerate(plain) if each not in plain[:n] and each != self.quick.as_plain()]
        left = "30 d" if self._ends_s is None else f"{max(1.0, self._ends_s - time.monotonic()):.0f} s"
        repeat = {"min": min(LEAST, self.most), "max": self.most, "within": left}
        began_s = time.monotonic()
        try:
            records = self.records(stage, levels, {"repeat": repeat, "aa": False}, enough)
        except Stopped as stopped:
            self.waves.append(Wave(stopped.records, roles, is_whole))
            raise
        self.waves.append(Wave(records, roles, is_whole))
        self._trials, self._seconds = self._trials + len(records), self._seconds + time.monotonic() - began_s
        return self.answer()

    def where(self, slow: Level) -> tuple[Where, list[str]]:
        """One more run of each side, which is looked at and so not timed: what takes longer there, and the files that
        either side touched.
        """
        from tare.analysis.why.causes import having
        from tare.analysis.why.where import touched, where
        from tare.drivers.opened import Opened

        looked = [level.changed({"env": {"TARE_STACKS": "1"}}) for level in (self.quick, slow)]
        say(f"where the time goes: one more run of each side, not timed, about {self.time_text(2)}.")
        plain = [level.as_plain() for level in looked]
        with Opened() as opened:
            records = self.records("where", plain, {"repeat": 1, "aa": False, **_WHOLE_RUNS}, with_other=False)
        quick, slow_ones = (having(level.settings(), records) for level in looked)
        return where(slow_ones, quick), sorted({*touched([*slow_ones, *quick]), *opened.paths})

    def narrowed(self, search: Search, paths: Sequence[str], found: Where) -> bool:
        """Whether files that were touched differ between the roots of both sides, and are now to be tried."""
        from tare.drivers.containers.differing import differing
        from tare.parts.causes.software import exchanged, untaken_text

        ours, theirs = search.slow.root(), self.quick.root()
        can_take = search.slow.changed({"taken": ()}).is_possible()
        if ours is None or theirs is None or ours == theirs or not can_take:
            return False
        grown = {each.name.rpartition(":")[0] for each in (found.function, *found.inside) if each is not None}
        differ = differing(paths, ours, theirs)
        suspect = exchanged(differ, self.quick.fields.get("image"), grown - {""})
        if suspect is None:
            search.note("software", untaken_text(differ) if differ else _NO_FILE if paths else "")
            return False
        say(f"files that the runs touched and that differ: {len(differ)}.")
        search.narrow("software", suspect)
        return True

    def waterfall(self, stage: str, platforms: list[Any]) -> Waterfall:
        from tare.analysis.why.layers import waterfall

        against = {"against": {"platform": "bare"}, "margin": self.margin}
        records = self.records(stage, platforms, {"repeat": self.repeat, "compare": against, **_WHOLE_RUNS})
        return waterfall(records, margin=self.margin, metric=self.metric)

    def calls(self, platforms: list[Any]) -> Calls:
        """Each make of container once, traced; where that cannot be done, why not."""
        from tare.analysis.why.layers import Calls, calls_by_layer
        from tare.parts.find import find, names

        if "syscalls" not in names("probes"):
            return Calls(missing="system calls were not counted: no probe of this tare does.")
        if why := find("probes", "syscalls")().obstacles(LocalHost()):  # type: ignore[attr-defined]
            return Calls(missing=f"system calls were not counted: {' '.join(map(str, why))}")
        return calls_by_layer(
            self.records("calls", platforms, {"repeat": 1, "aa": False, "probes": ["syscalls"], **_WHOLE_RUNS})
        )

    def records(
        self, stage: str, platforms: list[Any], fields: dict[str, Any], enough: Enough | None = None, *,
        with_other: bool = True,
    ) -> list[Record]:  # fmt: skip
        """Run a study of the other side, unless it is left out, and these platforms; what it left.

        Sides take turns where they can, by the rehearsals of the first study, unless the fields name another design.
        """
        from tare.studies.load import from_plain
        from tare_inside.fingerprint import MODULES

        sides = [self.quick.as_plain(), *platforms] if with_other else platforms
        plain, first = self.plain(stage, sides, fields), not self._known
        study = from_plain(plain, "tare why")
        os.environ[MODULES] = "1"  # the trials are made in this process
        outcome = run_into(
            study, study_text(study), self._folder / stage, enough=enough, first=first, rehearsed=self._rehearsed
        )
        with reading(self._folder / stage) as store:
            records, rehearsed = store.records(), store.rehearsals()
        if outcome.interrupted:
            raise Stopped(records)
        failed = sides_that_never_ran(records, rehearsed)
        if failed and not records:
            raise TareError(f"{outcome.why}: {failed[0].reasons[0]}")
        self.note_lengths([*rehearsed, *records])
        self._rehearsed = self._rehearsed or rehearsed
        return records

    def plain(self, stage: str, sides: list[Any], fields: dict[str, Any]) -> dict[str, Any]:
        """The study of these platforms. The first rehearses, and the limit follows from it; of the
        others it follows from the slowest side so far."""
        from tare.plan.rehearsals import followed_limit_s
        from tare.studies.model import Study

        plain = {"study": f"why-{stage}", "platform": sides, "workload": self._work, **fields}
        limit_s = followed_limit_s([self._slowest_s]) or 0.0
        if self._known and limit_s > Study.model_fields["limit_s"].default:
            plain["limit"] = f"{math.ceil(limit_s)} s"
        return merged({**plain, "rehearse": not self._known}, self._more)

    def note_lengths(self, records: Sequence[Record]) -> None:
        """A study ran: both sides are known to run, and how long the workload takes at the most."""
        self._known = True
        self._slowest_s = max([self._slowest_s, *(each.phases.get("run", 0.0) for each in records)])


def _files_text(image: str | None, in_image: bool) -> str:
    """Which files each side runs: what both run cannot be the cause."""
    if image is None:
        return ""
    if in_image:
        return (
            f"Both sides run the files, entry point and variables of {image}: its software is not compared "
            "(--against-image compares it with another one)."
        )
    return (
        f"The container runs the software of {image}, and bare metal this machine's; the command's files are the same."
    )


_NO_FILE = "No file that the runs were seen to touch differs: it may be one that was not seen."
LEAST = 2  # blocks of a wave


def _is_open_for(causes: Sequence[str], found: Answer) -> bool:
    return bool(found.open_for(causes))


ROOT, ENGINE = "mounts", "docker"  # layers that cannot be switched: they are measured whatever --layers names


@dataclass(frozen=True)
class Layering:
    """Whether to take a container apart, and how."""

    always: bool = False
    never: bool = False
    only: tuple[str, ...] | None = None
    cumulative: bool = False
    calls: bool = True  # whether system calls are counted


_HOW = ("always", "never", "cumulative", "no-calls")


def _layering(layers: tuple[str, ...] | None) -> Layering:
    words = layers or ()
    need("never" not in words or len(words) == 1, "--layers never stands alone.")
    only = tuple(each for each in words if each not in _HOW)
    always = bool(words) and "never" not in words
    return Layering(always, "never" in words, only or None, "cumulative" in words, "no-calls" not in words)


layers_option: Option = as_one(
    "layering", _layering,
    click.option("--layers", metavar="HOW", type=NamesOption("layer", (*_HOW, ROOT, *LAYERS, ENGINE)),
                 help="Take the container apart layer by layer: always, never, or only some, like cpu,seccomp. "
                 "`cumulative` takes no layer off singly; `no-calls` counts no system calls.  [default: where a cost "
                 "stays unexplained]"),
)  # fmt: skip


@dataclass(frozen=True)
class Apart:
    """A container that was taken apart: what each layer costs, and how many system calls it makes."""

    waterfall: Waterfall
    calls: Calls
    skipped: dict[str, str]  # layer: why it was not tried

    def as_json(self) -> dict[str, Any]:
        return {**self.waterfall.as_json(), "system_calls": self.calls.as_json(), "skipped": self.skipped}

    def tell(self, folder: Path) -> None:
        from tare.report.text.why import waterfall_text

        report = folder / "report.html"
        with reading(folder / "layers") as store:
            write_report(store, weighed(store), report)
        click.echo(waterfall_text(self.waterfall, self.skipped, width(), self.calls))
        click.echo(f"report: {report}")


def taken_apart(
    run: Trying, platform: str, fields: dict[str, Any], profile: dict[str, Any], layering: Layering
) -> Apart | None:
    """Run each layer put on and taken off; `fields` are the container's, `profile` is for runc alone."""
    from tare.analysis.why.layers import Calls

    has_image = "image" in fields
    if has_image and platform != "runc":
        say(f"{platform} does not take an image apart layer by layer: unpack it, and add `--in runc --image FOLDER`.")
        return None
    with needs_of([] if has_image else ["docker"]):
        skipped = _skipped(fields, layering.only)
        stages = _stages({**fields, **profile}, fields, skipped)
        without = [] if layering.cumulative else stages.without
        sides = [*stages.chain, *stages.aside, *without, *stages.engines]
        count = len(sides) + 1
        say(f"layer by layer: {count} sides in {run.repeat} blocks, about {run.time_text(run.repeat * count)}.")
        found = run.waterfall("layers", sides)
        if not layering.calls:
            return Apart(found, Calls(missing="system calls were not counted (--layers no-calls)."), skipped)
        return Apart(found, run.calls([*stages.chain, *stages.aside, *stages.engines]), skipped)


def _stages(runc: dict[str, Any], shared: dict[str, Any], skipped: dict[str, str]) -> Stages:
    from tare.parts.find import find
    from tare.plan.why import Stages

    host = LocalHost()
    whole = find("platforms", "runc").model_validate(runc)
    if obstacles := whole.obstacles(host):  # type: ignore[attr-defined]
        raise ObstacleError("a container cannot be taken apart here, and nothing was run:", obstacles)
    engines = []
    if "image" in shared:
        skipped["docker"] = "the image is a folder here, which docker does not take."
    elif why := find("platforms", "docker").model_validate(shared).obstacles(host):  # type: ignore[attr-defined]
        skipped["docker"] = " ".join(map(str, why))
    elif "seccomp_profile" not in runc:
        engines.append({"docker": shared} if shared else "docker")
    return Stages(runc, tuple(layer for layer in USUAL if layer not in skipped), engines)


def _skipped(limits: dict[str, Any], only: tuple[str, ...] | None) -> dict[str, str]:
    from tare.plan.why import skipped_layers

    skipped = skipped_layers(limits, only)
    missing = ", ".join(sorted(NEEDED_BY_USER & skipped.keys()))
    need(not (only and "user" in only and missing), f"--layers: the layer user needs {missing}; name them too.")
    return skipped


def are_stores(words: tuple[str, ...]) -> bool:
    """Whether these are two stores, and no command line; a single one is refused."""
    from tare.records.schema import is_pack

    stores = [each for each in words if Path(each, "store.json").is_file() or is_pack(Path(each))]
    need(
        not (len(words) == 1 and stores),
        f"{words[0] if words else ''} is one store: `tare why STORE STORE` explains why one is slower than the other, "
        "`tare why -- COMMAND...` why a command is slower in a container.",
    )
    need(
        not (len(words) == len(stores) == 2 and Path(words[0]).resolve() == Path(words[1]).resolve()),
        f"{words[0] if words else ''} is named twice: give two stores, of which one may be slower than the other.",
    )
    return len(words) == len(stores) == 2


def explain_stores(
    words: tuple[str, ...], trying: Trying | None, margin: float, metric: str | None, as_json: bool, verbose: bool
) -> None:
    """What differs, what is slower, who is suspected; with `trying`, what the interventions show on this machine."""
    from tare.analysis.why.causes import pair
    from tare.plan.why import examined
    from tare.report.text.why import pair_text, suspects_text

    stores = {}
    for word in words:
        with reading(Path(word)) as store:
            stores[word] = store.records()
    found = pair(stores, margin=margin, metric=metric)
    slow, quick = (
        side(name, records[0].settings, records)
        for name, records in zip((found.slow, found.quick), found.records, strict=True)
    )
    suspects = examined(slow, quick, {each.name: each.share for each in found.phases})
    plain: dict[str, Any] = {**found.as_json(), **suspects_json(suspects)}
    if not as_json:
        click.echo(pair_text(found, width()))
        titles = suspects.titles()
        offered = suspects.offered()
        about = {
            name: f"{titles[name]}: {each.evidence}" + f" Cure: {offered[name]}" * (name in offered)
            for name, each in suspects.held.items()
        }
        if found.load:
            about = {"load": "the requests differ, see 1. Cure: run both with the same load.", **about}
        click.echo(suspects_text(about, suspects.aside() if verbose else {}, width()))
    if not suspects.held and not found.load and found.total.verdict == "slower":
        say("3. Not explained: nothing that was recorded differs. Program, data, or what else the device did may have.")
    elif trying is not None and (why_not := _try(trying, found, suspects, slow, quick, plain, as_json, verbose)):
        say(f"3. Not tried: {why_not}")
    elif trying is None and not as_json:
        say("3. Interventions: --try runs both sides again on this machine, and each suspect removed and added.")
    if as_json:
        print_json(plain)


def side(name: str, settings: Mapping[str, Any], records: Sequence[Record]) -> Side:
    """What its platform was set to, and what these trials of it recorded."""
    from tare.analysis.why.causes import facts_of, metrics_of
    from tare.parts.find import find
    from tare.parts.protocols import Side

    fields = {key.partition(".")[2]: value for key, value in settings.items() if key.startswith("platform.")}
    part, limits = find("platforms", str(settings["platform"])), dict[str, Any]()
    with suppress(TareError):  # the engine's command, by which a line is read, is not on every machine
        limits = part.limits(fields)  # type: ignore[attr-defined]
    return Side(name, str(settings["platform"]), {**fields, **limits}, facts_of(records), metrics_of(records))


def suspects_json(suspects: Suspects) -> dict[str, Any]:
    held = {name: asdict(replace(each, parts=())) for name, each in suspects.held.items()}
    return {"suspects": held, "ruled_out": suspects.ruled_out, "not_looked_at": suspects.not_looked}


def told(
    suspects: Suspects,
    spared: Mapping[str, str],
    ruled_out: Mapping[str, str],
    phases: Sequence[Phase],
    located: Sequence[str] = (),
    where: str = "",
) -> Told:
    """What an answer is told with; `spared`: why some were not tried, beside those that cannot be."""
    from tare.report.text.why import Told

    cannot = {name: each.untried for name, each in suspects.held.items() if each.untried}
    return Told(
        suspects.titles(),
        suspects.evidence(),
        suspects.cures(),
        {**cannot, **spared},
        ruled_out,
        phases,
        suspects.not_looked,
        tuple(located),
        tuple(suspects.offered()),
        where,
    )


def _try(
    trying: Trying, found: Pair, suspects: Suspects, slow: Side, quick: Side, plain: dict[str, Any], as_json: bool,
    verbose: bool,
) -> str:  # fmt: skip
    """Run the interventions; a sentence where that cannot be done here."""
    from tare.analysis.why.causes import is_here
    from tare.plan.why import Level, Search, with_recorded_variables, workload_of
    from tare.report.text.why import answer_text
    from tare.trial.facts import device_facts

    if found.load:
        return "the load differs. Run both with the same one, and ask again."
    if found.total.verdict != "slower":
        return "a cost that is not sure cannot be seen to go away."
    if not is_here(found.records[0], device_facts(LocalHost())):
        return f"{found.slow} was recorded on another device. Run `tare why --try` with both stores there."
    ours, theirs = (records[0].settings for records in found.records)
    levels = with_recorded_variables(Level.of(ours), Level.of(theirs), slow, quick)
    if levels[0].settings() == levels[1].settings():
        return "both sides would run in the same way here: no limit, variable or image that was recorded differs."
    search = Search(*levels, suspects.held)
    if not search.candidates():
        return "no suspect can be removed or added on this machine."
    answer = trying.search(search, workload_of(ours), found.total.metric)
    if answer.total.verdict != "slower":
        say("Run again here and now, it is not surely slower: the difference lies in what was not recorded.")
    suspects = replace(suspects, held=search.suspects)
    plain |= {**suspects_json(suspects), "answer": answer.as_json()}
    if not as_json:
        about = told(suspects, {}, {}, found.phases)
        click.echo(answer_text(answer, about, width(), (found.slow, found.quick), verbose=verbose))
    return ""

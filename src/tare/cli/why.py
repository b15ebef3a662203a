"""`tare why`: what makes a container slower, tried cause by cause, then layer by layer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tare.base.errors import ObstacleError, TareError
from tare.cli.needs import needs_of
from tare.cli.options import FOLDER, NamesOption, json_option, margin_option, metric_option, need, output_option
from tare.cli.report import write_report
from tare.cli.scaffold import Verb, print_json, reading, say, weighed, width
from tare.cli.scripts import Script, script_options
from tare.cli.studies import python_option, with_interpreter
from tare.cli.study_runs import run_into, study_text
from tare.cli.weigh import built_in_workload, choose_platform, end_early, fetched, minutes_option, placed, steps_option
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL
from tare.records.trials import sides_that_never_ran

if TYPE_CHECKING:
    from tare.analysis.model import Comparison
    from tare.analysis.why.causes import Answer, Phase
    from tare.analysis.why.layers import Calls, Waterfall
    from tare.parts.protocols import Side, Suspicion
    from tare.records.model import Record


ROOT, ENGINE = "mounts", "docker"  # layers that cannot be switched: they are measured whatever --only names
_MOST_TRIED = 6  # interventions in one run; the others are named as not tried
_LEAST_WEIGHT = 0.15  # a fainter suspicion is tried only where nothing else is left


@click.command("why", cls=Verb)
@click.option("--in", "inside", metavar="PLATFORM", help="The platform to explain.  [default: the first that works]")
@click.option("--workload", metavar="NAME", help="A built-in workload (see `tare list workloads`).  [default: lenet5]")
@python_option
@click.option("--image", help="The container's image; else the host's own root file system.")
@click.option("--quota", type=float, help="The container's CPU quota, in cores.")
@click.option("--cpuset", help="The container's cores, like 0-1.")
@click.option("--memory", help="The container's memory limit, like 2GiB.")
@click.option("--shm", help="The size of the container's /dev/shm, like 64MiB.")
@click.option("--inside-env", multiple=True, metavar="NAME=VALUE", help="A variable of the container alone.")
@click.option(
    "--seccomp-profile", type=click.Path(path_type=Path, exists=True), help="The container's own filter (runc)."
)
@metric_option("the mean step, or the whole run")
@click.option("--repeat", type=click.IntRange(1, 1000), default=6, show_default=True, help="How many blocks.")
@margin_option("5%")
@click.option("--layers", is_flag=True, help="Take it apart layer by layer, whatever was found before.")
@click.option("--no-layers", is_flag=True, help="Do not, even if the cost stays unexplained.")
@click.option(
    "--only", metavar="LAYERS", type=NamesOption("layer", (ROOT, *LAYERS, ENGINE)),
    help="Only these layers, such as cpu,seccomp; mounts and docker are always measured.  [default: all]",
)  # fmt: skip
@click.option("--writable", is_flag=True, help="A built-in workload may write to the container's root.")
@click.option("--start-up", is_flag=True, help="Look at the start-up to the first step instead of the steps.")
@click.option("--cumulative", is_flag=True, help="Only put layers on one after the other; take none off singly.")
@click.option("--no-calls", is_flag=True, help="Do not count system calls (one more trial a layer, traced, untimed).")
@steps_option
@minutes_option
@script_options
@output_option("The folder of all stores; else out/why-TIME.", FOLDER)
@json_option
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(
    inside: str | None,
    workload: str | None,
    python: str | None,
    image: str | None,
    quota: float | None,
    cpuset: str | None,
    memory: str | None,
    shm: str | None,
    inside_env: tuple[str, ...],
    seccomp_profile: Path | None,
    metric: str | None,
    repeat: int,
    margin: float,
    layers: bool,
    no_layers: bool,
    only: tuple[str, ...] | None,
    writable: bool,
    start_up: bool,
    cumulative: bool,
    no_calls: bool,
    steps: int | None,
    minutes: float | None,
    script: Script,
    output: Path | None,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Explain why a workload is slower in a container: the cause, how much it costs, and its cure.

    First the container against bare metal, in interleaved blocks, and where the time goes. Then the suspects, by what
    both sides recorded. Then each suspect is tried: the container without it, bare metal with it. What stays
    unexplained is taken apart layer by layer, with runc.

    tare why --quota 1 -- python train.py
    """
    need(not (workload and command_line), "give either --workload or a command after --, not both.")
    need(not (layers and no_layers), "give either --layers or --no-layers, not both.")
    need(bool(command_line) or not script.for_commands(), "--reads, --writes, --env and --keep-outputs need a command.")
    work = script.workload(command_line, image=bool(image)) if command_line else built_in_workload(workload or "lenet5")
    end_early(work, steps, minutes)
    image = image and placed(image)
    limits = {"image": image, "quota": quota, "cpuset": cpuset, "memory": memory, "shm": shm}
    fields: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    fields |= script.platform()
    if writable:
        fields["writable"] = True
    if env := _assigned(inside_env):
        fields["env"] = env
    profile = {} if seccomp_profile is None else {"seccomp_profile": str(seccomp_profile.resolve())}
    folder = output or Path("out") / f"why-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    with ExitStack() as stack:
        chosen = choose_platform("runc" if profile and inside is None else inside, stack)
        fetched(chosen, image)
        stack.enter_context(needs_of(["docker"]))
        own = {**fields, **(profile if chosen == "runc" else {})}
        need(not profile or chosen == "runc", "--seccomp-profile is for runc: add `--in runc`.")
        refuse_wrong(chosen, own, work, python)
        metric = "startup_s" if start_up else metric
        run = _Run(folder, work, python, repeat, margin, metric, image)
        found = _explained(run, chosen, own, metric, margin, as_json)
        if not (layers or (not no_layers and found.unexplained)):
            _tell_answer(found, None, folder, as_json)
            return
        if image is not None:
            say("An image is not taken apart layer by layer: unpack it, and give its folder to `--in runc --image`.")
            _tell_answer(found, None, folder, as_json)
            return
        skipped = _skipped(fields, only)
        stages = _stages({**fields, **profile}, fields, skipped)
        built = [*stages.chain, *stages.aside, *([] if cumulative else stages.without), *stages.engines]
        waterfall = run.waterfall("layers", built)
        calls = _not_asked_for() if no_calls else run.calls([*stages.chain, *stages.aside, *stages.engines])
    if as_json:
        _tell_answer(found, _layers_json(waterfall, calls, skipped), folder, as_json)
        return
    _tell_answer(found, None, folder, as_json)
    _tell_layers(waterfall, calls, skipped, folder)


def _assigned(variables: tuple[str, ...]) -> dict[str, str]:
    for each in variables:
        need("=" in each and not each.startswith("="), f"--inside-env {each!r}: write NAME=VALUE.")
    return dict(each.split("=", 1) for each in variables)


@dataclass(frozen=True)
class Explained:
    """What `tare why` found: where the time goes, who is suspected, what became of each."""

    total: Comparison
    phases: tuple[Phase, ...]
    suspects: dict[str, Suspicion]
    ruled_out: dict[str, str]
    answer: Answer | None = None  # None where there is nothing to explain

    @property
    def unexplained(self) -> bool:
        """Whether there is a sure cost that no cause explains."""
        return self.answer is not None and self.total.verdict == "slower" and not self.answer.explained

    def as_json(self) -> dict[str, Any]:
        return {
            "total": self.total.as_json(),
            "phases": [asdict(each) for each in self.phases],
            "suspects": {name: asdict(each) for name, each in self.suspects.items()},
            "ruled_out": self.ruled_out,
            **({} if self.answer is None else {"answer": self.answer.as_json()}),
        }


def _explained(
    run: _Run, platform: str, fields: dict[str, Any], metric: str | None, margin: float, quiet: bool
) -> Explained:
    """The three steps: what is slower, who is suspected, what the interventions show."""
    from tare.analysis.why.causes import QUICK, SLOW, WHOLE, answer, judged_metric, phases

    roles = {QUICK: settings_of(*run.bare), SLOW: settings_of(platform, fields)}
    records = run.records("total", [_level(_Level(platform, fields))], {"repeat": run.repeat, "aa": False})
    name = metric or judged_metric(records)
    first = answer(records, roles, margin=margin, metric=name)
    if metric is None and name != WHOLE and first.total.verdict != "slower":
        whole = answer(records, roles, margin=margin, metric=WHOLE)
        first = whole if whole.total.verdict == "slower" else first
    slow, quick = (_side(role, records, roles[role]) for role in (SLOW, QUICK))
    suspects, ruled_out = examined(slow, quick)
    found = Explained(first.total, phases(slow.metrics, quick.metrics), suspects, ruled_out)
    if first.total.verdict == "equivalent":
        return found
    if not quiet:
        _tell_suspects(found)
    if first.total.verdict != "slower":  # a cost that is not sure cannot be seen to go away
        return replace(found, answer=first)
    tried = {name: each for name, each in suspects.items() if each.without is not None or each.added is not None}
    strong = {name: each for name, each in tried.items() if each.weight >= _LEAST_WEIGHT} or tried
    strong = dict(list(strong.items())[:_MOST_TRIED])
    if not strong:
        return replace(found, answer=first)
    changes = _changes(strong, platform, fields, run.bare)
    say(_estimate(len(changes) + 2, run.repeat, quick.metrics, slow.metrics))
    tested = run.answer(_Level(platform, fields), changes, first.metric)
    parts = [strong[each.cause].without for each in tested.causes if each.outcome == "a part"]
    removable = [each for each in parts if each is not None]
    if not tested.explained and len(removable) > 1:
        tested = run.cured(_Level(platform, fields), removable, tested)
    return replace(found, answer=tested)


def _changes(strong: dict[str, Suspicion], platform: str, fields: dict[str, Any], bare: _Level) -> dict[str, _Level]:
    """Each intervention by its role."""
    from tare.analysis.why.causes import added, without

    made: dict[str, _Level] = {}
    for name, each in strong.items():
        if each.without is not None:
            made[without(name)] = _Level(platform, merged(fields, each.without))
        if each.added is not None:
            made[added(name)] = _Level("bare", merged(bare.fields, each.added))
    return {role: level for role, level in made.items() if _is_possible(level)}


def _is_possible(level: _Level) -> bool:
    """Whether this platform can be changed in that way: not each has every field."""
    from tare.parts.find import find

    return all(name in find("platforms", level.platform).model_fields for name in level.fields)


class _Level(NamedTuple):
    """A platform with its fields."""

    platform: str
    fields: dict[str, Any]


def merged(fields: dict[str, Any], change: Any) -> dict[str, Any]:
    """Fields of a platform with a change: variables are merged, a field that becomes None is left to its default."""
    env = {**(fields.get("env") or {}), **(change.get("env") or {})}
    made = {**fields, **change, **({"env": env} if env else {})}
    return {name: value for name, value in made.items() if value is not None}


def settings_of(platform: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The settings that records of this platform have."""
    from tare.parts.find import find

    part = find("platforms", platform).model_validate(fields)
    return {"platform": platform, "platform.env": None, **{f"platform.{n}": v for n, v in part.settings().items()}}


def _levels(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as a study writes them: a list there is a list of levels, so a value that is one stands in another."""
    sizes = {name: f"{value} B" for name in ("memory", "shm") if isinstance(value := fields.get(name), int)}
    return {name: [value] if isinstance(value, list) else value for name, value in {**fields, **sizes}.items()}


def _side(role: str, records: list[Record], settings: dict[str, Any]) -> Side:
    from tare.analysis.why.causes import SLOW, facts_of, metrics_of
    from tare.parts.protocols import Side
    from tare.records.trials import usable_trials

    platform = settings["platform"]
    mine = [each for each in usable_trials(records, repeats=False) if each.settings["platform"] == platform]
    fields = {name.partition(".")[2]: value for name, value in settings.items() if name != "platform"}
    name = platform if role == SLOW else "bare metal"
    return Side(name, platform, fields, facts_of(mine), metrics_of(mine))


def examined(slow: Side, quick: Side) -> tuple[dict[str, Suspicion], dict[str, str]]:
    """What each cause of the catalogue says: suspects, the heaviest first, and those ruled out, with the reason."""
    from tare.parts.find import find, names
    from tare.parts.protocols import Suspicion

    found = {name: find("causes", name)().examine(slow, quick) for name in names("causes")}  # type: ignore[attr-defined]
    suspects = {name: each for name, each in found.items() if isinstance(each, Suspicion)}
    ruled_out = {name: each.why for name, each in found.items() if not isinstance(each, Suspicion)}
    return dict(sorted(suspects.items(), key=lambda pair: -pair[1].weight)), ruled_out


def _estimate(levels: int, blocks: int, *sides: Any) -> str:
    from tare.base.text import duration_text

    trial_s = max(side.get("wall_s", 0.0) for side in sides) + 1.5
    return f"trying them: {levels} sides in {blocks} blocks, about {duration_text(levels * blocks * trial_s)}."


def _tell_suspects(found: Explained) -> None:
    from tare.report.text.why import phases_text, suspects_text

    click.echo(phases_text(found.total, found.phases, width()), err=True)
    click.echo(suspects_text(_titled(found.suspects), found.ruled_out, width()), err=True)


def _titled(suspects: dict[str, Suspicion]) -> dict[str, str]:
    """Title and evidence of each suspect, by its name."""
    return {name: f"{cause_title(name)}: {each.evidence}" for name, each in suspects.items()}


def cause_title(name: str) -> str:
    from tare.parts.find import find

    return str(find("causes", name).title)  # type: ignore[attr-defined]


def _tell_answer(found: Explained, layers: dict[str, Any] | None, folder: Path, as_json: bool) -> None:
    from tare.report.text.why import answer_text, nothing_text

    if as_json:
        print_json({"store": str(folder), **found.as_json(), **({} if layers is None else {"layers": layers})})
    elif found.answer is None:
        click.echo(nothing_text(found.total, width()))
    else:
        cures = {name: each.cure for name, each in found.suspects.items()}
        evidence = {name: each.evidence for name, each in found.suspects.items()}
        titles = {name: cause_title(name) for name in found.suspects}
        untried = {name: each.untried for name, each in found.suspects.items() if each.untried}
        click.echo(answer_text(found.answer, titles, evidence, cures, untried, found.ruled_out, width()))


def refuse_wrong(platform: str, fields: dict[str, Any], work: dict[str, Any], python: str | None) -> None:
    """What is wrong with the options is reported before anything is started."""
    from tare.study.load import from_plain

    plain = {"study": "why", "platform": [{platform: _levels(fields)} if fields else platform], "workload": work}
    with_interpreter(from_plain(plain, "tare why"), python)


def _not_asked_for() -> Calls:
    from tare.analysis.why.layers import Calls

    return Calls(missing="system calls were not counted (--no-calls).")


class _Run:
    """The studies of a `why`: two that differ in their platforms alone, and one that is traced."""

    def __init__(
        self,
        folder: Path,
        work: dict[str, Any],
        python: str | None,
        repeat: int,
        margin: float,
        metric: str | None,
        image: str | None = None,
    ) -> None:
        self._folder, self._work, self._python = folder, work, python
        self.repeat, self._margin, self._metric = repeat, margin, metric
        # A command whose files are an image's runs in them on bare metal too: the same bytes on both sides.
        in_image = isinstance(work.get("command"), dict) and work["command"].get("in_image")
        self.bare = _Level("bare", {"image": image} if in_image else {})

    def waterfall(self, stage: str, platforms: list[Any]) -> Waterfall:
        from tare.analysis.why.layers import waterfall

        against = {"against": {"platform": "bare"}, "margin": self._margin}
        records = self.records(stage, platforms, {"repeat": self.repeat, "compare": against})
        return waterfall(records, margin=self._margin, metric=self._metric)

    def answer(self, slow: _Level, changes: dict[str, _Level], metric: str) -> Answer:
        """Both sides and every intervention, in interleaved blocks."""
        from tare.analysis.why.causes import QUICK, SLOW, answer

        sides = {QUICK: self.bare, SLOW: slow, **changes}
        roles = {role: settings_of(*side) for role, side in sides.items()}
        records = self.records("tried", _platforms(sides), {"repeat": self.repeat, "aa": False})
        return answer(records, roles, margin=self._margin, metric=metric)

    def cured(self, slow: _Level, parts: list[Mapping[str, Any]], found: Answer) -> Answer:
        """The slow side without all of these at once: whether that leaves anything to explain."""
        from tare.analysis.why.causes import QUICK, SLOW, answer

        fields = slow.fields
        for part in parts:
            fields = merged(fields, part)
        sides = {QUICK: self.bare, SLOW: slow, "cured": _Level(slow.platform, fields)}
        roles = {role: settings_of(*side) for role, side in sides.items()}
        records = self.records("cured", _platforms(sides), {"repeat": self.repeat, "aa": False})
        last = answer(records, roles, margin=self._margin, metric=found.metric, cured="cured")
        return replace(found, cured=last.cured)

    def calls(self, platforms: list[Any]) -> Calls:
        """Each make of container once, traced; where that cannot be done, why not."""
        from tare.analysis.why.layers import Calls, calls_by_layer
        from tare.base.host import LocalHost
        from tare.parts.find import find

        if why := find("probes", "syscalls")().obstacles(LocalHost()):  # type: ignore[attr-defined]
            return Calls(missing=f"system calls were not counted: {' '.join(map(str, why))}")
        return calls_by_layer(self.records("calls", platforms, {"repeat": 1, "aa": False, "probes": ["syscalls"]}))

    def records(self, stage: str, platforms: list[Any], fields: dict[str, Any]) -> list[Record]:
        """Run a study of bare metal and these platforms; what it left."""
        from tare.study.load import from_plain

        plain = {"study": f"why-{stage}", "platform": [_level(self.bare), *platforms], "workload": self._work, **fields}
        plain |= {"rehearse": stage == "total"}  # after it, bare metal and the whole container are known to run
        study = with_interpreter(from_plain(plain, "tare why"), self._python)
        outcome = run_into(study, study_text(study), self._folder / stage)
        if outcome.interrupted:
            say(f"{outcome.why}. `tare why -o {self._folder}` with the same options resumes.")
            raise SystemExit(130)
        with reading(self._folder / stage) as store:
            failed = sides_that_never_ran(store.records(), store.rehearsals())
            if failed and not store.records():
                raise TareError(f"{outcome.why}: {failed[0].reasons[0]}")
            return store.records()


def _platforms(sides: dict[str, _Level]) -> list[Any]:
    """The levels of a study beside bare metal, each once: two causes may be tried by the same change."""
    first, *levels = map(_level, sides.values())
    return [each for index, each in enumerate(levels) if each != first and each not in levels[:index]]


def _level(side: _Level) -> Any:
    """As a study writes it."""
    return {side.platform: _levels(side.fields)} if side.fields else side.platform


class _Stages:
    """The containers to run: the whole, the way up to it, the whole less one layer each, and the engines' own."""

    def __init__(self, fields: dict[str, Any], order: tuple[str, ...], engines: list[Any]) -> None:
        self._fields = fields
        self.whole = self._runc(order)
        self.chain = [self._runc(order[:count]) for count in range(len(order) + 1)]
        self.without = [self._runc(tuple(each for each in order if each != layer)) for layer in order[:-1]]
        self.aside = [self._runc((*order, "user"))] if set(order) >= NEEDED_BY_USER else []
        self.engines = engines

    def _runc(self, layers: tuple[str, ...]) -> dict[str, Any]:
        # A profile is no limit: without its layer it is not there, and must not make a level of its own.
        kept = {name: value for name, value in self._fields.items() if name != "seccomp_profile" or "seccomp" in layers}
        return {"runc": {**kept, "isolation": [list(layers)]}}


def _stages(runc: dict[str, Any], shared: dict[str, Any], skipped: dict[str, str]) -> _Stages:
    from tare.base.host import LocalHost
    from tare.parts.find import find

    host = LocalHost()
    whole = find("platforms", "runc").model_validate(runc)
    if obstacles := whole.obstacles(host):  # type: ignore[attr-defined]
        raise ObstacleError("a container cannot be taken apart here, and nothing was run:", obstacles)
    engines = []
    if why := find("platforms", "docker").model_validate(shared).obstacles(host):  # type: ignore[attr-defined]
        skipped["docker"] = " ".join(map(str, why))
    elif "seccomp_profile" not in runc:
        engines.append({"docker": shared} if shared else "docker")
    return _Stages(runc, tuple(layer for layer in USUAL if layer not in skipped), engines)


def _skipped(limits: dict[str, Any], only: tuple[str, ...] | None) -> dict[str, str]:
    """Layers that are not measured here, and why."""
    options = {"cpu": "quota", "cpuset": "cpuset", "memory": "memory"}
    skipped = {
        layer: f"the container has no limit of that kind (--{option} gives it one)."
        for layer, option in options.items()
        if option not in limits
    }
    skipped |= {layer: "not selected (--only)." for layer in USUAL if only is not None and layer not in only}
    if needed := sorted(NEEDED_BY_USER & skipped.keys()):
        need(only is None or "user" not in only, f"--only: the layer user needs {', '.join(needed)}; name them too.")
        skipped["user"] = f"it needs the layers {', '.join(needed)}."
    return skipped


def _layers_json(found: Waterfall, calls: Calls, skipped: dict[str, str]) -> dict[str, Any]:
    return {**found.as_json(), "system_calls": calls.as_json(), "skipped": skipped}


def _tell_layers(found: Waterfall, calls: Calls, skipped: dict[str, str], folder: Path) -> None:
    from tare.report.text.why import waterfall_text

    report = folder / "report.html"
    with reading(folder / "layers") as store:
        write_report(store, weighed(store), report)
    click.echo(waterfall_text(found, skipped, width(), calls))
    click.echo(f"report: {report}")

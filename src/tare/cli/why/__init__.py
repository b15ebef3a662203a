"""`tare why`: what makes a container slower, tried cause by cause, then layer by layer."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.needs import needs_of
from tare.api.weighing import Script, built_in_workload, choose_platform, end_early, fetched, placed
from tare.base.errors import ObstacleError
from tare.cli.options import FOLDER, NamesOption, json_option, margin_option, metric_option, need, output_option
from tare.cli.report import write_report
from tare.cli.scaffold import Verb, print_json, reading, say, weighed, width
from tare.cli.scripts import script_options
from tare.cli.serving import server_options, server_workload
from tare.cli.studies import python_option, with_interpreter
from tare.cli.weigh import minutes_option, steps_option
from tare.cli.why.runs import Trying
from tare.cli.why.stores import are_stores, explain_stores
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL

if TYPE_CHECKING:
    from tare.analysis.model import Comparison
    from tare.analysis.why.causes import Answer, Phase, Wave
    from tare.analysis.why.layers import Calls, Waterfall
    from tare.parts.protocols import Side
    from tare.plan.why import Level, Stages, Suspects


ROOT, ENGINE = "mounts", "docker"  # layers that cannot be switched: they are measured whatever --only names
LOOK = 2  # blocks: where they show a clear cost, suspects are tried at once, beside both sides


@click.command("why", cls=Verb)
@click.option("--in", "inside", metavar="PLATFORM", help="The platform to explain.  [default: the first that works]")
@click.option("--workload", metavar="NAME", help="A built-in workload (see `tare list workloads`).  [default: lenet5]")
@python_option
@click.option("--image", help="The container's image; else the host's own root file system.")
@click.option("--quota", type=float, help="The container's CPU quota, in cores.")
@click.option("--cpuset", help="The container's cores, like 0-1.")
@click.option("--memory", help="The container's memory limit, like 2GiB.")
@click.option("--shm", help="The size of the container's /dev/shm, like 64MiB.")
@click.option("--cpu-shares", type=click.IntRange(2, 262144), help="The container's CPU weight; 1024 is usual.")
@click.option("--io-rate", help="What the container may read and write of a disk in a second, like 20MB.")
@click.option("--inside-env", multiple=True, metavar="NAME=VALUE", help="A variable of the container alone.")
@click.option(
    "--inside-arg", multiple=True, metavar="OPTION=VALUE", help="An option of the command in the container alone."
)
@click.option(
    "--seccomp-profile", type=click.Path(path_type=Path, exists=True), help="The container's own filter (runc)."
)
@metric_option("the mean step, or the whole run")
@click.option("--repeat", type=click.IntRange(1, 1000), default=6, show_default=True, help="How many blocks.")
@margin_option("5%")
@click.option("--try", "tries", is_flag=True, help="Of two stores: try the suspects on this machine.")
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
@server_options
@output_option("The folder of all stores; else out/why-TIME.", FOLDER)
@json_option
@click.argument("command_line", metavar="[STORE STORE | -- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(
    inside: str | None,
    workload: str | None,
    python: str | None,
    image: str | None,
    quota: float | None,
    cpuset: str | None,
    memory: str | None,
    shm: str | None,
    cpu_shares: int | None,
    io_rate: str | None,
    inside_env: tuple[str, ...],
    inside_arg: tuple[str, ...],
    seccomp_profile: Path | None,
    metric: str | None,
    repeat: int,
    margin: float,
    tries: bool,
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
    serving: dict[str, Any],
    output: Path | None,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Explain why a workload is slower in a container: the cause, how much it costs, and its cure.

    First the container against bare metal, in interleaved blocks, and where the time goes. Then the suspects, by what
    both sides recorded. Then each suspect is tried: the container without it, bare metal with it. What stays
    unexplained is taken apart layer by layer, with runc.

    tare why --quota 1 -- python train.py

    A server is driven by requests from outside, as by `tare weigh --server`:

    tare why --quota 1 --server "python app.py --threads 16" --port 8000

    Of two stores it explains why the one is slower than the other: another machine, or the same one last week. What
    both recorded is compared; --try runs both sides again here, with each suspect removed and added.

    tare why out/monday out/today --try
    """
    folder = output or Path("out") / f"why-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    if are_stores(command_line):
        trying = Trying(folder, {}, python, repeat, margin, metric) if tries else None
        explain_stores(command_line, trying, margin, metric, as_json)
        return
    need(not tries, "--try is for two stores: `tare why STORE STORE --try`.")
    need(not (workload and command_line), "give either --workload or a command after --, not both.")
    need(not (serving and (workload or command_line)), "give either --server, --workload or a command after --.")
    need(not (layers and no_layers), "give either --layers or --no-layers, not both.")
    has_command = bool(command_line or serving)
    need(has_command or not script.for_commands(), "--reads, --writes, --env and --keep-outputs need a command.")
    need(
        has_command or not inside_arg, "--inside-arg is about an option of a command: give one after --, or a --server."
    )
    if serving:
        work = server_workload(serving, script, image=bool(image))
    elif command_line:
        work = script.workload(command_line, image=bool(image))
    else:
        work = built_in_workload(workload or "lenet5")
    end_early(work, steps, minutes)
    image = image and placed(image)
    limits = {"image": image, "quota": quota, "cpuset": cpuset, "memory": memory, "shm": shm}
    limits |= {"cpu_shares": cpu_shares, "io_rate": io_rate}
    fields: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    fields |= script.platform()
    if writable:
        fields["writable"] = True
    if env := _assigned("--inside-env", inside_env):
        fields["env"] = env
    named = all(each.startswith("-") for each in inside_arg)
    need(named, "--inside-arg: write an option with its value, --inside-arg=--threads=16.")
    if arguments := _assigned("--inside-arg", inside_arg):
        fields["arguments"] = arguments
    profile = {} if seccomp_profile is None else {"seccomp_profile": str(seccomp_profile.resolve())}
    with ExitStack() as stack:
        chosen = choose_platform("runc" if profile and inside is None else inside, stack)
        fetched(chosen, image)
        need(not profile or chosen == "runc", "--seccomp-profile is for runc: add `--in runc`.")
        own = {**fields, **(profile if chosen == "runc" else {})}
        refuse_wrong(chosen, own, work, python)
        metric = "startup_s" if start_up else metric
        run = Trying(folder, work, python, repeat, margin, metric, image)
        found = _explained(run, chosen, own, as_json)
        if not (layers or (not no_layers and found.unexplained)):
            _tell_answer(found, None, folder, as_json)
            return
        if image is not None and chosen != "runc":
            say(f"{chosen} does not take an image apart layer by layer: unpack it, and add `--in runc --image FOLDER`.")
            _tell_answer(found, None, folder, as_json)
            return
        if image is None:
            stack.enter_context(needs_of(["docker"]))
        skipped = _skipped(fields, only)
        stages = _stages({**fields, **profile}, fields, skipped)
        built = [*stages.chain, *stages.aside, *([] if cumulative else stages.without), *stages.engines]
        say(f"layer by layer: {len(built) + 1} sides in {repeat} blocks, about {run.time_text(len(built) + 1)}.")
        waterfall = run.waterfall("layers", built)
        calls = _not_asked_for() if no_calls else run.calls([*stages.chain, *stages.aside, *stages.engines])
    if as_json:
        _tell_answer(found, _layers_json(waterfall, calls, skipped), folder, as_json)
        return
    _tell_answer(found, None, folder, as_json)
    _tell_layers(waterfall, calls, skipped, folder)


def _assigned(option: str, variables: tuple[str, ...]) -> dict[str, str]:
    for each in variables:
        need("=" in each and not each.startswith("="), f"{option} {each!r}: write NAME=VALUE.")
    return dict(each.split("=", 1) for each in variables)


@dataclass(frozen=True)
class Explained:
    """What `tare why` found: where the time goes, who is suspected, what became of each."""

    total: Comparison
    phases: tuple[Phase, ...]
    suspects: Suspects
    answer: Answer | None = None  # None where there is nothing to explain
    untried: tuple[str, ...] = ()  # suspects that were not tried, since the cost was explained before

    @property
    def unexplained(self) -> bool:
        """Whether there is a sure cost that no cause explains."""
        return self.answer is not None and self.total.verdict == "slower" and not self.answer.explained

    def as_json(self) -> dict[str, Any]:
        return {
            "total": self.total.as_json(),
            "phases": [asdict(each) for each in self.phases],
            "suspects": {name: asdict(each) for name, each in self.suspects.held.items()},
            "ruled_out": self.suspects.ruled_out,
            **({} if self.answer is None else {"answer": self.answer.as_json(), "not_tried": self.untried}),
        }


def _explained(run: Trying, platform: str, fields: dict[str, Any], quiet: bool) -> Explained:
    """The three steps: what is slower, who is suspected, what the interventions show."""
    from tare.analysis.why.causes import QUICK, SLOW, answer, is_clear, judged_metric, phases
    from tare.plan.why import MOST_TRIED, Level, Search, examined

    slow_level = Level(platform, fields)
    sides = {QUICK: run.bare, SLOW: slow_level}
    most = 2 + 2 * MOST_TRIED + MOST_TRIED
    say(
        f"at most {(2 + most) * run.repeat} trials in {run.repeat} blocks, twice that where they leave it open; up to "
        f"{2 * run.repeat} of them to see what is slower. It ends as soon as the cost is explained, and each part says "
        "before it begins how long it takes."
    )
    look = run.wave("look", sides, blocks=min(LOOK, run.repeat))
    name = run.metric or judged_metric(look.records)
    clear = run.repeat > LOOK and is_clear(look, name, run.margin)
    waves, first = ([look], answer([look], margin=run.margin, metric=name)) if clear else _total(run, sides, look, name)
    slow, quick = (_side(role, waves) for role in (SLOW, QUICK))
    parts = phases(slow.metrics, quick.metrics, first.metric)
    suspects = examined(slow, quick, {each.name: each.share for each in parts})
    search = Search(slow_level, run.bare, suspects.held)
    if clear and not search.candidates():  # nobody to try: then at least how much it costs
        clear, (waves, first) = False, _total(run, sides, look, name)
    found = Explained(first.total, parts, suspects)
    if first.total.verdict == "equivalent":
        return found
    if not quiet:
        _tell_suspects(found)
    if clear:  # the blocks of the interventions have both sides again, and they alone judge: the look chose itself
        first = run.tried(search, [], None, name)
    elif first.total.verdict != "slower":  # a cost that is not sure cannot be seen to go away
        return replace(found, answer=first, untried=tuple(search.candidates()))
    else:
        first = run.tried(search, waves, first)
    tried = {each.cause for each in first.tried}  # some may be candidates again, for a wave that was not needed
    untried = tuple(name for name in search.candidates() if name not in tried)
    return replace(found, total=first.total, answer=first, untried=untried)


def _total(run: Trying, sides: Mapping[str, Level], look: Wave, name: str) -> tuple[list[Wave], Answer]:
    """The rest of the blocks after a first look, and as many again where they leave it open."""
    from tare.analysis.why.causes import WHOLE, answer

    waves = [look, run.wave("total", sides, blocks=run.repeat - LOOK)] if run.repeat > LOOK else [look]
    first = answer(waves, margin=run.margin, metric=name)
    if run.metric is None and name != WHOLE and first.total.verdict != "slower":
        whole = answer(waves, margin=run.margin, metric=WHOLE)
        if whole.total.verdict == "slower" or (_may_cost(whole) and not _may_cost(first)):
            first = whole
    if _may_cost(first):
        say(f"it may be slower, but {run.repeat} blocks do not show it: as many again, about {run.time_text(2)}.")
        waves.append(run.wave("total-again", sides))
        first = answer(waves, margin=run.margin, metric=first.metric)
    return waves, first


def _may_cost(found: Answer) -> bool:
    """Whether it seems slower by more than the margin, and is not surely so."""
    return found.total.verdict == "cannot_tell" and (found.total.effect or 0.0) > found.total.margin


def _side(role: str, waves: Sequence[Wave]) -> Side:
    from tare.analysis.why.causes import SLOW, facts_of, metrics_of
    from tare.parts.protocols import Side
    from tare.records.trials import usable_trials

    settings = waves[0].roles[role]
    platform = settings["platform"]
    usable = [each for wave in waves for each in usable_trials(wave.records, repeats=False)]
    mine = [each for each in usable if each.settings["platform"] == platform]
    fields = {name.partition(".")[2]: value for name, value in settings.items() if name != "platform"}
    name = platform if role == SLOW else "bare metal"
    return Side(name, platform, fields, facts_of(mine), metrics_of(mine))


def _tell_suspects(found: Explained) -> None:
    from tare.report.text.why import phases_text, suspects_text

    click.echo(phases_text(found.total, found.phases, width()), err=True)
    titles = found.suspects.titles()
    about = {name: f"{titles[name]}: {each.evidence}" for name, each in found.suspects.held.items()}
    click.echo(suspects_text(about, found.suspects.ruled_out, width()), err=True)


def _tell_answer(found: Explained, layers: dict[str, Any] | None, folder: Path, as_json: bool) -> None:
    from tare.report.text.why import Told, answer_text, nothing_text

    if as_json:
        print_json({"store": str(folder), **found.as_json(), **({} if layers is None else {"layers": layers})})
    elif found.answer is None:
        click.echo(nothing_text(found.total, width()))
    else:
        held = found.suspects
        cannot = {name: each.untried for name, each in held.held.items() if each.untried}
        spared = dict.fromkeys(found.untried, "the cost was explained before." if found.answer.explained else "")
        told = Told(held.titles(), held.evidence(), held.cures(), {**cannot, **spared}, held.ruled_out)
        click.echo(answer_text(found.answer, told, width()))


def refuse_wrong(platform: str, fields: dict[str, Any], work: dict[str, Any], python: str | None) -> None:
    """What is wrong with the options is reported before anything is started."""
    from tare.plan.why import Level
    from tare.studies.load import from_plain

    plain = {"study": "why", "platform": [Level(platform, fields).as_plain()], "workload": work}
    with_interpreter(from_plain(plain, "tare why"), python)


def _not_asked_for() -> Calls:
    from tare.analysis.why.layers import Calls

    return Calls(missing="system calls were not counted (--no-calls).")


def _stages(runc: dict[str, Any], shared: dict[str, Any], skipped: dict[str, str]) -> Stages:
    from tare.base.host import LocalHost
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
    need(not (only and "user" in only and missing), f"--only: the layer user needs {missing}; name them too.")
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

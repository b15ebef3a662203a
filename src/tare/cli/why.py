"""`tare why`: the container's weight, layer by layer."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import ObstacleError, TareError
from tare.cli.needs import needs_of
from tare.cli.options import FOLDER, NamesOption, json_option, margin_option, need, output_option
from tare.cli.report import write_report
from tare.cli.scaffold import Verb, print_json, reading, say, weighed, width
from tare.cli.studies import python_option, with_interpreter
from tare.cli.study_runs import run_into, study_text
from tare.cli.weigh import built_in_workload, end_early, minutes_option, own_command, steps_option
from tare.drivers.containers.isolation import LAYERS, NEEDED_BY_USER, USUAL
from tare.records.trials import sides_that_never_ran

if TYPE_CHECKING:
    from tare.analysis.model import Comparison
    from tare.analysis.why import Calls, Waterfall
    from tare.records.model import Record


ROOT, ENGINE = "mounts", "docker"  # layers that cannot be switched: they are measured whatever --only names


@click.command("why", cls=Verb)
@click.option("--workload", metavar="NAME", help="A built-in workload (see `tare list workloads`).  [default: lenet5]")
@python_option
@click.option("--quota", type=float, help="The container's CPU quota, in cores.")
@click.option("--cpuset", help="The container's cores, like 0-1.")
@click.option("--memory", help="The container's memory limit, like 2GiB.")
@click.option("--seccomp-profile", type=click.Path(path_type=Path, exists=True), help="The container's own filter.")
@click.option("--repeat", type=click.IntRange(1, 1000), default=6, show_default=True, help="How many blocks.")
@margin_option("5%")
@click.option("--layers", is_flag=True, help="Take it apart even if the whole costs nothing.")
@click.option(
    "--only", metavar="LAYERS", type=NamesOption("layer", (ROOT, *LAYERS, ENGINE)),
    help="Only these layers, such as cpu,seccomp; mounts and docker are always measured.  [default: all]",
)  # fmt: skip
@click.option("--writable", is_flag=True, help="The workload may write to the container's root.")
@click.option("--cumulative", is_flag=True, help="Only put layers on one after the other; take none off singly.")
@click.option("--no-calls", is_flag=True, help="Do not count system calls (one more trial a layer, traced, untimed).")
@steps_option
@minutes_option
@output_option("The folder of all stores; else out/why-TIME.", FOLDER)
@json_option
@click.argument("command_line", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(
    workload: str | None,
    python: str | None,
    quota: float | None,
    cpuset: str | None,
    memory: str | None,
    seccomp_profile: Path | None,
    repeat: int,
    margin: float,
    layers: bool,
    only: tuple[str, ...] | None,
    writable: bool,
    cumulative: bool,
    no_calls: bool,
    steps: int | None,
    minutes: float | None,
    output: Path | None,
    as_json: bool,
    command_line: tuple[str, ...],
) -> None:
    """Show which layer of a container costs what: namespaces, cgroups, seccomp, capabilities, the engine.

    First the whole container against bare metal. If that costs something, a runc container is built up layer by layer,
    and the whole is run with each layer taken off, all in interleaved blocks. Then each make of container runs once
    more with its system calls traced; the times of these trials are not compared.

    tare why --quota 1 -- python train.py
    """
    need(not (workload and command_line), "give either --workload or a command after --, not both.")
    work = own_command(command_line) if command_line else built_in_workload(workload or "lenet5")
    end_early(work, steps, minutes)
    limits = {"quota": quota, "cpuset": cpuset, "memory": memory}
    fields = {name: value for name, value in limits.items() if value is not None}
    if writable:
        fields["writable"] = True
    profile = {} if seccomp_profile is None else {"seccomp_profile": str(seccomp_profile.resolve())}
    _refuse_wrong({**fields, **profile}, work, python)
    folder = output or Path("out") / f"why-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
    with ExitStack() as stack:
        stack.enter_context(needs_of(["docker"]))
        skipped = _skipped(fields, only)
        stages = _stages({**fields, **profile}, fields, skipped)
        run = _Run(folder, work, python, repeat, margin)
        total = run.waterfall("total", [stages.whole, *stages.engines])
        if total.total.verdict == "equivalent" and not layers:
            _tell_nothing(total.total, folder, as_json)
            return
        built = [*stages.chain, *stages.aside, *([] if cumulative else stages.without), *stages.engines]
        found = run.waterfall("layers", built)
        calls = _not_asked_for() if no_calls else run.calls([*stages.chain, *stages.aside, *stages.engines])
    _tell(found, calls, skipped, folder, as_json)


def _refuse_wrong(fields: dict[str, Any], work: dict[str, Any], python: str | None) -> None:
    """What is wrong with the options is said before anything is started."""
    from tare.study.load import from_plain

    plain = {"study": "why", "platform": [{"runc": fields}], "workload": work}
    with_interpreter(from_plain(plain, "tare why"), python)


def _not_asked_for() -> Calls:
    from tare.analysis.why import Calls

    return Calls(missing="system calls were not counted (--no-calls).")


class _Run:
    """The studies of a `why`: two that differ in their platforms alone, and one that is traced."""

    def __init__(self, folder: Path, work: dict[str, Any], python: str | None, repeat: int, margin: float) -> None:
        self._folder, self._work, self._python = folder, work, python
        self._repeat, self._margin = repeat, margin

    def waterfall(self, stage: str, platforms: list[Any]) -> Waterfall:
        from tare.analysis.why import waterfall

        against = {"against": {"platform": "bare"}, "margin": self._margin}
        return waterfall(
            self._records(stage, platforms, {"repeat": self._repeat, "compare": against}), margin=self._margin
        )

    def calls(self, platforms: list[Any]) -> Calls:
        """Each make of container once, traced; where that cannot be done, why not."""
        from tare.analysis.why import Calls, calls_by_layer
        from tare.base.host import LocalHost
        from tare.parts.find import find

        if why := find("probes", "syscalls")().obstacles(LocalHost()):  # type: ignore[attr-defined]
            return Calls(missing=f"system calls were not counted: {' '.join(map(str, why))}")
        return calls_by_layer(self._records("calls", platforms, {"repeat": 1, "aa": False, "probes": ["syscalls"]}))

    def _records(self, stage: str, platforms: list[Any], fields: dict[str, Any]) -> list[Record]:
        """Run a study of bare metal and these platforms; what it left."""
        from tare.study.load import from_plain

        plain = {"study": f"why-{stage}", "platform": ["bare", *platforms], "workload": self._work, **fields}
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


def _tell_nothing(total: Comparison, folder: Path, as_json: bool) -> None:
    from tare.report.text.why import nothing_text

    if as_json:
        print_json({"store": str(folder), "total": total.as_json(), "layers": [], "guilty": []})
    else:
        click.echo(nothing_text(total, width()))


def _tell(found: Waterfall, calls: Calls, skipped: dict[str, str], folder: Path, as_json: bool) -> None:
    from tare.report.text.why import waterfall_text

    report = folder / "report.html"
    with reading(folder / "layers") as store:
        write_report(store, weighed(store), report)
    if as_json:
        said = {**found.as_json(), "system_calls": calls.as_json(), "skipped": skipped}
        print_json({"store": str(folder), "report": str(report), **said})
    else:
        click.echo(waterfall_text(found, skipped, width(), calls))
        click.echo(f"report: {report}")

"""`tare why`: what makes a container slower, tried cause by cause, then layer by layer.

The container that `tare why` explains: its image, its limits, and what is set inside of it alone.
"""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.api.running import await_device, with_interpreter
from tare.api.studies import choose_platform, fetched, new_folder, placed, refuse_no_images
from tare.base.declare import Role
from tare.base.errors import TareError
from tare.base.files import replace_file
from tare.base.secrets import masked_words
from tare.base.text import count_text
from tare.cli.command_line import CommandVerb, refuse_no_program
from tare.cli.own_line import Allowed, cured, line_options, taken
from tare.cli.scaffold import (
    FOLDER,
    WORDS,
    Option,
    as_one,
    json_option,
    margin_option,
    metric_option,
    need,
    output_option,
    print_json,
    python_option,
    say,
    width,
)
from tare.cli.weigh import (
    Asked,
    asked_workload,
    minutes_option,
    percentile_goal,
    script_options,
    server_options,
    steps_option,
)
from tare.cli.why.running import Attached, explain_running, running_options
from tare.cli.why.runs import (
    LEAST,
    Apart,
    Layering,
    Trying,
    are_stores,
    explain_stores,
    layer_options,
    side,
    stopped_by_requests,
    suspects_json,
    taken_apart,
    told,
)
from tare.drivers.containers.line import is_line
from tare.records.schema import ANSWER_FILE

if TYPE_CHECKING:
    from tare.analysis.model import Comparison
    from tare.analysis.why.causes import Answer, Phase
    from tare.analysis.why.where import Where
    from tare.plan.why import Search, Suspects


@dataclass(frozen=True)
class Container:
    """What its options say."""

    image: str | None
    against: str | None  # the image of the other side, which is bare metal without one
    fields: dict[str, Any]  # of its platform, with the image
    profile: dict[str, Any]  # the field for its own seccomp filter, which runc alone has


def _container(
    image: str | None, against_image: str | None, ulimits: tuple[str, ...], inside_env: tuple[str, ...],
    inside_arg: tuple[str, ...], seccomp_profile: Path | None, writable: bool, **limits: Any,
) -> Container:  # fmt: skip
    named = all(each.startswith("-") for each in inside_arg)
    need(named, "--inside-arg: write an option with its value, --inside-arg=--threads=16.")
    numbers = _assigned("--ulimit", ulimits)
    for name, text in numbers.items():
        need(text.removeprefix("-").isdecimal(), f"--ulimit {name}={text}: write a number, or -1 for none.")
    given = {
        "image": image and placed(image),
        **limits,
        "writable": writable or None,
        "ulimits": {name: int(text) for name, text in numbers.items()} or None,
        "env": _assigned("--inside-env", inside_env) or None,
        "arguments": _assigned("--inside-arg", inside_arg) or None,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    profile = {} if seccomp_profile is None else {"seccomp_profile": str(seccomp_profile.resolve())}
    return Container(fields.get("image"), against_image and placed(against_image), fields, profile)


def _assigned(option: str, variables: tuple[str, ...]) -> dict[str, str]:
    for each in variables:
        need("=" in each and not each.startswith("="), f"{option} {each!r}: write NAME=VALUE.")
    return dict(each.split("=", 1) for each in variables)


container_options: Option = as_one(
    "container", _container,
    click.option("--image", help="The container's image; else the host's own root file system."),
    click.option("--against-image", help="Another image on the other side, in the same container, for bare metal."),
    click.option("--quota", type=float, help="The container's CPU quota, in cores."),
    click.option("--cpuset", help="The container's cores, like 0-1."),
    click.option("--memory", help="The container's memory limit, like 2GiB."),
    click.option("--shm", help="The size of the container's /dev/shm, like 64MiB."),
    click.option("--cpu-shares", type=click.IntRange(2, 262144), help="The container's CPU weight; 1024 is usual."),
    click.option("--io-rate", help="What the container may read and write of a disk in a second, like 20MB."),
    click.option("--ulimit", "ulimits", multiple=True, metavar="NAME=NUMBER",
                 help="A limit of the container's processes: memlock, nofile, nproc, stack or core; -1 is none."),
    click.option("--inside-env", multiple=True, metavar="NAME=VALUE", help="A variable of the container alone."),
    click.option("--inside-arg", multiple=True, metavar="OPTION=VALUE",
                 help="An option of the command in the container alone."),
    click.option("--seccomp-profile", type=click.Path(path_type=Path, exists=True),
                 help="The container's own filter (runc)."),
    click.option("--writable", is_flag=True, help="A built-in workload may write to the container's root."),
)  # fmt: skip


@click.command("why", cls=CommandVerb)
@click.option("--in", "inside", metavar="PLATFORM", help="The platform to explain.  [default: the first that works]")
@click.option("--workload", metavar="NAME", help="A built-in workload (see `tare list workloads`).  [default: lenet5]")
@python_option
@container_options
@metric_option("the mean step, or the whole run")
@click.option(
    "--repeat",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="How many blocks where fewer show nothing; twice as many where there seems to be a cost.",
)
@margin_option("5%")
@click.option("--try", "tries", is_flag=True, help="Of two stores: try the suspects on this machine.")
@layer_options
@click.option("--start-up", is_flag=True, help="Look at the start-up to the first step instead of the steps.")
@steps_option
@minutes_option
@script_options
@line_options
@running_options
@server_options
@click.option("-v", "--verbose", is_flag=True, help="Also what was tried, what was not, and what was ruled out.")
@output_option("The folder of all stores; else out/why-TIME.", FOLDER)
@json_option
@click.argument("command_line", metavar="[STORE STORE | -- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@asked_workload
def command(
    inside: str | None,
    asked: Asked,
    allowed: Allowed,
    attached: Attached,
    python: str | None,
    container: Container,
    metric: str | None,
    repeat: int,
    margin: float,
    tries: bool,
    layering: Layering,
    start_up: bool,
    verbose: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Explain why a workload is slower in a container: the cause, how much it costs, and its cure.

    First the container against bare metal, in interleaved blocks, and where the time goes. Then the suspects, by what
    both sides recorded. Then each suspect is tried: the container without it, bare metal with it. What stays
    unexplained is taken apart layer by layer, with runc. Each step ends as soon as its answer is sure; Ctrl-C prints
    what is sure so far. `tare show FOLDER` prints the whole answer again.

    tare why --quota 1 -- python train.py

    Put before the `docker run` or `podman run` line that you have, it explains that container, as it is, and prints the
    change of your line:

    tare why -- docker run --cpus 1 -v $PWD:/work -w /work app:1 python train.py

    Of what runs already it says within half a minute what may slow it down, without a run of its own:
    limits, waits, reads, variables. Nothing is restarted, written, or executed in it:

    tare why --container my-service

    One image against another, in the same container:

    tare why --image app:2 --against-image app:1 -- python train.py

    A server is driven by requests from outside, as by `tare weigh --server`:

    tare why --quota 1 --server "python app.py --threads 16" --port 8000

    Of two stores it explains why the one is slower than the other: another machine, or the same one last week. What
    both recorded is compared; --try runs both sides again here, with each suspect removed and added.

    tare why out/monday out/today --try
    """
    if attached.is_asked:
        need(attached.running is None or attached.pid is None, "give either --container or --pid, not both.")
        need(not asked.words, "--container and --pid look at what runs already, and take no command.")
        explain_running(attached, as_json)
        return
    folder = output or new_folder("why")
    if not allowed.has_file and are_stores(asked.words):
        trying = Trying(folder, {}, python, repeat, margin, metric) if tries else None
        with stopped_by_requests():
            try:
                explain_stores(asked.words, trying, margin, metric, as_json, verbose)
            except KeyboardInterrupt:
                say(f"stopped by you. {_resumes(folder)}" if tries else "stopped by you.")
                raise SystemExit(130) from None
        return
    need(
        percentile_goal(asked.serving) is None,
        "--goal with a percentile searches for a rate, which `tare weigh` does: give `tare why` a time alone, "
        "--goal '300 ms', and the --rate to explain.",
    )
    need(not tries, f"--try is for two stores, `tare why STORE STORE --try`, and not for {' '.join(asked.words)!r}.")
    need(
        not (layering.always and (allowed.has_file or is_line(asked.words))),
        "--layers takes a container of tare's own apart, and not yours.",
    )
    given = {"--in": inside, **{f"--{name}": value for name, value in (container.fields | container.profile).items()}}
    line = taken(asked.words, allowed, given | asked.about_container(), asked.end_early, container.against)
    need(
        bool(container.image or line) or not container.against,
        "--against-image is the other one of two: name the slow one by --image, or by your `docker run` line.",
    )
    work = line.work if line else asked.workload(image=bool(container.image))
    need(
        asked.is_own or "arguments" not in container.fields,
        "--inside-arg is about an option of a command: give one after --, or a --server.",
    )
    fields, profile = {**container.fields, **asked.script.platform()}, container.profile
    need(not (python and asked.words), "--python is for built-in workloads: a command names its own.")
    refuse_no_images(container.image, container.against)
    if line is None:
        refuse_no_program(work)
    judged = Role.START_UP.metric if start_up else metric
    run = Trying(folder, work, python, repeat, margin, judged, container.image, line)
    finding, apart = Finding(run), None
    await_device()
    with ExitStack() as stack:
        stack.enter_context(stopped_by_requests())
        try:
            if line is None:
                chosen = choose_platform("runc" if profile and inside is None else inside, stack)
                fetched(chosen, container.image, container.against)
            else:
                chosen, fields = "own", line.fields
            need(not profile or chosen == "runc", "--seccomp-profile is for runc: add `--in runc`.")
            refuse_wrong(chosen, {**fields, **profile}, work, python)
            if container.against is not None:
                against = "--layers takes a container apart against bare metal, and not against an image."
                need(not layering.always, against)
                other = (line and line.other) or {**fields, **profile, "image": container.against}
                run.other_side(chosen, other, (str(line.line.image if line else container.image), container.against))
            found = finding.explained(chosen, {**fields, **profile}, quiet=as_json, verbose=verbose)
            if found.answer is not None and found.total.verdict == "slower" and not found.answer.explained:
                found = finding.placed()
            wanted = layering.always or (
                found.unexplained and not layering.never and not container.against and line is None
            )
            if wanted and found.answer is not None and not as_json:  # it takes long: what is known is said before it
                click.echo(_text(found, run, verbose=False), err=True)
            apart = taken_apart(run, chosen, fields, profile, layering) if wanted else None
        except KeyboardInterrupt:
            _tell_stopped(finding, folder, as_json, verbose)
            raise SystemExit(130) from None
    _tell_answer(found, run, apart, folder, as_json, verbose)
    if apart is not None and not as_json:
        apart.tell(folder)


@dataclass(frozen=True)
class Explained:
    """What `tare why` found: where the time goes, who is suspected, what became of each."""

    total: Comparison
    phases: tuple[Phase, ...]
    suspects: Suspects
    answer: Answer | None = None  # None where there is nothing to explain
    untried: tuple[str, ...] = ()  # suspects that were not tried, since the cost was explained before
    located: tuple[str, ...] = ()  # suspects that are all that the sides differ in, so that the cost is in them
    disturbed: int = 0  # trials that count although other processes disturbed them
    grown: tuple[Phase, ...] = ()  # what the run of the slow side spent more on: the entries of the ledger that grew
    where: Where | None = None  # what took longer in runs that were looked at; None where nobody looked

    @property
    def unexplained(self) -> bool:
        """Whether there is a sure cost that no cause explains."""
        found = self.answer
        return found is not None and self.total.verdict == "slower" and not (found.explained or found.located)

    def as_json(self) -> dict[str, Any]:
        return {
            "total": self.total.as_json(),
            "phases": [asdict(each) for each in self.phases],
            **suspects_json(self.suspects),
            **({} if self.answer is None else {"answer": self.answer.as_json(), "not_tried": self.untried}),
            "located": self.located,
            "disturbed": self.disturbed,
            "ledger": [asdict(each) for each in self.grown],
            **({} if self.where is None else {"where": asdict(self.where)}),
        }


class Finding:
    """The three steps: what is slower, who is suspected, what the interventions show; at any moment what is known."""

    def __init__(self, run: Trying) -> None:
        self.run = run
        self._suspects: Suspects | None = None
        self._search: Search | None = None
        self._where: Where | None = None

    def placed(self) -> Explained:
        """The same with where the time goes, by one more run of each side; where files that it touched differ, these
        are tried.
        """
        assert self._search is not None
        try:
            self._where, files = self.run.where(self._search.slow)
            if self.run.narrowed(self._search, files, self._where):
                self.run.tried(self._search)
        except TareError as problem:
            say(f"where the time goes was not seen: {problem}")
        return self.so_far()

    def explained(self, platform: str, fields: dict[str, Any], *, quiet: bool, verbose: bool = False) -> Explained:
        from tare.analysis.why.causes import QUICK, SLOW
        from tare.plan.why import Level, Search

        run, slow = self.run, Level(platform, fields)
        if run.files:
            say(run.files)
        say(
            f"both sides in turn, {LEAST} blocks, or up to {run.most} where they leave it open: {2 * LEAST} to "
            f"{2 * run.most} runs, beside one of each before. To try a suspect takes {LEAST} to {run.most} blocks more."
        )
        first = run.look({QUICK: run.quick, SLOW: slow})
        found = self.so_far()
        if first.total.verdict == "equivalent":
            return replace(found, answer=None)
        if not quiet:
            _tell_suspects(found, run.sides, verbose)
        self._search = search = Search(slow, run.quick, found.suspects.held)
        if first.total.verdict == "slower" and search.candidates():  # else it could not be seen to go away
            run.tried(search)
        return self.so_far()

    def so_far(self) -> Explained:
        """What all trials until now show; raises where both sides have not run."""
        from tare.analysis.selection import without_throttled_alone
        from tare.analysis.why.causes import QUICK, SLOW, disturbed, having, phases, phases_of
        from tare.plan.why import examined
        from tare.records.model import usable_trials

        run, search = self.run, self._search
        answer = run.answer()
        whole = [wave for wave in run.waves if wave.is_whole]
        usable = [usable_trials(wave.records, repeats=False) for wave in whole]
        records = [each for fit in usable for each in without_throttled_alone(fit)]
        records = records or [each for wave in whole for each in wave.records]  # all were disturbed
        its = [(whole[0].roles[role], having(whole[0].roles[role], records)) for role in (SLOW, QUICK)]
        slow, quick = (side(name, *each) for name, each in zip(run.sides, its, strict=True))
        parts = phases(slow.metrics, quick.metrics, answer.metric)
        if self._suspects is None:
            self._suspects = examined(slow, quick, {each.name: each.share for each in parts})
        tried = {each.cause for each in answer.tried}  # some may be candidates again, for a wave that was not needed
        untried = tuple(name for name in (search.candidates() if search else ()) if name not in tried)
        noisy = sum(disturbed(wave.records) for wave in run.waves)
        least_s = 0.5 * max((each.more_s for each in parts), default=0.0)  # less of it does not say where the time went
        spent = tuple(each for each in phases_of(slow.spent(), quick.spent()) if each.more_s >= least_s)
        found = Explained(
            answer.total, parts, self._suspects, answer, untried, disturbed=noisy, grown=spent, where=self._where
        )
        if search is None:
            return found
        is_located = answer.total.verdict == "slower" and not answer.explained
        halved = replace(self._suspects, held=search.suspects)
        return replace(found, suspects=halved, located=tuple(search.located()) if is_located else ())


def _tell_suspects(found: Explained, sides: tuple[str, str], verbose: bool) -> None:
    from tare.report.text.why import phases_text, suspects_text

    click.echo(phases_text(found.total, found.phases, width(), sides), err=True)
    titles = found.suspects.titles()
    about = {name: f"{titles[name]}: {each.evidence}" for name, each in found.suspects.held.items()}
    aside = found.suspects.aside() if verbose else {}
    click.echo(suspects_text(about, aside, width()), err=True)


def _text(found: Explained, run: Trying, *, verbose: bool, marked: bool = False) -> str:
    from tare.report.text.why import answer_text, nothing_text, where_text

    if found.answer is None:
        return nothing_text(found.total, width(), run.sides, run.files)
    unsure = "" if found.answer.total.verdict == "slower" else "the cost is not sure."
    spared = dict.fromkeys(found.untried, "the cost was explained before." if found.answer.explained else unsure)
    about = told(
        found.suspects, spared, found.suspects.ruled_out, found.phases, found.located,
        where_text(found.grown, found.where, found.total.unit),
    )  # fmt: skip
    if run.line is not None:
        about = replace(about, cures=cured(run.line, found.suspects.held, [each.cause for each in found.answer.causes]))
    return answer_text(found.answer, about, width(), run.sides, verbose=verbose, marked=marked)


def _tell_answer(
    found: Explained, run: Trying, apart: Apart | None, folder: Path, as_json: bool, verbose: bool
) -> None:
    if found.disturbed:
        say(f"note: {count_text(found.disturbed, 'trial')} beside other processes, again and again: the intervals are "
            "wider for it.")  # fmt: skip
    replace_file(folder / ANSWER_FILE, f"{_text(found, run, verbose=True)}\n".encode())
    if as_json:
        print_json({"store": str(folder), **found.as_json(), **({} if apart is None else {"layers": apart.as_json()})})
        return
    click.echo(_text(found, run, verbose=verbose))
    if not verbose and found.answer is not None:
        say(f"`tare show {folder}` has the rest: what was tried, what was ruled out, each trial.")


def _tell_stopped(finding: Finding, folder: Path, as_json: bool, verbose: bool) -> None:
    """What is sure, what is not yet, who is suspected, and how to go on."""
    try:
        found = finding.so_far()
    except (TareError, ValueError, IndexError, KeyError):
        say(f"stopped by you before both sides had run: nothing is known yet. {_resumes(folder)}")
        return
    say(f"stopped by you. {_resumes(folder)}")
    replace_file(folder / ANSWER_FILE, f"{_text(found, finding.run, verbose=True, marked=True)}\n".encode())
    if as_json:
        print_json({"store": str(folder), **found.as_json(), "stopped": True})
    else:
        click.echo(_text(found, finding.run, verbose=verbose, marked=True))


def _resumes(folder: Path) -> str:
    context = click.get_current_context()
    words = context.meta.get(WORDS, [])
    shown = masked_words(words)
    given = [] if context.params.get("output") else ["-o", str(folder)]
    again = "" if shown == words else ", with each secret in place of its `hmac:...`"
    return f"This resumes{again}:\n  {shlex.join(['tare', 'why', *given, *shown])}"


def refuse_wrong(platform: str, fields: dict[str, Any], work: dict[str, Any], python: str | None) -> None:
    """What is wrong with the options is reported before anything is started."""
    from tare.plan.why import Level
    from tare.studies.load import from_plain

    plain = {"study": "why", "platform": [Level(platform, fields).as_plain()], "workload": work}
    with_interpreter(from_plain(plain, "tare why"), python)

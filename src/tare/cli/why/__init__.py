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

from tare.api.running import await_device
from tare.api.studies import choose_platform, fetched, merged, new_folder, placed, refuse_no_images
from tare.base.errors import StudyError, TareError
from tare.base.files import replace_file
from tare.base.secrets import masked_words
from tare.base.text import count_text
from tare.base.units import parse_share
from tare.cli.asked import Asked, asked_workload, percentile_goal, workload_options
from tare.cli.command_line import CommandVerb, refuse_no_program
from tare.cli.limits import limit_option
from tare.cli.own_line import Described, cured, described_options, taken
from tare.cli.scaffold import (
    DURATION,
    FOLDER,
    WORDS,
    Option,
    as_one,
    json_option,
    need,
    output_option,
    print_json,
    say,
    width,
)
from tare.cli.why.running import LOOK_S, attach_option, explain_running
from tare.cli.why.runs import (
    LEAST,
    Apart,
    Layering,
    Trying,
    are_stores,
    explain_stores,
    layers_option,
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


BLOCKS = 6  # where fewer show nothing; twice as many where there seems to be a cost
DEFAULT_MARGIN = 0.05
_OPTION = {"image": "--image", "env": "--container-env", "arguments": "--container-arg"}


@dataclass(frozen=True)
class Container:
    """What its options say."""

    image: str | None
    against: str | None  # the image of the other side, which is bare metal without one
    fields: dict[str, Any]  # of its platform, with the image


def _container(
    image: str | None, against_image: str | None, limits: dict[str, Any], container_env: tuple[str, ...],
    container_arg: tuple[str, ...],
) -> Container:  # fmt: skip
    named = all(each.startswith("-") for each in container_arg)
    need(named, "--container-arg: write an option with its value, --container-arg=--threads=16.")
    given = {
        "image": image and placed(image),
        **limits,
        "env": _assigned("--container-env", container_env) or None,
        "arguments": _assigned("--container-arg", container_arg) or None,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    return Container(fields.get("image"), against_image and placed(against_image), fields)


def _assigned(option: str, variables: tuple[str, ...]) -> dict[str, str]:
    for each in variables:
        need("=" in each and not each.startswith("="), f"{option} {each!r}: write NAME=VALUE.")
    return dict(each.split("=", 1) for each in variables)


container_options: Option = as_one(
    "container", _container,
    click.option("--image", help="The container's image.  [default: this device's own files]"),
    click.option("--against-image", metavar="IMAGE", help="Compare with this image, not with bare metal."),
    limit_option,
    click.option("--container-env", multiple=True, metavar="NAME=VALUE",
                 help="A variable of the container alone. Repeatable."),
    click.option("--container-arg", multiple=True, metavar="OPTION=VALUE",
                 help="An option of the command in the container alone. Repeatable."),
)  # fmt: skip


@click.command("why", cls=CommandVerb)
@click.option("--in", "inside", metavar="PLATFORM", help="The platform to explain.  [default: the first that works]")
@container_options
@described_options
@workload_options
@attach_option
@click.option(
    "--budget", "budget_s", type=DURATION, metavar="TIME",
    help="How long the whole command may take, like 10min.  [default: until the cause is sure; 30 s with --attach]",
)  # fmt: skip
@click.option("--try", "tries", is_flag=True, help="Of two stores: try the suspects on this machine.")
@layers_option
@click.option("-v", "--verbose", is_flag=True, help="Also print what was tried, ruled out and not looked at.")
@output_option("The folder of all stores; else out/why-TIME. The same command with it resumes.", FOLDER)
@json_option
@click.argument("command_line", metavar="[STORE STORE | -- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
@asked_workload
def command(
    inside: str | None, asked: Asked, attached: str | None, container: Container, budget_s: float | None,
    described: Described, tries: bool, layering: Layering, verbose: bool, output: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Explain why a workload is slower in a container: the cause, how much it costs, and its cure.

    The container and bare metal run in turns, and what both sides record is compared. Then each suspect is tried: the
    container without it, bare metal with it. The search ends as soon as the answer is sure; Ctrl-C prints what is sure
    so far. `tare show FOLDER` prints the whole answer again.

    tare why --limit cpus=1,shm=64MiB -- python train.py

    tare why --image app:2 --against-image app:1 -- python train.py

    tare why --limit cpus=1 --server "python app.py" --port 8000

    Put it before the `docker run` or `podman run` line that you have, and it prints the change of that line:

    tare why -- docker run --cpus 1 -v $PWD:/work -w /work app:1 python train.py

    A container or process that runs already is looked at without a run of its own, and nothing in it is changed:

    tare why --attach my-service

    Two stores, of two machines or two days: what differs, and with --try which difference costs the time:

    tare why out/monday out/today --try
    """
    fields = asked.fields
    margin = _margin(fields.take("compare.margin", DEFAULT_MARGIN))
    metric = fields.take("compare.metric", None)
    blocks = fields.take("repeat", BLOCKS)
    need(type(blocks) is int and blocks > 0, f"--set repeat={blocks}: write how many blocks, a whole number.")
    if attached is not None:
        need(not asked.words, "--attach looks at what runs already, and takes no command.")
        explain_running(attached, budget_s or LOOK_S, as_json)
        return
    folder = output or new_folder("why")
    if not described.is_given and are_stores(asked.words):
        trying = Trying(folder, {}, blocks, margin, metric, budget_s=budget_s) if tries else None
        with stopped_by_requests():
            try:
                explain_stores(asked.words, trying, margin, metric, as_json, verbose)
            except KeyboardInterrupt:
                say(f"stopped by you. {_resumes(folder)}" if tries else "stopped by you.")
                raise SystemExit(130) from None
        return
    need(
        percentile_goal(asked.serving) is None,
        "a goal with a percentile searches for a rate, which `tare weigh` does: give `tare why` a time alone, "
        "`--set workload.goal=300ms`, and the rate to explain, `--set workload.rate=50/s`.",
    )
    need(not tries, f"--try is for two stores, `tare why STORE STORE --try`, and not for {' '.join(asked.words)!r}.")
    need(
        not (layering.always and (described.is_given or is_line(asked.words))),
        "--layers takes a container of tare's own apart, and not yours.",
    )
    given = {"--in": inside, **{_OPTION.get(name, "--limit"): value for name, value in container.fields.items()}}
    if described.is_given:
        await_device()  # before a container beside it is started
    line = taken(asked.words, fields, given | asked.about_container(), asked.end_early, container.against, described)
    need(
        bool(container.image or line) or not container.against,
        "--against-image is the other one of two: name the slow one by --image, or by your `docker run` line.",
    )
    work = line.work if line else asked.workload(image=bool(container.image))
    need(
        asked.is_own or "arguments" not in container.fields,
        "--container-arg is about an option of a command: give one after --, or a --server.",
    )
    sides = merged({**container.fields, **asked.script.platform()}, fields.platform)
    profile = {name: sides.pop(name) for name in ("seccomp_profile",) if name in sides}
    refuse_no_images(container.image, container.against)
    if line is None:
        refuse_no_program(work)
    run = Trying(folder, work, blocks, margin, metric, container.image, line, budget_s=budget_s, more=fields.study)
    finding, apart = Finding(run), None
    await_device()
    with ExitStack() as stack:
        stack.enter_context(stopped_by_requests())
        try:
            if line is None:
                chosen = choose_platform("runc" if profile and inside is None else inside, stack)
                fetched(chosen, container.image, container.against)
            else:
                chosen, sides = "own", line.fields
            need(not profile or chosen == "runc", "platform.seccomp_profile is for runc: add `--in runc`.")
            refuse_wrong(chosen, {**sides, **profile}, work)
            if container.against is not None:
                against = "--layers takes a container apart against bare metal, and not against an image."
                need(not layering.always, against)
                other = (line and line.other) or {**sides, **profile, "image": container.against}
                run.other_side(chosen, other, (str(line.line.image if line else container.image), container.against))
            found = finding.explained(chosen, {**sides, **profile}, quiet=as_json, verbose=verbose)
            if found.answer is not None and found.total.verdict == "slower" and not found.answer.explained:
                found = found if run.is_out_of_time else finding.placed()
            left = not run.is_out_of_time and not layering.never and not container.against and line is None
            wanted = layering.always or (found.unexplained and left)
            if wanted and found.answer is not None and not as_json:  # it takes long: what is known is said before it
                click.echo(_text(found, run, verbose=False), err=True)
            apart = taken_apart(run, chosen, sides, profile, layering) if wanted else None
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
        if (
            first.total.verdict == "slower" and search.candidates() and not run.is_out_of_time
        ):  # else it could not be seen to go away
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


def _margin(value: Any) -> float:
    try:
        return parse_share(value)
    except ValueError as error:
        raise StudyError(f"--set compare.margin={value}: {error}.") from None


def refuse_wrong(platform: str, fields: dict[str, Any], work: dict[str, Any]) -> None:
    """What is wrong with the options is reported before anything is started."""
    from tare.plan.why import Level
    from tare.studies.load import from_plain

    plain = {"study": "why", "platform": [Level(platform, fields).as_plain()], "workload": work}
    from_plain(plain, "tare why")

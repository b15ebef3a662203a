"""`tare report`: a store's findings as one HTML file, or in another format; one figure; the list of figures."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.declare import Role
from tare.base.errors import StoreError, StudyError, unknown_name
from tare.cli.retired import renewed
from tare.cli.scaffold import (
    JSON_VERSION,
    STORE,
    QuantityOption,
    Verb,
    color,
    comparing,
    json_option,
    need,
    numpy_on_one_thread,
    output_option,
    print_json,
    reading,
    say,
    spinner,
    weighed,
    width,
)

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.fleet.schedule import Outcome
    from tare.records.model import Record
    from tare.records.store import Store
    from tare.report.figure import Figure
    from tare.report.following import Step


FORMATS = {"html": "report.html", "md": "report.md", "csv": "trials.csv", "parquet": "trials.parquet",
           "latex": "report.tex", "json": "report.json", "perfetto": "trace.json",
           "openmetrics": "tare.prom", "mlflow": "mlruns", "wandb": "wandb-runs"}  # fmt: skip
TRACKERS = ("mlflow", "wandb")  # these are folders
DRAWN = ("svg", "pdf", "png")
USUAL_MM = 162  # of a figure
_IN_COLUMNS = {"column": 1, "page": 2}  # of a paper of two columns


def _width(text: str) -> float | str:
    """Millimetres, or the name of a width.

    >>> _width("column"), _width("100mm")
    ('column', 100.0)
    """
    if text in _IN_COLUMNS:
        return text
    try:
        width_mm = float(text.removesuffix("mm"))
    except ValueError:
        width_mm = 0.0
    if not 40 <= width_mm <= 400:
        raise ValueError(f"{text!r} is neither 40 to 400 (millimetres) nor `column` or `page`")
    return width_mm


@click.command("report", cls=Verb)
@click.argument("store", type=STORE)
@output_option(
    "The file, - for stdout; else STORE/report.html (for a pack: next to it), or as the format is called.",
    click.Path(path_type=Path, allow_dash=True),
)
@click.option(
    "--format", "kind", type=click.Choice(list(FORMATS)),
    help="As the file's name ends, or html; md for a page; csv and parquet for the trials as a table; latex for the "
    "verdicts; json for all; perfetto for a trace that ui.perfetto.dev opens; openmetrics for "
    "node_exporter's textfiles; mlflow and wandb for a folder of theirs, with a run per trial.",
)  # fmt: skip
@click.option("--figures", is_flag=True, help="List the figures of the report.")
@click.option("--figure", metavar="NAME", help="Write only this figure, to the file of -o: .pdf, .svg or .png.")
@click.option(
    "--width", "wide", type=QuantityOption("width", _width), metavar="WIDTH",
    help="Of a figure: millimetres, or `column` (84) or `page` (174) of a paper of two columns; `page` also of the "
    "table of latex.  [default: 162]",
)  # fmt: skip
@comparing
@json_option
def command(
    store: Path, output: Path | None, kind: str | None, figures: bool, figure: str | None,
    wide: float | str | None, as_json: bool, **asked: Any,
) -> None:  # fmt: skip
    """Write the findings of STORE as one self-contained HTML file that opens offline, or as --format says.

    --json prints what --format json writes, or the list of --figures: {"figures": [{"name", "title",
    "reading"}]}.

    tare report out/my-study --figures

    tare report out/my-study --figure NAME -o figure.pdf
    """
    need(not (as_json and kind not in (None, "json")), "give either --json or --format, not both.")
    need(figure is None or output is not None, "--figure needs -o FILE.pdf, .svg or .png.")
    is_folder = output is not None and str(output) != "-" and output.is_dir()
    need(not is_folder or kind in TRACKERS, f"-o: {output} is a folder; name a file.")
    need(str(output) != "-" or kind not in TRACKERS, f"{kind} is a folder; name it with -o.")
    if kind in TRACKERS:
        from tare.report.other_tools import library

        library(kind)  # one that is missing is reported before anything is read
    from tare.records.schema import is_pack
    from tare.records.unpack import each_pack_once

    numpy_on_one_thread()
    with spinner("writing the report"), each_pack_once(), reading(store) as opened:
        if not figures and figure is None:
            kind = "json" if as_json else kind or _kind_of(output)
            # In the store's folder; of a pack, beside it under its name.
            its = store.with_name(f"{store.stem}-{FORMATS[kind]}") if is_pack(store) else store / FORMATS[kind]
            output = output or (Path("-") if as_json else its)
            _write(opened, kind, output, asked, 2 if wide == "page" else 1)
            found = None
        else:
            from tare.report.html import page

            content = page(weighed(opened, **asked), opened.records(), "", "", (), opened)
            found = {each.name: each for each in content.figures}
    if found is None:
        if str(output) != "-":
            say(f"report: {output}")
        return
    if not found:
        say(f"{store}: nothing to draw, since no trial has a figure yet; see `tare show {store}`.")
    if figure is None or output is None:
        _list(found, as_json)
        return
    from tare.report.figure import COLUMNS_MM

    if figure not in found:
        raise StudyError(f"{store}: {unknown_name('figure', figure, list(found))}")
    width_mm = COLUMNS_MM[_IN_COLUMNS[wide]] if isinstance(wide, str) else wide or USUAL_MM
    draw(found[figure], output, width_mm / 25.4 * 72)
    say(found[figure].reading)


def _list(figures: Mapping[str, Figure], as_json: bool) -> None:
    from tare.base.columns import cut

    if as_json:
        told = [{"name": each.name, "title": each.title, "reading": each.reading} for each in figures.values()]
        print_json({"figures": told})
    elif figures:
        wide = max(map(len, ["figure", *figures]))  # a name is never cut: it is what --figure takes
        click.echo(f"{'figure':{wide}}  shows")
        for each in figures.values():
            click.echo(f"{each.name:{wide}}  {cut(each.title, max(24, width() - wide - 2))}")


def need_drawable(output: Path | None) -> None:
    """Refuse a file that we cannot draw, before anything is read."""
    need(output is None or output.suffix[1:] in DRAWN, f"-o: a figure ends in .{', .'.join(DRAWN)}.")


def draw(figure: Figure, output: Path, width_points: float | None = None) -> None:
    """A figure into a file; its name says which kind."""
    from tare.report.figure import WIDTH_POINTS, as_file

    need_drawable(output)
    written(output, as_file(figure, output.suffix[1:], width_points or WIDTH_POINTS))
    say(f"{figure.title}: {output}")


def _write(store: Store, kind: str, output: Path, asked: Mapping[str, Any], columns: int) -> None:
    if kind == "parquet":
        from tare.report.export import write_parquet

        if str(output) == "-":
            raise StoreError("a Parquet file cannot go to stdout; name it with -o.")
        _in_one_step(output, lambda part: write_parquet(store.records(), part, store.study))
    elif kind == "csv":
        from tare.report.export import as_csv

        written(output, as_csv(store.records(), store.study).encode())
    elif kind in TRACKERS:
        from tare.report.other_tools import to_mlflow, to_wandb

        weighing = weighed(store, **asked)
        send = to_mlflow if kind == "mlflow" else to_wandb
        send(store, weighing, _text(store, weighing, "html"), output)
    else:
        from tare.records.model import is_usable

        if kind == "html" and any(map(is_usable, store.records())):  # else nothing is drawn
            from tare.report.figure import start_engine

            start_engine()  # while the comparison is made
        written(output, _text(store, weighed(store, **asked), kind, columns).encode())


def _kind_of(output: Path | None) -> str:
    """What a file's name asks for: report.md is Markdown."""
    ending = output.suffix.lstrip(".").lower() if output is not None else ""
    kind = {"": "html", "tex": "latex", "htm": "html", "prom": "openmetrics"}.get(ending, ending)
    need(
        kind in FORMATS,
        f"-o {output}: no report ends in .{ending}. Name one of: {', '.join(FORMATS)}; or give --format.",
    )
    return kind


def write_report(store: Store, weighing: Weighing, output: Path) -> None:
    """The HTML file."""
    written(output, _text(store, weighing, "html").encode())


def written(output: Path, content: bytes) -> None:
    """Into this file; `-` is stdout."""
    if str(output) == "-":
        click.echo(content, nl=False)
    else:
        _in_one_step(output, lambda part: part.write_bytes(content))


def _in_one_step(output: Path, write: Callable[[Path], object]) -> None:
    """A full disk leaves the old file, not half of a new one."""
    part = output.with_name(output.name + ".part")
    try:
        write(part)
        part.replace(output)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StoreError(f"{output}: it could not be written: {error.strerror}.") from None


def _text(store: Store, weighing: Weighing, kind: str, columns: int = 1) -> str:
    from tare.report.export import as_latex, as_markdown
    from tare.report.html import page, render
    from tare.report.other_tools import Numbers, as_openmetrics, as_perfetto

    now = datetime.now(UTC).isoformat(timespec="seconds")
    if kind == "html":
        return render(
            weighing, store.records(), now,
            study_text=store.text(), problems=store.problems, store=store,
        )  # fmt: skip
    if kind == "json":
        told = {"schema_version": JSON_VERSION, "generated_utc": now, "study_text": store.text()}
        told |= {"problems": list(store.problems), **asdict(weighing)}
        told["records"] = [record.as_json() for record in store.records()]
        return json.dumps(told, indent=1, allow_nan=False, default=str) + "\n"
    if kind == "perfetto":
        return as_perfetto(store)
    if kind == "openmetrics":
        states = {state: count for state, count in weighing.counts.items() if state != "planned"}
        return as_openmetrics([Numbers(weighing.study, states, len(store.states()), weighing)])
    content = page(weighing, store.records(), now, store.text(), store.problems, store)
    return as_markdown(content) if kind == "md" else as_latex(content, columns)


# What is printed when a run has ended: the verdict, where the report lies, what failed, and what to do next.

REPORT = "report.html"
NEEDS_ENERGY = ("show energy", "choose front")  # verbs that have nothing to say of a store whose trials have none


def finish(folder: Path, outcome: Outcome, as_json: bool, again: str, *, retried: bool = False) -> None:
    """Say what came of it: the verdict, the report, and how to go on."""
    from tare.base.text import count_text
    from tare.records.model import USABLE
    from tare.trial.undo.restoration import refuse_pending

    with reading(folder) as store:
        study = store.study
        weighing = weighed(store)
        write_report(store, weighing, folder / REPORT)
        failed = [trial for trial, state in store.states().items() if state in ("failed", "timeout", "oom")]
        unusable = unusable_cells(store.records())
        traced = all(record.traced for record in store.records() if record.state in USABLE)
        metered = any(Role.ENERGY.metric in record.compared for record in store.records() if record.state in USABLE)
        steps = [] if outcome.interrupted or weighing.never_ran else steps_of(store, weighing)
    _tell(endings(study, folder, metered), study, folder, weighing, outcome, as_json, steps)
    say(f"{outcome.why}.")
    if outcome.interrupted:
        going_on = f"{again} --retry-failed" if retried else again
        if outcome.left or outcome.at_most_more:
            say(f"{left_text(outcome)}; `{going_on}` resumes.")
        elif outcome.skipped:
            what = count_text(outcome.skipped, "trial")
            say(f"{what} skipped, and none left; `{again} --retry-failed` tries again what did not run.")
        refuse_pending()
        say("The device is as it was found.")
        raise SystemExit(130)
    if weighing.never_ran:
        skipped = f"{count_text(outcome.skipped, 'trial')} skipped. " if outcome.skipped else ""
        say(f"{skipped}See `tare show {folder}`; `{again} --retry-failed` tries again what never ran.")
        raise SystemExit(1)
    if failed:
        what = count_text(len(failed), "trial")
        say(f"{what} failed: see `tare show {folder}`; `{again} --retry-failed` repeats them.")
        raise SystemExit(1)
    if traced and not unusable and outcome.done:
        say(f"every trial was traced, so no times are compared; see `tare show {folder} kernel`.")
        return
    nothing = weighing.comparisons and all(each.ours is None or each.theirs is None for each in weighing.comparisons)
    if not nothing and not unusable:
        # A verdict stands on the trials that could be used: how many could not is the last word, not a failure.
        if invalid := weighing.counts.get("invalid", 0):
            trials = count_text(weighing.counts["planned"], "trial")
            say(
                f"{invalid} of {trials} excluded as invalid: see `tare show {folder}`; "
                f"`{again} --retry-failed` repeats them."
            )
        return
    if nothing and any(each.code == "figure.beyond-rates" for left in weighing.left_out for each in left.reasons):
        say(
            "in too many blocks of a side the goal is met, or missed, at all of its rates, so nothing is compared.\n"
            "The same `tare weigh --slo` with another folder (-o) searches for the rates anew: best while little else "
            "runs here, and with a higher workload.count. A study of your own must list rates on both sides of it."
        )
        raise SystemExit(1)
    if nothing:
        say("at least one side has no usable trial, so nothing was compared; the reasons are above.")
    else:
        say(f"{count_text(unusable, 'cell')} without a usable trial: see `tare show {folder}`.")
    say(f"Once the disturbance is gone, `{again} --retry-failed` repeats them.")
    raise SystemExit(1)


def left_text(outcome: Outcome) -> str:
    """What a run that goes on will say it has to run, and what its stop rule may add."""
    from tare.base.text import count_text

    left = f"{count_text(outcome.left, 'trial')} left"
    return f"{left}, and at most {outcome.at_most_more} more by the stop rule" if outcome.at_most_more else left


def _tell(
    following: Sequence[str], study: Mapping[str, Any], folder: Path, weighing: Weighing, outcome: Outcome,
    as_json: bool, steps: Sequence[Step],
) -> None:  # fmt: skip
    """The verdict, where the report lies, and what else the study is good for."""
    from tare.analysis.answer import weighing_json

    report = folder / REPORT
    if as_json:
        told: dict[str, Any] = {
            "store": str(folder),
            "report": str(report),
            "ended": outcome.why,
            **weighing_json(weighing),
        }
        if weighing.never_ran:
            told["never_ran"] = [ruling.as_json() for ruling in weighing.never_ran]
        print_json({**told, "not_measured": study.get("left_out", []), "next": following})
        return
    click.echo(answer_text(weighing, steps, verbose=False, more=f"tare compare -v {shlex.quote(str(folder))}"))
    click.echo(f"report: {report}")
    for line in following:
        click.echo(f"next:   {line}")


def answer_text(weighing: Weighing, steps: Sequence[Step], *, verbose: bool, more: str) -> str:
    """The answer on a terminal, what to do next, and the command that tells the rest."""
    from tare.report.following import pressing
    from tare.report.text.verdict import verdict_text

    told = verdict_text(weighing, width(), color(), verbose=verbose)
    next_steps = steps_text(steps if verbose else pressing(steps), width())
    return "\n".join(filter(None, (told, next_steps, "" if verbose else f"more:   {more}")))


def steps_of(store: Store, weighing: Weighing) -> list[Step]:
    """What to do with the answer that a store gives."""
    from tare.report.following import Source, next_steps

    return next_steps(weighing, Source.of(store, store.records(), shlex.quote(str(store.path))))


def steps_text(steps: Sequence[Step], columns: int) -> str:
    """Each sentence, wrapped, and its command on a line of its own, which is never wrapped: it is to be copied."""
    from tare.base.columns import wrap

    lines = []
    for step in steps:
        lines += wrap(f"{step.why}:" if step.command else step.why, columns)
        lines += [f"  {step.command}"] if step.command else []
    return "\n".join(lines)


def unusable_cells(records: Iterable[Record]) -> int:
    """How many cells were measured, and have no trial that may be believed."""
    from tare.records.model import USABLE

    usable: dict[str, bool] = {}
    for record in records:
        cell = json.dumps(record.settings, sort_keys=True)
        usable[cell] = usable.get(cell, False) or record.state in USABLE
    return sum(not found for found in usable.values())


def endings(study: Mapping[str, Any], folder: Path, metered: bool = True) -> list[str]:
    """The commands that make the tables and figures of a study out of its store; `metered`: it has energy."""
    parted = [re.fullmatch(r"([^-]*?)( -.*)?", renewed(ending)) for ending in study.get("ends_in", ())]
    verbs = [(found[1], found[2] or "") for found in parted if found]
    return [
        f"tare {_with_store(verb, shlex.quote(str(folder)))}{rest}"
        for verb, rest in verbs
        if metered or not ("energy" in rest or (verb in NEEDS_ENERGY and "--minimise" not in rest))
    ]


def _with_store(verb: str, store: str) -> str:
    """`show energy` and a store: `show STORE energy`."""
    first, _, topic = verb.partition(" ")
    return f"show {store} {topic}" if first == "show" and topic else f"{verb} {store}"

"""One trial, from the first knob to the sealed record: the page that everyone should be able to read."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from tare import __version__
from tare.base import untrusted
from tare.base.errors import TareError, TrialError
from tare.base.host import (
    Host,
    InnerHost,
    Job,
    LocalHost,
    OwnDevice,
    RemoteDevice,
    Site,
    clock_inside,
    facts_of,
    shares_workdir,
)
from tare.base.rulings import Ruling
from tare.base.secrets import Scrubber, collecting, masked_env, revealed, shown_env
from tare.drivers.places import own_variables
from tare.drivers.surroundings import installed, surroundings
from tare.figures.energy import energy_of_trial
from tare.figures.evidence import THRESHOLDS
from tare.figures.rederive import figures
from tare.figures.series import declared_metrics
from tare.figures.steps import ACTIVITY_FACT, facts_of_steps, steps_in
from tare.parts.protocols import Mark, Platform, Probe, TenantPlace
from tare.plan.matrix import PlannedTenant, Trial
from tare.plan.turning import CHOOSES_CORES, HELD_AT, HOLDS, LISTENS_ON, OTHER_THREADS
from tare.records.model import Record
from tare.records.seal import Writer
from tare.records.spool import read_channels, read_spool
from tare.records.store import Store
from tare.trial import claims
from tare.trial.alone import Alone, seen_alone
from tare.trial.conditions import cooled, guarded_from_heat, refuse_another
from tare.trial.facts import device_facts
from tare.trial.outside import begun_earlier
from tare.trial.sampler import Sampler, Sampling
from tare.trial.state import NOT_COMPARED, TrialState, make_tables, recorders_of
from tare.trial.tenants import (
    Tail,
    Tenant,
    heard_by,
    prepare_workdir,
    read_json,
    remove_folders,
    renamed,
    run_together,
)
from tare.trial.undo.journal import Journal
from tare.trial.undo.knob import hold_controls, settle_controls
from tare.trial.upkeep import UpkeepMeter
from tare.trial.verdict import judge
from tare_inside.activity import FILE as ACTIVITY_FILE
from tare_inside.fingerprint import MODULES, SOFTWARE
from tare_inside.launch import LEFT, SOURCES, TOUCHED
from tare_inside.programs.cold_epochs import SAID as COLD_EPOCHS
from tare_inside.serve import SERVED
from tare_inside.stacks import LEFT as STACKS

NO_PYTHON = Ruling(
    "image.no-python",
    "note",
    "workload",
    "the image has no Python, so that the command is timed from outside: starting it in the container is in its time.",
)
SHARED_FILES = Ruling(
    "files.shared",
    "note",
    "workload",
    "what the command wrote on bare metal stayed on the device, so that later trials find it: layers over the files "
    "need root, and its folder is too large to be copied.",
)
NO_RESULT = Ruling(
    "workdir.no-result",
    "invalid",
    "workload",
    "the workload ended with code 0, and what counts its time left no result.json in the work folder: it was removed, "
    "or damaged. Nothing is known of how long it took.",
)
AS_ROOT = Ruling(
    "container.root",
    "note",
    "workload",
    "the workload was root in its container, as tare was on the device: `user: caller` or `user: 1000` in the "
    "platform's fields runs it as another user.",
)
_MOMENTS = ("start_ns", "end_ns")
_FACTS_LEFT = {
    "attach": claims.ATTACH, ACTIVITY_FACT: ACTIVITY_FILE, "served": SERVED, "cold_epochs": COLD_EPOCHS,
    "stacks": STACKS, "touched": TOUCHED,
}  # fmt: skip
_MUCH_OUTPUT = 64 << 10  # characters: less is not worth a fact


def in_device_time(marks: Iterable[Mark], place: Host) -> list[Mark]:
    """The marks in device time; where the place has the device's own clock, as they are."""
    clock = clock_inside(place)
    if clock is None:
        return list(marks)
    return [mark._replace(t_ns=clock.to_device_ns(mark.t_ns)) for mark in marks]


def result_in_device_time(result: Mapping[str, Any], place: Host) -> dict[str, Any]:
    """What the launcher counted, with its begin and end in device time."""
    clock = clock_inside(place)
    moved = {} if clock is None else {key: clock.to_device_ns(result[key]) for key in _MOMENTS if key in result}
    return {**result, **moved}


def place_facts(place: Host) -> dict[str, Any]:
    """What a place says of itself, with its clock's offset, drift and bound where it has one of its own."""
    clock = clock_inside(place)
    return {**facts_of(place), **({} if clock is None else {"clock": clock.facts()})}


Software: TypeAlias = dict[str, tuple[dict[str, Any], dict[str, Any]]]
"""What earlier trials found of the software, and how the files were that decide it, by what ran where."""


@dataclass(frozen=True)
class Bench:
    """Where trials are run: the device, its journal, and the store that keeps what is seen."""

    host: Host
    store: Store
    journal: Journal
    scratch: Path
    period_s: float = 0.1
    sampler: Callable[[Sequence[Probe], Path, float], Sampling] | None = None  # ours by default
    heard: Callable[[Trial, bytes], None] | None = None  # who hears what trials print
    software: Software = field(default_factory=dict, compare=False)
    design: Mapping[str, Any] = field(default_factory=dict)  # how the trials of a block share the time, and why


def run_trial(trial: Trial, bench: Bench) -> Record:
    """Run one trial; whatever happens, everything it opened is closed and the record is sealed.

    Whether the device really is as it was found is not for this function to say: what could not be put back is
    pending in the journal, and whoever runs trials looks there (`fleet.ownership`).
    """
    run = TrialRun(trial, bench)
    state = run.state
    try:
        with ExitStack() as stack:
            opened = run.open(stack)
            heard = None if bench.heard is None else partial(bench.heard, trial)
            tail = Tail(opened.measured.workdir, heard, state.scrubber.text)
            guarding = guarded_from_heat(bench.host, trial.cell.probes, state.facts)
            alone = trial.rehearses is not None and shares_workdir(opened.measured.place)
            seeing = seen_alone(bench.host, opened.measured, stack) if alone else nullcontext(Alone())
            with state.timed("run"), state.heartbeat(), guarding as guard, heard_by(tail), seeing as seen:
                run_together(opened.tenants, trial.limit_s, bench.host.clock, guard)
            run.collect(opened)
            if trial.rehearses is not None:
                state.facts |= {
                    HOLDS: seen.holds, HELD_AT: seen.held_at, OTHER_THREADS: seen.others(),
                    CHOOSES_CORES: seen.chooses_cores, LISTENS_ON: seen.listens_on,
                }  # fmt: skip
        _decode(trial, run.writer, state)
    except Exception as error:  # a part may raise anything; one trial is lost, not the night
        run.failed(error)
    except BaseException:
        state.interrupted = True
        raise
    finally:
        record = run.seal()
    return record


@dataclass(frozen=True)
class Opened:
    """A trial that stands ready: its places are open, and its sampler watches them."""

    tenants: list[Tenant]
    sampler: Sampling
    upkeep: UpkeepMeter | None = None  # None: the device is not this machine

    @property
    def measured(self) -> Tenant:
        return self.tenants[0]


class TrialRun:
    """One trial from its draft to its sealed record, in pieces: run one after another, or several in turns."""

    def __init__(self, trial: Trial, bench: Bench) -> None:
        self.trial, self.bench = trial, bench
        self.state = state = TrialState(bench.host.clock)
        if trial.rehearses is not None:
            state.facts["role"] = "rehearsal"  # its id says so too, and that is what readers go by
        elif bench.design:
            state.facts["design"] = dict(bench.design)
        state.scrubber = _secrets(trial)
        self._draft = _draft(trial, state)
        self.writer = bench.store.begin(self._draft)
        self.name = f"tare-{trial.id[:8]}-{self.writer.attempt}-{state.start_ns:x}"

    def open(self, stack: ExitStack, held: Mapping[str, Any] | None = None) -> Opened:
        """All that is opened, as a list; the stack closes it in reverse, also after a failure.

        `held`: the controls as another trial of the same block holds them already.
        """
        trial, bench, state, writer = self.trial, self.bench, self.state, self.writer
        host, everyone = bench.host, trial.cell.everyone()
        with state.timed("prepare"):
            state.facts["device"] = device_facts(host)
            state.facts |= {"beside": beside} if (beside := trial.cell.beside()) else {}
            for planned in everyone:
                planned.workload.prepare(host)
            kept = bench.store.root / "outputs" / f"{trial.id}.{writer.attempt}"
            homes = [
                _make_site(planned, bench, home(self.name, index), home(str(kept), index), stack, state)
                for index, planned in enumerate(everyone)
            ]
            workdir = str(homes[0][0])  # where its marks can be read while it runs
            writer.keep(
                replace(_draft(trial, state), facts={**state.facts, "desk": workdir})
            )  # for whoever finds it cut off
            inputs = tuple(path for planned in everyone for path in planned.workload.inputs())
            probes = [probe.aimed(inputs) for probe in trial.cell.probes]
            sampler = stack.enter_context((bench.sampler or Sampler)(probes, writer.spool, bench.period_s))
            controls = trial.cell.controls if held is None else ()
            state.facts["controls"] = held or hold_controls(stack, host, controls, inputs, bench.journal)
        tenants = [
            _place_tenant(
                planned,
                workdir,
                _open_platforms(stack, host, planned.platforms, site, state),
                trial.seed + index,
                host,
                measured=index == 0,
            )
            for index, (planned, (workdir, site)) in enumerate(zip(everyone, homes, strict=True))
        ]
        state.scrubber = _secrets(trial, [tenant.job for tenant in tenants])
        measured, *state.neighbours = tenants
        if known := bench.software.get(_software_key(trial, measured)):
            untrusted.make(measured.workdir, SOURCES, "\n".join(known[1]).encode("utf-8", "replace"), 0o644)
        refuse_another(trial.settings, facts_of(measured.place), bench.store.records())
        with state.timed("settle"):
            places = [TenantPlace(tenant.place, tenant.workdir, tenant.workload.inputs()) for tenant in tenants]
            state.facts["settled"] = settle_controls(host, controls, places)
        with state.timed("cool"):
            state.facts |= cooled(host, trial.cell.probes, bench.store.records())
        with state.timed("sampler"):
            sampler.begin(measured.place.scope(), [tenant.place.scope() for tenant in state.neighbours])
        places_here = [tenant.place for tenant in tenants] if isinstance(host, OwnDevice) else None
        return Opened(tenants, sampler, None if places_here is None else UpkeepMeter(places_here))

    def collect(self, opened: Opened) -> None:
        """The last tick, and what the workloads left; the places are still open."""
        state, measured = self.state, opened.measured
        for tenant in opened.tenants:
            if tenant.exit is not None:
                out, err = state.scrubber.text(tenant.exit.out), state.scrubber.text(tenant.exit.err)
                tenant.exit = replace(tenant.exit, out=out, err=err)
        if opened.upkeep is not None:
            state.upkeep = opened.upkeep.used()
            state.facts["upkeep"] = state.upkeep._asdict()
        with state.timed("sampler"):
            state.sampler = opened.sampler.end()
        _collect(opened.tenants, self.writer.spool, state)
        pid = measured.place.scope().pid
        if os.environ.get(MODULES) and opened.upkeep is not None and not measured.place.python and pid is not None:
            # Of what keeps its container open: a static program says nothing of what is around it.
            state.facts.setdefault("around", {**surroundings(LocalHost(), pid), **installed(pid)})
        with state.timed("fingerprint"):
            state.facts["inside"] = _fingerprint(self.trial, measured, self.bench.software, state)
            state.facts["variables"] = _variables(measured, state.facts["inside"])

    def failed(self, error: Exception) -> None:
        """Note what ended it."""
        if isinstance(error, TareError):
            self.state.error = error
            return
        self.state.error = TrialError(f"{type(error).__name__}: {error}")
        self.state.facts["traceback"] = "".join(traceback.format_exception(error, limit=-8))

    def seal(self) -> Record:
        """Judge it, and seal what was seen of it."""
        state = self.state
        try:
            concluded = _conclude(self.trial, state, self._draft)
        except Exception as error:  # of what the workload left, or ours: one trial is lost, not the night
            self.failed(error)
            concluded = _without_figures(state, self._draft)
        record = _scrubbed(replace(concluded, attempt=self.writer.attempt), state.scrubber)
        out, err = (state.exit.out, state.exit.err) if state.exit else ("", "")
        beside = [mark for index, tenant in enumerate(state.neighbours, 1) for mark in renamed(tenant.marks, index)]
        self.writer.seal(record, [*state.marks, *beside], out, err, lost_marks=state.lost_marks)
        return record


def _secrets(trial: Trial, jobs: Iterable[Job] = ()) -> Scrubber:
    """What masks the secrets of this trial's study, and those in our own environment, wherever they turn up.

    `jobs`: those that the trial starts, which may have a secret of another side's image.
    """
    with collecting() as seen:
        for env in (os.environ, *(job.env for job in jobs)):
            masked_env(env)
        for planned in trial.cell.everyone():
            for part in (planned.workload, *planned.platforms):
                part.fields()
    return Scrubber(seen)


def _scrubbed(record: Record, scrubber: Scrubber) -> Record:
    """The record without secrets: what a part raised or a program reported goes into sentences and facts."""
    reasons, notes = (
        tuple(replace(each, sentence=scrubber.text(each.sentence)) for each in rulings)
        for rulings in (record.reasons, record.notes)
    )
    return replace(record, reasons=reasons, notes=notes, facts=scrubber.data(record.facts))


def _decode(trial: Trial, writer: Writer, state: TrialState) -> None:
    """What recorders wrote becomes tables and figures; the device is as it was found by now."""
    if recorders := recorders_of(trial.cell.probes):
        steps = steps_in(state.marks, state.facts)
        with state.timed("decode"):
            traced = make_tables(recorders, writer.raw, writer.tables, None if steps is None else len(steps.numbers))
        state.facts["traced"] = {
            "probes": traced.probes,
            "rows": traced.rows,
            "trouble": [each.as_json() for each in traced.trouble],
        }
        state.traced = traced.figures
        state.notes += [NOT_COMPARED, *traced.trouble]


def _place_tenant(
    planned: PlannedTenant, workdir: Path, place: Host, seed: int, host: Host, *, measured: bool
) -> Tenant:
    options = planned.platforms[-1].options() if planned.platforms and measured else {}  # of its command alone
    job = (planned.workload.with_options(options) if options else planned.workload).job(place, workdir, seed)
    driver = planned.workload.driver(place, workdir, seed)
    own = planned.platforms[-1].variables() if planned.platforms else {}
    if "TARE_ULIMITS" in own and not place.python:
        raise TrialError("`ulimits` are set by tare's launcher, which needs a Python in the image: there is none.")
    if own:
        own = {name: _as_it_is(name, value) for name, value in own.items()}
        unset = [word for name, value in own.items() if value is None for word in ("-u", name)]
        env = {name: value for name, value in {**job.env, **own}.items() if value is not None}
        job = replace(job, argv=(("env", *unset, *job.argv) if unset else job.argv), env=env)
    if MODULES in os.environ:
        job = replace(job, env={**job.env, MODULES: "1"})
    return Tenant(planned.workload, place, workdir, job, drive=None if driver is None else partial(host.spawn, driver))


def _as_it_is(name: str, value: str | None) -> str | None:
    """A variable of a side; one that is set as on another side may stand there as a digest."""
    known = None if value is None else revealed(value)
    if value is not None and known is None:
        raise TrialError(f"the value of {name} is kept as a digest, and this run has not seen the value itself.")
    return known


def _make_site(
    planned: PlannedTenant, bench: Bench, name: str, kept: str, stack: ExitStack, state: TrialState
) -> tuple[Path, Site]:
    """Folders of the trial's own, noted in the journal before anything exists under this name."""
    noted = [
        bench.journal.note_site(platform.part_name(), site_name_at(name, depth))
        for depth, platform in enumerate(planned.platforms)
    ]
    stack.callback(_leave_site, name, noted, bench, state)
    scratch = bench.scratch / name
    scratch.mkdir(mode=0o700, parents=True)
    workdir = prepare_workdir(name, scratch)
    work = planned.workload
    site = Site(
        name=name,
        scratch=scratch,
        reads=work.inputs(),
        writes=(workdir, *work.outputs()),
        layered=work.layered,
        saves=work.saves(),
        folder=work.folder(),
        keep=Path(kept) if work.keeps_outputs() else None,
    )
    if isinstance(bench.host, RemoteDevice):
        bench.host.prepare_workdir(site)
    return workdir, site


def home(name: str, tenant: int) -> str:
    """The site name of a tenant: the measured workload has the trial's own."""
    return name if tenant == 0 else f"{name}-t{tenant}"


def _leave_site(name: str, noted: list[int], bench: Bench, state: TrialState) -> None:
    """Remove the folders and forget the name; what is not closed stays in the journal for `tare device restore`."""
    if state.unclosed:
        return
    remove_folders(name, bench.scratch)
    for seq in noted:
        bench.journal.retire(seq, "removed")


def _open_platforms(
    stack: ExitStack, host: Host, platforms: tuple[Platform, ...], site: Site, state: TrialState
) -> Host:
    """Each platform turns the host into the one inside it; the last one is where the workload runs."""
    place = host
    for depth, platform in enumerate(platforms):
        with state.timed("open"):
            place = platform.open(place, replace(site, name=site_name_at(site.name, depth)))
        stack.callback(_close, place, state)
    return place


def site_name_at(name: str, depth: int) -> str:
    """The site name of a platform in a stack: what two of them make must not meet under one name."""
    return name if depth == 0 else f"{name}-{depth}"


def _close(place: Host, state: TrialState) -> None:
    state.unclosed += 1
    with state.timed("close"):
        place.close()
    state.unclosed -= 1
    if isinstance(place, InnerHost):
        state.add_phases(place.phases)


def _fingerprint(trial: Trial, measured: Tenant, software: Software, state: TrialState) -> dict[str, Any]:
    """The software that the job ran with: as the job itself said, when torch was in it; else asked for in its stead.

    It is not asked for again where an earlier trial ran in the same way and the launcher saw every file that decides
    the answer as it was then. What else is around the job the launcher reads each time.
    """
    place, job = measured.place, measured.job
    if reported := claims.read(measured, claims.FINGERPRINT, state.claims):
        return _held_to_files(reported, measured, software, _software_key(trial, measured), state)
    if not place.python:
        return {}
    key = _software_key(trial, measured)
    if known := software.get(key):
        seen = claims.read(measured, LEFT, state.claims)
        if seen.pop("sources", None) == [*known[1].values()]:
            return {**known[0], **{name: value for name, value in seen.items() if value}}
    reported = _listed(measured)
    sources = reported.pop("sources", None)
    # Not where `env -u` goes before the launcher: what is asked here has variables that the job does not have. And not
    # what something else printed, which does not know the interpreter that ran.
    own = isinstance(sources, dict) and sources.get(place.python)
    if own and shares_workdir(place) and job.argv[0] == place.python:
        software[key] = {name: reported[name] for name in SOFTWARE if name in reported}, sources
    return reported


def _listed(measured: Tenant) -> dict[str, Any]:
    """The software that lies where the job ran, as an interpreter of the place's own finds it."""
    place, job = measured.place, measured.job
    script = measured.workdir / "inside" / "tare_inside" / "fingerprint.py"
    return read_json(place.spawn(Job((place.python, str(script)), job.env, job.cwd)).wait(60).out)


def _held_to_files(
    reported: dict[str, Any], measured: Tenant, software: Software, key: str, state: TrialState
) -> dict[str, Any]:
    """What the job itself said of its software, with what lies there in place of what it says otherwise.

    Where it ran with another interpreter than the place's, that is its own statement.
    """
    if "software" in measured.workload.reports:
        return reported
    if not measured.place.python or reported.get("python", {}).get("executable") != measured.place.python:
        state.notes.append(claims.OWN_STATEMENT)
        return reported
    if (listed := f"stated {key}") not in software:
        software[listed] = _listed(measured), {}
    found, _ = software[listed]
    differing = claims.otherwise(reported, found)
    if differing:
        state.notes.append(claims.other_software(differing))
    return {**reported, **{name: found[name] for name in differing}}


def _variables(measured: Tenant, inside: Mapping[str, Any]) -> dict[str, str]:
    """All variables of the job, none that tells a secret: those that it was given, and what it found of them."""
    job = measured.job
    taken = {after for before, after in pairwise(job.argv) if before == "-u"} if job.argv[0] == "env" else set()
    found = {name: value for name, value in (inside.get("env") or {}).items() if name not in taken}
    return shown_env(own_variables({**job.env, **found}, measured.workdir))


def _software_key(trial: Trial, measured: Tenant) -> str:
    """What must be the same for two trials to run with the same software, beside the files."""
    place, job, own = measured.place, measured.job, str(measured.workdir)
    platforms = [(each.part_name(), each.fields()) for each in trial.cell.platforms]
    workload = measured.workload.part_name(), measured.workload.fields()
    image = facts_of(place).get("image_id")
    return repr((platforms, workload, image, place.python, sorted(job.env.items()), job.cwd)).replace(own, "")


def _collect(tenants: list[Tenant], spool: Path, state: TrialState) -> None:
    """Read what the workloads left in their workdirs, before the workdirs go."""
    for tenant in tenants:
        tenant.result = result_in_device_time(claims.read(tenant, claims.RESULT, state.claims), tenant.place)
        if not tenant.place.python and tenant.exit is not None:
            tenant.result = {"wall_s": tenant.exit.seconds, "exit": tenant.exit.code, **tenant.exit.counted}
            state.notes += [] if tenant.exit.counted else [NO_PYTHON]
        elif tenant.exit is not None and tenant.exit.code == 0 and "wall_s" not in tenant.result and not state.claims:
            state.claims.append(NO_RESULT)
        tenant.outcome = claims.outcome_of(tenant, state.claims)
        marks, lost = claims.marks_of(tenant, state.claims)
        tenant.marks, state.lost_marks = in_device_time(marks, tenant.place), state.lost_marks + lost
    measured, *beside = tenants
    state.exit, state.died = measured.exit, measured.died
    if measured.exit is not None and (printed := len(measured.exit.out) + len(measured.exit.err)) > _MUCH_OUTPUT:
        state.facts["output"] = {"bytes": printed}  # as far as it was kept
    state.facts["place"] = place_facts(measured.place)
    if around := state.facts["place"].pop("around", None):  # less than a fingerprint, and not to be compared with one
        state.facts["around"] = around
    state.facts |= measured.workload.facts()
    state.notes += [SHARED_FILES] if state.facts["place"].get("files") == "shared" else []
    state.notes += [AS_ROOT] if state.facts["place"].get("user") == 0 else []
    state.claims += claims.programs_changed(tenants)
    for fact, name in _FACTS_LEFT.items():
        if reported := claims.read(measured, name, state.claims):
            state.facts[fact] = reported
    state.result, state.outcome, state.marks = measured.result, measured.outcome, measured.marks
    if measured.outside is not None and not beside:
        start_ns = state.result.get("start_ns", measured.outside["end_ns"])
        judges = not measured.workload.reports  # a program of tare's marks what it does: an open loop waits beside it
        state.facts["outside"] = {**begun_earlier(measured.outside, start_ns), "judges": judges}
    state.series, state.channels = read_spool(spool), read_channels(spool)
    state.readings = {channel: list(values) for channel, (_, values) in state.series.items()}
    state.facts |= {"counted": state.result} | ({"counted_beside": [each.result for each in beside]} if beside else {})


def _draft(trial: Trial, state: TrialState) -> Record:
    return Record(
        trial=trial.id,
        attempt=0,
        study=trial.study,
        block=trial.block,
        position=trial.position,
        twin=trial.twin,
        settings=dict(trial.settings),
        state="running",
        started_utc=datetime.now(UTC).isoformat(timespec="milliseconds"),
        start_ns=state.start_ns,
        tare_version=__version__,
    )


def _without_figures(state: TrialState, draft: Record) -> Record:
    """A trial that could not be judged; without `place` in its facts readers know that it has no figures."""
    assert state.error is not None
    facts = {name: value for name, value in state.facts.items() if name != "place"}
    reasons, notes = (state.error.ruling(),), tuple(state.notes)
    return replace(draft, state="failed", reasons=reasons, notes=notes, phases=state.phases, facts=facts,
                   end_ns=state.clock.now_ns())  # fmt: skip


def _conclude(trial: Trial, state: TrialState, draft: Record) -> Record:
    """What was asked and what was seen, judged and put together."""
    steps = steps_in(state.marks, state.facts)
    if (slept_s := state.slept_s) > THRESHOLDS.sleep_s:
        state.facts["slept_s"] = slept_s
    if (energy := energy_of_trial(trial.settings, state, steps)) is not None:
        state.facts |= {"energy": energy.facts} if energy.facts else {}  # before the verdict, whose rules read it
    verdict = judge(trial, state, steps)
    title = trial.cell.workload.title()
    metrics = figures(state, steps, energy)
    declared = declared_metrics(state.channels, trial.cell.workload.METRICS)
    state.facts |= facts_of_steps(steps, state.facts)
    facts = {**state.facts, "title": title, "outcome": state.outcome, "thresholds": THRESHOLDS.as_json()}
    if state.sampler is not None:
        facts["sampler"] = state.sampler.as_json()
    return replace(
        draft,
        state=verdict.state,
        reasons=verdict.reasons,
        notes=(*verdict.notes, *state.notes),
        metrics=metrics,
        declared={name: each.as_json() for name, each in declared.items() if name in metrics},
        phases=state.phases,
        facts=facts,
        end_ns=state.clock.now_ns(),
    )

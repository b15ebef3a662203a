"""One trial, from the first knob to the sealed record: the page that everyone should be able to read."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tare import __version__
from tare.errors import TareError, TrialError
from tare.host import Host, Job, Site
from tare.parts.protocols import Mark, Platform, Probe, Room
from tare.plan.model import Tenant, Trial
from tare.records.model import Record
from tare.records.spool import read_channels, read_spool
from tare.records.store import Store
from tare.records.writer import Writer
from tare.trial.desk import make_desk, read_json, read_json_file, remove_folders
from tare.trial.energy import energy_of_trial
from tare.trial.facts import device_facts
from tare.trial.figures import figures
from tare.trial.inside_time import in_device_time, place_facts, result_in_device_time
from tare.trial.journal import Journal
from tare.trial.preparation import hold_controls, settle_controls
from tare.trial.same_image import refuse_another
from tare.trial.sampler import Sampler, Sampling
from tare.trial.seen import Seen
from tare.trial.summary import steps_from
from tare.trial.tenants import Lodger, renamed, run_together
from tare.trial.thresholds import THRESHOLDS
from tare.trial.tracing import NOT_COMPARED, make_tables, recorders_of
from tare.trial.verdict import judge
from tare.trial.warmth import cooled, guarded_from_heat
from tare_inside.cold_epochs import SAID as COLD_EPOCHS
from tare_inside.marks import load as load_marks


@dataclass(frozen=True)
class Bench:
    """Where trials are run: the device, its journal, and the store that keeps what is seen."""

    host: Host
    store: Store
    journal: Journal
    scratch: Path
    period_s: float = 0.1
    sampler: Callable[[Sequence[Probe], Path, float], Sampling] | None = None  # ours by default


def run_trial(trial: Trial, bench: Bench) -> Record:
    """Run one trial; whatever happens, everything it opened is closed and the record is sealed.

    Whether the device really is as it was found is not for this function to say: what could not be put back is
    pending in the journal, and whoever runs trials looks there (`fleet.local`).
    """
    seen = Seen(bench.host.clock)
    draft = _draft(trial, seen)
    writer = bench.store.begin(draft)
    name = f"tare-{trial.id[:8]}-{writer.attempt}-{seen.start_ns:x}"
    try:
        with ExitStack() as stack:
            _observe(trial, bench, name, writer, stack, seen)
        _decode(trial, writer, seen)
    except TareError as error:
        seen.error = error
    except Exception as error:  # a part may raise anything; one trial is lost, not the night
        seen.error = TrialError(f"{type(error).__name__}: {error}")
        seen.facts["traceback"] = traceback.format_exc(limit=-8)
    except BaseException:
        seen.interrupted = True
        raise
    finally:
        record = replace(_conclude(trial, seen, draft), attempt=writer.attempt)
        out, err = (seen.exit.out, seen.exit.err) if seen.exit else ("", "")
        beside = [mark for index, lodger in enumerate(seen.neighbours, 1) for mark in renamed(lodger.marks, index)]
        writer.seal(record, [*seen.marks, *beside], out, err, lost_marks=seen.lost_marks)
    return record


def _observe(trial: Trial, bench: Bench, name: str, writer: Writer, stack: ExitStack, seen: Seen) -> None:
    """The trial itself, as a list of what is opened; the stack closes it in reverse, also after a failure."""
    host, everyone = bench.host, trial.cell.everyone()
    with seen.timed("prepare"):
        seen.facts["device"] = device_facts(host)
        seen.facts |= {"beside": beside} if (beside := trial.cell.beside()) else {}
        for tenant in everyone:
            tenant.workload.prepare(host)
        homes = [_make_site(tenant, bench, home(name, index), stack, seen) for index, tenant in enumerate(everyone)]
        desk = str(homes[0][0])  # where its marks can be read while it runs
        writer.keep(replace(_draft(trial, seen), facts={**seen.facts, "desk": desk}))  # for whoever finds it cut off
        inputs = tuple(path for tenant in everyone for path in tenant.workload.inputs())
        probes = [probe.aimed(inputs) for probe in trial.cell.probes]
        sampler = stack.enter_context((bench.sampler or Sampler)(probes, writer.spool, bench.period_s))
        seen.facts["controls"] = hold_controls(stack, host, trial.cell.controls, inputs, bench.journal)
    lodgers = [
        _lodge(tenant, desk, _open_platforms(stack, host, tenant.platforms, site, seen), trial.seed + index)
        for index, (tenant, (desk, site)) in enumerate(zip(everyone, homes, strict=True))
    ]
    measured, *seen.neighbours = lodgers
    refuse_another(trial.settings, getattr(measured.place, "facts", {}), bench.store.records())
    with seen.timed("settle"):
        rooms = [Room(lodger.place, lodger.desk, lodger.workload.inputs()) for lodger in lodgers]
        seen.facts["settled"] = settle_controls(host, trial.cell.controls, rooms)
    with seen.timed("cool"):
        seen.facts |= cooled(host, trial.cell.probes, bench.store.records())
    with seen.timed("sampler"):
        sampler.begin(measured.place.scope(), [lodger.place.scope() for lodger in seen.neighbours])
    with seen.timed("run"), guarded_from_heat(host, trial.cell.probes, seen.facts) as guard:
        run_together(lodgers, trial.limit_s, host.clock, guard)
    with seen.timed("sampler"):
        seen.sampler = sampler.end()
    _collect(lodgers, writer.spool, seen)
    with seen.timed("fingerprint"):
        seen.facts["inside"] = _fingerprint(measured.place, measured.desk, measured.job)


def _decode(trial: Trial, writer: Writer, seen: Seen) -> None:
    """What recorders wrote becomes tables and figures; the device is as it was found by now."""
    if recorders := recorders_of(trial.cell.probes):
        steps = steps_from(seen.marks)
        with seen.timed("decode"):
            traced = make_tables(recorders, writer.raw, writer.tables, None if steps is None else len(steps.numbers))
        seen.facts["traced"] = {"probes": traced.probes, "rows": traced.rows, "trouble": traced.trouble}
        seen.traced = traced.figures
        seen.notes += [NOT_COMPARED, *traced.trouble]


def _lodge(tenant: Tenant, desk: Path, place: Host, seed: int) -> Lodger:
    return Lodger(tenant.workload, place, desk, tenant.workload.job(place, desk, seed))


def _make_site(tenant: Tenant, bench: Bench, name: str, stack: ExitStack, seen: Seen) -> tuple[Path, Site]:
    """Folders of the trial's own, noted in the journal before anything exists under this name."""
    noted = [
        bench.journal.note_site(platform.part_name(), storey(name, depth))
        for depth, platform in enumerate(tenant.platforms)
    ]
    stack.callback(_leave_site, name, noted, bench, seen)
    scratch = bench.scratch / name
    scratch.mkdir(mode=0o700, parents=True)
    desk = make_desk(name, scratch)
    site = Site(name=name, scratch=scratch, reads=tenant.workload.inputs(), writes=(desk,))
    if (furnish := getattr(bench.host, "furnish", None)) is not None:
        furnish(site)  # a device that is not the machine that this runs on has a desk of its own
    return desk, site


def home(name: str, tenant: int) -> str:
    """The site name of a tenant: the measured workload has the trial's own."""
    return name if tenant == 0 else f"{name}-t{tenant}"


def _leave_site(name: str, noted: list[int], bench: Bench, seen: Seen) -> None:
    """Remove the folders and forget the name; what could not be closed stays in the journal, for `tare restore`."""
    if seen.unclosed:
        return
    remove_folders(name, bench.scratch)
    for seq in noted:
        bench.journal.retire(seq, "removed")


def _open_platforms(stack: ExitStack, host: Host, platforms: tuple[Platform, ...], site: Site, seen: Seen) -> Host:
    """Each platform turns the host into the one inside it; the last one is where the workload runs."""
    place = host
    for depth, platform in enumerate(platforms):
        with seen.timed("open"):
            place = platform.open(place, replace(site, name=storey(site.name, depth)))
        stack.callback(_close, place, seen)
    return place


def storey(name: str, depth: int) -> str:
    """The site name of a platform in a stack: what two of them make must not meet under one name."""
    return name if depth == 0 else f"{name}-{depth}"


def _close(place: Host, seen: Seen) -> None:
    seen.unclosed += 1
    with seen.timed("close"):
        place.close()
    seen.unclosed -= 1
    seen.add_phases(getattr(place, "phases", {}))


def _fingerprint(place: Host, desk: Path, job: Job) -> dict[str, Any]:
    """The software that the job ran with: as the job itself said, when torch was in it; else asked for in its stead."""
    if said := read_json_file(desk / "fingerprint.json"):
        return said
    script = desk / "inside" / "tare_inside" / "fingerprint.py"
    return read_json(place.spawn(Job((place.python, str(script)), job.env, job.cwd)).wait(60).out)


def _collect(lodgers: list[Lodger], spool: Path, seen: Seen) -> None:
    """Read what the workloads left on their desks, before the desks go."""
    for lodger in lodgers:
        lodger.result = result_in_device_time(read_json_file(lodger.desk / "result.json"), lodger.place)
        lodger.outcome = read_json_file(lodger.desk / "outcome.json")
        if (marks_file := lodger.desk / "marks.bin").exists():
            rows, lost = load_marks(str(marks_file))
            seen.lost_marks += lost
            lodger.marks = in_device_time([Mark(*row) for row in rows], lodger.place)
    measured, *beside = lodgers
    seen.exit, seen.died = measured.exit, measured.died
    seen.facts["place"] = place_facts(measured.place)
    if said := read_json_file(measured.desk / "attach.json"):
        seen.facts["attach"] = said
    if said := read_json_file(measured.desk / COLD_EPOCHS):
        seen.facts["cold_epochs"] = said
    seen.result, seen.outcome, seen.marks = measured.result, measured.outcome, measured.marks
    seen.series, seen.channels = read_spool(spool), read_channels(spool)
    seen.readings = {channel: list(values) for channel, (_, values) in seen.series.items()}
    seen.facts |= {"counted": seen.result} | ({"counted_beside": [each.result for each in beside]} if beside else {})


def _draft(trial: Trial, seen: Seen) -> Record:
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
        start_ns=seen.start_ns,
        tare_version=__version__,
    )


def _conclude(trial: Trial, seen: Seen, draft: Record) -> Record:
    """What was asked and what was seen, judged and put together."""
    steps = steps_from(seen.marks)
    if (energy := energy_of_trial(trial.settings, seen, steps)) is not None:
        seen.facts |= {"energy": energy.facts} if energy.facts else {}  # before the verdict, whose rules read it
    verdict = judge(trial, seen, steps)
    title = trial.cell.workload.title()
    facts = {**seen.facts, "title": title, "outcome": seen.outcome, "thresholds": THRESHOLDS.as_json()}
    if seen.sampler is not None:
        facts["sampler"] = seen.sampler.as_json()
    if (slept_s := seen.slept_s) > THRESHOLDS.sleep_s:
        facts["slept_s"] = slept_s
    return replace(
        draft,
        state=verdict.state,
        reasons=verdict.reasons,
        notes=(*verdict.notes, *seen.notes),
        metrics=figures(seen, steps, energy),
        phases=seen.phases,
        facts=facts,
        end_ns=seen.clock.now_ns(),
    )

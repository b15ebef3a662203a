"""`tare device restore`: put back what a dead run left on the device, from the undo journal alone.

It may be killed at any point and run again: sites are swept and knobs put back before their records are retired.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any

from tare.base import processes
from tare.base.errors import BusyError, NotRestoredError, TareError
from tare.base.files import state_dir
from tare.base.host import Host, LocalHost
from tare.base.processes import Mount, Owner, boot_id, mounts
from tare.drivers import layers
from tare.drivers.cgroups import tree
from tare.drivers.cgroups.tree import resume_all
from tare.drivers.containers.oci import STATE
from tare.drivers.power import named_mode
from tare.drivers.storage import loop, placing
from tare.parts import find as parts
from tare.parts.find import find, names
from tare.parts.protocols import Control, Json, Leftover, Platform, Probe
from tare.trial.device import device_id, trusted_owners
from tare.trial.tenants import remove_folders
from tare.trial.undo.journal import FILE, Entry, Journal, KnobEntry, SiteEntry, Stamp
from tare.trial.undo.knob import Knob, Outcome, in_restore_order, put_back, read_state, retired, show, why

MOST_NAMED = 5
TURNED_BY_COMMANDS = frozenset({"mode", "cores", "cpu_mhz", "gpu_mhz", "mem_mhz", "fan"})  # nvpmodel, jetson_clocks
PATIENCE_S = named_mode.PATIENCE_S
_AT_WORK = (
    "owns it: it is still at work, and restores what it changed when it ends. Until then a restore is refused; "
    "should that run die, what follows would be done."
)


@dataclass(frozen=True)
class Restoration:
    """What a restore did, in sentences."""

    restored: tuple[str, ...] = ()
    swept: tuple[str, ...] = ()
    healed: tuple[str, ...] = ()
    planned: tuple[str, ...] = ()  # with `plan_only`: what would be done
    foreign: tuple[str, ...] = ()  # changed by someone else, and left alone
    failed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Nothing of a dead run is left on the device."""
        return not self.failed and not self.foreign

    def sentences(self) -> list[str]:
        """Everything worth saying, the bad news last, where it is seen."""
        return [*self.good_news(), *self.foreign, *self.failed]

    def good_news(self) -> list[str]:
        return [*self.notes, *self.swept, *self.restored, *self.healed, *self.planned]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "clean": self.clean}


@dataclass(frozen=True, slots=True)
class StatusRow:
    """How one knob stands, or that a site is still there. What cannot be read is None, and `trouble` says why."""

    knob: str
    baseline: Json | None
    now: Json | None
    wanted: Json | None
    owner: str
    run: str
    age_s: float
    trouble: str = ""


def restore(
    host: Host, journal: Journal, *, scratch: Path | None = None, plan_only: bool = False, force: bool = False
) -> Restoration:
    """Put everything that is pending back; the caller holds the `DeviceLock`, except for a plan."""
    pending = journal.pending()
    notes = [*journal.problems, *_elsewhere(journal), *_left_by(journal, pending)]
    if not plan_only:
        _refuse_while_alive(journal, pending)
    sites = [entry for entry in reversed(pending) if isinstance(entry, SiteEntry)]
    outcomes = [
        _sweep(host, journal, name, list(entries), scratch, plan_only)
        for name, entries in groupby(sites, key=lambda entry: entry.site)
    ]
    knobs, refused = _knobs(pending, journal)
    ordered = in_restore_order(knobs, host)
    touched = [] if plan_only else [knob for knob in ordered if knob.control.turns() & TURNED_BY_COMMANDS]
    if touched and named_mode.running():  # what such a command cannot touch need not wait for it
        ordered = [knob for knob in ordered if knob not in touched]
    else:
        touched = []
    outcomes += [put_back(host, knob, journal, plan_only=plan_only, force=force) for knob in ordered]
    if touched:
        waited, late = _after_commands(host, touched, journal, force=force)
        notes += waited
        outcomes += late
    if not plan_only:
        swept, failed = left_by_dead_probes(host)  # the last step (D4)
        outcomes += [Outcome("swept", sentence) for sentence in swept]
        notes += failed
        journal.compact()
    return _summed([*outcomes, *refused], notes)


def _after_commands(
    host: Host, knobs: Sequence[Knob], journal: Journal, *, force: bool
) -> tuple[list[str], list[Outcome]]:
    """Settings that a command of the board may still be writing: restored once it has ended."""
    try:
        waited = named_mode.await_end(PATIENCE_S)
    except BusyError as error:
        return [], [Outcome("failed", f"{knob.name}: NOT restored to {show(knob.old)}: {error}") for knob in knobs]
    return waited, [put_back(host, knob, journal, force=force) for knob in knobs]


def left_pending(journal: Journal) -> list[Entry]:
    """What a dead run, or this very process, has not restored yet; what a living run holds is its own to restore."""
    left = []
    for entry in journal.pending():
        owner = Owner.parse(entry.stamp.owner)
        mine = owner is None or owner == journal.owner or entry.stamp.boot_id != journal.boot
        if owner is None or mine or not owner.is_alive():
            left.append(entry)
    return left


def refuse_pending() -> None:
    """NotRestoredError where this user's journal holds what nobody is going to restore: asked, not assumed."""
    host = LocalHost()
    journal = Journal(state_dir() / "devices" / device_id(host))
    if left := left_pending(journal):
        names = sorted({entry.control if isinstance(entry, KnobEntry) else entry.site for entry in left})
        shown = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" * (len(names) > MOST_NAMED))
        raise NotRestoredError(f"stopped before everything was restored: {shown}.")


def status(host: Host, journal: Journal) -> list[StatusRow]:
    """Each knob that is not as it was found, as far as the journal knows; changes nothing."""
    pending = journal.pending()
    knobs, _ = _knobs(pending, journal)
    stamps = {entry.seq: entry.stamp for entry in pending}
    rows = [_knob_row(host, knob, journal, stamps[knob.seqs[0]]) for knob in in_restore_order(knobs, host)]
    for entry in pending:
        if isinstance(entry, SiteEntry):
            stamp, age_s = entry.stamp, max(0.0, journal.now_s() - entry.stamp.time_s)
            rows.append(StatusRow(f"{entry.platform} {entry.site}", None, None, None, stamp.owner, stamp.run, age_s))
    return rows


# Sites: whatever still runs is stopped before any knob is turned


def _sweep(
    host: Host, journal: Journal, name: str, entries: list[SiteEntry], scratch: Path | None, plan_only: bool
) -> Outcome:
    """Remove what each platform made under one name, then the folders, and only then forget the name."""
    platforms = ", ".join(entry.platform for entry in entries)
    if plan_only:
        return Outcome("planned", f"{name}: what {platforms} left there would be removed.")
    try:
        resume_all(host, name)  # what was stopped between two turns cannot be ended everywhere
        for entry in entries:
            platform = parts.find("platforms", entry.platform)
            assert issubclass(platform, Platform)
            platform.sweep(host, name)
        if scratch is not None:
            remove_folders(name, scratch)
    except Exception as error:  # a part may raise anything, and must not keep the knobs from being put back
        return Outcome("failed", f"{name}: what {platforms} left there could NOT be removed: {why(error)}.")
    swept = Outcome("swept", f"{name}: what {platforms} left there is gone.")
    return retired(journal, [entry.seq for entry in entries], "swept", swept)


# Knobs


def _knobs(pending: Sequence[Entry], journal: Journal) -> tuple[list[Knob], list[Outcome]]:
    """The pending records put together by knob; those that no control here would have written are refused."""
    together: dict[tuple[str, str], list[tuple[KnobEntry, Control]]] = {}
    refused = []
    for entry in pending:
        if isinstance(entry, KnobEntry):
            try:
                control = _control(entry)
            except (ValueError, TareError) as error:
                refused.append(_refused(entry, journal, error))
            else:
                # What is volatile had a new baseline from a reboot on.
                boot = entry.stamp.boot_id if control.persistence == "volatile" else ""
                together.setdefault((entry.knob, boot), []).append((entry, control))
    return [_knob(same) for same in together.values()], refused


def _knob(same: list[tuple[KnobEntry, Control]]) -> Knob:
    entries = [entry for entry, _ in same]
    return Knob(
        control=same[0][1],
        old=entries[0].old,
        wanted=tuple(entry.new for entry in entries),
        seqs=tuple(entry.seq for entry in entries),
        boot=entries[0].stamp.boot_id,
    )


def _control(entry: KnobEntry) -> Control:
    """The control that wrote this record. A record names a part and its fields, never a path to write to."""
    control = parts.find("controls", entry.control).model_validate(entry.fields)
    assert isinstance(control, Control)
    if control.knob() != entry.knob:
        raise TareError(f"{entry.knob!r} is not a setting of a {entry.control} with these fields")
    return control


def _refused(entry: KnobEntry, journal: Journal, error: Exception) -> Outcome:
    return Outcome(
        "failed",
        f"{entry.control}: record {entry.seq} of {journal.path} was refused, and nothing was written: {why(error)}.\n"
        f"It wants {show(entry.old)} back. If the part is in a package of its own, install that and try again; "
        "if tare did not write this line, delete it.",
    )


# Who left it


def _refuse_while_alive(journal: Journal, pending: Sequence[Entry]) -> None:
    for entry in pending:
        owner = Owner.parse(entry.stamp.owner)
        mine = owner == journal.owner or entry.stamp.boot_id != journal.boot
        if owner is not None and not mine and owner.is_alive():
            raise BusyError(
                f"the run that changed this device is still there: pid {owner.pid}, since {_clock(entry.stamp)}"
                f"{_run(entry.stamp)}.\nWait until it ends, or stop it with `kill {owner.pid}`; then try again."
            )


def _left_by(journal: Journal, pending: Sequence[Entry]) -> list[str]:
    """One sentence for each run that has not cleaned up, from its oldest record."""
    stamps = {entry.stamp.owner: entry.stamp for entry in reversed(pending)}
    sentences = []
    for stamp in reversed(stamps.values()):
        owner = Owner.parse(stamp.owner)
        if owner is not None and owner != journal.owner:
            boot = "" if stamp.boot_id == journal.boot else " of an earlier boot"
            since = f"pid {owner.pid}{boot}{_run(stamp)} changed this device at {_clock(stamp)}, and"
            alive = not boot and owner.is_alive()
            sentences.append(f"{since} {_AT_WORK if alive else 'ended without restoring it.'}")
    return [*sentences, *(guardians_log(journal) if sentences else [])]


def guardians_log(journal: Journal) -> list[str]:
    """Where the guardian of the last run wrote what it did, if it had to do anything."""
    log = journal.folder / "guardian.log"
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("guarding ")]
    except OSError:
        return []
    return [f"what the guardian of that run did is in {log}; its last line: {lines[-1][:300]}"] if lines else []


def _elsewhere(journal: Journal) -> list[str]:
    """What came here with a cloned card or a copied folder is never replayed, only mentioned."""
    notes = []
    for path in sorted(journal.folder.parent.glob(f"*/{FILE}")):
        other = Journal(path.parent, boot=journal.boot, owner=journal.owner)
        with contextlib.suppress(TareError):  # one that cannot be read is not ours to judge
            if path != journal.path and other.pending():
                notes.append(f"{path.parent} is of another device, and was ignored; remove it if you do not need it.")
    return notes


def _clock(stamp: Stamp) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(stamp.time_s))


def _run(stamp: Stamp) -> str:
    return f" (run {stamp.run!r})" if stamp.run else ""


def _knob_row(host: Host, knob: Knob, journal: Journal, stamp: Stamp) -> StatusRow:
    now, trouble = None, ""
    try:
        now = read_state(host, knob.control)
    except Exception as error:  # a status never fails: it is what one looks at when things have failed
        trouble = why(error)
    age_s = max(0.0, journal.now_s() - stamp.time_s)
    return StatusRow(knob.name, knob.old, now, knob.wanted[-1], stamp.owner, stamp.run, age_s, trouble)


def _summed(outcomes: Sequence[Outcome], notes: list[str]) -> Restoration:
    def said(word: str) -> tuple[str, ...]:
        return tuple(outcome.sentence for outcome in outcomes if outcome.word == word)

    return Restoration(
        restored=said("restored"),
        swept=said("swept"),
        healed=said("healed"),
        planned=said("planned"),
        foreign=said("foreign"),
        failed=said("failed"),
        notes=(*notes, *(outcome.note for outcome in outcomes if outcome.note)),
    )


# `tare device clean`: what dead runs left on the device, found by its marks and removed, even without a journal.
#
# What is ours on this device, whichever platform made it: groups, mounts, processes, loop devices, folders, traces.

SHARED_MEMORY = Path("/dev/shm")
_WORKDIR = "-workdir"
_SITE = re.compile(r"tare-[A-Za-z0-9._-]{1,120}")
_CARRIED = re.compile(rf"/proc/(\d+)/environ:(?:{tree.NAME_VARIABLE}|{tree.KEEPER_VARIABLE})=([^\0]+)")


def leftovers_by_platform(host: Host) -> dict[str, list[Leftover]]:
    """What each platform itself knows of, by the platform's name."""
    found = {}
    for name in names("platforms"):
        part = find("platforms", name)
        assert issubclass(part, Platform)
        found[name] = part.leftovers(host)
    return {name: things for name, things in found.items() if things}


def left_by_dead_probes(host: Host) -> tuple[list[str], list[str]]:
    """Remove what probes of dead runs left outside of any site; a sentence for each thing, and for each that failed."""
    swept, failed = list[str](), list[str]()
    for probe in _probes():
        try:
            swept += probe.after_dead_run(host)
        except Exception as error:  # a part may raise anything
            failed.append(f"what {probe.part_name()} left after a dead run could NOT be removed: {why(error)}.")
    return swept, failed


def _probes() -> Iterator[type[Probe]]:
    """Every probe; one of another package that cannot be loaded must not keep a device from being restored."""
    for name in names("probes"):
        try:
            part = find("probes", name)
        except Exception:  # whatever its module does when it is imported
            continue
        assert issubclass(part, Probe)
        yield part


def shared_leftovers(host: Host, scratch: Path) -> list[Leftover]:
    """What platforms have in common; only what lies where only we put things, or carries our mark."""
    things = []
    for point in sorted({f"{mount.point}/{tree.PARENT}" for mount in tree.hierarchies(host).values()}):
        listed = host.run(["find", point, "-mindepth", "1", "-maxdepth", "1", "-type", "d", "-name", "tare-*"])
        groups = [PurePosixPath(path).name for path in listed.out.splitlines()]
        things += [Leftover(name, f"the control group {tree.PARENT}/{name}") for name in groups]
    for mount in mounts(host):
        if (site := site_of_mount(mount, scratch)) is not None:
            things.append(Leftover(site, f"the mount {mount.point}"))
    for device, file in _loop_devices(host):
        if (site := _site_in(file, scratch)) is not None:
            things.append(Leftover(site, f"the loop device {device}"))
    things += [*_processes(host), *_folders(scratch)]
    things += [Leftover(PurePosixPath(path).name, f"the folder {path}") for path in layers.aside(host)]
    for probe in _probes():
        with contextlib.suppress(Exception):  # a part may raise anything; its `sweep` of a site says what is wrong
            things += probe.leftovers(host)
    return things


def owner_of(site: str, things: Sequence[Leftover], leases: Mapping[str, processes.Lease]) -> Owner | None:
    """The living process that a site belongs to: it has the name, or the things themselves name it.

    Anybody can lock a file of any name. So a user's lease says nothing of folders that are another user's.
    """
    uids = {thing.uid for thing in things} - {None}
    lease = processes.lease_over(site, leases)
    if lease is not None and (not uids or lease.uid in uids | {0}):
        return lease.owner
    makers = [Owner.parse(thing.owner) for thing in things if thing.boot in ("", boot_id())]
    return next((maker for maker in makers if maker is not None and maker.is_alive()), None)


def site_of_mount(mount: Mount, scratch: Path) -> str | None:
    """The site that a mount belongs to: by its source, by what it shows, or by the folder that it is in."""
    if placing.is_ours(mount, scratch.parent):
        return loop.site(scratch.parent)
    named = mount.source.removeprefix("tare:") if mount.source.startswith("tare:") else None
    site = named or _site_in(mount.point, scratch)
    return site if site is not None and _SITE.fullmatch(site) else None


def _loop_devices(host: Host) -> list[tuple[str, str]]:
    """Each loop device, and the file behind it."""
    listed = host.run(["losetup", "--list", "--noheadings", "--output", "NAME,BACK-FILE"])
    rows = [line.strip().partition(" ") for line in listed.out.splitlines()]
    return [(device, file.strip()) for device, _, file in rows]


def _processes(host: Host) -> Iterator[Leftover]:
    found = host.run(
        ["find", "/proc", "-mindepth", "2", "-maxdepth", "2", "-path", "/proc/[0-9]*/environ", "-exec",
         "grep", "-HaszoE", f"^({tree.NAME_VARIABLE}|{tree.KEEPER_VARIABLE})=.+", "--", "{}", "+"]
    )  # fmt: skip
    for pid, site in _CARRIED.findall(found.out):
        if _SITE.fullmatch(site) and int(pid) in tree.processes_named(host, site) | tree.processes_named(
            host, site, tree.KEEPER_VARIABLE
        ):
            yield Leftover(site, f"the process {pid}")


def _folders(scratch: Path) -> Iterator[Leftover]:
    ours = [folder for kind in _folders_in(Path(STATE)) for folder in _folders_in(kind)]
    yield from (Leftover(folder.name, f"the folder {folder}") for folder in (*ours, *_folders_in(scratch)))
    for workdir in _folders_in(SHARED_MEMORY):
        named = workdir.name.startswith("tare-") and workdir.name.endswith(_WORKDIR)
        may_look = os.access(workdir, os.X_OK, effective_ids=True)  # it may be another user's
        if named and may_look and (workdir / "inside" / "tare_inside").is_dir():
            with contextlib.suppress(FileNotFoundError):  # its run has ended
                uid = workdir.lstat().st_uid
                yield Leftover(workdir.name.removesuffix(_WORKDIR), f"the folder {workdir}", uid=uid)


def _folders_in(folder: Path) -> list[Path]:
    """The folders in a folder, links left out."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return []


def _site_in(path: str, scratch: Path) -> str | None:
    """The site whose own folder holds this path: /run/tare/vm/SITE/..., SCRATCH/SITE/..., /dev/shm/SITE-workdir/..."""
    parts = PurePosixPath(path)
    for above, depth in ((PurePosixPath(STATE), 1), (PurePosixPath(scratch), 0), (PurePosixPath(SHARED_MEMORY), 0)):
        if parts.is_relative_to(above):
            below = parts.relative_to(above).parts[depth:]
            name = below[0].removesuffix(_WORKDIR) if below else ""
            if _SITE.fullmatch(name) and (above != PurePosixPath(SHARED_MEMORY) or below[0].endswith(_WORKDIR)):
                return name
    return None


@dataclass(frozen=True)
class Remains:
    """Everything of one site: which platforms know of it, and the living process that it belongs to, if any."""

    site: str
    things: tuple[str, ...]
    platforms: tuple[str, ...]
    owner: Owner | None
    uid: int | None = None  # another user, whose folders these are

    def as_json(self) -> dict[str, Any]:
        owner = None if self.owner is None else {"pid": self.owner.pid, "started": self.owner.started}
        told = {"site": self.site, "things": list(self.things), "platforms": list(self.platforms), "alive": owner}
        return told if self.uid is None else {**told, "uid": self.uid}


@dataclass(frozen=True)
class Failure:
    """A site that could not be removed whole, and why."""

    site: str
    why: str


def find_remains(host: Host, scratch: Path) -> list[Remains]:
    """All that is ours, by site. Names are leased before anything is made, so that leases are read last."""
    known = leftovers_by_platform(host)
    things = [*(thing for each in known.values() for thing in each), *shared_leftovers(host, scratch)]
    leases = processes.leased_names()
    sites: dict[str, list[Leftover]] = {}
    for thing in things:
        sites.setdefault(thing.site, []).append(thing)
    remains = []
    for site, found in sorted(sites.items()):
        platforms = [name for name, its in known.items() if any(thing.site == site for thing in its)]
        words = dict.fromkeys(thing.what for thing in found)
        uid = next((thing.uid for thing in found if thing.uid is not None and thing.uid not in trusted_owners()), None)
        remains.append(Remains(site, tuple(words), tuple(platforms), owner_of(site, found, leases), uid))
    return remains


def remove(host: Host, remains: Sequence[Remains], scratch: Path) -> list[Failure]:
    """Remove what belongs to no living process; one that cannot be removed does not keep the others."""
    failures = []
    for each in remains:
        if each.owner is None:
            try:
                with processes.name_kept_free(each.site) as is_free:
                    if not is_free:
                        raise BusyError("a process that began meanwhile uses this name")
                    _remove(host, each, scratch)
            except Exception as error:  # a part may raise anything
                failures.append(Failure(each.site, why(error)))
    processes.remove_stale_leases()
    return failures


def _remove(host: Host, remains: Remains, scratch: Path) -> None:
    resume_all(host, remains.site)
    for name in remains.platforms:
        platform = find("platforms", name)
        assert issubclass(platform, Platform)
        platform.sweep(host, remains.site)
    tree.kill_named(host, remains.site)
    tree.remove(host, tree.own_folders(host, remains.site))
    layers.remove(host, remains.site)
    failed = []
    for probe in _probes():  # before what their things are mounted on goes
        try:
            probe.sweep(host, remains.site)
        except Exception as error:  # a part may raise anything, and must not keep the rest from being removed
            failed.append(f"{probe.part_name()}: {why(error)}")
    # The folders that carry exactly this name, where only we make any.
    named = [above / remains.site for above in (*sorted(Path(STATE).glob("*")), scratch)]
    own = [PurePosixPath(path) for path in named if path.is_dir() and not path.is_symlink()]
    _free(host, own, [mount.point for mount in mounts(host) if site_of_mount(mount, scratch) == remains.site])
    for folder in own:
        host.run(["rm", "-rf", "--one-file-system", "--", str(folder)]).checked()
    remove_folders(remains.site, scratch)
    if failed:
        raise TareError("; ".join(failed))


def _free(host: Host, folders: Sequence[PurePosixPath], points: Sequence[str]) -> None:
    """Detach what hangs on files in our folders, and unmount what is mounted in them or of them, the last first."""
    for device, file in _loop_devices(host):
        if _within(file, folders):
            host.run(["losetup", "--detach", device]).checked()
    for mount in reversed(mounts(host)):
        if mount.point in points or _within(mount.point, folders):
            host.run(["umount", "--", mount.point]).checked()


def _within(path: str, folders: Sequence[PurePosixPath]) -> bool:
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)

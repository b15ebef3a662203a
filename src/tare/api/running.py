"""Loading a study, and running it into a store: planned, checked, refused where it cannot be run, run or resumed.

Going on with a store: what has changed since it was begun is not passed over in silence.
"""

from __future__ import annotations

import io
import json
import shlex
import shutil
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare import __version__
from tare.base import rooms
from tare.base.errors import ObstacleError, StudyError, TareError, cannot_run, did_you_mean, unknown_name
from tare.base.rulings import Ruling, obstacle
from tare.base.secrets import holds_mask, revealed, without_key
from tare.base.text import count_text, say

if TYPE_CHECKING:
    from tare.base.host import Host
    from tare.fleet.schedule import Enough, Outcome
    from tare.parts.protocols import Part, Platform
    from tare.plan.check import Check
    from tare.plan.matrix import Cell, Trial
    from tare.records.model import Record
    from tare.records.store import Store
    from tare.studies.model import Study


# The study that a verb, or Python, was given: a file, or one of those that come with tare, by its name.


def built_in() -> dict[str, Path]:
    """The studies that come with tare, by name."""
    return {path.stem: path for folder in rooms.folders("studies") for path in sorted(folder.glob("*.yaml"))}


def study_path(study: Path) -> Path:
    """The file itself, or the built-in study of that name."""
    if study.suffix in (".py", ".sh"):
        raise StudyError(f"{study} is a script, and this verb takes a study. `tare weigh -- COMMAND` runs a command.")
    if study.exists():
        return study
    ours = built_in()
    if str(study) in ours:
        return ours[str(study)]
    hint = did_you_mean(str(study), ours) or "`tare list studies` lists those that come with tare."
    raise StudyError(f"{study}: there is no such study file. {hint}")


def load_study(study: Path, trust: bool = False, scale: str | None = None, python: str | None = None) -> Study:
    """The study that a verb was given, at the scale that it was given."""
    from tare.studies.load import at_every_scale, load

    path = study_path(study)
    try:
        loaded = load(path, trust=trust, scale=scale)
    except StudyError:
        if path == study or scale is None:
            raise
        # It is one of ours: its file and its lines are nothing that the user wrote.
        known = [each for each in at_every_scale(path, trust=True) if each]
        if scale in known:
            raise
        if not known:
            raise StudyError(f"{study} has no scales, and so no scale {scale!r}. Leave --scale out.") from None
        raise StudyError(f"{study}: {unknown_name('scale', scale, known)}") from None
    return with_interpreter(loaded, python)


def with_interpreter(study: Study, python: str | None) -> Study:
    """The study as `--python` wants it."""
    from tare.studies.load import with_python

    return study if python is None else with_python(study, python)


def known_interpreter(study: Study, folder: Path) -> str | None:
    """The one that the store there was begun with, so that who goes on need not say it again; says so."""
    if not (folder / "store.json").exists():
        return None
    from tare.records.store import Store
    from tare.studies.load import begun_with

    with Store.open(folder) as store:
        python = begun_with(store.study, study)
    if python is not None:
        say(f"resuming with --python {python}, as {folder} was started.")
    return python


def folder_of(study: Study) -> Path:
    """Where a study's store lies by default: each scale below the whole has its own."""
    from tare.studies.reader import FULL

    return Path("out") / (study.study if study.scale in ("", FULL) else f"{study.study}-{study.scale}")


def holds_secret(study: Study) -> bool:
    """Whether a workload of it, measured or beside, has one among its fields."""
    beside = [choice for level in study.tenancies for choice in level.beside]
    return any(choice.hides for choice in (*study.workloads, *beside))


def refuse_masks(cells: Iterable[Cell]) -> None:
    """A study as a store keeps it has masks for its secrets, and no job may be given a mask in place of a secret."""
    for cell in cells:
        for tenant in cell.everyone():
            work, env = tenant.workload, dict(getattr(tenant.workload, "env", None) or {})
            names = [name for name, value in env.items() if holds_mask(str(value))]
            for side in tenant.platforms:  # a mask of a platform is set as what it stands for, where that is known
                own = dict(getattr(side, "env", None) or {})
                names += [name for name, value in own.items() if holds_mask(revealed(str(value)) or str(value))]
            names += [f"the word {word}" for word in getattr(work, "argv", ()) if holds_mask(str(word))]
            if names:
                raise StudyError(
                    f"{', '.join(names)}: the value is a secret, and only what stands for it was kept. Run it again "
                    "from the study file or the command that has the value."
                )


# What a study needs of this device: engines that run for the length of a run, and probes that measure power.

_COUNTERS = frozenset({"power_rapl", "gpu"})  # of a GPU only newer ones count: an older one may still be told so after
_READ_BY_PERIOD = frozenset({"power_rails"})


def needs_of_study(study: Study) -> AbstractContextManager[None]:
    """What the platforms of a study need on this device: those inside another one have no need of it."""
    beside = [level.stack for level in study.tenancies if level.stack is not None]
    return needs_of(stack[0].name for stack in (*study.platforms, *beside))


@contextmanager
def needs_of(names: Iterable[str]) -> Iterator[None]:
    """Each of these platforms has what it needs (an engine that runs), until the end; says what was done for it."""
    from tare.base.host import LocalHost

    with ExitStack() as stack:
        for name in dict.fromkeys(names):
            if sentence := stack.enter_context(platform(name).for_run(LocalHost())):
                say(sentence)
        yield


def left_overs() -> list[str]:
    """What `stop_left_overs` would stop, in words; nothing is changed."""
    from tare.base.host import LocalHost
    from tare.parts.find import names

    host = LocalHost()
    found = [platform(name).left_by_dead_run(host) for name in names("platforms")]
    return [thing for thing in found if thing]


def stop_left_overs() -> list[str]:
    """Stop what platforms needed in a run that died, unless another run uses it."""
    from tare.base.host import LocalHost
    from tare.parts.find import names

    host = LocalHost()
    said = [platform(name).after_dead_run(host) for name in names("platforms")]
    return [sentence for sentence in said if sentence]


def platform(name: str) -> type[Platform]:
    """The platform of this name."""
    from tare.parts.find import find
    from tare.parts.protocols import Platform

    found = find("platforms", name)
    assert issubclass(found, Platform)
    return found


# Power


def measures_power(study: Study) -> bool:
    """Whether a probe of the study measures power, or may."""
    from tare.analysis.resources.energy import POWER_PROBES
    from tare.parts.find import find

    asked = [choice.name for choice in study.probes]
    return any(name in POWER_PROBES or not _is_ours(find("probes", name)) for name in asked)


def no_power(study: Study) -> list[Ruling]:
    """Nothing if a probe of the study measures power; else which probes would, and what prevents them here."""
    from tare.analysis.resources.energy import POWER_PROBES
    from tare.base.host import LocalHost
    from tare.parts.find import find, names

    if measures_power(study):
        return []
    host, found = LocalHost(), []
    for name in (each for each in POWER_PROBES if each in names("probes")):
        part = find("probes", name)
        try:
            obstacles = part.model_validate(dict(part.example)).obstacles(host)  # type: ignore[attr-defined]
        except StudyError as error:
            obstacles = [obstacle("part.error", str(error))]
        works = "can be used here: add it to `probes`." if not obstacles else " ".join(map(str, obstacles))
        code = obstacles[0].code if obstacles else "energy.no-probe"
        found.append(Ruling(code, "obstacle", f"probe {name}", f"{name} ({POWER_PROBES[name]}): {works}"))
    return found


def too_short(study: Study, duration_s: float) -> list[str]:
    """Why no probe of the study can make an energy of so short a time, in sentences; nothing where one may.

    A sensor has to be read 60 times, a counter has to be read ten times, and ten times what either averages over.
    """
    from tare.analysis.resources.energy import POWER_PROBES

    parts = [choice.samples[0] for choice in study.probes]
    if not all(_is_ours(type(part)) for part in parts):
        return []
    least = {part.part_name(): _least_s(part, study.period_s) for part in parts if part.part_name() in POWER_PROBES}
    if any(duration_s >= seconds for seconds in least.values()):
        return []
    return [f"{name} takes at least {seconds:g} s, not {duration_s:g} s." for name, seconds in least.items()]


def _least_s(probe: Part, period_s: float) -> float:
    """The least time that this probe can make an energy of, if everything goes well."""
    from tare.figures.evidence import THRESHOLDS
    from tare.figures.power_series import SENSOR_WINDOW_S

    name = probe.part_name()
    windows_s = THRESHOLDS.energy_windows * SENSOR_WINDOW_S.get(name, 0.0)
    if name in _COUNTERS:
        return max(windows_s, THRESHOLDS.energy_windows * period_s)
    if name in _READ_BY_PERIOD:
        return max(windows_s, THRESHOLDS.energy_samples * float(probe.fields()["period"]))
    return windows_s  # a meter prints as often as it likes


def _is_ours(probe: type[Part]) -> bool:
    """Someone else's probe may well tell power; of ours it is known."""
    return probe.__module__.startswith("tare.")


def refuse_without_power(study: Study) -> None:
    """A study that compares power or energy is not begun where nothing tells them."""
    if compares_power(study) and (stopped := no_power(study)):
        raise ObstacleError(f"no power probe is enabled in {study.study}, and nothing was run:", stopped)


def compares_power(study: Study) -> bool:
    """Whether what the study compares is power or energy."""
    return (study.compare.metric or "").startswith(("energy", "power"))


MOST_NAMED, WIDEST = 3, 60  # settings in a message, and characters of each
_NO_DEVICE = ""  # of trials that were run here, and not over a fleet
PLANNED = ("platform", "workload", "control", "probes", "tenants", "exclude")  # what trials are planned from
DECLARED = ("repeat", "compare", "order", "aa")  # what must not be changed once a result has been seen


def with_blocks(study: Study, folder: Path, blocks: int) -> Study:
    """The study with so many blocks in all; of a store that is there, with those that were judged before."""
    from tare.records.store import Store
    from tare.studies.model import Repeat

    ran, wanted = 0, None
    if (folder / "store.json").exists():
        with Store.open(folder) as store:
            ran = len({record.block for record in store.records()})
            wanted = Repeat.model_validate(store.study["repeat"]) if "repeat" in store.study else None
    seen = wanted.seen if wanted else ()
    if wanted and wanted.min == wanted.max == blocks:  # resumed: none is added, and nothing is judged a second time
        return study.model_copy(update={"repeat": wanted})
    if ran and blocks <= ran:
        raise StudyError(f"--blocks {blocks}: {folder} has {count_text(ran, 'block')} already. Name more in all.")
    judged = tuple(dict.fromkeys((*seen, ran))) if ran else ()  # who was refused before asks again with the same
    return study.model_copy(update={"repeat": Repeat(min=blocks, max=blocks, seen=judged)})


def continued(study: Study, folder: Path, blocks: int | None, budget_s: float | None) -> Study:
    """The study of a store with more blocks: so many in all, or as many as the budget allows."""
    from tare.records.store import Store
    from tare.studies.model import ENOUGH_REPEATS, Repeat

    if budget_s is None and blocks is not None:
        return with_blocks(study, folder, blocks)
    with Store.open(folder) as store:
        ran = len({record.block for record in store.records()})
        seen = Repeat.model_validate(store.study["repeat"]).seen if "repeat" in store.study else ()
    if blocks is not None and blocks <= ran:
        raise StudyError(f"--blocks {blocks}: {folder} has {count_text(ran, 'block')} already. Name more in all.")
    judged = list(dict.fromkeys((*seen, ran))) if ran else []
    rule: dict[str, Any] = {"min": blocks or max(ran + 1, ENOUGH_REPEATS), "max": blocks or ran + MOST_MORE}
    rule |= {"within": f"{budget_s:.0f} s", "seen": judged}
    rule |= {} if blocks else {"until": study.compare.margin / 2}
    return study.model_copy(update={"repeat": Repeat.model_validate(rule)})


def refuse_silent_changes(
    store: Store, study: Study, planned: list[Trial], accept: bool, adding: bool = False
) -> None:  # fmt: skip
    """An edited study is not gone on with by accident; its rules for stopping and judging not at all.

    `adding` blocks changes neither what is run in a block nor how it is judged, but for the price of a second look.
    """
    known = [record.trial for record in store.records()] if adding else store.states()
    _refuse(store, study, known, planned, accept, adding)


def refuse_silent_changes_on(
    store: Store, study: Study, planned: Mapping[str, list[Trial]], accept: bool
) -> list[str]:  # fmt: skip
    """The same over a fleet: what is planned on each device of this run is compared with what was planned on it.

    Returns sentences about devices that are new in the store, and about those of it that are not in this run.
    """
    before = trials_by_device(store)
    both = [name for name in planned if name in before]
    known = [trial for name in (*both, _NO_DEVICE) for trial in before.get(name, ())]
    _refuse(store, study, known, [trial for name in both for trial in planned[name]], accept)
    new = [name for name in planned if before and name not in before]
    absent = [name for name in before if name not in planned and name != _NO_DEVICE]
    said = [f"new in {store.root}: {', '.join(new)}."] if new else []
    return said + ([f"not in this run, and left as it is: {', '.join(absent)}."] if absent else [])


def trials_by_device(store: Store) -> dict[str, list[str]]:
    """The trials that a store plans or holds, by the device that they are for."""
    rows = [(str(row["trial"]), row.get("settings") or {}) for row in store.planned()]
    rows += [(record.trial, record.settings) for record in store.records()]
    found: dict[str, dict[str, None]] = {}
    for trial, settings in rows:
        found.setdefault(str(settings.get("device", _NO_DEVICE)), {})[trial] = None
    return {device: list(trials) for device, trials in found.items()}


def _refuse(
    store: Store, study: Study, known: Iterable[str], planned: list[Trial], accept: bool, adding: bool = False
) -> None:  # fmt: skip
    from tare.plan.matrix import changes

    then, now, known = without_key(store.study), without_key(study.as_plain()), list(known)
    edited = [key for key in DECLARED if then.get(key) != now[key] and not (adding and key == "repeat")]
    changed = changes(known, planned)
    unlike = known and ((changed.new and not adding) or changed.gone) and not accept
    if (edited or unlike) and (theirs := str(store.study.get("study") or study.study)) != study.study:
        renamed = (
            " Where it is the same one under a new name, `tare run --accept-changes` resumes it (old results stay)."
        )
        raise StudyError(
            f"{store.root} holds another study: {theirs!r}, and this is {study.study!r}. Give another folder with -o."
            f"{'' if edited else renamed}"
        )
    if edited:
        raise StudyError(
            f"{', '.join(edited)} in the study differs from what {store.root} was begun with. How a run stops and is "
            "judged is declared before it, and not changed once results are seen: give another folder with -o. "
            f"`tare run {shlex.quote(str(store.root))} --blocks N` adds blocks to this one, up to N in all."
        )
    if unlike:
        differs = _what_differs(store, planned)
        if planned and not changed.unchanged and all(then.get(key) == now[key] for key in PLANNED):
            raise StudyError(
                f"{store.root} was begun by another version of tare, which ran the same study in another way"
                f"{differs}. Its trials cannot be continued.\n"
                f"They can be read as before (`tare show {store.root}`). To run the study, give another folder with -o."
            )
        raise StudyError(
            f"the study has changed since {store.root} was begun: {len(changed.new)} new trials, "
            f"{len(changed.gone)} gone, {len(changed.unchanged)} unchanged{differs}.\n"
            "`tare run --accept-changes` resumes (old results stay); or give another folder with -o."
        )


def _what_differs(store: Store, planned: Iterable[Trial]) -> str:
    """The settings that no trial of the other side has in this way, a few of them, in brackets."""
    then = _values(row.get("settings") or {} for row in store.planned())
    now = _values(trial.settings for trial in planned)
    names = [name for name in dict.fromkeys((*then, *now)) if then.get(name) != now.get(name)]
    said = [f"{name}: {_list(then.get(name))} then, {_list(now.get(name))} now" for name in names[:MOST_NAMED]]
    rest = len(names) - MOST_NAMED
    more = [count_text(rest, "more setting")] if rest > 0 else []
    return f" ({'; '.join((*said, *more))})" if said else ""


def _values(all_settings: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}
    for settings in all_settings:
        for name, value in settings.items():
            found.setdefault(name, {})[json.dumps(without_key(value), default=str)] = None
    return {name: sorted(values) for name, values in found.items()}


def _list(values: list[str] | None) -> str:
    text = ", ".join(values or ("not set",))
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 3]}..."


def refuse_moved_images(store: Store, host: Host, planned: list[Trial]) -> None:
    """A name that stands for another image than in this store is refused, also where nothing is left to run."""
    from tare.trial.conditions import refuse_another

    of_platforms = {trial.cell.platforms: trial for trial in planned}
    images = {stack: stack[0].image_now(host) for stack in of_platforms if len(stack) == 1}
    if any(images.values()):
        records = list(store.records())
        for stack, image in images.items():
            refuse_another(of_platforms[stack].settings, {"root": "image", "image_id": image}, records)


def refuse_mixing(store: Store, host: Host, planned: list[Trial], accept: bool) -> None:
    """Trials of two kernels, or of two versions of tare, are not put into one store by accident."""
    from tare.records.merging import changed_since
    from tare.records.model import FINISHED
    from tare.trial.facts import device_facts

    states = store.states()
    if accept or all(states.get(trial.id) in FINISHED for trial in planned):
        return
    now = {"kernel": str(device_facts(host)["kernel"]), "tare": __version__}
    said = changed_since(store.records(), str(store.root), now)
    if said:
        raise StudyError(
            "\n".join(said) + "\nWhat was measured before cannot be told apart from what is measured now. "
            "`tare run --accept-changes` resumes, and every comparison of the two is marked as tainted; "
            "or give another folder with -o."
        )


def await_device(wait_s: float = 0.0) -> None:
    """Refuse, or wait so long, where another run has this device: before an engine is started or an image fetched."""
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.trial.device import DeviceLock, device_id

    with DeviceLock(state_dir(), device_id(LocalHost()), wait_s=wait_s, say=say):
        pass


MOST_MORE = 200  # blocks that a budget adds
TYPICAL_SCATTER = 0.02  # between trials of one kind on a quiet machine; a loud one has five times as much


def run_into(
    study: Study,
    text: str,
    folder: Path,
    accept_changes: bool = False,
    retry_failed: bool = False,
    ignore_managers: bool = False,
    verbose: bool = False,
    progress: bool = True,
    wait_s: float = 0.0,
    enough: Enough | None = None,
    first: bool = True,
    adding: bool = False,
    rehearsed: Sequence[Record] = (),
) -> Outcome:
    """Plan, check, then run into the store at `folder`, which is made if it is not there.

    `enough` ends it before its last block, and by `rehearsed` sides may take turns (see `run_study`). `first` is false
    for the later studies of one question: what was said of this device before the first is not said again.
    `adding`: the study has more blocks than what is there was begun with (`with_blocks`).
    """
    from tare.base.files import state_dir
    from tare.base.host import LocalHost
    from tare.fleet.local import run_study
    from tare.fleet.ownership import owned_device
    from tare.plan.check import check, possible, room_obstacles
    from tare.plan.matrix import trials
    from tare.plan.turning import thinned
    from tare.records.model import USABLE
    from tare.report.progress import progress_on
    from tare.trial.conditions import LEAST_S, advice, glance

    host = LocalHost()
    before, began_s = glance(), time.monotonic()
    study, its_cells = possible(study, host)
    refuse_masks(its_cells)
    planned = trials(study, its_cells)
    checked = check(study, its_cells, host, ignore_managers=ignore_managers)
    layered = any(tenant.workload.layered for cell in its_cells for tenant in cell.everyone())
    rooms = room_obstacles(host, folder, checked.disk_bytes, state_dir() / "scratch" if layered else None)
    if blocked := [*checked.blocked, *rooms]:
        raise cannot_run("the study", blocked, ", and nothing was run")
    refuse_without_power(study)
    if not (folder / "store.json").exists():  # a run that goes on announces what is left of it
        tell_scale(study, checked)
    with new_store_goes_if_refused(folder), open_store(study, text, folder) as store:
        if any("turns" in record.facts for record in store.records() if record.state in USABLE) or _is_thinned(
            planned, {str(row["trial"]) for row in store.planned()}
        ):
            planned = thinned(planned)
        refuse_silent_changes(store, study, planned, accept_changes, adding)
        refuse_mixing(store, host, planned, accept_changes)
        refuse_moved_images(store, host, planned)
        if adding:
            store.redeclare(study.as_plain(), study_text(study))
        store.plan([row(trial) for trial in planned])
        if enough is None:
            say(sensitivity(study))
        time.sleep(max(0.0, LEAST_S - (time.monotonic() - began_s)))
        if first and (busy := advice(before, glance(), strict=study.design.strict)):
            say(busy)
        watcher = progress_on() if progress else progress_on(io.StringIO())
        owned = partial(owned_device, wait_s=wait_s)
        return run_study(
            study, planned, store, host, watcher,
            retry_failed=retry_failed, owned=owned, verbose=verbose, enough=enough, rehearsed=rehearsed,
        )  # fmt: skip


@contextmanager
def new_store_goes_if_refused(folder: Path) -> Iterator[None]:
    """A store that was made for a run which was refused before its first trial goes again: it would block the next."""
    from tare.records.store import Store

    if folder.exists() and not folder.is_dir():
        raise StudyError(f"{folder} is a file, and a store is a folder: give another one with -o.")
    there = folder.exists()
    is_new = not there or not any(folder.iterdir())
    try:
        yield
    except TareError:
        if is_new and (folder / "store.json").exists():
            with Store.open(folder) as store:
                is_empty = not (store.records() or store.rehearsals() or store.spooled())
            if is_empty:
                shutil.rmtree(folder)
                if there:
                    folder.mkdir()
        raise


def _is_thinned(planned: Sequence[Trial], known: Collection[str]) -> bool:
    """Whether a store was planned for turns, which have fewer A/A repeats, also where they were given up later."""
    blocks = {trial.block for trial in planned if trial.id in known}
    return any(trial.twin and trial.block in blocks and trial.id not in known for trial in planned)


def tell_scale(study: Study, checked: Check) -> None:
    """How large it is and what is not in it, before it begins. How long it takes is said as soon as that is known."""
    from tare.base.text import count_text

    if study.scale:
        say(f"scale {study.scale}: {count_text(len(checked.trials), 'trial')}.")
    for sentence in study.left_out:
        say(f"not measured here: {sentence}")


def sensitivity(study: Study) -> str:
    """What the run can see at all, said before it: the smallest effect, at a quiet machine's scatter."""
    from tare.analysis.compare import expected_mde
    from tare.base.text import count_text

    seen = expected_mde(TYPICAL_SCATTER, study.repeat.min)
    if seen is None:
        blocks = count_text(study.repeat.min, "block")
        return f"with {blocks} there is no 95 % interval: figures are shown, and nothing is claimed."
    return (
        f"before the run: {study.repeat.min} blocks can see about {seen:.1%} "
        f"where trials scatter by {TYPICAL_SCATTER:.0%}; more scatter needs more blocks."
    )


def open_store(study: Study, text: str, folder: Path) -> Store:
    """The store that is there, or a new one."""
    from tare.records.store import Store

    if (folder / "store.json").exists():
        return Store.open(folder, write=True)
    # A study that holds a secret is kept without it: the file as written stays with its owner.
    # At a scale, and where something is left out, the file is not what was run: the study itself says which it was.
    kept = study_text(study) if holds_secret(study) or study.scale or study.left_out else text
    return Store.create(folder, study.as_plain(), kept)


def study_text(study: Study) -> str:
    """The study as a file that `tare run` takes (JSON is YAML), with every secret masked."""
    return json.dumps(study.as_plain(), indent=1)


def row(trial: Trial) -> Any:
    return {
        "trial": trial.id,
        "study": trial.study,
        "block": trial.block,
        "position": trial.position,
        "twin": trial.twin,
        "settings": dict(trial.settings),
    }

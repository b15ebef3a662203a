"""What the workload's side wrote about itself: claims, each file read once, within bounds, and taken over by a list.

A file with anything in it that does not belong there is not used at all. Its ruling is *invalid* where a figure would
have been made of it, else a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from tare.base import untrusted
from tare.base.rulings import Ruling, Weight
from tare.figures.steps import PROFILED, SETTLING, steps_from
from tare.parts.protocols import Mark, Workload
from tare.trial.tenants import Tenant
from tare_inside.activity import FILE as ACTIVITY_FILE
from tare_inside.fingerprint import HERE as SOURCE
from tare_inside.launch import LEFT, TOUCHED
from tare_inside.marks import parse as parse_marks
from tare_inside.programs.cold_epochs import SAID as COLD_EPOCHS
from tare_inside.serve import SERVED
from tare_inside.stacks import LEFT as STACKS

OUTCOME, RESULT, ATTACH, FINGERPRINT, MARKS = (
    "outcome.json", "result.json", "attach.json", "fingerprint.json", "marks.bin"
)  # fmt: skip
METRICS, LOAD = "metrics", "load"
MOST = float(1 << 64)  # of any number: more than any time, count or size in bytes
MOST_NS = 1 << 62  # of a mark's time: 146 years
MOST_TEXT = 1 << 16
_WINDOW_SHARE = 0.05  # a command's mean step may be so much longer with the steps that a profiler watched

Test: TypeAlias = Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """A finite number of a size that a time, a count or a size in bytes can have; a truth value is none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -MOST <= value <= MOST


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MOST_TEXT


def _are(test: Test, *names: str) -> Test:
    """An object whose values all pass; with names, only these are in it."""
    return lambda value: (
        isinstance(value, dict) and all(test(each) and (not names or name in names) for name, each in value.items())
    )


def _or_none(test: Test) -> Test:
    return lambda value: value is None or test(value)


def _listed(test: Test) -> Test:
    return lambda value: isinstance(value, list) and all(map(test, value))


_NUMBERS = _are(is_number)
_OF_STEPS = (
    "steps", "steps_per_epoch", "train_s", "epoch0_s", "cpu_train_s", "observer_s", "tokens_a_step",
    "minor_faults_training", "major_faults_training", "migrations_training",
)  # fmt: skip
_ACTIVITY = ("busy_share", "between_share", "idle_share", "window_s", "step_s", "steps", "copy_s", "kernels",
             "pageable_copies", "launches")  # fmt: skip
# Of each file the fields that something is made of; what else is in it is kept as it is, with its numbers bounded.
_FIELDS: Mapping[str, Mapping[str, Test]] = {
    RESULT: dict.fromkeys(
        ("start_ns", "end_ns", "wall_s", "cpu_user_s", "cpu_system_s", "minor_faults", "major_faults",
         "voluntary_switches", "involuntary_switches", "max_rss_bytes", "exit"),
        is_number,
    ),
    OUTCOME: {
        **dict.fromkeys(_OF_STEPS, is_number),
        METRICS: _are(_or_none(is_number)),
        LOAD: lambda value: isinstance(value, dict)
        and all(name in ("problem", "failures") or _or_none(is_number)(each) for name, each in value.items()),
    },
    ATTACH: {**dict.fromkeys(("state", "by", "reason", "why"), _is_text), "pid": is_number},
    ACTIVITY_FILE: {
        **dict.fromkeys(_ACTIVITY, is_number),
        "idle_for": _are(is_number, "data", "sync", "launch"),
        "copies": _NUMBERS,
        "synchronising": _NUMBERS,
    },
    SERVED: dict.fromkeys(("ready_s", "stop_s", "code", "cores", "threads"), _or_none(is_number)),
    COLD_EPOCHS: {"shares": _listed(_or_none(is_number))},
    FINGERPRINT: {
        "env": _are(_is_text),
        **dict.fromkeys(("python", "torch", "numpy", "startup"), lambda value: isinstance(value, dict)),
    },
    LEFT: {"env": _are(_is_text)},
    STACKS: {},
    TOUCHED: {"files": _listed(_is_text)},
}  # fmt: skip
_TOGETHER = {ACTIVITY_FILE: ("busy_share", _ACTIVITY)}  # with the first all others are there
_NO_FIGURES = (ATTACH, FINGERPRINT, LEFT, STACKS, TOUCHED)
# Names of figures that are measured from outside, or made of marks; a program may not report others under them.
_MEASURED = ("energy", "power", "cgroup", "tenant", "epoch0", "outside")


def read(tenant: Tenant, name: str, rulings: list[Ruling]) -> dict[str, Any]:
    """A file that the workload's side left; nothing where there is none, or where it may not be used."""
    try:
        data = untrusted.read_object(tenant.workdir, name)
    except (untrusted.Refused, OSError) as error:
        rulings.append(refused(error, name))
        return {}
    if data and (why := next(_faults(name, data), None)) is not None:
        weight: Weight = "note" if name in _NO_FIGURES else "invalid"
        rulings.append(_not_used("claim.malformed", weight, f"{name}: {why}. Nothing of it is used."))
        return {}
    return data


def refused(error: Exception, name: str) -> Ruling:
    """Something in a workdir is not what a workload of ours leaves there: its figures are not believed."""
    sentence = str(error) if isinstance(error, untrusted.Refused) else f"{name} was not read: {error}."
    return Ruling("workdir.refused", "invalid", "workload", sentence)


def _not_used(code: str, weight: Weight, sentence: str) -> Ruling:
    return Ruling(code, weight, "workload", sentence)


def _faults(name: str, data: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{path} is no finite number of a usual size" for path in _odd_numbers(data, ""))
    for field, test in _FIELDS[name].items():
        if field in data and not test(data[field]):
            yield f"{field} is not what belongs there"
    marker, others = _TOGETHER.get(name, ("", ()))
    if marker in data:
        yield from (f"it has no {field}" for field in others if field not in data)


def _odd_numbers(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, each in pairs:
            yield from _odd_numbers(each, f"{path}.{str(key)[:40]}".lstrip("."))
    elif isinstance(value, int | float) and not isinstance(value, bool) and not is_number(value):
        yield path or "a value"


def outcome_of(tenant: Tenant, rulings: list[Ruling]) -> dict[str, Any]:
    """What the program says of its own work, as far as its part may report that.

    Programs of tare may, where they are as tare put them there. A command of the user's has no figures of its own.
    """
    found = read(tenant, OUTCOME, rulings)
    if not found:
        return {}
    if not tenant.workload.reports:
        named = [name for name in found if name in _FIELDS[OUTCOME]]
        weight: Weight = "invalid" if named else "note"
        what = f"{named[0]!r} in {OUTCOME}" if named else OUTCOME
        rulings.append(_not_used("claim.not-taken", weight, f"the workload left {what}, which only programs of tare's "
                                 "own report: it is not used."))  # fmt: skip
        return {}
    kept = {
        name: value for name, value in found.items() if name not in (METRICS, LOAD) or name in tenant.workload.reports
    }
    reported = kept.get(METRICS, {})
    if taken := [name for name in reported if name.startswith(_MEASURED)]:
        sentence = f"{OUTCOME} reports {taken[0]!r}, which is measured from outside: nothing of it is used."
        rulings.append(_not_used("claim.not-taken", "invalid", sentence))
        return {}
    return kept


OWN_STATEMENT = Ruling(
    "claim.software",
    "note",
    "workload",
    "what software the workload ran with is its own statement: its interpreter is not the one that tare asks.",
)
_LYING_THERE = ("libc", "kernel", "machine")
_BY_VERSION = ("python", "torch", "numpy")


def otherwise(reported: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Of what the job said of its software the parts that are not as they lie there."""
    differing = [name for name in _LYING_THERE if name in found and reported.get(name) != found[name]]
    versions = (
        (name, reported.get(name, {}).get("version"), found.get(name, {}).get("version")) for name in _BY_VERSION
    )
    return differing + [name for name, said, lying in versions if lying is not None and said != lying]


def other_software(differing: Sequence[str]) -> Ruling:
    sentence = f"the workload says otherwise of {', '.join(differing)} than what lies there, which is recorded."
    return _not_used("claim.software", "note", sentence)


def programs_changed(tenants: Iterable[Tenant]) -> Iterator[Ruling]:
    """Programs of tare's own that are no longer as tare put them into the work folder: then they are anybody's."""
    for tenant in tenants:
        if tenant.workload.reports and (changed := _changed(tenant.workdir)) is not None:
            sentence = f"{changed} in the work folder is not as tare put it there: its reports are not believed."
            yield _not_used("claim.program-changed", "invalid", sentence)


def _changed(workdir: Path) -> str | None:
    source = Path(SOURCE)
    for path in sorted(source.rglob("*.py")):
        name = str(path.relative_to(source.parent))
        try:
            if untrusted.read(workdir, f"inside/{name}") != path.read_bytes():
                return name
        except (untrusted.Refused, OSError):
            return name
    return None


def marks_of(tenant: Tenant, rulings: list[Ruling]) -> tuple[list[Mark], int]:
    """Its marks, in its own time, and how many were lost; none where one of them has a time that no clock shows."""
    try:
        data = untrusted.read(tenant.workdir, MARKS, untrusted.MOST_MARKS_BYTES)
    except (untrusted.Refused, OSError) as error:
        rulings.append(refused(error, MARKS))
        return [], 0
    rows, lost = parse_marks(data or b"")
    if rows and not 0 < rows[0][0] <= rows[-1][0] <= MOST_NS:  # they are in order of time
        rulings.append(_not_used("claim.malformed", "invalid", f"{MARKS}: a mark has a time that no clock shows."))
        return [], 0
    return list(_permitted([Mark(*row) for row in rows], tenant.workload, rulings)), lost


def _permitted(marks: Sequence[Mark], workload: Workload, rulings: list[Ruling]) -> Sequence[Mark]:
    """Without marks by which time is left out, where the workload's part has none of these."""
    names = {mark.name for mark in marks}
    for name in (SETTLING, PROFILED):
        if name not in names or name in workload.reports:
            continue
        without = [mark for mark in marks if mark.name != name]
        if name == PROFILED and _hides_little(marks, without):
            continue  # of `tare_inside.attach`, or as harmless
        sentence = (
            f"the marks called {name!r} leave time out, which only programs of tare's own may: they are not used."
        )
        rulings.append(_not_used("claim.not-taken", "note", sentence))
        marks = without
    return marks


def _hides_little(marks: Sequence[Mark], without: Sequence[Mark]) -> bool:
    """Whether the mean step is nearly the same with the steps in it that a profiler is said to have watched."""
    kept, whole = steps_from(marks), steps_from(without)
    if kept is None or whole is None or not kept.measured("step").size:
        return False
    mean_s, whole_s = (steps.mean(steps.seconds["step"][steps.warm_up :]) for steps in (kept, whole))
    return whole_s <= mean_s * (1 + _WINDOW_SHARE)

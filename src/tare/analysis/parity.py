"""The parity gate: what differs in the software of the two sides, and whether it could explain a difference in time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from tare.analysis.cells import PLACEMENT
from tare.analysis.labels import text
from tare.analysis.model import Difference
from tare.base.rulings import Ruling
from tare.records.model import COMPUTES_ON, Record, collected

INFERENCE = ("torch_infer", "application", "loadgen", "generate", "server")  # workloads that train nothing
SHOWN = 3  # values named where a side itself has several


@dataclass(frozen=True)
class Rule:
    """Keys of the fingerprint that a pattern finds, and what a difference there means."""

    pattern: str
    matters: bool
    why: str
    factors: tuple[str, ...] = ()  # settings that the sides may differ in by intent: then it is no taint

    def fits(self, key: str) -> bool:
        return re.search(self.pattern, key, re.IGNORECASE) is not None


# The first rule that fits decides. A key that no rule knows is reported and taints nothing.
RULES: tuple[Rule, ...] = (
    Rule(r"(^|[._])(pid|ppid|hostname|cgroup(_path)?s?|boot_id|time|uptime|cwd|tmpdir)$", False, "differs by itself"),
    Rule(r"(^|[._])executable$|(^|\.)path$", False, "where the program lies; its version is compared apart"),
    Rule(r"^(startup|modules|beside)\.", False, "start-up files, modules and other processes, which `tare why` tries"),
    Rule(r"^place\.accel$", True, "one is emulated: its times say nothing about virtualisation"),
    Rule(r"^file_system\.", False, "another kind of file system; tmpfs is memory, and nothing written reaches a disk"),
    Rule(r"^mount_options\.", False, "how a file system is mounted; part of what the platform is"),
    Rule(r"^(shm|limits)\.", False, "a limit of the place; it matters to data loader workers and pinned memory"),
    Rule(r"^python\.(debug|shared|optimized|lto)$", True, "another build of Python"),
    Rule(r"seccomp|no_?new_?privs|cap_?(eff|bnd|prm|inh|amb)|apparmor", False, "part of what the platform is"),
    Rule(r"speculation|store_bypass", False, "part of what the platform is: seccomp can switch this mitigation on"),
    Rule(r"(^|[._])(hash|sha256|libraries|libs)([._]|$)", True, "another build of a library that does the work"),
    Rule(r"torch.*parallel_?info", True, "another set-up of torch's threads or libraries"),
    Rule(r"threads?([._]|$)|OMP_|MKL_.*THREADS|OPENBLAS_.*THREADS", True, "another number of threads", ("threads",)),
    Rule(r"optimi[sz]er|foreach|fused", True, "another optimiser path: it changes the optimiser step alone"),
    Rule(r"blas|mkldnn|onednn|(^|[._])mkl|capability", True, "another linear-algebra library or code path"),
    Rule(
        r"^env\.(CUDA_(HOME|PATH|ROOT|TOOLKIT_ROOT_DIR|VERSION)|NV_\w+)$",
        False,
        "what an image says of its toolkit; the libraries themselves are compared",
    ),
    Rule(r"cudnn|cuda|driver|tensorrt", True, "another GPU stack"),
    Rule(r"(^|[._])torch([._]|$)", True, "another build of torch"),
    Rule(r"MALLOC_|tcmalloc|jemalloc|mimalloc", True, "another memory allocator or its thresholds", ("malloc",)),
    Rule(r"LD_PRELOAD", True, "another library is loaded before all others, and may replace any function", ("malloc",)),
    Rule(r"LD_LIBRARY_PATH|PYTORCH_", True, "an environment variable that steers the libraries"),
    Rule(r"quota|cpu_?max|cpus_?allowed|cpuset|cores|affinity", True, "another share of the CPUs", PLACEMENT),
    Rule(r"numpy", True, "another numpy"),
    Rule(r"python(_?version|[._]version|$)|implementation", True, "another Python"),
    Rule(r"libc|glibc|musl", True, "another C library"),
    Rule(r"kernel", False, "part of what the platform is: a virtual machine has a kernel of its own"),
    Rule(r"machine|arch", True, "another kind of machine"),
)
TEMPORARY, MEMORY = "file_system.tmp", "tmpfs"
ACCEL, EMULATED = "place.accel", "tcg"
_THREADS = ("torch.threads", "torch.interop_threads")
_GPU, _OPTIMISER, _LIBRARIES = "torch.gpu.", "torch.optimiser", "libraries."
_ALLOCATORS = r"malloc"  # tcmalloc, jemalloc, mimalloc
UNKNOWN = Rule("", False, "not known to change times")


def differences(
    ours: Sequence[Record], theirs: Sequence[Record], *, level: str, against: str, by: str
) -> list[Difference]:
    """What the fingerprints of two sides do not share; a side that left none is not compared."""
    left, right = inside(ours), inside(theirs)
    if not left or not right:
        return []
    keys = [key for key in dict.fromkeys((*left, *right)) if left.get(key) != right.get(key)]
    if EMULATED not in (*left.get(ACCEL, ()), *right.get(ACCEL, ())):
        keys = [key for key in keys if key != ACCEL]  # a virtual machine against bare metal is what is compared
    sides, declared = (ours[0].settings, theirs[0].settings), _declared(ours, theirs) | {by}
    found = []
    for key in keys:
        one_sided = key not in left or key not in right
        intended = _is_factor(key, declared) or _follows(key, one_sided, declared, sides)
        found.append(_difference(key, left.get(key), right.get(key), level, against, intended))
    return sorted(found, key=lambda difference: not difference.matters)


def _declared(ours: Sequence[Record], theirs: Sequence[Record]) -> set[str]:
    """The settings that the study itself gave the sides differently."""
    one, other = ours[0].settings, theirs[0].settings
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


def _is_factor(key: str, declared: Collection[str]) -> bool:
    """Whether the key is what such a setting sets."""
    return any(name.rpartition(".")[2] in rule_for(key).factors for name in declared)


def _follows(key: str, one_sided: bool, declared: Collection[str], sides: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a difference comes with a setting that it is not itself: a GPU's stack with the device of the workload.

    Threads that nobody has set follow the cores that there are. A library that both sides have, and another path of
    the optimiser in training, are still differences.
    """
    if key in _THREADS:
        unset = all(side.get("workload.threads") is None for side in sides)
        return unset and any(_places(name) for name in declared)
    if COMPUTES_ON not in declared:
        return False
    if key == _OPTIMISER:
        return all(side.get("workload") in INFERENCE for side in sides)
    return key.startswith(_GPU) or (one_sided and key.startswith(_LIBRARIES))


def _places(name: str) -> bool:
    """Whether a setting says which cores there are, or how many: of the platform, or of a power mode."""
    return name.startswith(("platform.", "control.")) and name.rpartition(".")[2] in PLACEMENT


def taints(found: Iterable[Difference]) -> list[str]:
    """The differences that matter, each as a sentence."""
    return [
        f"{each.key} differs ({each.why}): "
        f"{each.level} has {_held(each.ours)}, {each.against} has {_held(each.theirs)}."
        for each in found
        if each.matters
    ]


def in_memory(found: Iterable[Difference]) -> list[str]:
    """Sentences where the folder for temporary files is memory on one side only: the sides do not write to the same."""
    return [
        f"/tmp is memory (tmpfs) for {where}, and {other} for {elsewhere}: what a script writes or reads there is not "
        "comparable; let it use another folder."
        for each in found
        if each.key == TEMPORARY and MEMORY in (each.ours, each.theirs)
        for where, other, elsewhere in [
            (each.level, each.theirs, each.against) if each.ours == MEMORY else (each.against, each.ours, each.level)
        ]
        if other is not None
    ]


def inside(records: Iterable[Record]) -> dict[str, tuple[str, ...]]:
    """Every key of the fingerprints with the values that it had, sorted."""
    seen: list[tuple[str, Any]] = []
    for record in records:
        seen += flat(record.facts.get("inside") or {}).items()
        if accel := (record.facts.get("place") or {}).get("accel"):
            seen.append((ACCEL, accel))
    return {key: tuple(sorted(set(map(text, values)))) for key, values in collected(seen).items()}


def flat(facts: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested facts with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in facts.items():
        name = f"{prefix}{key}"
        found |= flat(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return found


@lru_cache(maxsize=4096)
def rule_for(key: str) -> Rule:
    return next((rule for rule in RULES if rule.fits(key)), UNKNOWN)


def _difference(
    key: str, ours: tuple[str, ...] | None, theirs: tuple[str, ...] | None, level: str, against: str, intended: bool
) -> Difference:
    rule = rule_for(key)
    if key.endswith("LD_PRELOAD") and re.search(_ALLOCATORS, " ".join((*(ours or ()), *(theirs or ())))):
        rule = rule_for("malloc_")
    why = f"{rule.why}; it is what is compared" if intended else rule.why
    return Difference(key, level, against, _shown(ours), _shown(theirs), rule.matters and not intended, why)


def _shown(values: tuple[str, ...] | None) -> str | None:
    if values is None:
        return None
    more = f" and {len(values) - SHOWN} more" if len(values) > SHOWN else ""
    return " | ".join(values[:SHOWN]) + more


def _held(value: str | None) -> str:
    return "none" if value is None else value


# Of the device: what makes two records of one level two populations. (A boot id changes with each reboot: no matter.)
DEVICE_KEYS = ("kernel", "machine", "cpu", "board", "os", "cpu.governor", "cores", "transparent_hugepage")
# Of what a built-in program says of itself: what is the same wherever the same was computed.
_SAME_WORK = {
    "loss_digest": "ended with another loss",
    "answers_digest": "gave other answers",
    "steps": "did another number of steps",
}
NAMED = 3


def mixed_populations(label: str, records: Sequence[Record]) -> list[str]:
    """A sentence for each fact of the device or the software that changes within one level."""
    values = collected((key, text(value)) for record in records for key, value in _population(record).items())
    return [
        f"{label}: its trials do not share one {key} ({', '.join(list(dict.fromkeys(found))[:NAMED])}); "
        "they are pooled anyway, so read the interval with care."
        for key, found in values.items()
        if len(set(found)) > 1
    ]


def other_computation(ours: Sequence[Record], theirs: Sequence[Record], *, level: str, against: str) -> list[str]:
    """Sentences where the two sides of a block did not compute the same: another loss, or other counts of steps."""
    return [
        f"Not the same computation: {level} {what} than {against} in {where}, with the same seed."
        for what, where in _apart(ours, theirs)
        if not (what == _SAME_WORK["loss_digest"] and _other_threads(ours, theirs))
    ]


def other_rounding(ours: Sequence[Record], theirs: Sequence[Record], *, level: str, against: str) -> list[Ruling]:
    """A note where two sides with other numbers of threads ended with other losses: no other work, only its order."""
    threads = _other_threads(ours, theirs)
    if threads is None or not any(what == _SAME_WORK["loss_digest"] for what, _ in _apart(ours, theirs)):
        return []
    known = "they began with the same" if _by_block(ours, FIRST) else "what they began with is not recorded"
    sentence = (
        f"{level} ended with another loss than {against} from the same seed; {known}. torch had "
        f"{threads[0]} and {threads[1]} threads, which add up in another order and so round otherwise."
    )
    return [Ruling("compare.other-rounding", "note", level, sentence)]


FIRST = "first_loss"
ROUNDED = 1e-3  # share by which the first loss, of the same data and weights, may differ by rounding alone


def _other_threads(ours: Sequence[Record], theirs: Sequence[Record]) -> tuple[str, str] | None:
    """The numbers of torch's threads, where they differ between the sides and may be why their losses do.

    They may not where the first loss differs: that is of the same data and weights, before anything could add up.
    """
    left, right = (set().union(*_by_block(side, "threads").values()) for side in (ours, theirs))
    if len(left) != 1 or len(right) != 1 or left == right:
        return None
    mine, other = _by_block(ours, FIRST), _by_block(theirs, FIRST)
    for block in mine.keys() & other.keys():
        losses = [float(each) for each in mine[block] | other[block]]
        if max(losses) - min(losses) > ROUNDED * max(map(abs, losses)):
            return None
    return left.pop(), right.pop()


def other_tokens(ours: Sequence[Record], theirs: Sequence[Record], *, level: str, against: str) -> list[Ruling]:
    """A note where two sides that generate text gave other tokens; what it means for their figures."""
    if not all(record.settings.get("workload") == "generate" for record in (*ours, *theirs)):
        return []
    if _other_requests(ours, theirs) or not any(
        what == _SAME_WORK["answers_digest"] for what, _ in _apart(ours, theirs)
    ):
        return []
    sentence = (
        f"{level} generated other tokens than {against} from the same seed: sums are rounded in another order there "
        "(threads, libraries, instructions). As many were generated, so the times are of equal work."
    )
    return [Ruling("compare.other-tokens", "note", level, sentence)]


_MAKES_TOKENS = (
    "size", "weights", "scale", "batch", "prompt", "output", "requests", "decode", "top_k", "temperature", "precision",
)  # fmt: skip


def _other_requests(ours: Sequence[Record], theirs: Sequence[Record]) -> bool:
    """Whether other tokens were requested: of another network, for other prompts, or in another precision."""
    names = [f"workload.{name}" for name in _MAKES_TOKENS]
    return len({text([record.settings.get(name) for name in names]) for record in (*ours, *theirs)}) > 1


def not_deterministic(level: str, records: Sequence[Record]) -> list[str]:
    """Sentences where a level's A/A repeat, the very same trial run again, did not compute the same."""
    twins, firsts = [each for each in records if each.twin], [each for each in records if not each.twin]
    return [
        f"{level} is not deterministic: its A/A repeat {what} than itself in {where}, with the same seed."
        for what, where in _apart(twins, firsts)
    ]


def _apart(ours: Sequence[Record], theirs: Sequence[Record]) -> Iterable[tuple[str, str]]:
    """What the outcomes of two sides do not share, and in which blocks."""
    for key, what in _SAME_WORK.items():
        left, right = _by_block(ours, key), _by_block(theirs, key)
        both = left.keys() & right.keys()
        apart = sorted(block for block in both if left[block] != right[block])
        if apart:
            blocks = ", ".join(str(block) for block in apart[:NAMED]) + (" ..." if len(apart) > NAMED else "")
            yield what, f"{len(apart)} of {len(both)} blocks (block {blocks})"


def _population(record: Record) -> dict[str, object]:
    device = flat(record.facts.get("device") or {})
    software = flat(record.facts.get("inside") or {})
    return {
        **{key: device[key] for key in DEVICE_KEYS if key in device},
        **{f"inside {key}": value for key, value in software.items() if rule_for(key).matters},
        **({"version of tare": record.tare_version} if record.tare_version else {}),
    }


def _by_block(records: Iterable[Record], key: str) -> Mapping[int, set[str]]:
    outcomes = ((record.block, record.facts.get("outcome")) for record in records)
    values = collected(
        (block, text(outcome[key]))
        for block, outcome in outcomes
        if isinstance(outcome, Mapping) and outcome.get(key) is not None
    )
    return {block: set(found) for block, found in values.items()}


# What is asked of both: without it nothing is proven.
NEEDED = ("python.version", "libc")


@dataclass(frozen=True, slots=True)
class Line:
    """One fact about the software, on both sides; None where a side does not have it."""

    key: str
    device: str | None
    image: str | None
    matters: bool
    why: str

    @property
    def same(self) -> bool:
        return self.device == self.image

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "same": self.same}


def compared(device: Mapping[str, Any], image: Mapping[str, Any]) -> list[Line]:
    """Every fact of either side: first those that differ and matter, then the other differences, then the rest."""
    left, right = _texts(device), _texts(image)
    lines = [_line(key, left.get(key), right.get(key)) for key in dict.fromkeys((*left, *right))]
    return sorted(lines, key=lambda line: (line.same, not line.matters))


def is_same(lines: Sequence[Line]) -> bool:
    """Whether nothing that matters differs, and both sides have said what they must."""
    said = {line.key for line in lines if line.device is not None and line.image is not None}
    return said.issuperset(NEEDED) and all(line.same or not line.matters for line in lines)


def _texts(facts: Mapping[str, Any]) -> dict[str, str]:
    return {key: text(value) for key, value in flat(facts).items()}


def _line(key: str, device: str | None, image: str | None) -> Line:
    rule = rule_for(key)
    return Line(key, device, image, rule.matters, rule.why)

"""What both sides recorded, key by key: whatever differs is a suspect, with or without a row in the table of knowledge.

A row says what a difference of its keys means, how likely it costs something, and where. A key without a row is
suspected last. What a cause of its own looks at (a limit that can be moved, a variable) is left to that cause.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

from tare.parts.protocols import Cause, Json, Known, NotLooked, Observation, RuledOut, Side, Suspicion, unseen

_MOST_NAMED = 8
_NDOTS = "resolver.ndots"
_ANYWHERE = frozenset({"start", "data", "compute", "gpu", "tail"})
_STARTS, _READS = frozenset({"start"}), frozenset({"start", "data", "tail"})
_COMPUTES = frozenset({"start", "data", "compute", "tail"})
_WAITS = ("wait", "off")


@dataclass(frozen=True)
class Kind:
    """What belongs together: it is suspected, ruled out or not looked at as one."""

    title: str
    cure: str
    phases: frozenset[str] = _ANYWHERE
    spends: tuple[str, ...] = ()
    untried: str = "it cannot be exchanged alone in this container."


@dataclass(frozen=True)
class Row:
    """Keys of facts, as a regular expression; what a difference means; how likely it costs something."""

    keys: str
    kind: str  # a key of KINDS; empty where a cause of its own looks at it, or where it costs nothing
    words: str = ""
    prior: float = 0.1


_DEVICES = "the device cannot be exchanged here."
_WITH_FILES = "its files are tried where the runs touched them."
KINDS: Mapping[str, Kind] = {
    "architecture": Kind("the image's architecture", "--platform linux/ARCHITECTURE, of this device", _COMPUTES,
                         untried="there is no image of the other architecture to try."),
    "clock": Kind("the clock source", "the same clock source: /sys/devices/system/clocksource", untried=_DEVICES),
    "control_group": Kind("another setting of the control group", "the same settings as on the other side"),
    "device": Kind("the state of the device", "the same settings on both machines: `tare device status` prints them",
                   untried="the other machine is not at hand."),
    "engine": Kind("how the engine runs the container", "the same options as on the other side"),
    "gpu_math": Kind("how the GPU computes",
                     "the same versions in the image, and the same torch.backends settings in the script",
                     frozenset({"gpu"}), untried="versions of CUDA cannot be exchanged alone; see `software`."),
    "huge_pages": Kind("huge pages", "the same /sys/kernel/mm/transparent_hugepage on both sides", _COMPUTES,
                       ("user", "system", "cpu"), _DEVICES),
    "interpreter": Kind("how Python was built", "an interpreter that was built as on the other side", _COMPUTES,
                        ("user", "system", "cpu"), _WITH_FILES),
    "mitigation": Kind("a mitigation of the CPU's speculation", "spec_store_bypass_disable=prctl, or a newer kernel",
                       _COMPUTES, ("user", "system", "cpu")),
    "mount": Kind("how a file system is mounted", "the options of the mount as on the other side", _READS,
                  ("system", *_WAITS)),
    "name_resolution": Kind("how names are resolved", "--dns-option ndots:1, or the servers of the other side",
                            _READS, _WAITS),
    "other": Kind("something that no row of the catalogue knows", "as on the other side"),
    "packages": Kind("installed packages", "the versions of the other side", untried=_WITH_FILES),
    "rights": Kind("the rights of the process", "the capabilities that it had on the other side"),
}  # fmt: skip

# The first row that fits decides.
ROWS: tuple[Row, ...] = (
    Row(r"machine", "architecture", "its code is emulated", 1.0),
    Row(r"torch\.gpu\.tf32", "gpu_math", "TF32", 0.7),
    Row(r"torch\.gpu\.cudnn_benchmark", "gpu_math", "cudnn.benchmark", 0.6),
    Row(r"torch\.gpu\.cudnn|torch\.cuda", "gpu_math", "another version of CUDA or cuDNN", 0.5),
    Row(r"torch\.gpu\..*", "gpu_math", "the GPU", 0.6),
    Row(r"device\.cpu", "device", "another CPU", 0.9),
    Row(r"device\.board", "device", "another board", 0.8),
    Row(r"device\.cores", "device", "another number of cores", 0.7),
    Row(r"device\.cpu\.governor", "device", "another CPU governor", 0.7),
    Row(r"device\.transparent_hugepage", "device", "other transparent huge pages", 0.6),
    Row(r"device\.kernel", "device", "another kernel", 0.4),
    Row(r"device\.memory_bytes", "device", "another amount of memory", 0.3),
    Row(r"device\.os", "device", "another operating system", 0.3),
    Row(r"device\.vm\.swappiness", "device", "another swappiness", 0.2),
    Row(r"device\..*", ""),  # what a boot changes, or a control of the study
    Row(r"clock\.source", "clock", "reading the time may be a system call", 0.6),
    Row(r"cgroup\.memory_high_bytes", "control_group", "whoever has more memory is made to wait", 0.7),
    Row(r"cgroup\.swap_limit_bytes", "control_group", "another limit of the swap space", 0.2),
    Row(r"cgroup\.io_limit", "control_group", "a disk is read or written no faster", 0.6),
    Row(r"cgroup\..*", ""),  # quota, weight and limits that can be moved
    Row(r"\w+\.looked", ""),
    Row(r"pages\..*|process\.THP_enabled", "huge_pages", "the kernel joins pages of 4 KiB otherwise", 0.4),
    Row(r"process\.Speculation_Store_Bypass|process\.Seccomp", ""),  # seccomp
    Row(r"process\.Speculation.*", "mitigation", "indirect branches are not predicted", 0.4),
    Row(r"process\.(Cpus|Mems)_allowed_list", ""),
    Row(r"process\.CapEff|process\.CapBnd|process\.NoNewPrivs", "rights", "other capabilities", 0.05),
    Row(r"mount_options\.(data|work)", "mount", "the file system that it reads and writes", 0.3),
    Row(r"mount_options\..*", "mount", "a file system that it uses", 0.1),
    Row(r"resolver\.ndots", "name_resolution", "each name is first looked for in every search domain", 0.4),
    Row(r"resolver\.(servers|timeout|attempts|single.request.*|use.vc|rotate)", "name_resolution",
        "other servers, or another wait for them", 0.3),
    Row(r"resolver\.ipv6", "name_resolution", "addresses of IPv6 are tried on one side alone", 0.3),
    Row(r"resolver\..*", "name_resolution", "a setting of the resolver", 0.15),
    Row(r"place\.engine\.log_driver", ""),
    Row(r"place\.engine\.network", "engine", "packets go through a bridge, a proxy or address translation", 0.3),
    Row(r"place\.engine\.runtime", "engine", "another runtime starts the container", 0.5),
    Row(r"place\.engine\.health_check", "engine", "a program runs beside the command, again and again", 0.4),
    Row(r"place\.engine\..*", "engine", "a setting of the engine", 0.1),
    Row(r"python\.gil", "interpreter", "a Python without its lock is slower with one thread", 0.8),
    Row(r"python\.compiled", "interpreter", "the compiler optimised it otherwise", 0.6),
    Row(r"python\.configured", "interpreter", "it was configured otherwise", 0.2),
    Row(r"python\.implementation", "interpreter", "another implementation of Python", 0.8),
    Row(r"packages\.python\.(torch|numpy|scipy|pandas|tensorflow|jax|jaxlib|onnxruntime|opencv.*|pillow.*|numba|llvmlite"
        r"|pyarrow|polars|duckdb|transformers|tokenizers|scikit_learn|xgboost|lightgbm|triton)", "packages",
        "a library that computes", 0.45),
    Row(r"packages\.python\.(protobuf|orjson|ujson|msgpack|lxml|pyyaml|aiohttp|uvloop|httptools|grpcio|cryptography"
        r"|pydantic.*|sqlalchemy|psycopg.*|redis|hiredis|regex|cython)", "packages", "it may lack compiled code", 0.3),
    Row(r"packages\.python\.(coverage|ddtrace|newrelic|opentelemetry.*|elastic_apm|sentry_sdk|debugpy|scalene|memray"
        r"|pyinstrument|viztracer)", "packages", "it may trace calls", 0.4),
    Row(r"packages\.system\.(libc6|musl|libgomp1|libopenblas.*|libblas.*|libatlas.*|intel-mkl.*|libjemalloc.*"
        r"|libtcmalloc.*|libgoogle-perftools.*|openssl|libssl.*|zlib1?g?|libzstd.*)", "packages",
        "a library that many programs use", 0.3),
    Row(r"packages\..*", "packages", "another version, or on one side alone", 0.15),
    # What causes of their own look at, what names a place or a run, and what is there for a reader alone.
    Row(r"(env|variables|modules|startup|limits|shm|file_system|beside|libraries|libc|kernel|output|served|command|place"
        r"|torch|numpy|python|gpu)(\..*|$)", ""),
)  # fmt: skip


@cache
def row_of(key: str) -> Row:
    unknown = Row(key, "other", "no row of the catalogue knows it")
    return next((row for row in ROWS if re.fullmatch(row.keys, key)), unknown)


class Recorded(Cause):
    """Anything else that both sides recorded and that differs: packages, mounts, the resolver, how Python was built,
    huge pages, rights, the engine, the device."""

    title: ClassVar[str] = "something that was recorded"
    phases: ClassVar[frozenset[str]] = _ANYWHERE

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        """All kinds as one: the heaviest suspicion, else what was not looked at."""
        found = [*self.suspicions(slow, quick).values()]
        held = sorted((each for each in found if isinstance(each, Suspicion)), key=lambda each: -each.weight)
        unknown = [each for each in found if isinstance(each, NotLooked)]
        return (held or unknown or [RuledOut("whatever else was recorded of both sides is the same.")])[0]

    def suspicions(self, slow: Side, quick: Side) -> Mapping[str, Suspicion | RuledOut | NotLooked]:
        pairs = defaultdict[str, dict[str, tuple[Observation, Observation]]](dict)
        for key in sorted({*slow.facts, *quick.facts}):
            if kind := row_of(key).kind:
                pairs[kind][key] = (slow.seen(key), quick.seen(key))
        return {kind: _of_kind(kind, pairs[kind], slow) for kind in KINDS if kind in pairs or kind != "other"}


def _of_kind(
    name: str, pairs: Mapping[str, tuple[Observation, Observation]], slow: Side
) -> Suspicion | RuledOut | NotLooked:
    kind = KINDS[name]
    differing = [key for key, pair in pairs.items() if unseen(*pair) is None and pair[0] != pair[1]]
    if not differing:
        missing = next((each for pair in pairs.values() if (each := unseen(*pair)) is not None), None)
        if missing is not None or not pairs:
            return missing or NotLooked(f"{kind.title}: nothing of it was recorded of both sides.")
        return RuledOut(f"what was recorded of it ({_listed(list(pairs))}) is the same on both sides.")
    differing.sort(key=lambda key: -row_of(key).prior)
    likely = row_of(differing[0])
    told = "; ".join(_told(key, *pairs[key]) for key in differing[:_MOST_NAMED])
    more = f"; and {len(differing) - _MOST_NAMED} more" if len(differing) > _MOST_NAMED else ""
    change = _change(pairs, slow)
    return Suspicion(
        weight=likely.prior,
        evidence=f"{likely.words}: {told}{more}.",
        without=change,
        cure=kind.cure,
        untried="" if change else kind.untried,
        title=kind.title,
        phases=kind.phases,
        spends=kind.spends,
    )


def _listed(keys: Sequence[str]) -> str:
    more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
    return f"{', '.join(keys[:_MOST_NAMED])}{more}"


def _told(key: str, ours: Observation, theirs: Observation) -> str:
    name = key.removeprefix("packages.python.").removeprefix("packages.system.").removeprefix("place.engine.")
    return f"{name} {_value(ours)}, {_value(theirs)} on the other side"


def _value(seen: Observation) -> str:
    return (str(seen.value) or "none") if isinstance(seen, Known) else "none"


def _change(pairs: Mapping[str, tuple[Observation, Observation]], slow: Side) -> Mapping[str, Json] | None:
    """Names looked up as on the other side, where the container has a network of its line's."""
    ours, theirs = pairs.get(_NDOTS, (None, None))
    if slow.platform != "own" or not slow.fields.get("allow_network") or ours == theirs:
        return None
    return {"flags": {"--dns-option": f"ndots:{theirs.value}"}} if isinstance(theirs, Known) else None

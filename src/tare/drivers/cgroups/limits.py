"""How much of the device a place may use: fields of every platform, and the cgroup files that hold them.

Which cores a place gets: asked for as a number of cores, pinned or left to the scheduler, resolved on the device.

Vanilla (`pin: false`) is what `docker run --cpus 4` gives: a quota, and the scheduler picks among all cores of the
machine. Pinned (`pin: true`) is a cpuset: as many cores, always the same ones. In a job of Slurm that has not all cores
of its node, every place is pinned to the job's: a container's daemon would else start it on any.
"""

from __future__ import annotations

import json
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveInt, PrivateAttr, field_validator, model_validator

from tare.base import processes
from tare.base.errors import ControlNotHeld, ObstacleError
from tare.base.host import Host, InnerHost, OwnDevice, Site
from tare.base.processes import is_root
from tare.base.rulings import Ruling, obstacle
from tare.base.secrets import masked_env, masked_words
from tare.base.units import SizeBytes, core_text, cores
from tare.drivers.cgroups.tree import hierarchies, is_there, locate, offered
from tare.parts.protocols import Json, Platform

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_IN_SLURM = "SLURM_JOB_ID"


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What a study asks for, before it is known which machine it is."""

    cores: int | None = None
    pin: bool = False
    numa: int | None = None
    leave_idle: int = 0

    def is_set(self) -> bool:
        return self != PlacementRequest()


@dataclass(frozen=True, slots=True)
class Placement:
    """The same on one machine: a quota in cores, a set of cores, a set of memory nodes; None where there is none."""

    quota: float | None
    cpuset: str | None
    mems: str | None


def online(host: Host) -> list[int]:
    """The cores that are online; none where the kernel does not say."""
    try:
        return cores(host.read(f"{_CPUS}/online"))
    except (OSError, ValueError):
        return []


def allocated(host: Host) -> list[int] | None:
    """The cores of the job of Slurm that we run in; None where it has all of them, and outside of any."""
    if not isinstance(host, OwnDevice) or _IN_SLURM not in os.environ:
        return None
    given = sorted(os.sched_getaffinity(0))
    return given if set(given) < set(online(host)) else None


def usable_cores(host: Host) -> list[int]:
    """The cores that places may be given."""
    return allocated(host) or online(host)


def obstacles(host: Host, request: PlacementRequest) -> list[Ruling]:
    """Why the request cannot be met on this machine."""
    there = usable_cores(host)
    if not request.is_set():
        return []
    if not there:
        return [obstacle("needs.kernel", "the kernel does not report which cores are online, so none can be chosen.")]
    found = []
    if request.numa is not None:
        node = node_cores(host, request.numa)
        if not node:
            found.append(
                obstacle(
                    "needs.cores", f"`numa: {request.numa}`: this machine has no such memory node with cores online."
                )
            )
        there = [core for core in there if core in node]
    left = len(there) - request.leave_idle
    if left < 1:
        found.append(obstacle("needs.cores", f"`leave_idle: {request.leave_idle}` leaves no core of {len(there)}."))
    elif request.cores is not None and request.cores > left:
        found.append(
            obstacle(
                "needs.cores", f"`cores: {request.cores}` asks for more than the {left} that are there to be used."
            )
        )
    return found


def resolved(host: Host, request: PlacementRequest) -> Placement:
    """The quota and the cores by which this machine meets the request."""
    if found := obstacles(host, request):
        raise ObstacleError("this placement cannot be had here.", found)
    there = set(usable_cores(host))
    node = there if request.numa is None else there.intersection(node_cores(host, request.numa))
    usable = by_nearness(host, node)
    usable = usable[: len(usable) - request.leave_idle]
    chosen = usable[: request.cores] if request.pin else usable
    narrowed = request.pin or request.leave_idle > 0 or request.numa is not None or allocated(host) is not None
    return Placement(
        quota=float(request.cores) if request.cores is not None and not request.pin else None,
        cpuset=core_text(chosen) if narrowed else None,
        mems=None if request.numa is None else str(request.numa),
    )


def node_cores(host: Host, node: int) -> list[int]:
    """The online cores of a memory node."""
    try:
        return [core for core in cores(host.read(f"{_NODES}/node{node}/cpulist")) if core in online(host)]
    except (OSError, ValueError):
        return []


def by_nearness(host: Host, among: Iterable[int]) -> list[int]:
    """Cores in the order in which they are given out: one memory node after the other, second threads last in each."""
    nodes = _node_of(host)
    return sorted(among, key=lambda core: (nodes.get(core, 0), _is_second_thread(host, core), core))


def _node_of(host: Host) -> dict[int, int]:
    try:
        nodes = cores(host.read(f"{_NODES}/online"))
    except (OSError, ValueError):
        return {}
    return {core: node for node in nodes for core in node_cores(host, node)}


def _is_second_thread(host: Host, core: int) -> bool:
    try:
        siblings = cores(host.read(f"{_CPUS}/cpu{core}/topology/thread_siblings_list"))
    except (OSError, ValueError):
        return False
    return bool(siblings) and core != siblings[0]


def placement_facts(host: Host, quota: float | None, cpuset: str | None) -> dict[str, Any]:
    """What a record says of a place's cores: how many it may use, and the container-to-host core ratio (CHR)."""
    there = online(host)
    if not there:
        return {}
    pinned: Sequence[int] = cores(cpuset) if cpuset else usable_cores(host)
    usable = min(float(len(pinned)), quota if quota is not None else float(len(pinned)))
    return {"usable_cores": usable, "host_cores": len(there), "chr": usable / len(there)}


PERIOD_US = 100_000
_LEAST_MEMORY_BYTES = 6 << 20  # docker refuses less; and no interpreter starts in it
_LARGEST_PAGE_BYTES = 1 << 16  # the kernel rounds a memory limit down to whole pages


class Limits(Platform):
    """What a platform may be given less of."""

    quota: Annotated[float, Field(ge=0.01, allow_inf_nan=False)] | None = None
    """CPU time in cores: 1.5 is one and a half cores' worth in each period of 0.1 s; more is throttled."""

    cpuset: str | None = None
    """The cores that may be used, like 0-1 or 0,2: pinned to them."""

    memory: Annotated[SizeBytes, Field(ge=_LEAST_MEMORY_BYTES)] | None = None
    """Memory limit, like 2 GiB; swap is not given beyond it."""

    cpu_shares: Annotated[int, Field(ge=2, le=262144)] | None = None
    """CPU weight beside other containers that want the CPU at the same time, as `docker run --cpu-shares`; 1024 is
    what each has by default."""

    io_rate: Annotated[SizeBytes, Field(ge=4096)] | None = None
    """The most bytes that it may read of each disk in a second, and as many that it may write: like 20 MB. What the
    page cache holds is not limited."""

    cores: PositiveInt | None = None
    """How many cores it may use. Vanilla: a quota, and the scheduler picks the cores; with `pin`, always the same."""

    pin: bool = False
    """Pin it to the cores it may use: a cpuset instead of a quota."""

    numa: NonNegativeInt | None = None
    """Only cores and memory of this node."""

    leave_idle: NonNegativeInt = 0
    """So many cores of the device are left to others."""

    env: dict[str, str | None] = Field(default_factory=dict)
    """Variables of this side alone, as with `docker run -e`; null takes one away that the image or the study sets."""

    arguments: dict[str, str | None] = Field(default_factory=dict)
    """Options of a command or a server that have another value on this side alone: {--threads: "2"}; null takes one
    away, and one that the command does not have is added at its end."""

    ulimits: dict[Literal["core", "memlock", "nofile", "nproc", "stack"], Annotated[int, Field(ge=-1)]] = Field(
        default_factory=dict
    )
    """Limits of the workload's processes, as with `docker run --ulimit`: {memlock: 65536, nofile: 1024}, in bytes or
    numbers, soft and hard; -1 is none. The device's own by default, and nothing above its hard limits. Needs a Python
    in the image."""

    by_daemon: ClassVar[bool] = False
    """Whether its processes are children of a daemon, which runs on other cores than we do."""

    _mems: str | None = PrivateAttr(None)  # memory nodes, once the device is known

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self._placement_request().is_set() and (
            self.cpuset is not None or (self.quota is not None and self.cores is not None)
        ):
            raise ValueError(
                "say which cores in one way: a `cpuset` (and a `quota`), or `cores` with `pin`, `numa`, `leave_idle`"
            )
        return self

    @field_validator("cpuset", mode="before")
    @classmethod
    def _ranges(cls, value: object) -> object:
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and not cores(value):
            raise ValueError(f"{value!r} names no core; write them like '0-1' or '0,2'")
        return value

    @field_validator("arguments")
    @classmethod
    def _are_options(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        if wrong := [name for name in value if not name.startswith("-")]:
            raise ValueError(f"{wrong[0]!r} is no option; write it as in the command, like '--threads'")
        return value

    def __hash__(self) -> int:
        return hash(json.dumps(self.fields(), sort_keys=True))  # the default cannot hash `env`

    @classmethod
    def masked(cls, fields: Mapping[str, Json]) -> dict[str, Json]:
        shown = dict(fields)
        if given := _set(fields.get("env")):
            shown["env"] = {**fields["env"], **masked_env(given)}
        if given := _set(fields.get("arguments")):  # by the rule of command lines: --max-tokens is no secret
            words = masked_words([f"{name}={value}" for name, value in given.items()])
            shown["arguments"] = {**fields["arguments"], **dict(word.split("=", 1) for word in words)}
        return shown

    def settings(self) -> dict[str, Json]:
        """Without the fields of `LATER` that are not set, as records have it that are older than these."""
        return {name: value for name, value in super().settings().items() if name not in LATER or value}

    def variables(self) -> Mapping[str, str | None]:
        """Of this side, with one that the launcher reads: processes get their limits from who starts them."""
        limits = " ".join(f"{name}={value}" for name, value in self.ulimits.items())
        return {**self.env, "TARE_ULIMITS": limits} if limits else self.env

    def options(self) -> Mapping[str, str | None]:
        return self.arguments

    def _placement_request(self) -> PlacementRequest:
        return PlacementRequest(self.cores, self.pin, self.numa, self.leave_idle)

    def open(self, host: Host, site: Site) -> InnerHost:
        """Make the place on the cores that this very device has for it."""
        if isinstance(host, OwnDevice):
            processes.lease_name(site.name)
        placed = self.placed(host)
        place = placed.make(host, site)
        held = placed.in_force()
        if any(getattr(held, name) is not None for name in _RATES):
            try:
                hold_rates(host, held, place.scope().cgroups)
            except BaseException:
                place.close()
                raise
        place.facts.update(placement_facts(host, held.quota, held.cpuset))
        return place

    def in_force(self) -> Self:
        """The same with those limits only that the place really has: a platform may switch some of them off."""
        return self

    @abstractmethod
    def make(self, host: Host, site: Site) -> InnerHost:
        """Make the place; `quota` and `cpuset` are what the device is to hold. Otherwise as `Platform.open`."""

    def placed(self, host: Host) -> Self:
        """The same with the quota and the cores that meet `cores`, `pin`, `numa` and `leave_idle` on this device."""
        if not self._placement_request().is_set():
            # Without root a child inherits them; one of a daemon's does not.
            pinned = self.cpuset is None and (is_root(host) or self.by_daemon)
            given = allocated(host) if pinned else None
            return self if given is None else self.model_copy(update={"cpuset": core_text(given)})
        found = resolved(host, self._placement_request())
        quota = self.quota if found.quota is None else found.quota
        copy = self.model_copy(update={"quota": quota, "cpuset": found.cpuset})
        copy._mems = found.mems
        return copy

    @property
    def mems(self) -> str | None:
        """The memory nodes that may be used; None for all."""
        return self._mems

    def asked(self) -> bool:
        """Whether any limit was asked for."""
        plain = any(getattr(self, name) is not None for name in (*_CONTROLLERS, *_RATES))
        return plain or self._placement_request().is_set()

    def quota_us(self) -> int | None:
        """CPU time in each period of `PERIOD_US`."""
        return None if self.quota is None else round(self.quota * PERIOD_US)


_CONTROLLERS = {"quota": "cpu", "cpuset": "cpuset", "memory": "memory"}
_RATES = {"cpu_shares": ("cpu",), "io_rate": ("blkio", "io")}  # written by tare itself, whoever makes the place


def _set(given: Mapping[str, str | None] | None) -> dict[str, str]:
    """Those that have a value; None removes one."""
    return {name: value for name, value in (given or {}).items() if value is not None}


LATER = (
    "env", "arguments", "ulimits", "cpu_shares", "io_rate", "warm", "user", "hidden", "compiled", "taken", "taken_from",
    "entry",
)  # fmt: skip
_DISKS = "/sys/block"
_NO_DISKS = ("loop", "ram", "zram", "sr", "fd")


def limit_obstacles(host: Host, limits: Limits) -> list[Ruling]:
    """Why a limit cannot be held here. A limit that is quietly not there would make every number a lie."""
    stopped = obstacles(host, limits._placement_request())
    if stopped:
        return stopped
    limits = limits.placed(host)
    have = offered(host) if limits.asked() else set()
    stopped = [
        obstacle(
            "needs.cgroup",
            f"`{field}` needs the cgroup controller {controller!r}, and this kernel offers none "
            f"(here: {', '.join(sorted(have)) or 'no control groups'}).",
        )
        for field, controller in _CONTROLLERS.items()
        if getattr(limits, field) is not None and controller not in have
    ]
    stopped += [
        obstacle(
            "needs.cgroup", f"`{field}` needs the cgroup controller {' or '.join(named)}, and this kernel offers none."
        )
        for field, named in _RATES.items()
        if getattr(limits, field) is not None and not have & set(named)
    ]
    if limits.cpuset is not None and (missing := set(cores(limits.cpuset)) - set(usable_cores(host))):
        why = "not online" if allocated(host) is None else "not this Slurm job's"
        stopped.append(
            obstacle("needs.cores", f"`cpuset: {limits.cpuset}` names cores that are {why}: {sorted(missing)}.")
        )
    return stopped


def swap_is_counted(host: Host) -> bool:
    """Whether memory and swap can be limited together: version 1 may be booted without."""
    memory = hierarchies(host).get("memory")
    return memory is None or is_there(host, f"{memory.point}/memory.memsw.limit_in_bytes")


class Knob(NamedTuple):
    """One cgroup file and what it is to hold."""

    controller: str
    path: str
    text: str
    optional: bool = False  # swap is not accounted for on every machine; without it there is no swap to limit


def knobs(host: Host, limits: Limits, folders: Mapping[str, str]) -> list[Knob]:
    """The files to write for these limits, in the order in which the kernel takes them."""
    made: list[Knob] = []
    for field, controller in _CONTROLLERS.items():
        if getattr(limits, field) is None:
            continue
        found = locate(host, folders, controller)
        if found is None:
            raise ControlNotHeld(field, asked=getattr(limits, field), found="no such controller in this group")
        files = _FILES[field, found.version](limits)
        made += [Knob(controller, f"{found.folder}/{file}", text, optional) for file, text, optional in files]
    return made


def _cpuset_files(limits: Limits) -> list[tuple[str, str, bool]]:
    mems = [] if limits.mems is None else [("cpuset.mems", limits.mems, False)]
    return [*mems, ("cpuset.cpus", str(limits.cpuset), False)]


_Files: TypeAlias = Callable[[Limits], list[tuple[str, str, bool]]]
_FILES: dict[tuple[str, int], _Files] = {
    ("quota", 1): lambda limits: [
        ("cpu.cfs_period_us", str(PERIOD_US), False),
        ("cpu.cfs_quota_us", str(limits.quota_us()), False),
    ],
    ("quota", 2): lambda limits: [("cpu.max", f"{limits.quota_us()} {PERIOD_US}", False)],
    ("cpuset", 1): _cpuset_files,
    ("cpuset", 2): _cpuset_files,
    ("memory", 1): lambda limits: [
        ("memory.limit_in_bytes", str(limits.memory), False),
        ("memory.memsw.limit_in_bytes", str(limits.memory), True),
    ],
    ("memory", 2): lambda limits: [
        ("memory.max", str(limits.memory), False),
        ("memory.swap.max", "0", True),
    ],
}


def apply(host: Host, limits: Limits, folders: Mapping[str, str]) -> None:
    """Write the limits into a group of ours."""
    for knob in knobs(host, limits, folders):
        try:
            host.write(knob.path, knob.text)
        except FileNotFoundError:
            if not knob.optional:
                raise ControlNotHeld(knob.path, asked=knob.text, found="no such file") from None
        except OSError as error:
            raise ControlNotHeld(knob.path, asked=knob.text, found=error.strerror or error) from error


def check_held(host: Host, limits: Limits, folders: Mapping[str, str]) -> None:
    """Read every limit back, whoever set it: an engine may drop one with no more than a warning."""
    for knob in knobs(host, limits, folders):
        try:
            found = host.read(knob.path).strip()
        except FileNotFoundError:
            if knob.optional:
                continue
            raise ControlNotHeld(knob.path, asked=knob.text, found="no such file") from None
        if not _same(knob, found):
            raise ControlNotHeld(knob.path, asked=knob.text, found=found)


def hold_rates(host: Host, limits: Limits, folders: Mapping[str, str]) -> None:
    """Write the CPU weight and the rates of disks into a group that is there, and read them back."""
    for field, controllers in _RATES.items():
        if getattr(limits, field) is None:
            continue
        found = next((each for name in controllers if (each := locate(host, folders, name)) is not None), None)
        if found is None:
            raise ControlNotHeld(field, asked=getattr(limits, field), found="no such controller in this group")
        for file, text in _rate_files(host, limits, field, found.version):
            path = f"{found.folder}/{file}"
            try:
                host.write(path, text)
            except OSError as error:
                raise ControlNotHeld(path, asked=text, found=error.strerror or error) from error
            if not set(text.split()) <= set(held := host.read(path).split()):
                raise ControlNotHeld(path, asked=text, found=" ".join(held) or "nothing")


def _rate_files(host: Host, limits: Limits, field: str, version: int) -> list[tuple[str, str]]:
    if field == "cpu_shares":
        shares = int(limits.cpu_shares or 0)
        weight = 1 + (shares - 2) * 9999 // 262142  # as runtimes convert it
        return [("cpu.shares", str(shares)) if version == 1 else ("cpu.weight", str(weight))]
    rate, numbers = limits.io_rate, _disks(host)
    if version == 2:
        return [("io.max", f"{number} rbps={rate} wbps={rate}") for number in numbers]
    return [(f"blkio.throttle.{way}_bps_device", f"{number} {rate}") for number in numbers for way in ("read", "write")]


def _disks(host: Host) -> list[str]:
    """The numbers of all disks of the device, like `254:0`: not those that lie in memory or in a file."""
    listed = host.run(["ls", _DISKS]).out.split()
    found = [name for name in listed if not name.startswith(_NO_DISKS)]
    return [
        host.read(f"{_DISKS}/{name}/dev").strip() for name in found if host.read(f"{_DISKS}/{name}/size").strip() != "0"
    ]


def _same(knob: Knob, found: str) -> bool:
    if knob.controller == "cpuset":
        return bool(found) and cores(found) == cores(knob.text)
    if knob.controller == "memory" and found.isdigit() and knob.text.isdigit():
        return 0 <= int(knob.text) - int(found) < _LARGEST_PAGE_BYTES
    return found.split() == knob.text.split()

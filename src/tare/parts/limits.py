"""How much of the device a place may use: fields of every platform, and the cgroup files that hold them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, NamedTuple, Self, TypeAlias

from pydantic import Field, NonNegativeInt, PositiveInt, PrivateAttr, field_validator, model_validator

from tare.errors import ControlNotHeld
from tare.host import Host, LocalHost, Site
from tare.measures import SizeBytes
from tare.parts import claims, placement
from tare.parts.cgroups import hierarchies, locate, offered
from tare.parts.core_list import cores
from tare.parts.protocols import Platform

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

    cores: PositiveInt | None = None
    """How many cores it may use. Vanilla: a quota, and the scheduler picks the cores; with `pin`, always the same."""

    pin: bool = False
    """Pin it to the cores it may use: a cpuset instead of a quota."""

    numa: NonNegativeInt | None = None
    """Only cores and memory of this node."""

    leave_idle: NonNegativeInt = 0
    """So many cores of the device are left to others."""

    _mems: str | None = PrivateAttr(None)  # memory nodes, once the device is known

    @model_validator(mode="after")
    def _said_once(self) -> Self:
        if self._wish().asked() and (self.cpuset is not None or (self.quota is not None and self.cores is not None)):
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

    def _wish(self) -> placement.Wish:
        return placement.Wish(self.cores, self.pin, self.numa, self.leave_idle)

    def open(self, host: Host, site: Site) -> Host:
        """Make the place on the cores that this very device has for it."""
        if isinstance(host, LocalHost):
            claims.claim(site.name)
        placed = self.placed(host)
        place = placed.make(host, site)
        if (facts := getattr(place, "facts", None)) is not None:
            held = placed.in_force()
            facts.update(placement.facts(host, held.quota, held.cpuset))
        return place

    def in_force(self) -> Self:
        """The same with those limits only that the place really has: a platform may switch some of them off."""
        return self

    @abstractmethod
    def make(self, host: Host, site: Site) -> Host:
        """Make the place; `quota` and `cpuset` are what the device is to hold. Otherwise as `Platform.open`."""

    def placed(self, host: Host) -> Self:
        """The same with the quota and the cores that meet `cores`, `pin`, `numa` and `leave_idle` on this device."""
        if not self._wish().asked():
            return self
        found = placement.resolved(host, self._wish())
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
        plain = self.quota is not None or self.cpuset is not None or self.memory is not None
        return plain or self._wish().asked()

    def quota_us(self) -> int | None:
        """CPU time in each period of `PERIOD_US`."""
        return None if self.quota is None else round(self.quota * PERIOD_US)


_CONTROLLERS = {"quota": "cpu", "cpuset": "cpuset", "memory": "memory"}


def limit_obstacles(host: Host, limits: Limits) -> list[str]:
    """Why a limit cannot be held here. A limit that is quietly not there would make every number a lie."""
    have = offered(host) if limits.asked() else set()
    sentences = placement.obstacles(host, limits._wish())
    if sentences:
        return sentences
    limits = limits.placed(host)
    sentences = [
        f"`{field}` needs the cgroup controller {controller!r}, and this kernel offers none "
        f"(here: {', '.join(sorted(have)) or 'no control groups'})."
        for field, controller in _CONTROLLERS.items()
        if getattr(limits, field) is not None and controller not in have
    ]
    if limits.cpuset is not None and (missing := set(cores(limits.cpuset)) - set(placement.online(host))):
        sentences.append(f"`cpuset: {limits.cpuset}` names cores that are not online: {sorted(missing)}.")
    return sentences


def swap_is_counted(host: Host) -> bool:
    """Whether memory and swap can be limited together: version 1 may be booted without."""
    memory = hierarchies(host).get("memory")
    if memory is None:
        return True
    try:
        host.read(f"{memory.point}/memory.memsw.limit_in_bytes")
    except OSError:
        return False
    return True


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


def _same(knob: Knob, found: str) -> bool:
    if knob.controller == "cpuset":
        return bool(found) and cores(found) == cores(knob.text)
    if knob.controller == "memory" and found.isdigit() and knob.text.isdigit():
        return 0 <= int(knob.text) - int(found) < _LARGEST_PAGE_BYTES
    return found.split() == knob.text.split()

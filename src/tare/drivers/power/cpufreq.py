"""CPU clocks on any Linux with cpufreq: upper and lower limit and governor of each policy, and boost.

A setting belongs to a core, `cpufreq.cpu3.max_khz`, because the cores of a policy cannot be asked for while they are
offline; cores of one policy say the same, and it is written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from tare.base.errors import ControlNotHeld, TareError
from tare.base.host import Host, may_write
from tare.base.rulings import Ruling, obstacle
from tare.drivers.cgroups.tree import is_there
from tare.drivers.power.backend import (
    NO_LIMIT,
    OFF,
    PowerRequest,
    Settings,
    every,
    in_safe_order,
    known,
    nearest,
    put,
    unsupported,
)
from tare.drivers.power.hotplug import FOLDER, online, online_then, present

_FILES = {"max_khz": "scaling_max_freq", "min_khz": "scaling_min_freq", "governor": "scaling_governor"}
_BOOST = {  # what the file says when clocks may go above the nominal one
    f"{FOLDER}/intel_pstate/no_turbo": "0",
    f"{FOLDER}/cpufreq/boost": "1",
}
BOOST = "cpufreq.boost"
FIXED_GOVERNOR = "performance"


class Cpufreq:
    """Limits, governor and boost."""

    name = "cpufreq"
    rank = 40

    def offers(self, host: Host) -> frozenset[str]:
        fields = set() if next(_policies(host), None) is None else {"cpu_mhz", "governor"}
        return frozenset(fields | ({"boost"} if _boost_file(host) else set()))

    def obstacles(self, host: Host, request: PowerRequest) -> list[Ruling]:
        stopped = []
        there = list(_policies(host))
        ranges = [_range_mhz(host, core) for core in there]
        if request.cpu_mhz is not None and all(_khz(host, core, request.cpu_mhz) is None for core in there):
            table = sorted({value for values in ranges for value in values})
            stopped.append(obstacle("needs.value", unsupported("cpu_mhz", request.cpu_mhz, table, "no CPU core here")))
        if request.governor is not None and there:
            known_here = _words(host, there[0], "scaling_available_governors")
            if request.governor not in known_here:
                stopped.append(
                    obstacle(
                        "needs.value",
                        f"`governor: {request.governor}`: this kernel has {', '.join(known_here) or 'none'}.",
                    )
                )
        files = [_path(core, "max_khz") for core in there[:1]]
        files += [_boost_file(host) or ""] if request.boost is not None else []
        if request.asked() & {"cpu_mhz", "governor", "boost"} and not all(may_write(host, path) for path in files):
            stopped.append(obstacle("needs.root", "`cpu_mhz`, `governor` and `boost`: setting CPU clocks needs root."))
        return stopped

    def target(self, host: Host, request: PowerRequest) -> Settings:
        there = online_then(host, request)
        made: Settings = {}
        for core in present(host):
            names = _names(request)
            if core not in there:
                made |= {_key(core, name): OFF for name in names}
            elif names:
                made |= self._of_core(host, core, request)
        return made | self._boost(host, request)

    def read(self, host: Host, request: PowerRequest) -> Settings:
        made = {_key(core, name): _stands(host, core, name) for core in present(host) for name in _names(request)}
        return made | ({BOOST: _boost_now(host)} if _has_boost(host, request) else {})

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        """Limits, then governors, then boost, which a governor may reset (intel_pstate), then what that has moved.

        A core that is not there fails at the end: the others have got theirs.
        """
        known(self.name, settings, [*(_key(core, name) for core in present(host) for name in _FILES), BOOST])
        limits = [partial(_write_limits, host, core, settings) for core in _policies(host)]
        governors = [partial(_write_governor, host, core, settings) for core in _policies(host)]
        boost = [partial(_write_boost, host, settings[BOOST])] if BOOST in settings else []
        every([*limits, *governors, *boost, *limits, partial(self._refuse_offline, host, settings)])

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        there = list(_policies(host))
        if not there:
            return {}
        clocks = sorted({value for core in there for value in _range_mhz(host, core)})
        has_table = bool(_words(host, there[0], "scaling_available_frequencies"))
        found: dict[str, Sequence[Any]] = {
            "cpu_mhz": clocks if has_table else (clocks[0], clocks[-1]),
            "governor": _words(host, there[0], "scaling_available_governors"),
        }
        return found | ({"boost": [False, True]} if _boost_file(host) else {})

    def fixed(self, host: Host) -> Settings:
        """The lower limit at the upper one, and the governor that stays there."""
        made: Settings = {}
        for core in present(host):
            made[_key(core, "min_khz")] = _stands(host, core, "max_khz")
            governor = _stands(host, core, "governor")
            can = governor != OFF and FIXED_GOVERNOR in _words(host, core, "scaling_available_governors")
            made[_key(core, "governor")] = FIXED_GOVERNOR if can else governor
        return made | self._boost(host, PowerRequest(governor=FIXED_GOVERNOR))

    def free(self, host: Host) -> Settings:
        """The lower limit at the hardware's own, and a governor that follows the load."""
        made: Settings = {}
        for core in present(host):
            lowest, governor = _stands(host, core, "min_khz"), _stands(host, core, "governor")
            if lowest != OFF:
                lowest = host.read(f"{_folder(core)}/cpuinfo_min_freq").strip()
            if governor in (FIXED_GOVERNOR, "userspace"):
                others = _words(host, core, "scaling_available_governors")
                governor = next((one for one in ("schedutil", "ondemand", "powersave") if one in others), governor)
            made |= {_key(core, "min_khz"): lowest, _key(core, "governor"): governor}
        return made | self._boost(host, PowerRequest(governor=FIXED_GOVERNOR))

    def clocks(self, host: Host) -> Settings:
        names = ("min_khz", "governor")
        made = {_key(core, name): _stands(host, core, name) for core in present(host) for name in names}
        return made | ({BOOST: _boost_now(host)} if _boost_file(host) else {})

    def _of_core(self, host: Host, core: int, request: PowerRequest) -> Settings:
        made: Settings = {}
        if request.cpu_mhz is not None:
            low = _stands(host, core, "min_khz")
            requested = core if low != OFF else next(_policies(host))  # one that is offline counts as identical
            high = _khz(host, requested, request.cpu_mhz)
            if high is None:
                raise TareError(f"`cpu_mhz: {request.cpu_mhz:g}` is no clock of core {core}")
            floor = host.read(f"{_folder(requested)}/cpuinfo_min_freq").strip() if low == OFF else low
            made[_key(core, "max_khz")] = str(high)
            made[_key(core, "min_khz")] = str(min(int(floor), high))
        if request.governor is not None:
            made[_key(core, "governor")] = request.governor
        return made

    def _boost(self, host: Host, request: PowerRequest) -> Settings:
        """As asked for; where only the governor is changed, as it is: some drivers reset it with the governor."""
        if not _has_boost(host, request):
            return {}
        return {BOOST: _boost_now(host) if request.boost is None else "on" if request.boost else "off"}

    def _refuse_offline(self, host: Host, settings: Mapping[str, str]) -> None:
        for core in set(present(host)) - online(host):
            if any(settings.get(_key(core, name), OFF) != OFF for name in _FILES):
                raise ControlNotHeld(f"cpufreq.cpu{core}", asked="its clocks", found="that the core is offline")


BACKEND = Cpufreq()


def _policies(host: Host) -> Iterator[int]:
    """One core of each policy that can be asked, the first that is online."""
    on, seen = online(host), set[int]()
    for core in present(host):
        if core in seen or core not in on:
            continue
        try:
            related = host.read(f"{_folder(core)}/related_cpus")
        except OSError:
            continue
        seen |= {int(word) for word in related.split() if word.isdecimal()} | {core}
        yield core


def _folder(core: int) -> str:
    return f"{FOLDER}/cpu{core}/cpufreq"


def _path(core: int, name: str) -> str:
    return f"{_folder(core)}/{_FILES[name]}"


def _key(core: int, name: str) -> str:
    return f"cpufreq.cpu{core}.{name}"


def _names(request: PowerRequest) -> list[str]:
    limits = ["max_khz", "min_khz"] if request.cpu_mhz is not None else []
    return limits + (["governor"] if request.governor is not None else [])


def _stands(host: Host, core: int, name: str) -> str:
    return host.read(_path(core, name)).strip() if core in online(host) else OFF


def _words(host: Host, core: int, file: str) -> list[str]:
    try:
        return host.read(f"{_folder(core)}/{file}").split()
    except OSError:
        return []


def _range_mhz(host: Host, core: int) -> list[float]:
    """The clocks that a core can have; where the driver takes any between two, those two."""
    words = _words(host, core, "scaling_available_frequencies")
    words += _words(host, core, "scaling_boost_frequencies") if words else []
    ends = [*_words(host, core, "cpuinfo_min_freq"), *_words(host, core, "cpuinfo_max_freq")]
    return sorted({int(word) / 1000 for word in words or ends if word.isdecimal()})


def _khz(host: Host, core: int, asked_mhz: float) -> int | None:
    """The limit that was meant; cores whose highest clock lies below it are not limited by it."""
    has = _range_mhz(host, core)
    if not has:
        return None
    if asked_mhz == NO_LIMIT:
        return round(has[-1] * 1000)
    if not _words(host, core, "scaling_available_frequencies") and has[0] <= asked_mhz <= has[-1]:
        return round(asked_mhz * 1000)
    best = nearest(asked_mhz, has)
    # Other cores of this machine do have such a clock: big ones beside little ones.
    if (
        best is None
        and asked_mhz > has[-1]
        and any(_range_mhz(host, each)[-1:] >= [asked_mhz] for each in _policies(host))
    ):
        best = has[-1]
    return None if best is None else round(best * 1000)


def _write_limits(host: Host, core: int, settings: Mapping[str, str]) -> None:
    now = (int(_stands(host, core, "min_khz")), int(_stands(host, core, "max_khz")))
    texts = settings.get(_key(core, "min_khz"), str(now[0])), settings.get(_key(core, "max_khz"), str(now[1]))
    if any(not text.isdecimal() for text in texts):
        raise TareError(f"cpufreq: {texts!r} are no limits of a clock")
    for end, value in in_safe_order(now, (int(texts[0]), int(texts[1]))):
        put(host, _key(core, f"{end}_khz"), _path(core, f"{end}_khz"), f"{value:.0f}")


def _write_governor(host: Host, core: int, settings: Mapping[str, str]) -> None:
    wanted = settings.get(_key(core, "governor"), OFF)
    if wanted == OFF or wanted == _stands(host, core, "governor"):
        return
    if wanted not in _words(host, core, "scaling_available_governors"):
        raise TareError(f"cpufreq: no governor {wanted!r} here")
    put(host, _key(core, "governor"), _path(core, "governor"), wanted)


def _boost_file(host: Host) -> str | None:
    return next((path for path in _BOOST if is_there(host, path)), None)


def _has_boost(host: Host, request: PowerRequest) -> bool:
    return (request.boost is not None or request.governor is not None) and _boost_file(host) is not None


def _boost_now(host: Host) -> str:
    path = _boost_file(host)
    if path is None:
        raise TareError("cpufreq: this machine has no switch for boost")
    return "on" if host.read(path).strip() == _BOOST[path] else "off"


def _write_boost(host: Host, wanted: str) -> None:
    path = _boost_file(host)
    if path is None or wanted not in ("on", "off"):
        raise TareError(f"cpufreq: boost cannot be {wanted!r} here")
    if _boost_now(host) != wanted:
        on = _BOOST[path]
        put(host, BOOST, path, on if wanted == "on" else str(1 - int(on)))

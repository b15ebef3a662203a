"""The clocks of a Jetson, written through the files that its own nvpmodel.conf names.

`jetson.GPU.MAX_FREQ` is the file that the board's configuration calls so. Not run on hardware here: built against
recorded configurations and fake trees (docs/how-to/jetson.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tare.base.errors import ControlNotHeld, TareError
from tare.base.host import Host, may_write
from tare.base.rulings import Ruling, obstacle
from tare.drivers.power import named_mode
from tare.drivers.power.backend import (
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
from tare.drivers.power.hotplug import online_then
from tare.drivers.power.named_mode import (
    HIGH,
    LOW,
    TABLE,
    Clock,
    PowerModel,
    clocks,
    is_off,
    mhz,
    model_of,
    stands,
    table,
)

ALL_CLOCKS = "jetson.jetson_clocks"
FOR_MODE = "jetson.for_mode"  # no state: the mode that the others are measured by, so that `write` knows it too


class Jetson:
    """Limits of the board's CPU, GPU and memory clocks; those of its own modes too."""

    name = "jetson"
    rank = 30

    def offers(self, host: Host) -> frozenset[str]:
        try:
            fields = {clock.field for clock in clocks(host)}
        except TareError:
            return frozenset()
        named = frozenset(field for field in fields if field)
        return named | {"mode"} if named else named  # a mode sets clocks too

    def obstacles(self, host: Host, request: PowerRequest) -> list[Ruling]:
        stopped = []
        for clock in clocks(host):
            requested = _asked(request, clock)
            if requested is not None and nearest(requested, has := mhz(host, clock)) is None:
                stopped.append(
                    obstacle("needs.value", unsupported(str(clock.field), requested, has, f"the board's {clock.param}"))
                )
            if requested is not None and not is_off(host, clock) and not may_write(host, clock.files[HIGH]):
                stopped.append(obstacle("needs.root", f"`{clock.field}`: setting clocks needs root."))
        return list(dict.fromkeys(stopped))

    def target(self, host: Host, request: PowerRequest) -> Settings:
        model = model_of(host, request)
        there = online_then(host, request)
        made: Settings = {}
        for clock in clocks(host):
            if clock.core is not None and clock.core not in there:
                made |= dict.fromkeys(_names(clock, request, model), OFF)
            elif (requested := _asked(request, clock)) is not None:
                made |= _limits(host, clock, requested)
            elif model is not None:
                made |= _of_mode(host, clock, model)
        return made if model is None else {**made, FOR_MODE: str(model.id)}

    def read(self, host: Host, request: PowerRequest) -> Settings:
        model = model_of(host, request)
        made: Settings = {}
        for clock in clocks(host):
            reported = None if _asked(request, clock) is not None else model
            for name in _names(clock, request, model):
                made[name] = _rounded_as_told(host, clock, name.rpartition(".")[2], reported)
        return made if model is None else {**made, FOR_MODE: str(model.id)}

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        there = list(clocks(host))
        names = [clock.key(end) for clock in there for end in (HIGH, LOW)]
        known(self.name, settings, [*names, ALL_CLOCKS, FOR_MODE])
        model = model_of(host, PowerRequest(mode=settings.get(FOR_MODE)))
        tool = [partial(named_mode.put, host, settings[ALL_CLOCKS])] if ALL_CLOCKS in settings else []
        every([*tool, *(partial(_write, host, clock, settings, model) for clock in there)])

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        found: dict[str, set[float]] = {}
        for clock in clocks(host):
            if clock.field:
                found.setdefault(clock.field, set()).update(mhz(host, clock))
        return {field: sorted(values) for field, values in found.items()}

    def fixed(self, host: Host) -> Settings:
        made = {clock.key(LOW): stands(host, clock, HIGH) for clock in _held(host)}
        return made | ({ALL_CLOCKS: named_mode.ON} if named_mode.is_there(host) else {})

    def free(self, host: Host) -> Settings:
        made = {}
        for clock in _held(host):
            now, has = stands(host, clock, LOW), table(host, clock)
            made[clock.key(LOW)] = str(has[0]) if has and now != OFF else now
        return made | ({ALL_CLOCKS: named_mode.AS_FOUND} if named_mode.is_there(host) else {})

    def clocks(self, host: Host) -> Settings:
        made = {clock.key(LOW): stands(host, clock, LOW) for clock in _held(host)}
        return made | ({ALL_CLOCKS: named_mode.standing()} if named_mode.is_there(host) else {})


BACKEND = Jetson()


def memory_moves(host: Host) -> bool:
    """Whether this is a board with a memory clock that nothing here can fix: only jetson_clocks knows how."""
    return any(clock.field == "mem_mhz" for clock in clocks(host)) and not named_mode.is_there(host)


def stated(host: Host, mode: str) -> Settings:
    """The limits in the very words of a board's mode; a kernel may show them so."""
    model = model_of(host, PowerRequest(mode=mode))
    names = {clock.key(end): _stated(model, clock, end) for clock in clocks(host) for end in (HIGH, LOW) if model}
    return {name: text for name, text in names.items() if text is not None}


def _asked(request: PowerRequest, clock: Clock) -> float | None:
    return getattr(request, clock.field) if clock.field else None


def _names(clock: Clock, request: PowerRequest, model: PowerModel | None) -> list[str]:
    """The settings of this clock that a request is about."""
    ends = [end for end in (HIGH, LOW) if end in clock.files]
    if _asked(request, clock) is None:
        values = model.values if model else ()
        stated = {value.key: value.text for value in values if value.param == clock.param}
        # What is the highest of a clock without a table, only nvpmodel knows: it puts that back by itself.
        ends = [end for end in ends if end in stated and (stated[end] != "-1" or TABLE in clock.files)]
    return [clock.key(end) for end in ends]


def _limits(host: Host, clock: Clock, requested: float) -> Settings:
    """The upper limit that was asked for; the lower one stays, unless it would lie above."""
    has = table(host, clock)
    best = nearest(requested, mhz(host, clock))
    if best is None:
        raise TareError(unsupported(str(clock.field), requested, mhz(host, clock), f"the board's {clock.param}"))
    high = next(value for value in has if value / clock.per_mhz == best)
    made = {clock.key(HIGH): str(high)}
    if LOW in clock.files:
        now = stands(host, clock, LOW)
        made[clock.key(LOW)] = str(has[0]) if now == OFF else now if int(now) <= high else str(high)
    return made


def _of_mode(host: Host, clock: Clock, model: PowerModel) -> Settings:
    """What the mode's limits come to on this hardware."""
    made = {}
    for name in _names(clock, PowerRequest(mode=model.name), model):
        end = name.rpartition(".")[2]
        text = str(_stated(model, clock, end))
        has = table(host, clock)
        if text == "-1" and not has:
            raise TareError(f"the clocks that {clock.param} of this board can have, cannot be read")
        made[name] = str(has[-1]) if text == "-1" else _rounded(host, clock, end, text)
    return made


def _stated(model: PowerModel, clock: Clock, end: str) -> str | None:
    """What the mode says of one limit; None where it says nothing."""
    return next((value.text for value in model.values if (value.param, value.key) == (clock.param, end)), None)


def _rounded_as_told(host: Host, clock: Clock, end: str, model: PowerModel | None) -> str:
    """One limit as it stands. What the mode says and the hardware lacks (640 MHz) counts as what it comes to.

    Some kernels show such a limit as it was written, others what it comes to: both are the mode, as it should be.
    """
    now = stands(host, clock, end)
    is_told = model is not None and now == _stated(model, clock, end)
    return _rounded(host, clock, end, now) if is_told else now


def _rounded(host: Host, clock: Clock, end: str, text: str) -> str:
    """What the kernel makes of a value between two that the hardware has: a limit is never overstepped."""
    has = table(host, clock)
    if not has or not text.isdecimal():
        return text
    value = int(text)
    if end == LOW:
        return str(min((one for one in has if one >= value), default=has[-1]))
    if value == 0:  # no limit
        return str(has[-1])
    return str(max((one for one in has if one <= value), default=has[0]))


def _write(host: Host, clock: Clock, settings: Mapping[str, str], model: PowerModel | None) -> None:
    wanted = {end: settings[clock.key(end)] for end in (HIGH, LOW) if clock.key(end) in settings}
    wanted = {end: text for end, text in wanted.items() if text != OFF}
    if not wanted:
        return
    now = {end: stands(host, clock, end) for end in (HIGH, LOW) if end in clock.files}
    if OFF in now.values():
        raise ControlNotHeld(f"jetson.{clock.param}", asked=wanted, found=f"core {clock.core} is offline")
    if any(not text.isdecimal() for text in wanted.values()):
        raise TareError(f"jetson.{clock.param}: {wanted!r} are no clocks")
    right = [end for end, text in wanted.items() if text == _rounded_as_told(host, clock, end, model)]
    then = now | {end: text for end, text in wanted.items() if end not in right}
    for end, value in in_safe_order(_pair(now), _pair(then)):
        name = HIGH if end == "max" else LOW
        put(host, clock.key(name), clock.files[name], f"{value:.0f}")


def _pair(limits: Mapping[str, str]) -> tuple[int, int]:
    """The lower and the upper limit; a clock without a lower one has it at nought."""
    return int(limits.get(LOW, "0")), int(limits[HIGH])


def _held(host: Host) -> list[Clock]:
    """The clocks that can be fixed by their lower limit."""
    return [clock for clock in clocks(host) if LOW in clock.files and clock.field]

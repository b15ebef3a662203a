"""The modes that a Jetson itself knows, by `nvpmodel -q` and `nvpmodel -m`.

The mode outlives a reboot, so it is put back after one too. Not run on hardware here (docs/how-to/power-modes.md).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tare.errors import ControlNotHeld, TareError
from tare.host import Host, LocalHost
from tare.parts.nvpmodel import Conf, PowerModel
from tare.parts.power import cpusets
from tare.parts.power.backend import Settings, Wish, WithoutClocks, known
from tare.parts.power.board import board
from tare.parts.power.hotplug import online

COMMAND = "nvpmodel"
STATUS = "/var/lib/nvpmodel/status"  # where nvpmodel itself keeps the mode over a reboot
KEY = "nvpmodel.mode"
LIMIT_S = 15.0
_TIMED_OUT = 124
_NOT_THERE = 127
_PMODE = re.compile(r"pmode:0*(\d+)")


class NamedMode(WithoutClocks):
    """The number of the board's mode."""

    name = "nvpmodel"
    rank = 10

    def offers(self, host: Host) -> frozenset[str]:
        try:
            conf = board(host)
        except TareError:
            return frozenset()
        return frozenset({"mode"}) if conf and conf.models else frozenset()

    def obstacles(self, host: Host, wish: Wish) -> list[str]:
        conf = board(host)
        if conf is None or wish.mode is None:
            return []
        model = conf.model(wish.mode)
        if model is None:
            here = ", ".join(f"{one.name} ({one.id})" for one in conf.models)
            return [f"this board has no mode {wish.mode!r}; its modes are {here}."]
        if host.run(["which", COMMAND], limit_s=5).code != 0:
            return [
                f"`{COMMAND}` is not on this board, so that its modes cannot be set; name cores and clocks instead."
            ]
        sentences = [_reboot(model)] if needs_reboot(host, conf, model) else []
        if isinstance(host, LocalHost) and os.geteuid() != 0:
            sentences.append("changing the board's mode needs root.")
        return sentences

    def target(self, host: Host, wish: Wish) -> Settings:
        model = _model(host, wish)
        return {} if model is None else {KEY: str(model.id)}

    def read(self, host: Host, wish: Wish) -> Settings:
        return {} if _model(host, wish) is None else {KEY: current(host)}

    def write(self, host: Host, settings: Mapping[str, str]) -> None:
        conf = board(host)
        known(self.name, settings, [KEY])
        model = conf.model(settings[KEY]) if conf else None
        if model is None:
            raise TareError(f"nvpmodel: this board has no mode {settings[KEY]!r}")
        if current(host) == settings[KEY]:
            return
        if (now := online(host)) - {core for core, on in model.cores().items() if on}:
            cpusets.keep(host, now)
        _set(host, model)

    def values(self, host: Host) -> dict[str, Sequence[Any]]:
        conf = board(host)
        return {"mode": [model.name for model in conf.models]} if conf else {}


BACKEND = NamedMode()


def with_cores(host: Host, wish: Wish) -> Wish:
    """The wish with the cores that the board's mode leaves online, unless it says how many itself."""
    model = _model(host, wish)
    if model is None or wish.cores is not None or not model.cores():
        return wish
    on = [core for core, is_on in sorted(model.cores().items()) if is_on]
    return Wish(**{name: getattr(wish, name) for name in wish.asked()} | {"online": tuple(on)})


def current(host: Host) -> str:
    """The number of the mode now. An nvpmodel that hangs has written it down all the same."""
    asked = host.run([COMMAND, "-q"], limit_s=LIMIT_S)
    numbers = [line.strip() for line in asked.out.splitlines() if line.strip().isdecimal()]
    if asked.code == 0 and numbers:
        return str(int(numbers[-1]))
    try:
        kept = _PMODE.search(host.read(STATUS))
    except OSError:
        kept = None
    if kept is None:
        said = (asked.err or asked.out).strip() or "it said nothing"
        raise TareError(f"`{COMMAND} -q` does not say which mode the board is in: {said}")
    return kept[1]


def needs_reboot(host: Host, conf: Conf, model: PowerModel) -> bool:
    """Whether the mode gates other parts of the chip than are gated now: that is done at boot only."""
    for value in model.values:
        param = conf.params.get(value.param)
        path = param.files.get(value.key) if param and value.param.endswith("POWER_GATING") else None
        try:
            if path and int(host.read(path).strip(), 0) != int(value.text, 0):
                return True
        except (OSError, ValueError):
            continue
    return False


def _model(host: Host, wish: Wish) -> PowerModel | None:
    conf = board(host)
    return conf.model(wish.mode) if conf and wish.mode is not None else None


def _reboot(model: PowerModel) -> str:
    return (
        f"the mode {model.name} needs a reboot, and a study does not reboot the board: "
        f"`sudo nvpmodel -m {model.id}`, answer yes, then run this again for that mode alone."
    )


def _set(host: Host, model: PowerModel) -> None:
    """Its question whether to reboot finds nobody who answers, and is taken for what it is."""
    done = host.run([COMMAND, "-m", str(model.id)], limit_s=LIMIT_S)
    said = f"{done.out}\n{done.err}"
    if "reboot" in said.lower():
        raise ControlNotHeld("power_mode", asked=model.name, found=f"that it needs a reboot: {_reboot(model)[:-1]}")
    if done.code == _TIMED_OUT:
        raise ControlNotHeld("power_mode", asked=model.name, found=f"nothing: nvpmodel did not end in {LIMIT_S:g} s")
    if done.code == _NOT_THERE or done.code != 0:
        raise ControlNotHeld("power_mode", asked=model.name, found=said.strip().splitlines()[-1:] or "nothing")
    if (now := current(host)) != str(model.id):
        raise ControlNotHeld("power_mode", asked=f"{model.name} ({model.id})", found=f"mode {now}")

"""Nothing: for a while (a device's idle power, its baseload, or asleep), or at all (a platform's own cost)."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import model_validator

from tare.base.errors import TareError
from tare.base.host import Host, Job, OwnDevice
from tare.base.rulings import Ruling, obstacle
from tare.base.units import PositiveSeconds, Seconds
from tare.drivers.kernel_files import text_of, waking_clock
from tare.drivers.places import built_in_env, launched
from tare.parts.protocols import Machine, Workload

LOG_PERIOD_S = 0.1
LEAST_SLEEP_S, LEAST_SETTLE_S = 60.0, 30.0  # a meter's counter has to move before the sleep and after it
POWER_STATE = "/sys/power/state"
_NO_CLOCK = "no clock in /sys/class/rtc has a wakealarm and `enabled` in device/power/wakeup."


class Idle(Workload):
    """Sleep while the probes log: what the device draws on a platform and in a mode with no work to do."""

    short: ClassVar[str | None] = "duration"

    duration: PositiveSeconds = 60.0
    """How long to watch; a power sensor that is read each second needs a minute for 60 samples."""
    settle: Seconds = 5.0
    """How long to wait before that, for what ran earlier to die away; after a sleep again."""

    logging: bool = False
    """Run a logging script on the platform meanwhile, ten times per second: how much power does logging itself take?"""

    state: Literal["awake", "suspended"] = "awake"
    """suspended: the device sleeps to memory for `duration`, and its clock's alarm wakes it. On bare metal alone, with
    the control `wake_on_lan` and a meter at the socket that counts energy (`external: {energy: ...}`)."""

    @model_validator(mode="after")
    def _can_be_measured(self) -> Self:
        short = self.duration < LEAST_SLEEP_S or self.settle < LEAST_SETTLE_S
        if self.state == "suspended" and (self.logging or short):
            least = f"`duration` of at least {LEAST_SLEEP_S:g} s and a `settle` of at least {LEAST_SETTLE_S:g} s"
            raise ValueError(f"a suspended device takes a {least}, and cannot log")
        return self

    def obstacles(self, host: Host) -> list[Ruling]:
        return list(_why_it_cannot_sleep(host))[:1] if self.state == "suspended" else []

    def title(self) -> str:
        what = "a suspended" if self.state == "suspended" else "an idle"
        return f"{what} device{' that logs' if self.logging else ''}, {self.duration:g} s"

    def shortened(self) -> Self:
        return self.model_copy(update={"duration": min(self.duration, 1.0), "settle": 0.0, "state": "awake"})

    def units(self) -> int | None:
        return 1

    def asleep_s(self) -> float:
        return self.duration if self.state == "suspended" else 0.0

    def guessed_s(self, machine: Machine) -> float | None:
        return self.settle * (2 if self.state == "suspended" else 1) + self.duration

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        program = workdir / "inside" / "tare_inside" / "programs" / "idle.py"
        period_s = LOG_PERIOD_S if self.logging else 0
        argv = [place.python, str(program), str(self.settle), str(self.duration), str(period_s)]
        if self.state == "suspended":
            if others := _others(place):  # they may have come since the run began
                raise TareError(f"the device is not suspended: {others}")
            argv += [waking_clock(place) or "no clock", POWER_STATE]
        return Job(launched(place.python, workdir, argv), built_in_env(workdir, "default"), str(workdir))


def _why_it_cannot_sleep(host: Host) -> Iterator[Ruling]:
    if not isinstance(host, OwnDevice):
        yield obstacle("needs.full-device", "only a device that tare itself runs on can be suspended.")
    if "mem" not in (text_of(host, POWER_STATE) or "").split():
        yield obstacle("needs.kernel", f"this device cannot sleep to memory: {POWER_STATE} does not name `mem`.")
    if waking_clock(host) is None:
        yield obstacle("needs.hardware", f"nothing would wake this device: {_NO_CLOCK}")
    if " hypervisor" in (text_of(host, "/proc/cpuinfo") or ""):
        yield obstacle("needs.hardware", "this is a virtual machine, whose sleep is not that of a device.")
    if os.geteuid() != 0:
        yield obstacle("needs.root", "suspending the device needs root.")
    if others := _others(host):
        yield obstacle("needs.value", others)


def _others(host: Host) -> str:
    """Who else is logged in, as a sentence; empty where nobody is."""
    told = host.run(["who"])
    own = os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name
    users = sorted({line.split()[0] for line in told.out.splitlines()} - {own})
    if told.code:
        return "who is logged in here is not known: `who` failed."
    return f"others are logged in here ({', '.join(users)})." if users else ""


class Null(Workload):
    """Start a program that does nothing, and end: the cost of the platform alone."""

    def obstacles(self, host: Host) -> list[Ruling]:
        return []

    def title(self) -> str:
        return "nothing (the null workload)"

    def guessed_s(self, machine: Machine) -> float | None:
        return 0.2

    def job(self, place: Host, workdir: Path, seed: int) -> Job:
        return Job(launched(place.python, workdir, ["true"]), built_in_env(workdir, "default"), str(workdir))

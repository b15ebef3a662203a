"""The device's power mode: by the name or number that a board knows, or as cores, clocks and watts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from tare.base.host import Host
from tare.base.rulings import Ruling, obstacle
from tare.drivers.power import everything
from tare.drivers.power.backend import PowerRequest
from tare.parts.protocols import Control, Json

_NAME = re.compile(r"[A-Za-z0-9_.()|+-]{1,64}")
_WORDS = {  # how each field is told in a table
    "cores": "{:g} cores",
    "cpu_mhz": "CPU {:g} MHz",
    "gpu_mhz": "GPU {:g} MHz",
    "mem_mhz": "memory {:g} MHz",
    "power_w": "{:g} W",
    "governor": "governor {}",
    "boost": "boost {}",
}


def _mode(value: Any) -> Any:
    """A number is a name too: `power_mode: 2`."""
    if type(value) is int and value >= 0:
        return str(value)
    if isinstance(value, str) and not _is_label(value) and not _NAME.fullmatch(value):
        raise ValueError("{given} is no name of a mode; clocks are written {cores: 4, cpu_mhz: 1200}")
    return value


Mhz = Annotated[float, Field(gt=0, le=100_000)]


class PowerMode(Control):
    """Limits cores, clocks and power for the time of a trial.

    Below the limits clocks may move, but for those of an NVIDIA card, which are locked at them; `dvfs` says otherwise.
    """

    short: ClassVar[str | None] = "mode"
    example: ClassVar[Mapping[str, Json]] = {"mode": everything.UNLIMITED}
    restore_rank: ClassVar[int] = 20
    hold_rank: ClassVar[int] = 40

    mode: Annotated[str | None, BeforeValidator(_mode)] = None
    """A name or a number that the board knows (`nvpmodel`); MAXN means no limits on every device. By default the
    other fields in words."""
    cores: Annotated[int, Field(ge=1, le=8192)] | None = None
    """So many CPU cores stay online, the first ones."""
    cpu_mhz: Mhz | None = None
    """The highest CPU clock; the nearest that the hardware has, if it is within 1.5 %."""
    gpu_mhz: Mhz | None = None
    """The highest GPU clock; an NVIDIA card is locked at it, and with `dvfs: on` free below it."""
    mem_mhz: Mhz | None = None
    """The highest memory clock of the board; that of an NVIDIA card's own memory is locked at it."""
    power_w: Annotated[float, Field(gt=0, le=100_000)] | None = None
    """What the GPU may draw."""
    governor: Annotated[str, Field(pattern=r"^[a-z_]{1,32}$")] | None = None
    """The governor of the CPU's clock."""
    boost: StrictBool | None = None
    """Whether CPU clocks may go above the nominal one."""

    @model_validator(mode="before")
    @classmethod
    def _labelled(cls, data: Any) -> Any:
        """A mode without a name is called by what it sets, so that tables and comparisons can tell modes apart."""
        if not isinstance(data, dict):
            return data
        named = data.get("mode")
        if named is not None and not (isinstance(named, str) and _is_label(named)):
            return data
        label = _label(data)
        if named is not None and label is None:
            raise ValueError(f"{named!r} is no name of a mode; clocks are written {{cores: 4, cpu_mhz: 1200}}")
        if named is not None and named != label:
            raise ValueError(f"{named!r} is not what the other fields say ({label}); leave `mode` out")
        return {**data, "mode": label}

    @property
    def persistence(self) -> Literal["volatile", "reboot-persistent"]:  # type: ignore[override]
        """What nvpmodel is told outlives a reboot; clocks and cores do not."""
        return "volatile" if self.mode is None or _is_label(self.mode) else "reboot-persistent"

    def knob(self) -> str:
        return f"power_mode {','.join(sorted(self.request().asked()))}"

    def turns(self) -> frozenset[str]:
        requested = self.request().asked()
        return requested | {"cores", "cpu_mhz", "gpu_mhz", "mem_mhz"} if "mode" in requested else requested

    def request(self) -> PowerRequest:
        """What is asked for, as back ends take it."""
        fields = self.model_dump(exclude_none=True)
        if self.mode is not None and _is_label(self.mode):
            fields.pop("mode")
        return PowerRequest(**fields)

    def obstacles(self, host: Host) -> list[Ruling]:
        if not self.request().asked():
            return [obstacle("needs.value", "nothing is requested; name a mode, or write {cores: 4, cpu_mhz: 1200}.")]
        return everything.obstacles(host, self.request())

    def target(self, host: Host, inputs: Iterable[Path]) -> Json:
        return everything.target(host, self.request())

    def read(self, host: Host) -> Json | None:
        return everything.read(host, self.request())

    def detours(self, host: Host, state: Json) -> list[Json]:
        return everything.detours(host, state)

    def write(self, host: Host, state: Json) -> None:
        everything.write(host, state)


def _is_label(mode: str) -> bool:
    return " " in mode  # no board's mode has one, and each of our labels does


def _label(data: Mapping[str, Any]) -> str | None:
    """`4 cores, CPU 1200 MHz, GPU 670 MHz, memory 1333 MHz`; None where nothing, or nothing sensible, is asked for."""
    requested = {field: data[field] for field in _WORDS if data.get(field) is not None}
    if any(not isinstance(value, int | float) for field, value in requested.items() if field != "governor"):
        return None
    shown = {
        field: value if type(value) is not bool else "on" if value else "off" for field, value in requested.items()
    }
    text = ", ".join(_WORDS[field].format(value) for field, value in shown.items())
    return text.replace("1 cores", "1 core") if requested.get("cores") == 1 else text or None

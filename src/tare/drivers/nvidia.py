"""NVIDIA GPUs: the management library, and the device files that a container needs."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.base.errors import DeviceLost, TareError
from tare.base.host import Host, OwnDevice
from tare.base.installed import pip_install
from tare.base.rulings import Ruling, obstacle
from tare.base.units import CLOCK, GPU_USE, Channel
from tare.drivers.kernel_files import KernelFile, number, text_of, within
from tare.parts.protocols import Json

# The one door to NVIDIA's management library: `pynvml` (nvidia-ml-py) is imported here, when it is first needed.
#
# Units leave this file as tare has them (W, J, Hz, bytes, shares), settings as NVML has them (MHz, mW). What a GPU does
# not have is None; a GPU that is gone raises `DeviceLost`; what needs root raises PermissionError. The library stays
# open until the process ends: with persistence mode off the driver forgets every setting with its last client.

DRIVER = "/proc/driver/nvidia/version"

GRAPHICS, MEMORY = 0, 2  # nvmlClockType_t
_DIE = 0  # nvmlTemperatureSensors_t
_EXCLUSIVE = (1, 3)  # nvmlComputeMode_t: one thread, one process

# Field ids of nvmlDeviceGetFieldValues: they never change, and an old pynvml has no name for the newer ones.
POWER_INSTANT = 186
SW_POWER_CAP, SW_THERMAL, HW_THERMAL, HW_POWER_BRAKE = 74, 269, 270, 271  # time in ns

# Bits of the clocks event ("throttle") reasons.
REASON_SW_POWER, REASON_HW_SLOWDOWN = 0x04, 0x08
REASON_SW_THERMAL, REASON_HW_THERMAL, REASON_HW_POWER_BRAKE = 0x20, 0x40, 0x80
HELD_BACK = REASON_SW_POWER | REASON_HW_SLOWDOWN | REASON_SW_THERMAL | REASON_HW_THERMAL | REASON_HW_POWER_BRAKE

_NOT_SUPPORTED, _NO_PERMISSION, _NOT_FOUND, _FUNCTION_NOT_FOUND, _NO_DATA = 3, 4, 6, 13, 21
_DRIVER_NOT_LOADED, _NO_LIBRARY, _LOST, _RESET_REQUIRED, _MISMATCH = 9, 12, 15, 16, 18
_ABSENT = {_NOT_SUPPORTED, _NOT_FOUND, _FUNCTION_NOT_FOUND, _NO_DATA, 25, 26}  # 25: other version, 26: deprecated
_GONE = {_LOST, _RESET_REQUIRED}
_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}  # nvmlValueType_t

_WHY_NOT = {
    _NO_LIBRARY: "libnvidia-ml.so.1 is not installed: it comes with NVIDIA's driver",
    _DRIVER_NOT_LOADED: "NVIDIA's kernel driver is not loaded: `nvidia-smi` says more",
    _NO_PERMISSION: "this user may not open /dev/nvidiactl",
    _MISMATCH: "library and kernel driver are of different versions: the driver was updated, reboot",
}
_opened: dict[str, Any] = {}  # the library, once it is open in this process


class Gpu:
    """One GPU: asked and told in plain values."""

    def __init__(self, library: Any, index: int) -> None:
        self._library = library
        self.index = index
        self.label = "gpu" if index == 0 else f"gpu{index}"
        self._handle = self._must("nvmlDeviceGetHandleByIndex", index, whole_library=True)

    # -- what it is
    def name(self) -> str:
        return _text(self._ask("nvmlDeviceGetName") or "GPU")

    def uuid(self) -> str:
        return _text(self._must("nvmlDeviceGetUUID"))

    # -- what it does
    def fields(self, *ids: int) -> dict[int, int]:
        """Values of numbered fields; one that this GPU or driver does not have is left out."""
        found = self._ask("nvmlDeviceGetFieldValues", list(ids)) or []
        if any(value.nvmlReturn in _GONE for value in found):
            raise self._lost()
        return {
            int(value.fieldId): int(getattr(value.value, _VALUES[value.valueType]))
            for value in found
            if value.nvmlReturn == 0 and value.valueType in _VALUES
        }

    def power_w(self) -> float | None:
        """What nvmlDeviceGetPowerUsage says: since Ampere the mean of the last second (not on GA100)."""
        return _scaled(self._ask("nvmlDeviceGetPowerUsage"), 1e-3)

    def energy_j(self) -> float | None:
        """Since the driver was loaded."""
        return _scaled(self._ask("nvmlDeviceGetTotalEnergyConsumption"), 1e-3)

    def util(self) -> float | None:
        """Share of the last sampling period in which some kernel ran."""
        found = self._ask("nvmlDeviceGetUtilizationRates")
        return None if found is None else found.gpu / 100

    def memory_used_bytes(self) -> float | None:
        found = self._ask("nvmlDeviceGetMemoryInfo")
        return None if found is None else float(found.used)

    def memory_bytes(self) -> tuple[float, float] | None:
        """Used by all processes, and in all."""
        found = self._ask("nvmlDeviceGetMemoryInfo")
        return None if found is None else (float(found.used), float(found.total))

    def is_exclusive(self) -> bool:
        """Whether its compute mode allows one process at a time, or one thread."""
        return self._ask("nvmlDeviceGetComputeMode") in _EXCLUSIVE

    def temperature_c(self) -> float | None:
        return _scaled(self._ask("nvmlDeviceGetTemperature", _DIE), 1)

    def clock_mhz(self, kind: int = GRAPHICS) -> int | None:
        return _whole(self._ask("nvmlDeviceGetClockInfo", kind))

    def reasons(self) -> int | None:
        """Why the clock is where it is, as bits; the name of the call changed with driver 535."""
        for name in ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"):
            if hasattr(self._library, name) and (found := self._ask(name)) is not None:
                return int(found)
        return None

    def compute_pids(self) -> list[int]:
        """The processes that compute on it, as this namespace numbers them."""
        return [int(process.pid) for process in self._ask("nvmlDeviceGetComputeRunningProcesses") or []]

    # -- what it can be set to, and is
    def memory_clocks_mhz(self) -> list[int]:
        return sorted(int(clock) for clock in self._ask("nvmlDeviceGetSupportedMemoryClocks") or [])

    def graphics_clocks_mhz(self) -> list[int]:
        """Every clock that some memory clock allows."""
        pairs = (self._ask("nvmlDeviceGetSupportedGraphicsClocks", clock) or [] for clock in self.memory_clocks_mhz())
        return sorted({int(clock) for clocks in pairs for clock in clocks})

    def power_limit_mw(self) -> int | None:
        return _whole(self._ask("nvmlDeviceGetPowerManagementLimit"))

    def default_power_limit_mw(self) -> int | None:
        return _whole(self._ask("nvmlDeviceGetPowerManagementDefaultLimit"))

    def power_limits_mw(self) -> tuple[int, int] | None:
        """The lowest and the highest limit that can be set."""
        found = self._ask("nvmlDeviceGetPowerManagementLimitConstraints")
        return None if found is None else (int(found[0]), int(found[1]))

    def is_persistent(self) -> bool | None:
        found = self._ask("nvmlDeviceGetPersistenceMode")
        return None if found is None else bool(found)

    # -- setting it: whether it took is for the caller to read back
    def lock_graphics_mhz(self, lowest: int, highest: int) -> None:
        self._must("nvmlDeviceSetGpuLockedClocks", lowest, highest)

    def free_graphics(self) -> None:
        self._must("nvmlDeviceResetGpuLockedClocks")

    def lock_memory_mhz(self, lowest: int, highest: int) -> None:
        self._must("nvmlDeviceSetMemoryLockedClocks", lowest, highest)

    def free_memory(self) -> None:
        self._must("nvmlDeviceResetMemoryLockedClocks")

    def limit_power_mw(self, limit: int) -> None:
        self._must("nvmlDeviceSetPowerManagementLimit", limit)

    def persist(self, on: bool) -> None:
        self._must("nvmlDeviceSetPersistenceMode", int(on))

    # -- how it is asked
    def _ask(self, name: str, *arguments: Any) -> Any:
        """The answer, or None where this GPU or driver has none."""
        try:
            return self._must(name, *arguments)
        except _NotThere:
            return None

    def _must(self, name: str, *arguments: Any, whole_library: bool = False) -> Any:
        """The answer, or an error in words."""
        before = () if whole_library else (self._handle,)
        call: Callable[..., Any] | None = getattr(self._library, name, None)
        if call is None:
            raise _NotThere(f"{self.label}: this nvidia-ml-py has no {name}: `pip install -U nvidia-ml-py`")
        try:
            return call(*before, *arguments)
        except self._library.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _GONE:
                raise self._lost() from error
            if code == _NO_PERMISSION:
                raise PermissionError(1, f"{self.label}: the driver wants root for this") from error
            if code in _ABSENT:
                raise _NotThere(f"{self.label}: {name} is not supported by this GPU ({error})") from error
            raise TareError(f"{self.label}: {name} says: {error}") from error

    def _lost(self) -> DeviceLost:
        return DeviceLost(
            f"GPU {self.index} is lost: it no longer answers its driver. "
            "`dmesg | grep -i xid` says why; a reset (`nvidia-smi -r`) or a reboot brings it back."
        )


class _NotThere(TareError):
    """This GPU, driver or library does not have what was asked for."""


def gpus(host: Host) -> list[Gpu]:
    """Every GPU of this host; raises a TareError that says in a sentence why there is none."""
    if (why := _elsewhere(host)) is not None:
        raise TareError(why)
    library = _library()
    try:
        count = int(library.nvmlDeviceGetCount())
    except library.NVMLError as error:
        raise TareError(f"NVML cannot count the GPUs: {error}") from error
    if count == 0:
        raise TareError("NVIDIA's driver is here, but it has no GPU")
    return [Gpu(library, index) for index in range(count)]


def serves_many_processes(host: Host) -> bool:
    """Whether the control daemon of NVIDIA's Multi-Process Service runs, whose server computes for all processes."""
    folder = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
    pid = text_of(host, f"{folder}/nvidia-cuda-mps-control.pid")
    return bool(pid) and (text_of(host, f"/proc/{pid}/comm") or "").startswith("nvidia-cuda-mps")


def trouble(host: Host) -> str | None:
    """Why NVML cannot be used on this host, as the end of a sentence; None where it can."""
    try:
        gpus(host)
    except (TareError, OSError) as error:
        return str(error)
    return None


def _library() -> Any:
    if "library" in _opened:
        return _opened["library"]
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        raise TareError(f"nvidia-ml-py is not installed: run `{pip_install('nvidia')}`") from None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        raise TareError(_WHY_NOT.get(getattr(error, "value", 0), f"NVML does not start: {error}")) from error
    _opened["library"] = library
    return library


def _elsewhere(host: Host) -> str | None:
    """NVML speaks of the machine that this process runs on: another host, or a made-up one, must have a driver."""
    try:
        host.read(DRIVER)
    except OSError:
        if isinstance(host, OwnDevice) and host.file("/") == Path("/"):
            return None  # WSL has the library and no such file: let it be asked
        return f"no NVIDIA driver on {host.name} ({DRIVER})"
    return None


def _scaled(value: Any, factor: float) -> float | None:
    return None if value is None else float(value) * factor


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


# The device files of NVIDIA GPUs, which a container needs to reach one: the kernel tells which there are.
#
# With the host's own root inside, they are all that is missing: the driver's libraries are there. An image has none,
# and gets them from NVIDIA's container runtime (parts/platforms/docker.py).
#
# A Jetson's GPU in the kernel's own files, for boards without NVML, or with one that does not tell how busy it is.
#
# `load` is what jtop and tegrastats show: the share of the time in which the GPU was busy, in thousandths.

# Servers and desktops; then the boards, whose GPU is a part of the chip.
_PATTERNS = (
    "/dev/nvidia[0-9]*", "/dev/nvidiactl", "/dev/nvidia-uvm*", "/dev/nvidia-modeset", "/dev/nvidia-caps/*",
    "/dev/nvhost-*", "/dev/nvmap", "/dev/nvgpu/*/*", "/dev/nvsciipc",
)  # fmt: skip
_LIST = f'for f in {" ".join(_PATTERNS)}; do [ ! -c "$f" ] || stat -c "%n %t %T" -- "$f" || exit 1; done'


@dataclass(frozen=True, slots=True)
class GpuFile:
    """A character device: where it is, and which driver it leads to."""

    path: str
    major: int
    minor: int


def gpu_files(host: Host) -> list[GpuFile]:
    """Those that are there, by name; none on a machine without such a GPU."""
    if isinstance(host, OwnDevice):  # without a shell, which takes a few milliseconds of every trial
        there = [path for pattern in _PATTERNS for path in host.file("/").glob(pattern[1:]) if path.is_char_device()]
        devices = [(str(path), path.stat().st_rdev) for path in there]
        return [GpuFile(path, os.major(device), os.minor(device)) for path, device in sorted(devices)]
    found = [line.rsplit(" ", 2) for line in host.run(["sh", "-c", _LIST, "gpus"]).checked().out.splitlines()]
    return [GpuFile(path, int(major, 16), int(minor, 16)) for path, major, minor in sorted(found)]


def handed_on(host: Host, wanted: bool | None) -> list[GpuFile]:
    """What a container gets: nothing if it is not wanted, and by default whatever there is."""
    return [] if wanted is False else gpu_files(host)


def gpu_obstacles(host: Host, wanted: bool | None) -> list[Ruling]:
    if not wanted or gpu_files(host):
        return []
    return [
        obstacle(
            "needs.gpu",
            "`gpu: true` hands the GPU's device files on, and there are none here: `ls /dev/nvidia*` shows them.",
        )
    ]


def oci_devices(files: Sequence[GpuFile]) -> list[dict[str, Json]]:
    """As a bundle's `linux.devices` has them: the runtime makes the files inside."""
    common: dict[str, Json] = {"type": "c", "fileMode": 0o666, "uid": 0, "gid": 0}
    return [{**common, "path": file.path, "major": file.major, "minor": file.minor} for file in files]


def oci_rules(files: Sequence[GpuFile]) -> list[dict[str, Json]]:
    """As a bundle's device control group has them: everything else stays forbidden."""
    return [{"allow": True, "type": "c", "major": file.major, "minor": file.minor, "access": "rwm"} for file in files]


# By chip: Nano, TX2, Xavier, Orin (JetPack 5), Orin (JetPack 6), Thor. They do not change with the boot.
_CHIPS = ("57000000.gpu", "17000000.gp10b", "17000000.gv11b", "17000000.ga10b", "17000000.gpu", "gpu-gpc-0")
_CLOCKS = ("/sys/class/devfreq/{0}", "/sys/devices/{0}/devfreq/{0}", "/sys/devices/platform/{0}/devfreq/{0}")
_LOADS = ("/sys/class/devfreq/{0}/device/load", "/sys/devices/{0}/load", "/sys/devices/platform/{0}/load")
_ALSO = "/sys/devices/gpu.0/load"  # a link to one of these, on most boards
_ANSWER_S = 3.0


def clock_files(channel: Channel) -> Iterator[KernelFile]:
    """Where the clock may stand: of files with the same channel the first that is there is read."""
    for chip in _CHIPS:
        for folder in _CLOCKS:
            yield KernelFile(f"{folder.format(chip)}/cur_freq", number(channel), slow=True)


def integrated_files() -> Iterator[KernelFile]:
    """How busy it is, and its clock, under the names that NVIDIA's cards have."""
    about = "of the time in which the GPU was busy, as the kernel counts it"
    util = Channel("gpu.util", "share", "gauge", about, group=GPU_USE, rank=30)
    paths = [*(path.format(chip) for chip in _CHIPS for path in _LOADS), _ALSO]
    yield from (KernelFile(path, number(util, 0.001)) for path in paths)
    yield from clock_files(Channel("gpu.clock_hz", "Hz", "gauge", "devfreq of the GPU", group=CLOCK, rank=70))


def has_integrated(host: Host) -> bool:
    try:
        return within(_ANSWER_S, lambda: any(text_of(host, file.path) is not None for file in integrated_files()))
    except TimeoutError:
        return False

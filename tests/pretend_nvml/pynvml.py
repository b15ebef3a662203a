"""A made-up NVML with the names of nvidia-ml-py: an H200 as it was seen to behave, state kept in a file or in memory.

Put into `sys.modules`, or on PYTHONPATH for other processes with PRETEND_NVML naming the file of its state. What it
does as the real one (driver 580, 2026-11): a lock moves the idle clock too, rounds to steps of 15 MHz (1000 to 1005)
and to the ends (5000 to 1980); nothing says that clocks are locked; memory clocks cannot be locked although there are
two; the power limit is kept to the milliwatt and refused outside its ends; with persistence off every setting is lost
with the last client.
"""

import ctypes
import json
import os
from pathlib import Path

NVML_FI_DEV_POWER_INSTANT = 186

STEP, LOWEST, HIGHEST, MEMORY = 15, 345, 1980, 3201
WHOLE = {
    "persistence": 1,
    "limit_mw": 700000,
    "lock": None,  # [lowest, highest]
    "busy": False,
    "reasons": 0,  # bits beside idle
    "energy_mj": 2936251,
    "power_mw": 79476,
    "average_mw": 79158,
    "throttled_ns": {"74": 0, "269": 0, "270": 0, "271": 0},
    "pids": [],
    "clients": [],
    "uuid": "GPU-dd2ae5db-6864-e8a6-834a-d403bda9daaf",
    # what goes wrong
    "lost": False,
    "root": True,
    "ignores": False,
    "off_by_mhz": 0,
    "memory_lock": False,
    "no_driver": False,
    "refused": {},  # name of a call -> error code
    "gpus": 1,
}
_here = dict(WHOLE)


class NVMLError(Exception):
    _SAID = {
        2: "Invalid Argument", 3: "Not Supported", 4: "Insufficient Permissions", 9: "Driver Not Loaded",
        12: "NVML Shared Library Not Found", 15: "GPU is lost", 999: "Unknown Error",
    }  # fmt: skip

    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return self._SAID.get(self.value, f"NVML Error with code {self.value}")


def state():
    """As it stands; a driver without clients and without persistence has forgotten everything."""
    path = os.environ.get("PRETEND_NVML")
    found = {**WHOLE, **json.loads(Path(path).read_text())} if path and Path(path).exists() else _here
    living = [pid for pid in found["clients"] if Path(f"/proc/{pid}").exists()]
    if living != found["clients"] and not living and not found["persistence"]:
        found.update(lock=None, limit_mw=700000)
    found["clients"] = living
    return found


def change(**changes):
    """Set something about it, as a test does, or as a call does."""
    found = {**state(), **changes}
    if not found["clients"] and not found["persistence"]:
        found.update(lock=None, limit_mw=700000)
    path = os.environ.get("PRETEND_NVML")
    if not path:
        _here.update(found)
        return
    new = Path(f"{path}.{os.getpid()}")
    new.write_text(json.dumps(found))
    new.replace(path)


def begin():
    """A fresh GPU, in memory."""
    _here.clear()
    _here.update(json.loads(json.dumps(WHOLE)))


def _asked(name, handle=None, *, sets=False):
    found = state()
    if os.getpid() not in found["clients"]:
        raise NVMLError(1)
    if found["lost"]:
        raise NVMLError(15)
    if name in found["refused"]:
        raise NVMLError(found["refused"][name])
    if sets and not found["root"]:
        raise NVMLError(4)
    return found


def nvmlInit():
    if state()["no_driver"]:
        raise NVMLError(9)
    change(clients=[*state()["clients"], os.getpid()])


def nvmlShutdown():
    change(clients=[pid for pid in state()["clients"] if pid != os.getpid()])


def nvmlDeviceGetCount():
    return state()["gpus"]


def nvmlDeviceGetHandleByIndex(index):
    _asked("nvmlDeviceGetHandleByIndex")
    return index


def nvmlDeviceGetName(handle):
    return _asked("nvmlDeviceGetName") and "NVIDIA H200"


def nvmlDeviceGetUUID(handle):
    return _asked("nvmlDeviceGetUUID")["uuid"][:-1] + str(handle)


def nvmlDeviceGetPersistenceMode(handle):
    return _asked("nvmlDeviceGetPersistenceMode")["persistence"]


def nvmlDeviceSetPersistenceMode(handle, mode):
    _asked("nvmlDeviceSetPersistenceMode", sets=True)
    change(persistence=mode)


def nvmlDeviceGetPowerManagementLimit(handle):
    return _asked("nvmlDeviceGetPowerManagementLimit")["limit_mw"]


def nvmlDeviceGetPowerManagementDefaultLimit(handle):
    return _asked("nvmlDeviceGetPowerManagementDefaultLimit") and 700000


def nvmlDeviceGetPowerManagementLimitConstraints(handle):
    return _asked("nvmlDeviceGetPowerManagementLimitConstraints") and [200000, 700000]


def nvmlDeviceSetPowerManagementLimit(handle, limit):
    if not _asked("nvmlDeviceSetPowerManagementLimit", sets=True)["ignores"]:
        if not 200000 <= limit <= 700000:
            raise NVMLError(2)
        change(limit_mw=limit)


def nvmlDeviceGetSupportedMemoryClocks(handle):
    return _asked("nvmlDeviceGetSupportedMemoryClocks") and [3201, 2201]


def nvmlDeviceGetSupportedGraphicsClocks(handle, memoryClockMHz):
    return _asked("nvmlDeviceGetSupportedGraphicsClocks") and list(range(HIGHEST, LOWEST - 1, -STEP))


def nvmlDeviceSetGpuLockedClocks(handle, minGpuClockMHz, maxGpuClockMHz):
    found = _asked("nvmlDeviceSetGpuLockedClocks", sets=True)
    if not found["ignores"]:
        ends = (minGpuClockMHz, maxGpuClockMHz)
        change(lock=[_rounded(end) + found["off_by_mhz"] for end in ends])


def nvmlDeviceResetGpuLockedClocks(handle):
    if not _asked("nvmlDeviceResetGpuLockedClocks", sets=True)["ignores"]:
        change(lock=None)


def nvmlDeviceSetMemoryLockedClocks(handle, minMemClockMHz, maxMemClockMHz):
    if not _asked("nvmlDeviceSetMemoryLockedClocks", sets=True)["memory_lock"]:
        raise NVMLError(3)


def nvmlDeviceResetMemoryLockedClocks(handle):
    if not _asked("nvmlDeviceResetMemoryLockedClocks", sets=True)["memory_lock"]:
        raise NVMLError(3)


def _rounded(mhz):
    return min(max(-(-mhz // STEP) * STEP, LOWEST), HIGHEST)


def nvmlDeviceGetClockInfo(handle, type):
    found = _asked("nvmlDeviceGetClockInfo")
    if type == 2:
        return MEMORY
    low, high = found["lock"] or (LOWEST, HIGHEST)
    clock = high if found["busy"] else low
    return min(clock, 525) if found["reasons"] & 0x4 else clock


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    found = _asked("nvmlDeviceGetCurrentClocksEventReasons")
    return found["reasons"] | (0 if found["busy"] else 1)


def nvmlDeviceGetPowerUsage(handle):
    return _asked("nvmlDeviceGetPowerUsage")["average_mw"]


def nvmlDeviceGetTotalEnergyConsumption(handle):
    return _asked("nvmlDeviceGetTotalEnergyConsumption")["energy_mj"]


def nvmlDeviceGetTemperature(handle, sensor):
    return _asked("nvmlDeviceGetTemperature") and 32


class _Named:
    def __init__(self, **values):
        self.__dict__.update(values)


def nvmlDeviceGetUtilizationRates(handle):
    found = _asked("nvmlDeviceGetUtilizationRates")
    return _Named(gpu=97 if found["busy"] else 0, memory=0)


def nvmlDeviceGetMemoryInfo(handle, version=None):
    return _asked("nvmlDeviceGetMemoryInfo") and _Named(used=644939776, free=1, total=644939777)


def nvmlDeviceGetComputeRunningProcesses(handle):
    return [_Named(pid=pid, usedGpuMemory=748683264) for pid in _asked("nvmlDeviceGetComputeRunningProcesses")["pids"]]


class _Value(ctypes.Union):
    _fields_ = [("uiVal", ctypes.c_uint), ("ullVal", ctypes.c_ulonglong)]


def nvmlDeviceGetFieldValues(handle, fieldIds):
    found = _asked("nvmlDeviceGetFieldValues")
    known = {186: (1, found["power_mw"]), 185: (1, found["average_mw"])}
    known |= {int(key): (3, value) for key, value in found["throttled_ns"].items()}
    values = []
    for field in fieldIds:
        kind, number = known.get(field, (1, 0))
        absent = field not in known or str(field) in found["refused"]
        values.append(_Named(fieldId=field, nvmlReturn=3 if absent else 0, valueType=kind, value=_Value(ullVal=number)))
    return values

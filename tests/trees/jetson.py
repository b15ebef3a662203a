"""Pretended Jetsons: `nano(root)`, `agx_xavier(root)`, `agx_orin(root)` write a board below a folder like `/`.

Clock tables are those of the boards (AGX Xavier: 29 CPU, 14 GPU and 9 memory clocks, seed S3). The configuration of the
Nano is a recording; that of AGX Orin completes the recorded paths; that of AGX Xavier is put together after them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trees.files import CPUS, V1_MOUNTS, V2_MOUNTS, core_files, devfreq_files, lay, policy_files

RECORDINGS = Path(__file__).parents[1] / "recordings" / "jetson"

NANO_CPU_KHZ = (
    102000, 204000, 307200, 403200, 518400, 614400, 710400, 825600, 921600, 1036800, 1132800, 1224000, 1326000,
    1428000, 1479000,
)  # fmt: skip
NANO_GPU_HZ = tuple(76_800_000 * step for step in range(1, 13))
XAVIER_CPU_KHZ = tuple(115200 + 76800 * step for step in range(29))
XAVIER_GPU_HZ = (
    114750000, 216750000, 318750000, 420750000, 522750000, 624750000, 675750000, 828750000, 905250000, 1032750000,
    1198500000, 1236750000, 1338750000, 1377000000,
)  # fmt: skip
XAVIER_EMC_KHZ = (204000, 408000, 665600, 800000, 1065600, 1331200, 1600000, 1866000, 2133000)
ORIN_CPU_KHZ = (*(115200 + 76800 * step for step in range(27)), 2188800, 2201600)
ORIN_GPU_HZ = (*(306000000 + 102000000 * step for step in range(9)), 1224000000, 1300500000)
ORIN_EMC_KHZ = (204000, 665600, 2133000, 3199000)
EMC_CAP = "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"
EMC_RATES = "/sys/kernel/debug/bpmp/debug/emc/possible_rates"


@dataclass(frozen=True)
class Cluster:
    """CPU cores of one clock, as nvpmodel calls them."""

    param: str
    cores: Sequence[int]


def nano(root: Path) -> Path:
    """4 cores of one clock, cgroup v1, no list of memory clocks."""
    conf = (RECORDINGS / "nvpmodel_nano.conf").read_text()
    gpu = "/sys/devices/57000000.gpu/devfreq/57000000.gpu"
    files = {
        **_board("NVIDIA Jetson Nano Developer Kit", conf, V1_MOUNTS),
        **core_files(4, fixed=()),
        **policy_files(range(4), NANO_CPU_KHZ),
        **devfreq_files(gpu, NANO_GPU_HZ),
        EMC_CAP: "0\n",
        **cpusets({"": "0-3", "docker": "0-3", "docker/3f2a": "0-1", "system.slice": "0-3"}),
        "/sys/devices/pwm-fan/target_pwm": "0\n",
        "/sys/devices/pwm-fan/temp_control": "1\n",
    }
    return lay(root, files)


def agx_xavier(root: Path) -> Path:
    """8 cores in 4 clusters, cgroup v1; starts in mode 2, 15W, as the board is shipped, but with all cores on."""
    clusters = [Cluster(f"CPU_DENVER_{index}", (2 * index, 2 * index + 1)) for index in range(4)]
    gpu = "/sys/devices/17000000.gv11b/devfreq/17000000.gv11b"
    modes = [
        _mode(0, "MAXN", clusters, range(8), cpu="-1", gpu="-1", emc="0"),
        _mode(1, "MODE_10W", clusters, range(2), cpu="1200000", gpu="520000000", emc="1066000000"),
        _mode(2, "MODE_15W", clusters, range(4), cpu="1200000", gpu="670000000", emc="1333000000"),
        _mode(3, "MODE_30W_ALL", clusters, range(8), cpu="1200000", gpu="900000000", emc="1600000000"),
    ]
    conf = _conf(clusters, 8, gpu, modes, default=2)
    files = {
        **_board("Jetson-AGX", conf, V1_MOUNTS, mode=0),
        **core_files(8, fixed=()),
        **{path: text for one in clusters for path, text in policy_files(one.cores, XAVIER_CPU_KHZ).items()},
        **devfreq_files(gpu, XAVIER_GPU_HZ),
        EMC_CAP: "0\n",
        EMC_RATES: " ".join(map(str, XAVIER_EMC_KHZ)) + " (kHz)\n",
        **cpusets({"": "0-7", "docker": "0-7"}),
    }
    return lay(root, files)


def agx_orin(root: Path) -> Path:
    """12 cores in 3 clusters, cgroup v2; a mode with other power gating needs a reboot."""
    clusters = [Cluster(f"CPU_A78_{index}", range(4 * index, 4 * index + 4)) for index in range(3)]
    gpu = "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b"
    modes = [
        _mode(0, "MAXN", clusters, range(12), cpu="-1", gpu="-1", emc="0", gating="0"),
        _mode(1, "MODE_15W", clusters, range(4), cpu="1113600", gpu="408000000", emc="2133000000", gating="252"),
        _mode(2, "MODE_30W", clusters, range(8), cpu="1728000", gpu="612000000", emc="0", gating="0"),
    ]
    conf = _conf(clusters, 12, gpu, modes, default=2, gating="/sys/devices/gpu.0/tpc_pg_mask")
    recorded = (RECORDINGS / "nvpmodel_agx_orin_paths.conf").read_text().split()
    assert {f"{gpu}/max_freq", EMC_CAP, "/sys/devices/gpu.0/tpc_pg_mask"} <= set(recorded)
    files = {
        **_board("NVIDIA Jetson AGX Orin Developer Kit", conf, V2_MOUNTS),
        **core_files(12),
        **{path: text for one in clusters for path, text in policy_files(one.cores, ORIN_CPU_KHZ).items()},
        **devfreq_files(gpu, ORIN_GPU_HZ),
        EMC_CAP: "0\n",
        EMC_RATES: " ".join(map(str, ORIN_EMC_KHZ)) + " (kHz)\n",
        "/sys/devices/gpu.0/tpc_pg_mask": "0\n",
        "/sys/class/hwmon/hwmon0/name": "pwmfan\n",
        "/sys/class/hwmon/hwmon0/pwm1": "62\n",
        "/sys/fs/cgroup/cpuset.cpus.effective": "0-11\n",
    }
    return lay(root, files)


def cpusets(groups: dict[str, str]) -> dict[str, str]:
    """cpusets of cgroup v1: the group "" is the root."""
    names = {group: f"/sys/fs/cgroup/cpuset/{group}/cpuset.cpus".replace("//", "/") for group in groups}
    return {names[group]: f"{cores}\n" for group, cores in groups.items()}


def _board(model: str, conf: str, mounts: str, mode: int = 0) -> dict[str, str]:
    return {
        "/etc/nvpmodel.conf": conf,
        "/var/lib/nvpmodel/status": f"pmode:{mode:04d} fmode:quiet\n",
        "/proc/device-tree/model": f"{model}\0",
        "/proc/device-tree/serial-number": "1424520012345\0",
        "/proc/self/mountinfo": mounts,
    }


def _conf(
    clusters: Sequence[Cluster], cores: int, gpu: str, modes: Sequence[str], *, default: int, gating: str | None = None
) -> str:
    params = ["< PARAM TYPE=FILE NAME=CPU_ONLINE >", *(f"CORE_{n} {CPUS}/cpu{n}/online" for n in range(cores))]
    if gating:
        params += ["< PARAM TYPE=FILE NAME=TPC_POWER_GATING >", f"TPC_PG_MASK {gating}"]
    folders = {one.param: f"{CPUS}/cpu{one.cores[0]}/cpufreq/scaling_" for one in clusters}
    for param, folder in folders.items():
        params += [f"< PARAM TYPE=CLOCK NAME={param} >", f"FREQ_TABLE {folder}available_frequencies"]
        params += [f"MAX_FREQ {folder}max_freq", f"MIN_FREQ {folder}min_freq"]
    params += ["< PARAM TYPE=CLOCK NAME=GPU >", f"FREQ_TABLE {gpu}/available_frequencies"]
    params += [f"MAX_FREQ {gpu}/max_freq", f"MIN_FREQ {gpu}/min_freq"]
    params += ["< PARAM TYPE=CLOCK NAME=EMC >", f"MAX_FREQ {EMC_CAP}"]
    return "\n".join([*params, "", *modes, "", f"< PM_CONFIG DEFAULT={default} >", ""])


def _mode(
    number: int, name: str, clusters: Sequence[Cluster], on: Sequence[int], *, cpu: str, gpu: str, emc: str,
    gating: str | None = None,
) -> str:  # fmt: skip
    cores = [core for one in clusters for core in one.cores]
    lines = [f"< POWER_MODEL ID={number} NAME={name} >"]
    lines += [f"CPU_ONLINE CORE_{core} {int(core in on)}" for core in cores]
    lines += [f"TPC_POWER_GATING TPC_PG_MASK {gating}"] if gating else []
    for one in clusters:
        lines += [f"{one.param} MIN_FREQ 0", f"{one.param} MAX_FREQ {cpu}"]
    return "\n".join([*lines, "GPU MIN_FREQ 0", f"GPU MAX_FREQ {gpu}", f"EMC MAX_FREQ {emc}", ""])

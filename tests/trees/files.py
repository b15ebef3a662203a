"""Writes the files of a pretended machine below a folder that looks like `/`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

CPUS = "/sys/devices/system/cpu"
V2_MOUNTS = "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1_MOUNTS = "30 24 0:26 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset\n"


_LINK = "-> "  # a text that begins so makes a symbolic link


def lay(root: Path, files: Mapping[str, str]) -> Path:
    """Each file with its text, or as a link; folders are made."""
    for path, text in files.items():
        at = root / path.lstrip("/")
        at.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith(_LINK):
            at.symlink_to(text.removeprefix(_LINK))
        else:
            at.write_text(text)
    return root


def core_files(count: int, fixed: Iterable[int] = (0,)) -> dict[str, str]:
    """The switches of so many cores, all online; those in `fixed` have none."""
    last = f"0-{count - 1}\n" if count > 1 else "0\n"
    switches = {f"{CPUS}/cpu{core}/online": "1\n" for core in range(count) if core not in set(fixed)}
    return {f"{CPUS}/{name}": last for name in ("present", "possible", "online")} | switches


def policy_files(cores: Iterable[int], table_khz: Iterable[int], governor: str = "schedutil") -> dict[str, str]:
    """The folder of one policy, and the links of its cores to it."""
    together, table = list(cores), sorted(table_khz)
    files = {
        "scaling_available_frequencies": " ".join(map(str, table)) + " \n",
        "scaling_min_freq": f"{table[0]}\n",
        "scaling_max_freq": f"{table[-1]}\n",
        "cpuinfo_min_freq": f"{table[0]}\n",
        "cpuinfo_max_freq": f"{table[-1]}\n",
        "scaling_cur_freq": f"{table[0]}\n",
        "scaling_governor": f"{governor}\n",
        "scaling_available_governors": "ondemand userspace performance schedutil \n",
        "related_cpus": " ".join(map(str, together)) + "\n",
        "affected_cpus": " ".join(map(str, together)) + "\n",
    }
    links = {f"{CPUS}/cpu{core}/cpufreq": f"{_LINK}../cpufreq/policy{together[0]}" for core in together}
    return {f"{CPUS}/cpufreq/policy{together[0]}/{name}": text for name, text in files.items()} | links


def devfreq_files(folder: str, table_hz: Iterable[int]) -> dict[str, str]:
    """A devfreq folder: the clocks of a GPU."""
    table = sorted(table_hz)
    return {
        f"{folder}/available_frequencies": " ".join(map(str, table)) + "\n",
        f"{folder}/min_freq": f"{table[0]}\n",
        f"{folder}/max_freq": f"{table[-1]}\n",
        f"{folder}/cur_freq": f"{table[0]}\n",
        f"{folder}/governor": "nvhost_podgov\n",
        f"{folder.partition('/devfreq/')[0]}/load": "437\n",
    }

"""Names of verbs and options that tare had before: each is refused, with the name that it has now."""

from __future__ import annotations

import re
from collections.abc import Mapping

VERBS = {
    "check": "`tare doctor` checks this device, `tare plan STUDY` whether it can run a study",
    "analyse": "the topic stands behind the store: `tare show STORE energy`",
}

_OF_BOTH = {  # of `weigh` and of `why`
    "--seconds": "--budget 5min",
    "--env": "--set workload.env.NAME=VALUE",
    "--reads": "--mount PATH",
    "--writes": "--mount PATH:rw",
    "--python": "--set workload.python=PATH",
    "--network": "--set platform.network=host",
    "--keep-outputs": "--set workload.keep_outputs=true",
    "--bare": "--set workload.argv=COMMAND",
    "--allow-network": "--set platform.allow_network=true",
    "--real-volumes": "--set platform.real_volumes=true",
    "--allow-privileged": "--set platform.allow_privileged=true",
    "--ready": "--set workload.ready=PATH",
    "--api": "--set workload.api=chat",
    "--requests": "--set workload.requests=FILE",
    "--count": "--set workload.count=N",
    "--warm-up": "--set workload.warm_up=N",
    "--load-cores": "--set workload.load_cores=N",
    "--concurrency": "--load inflight:N",
    "--rate": "--load rate:50/s",
    "--trace": "--load replay:FILE",
    "--goal": '--slo "p99 < 300 ms"',
    "--goal-of": '--slo "first_token p99 < 300 ms"',
    "--quota": "--limit cpus=2",
    "--cpuset": "--limit cpuset=0-1",
    "--memory": "--limit memory=2GiB",
    "--shm": "--limit shm=64MiB",
}
OPTIONS: Mapping[str, Mapping[str, str]] = {  # verb -> option -> what it is now
    "weigh": {
        **_OF_BOTH,
        "--steps": "--trial-limit 200steps",
        "--minutes": "--trial-limit 3min",
        "--repeat": "--blocks N",
        "--wait": "`tare run STUDY --wait`",
        "--design": "--set design.runs=blocks",
        "--cpu-time": "--set design.cpu_time=true",
        "--verbose": "`tare show STORE TRIAL`, which has what a trial printed",
    },
    "why": {
        **_OF_BOTH,
        "--concurrency": "--set workload.concurrency=4",
        "--rate": "--set workload.rate=50/s",
        "--trace": "--set workload.trace=FILE --set workload.arrivals=trace",
        "--goal": "--set workload.goal=300ms",
        "--goal-of": "--set workload.goal_of=first_token",
        "--repeat": "--set repeat=12",
        "--margin": "--set compare.margin=2%",
        "--steps": "--set workload.steps=200",
        "--minutes": "--set workload.minutes=3",
        "--metric": "--set compare.metric=NAME",
        "--cpu-shares": "--limit cpu_shares=512",
        "--io-rate": "--limit io_rate=20MB",
        "--ulimit": "--limit nofile=1024",
        "--inside-env": "--container-env NAME=VALUE",
        "--inside-arg": "--container-arg=OPTION=VALUE",
        "--seccomp-profile": "--set platform.seccomp_profile=FILE",
        "--writable": "--set platform.writable=true",
        "--start-up": "--set compare.metric=startup_s",
        "--no-layers": "--layers never",
        "--only": "--layers cpu,seccomp",
        "--cumulative": "--layers cumulative",
        "--no-calls": "--layers no-calls",
        "--container": "--attach NAME",
        "--pid": "--attach PID",
    },
    "doctor": {name: _OF_BOTH[name] for name in ("--quota", "--cpuset", "--memory", "--shm")},
    "run": {"--repeat": "--blocks N"},
    "report": {"--columns": "--width column or --width page"},
    "show STORE variability": {f"--{word}": f"--columns {word}=COLUMN" for word in ("epoch", "trial", "device", "day")},
    "show STORE pipeline": {
        f"--{word}": f"--columns {word}=COLUMN" for word in ("step", "stall", "compute", "workers", "storage", "cache")
    },
    "choose predict": {f"--{word}": f"--columns {word}=COLUMN" for word in ("time", "energy", "power")},
    "choose recommend": {f"--{word}": f"--columns {word}=COLUMN" for word in ("time", "energy", "power")},
    "device baseload": {"--repeat": "--blocks N"},
    "device restore": {"--plan": "--dry-run"},
    "device clean": {"--plan": "--dry-run"},
}

# In the commands that kept stores recommend (`ends_in` of their study): pattern -> what it is now.
_IN_STORES = (
    (r"^analyse (\w+)", r"show \1"),
    (r"^(choose predict .*)--time (\S+)", r"\1--columns time=\2"),
    (r"^(choose predict .*--columns time=\S+) --energy (\S+)", r"\1,energy=\2"),
)


def option_now(verb: str, option: str) -> str | None:
    """What an option that a verb had before is now."""
    return OPTIONS.get(verb, {}).get(option)


def renewed(command: str) -> str:
    """A command of a kept store, with the names of today.

    >>> renewed("analyse energy --by platform")
    'show energy --by platform'
    >>> renewed("choose predict --features platform.quota --time step_mean_s --measured 4")
    'choose predict --features platform.quota --columns time=step_mean_s --measured 4'
    """
    for old, new in _IN_STORES:
        command = re.sub(old, new, command)
    return command

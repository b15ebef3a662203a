"""Trials of containers whose layers cost what a test says."""

from __future__ import annotations

import numpy as np

from tare.records.model import Record

ORDER = ("pid", "network", "cpu", "seccomp")


def stage(
    platform: str, layers: tuple[str, ...], factor: float, seed: int, n: int = 10, **metrics: float
) -> list[Record]:
    rng = np.random.default_rng(seed)
    settings = {"platform.isolation": list(layers)} if platform == "runc" else {}
    noise = np.exp(rng.normal(0, 0.004, n))
    return [
        Record(
            trial=f"{platform}-{'-'.join(layers)}-{block}",
            attempt=1,
            study="why",
            block=block,
            position=0,
            twin=0,
            settings={"platform": platform, "workload": "torch_train", **settings},
            state="ok",
            metrics={"step_s": 0.002 * factor * float(noise[block]), **metrics},
        )
        for block in range(n)
    ]


def container(costs: dict[str, float], *, leave_one_out: bool = True, docker: float | None = None) -> list[Record]:
    """Trials of a container whose layers cost these shares, each whatever the others."""

    def factor(layers: tuple[str, ...]) -> float:
        return float(np.prod([1 + costs.get(layer, 0.0) for layer in ("mounts", *layers)]))

    made = stage("bare", (), 1.0, 0)
    for count in range(len(ORDER) + 1):
        made += stage("runc", ORDER[:count], factor(ORDER[:count]), 10 + count)
    for layer in ORDER[:-1] if leave_one_out else ():
        rest = tuple(each for each in ORDER if each != layer)
        made += stage("runc", rest, factor(rest), 30 + ORDER.index(layer))
    if docker is not None:
        made += stage("docker", (), factor(ORDER) * (1 + docker), 50)
    return made

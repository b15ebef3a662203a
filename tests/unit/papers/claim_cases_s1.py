"""Cases for the claims of S1: see `claim_case`."""

from __future__ import annotations

from itertools import product

from claim_case import STEP, Case, cell, levels
from claimed import Cell

MEDIUM, WORKERS, STATE = "control.storage.emulate", "workload.workers", "control.page_cache.state"


def _first_epoch(medium: str) -> dict[str, float]:
    """With no worker to hide it, a hard disk or an SD card takes twice as long as the SSD in epoch 0."""
    return {"epoch0_step_s": STEP * (1 + (medium != "ssd"))}


def _more_workers(x: float) -> list[Cell]:
    """Four workers against one: x less time on the hard disk, and nothing less on the SSD."""
    return [
        cell(
            {MEDIUM: medium, WORKERS: workers},
            {"step_mean_s": STEP * (1 - x * (medium == "hdd") * (workers > 1)), **_first_epoch(medium)},
        )
        for medium, workers in product(("hdd", "ssd"), (0, 1, 4))
    ]


def _hidden_medium(x: float) -> list[Cell]:
    """The SD card's stall is a hundredth of the step, which is longer by x all the same."""
    return [
        cell(
            {MEDIUM: medium},
            {"step_mean_s": STEP * (1 + x * (medium == "sd")), "stall_mean_s": STEP / 100, **_first_epoch(medium)},
        )
        for medium in ("sd", "ssd")
    ]


def _cached(x: float) -> list[Cell]:
    """In epoch 0 the disk is twice as slow as the SSD; afterwards by x."""
    return [
        cell({MEDIUM: medium, WORKERS: 0}, {"step_mean_s": STEP * (1 + x * slow), "epoch0_step_s": STEP * (1 + slow)})
        for medium, slow in (("hdd", 1), ("ssd", 0))
    ]


def _sweet_spot(x: float) -> list[Cell]:
    """A warm cache makes GLD's step a third shorter and CIFAR's by x, whose stall is mostly pre-processing."""
    made = []
    for data, gain, cold_stall in (("gld", 0.33, 5.0), ("cifar10", x, 1.2)):
        made += [
            cell({"workload.data": data, STATE: "cold"}, {"step_mean_s": STEP, "stall_mean_s": STEP / 10 * cold_stall}),
            cell({"workload.data": data, STATE: "warm"}, {"step_mean_s": STEP * (1 - gain), "stall_mean_s": STEP / 10}),
        ]
    return made


def _growing_data(x: float) -> list[Cell]:
    """From 1,000 to 16,000 items a mini-batch takes 30 % longer from the hard disk, and x from the SSD."""
    return [
        cell(
            {MEDIUM: medium, "workload.items": items},
            {"step_mean_s": STEP * (1 + slow * place / 2), **_first_epoch(medium)},
        )
        for medium, slow in (("hdd", 0.3), ("ssd", x))
        for place, items in enumerate((1000, 4000, 16000))
    ]


def _pipelined(x: float) -> list[Cell]:
    """Fetch 8 ms, the rest 4 ms: what one and four workers should take, longer by x."""
    stalls, off = {0: 8.0, 1: 4.0, 4: 0.01}, {0: 0.0, 1: x, 4: x}
    return [
        cell({WORKERS: workers}, {"step_mean_s": (4 + stall) * (1 + off[workers]) / 1e3, "stall_mean_s": stall / 1e3})
        for workers, stall in stalls.items()
    ]


S1 = {
    "s1.one-worker-removes-most-of-the-stall": Case(
        levels(WORKERS, lambda workers, x: {"stall_mean_s": STEP * (1 - workers * x)}, 0, 1), 0.9, 0.1, 0.5
    ),
    "s1.more-workers-help-only-slow-media-or-fast-gpus": Case(_more_workers, 0.3, 0.0, 0.03, noise=0.1),
    "s1.hidden-medium-is-enough": Case(_hidden_medium, 0.0, 0.2, 0.04, noise=0.1),
    "s1.page-cache-makes-the-medium-irrelevant": Case(_cached, 0.0, 0.5, 0.04),
    "s1.caching-helps-only-in-the-sweet-spot": Case(_sweet_spot, 0.0, 0.3, 0.04),
    "s1.linear-on-fast-media": Case(_growing_data, 0.0, 0.3, 0.04, noise=0.1),
    "s1.pipelining-lowers-energy": Case(
        levels(WORKERS, lambda workers, x: {"energy_step_j": 2 * (1 - x * (workers > 0))}, 0, 1, 4), 0.2, -0.1, 0.02
    ),
    "s1.relative-speeds-decide": Case(_pipelined, 0.0, 0.6, 0.14, noise=0.08),
}

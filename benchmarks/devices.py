"""How often `tare show STORE devices` is right: made-up fleets whose scatter, effect and odd devices are known.

    .venv/bin/python benchmarks/devices.py            # about two minutes
    .venv/bin/python benchmarks/devices.py --quick    # a tenth of the fleets

Each device runs six blocks whose log-ratios scatter by 2 %; "spikes" adds 10 % on average to 15 % of them.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from tare.analysis.fleet.outliers import outlying, set_aside, twins_in_effect
from tare.analysis.fleet.random_effects import Centre, centre_of, error_variances, own_variances, pooled

NOISE, BLOCKS = 0.02, 6
KINDS = {"normal": 0.0, "spikes": 0.15}
SPIKE = 0.1


def fleet(rng: np.random.Generator, devices: int, tau: float, spikes: float) -> list[Centre]:
    """Effects of zero, but for what the devices differ by."""
    made = []
    for true in rng.normal(0, tau, devices):
        noise = rng.normal(0, NOISE, BLOCKS) + (rng.random(BLOCKS) < spikes) * rng.exponential(SPIKE, BLOCKS)
        made.append(centre_of(true + noise))
    return made


def intervals(fleets: int) -> None:
    """Coverage of the mean, of the next device and of tau; normal noise, as the truth is known there."""
    print(f"{'devices':>7} {'tau':>6} {'mean':>6} {'next':>6} {'tau':>6}  width of the mean's interval")
    for devices in (3, 5, 10, 20):
        for tau in (0.0, 0.01, 0.03):
            rng = np.random.default_rng(1)
            held, widths = np.zeros(3), []
            for _ in range(fleets):
                centres = fleet(rng, devices, tau, 0.0)
                found = pooled(np.array([each.value for each in centres]), error_variances(centres))
                held += [
                    abs(found.mean) <= found.reach(),
                    found.next_low <= rng.normal(0, tau) <= found.next_high,
                    found.tau_low <= tau <= found.tau_high,
                ]
                widths.append(2 * found.reach())
            shares = " ".join(f"{100 * each / fleets:5.1f}%" for each in held)
            print(f"{devices:>7} {tau:>6.0%} {shares}  {np.median(widths):.1%}", flush=True)


def deviations(fleets: int) -> None:
    """Coverage of how far each device lies from the mean of its twins; the devices differ by 1 %."""
    print(f"\n{'devices':>7} {'deviation':>9}")
    for devices in (2, 3, 5, 10):
        rng = np.random.default_rng(3)
        held = 0
        for _ in range(fleets):
            true = rng.normal(0, 0.01, devices)
            made = {str(n): centre_of(each + rng.normal(0, NOISE, BLOCKS)) for n, each in enumerate(true)}
            for each, told in zip(true, twins_in_effect("", made).standings([], []), strict=True):
                away = math.expm1(each - (true.sum() - each) / (devices - 1))
                held += told.low is not None and told.high is not None and told.low <= away <= told.high
        print(f"{devices:>7} {100 * held / (fleets * devices):>8.1f}%", flush=True)


def alarms(fleets: int) -> None:
    """False alarms in healthy fleets, and how often one, and a quarter, of the devices are found 20 % slower."""
    print(f"\n{'devices':>7} {'noise':>7} {'false':>6} {'one found':>10} {'a quarter found':>16}")
    for kind, spikes in KINDS.items():
        for devices in (3, 4, 5, 6, 8, 12, 24, 48):
            rng = np.random.default_rng(2)
            counts = np.zeros(3)
            for _ in range(fleets):
                centres = fleet(rng, devices, 0.01, spikes)
                counts += [_found(centres, odd) for odd in (0, 1, max(1, devices // 4))]
            false, one, quarter = (f"{100 * each / fleets:.1f}%" for each in counts)
            print(f"{devices:>7} {kind:>7} {false:>6} {one:>10} {quarter:>16}", flush=True)


def _found(centres: list[Centre], odd: int) -> bool:
    """Whether all of the odd devices are found; with none, whether any is."""
    values = np.array([each.value for each in centres])
    values[:odd] += math.log(1.2)
    places = {each.place for each in outlying(set_aside(values, error_variances(centres), own_variances(centres)))}
    return places >= set(range(odd)) if odd else bool(places)


if __name__ == "__main__":
    count = 50 if "--quick" in sys.argv else 500
    intervals(count)
    deviations(count)
    alarms(count)

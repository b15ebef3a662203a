"""Runs with the workload, in whatever platform: standard library (and torch) only, Python 3.6 and later.

A copy of this folder lies on each trial's workdir. Nothing here imports `tare`.
"""

import time

BEGAN_NS = int(time.clock_gettime(time.CLOCK_MONOTONIC) * 1e9)  # when Python came to the first line of the program

"""Runs with the workload, in whatever platform: standard library (and torch) only, Python 3.6 and later.

A copy of this folder lies on each trial's workdir. Nothing here imports `tare`.
"""

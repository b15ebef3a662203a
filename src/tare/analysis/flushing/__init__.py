"""A non-volatile layer for flushing, simulated on a trace of page writes: what it saves, by capacity and policy.

traces.py, files.py, stores.py   where page writes come from: columns, CSV and Parquet, the traced trials of a store
model.py                         the layer that is asked for, and what a run has found
numbering.py, replay.py          the two inner loops, compiled where numba is there (docs/decisions/0012-simulator.md)
buffer.py, sweep.py              one buffer's memory; every layer over one trace, in one pass
paper.py                         for which capacity the paper's 77 to 90 % appear
"""

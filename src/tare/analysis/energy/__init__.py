"""What the energy of a store's trials is made of.

idle         idle power by platform and mode, from trials of the `idle` workload
baseload     the same records, with baseload and incremental energy where the idle power is known
cells        joules and watts of each cell, with intervals over trials
differences  a difference between two cells as *ran longer*, *idle power differs* and *more work*
doubts       why energy that was read is not claimed
findings     all of it for one store
"""

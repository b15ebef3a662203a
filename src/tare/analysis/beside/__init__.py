"""What lies beside a record, for whoever needs more than its own figures.

steps     when the measured steps of a trial ran, and what epoch 0 took, from its marks
figures   figures that a record does not hold by itself: medians of series, means of epoch 0, counts
"""

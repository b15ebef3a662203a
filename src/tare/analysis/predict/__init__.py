"""Time, power and energy of modes that were not measured, from a few that were.

modes       rows in, one table of modes for each workload out
resources   what a feature is, by its name: a clock of the device, of the host, a number of cores, something else
law         how time and power follow from the resources: the stages of the pipeline and who waits for whom
fit         the law's constants from measured modes: least squares with a prior, many problems at once
surface     what a fit says of any mode, with an interval: the law, and what the measured modes say against it
transfer    what workloads measured before on the device say about the next one
linear      the method of the paper (S3 5.7): linear regression, one energy model for all workloads
design      which modes to measure first, and next
evaluate    random splits: how far each method is off on the modes that it did not see
"""

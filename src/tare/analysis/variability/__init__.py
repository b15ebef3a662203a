"""How much a figure varies, and where that comes from: epochs, trials, days, devices.

samples      rows in (a table's, or the epochs of a store's trials), one sample each, with where it belongs
components   the variance of each level, by the analysis of variance of nested groups
drift        whether the figure moves over the epochs of a trial, or over the hours of a study
enough       how many trials and epochs a given half-width takes
study        all of it, as one answer
"""

from tare.analysis.variability.enough import Plan
from tare.analysis.variability.samples import Sample, store_samples, table_samples
from tare.analysis.variability.study import Variability, variability

__all__ = ["Plan", "Sample", "Variability", "store_samples", "table_samples", "variability"]

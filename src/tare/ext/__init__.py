"""The extension API: all that a room or another package needs of tare, stable within a minor version.

parts      protocols of parts, readings, rulings; light
analysis   trials, tables, cells, late figures, comparisons, statistics, words
report     figures and tables that show a result
verbs      options and output of the command line, and the studies that a verb names

What is here is defined elsewhere and only named here: a name that is not in one of these four may change any day.
`tare.base` (host, errors, units, text) may be imported too.
"""

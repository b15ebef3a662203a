"""The papers' take-aways as hypotheses, each decided on the user's own records.

s0 ... s4   one file a paper: what each take-away says, and how records speak to it
model       a claim, what it looks at (checks), and the answer
registry    the papers, found by the names of their files
pooling     stores in, evidence out: trials of one device and one software together, others apart
evidence    the usable trials of one population, as logs by cell and block
contrasts   ratios, interactions, trends and tendencies, block by block
checks      makers of checks: a tendency over all cells, or each cell by itself
deciding    checks to words, by the statistics of `compare`
factors     what a record's settings mean: who is a container, which model is light, which medium is slow
media       which storage medium is the slowest, and whether they differed at all
power_modes trials by power mode: which is beaten, how well a few predict the rest, clocks without the name of a mode
metrics     the names of the figures that claims read, and why one is not there
"""

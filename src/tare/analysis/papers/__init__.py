"""The papers' own tables, row by row, beside what the same studies gave on one's own machines.

s0.yaml ... s4.yaml   one file a paper: what it printed, what is wrong with it, and which study, figure and settings
                      give ours; nothing in them is a result of ours
model                 a paper, its rows, and how a row is asked of a store
library               the files, typed when read
machines              a folder of results: the stores and packs of each machine
refused               the studies that a machine refused to run, and why
levels                which level of a setting was run, of those that a row asks for, and what people call it
picking               from the trials of a study to the two sides of a row
rows                  every row on every machine, by the statistics of `compare`
missing               why a row has no figure on a machine, in words
conditions            in what the trials behind a row differ from what the paper had, and what to know of its figure
felt_media            whether an emulated medium may have slowed anything
layers                S0's withdrawn result: the container in whole, and layer by layer
"""

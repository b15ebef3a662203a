"""What binds an input pipeline, how many workers hide the stall, and how slow a medium may be.

model      what is said, as values
parts      rows in, the trials of each pipeline out, by number of workers
hiding     whether the stall is hidden, in the four words of a comparison; measured and predicted
binding    disk, CPU or GPU: by what a warm cache and a faster medium take off the fetch
study      all of it, as one answer
"""

from tare.analysis.anatomy.model import Anatomy, Part, Pipeline
from tare.analysis.anatomy.parts import pipeline_rows
from tare.analysis.anatomy.study import anatomy

__all__ = ["Anatomy", "Part", "Pipeline", "anatomy", "pipeline_rows"]

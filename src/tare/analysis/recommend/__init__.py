"""Which configuration to use: the best one that surely keeps the limits, what it gains, and how sure that is."""

from tare.analysis.recommend.decide import recommend
from tare.analysis.recommend.job import Job, Limit, job_observations
from tare.analysis.recommend.model import Candidate, NextTrial, Predicted, Recommendation
from tare.analysis.recommend.unmeasured import predictions

__all__ = [
    "Candidate",
    "Job",
    "Limit",
    "NextTrial",
    "Predicted",
    "Recommendation",
    "job_observations",
    "predictions",
    "recommend",
]

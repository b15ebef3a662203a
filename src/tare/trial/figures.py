"""Every figure of a record, from the evidence: the one place where they are put together, at the seal and after it."""

from __future__ import annotations

from tare.trial.energy import Energy
from tare.trial.evidence import Evidence
from tare.trial.summary import Steps, counter_metrics, job_metrics, step_metrics
from tare.trial.tenant_metrics import shared_metrics


def said_figures(evidence: Evidence) -> dict[str, float]:
    """What the launcher counted, and what a built-in program says of itself."""
    return job_metrics(evidence.result, evidence.outcome)


def figures(evidence: Evidence, steps: Steps | None, energy: Energy | None) -> dict[str, float]:
    """Base units; a figure that nothing tells of is absent."""
    metrics = said_figures(evidence) | counter_metrics(evidence.readings)
    if evidence.neighbours:
        metrics |= shared_metrics(evidence.marks, evidence.neighbours, evidence.result)
    elif steps is not None:
        metrics |= step_metrics(steps)
    return metrics | {**evidence.traced, **(energy.metrics if energy is not None else {})}

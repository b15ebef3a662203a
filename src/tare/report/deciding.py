"""What the deciding verbs say alike: settings, chances, losses, and sentences that wrap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tare.analysis.configurations import settings_text
from tare.analysis.model import Estimate
from tare.report.columns import wrap
from tare.report.words import effect_text, interval_text, safe_text, share_text

NEARLY = 0.999  # beyond this a rounded 100 % would claim too much


def shown_settings(settings: Mapping[str, str | float]) -> str:
    """`gpu_mhz=1980, cores=8`, safe for a terminal."""
    return safe_text(settings_text(settings))


def sentences(texts: Iterable[str], width: int) -> list[str]:
    """Sentences, each on lines of its own."""
    return [line for text in texts for line in wrap(safe_text(text), width, indent="  ")]


def chance_text(chance: float) -> str:
    """`97 %`; what is nearly sure, or nearly impossible, is not called so."""
    if chance > NEARLY:
        return "over 99.9 %"
    return "below 0.1 %" if chance < 1 - NEARLY else share_text(chance)


def loss_text(loss: Estimate) -> str:
    """`+47.4 %`, with its interval where there is one."""
    if loss.low is None or loss.high is None:
        return effect_text(loss.value)
    return f"{effect_text(loss.value)} {interval_text(loss.low, loss.high, [loss.value])}"

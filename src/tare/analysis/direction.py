"""Is more of a metric better, or worse? By its name, unless the user states it; what no name settles is a guess."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

Source: TypeAlias = Literal["name", "option", "guess"]
Kind: TypeAlias = Literal["speed", "amount", "quality"]


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


_TIMES = _named("s sec secs second seconds ms us ns msec usec nsec min mins minute minutes h hour hours")
_PAID = _TIMES | _named(
    "j joule joules mj kj wh kwh w watt watts mw kw usd eur dollar dollars euro"
)  # what a job spends
_SIZES = _named("bytes byte b kib mib gib kb mb gb")
_WAITS = _named(
    "time latency duration elapsed wall runtime delay jitter stall wait overhead startup ttft tpot itl makespan"
)
_LESS = _WAITS | _named(
    "energy power cost price memory mem rss vram loss error errors err perplexity ppl wer cer mae mse rmse faults "
    "misses retries drops footprint cycles instructions switches migrations"
)
_QUALITY = _named(
    "accuracy acc top1 top5 auc auroc f1 bleu rouge map miou iou precision recall psnr ssim efficiency"
)  # fmt: skip
_MORE = _QUALITY | _named(
    "throughput goodput fps qps rps tps ips iops ops mfu hfu flops mflops gflops tflops bandwidth speed speedup"
)
_COUNTED = _named(
    "samples images imgs img tokens toks tok its it iters iterations steps batches examples requests reqs req queries "
    "frames seqs sequences words records rows"
)
_WORDS = re.compile(r"[a-z]+\d*|\d+", re.IGNORECASE)
_PER = re.compile(r"(?P<of>.*?)(?:(?:^|[_\W])per(?=[_\W])|/)(?P<each>.+)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Direction:
    """Which way a metric is better, and how that is known."""

    rises: bool  # more of it is better
    source: Source

    @property
    def settled(self) -> bool:
        """Whether a gate may act on it: the name states it, or the user did."""
        return self.source != "guess"

    def __str__(self) -> str:
        way = "higher is better" if self.rises else "lower is better"
        return f"{way} ({_SOURCES[self.source]})"


LOWER = Direction(False, "name")
_SOURCES: dict[Source, str] = {
    "name": "by its name",
    "option": "as requested",
    "guess": "a guess: its name does not settle it; --higher-is-better or --lower-is-better does",
}


def direction_of(metric: str, asked: bool | None = None) -> Direction:
    """`step_s` is better lower, `tokens_per_second` and `it/s` higher; `asked` is the user's own statement."""
    if asked is not None:
        return Direction(asked, "option")
    found = _by_rate(metric)
    if found is None and _may_be_rate(metric):
        return Direction(True, "guess")
    found = _by_words(metric) if found is None else found
    return Direction(False, "guess") if found is None else Direction(found, "name")


def kind_of(metric: str) -> Kind:
    """Which words fit it: of a time or a rate *slower*, of joules, bytes or a loss *more*, of accuracy *worse*.

    What no name settles is taken as a time, as its direction is.
    """
    found = _PER.match(_spaced(metric.strip()))
    each = _words(found["each"]) if found else []
    words = _words(found["of"]) if found else [*_words(metric), metric.lower()]
    for word in reversed(words):
        if word in _TIMES | _WAITS:
            return "speed"
        if word in _PAID | _SIZES | _LESS:
            return "speed" if word in _SIZES and each and each[0] in _TIMES else "amount"
        if word in _QUALITY:
            return "quality"
        if word in _MORE:
            break
    return "quality" if each and each[0] in _PAID - _TIMES else "speed"


def is_amount(metric: str) -> bool:
    """Whether it is a time, an energy or a power by its last word: what a clock or a meter reads."""
    words = _words(metric)
    return bool(words) and words[-1] in _PAID


def _may_be_rate(metric: str) -> bool:
    """`tokens_s`, `imgs_sec`: tokens per second, or seconds for tokens; `step_s` is a time."""
    words = _words(metric)
    return len(words) > 1 and words[-1] in _TIMES and words[-2] in _COUNTED


def rises_when_faster(metric: str) -> bool:
    """Whether more of it is better, by its name; what a name does not settle is taken as a time."""
    return direction_of(metric).rises


def _by_rate(metric: str) -> bool | None:
    """`samples/s` and `images_per_joule` rise; `s/it`, `ms_per_token` and `joules_per_second` fall."""
    found = _PER.match(_spaced(metric.strip()))
    if found is None:
        return None
    of, each = _words(found["of"]), _words(found["each"])
    if of and of[-1] in _PAID | _SIZES and not (of[-1] in _SIZES and each and each[0] in _PAID):
        return False
    if of and any(word in _LESS for word in of):
        return False
    return True if each and each[0] in _PAID else None


def _by_words(metric: str) -> bool | None:
    """The unit at the end decides; then the last word that has a meaning."""
    words = [*_words(metric), metric.lower()] if metric.lower() in _MORE | _LESS else _words(metric)  # mAP is one word
    if words and (words[-1] in _PAID or words[-1] in _SIZES):
        return False
    for word in reversed(words):
        if word in _LESS:
            return False
        if word in _MORE:
            return True
    return None


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(_spaced(name))]


def _spaced(name: str) -> str:
    """`tokensPerSecond` as `tokens Per Second`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)

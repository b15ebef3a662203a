"""Whether more of a metric is better or worse: as declared or stated, else by the words of its name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tare.base.declare import declared, learnt

Source: TypeAlias = Literal["name", "option", "guess", "neutral"]
Kind: TypeAlias = Literal["speed", "amount", "quality"]


def _named(words: str) -> frozenset[str]:
    return frozenset(words.split())


_SECONDS = _named("s sec secs second seconds")
_TIMES = _SECONDS | _named("ms us ns msec usec nsec min mins minute minutes h hour hours")
_PAID = _TIMES | _named(
    "j joule joules mj kj wh kwh w watt watts mw kw usd eur dollar dollars euro"
)  # what a job spends
_SIZES = _named("bytes byte b kib mib gib kb mb gb")
_WAITS = _named(
    "time latency duration elapsed wall runtime delay jitter stall wait overhead startup ttft tpot itl makespan "
    "slowdown"
)
_LESS = _WAITS | _named(
    "energy power cost price memory mem rss vram loss error errors err perplexity ppl wer cer mae mse rmse faults "
    "misses retries drop drops gap regression degradation footprint cycles instructions switches migrations "
    "std stddev stdev iqr"
)
_QUALITY = _named(
    "accuracy acc top1 top5 auc auroc f1 bleu rouge rouge1 rouge2 map miou iou precision recall psnr ssim efficiency"
)  # fmt: skip
_OPERATIONS = _named("ops iops flops mflops gflops tflops")
_MORE = _QUALITY | _OPERATIONS | _named(
    "throughput goodput fps qps rps tps ips mfu hfu bandwidth bw bps kbps mbps gbps speed speedup"
)  # fmt: skip
_EFFORT = _named("epochs steps iters iterations batches samples examples tokens")  # that a target takes
_COUNTED = _EFFORT - {"epochs"} | _named(
    "images imgs img toks tok its it requests reqs req queries frames seqs sequences words records rows"
)
# Beside these a word of the others says nothing: free memory, a battery's life, instructions per cycle.
_OPEN = _named(
    "free available availability unused remaining left spare headroom capacity budget limit quota life lifetime uptime "
    "scale temperature score cycle"
)
# But these only say which, where such a word stands behind them (`gc_free_ms`), or at any place (`f1_score`).
_CLOSED_BEHIND = {"free": _TIMES | _WAITS, "scale": _TIMES | _WAITS, "capacity": _MORE}
_CLOSED_BESIDE = {"score": _QUALITY | _TIMES | _WAITS, "cycle": _PAID | _WAITS | {"energy", "power"}}
_WORDS = re.compile(r"[a-z]+\d*|\d+", re.IGNORECASE)
_PER = re.compile(r"(?:^|[_\W])per(?=[_\W])|/", re.IGNORECASE)
_FOLDERS = re.compile(  # as loggers write them: `train/loss`
    r"(?:(?:train|training|val|valid|validation|eval|test|perf|performance|stats|system|timing|profiler)/)+",
    re.IGNORECASE,
)
_CONDITION = re.compile(r"@|[_\W](?:at|until|till|under|within)(?=[_\W])", re.IGNORECASE)
_TARGET = re.compile(r"[_\W](?:to|with|without)(?=[_\W])", re.IGNORECASE)  # also of `end_to_end`
_AIM = re.compile(r"[_\W](?:to|until|till)(?=[_\W])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Direction:
    """Which way a metric is better, and how that is known."""

    rises: bool  # more of it is better
    source: Source

    @property
    def settled(self) -> bool:
        """Whether a gate may act on it: the name states it, or the user did."""
        return self.source in _SOURCES

    def __str__(self) -> str:
        if not self.settled:
            return f"{_UNSETTLED[self.source]} (--higher-is-better or --lower-is-better states it)"
        return f"{'higher' if self.rises else 'lower'} is better ({_SOURCES[self.source]})"


LOWER = Direction(False, "name")
_SOURCES: dict[Source, str] = {"name": "by its name", "option": "as requested"}
_UNSETTLED: dict[Source, str] = {
    "guess": "its name does not show which way is better",
    "neutral": "more of it is neither better nor worse",
}


def direction_of(metric: str, asked: bool | None = None) -> Direction:
    """`step_s` is better lower, `tokens_per_second` and `it/s` higher; `asked` is the user's own statement."""
    if asked is not None:
        return Direction(asked, "option")
    if (known := declared(metric)) is not None:
        return Direction(known.better == "higher", "neutral" if known.better == "neutral" else "name")
    name = _deciding(metric)
    if _is_open(words_of(name)):
        return Direction(False, "guess")
    if _AIM.match(_bare(metric), len(name)) and _EFFORT.intersection(words_of(name)[-1:]):
        return LOWER  # epochs to an accuracy
    found = _by_rate(name)
    return _by_words(name) if found is None else Direction(found, "name")


def kind_of(metric: str) -> Kind:
    """Which words fit it: of a time or a rate *slower*, of joules, bytes or a loss *more*, of accuracy *worse*.

    What no name settles is taken as a time, as its direction is.
    """
    if (known := learnt(metric)) is not None:
        return "speed" if known.unit == "s" or known.unit.endswith("/s") else "amount"
    name = _deciding(metric)
    of, each = _split(name)
    words = of if each else _with_whole(name)
    if words and words[-1] in _SIZES and _last_meaning(words) in _MORE:
        return "speed"
    if words[-1:] == ["error"] and words[-2:-1] and words[-2] in _QUALITY:
        return "quality"
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


def _is_open(words: list[str]) -> bool:
    """Whether a word leaves it open which way is better: `free` of `mem_free_mb`, and not of `gc_free_ms`."""
    for place, word in enumerate(words):
        behind, beside = _CLOSED_BEHIND.get(word, frozenset()), _CLOSED_BESIDE.get(word, frozenset())
        if word in _OPEN and not behind.intersection(words[place + 1 :]) and not beside.intersection(words):
            return True
    return False


def is_amount(metric: str) -> bool:
    """Whether it is a time, an energy or a power by its last word: what a clock or a meter reads."""
    words = words_of(metric)
    return bool(words) and words[-1] in _PAID


def rises_when_faster(metric: str) -> bool:
    """Whether more of it is better, by its name; what a name does not settle is taken as a time."""
    return direction_of(metric).rises


def _deciding(metric: str) -> str:
    """The part of a name that decides: `time` of `time_to_accuracy`, `latency` of `latency_at_100_qps`."""
    name = _bare(metric)
    if (found := _CONDITION.search(name)) and words_of(name[: found.start()]):
        return name[: found.start()]
    for found in _TARGET.finditer(name):
        if _PAID.union(_SIZES, _LESS, _MORE, _EFFORT).intersection(words_of(name[: found.start()])):
            return name[: found.start()]
    return name


def _split(name: str) -> tuple[list[str], list[str]]:
    """What is counted, and per what; the second is empty where the name is no rate: `val/accuracy`."""
    for found in _PER.finditer(name):
        of, each = words_of(name[: found.start()]), words_of(name[found.end() :])
        if each and (each[0] in _PAID or (of and (of[-1] in _PAID | _SIZES or _LESS.intersection(of)))):
            return of, each
    return words_of(name), []


def _by_rate(name: str) -> bool | None:
    """`samples/s` and `images_per_joule` rise; `s/it`, `ms_per_token` and `joules_per_second` fall."""
    of, each = _split(name)
    if not each:
        return None
    if of and of[-1] in _PAID | _SIZES and not (of[-1] in _SIZES and each[0] in _PAID):
        return False
    if of and of[-1] in _SIZES and _last_meaning(of) in _LESS:
        return None  # memory_gb_per_s: a bandwidth, or how fast it grows
    return _last_meaning(of) not in _LESS


def _by_words(name: str) -> Direction:
    """The unit at the end decides; then the last word that has a meaning. Words that contradict each other guess."""
    words = _with_whole(name)
    unit = words[-1] if words else ""
    before, meaning = words[-2] if len(words) > 1 else "", _last_meaning(words)
    if unit in _TIMES and before in _COUNTED:  # tokens per second, or seconds for tokens; `step_s` is a time
        return Direction(True, "guess")
    if unit in _SECONDS and before in _SIZES | _OPERATIONS:  # mb_s; of memory perhaps GB times seconds
        return Direction(True, "guess" if meaning in _LESS else "name")
    if unit in _TIMES and before in _SIZES and meaning not in _LESS:
        return Direction(True, "guess")
    if unit in _PAID | _SIZES:
        return Direction(unit in _SIZES, "guess") if meaning in _MORE else LOWER
    return Direction(meaning in _MORE, "name" if meaning else "guess")


def _last_meaning(words: list[str]) -> str:
    """The last word that says whether more is better, or nothing."""
    return next((word for word in reversed(words) if word in _LESS | _MORE), "")


def _with_whole(name: str) -> list[str]:
    """The words, and the whole name where it is one (mAP); without the `min` that is a minimum: `fps_min`."""
    words, whole = words_of(name), name.replace(" ", "").lower()
    if words[-1:] == ["min"] and words[-2:-1] and words[-2] in _MORE:
        words.pop()
    return [*words, whole] if whole in _MORE | _LESS else words


def words_of(name: str) -> list[str]:
    """`tokensPerSecond` and `tokens_per_second` as tokens, per, second."""
    return [word.lower() for word in _WORDS.findall(_spaced(name))]


def _bare(metric: str) -> str:
    """Without the folders of a logger, and with its words apart."""
    name = _spaced(metric.strip())
    return name[found.end() :] if (found := _FOLDERS.match(name)) else name


def _spaced(name: str) -> str:
    """`tokensPerSecond` as `tokens Per Second`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)

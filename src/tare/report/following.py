"""What to do with an answer: one function for the page and for the terminal, and each command can be typed as it is."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from tare.analysis.model import Comparison, Weighing
from tare.base.text import count_text, duration_text, share_text
from tare.records.model import Record
from tare.report.layout import in_words

if TYPE_CHECKING:
    from tare.records.store import Store

MANY_BLOCKS = 30  # more of them than that, and what fewer would see is the better advice
GROWN = 3  # times as many blocks
SLACK, AROUND_S = 1.1, 15.0  # of a budget: blocks may take longer, and the command has more to do than blocks


@dataclass(frozen=True)
class Source:
    """Where an answer comes from, as far as a command has to name it."""

    name: str = "STORE"  # as it is typed
    grows: bool = True  # whether blocks can be added: to a folder that one device wrote
    study: Mapping[str, Any] | None = None
    blocks: int = 0  # that were run
    block_s: float = 0.0  # what one took

    @classmethod
    def of(cls, store: Store | None, records: Sequence[Record], name: str = "STORE") -> Self:
        """Of a store; without one nothing is known but its trials."""
        blocks = {record.block for record in records}
        spent_s = _covered_ns((record.start_ns, record.end_ns) for record in records) / 1e9
        is_pack = store is not None and store.path != store.root
        from_fleet = any("device" in record.settings for record in records)
        study = {} if store is None else store.study
        grows = not (is_pack or from_fleet or has_companions(study.get("platform")))
        return cls(name, grows, study, len(blocks), spent_s / max(1, len(blocks)))

    def with_blocks(self, total: int) -> str:
        """The command that continues the store until it has this many blocks."""
        is_weighing = (self.study or {}).get("study") == "weigh"
        if is_weighing and self.block_s:
            return f"tare weigh --resume {self.name} --budget {_budget_text((total - self.blocks) * self.block_s)}"
        return f"tare run {self.name} --blocks {total}"


def has_companions(platform: Any) -> bool:
    """Whether a platform of a study joins containers that ran beside it, and are gone now."""
    if isinstance(platform, Mapping):
        return bool(platform.get("joins")) or any(map(has_companions, platform.values()))
    return isinstance(platform, list | tuple) and any(map(has_companions, platform))


def _budget_text(seconds: float) -> str:
    """Enough for blocks that take so long, in whole minutes.

    >>> _budget_text(300)
    '6min'
    """
    return f"{math.ceil((seconds * SLACK + AROUND_S) / 60)}min"


def _covered_ns(spans: Iterable[tuple[int, int]]) -> int:
    """How long one of these was going on: trials in turns are at the same time."""
    covered_ns, until_ns = 0, 0
    for begin_ns, end_ns in sorted(spans):
        covered_ns += max(0, end_ns - max(begin_ns, until_ns))
        until_ns = max(until_ns, end_ns)
    return covered_ns


@dataclass(frozen=True)
class Step:
    """Something to do: why, and the command, where there is one."""

    why: str
    command: str = ""

    def __str__(self) -> str:
        return f"{self.why.rstrip('.:')}: `{self.command}`." if self.command else self.why


def next_steps(weighing: Weighing, source: Source, *, explained: bool = False) -> list[Step]:
    """What to do with the answer, the most pressing first; `explained` where the report has a waterfall already."""
    found, told = weighing.comparisons, []
    if not found and weighing.medians:
        return [Step("Name what is to be compared with --by FACTOR and --against LEVEL; the notes say more.")]
    if not found:
        if source.grows:
            return [Step("Run the study, or resume it where it stopped", f"tare run {source.name}")]
        return [Step("No trial can be compared: `tare show` lists how each one ended.")]
    unsure = [each for each in found if each.verdict == "cannot_tell"]
    if weighing.marked and unsure:
        count = sum(each.suspect for each in weighing.marked)
        is_are = "is" if count == 1 else "are"
        told.append(Step(f"{count_text(count, 'trial')} {is_are} suspect. Why", f"tare show {source.name}"))
    if any(each.tainted for each in found):
        told.append(Step("Make the sides alike in what taints the comparison, and run it again."))
    told += _more_blocks(unsure, source) if unsure else []
    costly = [each for each in found if each.verdict == "slower"]
    if costly and weighing.by == "platform" and not explained:
        told.append(_why("Find what costs", source))
    if weighing.left_out:
        left = len(weighing.left_out)
        is_are = "is" if left == 1 else "are"
        told.append(Step(f"{count_text(left, 'trial')} {is_are} left out. Why", f"tare show {source.name}"))
    return [*told, *_of_further(weighing, source)] if weighing.by == "platform" else told


def pressing(steps: Sequence[Step]) -> list[Step]:
    """The one step that a short answer has room for: what decides the question or explains a cost, else the first."""
    runs = [step for step in steps if step.command.startswith(("tare run ", "tare weigh ", "tare why "))]
    return [*runs, *(step for step in steps if "--fail-over" not in step.command)][:1]


def _more_blocks(unsure: Sequence[Comparison], source: Source) -> list[Step]:
    """The command that adds as many blocks as it takes; where those are too many, what fewer of them would see."""
    needed = [each.more_trials for each in unsure if each.more_trials]
    if not needed:
        return [Step("More blocks alone may not decide what cannot be told: see the notes on it.")]
    more = max(needed)
    if more > MANY_BLOCKS and (some := _some_blocks(unsure, source)) is not None:
        return [some]
    loud = [Step("The trials scatter much for this margin: a quieter machine needs fewer blocks.")]
    many = loud if more > MANY_BLOCKS else []
    total = source.blocks + more
    takes = f", {duration_text(more * source.block_s)}" if source.block_s else ""
    why = f"A decision takes about {count_text(more, 'more block')}{takes}"
    if source.grows:
        return [*many, Step(why, source.with_blocks(total))]
    return [*many, Step(f"{why}. This store cannot be continued: run the study again with {total} blocks in all.")]


def _some_blocks(unsure: Sequence[Comparison], source: Source) -> Step | None:
    """Three times the blocks that there are: what can be seen shrinks with the root of their number."""
    seen = [each.mde for each in unsure if each.mde is not None]
    if not seen or not source.grows or not source.blocks:
        return None
    most, total = max(seen), GROWN * source.blocks
    then = math.expm1(math.log1p(most) / math.sqrt(GROWN))
    takes = f" ({duration_text((total - source.blocks) * source.block_s)} more)" if source.block_s else ""
    why = (
        f"These blocks would see a difference of {share_text(most)} in four of five runs, and {total} of them{takes} "
        f"one of {share_text(then)}; a quieter machine needs fewer"
    )
    return Step(why, source.with_blocks(total))


def _why(why: str, source: Source, options: str = "") -> Step:
    """`tare why` of the same command in the same container, where the store has one; else how it is asked for."""
    study = source.study or {}
    command, container = _command(study.get("workload")), _container(study.get("platform"))
    if command is None or container is None:
        return Step(f"{why}: `tare why{options}` with the same command or workload, and the same container.")
    return Step(why, f"tare why{options} {shlex.join([*container, '--', *command])}")


_LIMITS = {"quota": "cpus", "cpuset": "cpuset", "memory": "memory", "shm": "shm"}  # field -> name in --limit
_OPTIONS = ("network", *_LIMITS)


def _container(platforms: Any) -> list[str] | None:
    """The options that name the one container that was weighed against bare metal, if they are all that it needs."""
    levels = [platforms] if isinstance(platforms, str) else platforms or []
    named = [{each: {}} if isinstance(each, str) else each for each in levels]
    others = [each for each in named if not (isinstance(each, Mapping) and "bare" in each)]
    if len(others) != 1 or not isinstance(others[0], Mapping):  # several at once, or a stack of them
        return None
    ((name, given),) = others[0].items()
    own = given or {}
    if own.keys() - {"image", *_OPTIONS} or not all(isinstance(value, str | int | float) for value in own.values()):
        return None
    alike: list[Any] = [{}, {"image": own.get("image")}]
    if any((each["bare"] or {}) not in alike for each in named if each is not others[0]):
        return None
    limits = ",".join(f"{limit}={own[name]:g}" if isinstance(own[name], float) else f"{limit}={own[name]}"
                      for name, limit in _LIMITS.items() if name in own)  # fmt: skip
    words = ["--in", name, *(["--image", own["image"]] if "image" in own else [])]
    return [*words, *(["--limit", limits] if limits else []),
            *(["--set", f"platform.network={own['network']}"] if "network" in own else [])]  # fmt: skip


def _command(workload: Any) -> list[str] | None:
    """The words of the one command that was weighed, if it needs nothing besides."""
    only = workload[0] if isinstance(workload, list) and len(workload) == 1 else workload
    fields = only.get("command") if isinstance(only, Mapping) else None
    if not isinstance(fields, Mapping) or fields.keys() - {"argv", "cwd"} or not isinstance(fields.get("argv"), list):
        return None
    return [str(word) for word in fields["argv"]]


def _of_further(weighing: Weighing, source: Source) -> list[Step]:
    """Of the metrics beside the headline (start-up, tail, first token), or that there is nothing to do."""
    told = []
    worse = [each for each in weighing.tested if each.verdict == "slower"]
    for metric, called, rises in dict.fromkeys((each.metric, each.called, each.direction.rises) for each in worse):
        how = "" if rises else f" --set compare.metric={metric}"
        told.append(_why(f"Worse in the {called}. Find the cause", source, how))
    if worse or not all(each.verdict in ("equivalent", "faster") for each in weighing.comparisons):
        return told
    margin = share_text(max(each.margin for each in weighing.comparisons)).replace(" ", "")
    open_for = list(dict.fromkeys(each.called for each in weighing.tested if each.verdict == "cannot_tell"))
    unless = f" in the {weighing.called}; what the {in_words(open_for)} costs is not known yet" if open_for else ""
    whose = " in the platform" if weighing.knees else ""  # a server behind its rate on all of them is another matter
    command = f"tare compare {source.name} --fail-over {margin}"
    return [Step(f"Nothing to repair{whose}{unless}. To keep it so in CI", command)]

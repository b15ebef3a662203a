"""A claim, what it looks at, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from tare.analysis.model import Measurement
from tare.analysis.selection import DEFAULT_MARGIN

if TYPE_CHECKING:
    from tare.papers.claims.evidence import Population


Word: TypeAlias = Literal["holds here", "does not hold here", "undecided", "not measured"]
HOLDS: Word = "holds here"
FAILS: Word = "does not hold here"
UNDECIDED: Word = "undecided"
NOT_MEASURED: Word = "not measured"
ASSUMED = "assumed"  # facts: figures of a record that rest on an assumption of ours, which no paper has made

Wants: TypeAlias = Literal["rises", "falls", "same", "apart"]
Kind: TypeAlias = Literal["change", "share", "points"]  # what a figure is: 30 % more, 30 % of it, 30 points more of it


@dataclass(frozen=True)
class Check:
    """One figure that a claim says something about: what it is, what it should do, and its values block by block."""

    about: str  # "step time, docker against bare"
    wants: Wants
    ours: tuple[Measurement, ...]
    theirs: tuple[Measurement, ...]
    margin: float = DEFAULT_MARGIN  # within this it has not changed
    bound: float = 0.0  # a share that the effect must lie above (rises) or below (falls); then the margin is 0
    kind: Kind = "change"  # "share": the values are shares of a whole; "points": their logs are
    floor: float | None = None  # by how much the same thing differed from itself
    trials: frozenset[str] = frozenset()
    tainted: tuple[str, ...] = ()  # what else differs between the sides
    parts: tuple[Check, ...] = ()  # of a tendency: the same in each of its cells
    no_evidence: str = ""  # why failing would not speak against the claim, in words: then it is undecided
    is_condition: bool = False  # says whether there was anything to see; it need not hold in every cell


@dataclass(frozen=True)
class Look:
    """What the records have to say about a claim: checks, and in words what they do not have."""

    checks: tuple[Check, ...] = ()
    missing: tuple[str, ...] = ()
    depends_on: str = ""  # an assumption that could turn the word, in words: then it is undecided


@dataclass(frozen=True)
class Claim:
    """A take-away of a paper."""

    id: str  # "s0.lighter-models-lose-more": the paper, then the statement in short
    section: str
    statement: str
    study: str  # the study that would measure it: `tare run` with this name
    look: Callable[[Population], Look]
    any_of: bool = False  # one check that holds is enough ("can be", "may not be")
    across: bool = False  # it compares devices or software with each other: all populations are looked at together
    also: tuple[str, ...] = ()  # further papers that say the same
    scale: str = ""  # of the study, where not each of its scales has what the claim is about

    @property
    def papers(self) -> tuple[str, ...]:
        return self.id.partition(".")[0], *self.also

    @property
    def paper(self) -> str:
        """`S1/S3`."""
        return "/".join(name.upper() for name in self.papers)

    @property
    def command(self) -> str:
        return f"tare run {self.study}{f' --scale {self.scale}' if self.scale else ''}"


@dataclass(frozen=True)
class Answer:
    """One claim on one population, in one word, with what the word rests on. Effects are shares."""

    id: str
    paper: str
    section: str
    statement: str
    word: Word
    effect: float | None
    low: float | None
    high: float | None
    n: int  # blocks that hold all that is compared, or trials on the smaller side
    trials: tuple[str, ...]
    why: str
    study: str
    where: str = ""  # the population, where there are several
    kind: Kind = "change"  # what the effect is: of a share it is the share itself, or the points by which it changed

    def as_json(self, ready: Collection[str]) -> dict[str, Any]:
        """All of it, and whether its study is among those that are `ready` to be run."""
        return {**asdict(self), "trials": list(self.trials), "study_ready": is_ready(self.study, ready)}


def is_ready(command: str, ready: Collection[str]) -> bool:
    """Whether the study that a `tare run STUDY` names is one of these."""
    return study_of(command) in ready


def study_of(command: str) -> str:
    """The study in `tare run STUDY --scale SCALE`."""
    return command.removeprefix("tare run ").partition(" ")[0]


COUNTED: Mapping[Word, tuple[str, str]] = {  # how one is counted, and how several are
    HOLDS: ("holds", "hold"), FAILS: ("does not hold", "do not hold"), UNDECIDED: ("undecided", "undecided"),
}  # fmt: skip
LARGE = 1.0  # from +100 % on, a factor reads better than percent
LEAST_SHARE, BELOW_LEAST = 0.001, "below 0.1 %"  # a share that is less is not told in digits


def figure_words(kind: Kind, effect: float, low: float, high: float) -> str:
    """`+1.6 % [+0.4, +2.9]`, `94x [48x, 185x]`, `31.0 % [28.4, 33.0]`, `+30.0 points [+22.1, +38.0]`."""
    if kind == "change" and effect >= LARGE:
        return f"{times(1 + effect)} [{times(1 + low)}, {times(1 + high)}]"
    if kind == "share" and is_tiny(high):
        return BELOW_LEAST
    number = _share if kind == "share" else _signed
    return f"{number(effect)} {'points' if kind == 'points' else '%'} [{number(low)}, {number(high)}]"


def is_tiny(share: float) -> bool:
    """Whether a share is more than nothing, and less than is told."""
    return 0 < share < LEAST_SHARE


def times(factor: float) -> str:
    """`185x`, `3.6x`, `0.97x`: near one, which is no change, with one digit more."""
    decimals = 0 if factor >= 100 else 1 if factor >= 2 else 2
    return f"{factor:,.{decimals}f}x"


def _share(share: float) -> str:
    return f"{100 * share:.1f}"


def _signed(share: float) -> str:
    """`+1.6`; what is shown as nothing has no sign."""
    shown = f"{100 * share:+.1f}"
    return shown if float(shown) else "0.0"

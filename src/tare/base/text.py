"""Numbers to text, at the edge: what is seconds and shares inside becomes `1.84 ms` and `+1.6 %` here."""

from __future__ import annotations

import math
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from tare.base.columns import display_width, wrap
from tare.base.declare import STEP, before, declared

FIRST_EPOCH = "epoch0_"  # epoch 0 is kept apart, under a name of its own
HIDING_SPREAD = 1000  # beyond this a shared unit would show the smaller as nothing
NOTHING = 1e-6  # of the smallest unit: less than that of a nanosecond is what a subtraction of floats left
DIGITS = 3  # significant digits: no trial is known better than that
_NOT_A_NUMBER = "not a number"


@dataclass(frozen=True, slots=True)
class _Unit:
    name: str
    factor: float  # base units in one of these
    start: float  # used from this many base units on


_PLAIN = (_Unit("", 1.0, 0.0),)
_TIME = (
    _Unit("ns", 1e-9, 0.0),
    _Unit("µs", 1e-6, 1e-6),
    _Unit("ms", 1e-3, 1e-3),
    _Unit("s", 1.0, 1.0),
    _Unit("min", 60.0, 600.0),
    _Unit("h", 3600.0, 7200.0),
)
_SIZE = tuple(
    _Unit(name, 1024.0**power, 0.0 if power == 0 else 1024.0**power)
    for power, name in enumerate(("B", "KiB", "MiB", "GiB", "TiB"))
)


def _thousands(unit: str, *prefixes: tuple[str, float]) -> tuple[_Unit, ...]:
    return tuple(_Unit(prefix + unit, factor, 0.0 if n == 0 else factor) for n, (prefix, factor) in enumerate(prefixes))


# By the unit at the end of a metric's name: how many base units one is, and the units that people read.
_LADDERS: Mapping[str, tuple[float, tuple[_Unit, ...]]] = {
    "s": (1.0, _TIME),
    "ns": (1e-9, _TIME),
    "bytes": (1.0, _SIZE),
    "bytes/s": (1.0, _thousands("B/s", ("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))),
    "share": (1.0, (_Unit("%", 0.01, 0.0),)),
    "w": (1.0, _thousands("W", ("m", 1e-3), ("", 1.0), ("k", 1e3))),
    "j": (1.0, _thousands("J", ("m", 1e-3), ("", 1.0), ("k", 1e3), ("M", 1e6))),
    "hz": (1.0, _thousands("Hz", ("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))),
    "c": (1.0, (_Unit("°C", 1.0, 0.0),)),
}


def unit_of(workloads: Iterable[object]) -> str:
    """What a step of these workloads is: a request, a decode step; a step, where they differ or have no other word."""
    found = {before().part("workload", str(each)).step for each in workloads}
    return found.pop() if len(found) == 1 else STEP


def metric_name(metric: str, unit: str = STEP) -> str:
    """`step_s` as `median step`, of a server as `median latency`; an unknown name loses its unit and underscores."""
    if (known := declared(metric)) is not None:
        return safe_text(before().words(known, unit))
    if metric.startswith(FIRST_EPOCH):
        first = "first epoch" if unit == STEP else "warm-up"
        return f"{metric_name(metric.removeprefix(FIRST_EPOCH), unit)}, {first}"
    spoken = metric.rpartition("_")[0] if has_unit(metric) else metric
    return safe_text(re.sub(r"[_.]+", " ", spoken))


def in_units(words: str, unit: str) -> str:
    """A sentence about steps, of the requests or decode steps that they are: `the mean step` is `the mean request`."""
    return words if unit not in before().times else re.sub(r"(?<!decode )\bstep(?=s?\b)", unit, words)


def has_unit(name: str) -> bool:
    """Whether a name ends in a unit that we can tell in: `period_s` does, `batch` and `images_per_s` do not."""
    before, _, unit = name.rpartition("_")
    return bool(before) and not before.endswith("_per") and unit.lower() in _LADDERS


def _ladder_of(metric: str) -> tuple[float, tuple[_Unit, ...]]:
    """How many base units one is, and the units that people read: as it is declared, else by the end of its name."""
    if (known := declared(metric)) is not None:
        unit = known.unit.lower()
    else:
        unit = metric.rpartition("_")[2].lower() if has_unit(metric) else ""
    return _LADDERS.get(unit, (1.0, _PLAIN))


def quantity_texts(metric: str, values: Sequence[float]) -> list[str]:
    """The values of one metric, all with the same precision, as they will be read side by side.

    They are in the same unit, too, unless that would hide the smallest: then each has its own.
    """
    bases, ladder = _in_base_units(metric, values)
    if _is_wide(bases):
        return [quantity_text(metric, value) for value in values]
    numbers, unit = _in_one_unit(bases, ladder)
    return [_with_unit(number, unit) for number in numbers]


def estimate_texts(
    metric: str, value: float, low: float | None, high: float | None, *, signed: bool = False
) -> tuple[str, str]:
    """A value and its interval in one unit, which stands at the value: `0.91 kJ` and `[0.78, 1.03]`.

    Without an end there is no interval, and the second text is empty. `signed`: what is above zero has a plus.
    """
    values = [value] if low is None or high is None else [value, low, high]
    numbers, unit = numbers_in_one_unit(metric, values)
    if signed:
        numbers = [f"+{number}" if each > 0 else number for number, each in zip(numbers, values, strict=True)]
    number, *ends = numbers
    return _with_unit(number, unit), f"[{', '.join(ends)}]" if ends else ""


def numbers_in_one_unit(metric: str, values: Sequence[float]) -> tuple[list[str], str]:
    """A value and what is told beside it, as numbers of one unit, with the same precision; and this unit.

    Where they lie so far apart that some would be nothing beside the others, the first one decides.
    """
    return _in_one_unit(*_in_base_units(metric, values))


def _in_base_units(metric: str, values: Sequence[float]) -> tuple[list[float], Sequence[_Unit]]:
    """The values in seconds, bytes, joules ..., and the units that they may be told in."""
    per_base, ladder = _ladder_of(metric)
    # Too little for anything that has such units is nothing; of a bare number nobody knows.
    nothing = 0.0 if ladder is _PLAIN else NOTHING * ladder[0].factor
    bases = [float(value) * per_base for value in values]
    return [0.0 if abs(base) < nothing else base for base in bases], ladder


def _sizes(bases: Iterable[float]) -> list[float]:
    return [abs(base) for base in bases if math.isfinite(base) and base]


def _is_wide(bases: Sequence[float]) -> bool:
    sizes = _sizes(bases)
    return bool(sizes) and max(sizes) > HIDING_SPREAD * min(sizes)


def _in_one_unit(bases: Sequence[float], ladder: Sequence[_Unit]) -> tuple[list[str], str]:
    sizes = (_sizes(bases[:1]) if _is_wide(bases) else []) or _sizes(bases)
    unit = _unit_for(max(sizes, default=0.0), ladder)
    sizes = [size / unit.factor for size in sizes]
    # Three digits for the largest, and still two for the smallest.
    decimals = max(_decimals(max(sizes), DIGITS), _decimals(min(sizes), DIGITS - 1)) if sizes else 0
    numbers = [base / unit.factor for base in bases]
    if ladder in (_PLAIN, _SIZE) and unit.factor == 1.0 and all(size.is_integer() for size in _sizes(numbers)):
        decimals = 0  # a count has no decimals
    return [_number(number, decimals) for number in numbers], unit.name


def scaled(metric: str, values: Sequence[float]) -> tuple[str, float]:
    """The unit that suits an axis of these values, and what to multiply them by: ("ms", 1000.0)."""
    per_base, ladder = _ladder_of(metric)
    unit = _unit_for(max((abs(value * per_base) for value in values if math.isfinite(value)), default=0.0), ladder)
    return unit.name, per_base / unit.factor


def quantity_text(metric: str, value: float) -> str:
    """One value of one metric: `quantity_text("step_s", 0.00184)` is `1.84 ms`."""
    return quantity_texts(metric, [value])[0]


def time_text(seconds: float) -> str:
    """`0.00184` as `1.84 ms`."""
    return quantity_text("time_s", seconds)


def size_text(size_bytes: float) -> str:
    """`3250585` as `3.10 MiB`."""
    return quantity_text("size_bytes", size_bytes)


def count_text(count: int, one: str, many: str | None = None) -> str:
    """`count_text(1, "trial")` is `1 trial`, `count_text(1200, "trial")` is `1,200 trials`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def duration_text(seconds: float) -> str:
    """A wait, for people: `45 s`, `1 min 40 s`, `2 h 05 min`."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def share_text(share: float) -> str:
    """A share without a sign, as short as it can be: `0.05` is `5 %`, `0.0093` is `0.9 %`."""
    percent = abs(share) * 100
    exact = f"{percent:.10g}"
    return f"{exact} %" if len(exact) <= 3 else f"{percent:.{_effect_decimals([share])}f} %"


def effect_text(share: float, beside: Iterable[float | None] = ()) -> str:
    """`0.016` as `+1.6 %`, with the precision of the numbers `beside` it."""
    return f"{_signed(share, _effect_decimals([share, *beside]))} %"


def interval_text(low: float, high: float, beside: Iterable[float | None] = ()) -> str:
    """`[+0.4, +2.9]`, in percent, with the precision of the numbers `beside` it."""
    decimals = _effect_decimals([low, high, *beside])
    return f"[{_signed(low, decimals)}, {_signed(high, decimals)}]"


_CPUS = {
    "0x41 0xd03": "Cortex-A53", "0x41 0xd04": "Cortex-A35", "0x41 0xd05": "Cortex-A55", "0x41 0xd07": "Cortex-A57",
    "0x41 0xd08": "Cortex-A72", "0x41 0xd09": "Cortex-A73", "0x41 0xd0a": "Cortex-A75", "0x41 0xd0b": "Cortex-A76",
    "0x41 0xd0c": "Neoverse-N1", "0x41 0xd0d": "Cortex-A77", "0x41 0xd40": "Neoverse-V1", "0x41 0xd41": "Cortex-A78",
    "0x41 0xd42": "Cortex-A78AE", "0x41 0xd44": "Cortex-X1", "0x41 0xd46": "Cortex-A510", "0x41 0xd47": "Cortex-A710",
    "0x41 0xd48": "Cortex-X2", "0x41 0xd49": "Neoverse-N2", "0x41 0xd4a": "Neoverse-E1", "0x41 0xd4b": "Cortex-A78C",
    "0x41 0xd4d": "Cortex-A715", "0x41 0xd4e": "Cortex-X3", "0x41 0xd4f": "Neoverse-V2",
    "0x4e 0x003": "NVIDIA Denver 2", "0x4e 0x004": "NVIDIA Carmel", "0xc0 0xac3": "AmpereOne",
}  # fmt: skip
_CPU_VENDORS = {"0x41": "Arm", "0x46": "Fujitsu", "0x48": "HiSilicon", "0x4e": "NVIDIA", "0x51": "Qualcomm",
                "0x61": "Apple", "0xc0": "Ampere"}  # fmt: skip


def going_on(sentence: str) -> str:
    """As it goes on where another began: in small letters, unless it begins with a name such as LeNet-5 or GPU."""
    is_word = re.match(r"[A-Z][a-z']*(?![A-Za-z0-9-])", sentence)
    return f"{sentence[:1].lower()}{sentence[1:]}" if is_word else sentence


def cpu_text(cpu: str) -> str:
    """A processor's name: ARM's kernel tells numbers only, `implementer 0x41 part 0xd0c`, and records have those."""
    numbers = re.fullmatch(r"implementer (0x\w+) part (0x\w+)", cpu)
    if numbers is None or numbers[1] not in _CPU_VENDORS:
        return cpu
    return _CPUS.get(f"{numbers[1]} {numbers[2]}", f"{_CPU_VENDORS[numbers[1]]} part {numbers[2]}")


def safe_text(text: object) -> str:
    """`text` with every character that could steer a terminal, turn the reading direction or hide, written out."""
    if (shown := str(text)).isprintable():  # as nearly all are
        return shown
    # Cc control, Cf invisible format (also the bidirectional ones), Cs half a surrogate pair, Zl/Zp line separators.
    return "".join(
        _written_out(sign) if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp") else sign for sign in shown
    )


def safe_lines(text: str) -> str:
    """A text of several lines stays one; nothing in it steers the terminal."""
    return "\n".join(map(safe_text, text.expandtabs(4).split("\n")))


def printed_text(line: str) -> str:
    """A line as the program's terminal would have shown it: no colours or tabs, the last state of a progress bar."""
    return _STEERING.sub("", line).rstrip().rpartition("\r")[2].expandtabs(4)


_LOGGED = re.compile(r"[WEI]\d{4} \d\d:")  # a line of torch's own log
_STEERING = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours and movements of a terminal's cursor


def telling_lines(text: str) -> list[str]:
    """What a program printed before it failed, to the line that says why: without a launcher's own report after it."""
    lines = [line for each in text.split("\n") if (line := printed_text(each)).strip()]
    launcher = next((at for at, line in enumerate(lines) if "ChildFailedError" in line), 0)  # torchrun's
    if launcher:
        begins = max(
            (at for at, line in enumerate(lines[:launcher]) if line.startswith("Traceback ")), default=launcher
        )
        before = [line for line in lines[:begins] if not _LOGGED.match(line)]
        rank = next((line.partition(":")[0] for line in before if line.startswith("[rank")), "")
        lines = [line for line in before if line.startswith(rank)] or lines
    while lines and not any(sign.isalnum() for sign in lines[-1]):
        lines.pop()
    return lines


def failure_line(text: str) -> str:
    """The line that says why a program failed: the exception of its last traceback, else the last line; or nothing."""
    lines = telling_lines(text)
    begins = max((at for at, line in enumerate(lines) if "Traceback (most recent call last)" in line), default=None)
    raised = [] if begins is None else [line for line in lines[begins + 1 :] if not line.startswith(" ")]
    return (raised[:1] or lines[-1:] or [""])[0].strip()[:300]


def _unit_for(size: float, ladder: Sequence[_Unit]) -> _Unit:
    """The unit that shows `size` (of the base unit) with one to three digits before the point."""
    if size == 0:
        return next((unit for unit in ladder if unit.factor == 1.0), ladder[0])
    # Rounded as it will be shown: 999.6 µs are 1.00 ms.
    reached = (unit for unit in reversed(ladder) if not unit.start or float(f"{size / unit.start:.{DIGITS}g}") >= 1)
    return next(reached, ladder[0])


def _decimals(value: float, digits: int) -> int:
    return max(0, digits - 1 - math.floor(math.log10(float(f"{value:.{digits}g}"))))


def _number(value: float, decimals: int) -> str:
    if not math.isfinite(value):
        return _NOT_A_NUMBER
    return f"{value:,.{decimals}f}" if abs(value) < 1e15 else f"{value:.{DIGITS}g}"


def _with_unit(number: str, unit: str) -> str:
    return number if number == _NOT_A_NUMBER else f"{number} {unit}".rstrip()


def _effect_decimals(shares: Iterable[float | None]) -> int:
    largest = max((abs(share) * 100 for share in shares if share is not None and math.isfinite(share)), default=0.0)
    if largest >= 99.95:
        return 0
    return 2 if 0 < largest < 0.095 else 1


def _signed(share: float, decimals: int) -> str:
    text = f"{share * 100:+,.{decimals}f}"
    return text if any(digit in text for digit in "123456789") or not math.isfinite(share) else text[1:]


def _written_out(sign: str) -> str:
    code = ord(sign)
    if code <= 0xFF:
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(sign, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def natural_key(text: str) -> tuple[tuple[int, float, str], ...]:
    """To sort by: numbers in a text count as numbers, so that `batch 8` comes before `batch 16`."""
    pieces = re.split(r"(\d+(?:\.\d+)?)", text)
    return tuple((0, float(piece), "") if number % 2 else (1, 0.0, piece) for number, piece in enumerate(pieces))


# Messages for people while something is done: to stderr, so that stdout holds nothing but data, or to a listener.

Listener = Callable[[str], object]


def _to_stderr(text: str) -> None:
    lines = safe_lines(text)  # a device, a file or a workload may be quoted in it
    if sys.stderr.isatty():  # a log or a pipe gets whole lines
        columns = shutil.get_terminal_size((80, 24)).columns
        lines = "\n".join(_wrapped(line, columns) for line in lines.split("\n"))
    sys.stderr.write(f"{lines}\n")
    sys.stderr.flush()


def _wrapped(line: str, columns: int) -> str:
    """Broken between words where it is longer, and then two more blanks in."""
    if display_width(line) <= columns:
        return line
    words = line.lstrip(" ")
    before = line[: len(line) - len(words)]
    return "\n".join(before + each for each in wrap(words, max(columns, 20) - len(before), indent="  ", tear=False))


_listener: ContextVar[Listener] = ContextVar("listener", default=_to_stderr)


def say(text: str) -> None:
    """One message."""
    _listener.get()(text)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Meanwhile messages go to `listener`, and not to stderr."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)

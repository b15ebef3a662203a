"""How far a run is: a bar with the time left on a terminal, one line a block anywhere else. Always on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from tare.base.text import count_text, duration_text, safe_lines, safe_text, time_text

REFRESH_HZ = 1  # the bar is drawn on the device that is being measured: rarely, so that it does not show in the times
LEAST_LEFT_S = 1.0  # less is not worth saying
NARROWEST_BAR = 50  # columns; a bar in less says nothing

Now = Callable[[], float]  # monotonic seconds


def progress_on(stream: TextIO | None = None, environ: Mapping[str, str] | None = None) -> PlainProgress | BarProgress:
    """The progress that suits `stream`: a bar on a real terminal, plain lines elsewhere."""
    stream = sys.stderr if stream is None else stream
    environ = os.environ if environ is None else environ
    plain = bool(environ.get("NO_COLOR")) or environ.get("TERM", "dumb") == "dumb" or not stream.isatty()
    return PlainProgress(stream) if plain or _columns(stream) < NARROWEST_BAR else BarProgress(stream)


class Pace:
    """How far it is, and how long what is left takes, by what the runner expects."""

    def __init__(self, total: int, now: Now = time.monotonic) -> None:
        self.total = total
        self.done = 0
        self.again = 0  # attempts beyond the first, of trials that were invalid
        self._now = now
        self._expected: tuple[float, float] | None = None  # when, and so many seconds from then on

    def expect(self, seconds: float) -> None:
        self._expected = (self._now(), seconds)

    def end(self) -> None:
        self.done += 1

    def once_more(self) -> None:
        """The trial that has just ended is run again: it is not done, and no further one."""
        self.done -= 1
        self.again += 1

    def place(self) -> str:
        """`3/18`, or `3/18, 2 again`."""
        return f"{self.done:{len(str(self.total))}d}/{self.total}" + (f", {self.again} again" if self.again else "")

    def left_s(self) -> float | None:
        """Seconds to go; None while nobody knows. A trial that takes longer than its share does not eat up the rest."""
        if self._expected is None:
            return None
        since_s, seconds = self._expected
        share_s = seconds / max(1, self.total - self.done)
        return seconds - min(share_s, self._now() - since_s)


class PlainProgress:
    """One line for each block that has ended: for pipes, logs and dumb terminals."""

    def __init__(self, stream: TextIO, now: Now = time.monotonic) -> None:
        self._stream = stream
        self._pace = Pace(0, now)
        self._now = now
        self._block = ""
        self._states: list[str] = []  # of the attempts of this block
        self._began_s = self._ended_s = 0.0

    def started(self, total: int) -> None:
        self._pace.total = total
        self._say(f"{count_text(total, 'trial')} to run")

    def grown(self, by: int) -> None:
        self._pace.total += by

    def expects(self, seconds: float) -> None:
        self._pace.expect(seconds)

    def trial_began(self, label: str) -> None:
        block = safe_text(label).partition(": ")[0]
        if block != self._block:
            self._tell_block()
            self._block, self._began_s = block, self._now()

    def trial_ended(self, state: str, seconds: float) -> None:
        self._pace.end()
        self._states.append(safe_text(state))
        self._ended_s = self._now()

    def trial_again(self) -> None:
        self._pace.once_more()

    def _tell_block(self) -> None:
        if self._states:
            counts = ", ".join(f"{count} {state}" for state, count in Counter(self._states).items())
            took = time_text(self._ended_s - self._began_s)
            self._say(f"[{self._pace.place()}] {self._block}: {counts}, {took}{_left(self._pace)}")
            self._states.clear()

    def note(self, text: str) -> None:
        self._say(safe_lines(text))

    def finished(self) -> None:
        self._tell_block()
        again = f", {count_text(self._pace.again, 'attempt')} again" if self._pace.again else ""
        self._say(f"{self._pace.done} of {count_text(self._pace.total, 'trial')} done{again}")

    def _say(self, line: str) -> None:
        with _whatever_the_terminal_does():
            self._stream.write(f"{line}\n")
            self._stream.flush()


class BarProgress:
    """A bar with the trial at hand, the count and the time left, drawn at most once a second."""

    def __init__(self, stream: TextIO, now: Now = time.monotonic) -> None:
        self._stream = stream
        self._pace = Pace(0, now)
        self._bar: Any = None
        self._task: Any = None

    def started(self, total: int) -> None:
        self._pace.total = total
        with _whatever_the_terminal_does():
            self._bar = _rich_bar(self._stream, self._pace.place, lambda: _left(self._pace).removeprefix(", "))
            self._task = self._bar.add_task("", total=total)
            self._bar.start()

    def grown(self, by: int) -> None:
        self._pace.total += by
        self._update(total=self._pace.total)

    def expects(self, seconds: float) -> None:
        self._pace.expect(seconds)

    def trial_began(self, label: str) -> None:
        self._update(description=safe_text(label))

    def trial_ended(self, state: str, seconds: float) -> None:
        self._pace.end()
        self._update(completed=self._pace.done)

    def trial_again(self) -> None:
        self._pace.once_more()
        self._update(completed=self._pace.done)

    def note(self, text: str) -> None:
        with _whatever_the_terminal_does():
            if self._bar is None:
                self._stream.write(f"{safe_lines(text)}\n")
            else:
                self._bar.console.print(safe_lines(text), markup=False, highlight=False, emoji=False)

    def finished(self) -> None:
        with _whatever_the_terminal_does():
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    def _update(self, **what: object) -> None:
        with _whatever_the_terminal_does():
            if self._bar is not None:
                self._bar.update(self._task, **what)


def _columns(stream: TextIO) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 80


def _left(pace: Pace) -> str:
    left_s = pace.left_s()
    if left_s is None or left_s < LEAST_LEFT_S or pace.done >= pace.total:
        return ""
    return f", about {duration_text(left_s)} left"


def _rich_bar(stream: TextIO, place: Callable[[], str], left: Callable[[], str]) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, ProgressColumn, TextColumn
    from rich.progress import Progress as RichProgress
    from rich.table import Column
    from rich.text import Text

    class Said(ProgressColumn):
        max_refresh = 1.0

        def __init__(self, words: Callable[[], str]) -> None:
            super().__init__(Column(no_wrap=True))
            self._words = words

        def render(self, task: object) -> Text:
            return Text(self._words())

    return RichProgress(
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=2, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        Said(place),
        Said(left),
        console=Console(file=stream),
        refresh_per_second=REFRESH_HZ,
        redirect_stdout=False,
        redirect_stderr=False,
        expand=True,
    )


@contextlib.contextmanager
def _whatever_the_terminal_does() -> Iterator[None]:
    """A terminal that went away must not end a run that has been measuring for hours."""
    with contextlib.suppress(OSError, ValueError):
        yield

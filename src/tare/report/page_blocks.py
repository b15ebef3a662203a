"""Pages with blocks that a command of tare has made: found, compared with what it prints now, and filled again.

    <!-- tare papers claims h200/s3-batch.tare --paper s3 -->
    ...what the command printed...
    <!-- /tare -->

What is between the two lines is a machine's; the rest of a page is a person's and is never touched.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from tare.base.errors import StudyError

END = "<!-- /tare -->"
_BEGIN = re.compile(r"<!--\s*tare\s+(?P<command>\S.*?)\s*-->")
_OURS = re.compile(r"<!--\s*/?\s*tare\b")
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})(?P<rest>.*)")
_TICKS = re.compile(r"`{3,}")


@dataclass(frozen=True)
class Block:
    """One generated block: the line of its command (from 1), the command, and the lines that it printed last."""

    line: int
    words: tuple[str, ...]
    printed: tuple[str, ...]

    @property
    def command(self) -> str:
        return f"tare {shlex.join(self.words)}"

    @property
    def first(self) -> int:
        """The place of what was printed, in the page's lines from 0."""
        return self.line


@dataclass(frozen=True)
class Change:
    """What a block's command prints now in place of what stands there: the first line that differs, and how many do."""

    page: str
    line: int
    command: str
    stands: str | None
    now: str | None
    lines: int

    def __str__(self) -> str:
        stands = "nothing" if self.stands is None else repr(self.stands)
        now = "nothing" if self.now is None else repr(self.now)
        more = f" ({self.lines} lines differ)" if self.lines > 1 else ""
        return f"{self.page}:{self.line}: `{self.command}` prints {now}, the page has {stands}{more}."


def blocks_in(text: str, page: str) -> list[Block]:
    """The blocks of a page, in order; what is not closed, or closed without a beginning, is said with its line."""
    found: list[Block] = []
    lines = text.split("\n")
    open_fence, place = "", 0
    while place < len(lines):
        open_fence, was_in = _fenced(lines[place], open_fence), bool(open_fence)
        if not (open_fence or was_in) and _OURS.match(lines[place].strip()):
            found.append(_block(lines, place, page))
            place += len(found[-1].printed) + 1
        place += 1
    return found


def _fenced(line: str, fence: str) -> str:
    """The fence of the code block that goes on after this line: what is shown as code is no block of ours."""
    match = _FENCE.fullmatch(line)
    if match is None:
        return fence
    if not fence:
        return match["fence"]
    closes = match["fence"].startswith(fence) and not match["rest"].strip()
    return "" if closes else fence


def _block(lines: Sequence[str], place: int, page: str) -> Block:
    where = f"{page}:{place + 1}"
    begin = _BEGIN.fullmatch(lines[place].strip())
    if begin is None:
        raise StudyError(f"{where}: {lines[place].strip()!r} begins no block. Write `<!-- tare VERB ... -->`.")
    for end in range(place + 1, len(lines)):
        if lines[end].strip() == END:
            return Block(place + 1, _words(begin["command"], where), tuple(lines[place + 1 : end]))
        if _OURS.match(lines[end].strip()):
            break
    raise StudyError(f"{where}: the block is not closed. Write {END} on a line of its own behind it.")


def _words(command: str, where: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise StudyError(f"{where}: {command!r} is no command line: {error}.") from None


def as_block(output: str, *, is_markdown: bool, where: str) -> tuple[str, ...]:
    """What a command printed, as lines of a block: Markdown as it is, everything else fenced, so that it stays text."""
    lines = [line.rstrip() for line in output.strip("\n").split("\n")]
    if any(_OURS.search(line) for line in lines):
        raise StudyError(
            f"{where}: its command prints a line that would begin or end a block, so it cannot stand here."
        )
    if is_markdown:
        return ("", *lines, "")
    fence = "`" * max([3, *(len(ticks) + 1 for ticks in _TICKS.findall(output))])
    return (f"{fence}text", *lines, fence)


def change_of(block: Block, now: Sequence[str], page: str) -> Change | None:
    """How a block differs from what its command prints now; None where it does not."""
    pairs = list(zip_longest(block.printed, now))
    places = [place for place, (old, new) in enumerate(pairs) if old != new]
    if not places:
        return None
    stands, new = pairs[places[0]]
    return Change(page, block.first + places[0] + 1, block.command, stands, new, len(places))


def filled(text: str, outputs: Mapping[Block, Sequence[str]]) -> str:
    """The page with other content in its blocks."""
    lines = text.split("\n")
    for block, content in sorted(outputs.items(), key=lambda item: item[0].line, reverse=True):
        lines[block.first : block.first + len(block.printed)] = content
    return "\n".join(lines)


def renewed(text: str, page: str, run: Callable[[Block], Sequence[str]]) -> tuple[str, list[Change], int]:
    """The page as it is when every command is run again, what has changed by that, and how many blocks there are."""
    outputs = {block: tuple(run(block)) for block in blocks_in(text, page)}
    changes = [change_of(block, now, page) for block, now in outputs.items()]
    return filled(text, outputs), [change for change in changes if change is not None], len(outputs)

"""Folders of sensors in /sys, which the kernel numbers anew at each boot: found by what is written in them."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from tare.host import Host

MOST_FOLDERS = 96  # numbers have holes where a driver was unbound, so that all of them are tried

T = TypeVar("T")


class Folder(NamedTuple):
    """One numbered folder, and the name that its driver gave it."""

    path: str
    name: str


def folders(host: Host, pattern: str, names_file: str = "name") -> Iterator[Folder]:
    """Those of `/sys/class/hwmon/hwmon{}` and the like that exist, in the order of their numbers."""
    for number in range(MOST_FOLDERS):
        path = pattern.format(number)
        if (name := text_of(host, f"{path}/{names_file}")) is not None:
            yield Folder(path, name)


def text_of(host: Host, path: str) -> str | None:
    """The text of a small file without its ends; None where it cannot be read."""
    try:
        return host.read(path).strip().strip("\0")
    except OSError:
        return None


def channel_word(name: str) -> str:
    """A sensor's name as a part of a channel's: `CPU-therm` is `cpu_therm`."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "unnamed"


def told_apart(names: Iterable[str]) -> list[str]:
    """The names as words of channels; a second one of the same name gets a number."""
    words: list[str] = []
    for word in map(channel_word, names):
        twins = sum(other == word or re.fullmatch(rf"{re.escape(word)}_\d+", other) is not None for other in words)
        words.append(word if not twins else f"{word}_{twins + 1}")
    return words


def within(limit_s: float, ask: Callable[[], T]) -> T:
    """What `ask` returns; TimeoutError where it takes longer. A sensor that hangs holds a thread then, but not us."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append((ask(), None))
        except Exception as error:
            answer.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if not answer:
        raise TimeoutError(f"no answer within {limit_s:g} s")
    value, error = answer[0]
    if error is not None:
        raise error
    found: T = value
    return found

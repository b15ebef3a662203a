"""A trace as it lies on disk, whoever recorded it: pages by core, formats of its events, names and roles of tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tare.errors import TareError
from tare.traces.decode import Source
from tare.traces.formats import EventFormat, PageLayout, parse_event, parse_header_page
from tare.traces.roles import Snapshot

_ID = re.compile(r"^ID:\s*(\d+)", re.MULTILINE)
META, HEADER, FORMATS = "trace.json", "header_page", "formats"


class Formats(Mapping[int, EventFormat]):
    """Events by their number; a format is parsed when it is first asked for: a kernel has two thousand."""

    def __init__(self, texts: Mapping[tuple[str, str], str]) -> None:
        self._texts: dict[int, tuple[str, str]] = {}
        for (system, _), text in texts.items():
            if number := _ID.search(text):
                self._texts[int(number[1])] = (system, text)
        self._parsed: dict[int, EventFormat] = {}

    def __getitem__(self, number: int) -> EventFormat:
        if number not in self._parsed:
            system, text = self._texts[number]
            self._parsed[number] = parse_event(text, system)
        return self._parsed[number]

    def __contains__(self, number: object) -> bool:
        return number in self._texts

    def __iter__(self) -> Iterator[int]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)


@dataclass(frozen=True)
class Recording:
    """What is needed to decode a trace."""

    layout: PageLayout
    formats: Mapping[int, EventFormat]
    sources: tuple[Source, ...]
    clock: str = "mono"
    roles: Snapshot = field(default_factory=Snapshot)
    comms: Mapping[int, str] = field(default_factory=dict)  # names of tasks, as last known
    page_bytes: int = 4096  # of memory, not of the ring buffer
    lost: Mapping[int, int] = field(default_factory=dict)  # core -> events that the kernel says were overwritten
    notes: tuple[str, ...] = ()


def write_meta(folder: Path, content: Mapping[str, Any]) -> None:
    """Replace what is known of the recording as a whole, in one step."""
    fresh = folder / f"{META}.new"
    fresh.write_text(json.dumps(content))
    fresh.replace(folder / META)


def write_formats(folder: Path, header_page: str, texts: Mapping[tuple[str, str], str]) -> None:
    """Keep the kernel's descriptions beside the pages: another kernel's would not fit them."""
    (folder / HEADER).write_text(header_page)
    for (system, name), text in texts.items():
        path = folder / FORMATS / system / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def open_folder(folder: Path) -> Recording:
    """The raw files that the `ftrace` probe left; one that was cut off has pages, and perhaps no last words."""
    try:
        header = (folder / HEADER).read_text()
        texts = {(path.parent.name, path.name): path.read_text() for path in sorted((folder / FORMATS).glob("*/*"))}
    except OSError as error:
        raise TareError(f"{folder} holds no recorded trace: {error}.") from error
    meta = json.loads((folder / META).read_text()) if (folder / META).exists() else {}
    sources = sorted(Source(int(path.stem.removeprefix("cpu")), path) for path in folder.glob("cpu*.raw"))
    return Recording(
        layout=parse_header_page(header, meta.get("subbuffer_bytes")),
        formats=Formats(texts),
        sources=tuple(sources),
        clock=meta.get("clock", "mono"),
        roles=Snapshot.from_json(meta.get("roles", {})),
        comms={int(pid): name for pid, name in meta.get("comms", {}).items()},
        page_bytes=meta.get("page_bytes", 4096),
        lost={int(cpu): count for cpu, count in meta.get("lost", {}).items()},
        notes=tuple(meta.get("notes", ())),
    )

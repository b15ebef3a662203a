"""A folder of several stores that answer one question, read as one: `tare why` makes a store for each of its waves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from tare.base.errors import NoSuchInput
from tare.records.model import Json, Record, State
from tare.records.schema import ANSWER_FILE, STORE_FILE
from tare.records.store import Store

STAGES = ("look", "tried-*", "layers", "calls")  # the folders of its stores, in the order in which they are made
_BLOCKS = 10_000  # from the blocks of one stage to those of the next


def stages_of(folder: Path) -> list[Path]:
    """The stores of such a folder, in the order in which they were made; none where it is no such folder."""
    try:
        if (folder / STORE_FILE).is_file():
            return []
        found = [path for name in STAGES for path in sorted(folder.glob(name), key=_number)]
        return [path for path in found if (path / STORE_FILE).is_file()]
    except PermissionError:
        return []  # who opens it as a store says that it may not be read


def _number(path: Path) -> int:
    return int(number) if (number := path.name.rpartition("-")[2]).isdecimal() else 0


class Stages:
    """What a weighing, and who shows trials, read of a store. Blocks of two stages are two blocks."""

    def __init__(self, path: Path, stores: Sequence[Store]) -> None:
        self.path, self._stores = path, stores

    @property
    def study(self) -> Json:
        return self._stores[0].study

    @property
    def problems(self) -> list[str]:
        return [problem for store in self._stores for problem in store.problems]

    def answer(self) -> str:
        """As it was printed, in full; empty where it was not found."""
        file = self.path / ANSWER_FILE
        return file.read_text(encoding="utf-8") if file.is_file() else ""

    def records(self) -> list[Record]:
        return [
            replace(record, block=record.block + number * _BLOCKS)
            for number, store in enumerate(self._stores)
            for record in store.records()
        ]

    def rehearsals(self) -> list[Record]:
        return [record for store in self._stores for record in store.rehearsals()]

    def states(self) -> dict[str, State]:
        """Of what was run: a stage ends as soon as its answer is sure, and what it left out is not missing."""
        ran = {record.trial for store in self._stores for record in (*store.records(), *store.rehearsals())}
        return {trial: state for store in self._stores for trial, state in store.states().items() if trial in ran}

    def damaged(self) -> set[str]:
        return {trial for store in self._stores for trial in store.damaged()}

    def holding(self, trial: str) -> Store:
        """The store that has this trial, by the first letters of its id."""
        for store in self._stores:
            if any(record.trial.startswith(trial) for record in (*store.records(), *store.rehearsals())):
                return store
        raise NoSuchInput(f"{self.path}: no trial {trial!r} in its stores.")


@contextmanager
def opened_stages(folder: Path, stores: Sequence[Path]) -> Iterator[Stages]:
    with ExitStack() as stack:
        yield Stages(folder, [stack.enter_context(Store.open(path)) for path in stores])

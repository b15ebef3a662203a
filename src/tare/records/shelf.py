"""The sealed trials of a store, found on disk, looked at once each and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.errors import StoreError
from tare.records.sealed import Damaged, Key, Sealed, folder_name, keys_in, open_sealed


class Shelf:
    """Grows while a writer beside us seals more. A damaged trial is named in `problems`, once, and left out."""

    def __init__(self, folder: Path, problems: list[str]) -> None:
        self._folder = folder
        self._problems = problems
        self._sealed: dict[Key, Sealed] = {}
        self._seen: set[Key] = set()

    def look(self) -> dict[Key, Sealed]:
        """Every whole trial that is there now."""
        for key in sorted(self.seen() - self._seen):
            self._seen.add(key)
            try:
                self._sealed[key] = open_sealed(self._folder / folder_name(*key))
            except Damaged as error:
                self._problems.append(str(error))
        return self._sealed

    def seen(self) -> set[Key]:
        """Every attempt that has a folder, whole or not."""
        try:
            return keys_in(self._folder)
        except OSError as error:
            raise StoreError(f"{self._folder}: the sealed trials cannot be listed: {error.strerror}.") from error

    def holds(self, key: Key) -> bool:
        """Whether this trial is there and whole; one that is known already is not looked for again."""
        return key in self._sealed or key in self.look()

    def get(self, key: Key) -> Sealed:
        """One whole trial."""
        if not self.holds(key):
            raise StoreError(f"{self._folder.parent}: there is no whole trial {folder_name(*key)} here.")
        return self._sealed[key]

    def file(self, key: Key, name: str) -> Path:
        """The path of a trial's file, its checksum looked at; a trial with a damaged one is left out from now on."""
        with self._left_out_if_damaged(key):
            return self.get(key).checked(name)

    def data(self, key: Key, name: str) -> bytes:
        """The same, as its content."""
        with self._left_out_if_damaged(key):
            return self.get(key).data(name)

    @contextmanager
    def _left_out_if_damaged(self, key: Key) -> Iterator[None]:
        try:
            yield
        except Damaged as error:
            self.leave_out(key, str(error))
            raise

    def leave_out(self, key: Key, why: str) -> None:
        """Damage that came to light later: from now on the trial is left out."""
        self._sealed.pop(key, None)
        self._problems.append(why)

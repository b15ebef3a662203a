"""Rooms: what they add is found by name, and only when it is asked for."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.base import rooms


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages with one room in it, in place of tare's own."""
    package = tmp_path / "furnished"
    (package / "attic" / "parts" / "probes").mkdir(parents=True)
    for folder in (package, package / "attic", package / "attic" / "parts", package / "attic" / "parts" / "probes"):
        (folder / "__init__.py").write_text("")
    (package / "attic" / "room.py").write_text('OFFERS = {"verbs": {"dust": "furnished.attic.dusting:command"}}\n')
    (package / "attic" / "dusting.py").write_text("command = 'swept'\n")
    (package / "hall").mkdir()
    (package / "hall" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(rooms, "_HOME", package)
    monkeypatch.setattr(rooms, "_PACKAGE", "furnished")
    rooms.rooms.cache_clear()
    rooms.entry_points.cache_clear()
    yield tmp_path
    rooms.rooms.cache_clear()
    rooms.entry_points.cache_clear()


def test_a_room_is_a_package_with_a_file_that_says_what_it_offers(home: Path):
    assert [room.__name__ for room in rooms.rooms()] == ["furnished.attic.room"]
    assert rooms.offers("verbs") == {"dust": "furnished.attic.dusting:command"}
    assert "furnished.attic.dusting" not in sys.modules
    assert rooms.load("furnished.attic.dusting:command") == "swept"
    assert rooms.offers("windows") == {}


def test_packages_of_a_name_are_looked_for_in_the_core_and_in_every_room(home: Path):
    assert rooms.packages("parts.probes") == ["furnished.attic.parts.probes"]


def test_another_package_opens_the_same_door_by_an_entry_point(home: Path):
    metadata = home / "elsewhere-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[furnished.verbs]\nair = elsewhere.airing:command\n")
    rooms.entry_points.cache_clear()
    assert rooms.offers("verbs") == {
        "air": "elsewhere.airing:command",
        "dust": "furnished.attic.dusting:command",
    }

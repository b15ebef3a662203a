"""One study, one image: a tag that moves between two repeats must not mix two images in one cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tare.errors import TrialError
from tare.parts.protocols import Json
from tare.records.model import Record

_RAN = ("ok", "suspect", "invalid")  # an image that failed may have been mended since


def refuse_another(settings: Mapping[str, Json], place: Mapping[str, Json], earlier: Iterable[Record]) -> None:
    """Raise if this very platform ran another image in an earlier trial of the store."""
    now = place.get("image_id")
    if place.get("root") != "image" or now is None:
        return
    for record in earlier:
        before = (record.facts.get("place") or {}).get("image_id")
        if record.state in _RAN and _platform(record.settings) == _platform(settings) and before not in (None, now):
            raise TrialError(
                f"the image {settings.get('platform.image', '')} is another one than in earlier trials of this store: "
                f"{_short(before)} then, {_short(now)} now. Two images are two levels.\n"
                "Name each by its id (`image: sha256:...`), or begin another store with -o."
            )


def _platform(settings: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in settings.items() if name.partition(".")[0] == "platform"}


def _short(image: Json) -> str:
    return str(image)[:19]

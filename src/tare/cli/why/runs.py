"""The runs of a `tare why`: studies that differ in their platforms alone, wave after wave, and one that is traced."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.api.running import run_into, study_text
from tare.base.errors import TareError
from tare.cli.scaffold import reading, say
from tare.cli.studies import with_interpreter
from tare.records.trials import sides_that_never_ran

if TYPE_CHECKING:
    from tare.analysis.why.causes import Answer, Wave
    from tare.analysis.why.layers import Calls, Waterfall
    from tare.plan.why import Level, Search
    from tare.records.model import Record


class Trying:
    """The studies of a `why`: some that differ in their platforms alone, and one that is traced."""

    def __init__(
        self,
        folder: Path,
        work: dict[str, Any],
        python: str | None,
        repeat: int,
        margin: float,
        metric: str | None,
        image: str | None = None,
    ) -> None:
        from tare.plan.why import Level

        self._folder, self._work, self._python = folder, work, python
        self.repeat, self.margin, self.metric = repeat, margin, metric
        # A command whose files are an image's runs in them on bare metal too: the same bytes on both sides.
        in_image = any(isinstance(each, dict) and each.get("in_image") for each in work.values())
        self.quick = Level("bare", {"image": image} if in_image else {})  # the other side: see `other_side`
        self.image, self.sides = image, ("container", "bare metal")  # what the slow side and the other one are called
        self._trials, self._seconds = 0, 0.0
        self._known = False  # whether a study ran already: then both sides are known to run

    def other_side(self, platform: str, fields: Mapping[str, Any]) -> None:
        """A container with another image, in the place of bare metal."""
        from tare.plan.why import Level

        images = str(self.image), str(fields["image"])
        short = Path(images[0]).name, Path(images[1]).name  # app:2; of a path that differs in its end
        self.quick, self.sides = Level(platform, fields), short if short[0] != short[1] else images

    def time_text(self, sides: int) -> str:
        """How long so many sides in all blocks take, by the trials so far."""
        from tare.base.text import duration_text

        return duration_text(sides * self.repeat * self._seconds / max(1, self._trials))

    def search(self, search: Search, work: dict[str, Any], metric: str) -> Answer:
        """The interventions between two sides that were recorded before, with this workload."""
        self._work, self.quick = work, search.quick
        return self.tried(search, [], None, metric)

    def tried(self, search: Search, waves: list[Wave], found: Answer | None, metric: str | None = None) -> Answer:
        """Wave after wave, until the cost is explained or nobody is left to suspect."""
        from tare.analysis.why.causes import answer

        while sides := search.next():
            names = [each for each in search.candidates() if any(each in role.split() for role in sides)]
            more = max(0, search.trials_left(self.repeat) - len(sides) * self.repeat)
            count = len({str(level.as_plain()) for level in sides.values()})  # two roles may be the same side
            takes = f", about {self.time_text(count)}" if self._trials else ""
            say(
                f"trying {' and '.join(names) or 'what is left'}: {count} sides in {self.repeat} blocks{takes}; "
                f"at most {more} trials more after it, if that does not explain it."
            )
            stage = f"tried-{len(waves)}"
            waves.append(self.wave(stage, sides, is_whole=not search.removed))
            metric = found.metric if found else metric
            found = answer(waves, margin=self.margin, metric=metric)
            if doubtful := found.open_for(waves[-1].causes()):
                listed = " and ".join(doubtful)
                say(f"{listed} may cost something, but {self.repeat} blocks do not make sure: as many again.")
                waves[-1] = waves[-1].joined(self.wave(f"{stage}-again", sides, is_whole=not search.removed))
                found = answer(waves, margin=self.margin, metric=metric)
            search.learn({each.cause: each.outcome for each in found.tried if each.cause in waves[-1].causes()})
            if found.explained and search.checked:
                break
        if found is None:
            raise TareError("there is nothing to try.")
        return found

    def wave(self, stage: str, sides: Mapping[str, Level], *, is_whole: bool = True, blocks: int | None = None) -> Wave:
        """Run these sides in interleaved blocks."""
        from tare.analysis.why.causes import Wave

        # Each level once: two causes may be tried by the same change.
        plain = [level.as_plain() for level in sides.values()]
        levels = [each for n, each in enumerate(plain) if each not in plain[:n] and each != self.quick.as_plain()]
        began_s = time.monotonic()
        records = self.records(stage, levels, {"repeat": blocks or self.repeat, "aa": False})
        self._trials, self._seconds = self._trials + len(records), self._seconds + time.monotonic() - began_s
        return Wave(records, {role: level.settings() for role, level in sides.items()}, is_whole)

    def waterfall(self, stage: str, platforms: list[Any]) -> Waterfall:
        from tare.analysis.why.layers import waterfall

        against = {"against": {"platform": "bare"}, "margin": self.margin}
        records = self.records(stage, platforms, {"repeat": self.repeat, "compare": against})
        return waterfall(records, margin=self.margin, metric=self.metric)

    def calls(self, platforms: list[Any]) -> Calls:
        """Each make of container once, traced; where that cannot be done, why not."""
        from tare.analysis.why.layers import Calls, calls_by_layer
        from tare.base.host import LocalHost
        from tare.parts.find import find

        if why := find("probes", "syscalls")().obstacles(LocalHost()):  # type: ignore[attr-defined]
            return Calls(missing=f"system calls were not counted: {' '.join(map(str, why))}")
        return calls_by_layer(self.records("calls", platforms, {"repeat": 1, "aa": False, "probes": ["syscalls"]}))

    def records(self, stage: str, platforms: list[Any], fields: dict[str, Any]) -> list[Record]:
        """Run a study of the other side and these platforms; what it left."""
        from tare.studies.load import from_plain

        sides = [self.quick.as_plain(), *platforms]
        plain = {"study": f"why-{stage}", "platform": sides, "workload": self._work, **fields}
        plain["rehearse"], self._known = not self._known, True
        study = with_interpreter(from_plain(plain, "tare why"), self._python)
        outcome = run_into(study, study_text(study), self._folder / stage)
        if outcome.interrupted:
            say(f"{outcome.why}. `tare why -o {self._folder}` with the same options resumes.")
            raise SystemExit(130)
        with reading(self._folder / stage) as store:
            failed = sides_that_never_ran(store.records(), store.rehearsals())
            if failed and not store.records():
                raise TareError(f"{outcome.why}: {failed[0].reasons[0]}")
            return store.records()

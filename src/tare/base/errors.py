"""Everything that tare raises on purpose. One place (`tare.cli`) catches and prints.

    TareError                 1    anything else that we foresaw
    ├── StudyError            2    the study, or the command line, is wrong
    │   └── NoSuchInput       2    ... it names a file or folder that is not there, whatever the verb reads from it
    ├── ObstacleError         3    this device cannot do what was asked
    │   └── NothingLeft       3    ... of a study that leaves out what it cannot, nothing is left that asks a question
    ├── StoreError            4    the records cannot be read or written
    │   └── DamagedInput      4    ... a trace, a table or a record is damaged, and the text says where
    ├── TrialError            1    one trial failed; the study goes on and the record says so
    │   ├── ControlNotHeld    1    a knob did not take, or did not keep, the value it was given
    │   ├── DeviceLost        1    a piece of the hardware is gone until someone resets it: no trial more
    │   └── LineLost          1    the line to a device that is driven from elsewhere broke during a trial
    ├── BusyError            75    another run owns this device
    ├── NotPermittedError    77    this user may not do it, nor look whether it is needed
    └── NotRestoredError     70    the device was NOT left as it was found (no other exit is 70)

Each message says what happened, where, and what to do.

Names that do not exist: what was probably meant, for verbs, options, parts, columns, levels, layers and studies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from struct import error as StructError  # noqa: N812  (a module's error by a name that says whose)
from zlib import error as ZlibError  # noqa: N812

from tare.base.rulings import Ruling

EXIT_CODES = {  # a contract: docs/reference/codes.md; each has a test in tests/unit/cli/test_promises.py
    0: "success",
    1: "trial or check failed",
    2: "wrong input",
    3: "not possible here",
    4: "bad store",
    68: "device refused",
    69: "device unreachable",
    70: "device NOT restored",
    75: "in use",
    77: "needs root",
    130: "interrupted",
}


class TareError(Exception):
    """Something that we foresaw went wrong; its text is for the user."""

    exit_code = 1
    code = "trial.error"  # of the ruling, where it ends a trial

    def ruling(self) -> Ruling:
        """Why a trial failed that met this error; a message of several lines becomes one sentence."""
        return Ruling(self.code, "failed", "", " ".join(str(self).split()))


class StudyError(TareError):
    """The study file or the command line is wrong: nothing was run."""

    exit_code = 2


class ObstacleError(TareError):
    """This device cannot do what was asked; the obstacles come from the parts."""

    exit_code = 3

    def __init__(self, what: str, obstacles: Sequence[Ruling] = (), gaps: Sequence[Ruling] = ()) -> None:
        self.obstacles = tuple(obstacles)
        self.gaps = tuple(gaps)  # what stops nothing: it would be missing, and no more
        apart = ["would only be missing:", *_listed(gaps)] if gaps else []
        super().__init__("\n".join([what, *_listed(obstacles), *apart]))


_NAMED_BY_USER = (("needs.file", "needs.program"), ("workload command", "workload server"))


def cannot_run(study: str, obstacles: Sequence[Ruling], then: str = "") -> TareError:
    """Why it is not run: the device, or, where that is all, a program or file that its user named and that is wrong."""
    codes, parts = _NAMED_BY_USER
    if all(each.code in codes and each.subject in parts for each in obstacles):
        return StudyError(
            "\n".join([f"{study}: a command, or a file that it names, cannot be used{then}:", *_listed(obstacles)])
        )
    return ObstacleError(f"this device cannot run {study}{then}:", obstacles)


class NothingLeft(ObstacleError):
    """Of a study that leaves out what a device cannot run, nothing is left that asks its question."""

    def __init__(self, what: str, why: str, obstacles: Sequence[Ruling], gaps: Sequence[Ruling]) -> None:
        self._told = f"{what}:{why}"
        super().__init__(f"{what}, and nothing was run:{why}", obstacles, gaps)

    def for_a_look(self) -> ObstacleError:
        """The same for whoever only looks: nothing was to be run."""
        return ObstacleError(self._told, self.obstacles, self.gaps)


class StoreError(TareError):
    """The store cannot be read or written."""

    exit_code = 4


class DamagedInput(StoreError):
    """A trace, a table or a record holds what no program of its kind writes; the text says where."""


_OF_DAMAGE = (
    ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError, AssertionError,
    EOFError, StructError, ZlibError,
)  # fmt: skip


@contextmanager
def damage_named(what: object, hint: str = "", where: Callable[[], str] = lambda: "") -> Iterator[None]:
    """Whatever a decoder meets in a file that somebody else may have written becomes a sentence with the place.

    Decoders check what they can; this is for the rest. With TARE_DEBUG in the environment the error itself is shown.
    """
    try:
        yield
    except (TareError, OSError):
        raise
    except Exception as error:
        is_damage = isinstance(error, _OF_DAMAGE) or type(error).__module__.partition(".")[0].endswith("duckdb")
        if not is_damage or os.environ.get("TARE_DEBUG"):
            raise
        place = f" ({text})" if (text := where()) else ""
        reported = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DamagedInput(f"{what}: cut off or damaged{place}: {reported}.{hint and ' '}{hint}") from error


class NoSuchInput(StudyError, StoreError):
    """What the command line names is not there: a study, a store, a table, a trace, a log. One code for all of them."""


class TrialError(TareError):
    """One trial failed; its record keeps the reason and the study goes on."""


class ControlNotHeld(TrialError):
    """A control did not take the value that the study asked for."""

    code = "control.not-held"

    def __init__(self, control: str, *, asked: object, found: object) -> None:
        super().__init__(f"{control}: requested {asked}, the device reports {found}.")


class DeviceLost(TrialError):
    """A piece of the hardware (a GPU that fell off its bus) is gone until someone resets it."""

    code = "gpu.lost"


class LineLost(TrialError):
    """The line to a device that is driven from elsewhere broke: what ran there is ended by its agent."""

    code = "line.lost"


class BusyError(TareError):
    """Another run owns this device."""

    exit_code = 75


class NotPermittedError(TareError):
    """This user may not put back what another one's run left, nor look whether there is anything."""

    exit_code = 77


class NotRestoredError(TareError):
    """The device was not left as it was found. `force`: someone else has changed it since, and must be overruled."""

    exit_code = 70

    def __init__(self, what: str, *, force: bool = False) -> None:
        self.force = force
        super().__init__(what)


def _listed(rulings: Sequence[Ruling]) -> list[str]:
    return [f"  - {ruling}" for ruling in rulings]


LISTED = 10  # names in a message; the near ones are never cut off


def near_names(name: str, known: Iterable[str], most: int = 1, usual: Sequence[str] = ()) -> list[str]:
    """Known names like `name`, the best first.

    In this order: names that begin with it (`mobilenet` for mobilenet_v3_large, `usual` ones first, then the shortest),
    names that are spelled almost like it, dotted names that end in it (`batch` for workload.batch). Upper and lower
    case are the same.
    """
    import difflib  # a name that is known needs it not

    wanted = name.lower()
    lower = {each.lower(): each for each in reversed(list(known))}
    places = {each.lower(): place for place, each in enumerate(usual)}
    longer = [each for each in lower if wanted and each.startswith(wanted)]
    longer.sort(key=lambda each: (places.get(each, len(places)), len(each)))
    close = difflib.get_close_matches(wanted, list(lower), n=most)
    ending = [each for each in lower if each.endswith(f".{wanted}")]
    return [lower[each] for each in list(dict.fromkeys([*longer, *close, *ending]))[:most]]


def did_you_mean(name: str, known: Iterable[str], usual: Sequence[str] = ()) -> str:
    """`Did you mean 'resnet18'?`, or nothing if no known name is near; variants (`name-...`) are all named."""
    near = near_names(name, known, 4, usual)
    variants = [each for each in near if each.lower().startswith(f"{name.lower()}-")]
    return f"Did you mean {' or '.join(map(repr, variants or near[:1]))}?" if near else ""


def unknown_name(what: str, name: str, known: Sequence[str], usual: Sequence[str] = ()) -> str:
    """`No level 'dokcer'. Did you mean 'docker'? Available: bare, docker.`"""
    among = list(dict.fromkeys([*near_names(name, known, 5, usual), *known])) if len(known) > LISTED else known
    more = f", and {len(among) - LISTED} more" if len(among) > LISTED else ""
    there = f"Available: {', '.join(among[:LISTED]) or 'none'}{more}."
    return " ".join(filter(None, (f"No {what} {name!r}.", did_you_mean(name, known, usual), there)))

"""What runs, and on what: software and instructions of an image, the GPU's libraries, another machine."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import ClassVar

from tare.base.secrets import is_mask
from tare.drivers.containers.place import NO_ENTRY
from tare.parts.causes.variables import suspected_variables
from tare.parts.knowledge import rows, variables
from tare.parts.protocols import Cause, Json, NotLooked, RuledOut, Side, Suspicion, unseen

_MOST_NAMED = 8  # differences of two images that are listed


class Software(Cause):
    """The image's own software: Python, C library, torch, BLAS, CUDA libraries of other versions or builds."""

    title: ClassVar[str] = "the image's software"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        known = [row for row in rows() if row.kind == "software"]
        found = [(row.prior, row.words, key) for row in known for key in _differing(row.keys, slow, quick)]
        ours, theirs = (side.fields.get("image") or side.fields.get("dockerfile") for side in (slow, quick))
        if not ours and not found:
            return RuledOut("both sides run the software of this device.")
        ids = [side.facts.get("place.image_id") for side in (slow, quick)]
        if (ours == theirs or (ids[0] and ids[0] == ids[1])) and not found:
            return RuledOut("both sides run the software of the image.")
        if lost := _lost_extensions(slow, quick):
            named = f"{', '.join(lost[:_MOST_NAMED])} is compiled on the other side, and pure Python or missing here"
            found.append((0.65, named, ""))
        recorded = unseen(slow.seen("python.version"), quick.seen("python.version")) is None
        unknown = (
            "the images differ; what was looked at (the image's own python3, C library, torch, NumPy, BLAS) is the same"
        )
        if not theirs:
            unknown = "Python, C library, torch, NumPy and BLAS are the same on both sides, other files may not be"
        if not recorded:
            unknown = "which software it has was not recorded"
        weight, what, key = max(found, default=(0.2, unknown, ""))
        held = f": {key} is {slow.facts.get(key)}, {quick.facts.get(key)} on the other side" if key else ""
        others = [f"{name} ({slow.facts[name]}, {quick.facts[name]})" for _, _, name in found if name != key]
        more = f"; also {', '.join(others[:_MOST_NAMED])}" if others else ""
        more += f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        cure = "the same versions as on the other side"
        if ours and not theirs:
            cure = "build the image from the same versions: `tare device image` makes one of this device's own software"
        elif ours:
            cure = "build the image from the same versions as the other one"
        return Suspicion(
            weight=weight,
            evidence=f"{what}{held}{more}.",
            without=_with_other(quick) if ours else None,
            cure=cure,
            untried="" if ours else "the software of the other side is not at hand.",
            guess=not found,
            bundle=bool(theirs) or not found,
        )


_PACKAGE = re.compile(r"(.*/(?:site|dist)-packages/[^/]+?)(\.libs)?/.*")  # wheels bring libraries of their own
_LIBC = re.compile(r".*/(ld-|lib(c|m|dl|rt|pthread|util|resolv|anl)[-.])[^/]*")
_INTERPRETER = re.compile(r".*/(bin/python[0-9.]*|libpython[^/]*)")
_OF_INTERPRETER = re.compile(rf"{_INTERPRETER.pattern}|.*/lib-dynload/[^/]+")
_OF_ITS_LIBRARY = re.compile(r".*/lib/python3[^/]*/(?!(?:site|dist)-packages/).*")
_BYTECODE = re.compile(r"(.*/)__pycache__/([^/]+?)\.[^/]*\.pyc")
_FEW = 8  # files of a package: of more it is another version, which works as a whole alone
_MOST_UNITS = 64


def exchanged(paths: Sequence[str], source: str | None, grown: Collection[str] = ()) -> Suspicion | None:
    """The files that a run touched and that differ, as `source` has them (this device, where it is none).

    Those that only work together are exchanged together. Several are a bundle with two halves; what a function that
    takes longer lies in, `grown`, comes first.
    """
    found = _units(paths)
    likely = [name for name in found if any(path.endswith(f"/{file}") for path in found[name] for file in grown)]
    names = [*likely, *(name for name in found if name not in likely)]
    return _exchange(found, names, source, len(likely)) if names and len(names) <= _MOST_UNITS else None


def untaken_text(paths: Sequence[str]) -> str:
    """What files that differ are, where they cannot be exchanged."""
    among = ", among them the interpreter" if any(map(_INTERPRETER.fullmatch, paths)) else ""
    return f"Files that the runs touched and that differ: {len(paths)}{among}; they were not exchanged."


def _units(paths: Sequence[str]) -> dict[str, list[str]]:
    """Files by what they can be exchanged with: a package, the C library, the interpreter, a module's compiled file."""
    another = any(map(_INTERPRETER.fullmatch, paths))
    packages = Counter(match[1] for path in paths if (match := _PACKAGE.fullmatch(path)))
    found: dict[str, list[str]] = {}
    for path in paths:
        package, compiled = _PACKAGE.fullmatch(path), _BYTECODE.fullmatch(path)
        if _LIBC.fullmatch(path):
            found.setdefault("the C library", []).append(path)
        elif another and (_OF_INTERPRETER.fullmatch(path) or _OF_ITS_LIBRARY.fullmatch(path)):
            found.setdefault("the interpreter", []).append(path)
        elif package and packages[package[1]] > _FEW:
            folder = "".join(package.groups(""))
            found[package[1]] = [*dict.fromkeys((*found.get(package[1], ()), folder))]
        else:
            found.setdefault(f"{compiled[1]}{compiled[2]}.py" if compiled else path, []).append(path)
    # A module whose source is the same on both sides: `bytecode` looks at what was compiled of it.
    return {name: held for name, held in found.items() if not all(map(_BYTECODE.fullmatch, held))}


def _exchange(units: Mapping[str, list[str]], names: Sequence[str], source: str | None, likely: int = 0) -> Suspicion:
    middle = (likely if likely < len(names) else 0) or len(names) // 2
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    told = f"{', '.join(names[:_MOST_NAMED])}{more}"
    return Suspicion(
        weight=0.6,
        evidence=f"{told} {'is' if len(names) == 1 else 'are'} not as on the other side.",
        without={"taken": [path for name in names for path in units[name]], "taken_from": source},
        cure=f"{told} as in {source or 'the files of this device'}",
        bundle=len(names) > 1,
        parts=tuple(_exchange(units, half, source) for half in (names[:middle], names[middle:])) if middle else (),
    )


def _lost_extensions(slow: Side, quick: Side) -> list[str]:
    """Compiled modules of the other side that are not here, of modules that are: `_json` is of json."""
    ours, theirs = (set(side.facts.get("modules.extensions") or ()) for side in (slow, quick))
    names = slow.facts.get("modules.names") or ()
    return sorted(name for name in theirs - ours if name.partition("/")[0].lstrip("_") in names)


def _with_other(quick: Side) -> dict[str, Json]:
    """The same container with the other side's software."""
    image, dockerfile = quick.fields.get("image"), quick.fields.get("dockerfile")
    return {"image": image, "dockerfile": dockerfile, **({} if image or dockerfile else {"rootfs": "host"})}


def _differing(pattern: str, slow: Side, quick: Side) -> list[str]:
    keys = [key for key in {**slow.facts, **quick.facts} if re.fullmatch(pattern, key)]
    both = [key for key in keys if key in slow.facts and key in quick.facts]
    return sorted(key for key in both if slow.facts[key] != quick.facts[key])


class EntryPoint(Cause):
    """The image's entry point: a script or a program that runs before the command, or around it."""

    title: ClassVar[str] = "the image's entry point"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu", "tail"})
    option: ClassVar[str] = "entry"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        ours, theirs = (side.facts.get("place.entry") for side in (slow, quick))
        if not ours or not theirs:
            return NotLooked("of a side without an image of its own no entry point is known.")
        if ours == theirs:
            return RuledOut("both sides have the same entry point.")
        program, *words = [""] if theirs == NO_ENTRY else shlex.split(theirs)
        behind = f" IMAGE {shlex.join(words)} COMMAND..." if words else ""
        hides = any(map(is_mask, shlex.split(f"{ours} {theirs}")))
        return Suspicion(
            weight=0.6,
            evidence=f"it is `{ours}`, `{theirs}` on the other side.",
            without=None if hides else {"entry": theirs},
            cure=f"--entrypoint {shlex.quote(program)}{behind}",
            untried="a part of it is a secret, of which the value was not kept." if hides else "",
        )


class InstructionSet(Cause):
    """Vector instructions: a variable, or the CPU model of a VM, keeps the libraries from the fast ones."""

    title: ClassVar[str] = "the vector instructions in use"

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        found = suspected_variables(slow, quick, variables("instruction_set"))
        if isinstance(found, Suspicion):
            return found
        ours, theirs = (slow.facts.get("torch.cpu_capability"), quick.facts.get("torch.cpu_capability"))
        if ours and theirs and ours != theirs:
            return Suspicion(
                weight=0.8,
                evidence=f"torch uses {ours}, {theirs} on the other side.",
                cure=f"-e ATEN_CPU_CAPABILITY={str(theirs).lower()}, or the same build of torch",
                without={"env": {"ATEN_CPU_CAPABILITY": str(theirs).lower()}},
            )
        return found or RuledOut("the libraries use the same instructions on both sides.")


_FILES = "startup.files."
_HARMLESS = re.compile(r"(distutils-precedence|.*-nspkg|_virtualenv|a1_coverage)\.pth")  # of packaging tools


class StartUpFiles(Cause):
    """Files that run in every Python before the program: sitecustomize, usercustomize, code in *.pth, ld.so.preload."""

    title: ClassVar[str] = "a start-up file of the interpreter"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        if missing := unseen(slow.seen("startup.looked"), quick.seen("startup.looked")):
            return missing
        ours, theirs = _start_up_files(slow), _start_up_files(quick)
        own = sorted((path for path, what in ours.items() if what not in theirs.values()), key=_is_harmless)
        if own:
            return _hidden(own)
        if lost := [path for path, what in theirs.items() if what not in ours.values()]:
            return Suspicion(
                weight=0.2,
                evidence=f"{', '.join(lost)} is only on the other side.",
                cure="the same files as on the other side",
                untried="a file that is not there cannot be left out.",
            )
        return RuledOut("sitecustomize, usercustomize, *.pth and ld.so.preload are the same on both sides.")


def _start_up_files(side: Side) -> dict[str, tuple[str, Json]]:
    """By path, what tells a file from others wherever it lies: its name and the digest of what is run."""
    found = {key.removeprefix(_FILES): digest for key, digest in side.facts.items() if key.startswith(_FILES)}
    return {path: (path.rpartition("/")[2], digest) for path, digest in found.items()}


def _is_harmless(path: str) -> bool:
    return _HARMLESS.fullmatch(path.rpartition("/")[2]) is not None


def _hidden(paths: Sequence[str]) -> Suspicion:
    """These files left out; of several, halves of them are tried where they cost something."""
    middle = len(paths) // 2
    return Suspicion(
        weight=0.05 if all(map(_is_harmless, paths)) else 0.6,
        evidence=f"{', '.join(paths)} {'is' if len(paths) == 1 else 'are'} not as on the other side.",
        without={"hidden": list(paths)},
        cure=f"without {', '.join(paths)}",
        bundle=len(paths) > 1,
        parts=tuple(_hidden(half) for half in (paths[:middle], paths[middle:])) if middle else (),
    )

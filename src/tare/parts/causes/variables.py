"""Causes that are variables of the environment, or options of the command: what each does, and how sure it is to cost.

A cause is a table. Its suspicion is every variable or option of the table that the sides have differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar, TypeAlias

from tare.base.command_words import options_in
from tare.base.secrets import are_comparable, is_mask, revealed
from tare.parts.knowledge import variables
from tare.parts.protocols import Absent, Cause, Known, NotLooked, Observation, RuledOut, Side, Suspicion, unseen

_MOST_NAMED = 4  # modules without compiled files
Table: TypeAlias = Mapping[str, tuple[str, float]]

# An option with a number of threads; those that only answer connections wait more than they compute.
THREAD_OPTION = re.compile(r"--?(?!.*http)([a-z0-9]+[-_])*n?threads?([-_][a-z0-9]+)*", re.IGNORECASE)
_OF_GPUS = ("CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "NVIDIA_", "PYTORCH_NO_CUDA_", "PYTORCH_CUDA_", "TORCH_ALLOW_TF32_")
"""Variables of libraries that do nothing where no GPU is used: such a one is then no suspect."""

POOLS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
"""The number of threads: each library has a variable of its own; torch follows OpenMP's."""

PLACES = ("--port", "--host", "-p")
"""Options of where a server listens, which cost nothing and differ from run to run."""

_TABLES = ("debug_variables", "bytecode", "caches", "interconnect", "allocator", "instruction_set")
# Where programs and files are found: with the other side's a program may not be found at all, so these stay.
PLACE_VARIABLES = (
    "TARE_OUTPUT",
    "TARE_ULIMITS",
    "PATH",
    "HOME",
    "PYTHONPATH",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
)


def suspected_variables(slow: Side, quick: Side, costly: Table) -> Suspicion | NotLooked | None:
    """Those of these variables that the sides have differently, set on the slow side as on the other one.

    None where all were looked at on both sides and none differs. Several are a bundle, with two halves of it: what is
    likelier to cost comes first.
    """
    idle = slow.uses_gpu is False and quick.uses_gpu is False
    sides = {name: _on_both(name, slow, quick) for name in costly if not (idle and name.startswith(_OF_GPUS))}
    not_seen = {name: _not_seen(name, *pair) for name, pair in sides.items()}
    differing = [name for name, pair in sides.items() if not_seen[name] is None and pair[0] != pair[1]]
    if not differing:
        return next((each for each in not_seen.values() if each is not None), None)
    differing.sort(key=lambda name: -costly[name][1])
    can_set = [name for name in differing if is_settable(name, slow, quick)]
    cannot = [name for name in differing if name not in can_set]
    if not cannot:
        return _suspicion(differing, slow, quick, costly)
    why = f"of {', '.join(cannot)} a digest alone was kept, and not the value."
    if not can_set:
        return replace(_suspicion(differing, slow, quick, costly), without=None, added=None, parts=(), untried=why)
    found = _suspicion(can_set, slow, quick, costly)
    return replace(found, evidence=f"{found.evidence} Not tried: {why}")


def is_settable(name: str, slow: Side, quick: Side) -> bool:
    """Whether a side can be given this variable as the other one has it: of a digest the value has to be known."""
    return all(value is None or revealed(value) is not None for value in (slow.env(name), quick.env(name)))


def _suspicion(names: Sequence[str], slow: Side, quick: Side, costly: Table) -> Suspicion:
    restored = {name: quick.env(name) for name in names}
    middle = len(names) // 2
    halves = (names[:middle], names[middle:]) if middle else ()
    return Suspicion(
        weight=max(costly[name][1] for name in names),
        evidence=f"{'; '.join(_as_told(name, slow, costly[name][0]) for name in names)}.",
        without={"env": restored},
        added={"env": {name: slow.env(name) for name in names}},
        cure=env_cure(restored),
        bundle=len(names) > 1,
        parts=tuple(_suspicion(half, slow, quick, costly) for half in halves),
    )


def _not_seen(name: str, ours: Observation, theirs: Observation) -> NotLooked | None:
    if isinstance(ours, Known) and isinstance(theirs, Known) and not are_comparable(ours.value, theirs.value):
        return NotLooked(f"{name} was recorded as a digest, on two machines with keys of their own.")
    return unseen(ours, theirs)


def _on_both(name: str, slow: Side, quick: Side) -> tuple[Observation, Observation]:
    """What a user gave to one side alone counts as not set on the other one, if nobody looked there."""
    ours, theirs = slow.variable(name), quick.variable(name)
    if name in (slow.fields.get("env") or {}) and isinstance(theirs, NotLooked):
        return ours, Absent()
    return ours, theirs


def _as_told(name: str, slow: Side, what: str) -> str:
    value = slow.env(name)
    if value is None:
        return f"{name} is not set"
    if is_mask(value):  # the user's own option may be told, as records have it
        value = (slow.fields.get("env") or {}).get(name) or value
    return f"{name} ({what}; its value is not shown)" if is_mask(value) else f"{name}={value} ({what})"


def suspected_arguments(slow: Side, quick: Side, costly: Table) -> Suspicion | None:
    """Those of these options of the command line that the sides have differently, as on the other one."""
    ours, theirs = options_in(slow.words()), options_in(quick.words())
    differing = [name for name in costly if ours.get(name) != theirs.get(name)]
    if not differing:
        return None
    told = "; ".join(
        f"{name} {ours[name]} ({costly[name][0]})" if name in ours else f"{name} is not given" for name in differing
    )
    restored = {name: theirs.get(name) for name in differing}
    given = [f"{name} {value}" for name, value in restored.items() if value is not None]
    gone = [f"without {name}" for name, value in restored.items() if value is None]
    return Suspicion(
        weight=max(costly[name][1] for name in differing),
        evidence=f"{told}.",
        without={"arguments": restored},
        added={"arguments": {name: ours.get(name) for name in differing}},
        cure=" ".join([*given, *gone]),
    )


def env_cure(wanted: Mapping[str, str | None]) -> str:
    """For `docker run`; what the other side lacks is taken away before the command, or leaves the image."""
    told = {name: "VALUE" if value is not None and is_mask(value) else value for name, value in wanted.items()}
    given = [f"-e {name}={value}" for name, value in told.items() if value is not None]
    gone = [f"-u {name}" for name, value in wanted.items() if value is None]
    return " ".join([*given, *(["env", *gone, "COMMAND..."] if gone else [])])


class Bytecode(Cause):
    """Python's compiled files: an image without them compiles every import again, in every container."""

    title: ClassVar[str] = "Python's compiled files"
    phases: ClassVar[frozenset[str]] = frozenset({"start"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        found = suspected_variables(slow, quick, variables("bytecode"))
        if missing := unseen(slow.seen("modules.looked"), quick.seen("modules.looked")):
            return found or missing
        paths, others = uncompiled(slow), uncompiled(quick)
        lost = [path for path in paths if path.rpartition("/")[2] not in {each.rpartition("/")[2] for each in others}]
        if not lost:
            return found or RuledOut("modules have their compiled files on both sides, and both may keep them.")
        more = f" and {len(lost) - _MOST_NAMED} more" if len(lost) > _MOST_NAMED else ""
        made = Suspicion(
            weight=0.2 if all(path.endswith(".py") for path in lost) else 0.6,  # a module alone, or whole packages
            evidence=f"no compiled files (__pycache__) in {', '.join(lost[:_MOST_NAMED])}{more}.",
            without={"compiled": lost},
            cure=f"RUN python -m compileall {' '.join(lost[:_MOST_NAMED])} (in the Dockerfile)",
        )
        if not isinstance(found, Suspicion):
            return made
        return replace(
            made,
            evidence=f"{made.evidence.rstrip('.')}; {found.evidence}",
            without={**(found.without or {}), "compiled": lost},
            cure=f"{made.cure} {found.cure}",
        )


def uncompiled(side: Side) -> list[str]:
    """Folders of which no module has a compiled file, and single modules of others."""
    key, found = "modules.uncompiled.", []
    for folder, names in ((each[len(key) :], names) for each, names in side.facts.items() if each.startswith(key)):
        found += [folder] if names == "all" else [f"{folder}/{name}" for name in names]
    return found


class Caches(Cause):
    """Compiled kernels and downloads that die with the container are regenerated by the next one."""

    title: ClassVar[str] = "caches that go with the container"
    phases: ClassVar[frozenset[str]] = frozenset({"start"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        found = suspected_variables(slow, quick, variables("caches"))
        return found or RuledOut("both sides keep their caches in the same folders.")


class DebugVariables(Cause):
    """Variables for debugging that stayed in the image: CUDA_LAUNCH_BLOCKING=1, PYTHONDEVMODE=1 and others."""

    title: ClassVar[str] = "a variable for debugging"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        found = suspected_variables(slow, quick, variables("debug_variables"))
        return found or RuledOut(
            "no variable that switches on checks differs (those of a GPU count where one is used)."
        )


class Interconnect(Cause):
    """How processes of one training talk to each other: NCCL without shared memory or peer access uses sockets."""

    title: ClassVar[str] = "the way that ranks talk to each other"
    phases: ClassVar[frozenset[str]] = frozenset({"compute", "gpu"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        found = suspected_variables(slow, quick, variables("interconnect"))
        return found or RuledOut("no setting of NCCL or Gloo differs.")


class OtherVariables(Cause):
    """Variables that differ and that no other cause knows: the program itself may look at them."""

    title: ClassVar[str] = "a variable of the program's own"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        given = {*(slow.fields.get("env") or {}), *(quick.fields.get("env") or {})}
        known = {*POOLS, "TMPDIR"}.union(*map(variables, _TABLES))
        others = (slow.variables() | quick.variables()) - known - ({*PLACE_VARIABLES} - given)
        told = variables("other_variables")
        table = {name: told.get(name, ("no cause of the catalogue knows it", 0.35)) for name in sorted(others)}
        apart = [name for name in PLACE_VARIABLES if name not in given and slow.env(name) != quick.env(name)]
        found = suspected_variables(slow, quick, table)
        if found is None and (missing := unseen(slow.variable("PATH"), quick.variable("PATH"))):
            return NotLooked(f"not all variables were recorded: {missing.reason}")
        return found or RuledOut(
            f"no other variable differs, but for where programs and files are found ({', '.join(apart)})."
            if apart
            else "no other variable differs."
        )


class OtherArguments(Cause):
    """Options of the command that differ and that no other cause knows: what they do is the program's own."""

    title: ClassVar[str] = "an option of the command"
    phases: ClassVar[frozenset[str]] = frozenset({"start", "data", "compute", "gpu", "tail"})

    def examine(self, slow: Side, quick: Side) -> Suspicion | RuledOut | NotLooked:
        if not (slow.words() and quick.words()):
            return NotLooked("no command line is known.")
        seen = {*options_in(slow.words()), *options_in(quick.words())}
        elsewhere = {*PLACES} - {*(slow.fields.get("arguments") or {})}
        others = sorted(name for name in seen - elsewhere if not THREAD_OPTION.fullmatch(name))
        table = dict.fromkeys(others, ("no cause of the catalogue knows it", 0.35))
        return suspected_arguments(slow, quick, table) or RuledOut("no other option of the command differs.")

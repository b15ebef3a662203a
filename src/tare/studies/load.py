"""From a file to a study, and the form of such files as a JSON Schema.

Whatever is wrong is said at once, each with its line; nothing in a file is ever run.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from tare.base.errors import StudyError, near_names
from tare.parts.find import Kind
from tare.parts.protocols import Json
from tare.studies.fields import PartChoice, complaint_text, explain, part_class, part_names, unit_example
from tare.studies.model import (
    DEFAULT_PROBES,
    ENDING_FORM,
    ID_FORM,
    MAX_ABOUT,
    MAX_LINE,
    MAX_SEED,
    Compare,
    Design,
    Order,
    Question,
    Repeat,
    Study,
)
from tare.studies.reader import MOST_TENANTS, scale_names, scaled
from tare.studies.yaml import (
    HOW_TO_BEGIN,
    Complaint,
    Fatal,
    Loc,
    Node,
    Problem,
    Source,
    parse,
    show,
)

MAX_BYTES = 128 * 1024  # the scanner needs 5 s for the worst MiB, and no study that people read is longer

_CONTROL = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_WIDE = ((b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"), (b"\x00\x00\xfe\xff", "UTF-32"))


def read(path: Path, *, trust: bool, most_bytes: int = MAX_BYTES) -> bytes:
    """The bytes of the file, checked and read through one descriptor so that nobody can swap it in between."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise StudyError(f"{path}: this file cannot be read: {_reason(error)}.{_near(path)}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise StudyError(f"{path}: this is not a file. Give the path of a study, such as study.yaml.")
        if not trust:
            _refuse_foreign(path, status)
        found = bytearray()
        while len(found) <= most_bytes and (chunk := os.read(descriptor, most_bytes + 1)):
            found += chunk
        return bytes(found)
    except OSError as error:
        raise StudyError(f"{path}: this file cannot be read: {_reason(error)}.") from None
    finally:
        os.close(descriptor)


def decoded(text: str | bytes, most_bytes: int = MAX_BYTES) -> str:
    """The text, if it is text: UTF-8 with or without a byte order mark, any line ends."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    if len(raw) > most_bytes:
        raise Fatal(Problem(1, 1, f"the file is too large: it may have at most {most_bytes:,} bytes."))
    for mark, encoding in _WIDE:
        if raw.startswith(mark):
            raise Fatal(Problem(1, 1, f"the file is in {encoding}. Save it as UTF-8."))
    try:
        found = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        reported = f"byte {raw[error.start]:#04x} is not UTF-8. Save the file as UTF-8."
        raise Fatal(Problem(line, 1, reported)) from None
    if control := _CONTROL.search(found):
        at = control.start()
        line, column = found.count("\n", 0, at) + 1, at - found.rfind("\n", 0, at)
        name = "a NUL byte" if found[at] == "\0" else f"the control character U+{ord(found[at]):04X}"
        raise Fatal(Problem(line, column, f"there is {name} in column {column}. Is this a text file, in UTF-8?"))
    return found


def _refuse_foreign(path: Path, status: os.stat_result) -> None:
    """Root does what the file says, so nobody else may have a hand in it (as for sudoers)."""
    if os.geteuid() != 0:
        return
    sudo_user = os.environ.get("SUDO_UID", "")
    ours = {0, int(sudo_user) if sudo_user.isdecimal() else 0}
    if status.st_uid not in ours:
        who = f"it belongs to user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        who = "others can write to it"
    else:
        return
    raise StudyError(
        f"{path}:1: tare runs as root and does what this file says, but {who}.\n"
        f"  Read it, then `chown root {path}` and `chmod go-w {path}`; or pass --trust."
    )


def _reason(error: Exception) -> str:
    return error.strerror if isinstance(error, OSError) and error.strerror else str(error)


def _near(path: Path) -> str:
    """The file in the same folder that was probably meant."""
    try:
        here = [entry.name for entry in path.parent.iterdir() if entry.suffix in (".yaml", ".yml")]
    except (OSError, ValueError):
        return ""
    near = near_names(path.name, here)
    return f"\n  Did you mean {str(path.with_name(near[0]))!r}?" if near else ""


_NESTED: dict[str, type[BaseModel]] = {"repeat": Repeat, "order": Order, "design": Design, "compare": Compare}


def load(path: Path | str, *, trust: bool = False, scale: str | None = None) -> Study:
    """The study in a file. As root, a file that others can write is refused unless it is trusted."""
    return loads(read(Path(path), trust=trust), str(path), scale=scale)


def loads(text: str | bytes, name: str = "study", *, scale: str | None = None) -> Study:
    """The study in a text, at one of its scales; `name` stands for the file in messages."""
    root, problems = _tree(text, name)
    return _at_scale(root, problems, name, scale)


def at_every_scale(path: Path | str, *, trust: bool = False) -> dict[str, Study]:
    """The study in a file at each of its scales, from the smallest; with none of them, alone under an empty name."""
    root, problems = _tree(read(Path(path), trust=trust), str(path))
    known: list[str | None] = [*scale_names(root)] or [None]
    return {scale or "": _at_scale(root, problems, str(path), scale) for scale in known}


def _tree(text: str | bytes, name: str) -> tuple[Node, list[Problem]]:
    """The tree of a study file, and what is wrong with it that does not keep us from reading on."""
    try:
        root, problems = parse(decoded(text))
    except Fatal as fatal:
        raise Source(name).error([fatal.problem]) from None
    if not isinstance(root.value, dict):
        what = "a list" if isinstance(root.value, list) else "a single value"
        reported = f"a study is made of 'key: value' lines, and this is {what}. {HOW_TO_BEGIN}"
        raise Source(name, root).error([Problem(root.line, root.column, reported)])
    return root, problems


def _at_scale(root: Node, problems: list[Problem], name: str, scale: str | None) -> Study:
    try:
        return _typed(scaled(root, scale), name, list(problems))
    except Fatal as fatal:
        raise Source(name, root).error([*problems, fatal.problem]) from None


def _typed(root: Node, name: str, problems: list[Problem]) -> Study:
    """The study in a tree, or everything that is wrong with it."""
    source, data = Source(name, root), root.plain()
    problems += _blanks(root)
    blank = [key for key, node in root.value.items() if node.value is None and not node.text]
    try:
        study = Study.model_validate({key: value for key, value in data.items() if key not in blank})
    except ValidationError as error:
        taken = {problem[:2] for problem in problems}  # what is not even YAML needs no second complaint
        found = [source.problem(one) for one in _complaints(error, data)]
        problems += [problem for problem in found if problem[:2] not in taken]
    if problems:
        raise source.error(problems)
    return study.from_source(source)


def from_plain(data: Mapping[str, Any], name: str = "") -> Study:
    """A study from the same keys, made by a program; what is wrong is said as for a file, without lines."""
    try:
        return Study.model_validate(dict(data)).from_source(Source(name))
    except ValidationError as error:
        texts = [complaint_text(one, data) for one in _complaints(error, dict(data))]
        raise Source(name).error([Problem(0, 0, text) for text in texts]) from None


def _complaints(error: ValidationError, data: dict[str, Any]) -> list[Complaint]:
    known: dict[Loc, Sequence[str]] = {(): [*keys(), "scales"]}
    known |= {(key,): keys(model) for key, model in _NESTED.items()}
    return explain(error.errors(include_url=False), data, of="", known=known)


def keys(of: type[BaseModel] = Study) -> list[str]:
    """The keys of a study file, or of one of its mappings, in their usual order."""
    return [field.alias or name for name, field in of.model_fields.items()]


def _blanks(root: Node) -> list[Problem]:
    """Keys of the study, and items of any list, after which nothing was written."""
    found = [
        Problem(*root.keys[key], f"{show(key + ':')} has no value. Give it one, or take the line out.")
        for key, node in root.value.items()
        if node.value is None and not node.text
    ]
    rows = [root]
    while rows:
        node = rows.pop()
        rows += node.children
        if isinstance(node.value, list):
            blank = [item for item in node.value if item.value is None and not item.text]
            found += [Problem(item.line, item.column, "this item of the list is empty.") for item in blank]
    return found


_FIELD = "python"


def with_python(study: Study, path: str) -> Study:
    """The same study, in which every workload that can have an interpreter of its own, and names none, has this one.

    Neighbours are workloads too. The choices are changed, and not the plain data, which have lost their secrets.
    """
    workloads = tuple(_with(choice, path) for choice in study.workloads)
    tenancies = tuple(
        replace(level, beside=tuple(_with(choice, path) for choice in level.beside)) for level in study.tenancies
    )
    every = (*workloads, *(choice for level in tenancies for choice in level.beside))
    if not any((_FIELD, (path,)) in choice.levels for choice in every):
        raise StudyError(
            f"--python changes nothing: each workload of {study.study} names its interpreter itself, or cannot have "
            "one of its own (of a command it is the first word)."
        )
    made = study.model_copy(update={"workloads": workloads, "tenancies": tenancies})
    vars(made).pop("factors", None)  # those of the study before, if someone has asked for them
    return made


def begun_with(stored: Mapping[str, Json], study: Study) -> str | None:
    """The interpreter that a store was begun with, where it is all that tells its workloads from the study's."""
    if _workloads(study.as_plain()) == _workloads(stored):
        return None
    for path in dict.fromkeys(_named(_workloads(stored))):
        with suppress(StudyError):  # no workload of it takes one
            if _workloads(with_python(study, path).as_plain()) == _workloads(stored):
                return path
    return None


def _with(choice: PartChoice, path: str) -> PartChoice:
    if any(key == _FIELD for key, _ in choice.levels) or _FIELD not in choice.part.model_fields:
        return choice
    return replace(choice, levels=(*choice.levels, (_FIELD, (path,))))


def _workloads(plain: Mapping[str, Json]) -> list[Json]:
    """What of a study says which programs run."""
    return [plain.get("workload"), plain.get("tenants")]


def _named(plain: Json) -> Iterator[str]:
    """Every interpreter that is named somewhere in plain data."""
    if isinstance(plain, list):
        for item in plain:
            yield from _named(item)
    elif isinstance(plain, dict):
        for key, value in plain.items():
            yield from [value] if key == _FIELD and isinstance(value, str) else _named(value)


# The JSON Schema of study files, for editors: every key, every part and every part's fields.


Schema = dict[str, Any]

_TIME: Schema = {"type": "string", "pattern": r"^\s*[0-9.]+([eE][-+]?[0-9]+)?\s*(ns|us|µs|ms|s|min|h|d)\s*$"}
_SIZE: Schema = {"type": "string", "pattern": r"^\s*[0-9.]+\s*([kMGT]?B|[KMGT]iB)\s*$"}
_SHARE: Schema = {"type": ["string", "number"], "description": "A share, such as 5% or 0.05."}
_COUNT: Schema = {"type": "integer", "minimum": 1}


def json_schema() -> Schema:
    """The whole schema; it asks every part that can be named here for its fields."""
    defs: Schema = {}
    kinds: tuple[Kind, ...] = ("platforms", "workloads", "controls", "probes")
    for kind in kinds:
        defs |= _kind(kind)
    level, workload, probe = _ref("platforms"), _ref("workloads"), _ref("probes")
    stack = {"type": "array", "items": level, "minItems": 1, "description": "A stack, outermost first."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A tare study",
        "type": "object",
        "additionalProperties": False,
        "required": ["study", "platform", "workload"],
        "properties": {
            "study": {"type": "string", "pattern": f"^{ID_FORM}$", "description": "The name of the study."},
            "about": {"type": "string", "maxLength": MAX_ABOUT, "description": "The question, in your words."},
            **_origin(),
            "platform": _or_list(level, {"anyOf": [level, stack]}),
            "workload": _or_list(workload, workload),
            "control": _controls(),
            "tenants": _or_list(_tenancy(level, workload), _tenancy(level, workload)),
            "probes": {**_or_list(probe, probe, least=0), "default": list(DEFAULT_PROBES)},
            **_design(),
            "rehearse": {
                "type": "boolean",
                "description": "Run each platform with each workload once before the blocks; these runs are no data. "
                "By default where a workload is a command of yours.",
            },
            "limit": {
                **_TIME,
                "default": "10 min",
                "description": "The longest that one trial may take; by default it follows from the rehearsal.",
            },
            "period": {**_TIME, "default": "100 ms", "description": "How often the probes are read."},
        },
        "$defs": defs,
    }


def _origin() -> Schema:
    """Where the question comes from, in which sizes it is asked, and what its answer is read with."""
    line: Schema = {"type": "string", "maxLength": MAX_LINE}
    ending: Schema = {"type": "string", "pattern": f"^{ENDING_FORM}$"}
    ruling = _object({name: {"type": "string"} for name in ("code", "weight", "subject", "sentence")})
    left_out: Schema = {"type": "array", "items": {"anyOf": [ruling, {"type": "string"}]}}
    return {
        "paper": {**line, "description": "The paper that asked first: S0 to S4."},
        "section": {**line, "description": "And where in it."},
        "scale": {**line, "description": "Written by tare: the scale at which this study was run."},
        "scales": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"type": "object"},
            "description": "Smaller sizes of the study: keys, or dotted fields, and what they are in it.",
        },
        "missing": {
            "enum": ["refuse", "leave_out"],
            "default": "refuse",
            "description": "What to do about levels that this device cannot run.",
        },
        "left_out": {**left_out, "description": "Written by tare: what this device could not run."},
        "ends_in": {**_or_list(ending, ending, least=0), "description": "Verbs that read what came of it."},
    }


def _tenancy(level: Schema, workload: Schema) -> Schema:
    """How many share the device, or who is beside the workload."""
    beside = {**_object({"beside": _or_list(workload, workload), "platform": _or_list(level, level)})}
    count = {**_COUNT, "maximum": MOST_TENANTS}
    return {"anyOf": [count, {**beside, "required": ["beside"]}], "description": "How many run side by side."}


def _design() -> Schema:
    """How often, in which order, compared with what."""
    rule = _object({"min": _COUNT, "max": _COUNT, "until": _SHARE, "within": _TIME, "more_within": _TIME})
    selector = {"type": "object", "minProperties": 1, "description": "Levels by name, such as workload.batch: 64."}
    seed = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
    cpu_time = {"type": "boolean", "default": False, "description": "Judge the CPU time as well."}
    disturbed = "A trial that others disturbed much is invalid, and not just suspect."
    strict = {"type": "boolean", "default": False, "description": disturbed}
    return {
        "repeat": {"anyOf": [_COUNT, rule], "description": "How many blocks, or the rule that ends them."},
        "order": _object({"shuffle": {"type": "boolean", "default": True}, "seed": seed}),
        "design": {
            "anyOf": [
                {"const": "blocks"},
                _object({"runs": {"const": "blocks"}, "cpu_time": cpu_time, "strict": strict}),
            ],
            "description": "blocks: one trial after the other; if not set, in turns where that can be: docs/how-to.",
        },
        "compare": _object(
            {
                "against": {"anyOf": [selector, {"type": ["string", "number", "boolean"]}]},
                "by": {"type": "string"},
                "margin": {**_SHARE, "default": "5%"},
                "metric": {"type": "string"},
            }
        ),
        "question": {**_question(), "description": "What the headline answers; by default what the levels cost."},
        "exclude": _or_list(selector, selector, least=0),
        "aa": {"type": "boolean", "default": True, "description": "Run the baseline twice in each block."},
    }


def _question() -> Schema:
    """The form of the answer, its metrics and its unit of work."""
    forms = [*get_args(Question.model_fields["form"].annotation)]
    metrics = {"type": "array", "items": {"type": "string"}}
    fields = {"form": {"enum": forms, "default": "cost"}, "metrics": metrics, "per": {"const": "sample"}}
    return _object({**fields, "published": {"type": "object", "additionalProperties": _SHARE}})


def _kind(kind: Kind) -> Schema:
    """The definitions of one kind: a level is a name, or a name with fields."""
    found: Schema = {}
    names = part_names(kind)
    levels: list[Schema] = [{"enum": [*names, *([None] if "null" in names else [])]}]
    for name in names:
        found |= _part(kind, name)
        levels.append(_object({name: _ref(f"{kind}.{name}")}, required=[name]))
    return found | {kind: {"anyOf": levels}}


def _part(kind: Kind, name: str) -> Schema:
    """The fields of one part, with the definitions that they refer to."""
    try:
        part = part_class(kind, name)
    except StudyError as error:
        return {f"{kind}.{name}": {"description": str(error)}}
    own = part.model_json_schema(ref_template=f"#/$defs/{kind}.{name}.{{model}}")
    inner = {f"{kind}.{name}.{key}": value for key, value in own.get("$defs", {}).items()}
    factor = kind != "probes"
    fields = {
        key: _field(part.model_fields[key], own["properties"][key], factor=factor) for key in own.get("properties", {})
    }
    whole = _object(fields, required=own.get("required", []))
    whole["description"] = own.get("description", "")
    forms: list[Schema] = [whole]
    if part.short is not None:
        forms.append(fields[part.short])
    if all(not field.is_required() for field in part.model_fields.values()):
        forms.append({"type": "null"})
    return {**inner, f"{kind}.{name}": forms[0] if len(forms) == 1 else {"anyOf": forms}}


def _field(info: FieldInfo, schema: Schema, *, factor: bool) -> Schema:
    """One field: a value, or a list of them, which makes it a factor."""
    about: Schema = {key: schema.pop(key) for key in ("description", "default", "title") if key in schema}
    example = unit_example(info)
    if example is not None:
        schema = _SIZE if "B" in example else _TIME
        if not info.is_required() and info.default is None:
            schema = {"anyOf": [schema, {"type": "null"}]}
        about.pop("default", None)  # in base units, which a file does not use
    return {**(_or_list(schema, schema) if factor else schema), **about}


def _controls() -> Schema:
    names = part_names("controls")
    return _object({name: _or_list(_ref(f"controls.{name}"), _ref(f"controls.{name}")) for name in names})


def _or_list(one: Schema, item: Schema, least: int = 1) -> Schema:
    return {"anyOf": [one, {"type": "array", "items": item, "minItems": least}]}


def _object(properties: Schema, required: list[Json] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}

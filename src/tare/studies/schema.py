"""The JSON Schema of study files, for editors: every key, every part and every part's fields."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo

from tare.base.errors import StudyError
from tare.parts.find import Kind
from tare.parts.protocols import Json
from tare.studies.fields import part_class, part_names, unit_example
from tare.studies.model import DEFAULT_PROBES, ENDING_FORM, ID_FORM, LEAVE_OUT, MAX_ABOUT, MAX_LINE, MAX_SEED
from tare.studies.reader import MOST_TENANTS

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
    rule = _object({"min": _COUNT, "max": _COUNT, "until": _SHARE, "within": _TIME})
    selector = {"type": "object", "minProperties": 1, "description": "Levels by name, such as workload.batch: 64."}
    seed = {"type": "integer", "minimum": 0, "maximum": MAX_SEED}
    cpu_time = {"type": "boolean", "default": False, "description": "Judge the CPU time as well."}
    turn = "How long a side runs before the other's turn; if not set, 15 steps and at least 100 ms."
    slices = _object(
        {
            "length": {**_TIME, "description": turn},
            "leave_out": {**_COUNT, "default": LEAVE_OUT, "description": "Steps after a stop that are not measured."},
            "quiet": {**_SHARE, "description": "Leave out rounds in which others took a larger share of the CPU time."},
        }
    )
    return {
        "repeat": {"anyOf": [_COUNT, rule], "description": "How many blocks, or the rule that ends them."},
        "order": _object({"shuffle": {"type": "boolean", "default": True}, "seed": seed}),
        "design": {
            "anyOf": [{"enum": ["blocks", "slices"]}, _object({"slices": slices, "cpu_time": cpu_time})],
            "default": "blocks",
            "description": "One trial after the other, or all of a block at once, in turns: docs/how-to.",
        },
        "compare": _object(
            {
                "against": {"anyOf": [selector, {"type": ["string", "number", "boolean"]}]},
                "by": {"type": "string"},
                "margin": {**_SHARE, "default": "5%"},
                "metric": {"type": "string"},
            }
        ),
        "exclude": _or_list(selector, selector, least=0),
        "aa": {"type": "boolean", "default": True, "description": "Run the baseline twice in each block."},
    }


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

"""The schema that editors use says what the loader takes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from stand_in_parts import PARTS, instead_of_find, stand_ins
from tare.studies.load import json_schema, keys


@pytest.fixture(autouse=True)
def parts() -> Iterator[None]:
    with stand_ins():
        yield


def takes(schema: dict[str, Any], value: Any, whole: dict[str, Any]) -> bool:
    """Enough of JSON Schema to ask the schema about a study."""
    if "$ref" in schema:
        return takes(whole["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, whole)
    if "anyOf" in schema and not any(takes(one, value, whole) for one in schema["anyOf"]):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    types = {"object": dict, "array": list, "string": str, "integer": int, "number": int | float, "null": type(None)}
    wanted = schema.get("type", [])
    names = wanted if isinstance(wanted, list) else [wanted]
    if names and not any(_is(value, types.get(name, bool), name) for name in names):
        return False
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        return False
    if isinstance(value, int | float) and value < schema.get("minimum", value):
        return False
    if isinstance(value, int | float) and "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        return False
    if isinstance(value, list):
        rows = all(takes(schema.get("items", {}), item, whole) for item in value)
        return rows and len(value) >= schema.get("minItems", 0)
    return not isinstance(value, dict) or _object(schema, value, whole)


def _is(value: Any, kind: Any, name: str) -> bool:
    return isinstance(value, kind) and (name == "boolean") == isinstance(value, bool)


def _object(schema: dict[str, Any], value: dict[str, Any], whole: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    if schema.get("additionalProperties") is False and not set(value) <= set(known):
        return False
    if not set(schema.get("required", [])) <= set(value):
        return False
    return all(takes(known.get(key, {}), item, whole) for key, item in value.items())


def study(**more: Any) -> dict[str, Any]:
    return {"study": "s", "platform": ["bare", "docker"], "workload": "torch_train"} | more


def test_the_schema_is_plain_json_with_every_key_and_every_part() -> None:
    schema = json_schema()

    assert json.loads(json.dumps(schema)) == schema
    assert sorted(schema["properties"]) == sorted([*keys(), "scales"])
    for kind, named in PARTS.items():
        for name in named:
            assert f"{kind}.{name}" in schema["$defs"]


def test_every_reference_leads_somewhere() -> None:
    schema = json_schema()

    found = set(re.findall(r'"#/\$defs/([^"]+)"', json.dumps(schema)))
    assert found <= set(schema["$defs"])


@pytest.mark.parametrize(
    "good",
    [
        study(),
        study(platform=["bare", {"docker": {"image": "x", "memory": "2 GiB"}}, ["qemu", "docker"]]),
        study(workload={"torch_train": {"batch": [16, 64], "threads": "all", "lr": 0.1}}),
        study(workload=[{"command": {"argv": ["ls"]}}, None, "null"]),
        study(control={"page_cache": "cold", "cpu": {"online": [0, 1]}}),
        study(control={"page_cache": ["cold", "warm"], "cpu": [{"online": [0]}, {"online": [0, 1]}]}),
        study(probes=["cpu", {"cgroup": {"depth": 2}}], repeat={"min": 6, "max": 20, "until": "2%", "within": "1 h"}),
        study(repeat=10, order={"shuffle": False, "seed": 1}, aa=False, limit="10 min", period="100 ms"),
        study(compare={"against": {"platform": "bare"}, "margin": "5%"}, exclude=[{"workload.batch": 64}]),
    ],
)
def test_what_the_loader_takes_the_schema_takes(good: dict[str, Any]) -> None:
    schema = json_schema()

    assert takes(schema, good, schema)


@pytest.mark.parametrize(
    "bad",
    [
        study(repeats=3),
        study(platform="dokcer"),
        study(platform={"docker": {"imgae": "x"}}),
        study(platform={"docker": {"memory": 512}}),
        study(workload={"torch_train": {"batch": 0}}),
        study(workload={"torch_train": {"batch": "many"}}),
        study(workload={"command": {}}),
        study(workload="command", control={"page_cache": "frozen"}),
        study(repeat=0),
        study(limit=10),
        study(study="-rf"),
        {"study": "s"},
    ],
)
def test_what_the_loader_refuses_the_schema_refuses(bad: dict[str, Any]) -> None:
    schema = json_schema()

    assert not takes(schema, bad, schema)


def test_a_part_that_cannot_be_imported_does_not_spoil_the_schema() -> None:
    def broken(kind: str, name: str) -> Any:
        if name == "docker":
            raise ModuleNotFoundError("No module named 'docker'")
        return PARTS[kind][name]

    with instead_of_find(broken):
        schema = json_schema()

    assert "No module named 'docker'" in schema["$defs"]["platforms.docker"]["description"]

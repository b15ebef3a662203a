"""What every control promises, whoever wrote it: found by its file's name, tried on a fake device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tare.base.host import LocalHost
from tare.parts.find import find, names
from tare.parts.protocols import Control
from tare.testing import FakeHost

NAMES = names("controls")


def example_of(schema: dict[str, Any]) -> Any:
    """Some value that the JSON schema of a field allows."""
    if "const" in schema or "enum" in schema or "default" in schema:
        return schema.get("default", schema.get("const", schema.get("enum", [None])[0]))
    if "anyOf" in schema:
        return example_of(schema["anyOf"][0])
    simple = {"integer": schema.get("minimum", 1), "number": 1.0, "string": "x", "boolean": True, "object": {}}
    if schema.get("type") == "array":
        return [example_of(schema["items"])] * schema.get("minItems", 0)
    return simple[schema["type"]]


def control_named(name: str) -> Control:
    """The control as its own example, or with its required fields filled in from its schema."""
    kind = find("controls", name)
    schema = kind.model_json_schema()
    required = {field: example_of(schema["properties"][field]) for field in schema.get("required", [])}
    fields = dict(kind.example) or required
    control = kind.model_validate(fields)
    assert isinstance(control, Control)
    return control


@pytest.fixture(params=NAMES)
def control(request: pytest.FixtureRequest) -> Control:
    return control_named(request.param)


def test_the_first_controls_are_there():
    assert {"cpu", "page_cache", "power_mode", "dvfs", "fan"} <= set(NAMES)


def test_its_name_is_the_name_of_its_file(control: Control):
    assert control.part_name() in NAMES


def test_it_is_a_value(control: Control):
    again = type(control).model_validate(control.fields())
    assert again == control
    assert hash(again) == hash(control)
    with pytest.raises(ValidationError):
        setattr(control, next(iter(type(control).model_fields)), None)


def test_its_fields_survive_the_journal(control: Control):
    assert type(control).model_validate(json.loads(json.dumps(control.fields()))) == control
    assert control.knob() == type(control).model_validate(control.fields()).knob()


def test_it_refuses_keys_that_it_does_not_know(control: Control):
    with pytest.raises(ValidationError):
        type(control).model_validate({**control.fields(), "no_such_field": 1})


def test_its_plain_value_fills_a_field_that_it_has(control: Control):
    assert control.short is None or control.short in type(control).model_fields


def test_it_and_each_of_its_fields_say_what_they_are(control: Control):
    assert type(control).__doc__
    for name, field in type(control).model_json_schema()["properties"].items():
        assert field.get("description"), name


def test_it_says_in_sentences_what_is_in_its_way_and_touches_nothing(control: Control):
    bare = FakeHost()
    for host in (bare, LocalHost()):
        found = control.obstacles(host)
        assert all(each.weight == "obstacle" and not each.subject for each in found)
        assert all(each.sentence.endswith(".") and len(each.sentence) > 20 for each in found)
        assert not any(each.sentence.startswith(f"{control.part_name()}: ") for each in found)
    assert bare.log == []


def test_a_device_that_has_nothing_is_an_obstacle(control: Control):
    assert control.obstacles(FakeHost())


def test_what_it_wants_is_plain_data(control: Control):
    if not control.obstacles(LocalHost()):
        target = control.target(LocalHost(), [Path("/data")])
        assert json.loads(json.dumps(target, allow_nan=False)) == target


def test_how_it_is_restored_is_known_before_it_is_used(control: Control):
    assert control.persistence in ("volatile", "reboot-persistent")
    assert 0 <= control.restore_rank <= 100


def test_what_it_reads_here_is_plain_data_or_nothing(control: Control):
    if not control.obstacles(LocalHost()):
        state = control.read(LocalHost())
        assert json.loads(json.dumps(state, allow_nan=False)) == state

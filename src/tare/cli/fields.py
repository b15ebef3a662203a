"""`--set platform.shm=64MiB`: fields of the study that a verb makes, where the verb has no option for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from tare.api.studies import merged
from tare.base.errors import StudyError
from tare.cli.scaffold import Option, as_one, need

_FILES = ("python", "requests", "trace", "seccomp_profile")  # a trial starts in a folder of its own


@dataclass(frozen=True)
class Fields:
    """What `--set` gives, as a study has it."""

    platform: dict[str, Any] = field(default_factory=dict)  # of every platform but bare metal
    workload: dict[str, Any] = field(default_factory=dict)
    study: dict[str, Any] = field(default_factory=dict)  # the others

    def take(self, name: str, default: Any) -> Any:
        """A field of the study that the verb reads itself."""
        section, _, key = name.partition(".")
        fields = self.study.get(section, {}) if key else self.study
        value = fields.pop(key or section, default) if isinstance(fields, dict) else default
        if not self.study.get(section, True):
            del self.study[section]
        return value

    def on(self, work: dict[str, Any]) -> dict[str, Any]:
        """The workload with these fields."""
        ((name, fields),) = work.items()
        return {name: merged(fields or {}, self.workload)}


def _fields(settings: tuple[str, ...]) -> Fields:
    plain: dict[str, Any] = {}
    for text in settings:
        path, equals, value = text.partition("=")
        names = path.strip().split(".")
        need(bool(equals) and all(names), f"--set {text!r}: write FIELD=VALUE, like platform.shm=64MiB.")
        nested: Any = _value(path.strip(), value)
        for name in reversed(names):
            nested = {name: nested}
        plain = merged(plain, nested)
    parts = {name: plain.pop(name, {}) for name in ("platform", "workload")}
    for name, value in parts.items():
        need(
            isinstance(value, dict), f"--set {name}={value}: name a field of the {name}, like --set {name}.FIELD=VALUE."
        )
    return Fields(**parts, study=plain)


def _value(path: str, text: str) -> Any:
    """As YAML reads it; a file by its whole path."""
    from tare.studies.yaml import Fatal, parse

    if path.split(".")[:2] == ["workload", "env"]:
        return text  # a variable is text, whatever it looks like
    name = path.rpartition(".")[2]
    if name in _FILES and Path(text).expanduser().exists():
        return str(Path(text).expanduser().absolute())
    if name in _FILES and ("/" in text or name != "python"):
        raise StudyError(f"--set {path}={text}: there is no such file.")
    try:
        return _plain(parse(text).root)
    except Fatal:
        return text


def _plain(node: Any) -> Any:
    """The value of a tree of nodes."""
    value = node.value
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list) else value


set_option: Option = as_one(
    "fields", _fields,
    click.option("--set", "settings", multiple=True, metavar="FIELD=VALUE",
                 help="A field of the study, like workload.warm_up=50 or platform.network=host; repeatable. "
                 "`tare list parts NAME` lists the fields of a part."),
)  # fmt: skip

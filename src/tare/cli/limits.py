"""`--limit cpus=1,shm=64MiB`: limits of a container, as fields of its platform."""

from __future__ import annotations

import re
from typing import Any

import click

from tare.api.studies import merged
from tare.base.errors import unknown_name
from tare.cli.scaffold import Option

FIELDS = {  # what people write -> the field of a platform
    "cpus": "quota", "cpuset": "cpuset", "memory": "memory", "shm": "shm", "cpu_shares": "cpu_shares",
    "io_rate": "io_rate",
}  # fmt: skip
ULIMITS = ("memlock", "nofile", "nproc", "stack", "core")
_NEXT = re.compile(r",(?=\s*[A-Za-z][\w-]*=)")  # not the comma in cpuset=0,2


class LimitsOption(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Limits separated by commas, as a mapping from a platform's fields to their values."""

    name = "limits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        fields: dict[str, Any] = {}
        for part in _NEXT.split(str(value)):
            name, equals, text = (word.strip() for word in part.partition("="))
            name = name.replace("-", "_")
            if not equals or not text:
                self.fail(f"{part!r}: write NAME=VALUE, like cpus=2", param, ctx)
            if name in ULIMITS:
                if not text.removeprefix("-").isdecimal():
                    self.fail(f"{name}={text}: write a number, or -1 for no limit", param, ctx)
                fields.setdefault("ulimits", {})[name] = int(text)
            elif name in FIELDS:
                fields[FIELDS[name]] = self._number(name, text, param, ctx)
            else:
                self.fail(unknown_name("limit", name, (*FIELDS, *ULIMITS)), param, ctx)
        return fields

    def _number(self, name: str, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Of cpus and cpu_shares a number; the other limits are text, which the platform reads."""
        if name not in ("cpus", "cpu_shares"):
            return text
        try:
            return float(text) if name == "cpus" else int(text)
        except ValueError:
            self.fail(f"{name}={text}: write a number", param, ctx)


LIMITS = LimitsOption()


def _together(given: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for each in given:
        fields = merged(fields, each)
    return fields


limit_option: Option = click.option(
    "--limit", "limits", type=LIMITS, multiple=True, callback=lambda ctx, param, given: _together(given),
    metavar="NAME=VALUE,...",
    help=f"Limits of the container, like cpus=1,shm=64MiB. Names: {', '.join((*FIELDS, *ULIMITS))}.",
)  # fmt: skip

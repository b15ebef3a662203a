"""Fills the generated blocks of docs/reference from the code, and writes the JSON schemas of what scripts read most.

    <!-- generated: NAME -->
    ...what the function NAME below returns...
    <!-- /generated -->

    .venv/bin/python tools/reference.py [--check]     --check: fail if a page is out of date

What stands outside of the blocks is written by people and stays as it is.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import click
from pydantic import TypeAdapter

import tare.testing
from tare.analysis import model as results
from tare.analysis import weighing
from tare.api.running import built_in
from tare.base import host
from tare.base.declare import Metric, before
from tare.base.rulings import CODES, WEIGHTS, Ruling
from tare.cli import VERBS
from tare.cli import tare as tare_verb
from tare.cli.list import describe
from tare.cli.scaffold import JSON_VERSION, Verbs
from tare.drivers.torch_programs import PRESETS
from tare.papers.verbs import LISTED, described
from tare.parts import protocols
from tare.parts.find import KINDS, find, names
from tare.records import model as records
from tare.records import schema, store
from tare.report.export import Gate
from tare_inside import marks

OUT = Path(__file__).parent.parent / "docs" / "reference"
BLOCK = re.compile(r"(?P<begin><!-- generated: (?P<name>\w+) -->\n).*?(?P<end><!-- /generated -->)", re.DOTALL)


def verbs() -> str:
    names_of_help = ["-h", "--help"]
    root = click.Context(tare_verb, info_name="tare", max_content_width=100, help_option_names=names_of_help)
    pages = ["```text", tare_verb.get_help(root), "```\n"]
    for name in VERBS:
        command = tare_verb.get_command(root, name)
        assert command is not None
        pages += page(command, click.Context(command, info_name=name, parent=root, max_content_width=100))
    return "\n".join(pages)


def page(command: click.Command, context: click.Context) -> list[str]:
    """A verb's own help, and that of the verbs under it."""
    pages = [f"{'#' * context.command_path.count(' ')}# {context.command_path}\n", "```text"]
    pages += [command.get_help(context), "```\n"]
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        below = command.get_command(context, name)
        if below is None or below.hidden:
            continue
        path = command.path_to(name) if isinstance(command, Verbs) else name
        pages += page(below, click.Context(below, info_name=path, parent=context, max_content_width=100))
    return pages


def parts() -> str:
    pages = []
    for kind in KINDS:
        pages.append(f"## {kind.capitalize()}\n")
        for name in names(kind):
            part = describe(kind, name)
            pages.append(f"### {name}\n\n{part['about']}\n")
            if part["fields"]:
                pages += ["| field | default | |", "|---|---|---|"]
                for field, details in part["fields"].items():
                    default = "required" if details["required"] else f"`{details['default']}`"
                    about = " ".join(str(details["about"]).split())
                    pages.append(f"| `{field}` | {default} | {about} |")
                pages.append("")
            if channels := part.get("channels"):
                pages += ["| channel | unit | |", "|---|---|---|"]
                pages += [f"| `{each['name']}` | `{each['unit']}` | {each['about']} |" for each in channels]
                pages.append("")
    return "\n".join(pages)


def workloads() -> str:
    rows = ["| name | mode | network | data | parameters | FLOPs | timed |", "|---|---|---|---|---|---|---|"]
    for preset in PRESETS:
        each = preset.described()
        timed = ", ".join(each["phases"])
        rows.append(
            f"| `{each['name']}` | {each['mode']} | {each['model']} | {each['data']} | {each['params']:,} "
            f"| {each['flops']:,} | {timed} |"
        )
    return "\n".join(rows)


def metrics() -> str:
    known = before()
    rows = ["| metric | what it is | unit | better |", "|---|---|---|---|"]
    for metric in (*known.metrics.values(), *known.families, *_declared_by_workloads()):
        words = metric.words.replace("{time}", "{step}")
        rows.append(f"| `{metric.name}` | {words} | {metric.unit} | {metric.better} |")
    return "\n".join(rows)


def _declared_by_workloads() -> Iterator[Metric]:
    seen = set(before().metrics)
    for name in names("workloads"):
        for metric in find("workloads", name).METRICS:
            if metric.name not in seen:
                seen.add(metric.name)
                yield metric


def weights() -> str:
    rows = [f"| `{weight}` | {means} |" for weight, means in WEIGHTS.items()]
    return "\n".join(["| weight | means |", "|---|---|", *rows])


def codes() -> str:
    return "\n".join(["| code | means |", "|---|---|", *(f"| `{code}` | {means} |" for code, means in CODES.items())])


def fields_of(cls: type) -> str:
    """The fields of a data class as a table: name, type, and the comment behind it."""
    rows = ["| key | type | |", "|---|---|---|"]
    for line in inspect.getsource(cls).splitlines():
        if line.strip().startswith(("def ", "@property")):
            break
        if found := re.match(r"    (\w+): ([^=#]+?)(?: = [^#]*)?(?:  # (.*))?$", line):
            name, kind, about = found.groups()
            rows.append(f"| `{name}` | `{kind.replace('|', 'or')}` | {(about or '').replace('|', chr(92) + '|')} |")
    return "\n".join(rows) + "\n"


def json_verbs() -> Iterator[str]:
    """What each verb says about its own --json."""
    root = click.Context(tare_verb, info_name="tare")
    yield from (line for name in VERBS for line in _json_of(tare_verb.get_command(root, name), f"tare {name}"))


def _json_of(command: click.Command | None, path: str) -> Iterator[str]:
    assert command is not None
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            words = command.path_to(name) if isinstance(command, Verbs) else name
            yield from _json_of(below, f"{path} {words}") if below and not below.hidden else ()
    elif any("--json" in option.opts for option in command.params):
        told = [" ".join(each.split()) for each in re.split(r"\n\s*\n", command.help or "") if "--json" in each]
        yield f"### {path} --json\n"
        yield (
            "\n\n".join(f"```text\n{each}\n```" for each in told) + "\n"
            if told
            else "An object; its keys are those of the text.\n"
        )


def stores() -> str:
    about = inspect.cleandoc(schema.__doc__ or "")
    pages = [
        f"The store's schema has version {schema.VERSION}. A store that is newer than this tare is refused; keys that "
        "a newer tare has added to a record are ignored. Units are in the names: `_s` is seconds, `_bytes` bytes, "
        "`_share` a share of 1. What is missing is absent, never 0.\n",
        "## A store on disk\n", f"```text\n{about}\n```\n",
        "## A record: one attempt at one trial\n",
        "`record.json` of a sealed trial, `tare show STORE --json`; `records` of `tare report STORE --format json`.\n",
        fields_of(records.Record),
        "A reason or note ([codes](codes.md)):\n", fields_of(Ruling),
        "## A weighing: what the verdicts are\n",
        "`tare report STORE --format json` has all of it, with `records`, `study_text` and `problems`.\n",
        fields_of(results.Weighing),
        "## A comparison\n", fields_of(results.Comparison),
        "An estimate:\n", fields_of(results.Estimate),
        "## The catalogue and the spool (SQLite)\n",
        f"```sql{schema.CATALOGUE_SQL}{schema.SPOOL_SQL}```\n",
        "## In other tools\n",
        "All trials as one table, a row each (`tare report STORE --format parquet -o trials.parquet`), and the series "
        "of a store as they lie there; tests/unit/report/test_with_other_tools.py runs these lines.\n",
        f"```python\n{IN_OTHER_TOOLS}```\n",
        "## --json of each verb\n",
        f"Always an object with `schema_version`, now {JSON_VERSION}. What each verb says of it:\n",
        *json_verbs(),
    ]  # fmt: skip
    return "\n".join(pages)


def listed_studies() -> str:
    """What `tare list studies` prints, which would take seconds to find out from the files of the studies."""
    return json.dumps([described(name, path) for name, path in built_in().items()], indent=1) + "\n"


def _classes() -> dict[str, Any]:
    """The schemas of what several verbs print, by the names of the classes; all that they have is always there."""
    of = tuple[results.Comparison, results.Interaction, results.Marked, Gate, records.Record, Ruling]  # type: ignore[type-arg]
    found = TypeAdapter(of).json_schema(mode="serialization")["$defs"]
    found["Comparison"]["properties"] |= {"phrase": _TEXT, "sentence": _TEXT, "reading": _TEXT}
    found["Interaction"]["properties"]["sentence"] = {"type": "string"}
    found["Gate"]["properties"]["passed"] = {"type": "boolean"}
    for each in found.values():
        each.pop("description", None)
        for field in each.get("properties", {}).values():
            field.pop("default", None)
        each["required"] = [name for name in each.get("properties", {}) if name not in _MAY_LACK]
    return dict(found)


_MAY_LACK = ("notes", "phases", "declared", "tare_version")  # of a record without any, or of an older store
_COMMAND = {"show": "show STORE", "list-studies": "list studies"}  # the form whose object a schema describes
_TEXT, _MANY = {"type": "string"}, {"type": "array", "items": {"type": "object"}}


def _array(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}}


def json_schemas() -> dict[str, str]:
    """Of the verbs that scripts read most: what is always there, and of which type; more may come with any version."""
    either = {"anyOf": [{"$ref": "#/$defs/Gate"}, {"type": "null"}]}
    count = {"type": "integer", "minimum": 0}
    shown: dict[str, dict[str, Any]] = {
        "compare": {
            "answer": {"type": "array", "items": _TEXT}, "comparisons": _array("Comparison"),
            "tested": _array("Comparison"), "interactions": _array("Interaction"),
            "marked": _array("Marked"), "knees": {"type": "array", "items": _TEXT}, "gate": either,
        },
        "show": {"store": _TEXT, "trials": _array("Record"), "waiting": count, "damaged": count},
        "plan": {
            "study": _TEXT, "trials": _MANY, "seconds": {"type": "number"}, "disk_bytes": {"type": "number"},
            "obstacles": _array("Ruling"), "not_measured": _array("Ruling"),
        },
        "doctor": {
            "device": {"type": "object"}, "abilities": _MANY, "platforms": _MANY, "probes": _MANY, "controls": _MANY,
            "workloads": _MANY, "advice": {"type": "array", "items": _TEXT},
        },
        "list-studies": {"studies": _MANY},
    }  # fmt: skip
    made = {}
    for verb, keys in shown.items():
        known, used = _classes(), set(_referred(keys))
        while more := {name for each in used for name in _referred(known[each])} - used:
            used |= more
        whole = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"tare {_COMMAND.get(verb, verb)} --json",
            "type": "object", "properties": {"schema_version": {"const": JSON_VERSION}, **keys},
            "required": ["schema_version", *keys], "$defs": {name: known[name] for name in sorted(used)},
        }  # fmt: skip
        made[f"json/{verb}.schema.json"] = json.dumps(whole, indent=1) + "\n"
    return made


def _referred(held: object) -> Iterator[str]:
    """The names of the schemas that this one refers to."""
    for key, each in held.items() if isinstance(held, dict) else ():
        yield from [str(each).rpartition("/")[2]] if key == "$ref" else _referred(each)
    for each in held if isinstance(held, list) else ():
        yield from _referred(each)


IN_OTHER_TOOLS = """import duckdb
duckdb.sql('SELECT "setting.platform", median("metric.wall_s") FROM "trials.parquet" WHERE state = $$ok$$ GROUP BY ALL')
duckdb.sql("SELECT filename, min(value) FROM read_parquet('STORE/trials/*/readings.parquet', filename = true) "
           "WHERE channel = 'memory.available_bytes' GROUP BY ALL")

import pandas
pandas.read_parquet("trials.parquet").query("state == 'ok'").groupby("setting.platform")["metric.wall_s"].median()

import polars
polars.read_parquet("trials.parquet").filter(state="ok").group_by("setting.platform").agg(polars.median("metric.wall_s"))
"""
EXAMPLE = """from pathlib import Path

from tare.analysis.weighing import weigh
from tare.records.store import Store

with Store.open(Path("out/my-study")) as store:
    times = [record.metrics.get("step_s") for record in store.records()]
    for each in weigh(store).comparisons:
        print(each.level, each.effect, each.low, each.high, each.verdict)
"""
# What others may build on, and what of it; everything else may change with any version.
API: list[tuple[str, ModuleType, tuple[str, ...]]] = [
    ("Read a store", store, ("Store",)),
    ("Its records", records, ("Record",)),
    ("Compare: the verdicts of a store or of a table", weighing, ("weigh", "weigh_table")),
    ("What that returns", results, ("Weighing", "Comparison", "Estimate")),
    ("Write a part", protocols, ("Platform", "Control", "Probe", "Recorder", "Workload", "Feed", "Reading", "Cause")),
    ("What a part gets", host, ("Host", "Job", "Completed", "Scope", "Site")),
    ("Test a part without the machine", tare.testing, ("FakeHost", "FakeClock")),
    ("Mark steps in a script of your own", marks, ("begin", "end", "point", "during", "interval")),
]


def python() -> str:
    pages = ["A store is read like this:\n", f"```python\n{EXAMPLE}```\n"]
    for title, module, members in API:
        pages.append(f"## {title}\n")
        for name in members:
            pages += _member(getattr(module, name), f"{module.__name__}.{name}")
    return "\n".join(pages)


def _member(member: object, path: str) -> Iterator[str]:
    about = inspect.getdoc(member) or ""
    if not inspect.isclass(member):
        yield f"### {path}\n\n```python\n{_signature(member)}\n```\n\n{about}\n"
        return
    yield f"### {path}\n\n{about}\n"
    methods = {
        name: each
        for name, each in vars(member).items()
        if not name.startswith("_") and (inspect.isfunction(each) or isinstance(each, classmethod | property))
    }
    lines = []
    for name, each in methods.items():
        function = each.fget if isinstance(each, property) else getattr(member, name)
        said = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        shown = name if isinstance(each, property) else _signature(function)
        lines.append(f"- `{shown}`" + (f": {said}" if said else ""))
    yield "\n".join(lines) + "\n"


def _signature(function: object) -> str:
    """As it is written: with the names of types that a reader knows, and without `self`."""
    name = getattr(function, "__name__", "")
    if inspect.isclass(function):
        return name
    text = str(inspect.signature(function)).replace("'", "")  # type: ignore[arg-type]
    return name + re.sub(r"^\((?:self|cls)(?:, )?", "(", text)


MADE = (verbs, workloads, parts, metrics, weights, codes, stores, python)


def filled(page: str) -> str:
    """A page with its blocks as the code is now."""
    by_name = {each.__name__: each for each in MADE}
    return BLOCK.sub(lambda block: f"{block['begin']}\n{by_name[block['name']]().strip()}\n\n{block['end']}", page)


def main() -> int:
    stale = []
    made = {OUT / name: text for name, text in json_schemas().items()} | {LISTED: listed_studies()}
    made |= {page: filled(page.read_text("utf-8")) for page in sorted(OUT.glob("*.md"))}
    for path, text in made.items():
        if "--check" in sys.argv:
            stale += [] if path.exists() and path.read_text("utf-8") == text else [path.name]
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"docs/reference is out of date ({', '.join(stale)}): run `make docs`.\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

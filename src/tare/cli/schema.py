"""`tare schema`: the JSON Schema of study files."""

from __future__ import annotations

import click

from tare.cli.options import print_json


@click.command("schema")
def command() -> None:
    """Print the JSON Schema of study files.

    Save it beside a study and start the study with
    `# yaml-language-server: $schema=study.schema.json`: the editor then completes and checks it.
    """
    from tare.study.schema import json_schema

    print_json(json_schema())

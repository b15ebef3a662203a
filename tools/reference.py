"""Writes docs/reference from the code: the verbs from their own --help, the parts from their own fields."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tare.cli import VERBS, tare
from tare.cli.parts import describe
from tare.parts.find import KINDS, names

OUT = Path(__file__).parent.parent / "docs" / "reference"
MADE = "<!-- made by `make docs`; change the code, not this page -->\n\n"


def verbs() -> str:
    names_of_help = ["-h", "--help"]
    root = click.Context(tare, info_name="tare", max_content_width=100, help_option_names=names_of_help)
    pages = ["# The verbs\n", "```text", tare.get_help(root), "```\n"]
    for name in VERBS:
        command = tare.get_command(root, name)
        assert command is not None
        pages += page(command, click.Context(command, info_name=name, parent=root, max_content_width=100))
    return MADE + "\n".join(pages)


def page(command: click.Command, context: click.Context) -> list[str]:
    """A verb's own help, and that of the verbs under it."""
    pages = [f"{'#' * context.command_path.count(' ')}# {context.command_path}\n", "```text"]
    pages += [command.get_help(context), "```\n"]
    for name, below in command.commands.items() if isinstance(command, click.Group) else ():
        pages += page(below, click.Context(below, info_name=name, parent=context, max_content_width=100))
    return pages


def parts() -> str:
    pages = ["# The parts\n", "What a study can name. A part of yours appears here by itself.\n"]
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
    return MADE + "\n".join(pages)


def main() -> int:
    """Write the pages; with --check, fail if they are not what the code says."""
    stale = []
    for name, text in {"verbs.md": verbs(), "parts.md": parts()}.items():
        path = OUT / name
        if "--check" in sys.argv:
            stale += [] if path.exists() and path.read_text() == text else [name]
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    if stale:
        sys.stderr.write(f"docs/reference is not what the code says ({', '.join(stale)}): run `make docs`.\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())

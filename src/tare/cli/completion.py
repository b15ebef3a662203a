"""`tare completion SHELL`: the script that a shell needs to complete our verbs and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    tare completion bash > ~/.local/share/bash-completion/completions/tare
    """
    from tare.cli import tare

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(tare, {}, "tare", "_TARE_COMPLETE").source())

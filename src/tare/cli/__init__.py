"""The command line: one file per verb or group of verbs. This is the one place that catches and prints errors."""

from __future__ import annotations

import atexit
import errno
import gc
import importlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from typing import cast

import click

from tare import __version__
from tare.base import rooms
from tare.base.errors import EXIT_CODES, NotRestoredError, TareError, near_names
from tare.cli import retired
from tare.cli.command_line import as_command
from tare.cli.scaffold import Verbs

_OWN = {  # by what people want to do; a verb is imported only when it is used
    "Daily": {
        "doctor": "Check what this device can do, and what it lacks.",
        "weigh": "Weigh a workload: bare metal against a container, with a verdict.",
        "why": "Explain why a container is slower: the cause and its cure.",
        "compare": "Compare levels of a factor, in a store or in any table.",
        "report": "Write a report: HTML, Markdown, LaTeX, CSV, ...; or one figure.",
        "choose": "front, predict, recommend: which configuration to use.",
    },
    "Studies": {
        "plan": "List the trials of a study, with time, disk and obstacles.",
        "run": "Run or resume a study.",
        "watch": "Show a run live, in a browser or in the terminal.",
    },
    "Results": {
        "show": "trials, energy, variability, pipeline, tenants, devices{more}.",
        "store": "merge, pack, check, verify.",
    },
    "Machine": {
        "device": "status, modes, baseload, restore, clean, image, data, fleet.",
        "list": "parts, workloads, data, schema{more}: what a study can name.",
    },
}
OTHERS = "Of other packages"  # the section of verbs that come by entry points


def with_offered(own: Mapping[str, Mapping[str, str]], offered: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Section -> verb -> what it is for: the verbs of tare itself, after them those that are offered."""
    listed = {verb: about for room in rooms.rooms() for verb, about in room.VERBS.items()}
    found = {section: dict(verbs) for section, verbs in own.items()}
    for verb in (each for each in offered if " " not in each):
        section, about = listed.get(verb, (OTHERS, ""))
        found.setdefault(section, {})[verb] = about
    for verbs in found.values():
        for verb, about in verbs.items():
            below = [each.removeprefix(f"{verb} ") for each in offered if each.startswith(f"{verb} ")]
            verbs[verb] = about.format(more="".join(f", {each}" for each in below))
    return found


SECTIONS = with_offered(_OWN, rooms.of_rooms("verbs"))  # without other packages, which takes 40 ms to find
_OWN_VERBS = {verb for verbs in _OWN.values() for verb in verbs}
VERBS = {verb: about for section in SECTIONS.values() for verb, about in section.items()}


class Root(Verbs):
    """Finds a verb's module by its name, so that `tare --help` loads nothing heavy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [verb for verbs in self._sections().values() for verb in verbs]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _OWN_VERBS:
            return cast(click.Command, importlib.import_module(f"tare.cli.{cmd_name}").command)
        target = rooms.of_rooms("verbs").get(cmd_name) or rooms.offers("verbs").get(cmd_name)
        return rooms.load(target) if target and " " not in cmd_name else None

    def _sections(self) -> dict[str, dict[str, str]]:
        return with_offered(_OWN, rooms.offers("verbs"))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = self._sections()
        longest = max(len(verb) for verbs in sections.values() for verb in verbs)
        for section, verbs in sections.items():
            with formatter.section(section):
                formatter.write_dl(
                    [(verb.ljust(longest), about or self._short(ctx, verb)) for verb, about in verbs.items()]
                )

    def _short(self, ctx: click.Context, verb: str) -> str:
        command = self.get_command(ctx, verb)
        return "" if command is None else command.get_short_help_str()

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)

    def unknown(self, ctx: click.Context, name: str) -> str:
        """Verbs within groups are suggested too: `tare clean` is `tare device clean`."""
        if name in retired.VERBS:
            return f"`tare {name}` is no verb any more: {retired.VERBS[name]}."
        groups = {verb: found for verb in VERBS if isinstance(found := self.get_command(ctx, verb), Verbs)}
        inner = {
            each: f"{verb} {group.path_to(each)}" for verb, group in groups.items() for each in group.list_commands(ctx)
        }
        if script := as_command([name]):
            return f"No verb {name!r}. Did you mean `tare weigh -- {shlex.join(script)}`?"
        near = near_names(name, [*VERBS, *inner])
        meant = f" Did you mean `tare {inner.get(near[0], near[0])}`?" if near else ""
        return f"No verb {name!r}.{meant} Available: {', '.join(VERBS)}."


def _completion(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    """Print the script that a shell needs to complete verbs and options."""
    from click.shell_completion import get_completion_class

    if shell is not None and (kind := get_completion_class(shell)) is not None:
        click.echo(kind(tare, {}, "tare", "_TARE_COMPLETE").source())
        ctx.exit()


@click.group(
    cls=Root, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="VERB [ARGS]...", options_metavar="[-h] [--version] [--completion SHELL]",
    epilog="`tare VERB -h` explains a verb; --json prints data. Exit codes: "
    + ", ".join(f"{code} {means}" for code, means in EXIT_CODES.items()) + ".",
)  # fmt: skip
@click.version_option(__version__, prog_name="tare")
@click.option(
    "--completion", type=click.Choice(["bash", "zsh", "fish"]), callback=_completion, is_eager=True,
    expose_value=False, help="Print the completion script for a shell.",
)  # fmt: skip
def tare() -> None:
    """Weigh deep-learning workloads: what a container costs, how sure, and why."""


def _not_restored(error: NotRestoredError) -> int:
    from tare.trial.device import restore_command

    click.echo(f"tare: {error}", err=True)
    how = restore_command(force=error.force)
    click.echo(f"tare: THE DEVICE WAS NOT RESTORED. `{how}` restores it.", err=True)
    return error.exit_code


def _wrong_usage(error: click.ClickException) -> int:
    """As click shows it, but a long message is wrapped on a terminal."""
    from tare.base.text import say

    if isinstance(error, click.exceptions.NoArgsIsHelpError):  # a group without a verb: its help is the message
        error.show()
        return error.exit_code
    if isinstance(error, click.NoSuchOption):
        offered = [option.lstrip("-") for option in error.possibilities or ()]  # by their dashes all are alike
        near = [f"--{name}" for name in near_names(error.option_name.lstrip("-"), offered)]
        error = click.NoSuchOption(error.option_name, possibilities=near, ctx=error.ctx)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(f"{error.ctx.get_usage()}\nTry '{error.ctx.command_path} --help' for help.\n", err=True)
    say(f"Error: {error.format_message()}")
    return error.exit_code


def _interrupted() -> int:
    """130 and how the device stands, by its journal; 70 where something is not restored."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from tare.trial.undo.restoration import refuse_pending

    try:
        refuse_pending()
    except NotRestoredError as error:
        return _not_restored(error)
    except TareError as error:  # the journal cannot be read: nothing is claimed
        click.echo(f"tare: interrupted. {error}", err=True)
        return 130
    click.echo("tare: interrupted; no setting of the device is left changed.", err=True)
    return 130


def _search_no_more() -> None:
    """Spare the last search for garbage, 37 ms of a `tare compare`; DuckDB would complain that its objects are left."""
    if "duckdb" not in sys.modules:
        gc.freeze()


def _is_of_output(error: OSError) -> bool:
    """Whether it was standard output that took no more, and no file: then it takes nothing now either."""
    try:
        click.echo()
    except OSError as again:
        return again.errno == error.errno
    return False


def main() -> None:
    """Run, catch, print."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123  (it was closed: `>&-`)
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    gc.set_threshold(100_000, 20, 50)  # a table of many rows is no garbage: searching it again and again took a third
    atexit.register(_search_no_more)
    try:
        code = tare.main(prog_name="tare", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        sys.exit(_wrong_usage(error))
    except NotRestoredError as error:
        sys.exit(_not_restored(error))
    except TareError as error:
        from tare.base.secrets import masked_text
        from tare.base.text import say

        say(f"tare: {masked_text(str(error))}")
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        sys.exit(_interrupted())
    except OSError as error:
        if error.errno == errno.EMFILE:
            click.echo("tare: too many open files for this shell's limit; `ulimit -n 256` is enough.", err=True)
            sys.exit(3)
        if not _is_of_output(error):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes once more as it ends
        if isinstance(error, BrokenPipeError):  # `tare show | head`: the reader has had enough
            sys.exit(0)
        click.echo(f"tare: the output could not be written: {error.strerror}.", err=True)
        sys.exit(3)

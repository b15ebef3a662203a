"""Who asks: one small file a verb. This is the one place that catches and prints errors."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from tare import __version__
from tare.errors import NotRestoredError, TareError

VERBS = {  # in the order in which people meet them; each is imported only when it is asked for
    "weigh": "Weigh a workload: bare metal against a container, with a verdict.",
    "why": "Say which layer of a container costs what.",
    "check": "Say what this device can and cannot do, and why.",
    "studies": "List the papers' experiments, which are ready to run.",
    "plan": "List the trials of a study, with time and disk; run nothing.",
    "run": "Run a study; go on where it stopped.",
    "fleet": "Look at many devices, to run a study over them.",
    "show": "Show the trials of a store, or one of them.",
    "baseload": "Measure the idle device under each platform and power mode of a study.",
    "energy": "Say what energy is made of: the idle device, running longer, more work.",
    "compare": "Compare levels of a factor, in a store or in any table.",
    "pareto": "Show which configurations are worth choosing from: the time-energy front.",
    "predict": "Predict time, power and energy of modes that were not measured.",
    "recommend": "Recommend a configuration under a deadline, a power cap or an energy budget.",
    "variability": "Say how much a figure varies, from where, and how many repeats are enough.",
    "devices": "Say what holds for a fleet's devices, how they scatter, and which is unlike its twins.",
    "anatomy": "Say what binds the pipeline: disk, CPU or GPU, and how many workers hide the stall.",
    "kernel": "Show what the kernel did in traced trials: counters, faults, system calls, write-backs.",
    "tenants": "Say what sharing the device cost each tenant.",
    "simulate": "Simulate a non-volatile flushing layer on a trace of page writes.",
    "claims": "Say which of the papers' take-aways hold here, with the evidence.",
    "paper": "Print a paper's tables beside what its studies gave on your machines.",
    "watch": "Show a run while it goes on, in a browser or in the terminal.",
    "report": "Write a store's report as one HTML file, or as Markdown, LaTeX, CSV, Parquet, JSON.",
    "verify": "Derive every figure of results again from what was recorded, and every page from the figures.",
    "figure": "Write one figure of a store as PDF, SVG or PNG.",
    "store": "Put stores together, pack one into a file, or look whether one is whole.",
    "image": "Build an image with this device's own software, or check one.",
    "device": "Say how the device stands, list its power modes, or put it back.",
    "restore": "Put back what an interrupted run left changed.",
    "clean": "Remove what dead runs left behind: containers, machines, groups, mounts, folders.",
    "data": "Make synthetic data sets on disk, or say what is in a folder.",
    "workloads": "List the papers' workloads, and the lines of a study that run them.",
    "trace": "Read a kernel trace of your own: trace-cmd's, or text.",
    "replay": "Read a recorded log as the probes would have: tegrastats.",
    "parts": "List what can be plugged into a study.",
    "schema": "Print the JSON Schema of study files, for editors.",
    "completion": "Print the completion script for a shell.",
}


class Verbs(click.Group):
    """Finds a verb's file by its name, so that `tare --help` loads nothing heavy."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"tare.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            raise click.UsageError(f"{error.message} The verbs are: {', '.join(VERBS)}.", ctx) from None


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tare")
def tare() -> None:
    """Weigh deep-learning workloads: what a container costs, how sure that is, and why.

    Data goes to stdout, talk to stderr; --json on every verb that has data.
    Exit codes: 0 fine, 1 a trial or a check failed, 2 the study or the command line is wrong, or
    names a file or folder that is not there, 3 this device cannot do it, 4 the store cannot be
    read or written, 75 the device is in use, 77 only root may put it back, 130 interrupted (device
    restored), 70 the device was NOT restored.
    """


def main() -> None:
    """Run, catch, print."""
    try:
        code = tare.main(prog_name="tare", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code if isinstance(code, int) else 0)
    except click.exceptions.Exit as stop:
        sys.exit(stop.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except NotRestoredError as error:
        click.echo(f"tare: {error}", err=True)
        from tare.trial.device import restore_command

        how = restore_command(force=error.force)
        click.echo(f"tare: THE DEVICE WAS NOT RESTORED. `{how}` puts it back.", err=True)
        sys.exit(error.exit_code)
    except TareError as error:
        click.echo(f"tare: {error}", err=True)
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("tare: interrupted; the device is as it was found.", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # `tare show | head`: whoever read us has had enough. Keep the interpreter from flushing into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)

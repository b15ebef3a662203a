"""What all verbs do in the same way: open stores, report damage, print JSON or text, set the exit code, suggest names.

A verb that reads a store is a function from the open store to a `Result`:

    @click.command("energy", cls=Verb)
    @reads_store()
    @by_option
    def energy(store: Store, by: str | None) -> Result: ...
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, cast

import click

from tare.base import rooms
from tare.base.errors import StoreError, StudyError, damage_named, near_names, unknown_name
from tare.base.rulings import Ruling
from tare.base.text import say as say
from tare.base.units import parse_quantity, parse_share
from tare.cli.retired import option_now

if TYPE_CHECKING:
    from tare.analysis.model import Weighing
    from tare.records.stages import Stages
    from tare.records.store import Store


# Options and their types: each is declared once, and means the same for every verb.

Option = Callable[[Any], Any]

_UNITS: Mapping[str, Mapping[str, float]] = {
    "time": {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "power": {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    "energy": {"J": 1.0, "kJ": 1e3, "MJ": 1e6, "Wh": 3600.0, "kWh": 3.6e6},
}


def need(condition: bool, message: str) -> None:
    """Refuse the command line with a sentence."""
    if not condition:
        raise StudyError(message)


# Types


class ShareOption(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """A share such as `5%` or `0.05`."""

    name = "share"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            share = parse_share(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if not 0 < share < 1:
            hint = f"; did you mean {value}%?" if share >= 1 and "%" not in str(value) else ""
            self.fail(f"{value}: it must be more than 0 % and less than 100 %{hint}", param, ctx)
        return share


class NamesOption(click.ParamType):  # type: ignore[type-arg]
    """Names separated by commas; of a closed list, if there is one."""

    name = "names"

    def __init__(self, what: str = "", known: tuple[str, ...] = ()) -> None:
        self._what, self._known = what, known

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(part.strip() for part in str(value).split(",") if part.strip())
        if not names:
            self.fail("give at least one name; separate several by commas", param, ctx)
        if len(set(names)) < len(names):
            self.fail(f"{value!r} names the same thing twice", param, ctx)
        for name in names if self._known else ():
            if name not in self._known:
                self.fail(unknown_name(self._what, name, self._known), param, ctx)
        return names


class QuantityOption(click.ParamType):  # type: ignore[type-arg]
    """A number with a unit, such as `30min` or `64MiB`; with `several`, a list of them separated by commas.

    `parse` raises ValueError with a sentence; `words` are accepted in place of a number.
    """

    def __init__(
        self, name: str, parse: Callable[[str], Any], *, several: bool = False, words: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self._parse, self._several, self._words = name, parse, several, words or {}

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            found = [self._one(part.strip()) for part in (value.split(",") if self._several else [value])]
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return tuple(dict.fromkeys(found)) if self._several else found[0]

    def _one(self, part: str) -> Any:
        return self._words[part] if part in self._words else self._parse(part)


def _positive(what: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        found = parse_quantity(text, dict(_UNITS[what]), what)
        if found <= 0:
            raise ValueError(f"{text} leaves nothing; it must be more than zero")
        return found

    return parse


def _duration(text: str) -> float:
    seconds = parse_quantity(text, {"s": 1.0, "min": 60.0, "h": 3600.0}, "time", bare_unit="s")
    if not 0 < seconds <= 86400:
        raise ValueError(f"{text} is not between 0 s and one day")
    return seconds


SHARE = ShareOption()
NAMES = NamesOption()
TIME, POWER, ENERGY = (QuantityOption(what, _positive(what)) for what in _UNITS)
DURATION = QuantityOption("duration", _duration)
# A store, a pack, or a table in its place. Whether it may be read is for the reader to say, with its own exit code:
# click would call the command line wrong.
STORE = click.Path(path_type=Path, readable=False)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path)

# What several verbs have

json_option: Option = click.option("--json", "as_json", is_flag=True, help="Print the data as JSON on stdout.")
trust_option: Option = click.option("--trust", is_flag=True, help="Accept a file that other users may write.")
by_option: Option = click.option(
    "--by", metavar="FACTOR", help="The factor (of a table: column) whose levels are compared.  "
    "[default: as in the study, or platform]",
)  # fmt: skip
against_option: Option = click.option(
    "--against", metavar="LEVEL", help="The level to compare with.  [default: as in the study, or bare]"
)
group_option: Option = click.option(
    "--group", metavar="COLUMN", help="A column, such as the model: a separate result for each of its values."
)
order_option: Option = click.option(
    "--order", metavar="COLUMN", help="Of a table: the column with the time or number of each run, or `shuffled`. "
    "Runs that it cannot order go by row.  [default: the order of the rows]",
)  # fmt: skip


class ColumnsOption(click.ParamType):  # type: ignore[type-arg]
    """`time=step_ms,energy=joules`: which column has what, of a closed list of words."""

    name = "columns"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, str]:
        if isinstance(value, dict):
            return value
        columns: dict[str, str] = {}
        for part in NAMES.convert(value, param, ctx):
            word, equals, column = (each.strip() for each in part.partition("="))
            if not equals or not column:
                self.fail(f"{part!r}: write WORD=COLUMN, like {self._words[0]}=my_column", param, ctx)
            if word not in self._words:
                self.fail(unknown_name("word", word, self._words), param, ctx)
            columns[word] = column
        return columns


def columns_option(*words: str, help_text: str) -> Option:
    """`--columns`: the columns of a table that have what these words name."""
    return click.option(
        "--columns", type=ColumnsOption(*words), multiple=True, metavar="WORD=COLUMN,...",
        callback=lambda ctx, param, given: {word: column for each in given for word, column in each.items()},
        help=f"{help_text} Words: {', '.join(words)}.",
    )  # fmt: skip


settings_option: Option = click.option(
    "--settings", type=NAMES, metavar="COLUMNS",
    help="The columns that make a configuration, such as model,batch.  [default for a store: all that vary]",
)  # fmt: skip


wait_option: Option = click.option(
    "--wait", "wait_s", type=DURATION, is_flag=False, flag_value="24 h", metavar="[TIME]",
    help="Wait while another run has this device, up to TIME (or a day); else that is an error.",
)  # fmt: skip


def margin_option(default: str | None = None) -> Option:
    """`--margin`; without a default the study's."""
    shown = default is not None
    help_text = "Differences below this count as equivalent."
    return click.option(
        "--margin", type=SHARE, default=default, show_default=shown,
        help=help_text if shown else f"{help_text}  [default: as in the study, or 5%]",
    )  # fmt: skip


def metric_option(default: str = "as in the study, step_mean_s or wall_s", *, multiple: bool = False) -> Option:
    """`--metric`: of a store one of its metrics, of a table a column."""
    help_text = f"The metric of a store, or the column of a table.  [default: {default}]"
    if multiple:
        return click.option("--metric", "metrics", multiple=True, metavar="NAME", help=f"{help_text} Repeatable.")
    return click.option("--metric", metavar="NAME", help=help_text)


scale_option: Option = click.option(
    "--scale",
    metavar="NAME",
    help="How large, for a study that has scales: smoke, small, full (the paper's); see `tare list studies`.",
)


def _from_anywhere(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """A trial starts in a folder of its own; a link stays one, since by it an environment is known."""
    need(value != "", "--python is empty: name an interpreter, like /usr/bin/python3.")
    need(not value or "/" not in value or Path(value).exists(), f"--python {value}: there is no such file.")
    return str(Path(value).absolute()) if value is not None and "/" in value else value


python_option: Option = click.option(
    "--python",
    metavar="PATH",
    callback=_from_anywhere,
    help="The interpreter that has torch, if it is not the platform's own: `python` of each workload that names none.",
)


higher_option: Option = click.option(
    "--higher-is-better/--lower-is-better", "rises", default=None,
    help="Which way the metric is better.  [default: by its name]",
)  # fmt: skip


def output_option(help_text: str, kind: click.ParamType = FILE) -> Option:  # type: ignore[type-arg]
    """`-o`: the file or the folder that the verb writes."""
    return click.option("-o", "--output", type=kind, help=help_text)


def several(*options: Option) -> Option:
    """These options, in this order."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def as_one(name: str, read: Callable[..., Any], *options: Option) -> Option:
    """These options as one value: the verb gets it under this name, and `read` makes it of what they are given."""

    def decorate(verb: Any) -> Any:
        @wraps(verb)
        def taking(**given: Any) -> Any:
            value = read(**{each: given.pop(each) for each in its})
            return verb(**given, **{name: value})

        others = len(getattr(taking, "__click_params__", ()))
        decorated = several(*options)(taking)
        its = [param.name for param in decorated.__click_params__[others:]]
        return decorated

    return decorate


# What is compared with what.
comparing: Option = several(by_option, against_option, margin_option(), metric_option())


_POOL = "OPENBLAS_NUM_THREADS"
WORDS = "tare.words"  # of a click context: what the verb was given, to be told how to go on
QUIET_S = 2.0  # a shorter wait needs no explanation


# Verbs and groups of verbs


class Verb(click.Command):
    """A verb: `--json` is its last option, and a wrong option is answered with the one that was probably meant."""

    def __init__(self, *args: Any, **fields: Any) -> None:
        super().__init__(*args, **fields)
        self.context_settings.setdefault("help_option_names", ["-h", "--help"])  # also where it is looked at by itself
        self.params.sort(key=lambda param: param.name == "as_json")

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Of `tare show STORE energy` the store is named already."""
        pieces = super().collect_usage_pieces(ctx)
        is_named = (ctx.info_name or "").startswith("STORE")
        return [piece for piece in pieces if not (is_named and piece.startswith("STORE"))]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[WORDS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            verb = ctx.command_path.partition(" ")[2]
            if now := option_now(verb, error.option_name):
                shown = now if now.startswith("`") else f"`{now}`"
                raise click.UsageError(f"{error.option_name} of `tare {verb}` is now {shown}.", ctx) from None
            known = [name for param in self.get_params(ctx) for name in param.opts if name.startswith("--")]
            near = near_names(error.option_name, known)
            raise click.NoSuchOption(error.option_name, possibilities=near, ctx=ctx) from None


class Verbs(click.Group):
    """A group of verbs; a wrong verb is answered with the one that was probably meant."""

    command_class = Verb
    group_class = type
    heading = "Verbs"  # of the list in its help

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order of the file, not of the alphabet; then those of rooms and other packages."""
        return [*self.commands, *self._offered()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in self.commands or (target := self._offered().get(cmd_name)) is None:
            return super().get_command(ctx, cmd_name)
        return cast(click.Command, rooms.load(target))

    def _offered(self) -> dict[str, str]:
        """Verbs that are offered below this one: "list studies" at `list`."""
        below = f"{self.name} "
        return {name.removeprefix(below): to for name, to in rooms.offers("verbs").items() if name.startswith(below)}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole sentences, which click would cut off."""
        found = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        rows = [(name, verb.get_short_help_str(1000)) for name, verb in found.items() if verb and not verb.hidden]
        with formatter.section(self.heading):
            formatter.write_dl(rows)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            raise click.UsageError(self.unknown(ctx, args[0]), ctx)
        return super().resolve_command(ctx, args)

    def path_to(self, name: str) -> str:
        """The words that lead to a verb of this group, as its help shows them."""
        return name

    def unknown(self, ctx: click.Context, name: str) -> str:
        """What is said about a verb that does not exist."""
        found = {each: self.get_command(ctx, each) for each in self.list_commands(ctx)}
        return unknown_name("verb", name, [each for each, verb in found.items() if verb and not verb.hidden])


# Output


@dataclass(frozen=True)
class Result:
    """What a verb found, as data for --json and as text; only the one that is asked for is made."""

    data: Callable[[], Mapping[str, Any]]
    text: Callable[[], str]
    exit_code: int = 0
    compact: bool = False  # JSON without indent, which is five times quicker


JSON_VERSION = 1  # `schema_version` of every --json; docs/reference/stores-and-json.md says when it changes


def print_json(data: Mapping[str, Any], *, compact: bool = False) -> None:
    """Strict JSON: a missing figure is null, never NaN; a ruling is its code, weight, subject and sentence."""
    indent, data = None if compact else 2, {"schema_version": JSON_VERSION, **data}
    text = json.dumps(data, indent=indent, allow_nan=False, ensure_ascii=False, default=Ruling.as_json)
    click.echo(text.encode("utf-8", "backslashreplace").decode())  # half a surrogate pair: \\ud800, as JSON has it


def width() -> int:
    """Columns of the terminal, 80 if there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def color() -> bool:
    """Colour only on a terminal, and not if NO_COLOR is set."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"


@contextmanager
def spinner(doing: str, quiet_s: float = QUIET_S) -> Iterator[None]:
    """A line on stderr while something takes longer than two seconds; nothing in a pipe, a log or a dumb terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield
        return
    from rich.console import Console

    status = Console(file=sys.stderr).status(f"{doing} ...")
    timer = Timer(quiet_s, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # a line that is just being started is removed too
        status.stop()


# Verbs that read stores


def reads_store(doing: str = "reading the store") -> Callable[[Callable[..., Result]], Callable[..., None]]:
    """A verb of one STORE, a folder or a pack: the function is given the open store."""
    return _reading_verb("STORE", doing, reading)


def reads_stages() -> Callable[[Callable[..., Result]], Callable[..., None]]:
    """The same, or of the folder of a `tare why`."""
    return _reading_verb("STORE", "reading the store", reading_stages)


def reads_source(doing: str | None = "reading the trials") -> Callable[[Callable[..., Result]], Callable[..., None]]:
    """A verb of a store or of a table: the function is given the path; trials that are not used are reported.

    `doing` is None for a verb that shows its own progress.
    """
    return _reading_verb("STORE|TABLE", doing, noting)


def reads_either(doing: str) -> Callable[[Callable[..., Result]], Callable[..., None]]:
    """A verb that reads a store in another way than tables: the function is given the paths."""
    return _reading_verb("STORE|TABLE...", doing, nullcontext, nargs=-1, required=True)


def reads_stores(
    doing: str = "reading the stores", *, required: bool = True
) -> Callable[[Callable[..., Result]], Callable[..., None]]:
    """A verb of several stores, of which each is read once: the function is given the open ones."""
    metavar = "STORE..." if required else "[STORE]..."
    return _reading_verb(metavar, doing, reading_all, nargs=-1, required=required)


def _reading_verb(
    metavar: str, doing: str | None, opened: Callable[[Any], AbstractContextManager[Any]], **argument: Any
) -> Callable[[Callable[..., Result]], Callable[..., None]]:
    def decorate(function: Callable[..., Result]) -> Callable[..., None]:
        @wraps(function)
        def verb(source: Any, as_json: bool, **options: Any) -> None:
            with spinner(doing) if doing else nullcontext(), _packs_once(source), opened(source) as given:
                result = function(given, **options)
                output = result.data() if as_json else result.text()
            _show(result, output, as_json)

        declared: Callable[..., None] = click.argument("source", metavar=metavar, type=STORE, **argument)(
            json_option(verb)
        )
        return declared

    return decorate


def _show(result: Result, output: Any, as_json: bool) -> None:
    if as_json:
        print_json(output, compact=result.compact)
    elif output:
        click.echo(output)
    if result.exit_code:
        raise SystemExit(result.exit_code)


def prints(function: Callable[..., Result]) -> Callable[..., None]:
    """A verb that reads no store: the result that the function returns is printed."""

    @wraps(function)
    def verb(as_json: bool, **options: Any) -> None:
        result = function(**options)
        _show(result, result.data() if as_json else result.text(), as_json)

    declared: Callable[..., None] = json_option(verb)
    return declared


def _packs_once(source: Path | Sequence[Path]) -> AbstractContextManager[None]:
    """Each pack is unpacked once; where all are tables, what reads packs is not imported."""
    from tare.records.schema import is_store

    paths = [source] if isinstance(source, Path) else source
    if paths and not any(map(is_store, paths)):
        return nullcontext()
    from tare.records.unpack import each_pack_once

    return each_pack_once()


def numpy_on_one_thread() -> None:
    """Import numpy so that its algebra stays in this thread; what is started later inherits nothing of that.

    Our matrices are small: its other threads would only wait for work, and do so by spinning.
    """
    if "numpy" in sys.modules or _POOL in os.environ:
        return
    os.environ[_POOL] = "1"
    try:
        import numpy  # noqa: F401  (its library reads the variable when it is loaded)
    finally:
        del os.environ[_POOL]


@contextmanager
def reading(path: Path, about: str = "") -> Iterator[Store]:
    """The store of a folder or a pack; damage in it is reported as it is found."""
    from tare.records.store import Store

    hint = f"`tare store verify {path}` names what is damaged; if it finds nothing, the fault is tare's (TARE_DEBUG=1)."
    with damage_named(f"{path}: what is kept there", hint), Store.open(path) as store:
        told = len(store.problems)
        say_notes(store.problems, about)
        try:
            yield store
        finally:
            say_notes(store.problems[told:], about)


@contextmanager
def reading_stages(path: Path) -> Iterator[Store | Stages]:
    """The store of a folder or a pack; or the stores of a `tare why`, as one."""
    from tare.records.stages import opened_stages, stages_of

    if not (stores := stages_of(path)):
        with reading(path) as store:
            yield store
        return
    with damage_named(f"{path}: what is kept there"), opened_stages(path, stores) as several:
        yield several
        say_notes(several.problems)


@contextmanager
def reading_all(paths: Sequence[Path]) -> Iterator[list[Store]]:
    """Several stores, each once, of a folder all that are in it; damage is reported with the store's name."""
    numpy_on_one_thread()
    each_once = {store.resolve(): store for path in paths for store in _stores_of(path)}.values()
    with ExitStack() as stack:
        yield [stack.enter_context(reading(path, about=str(path))) for path in each_once]


def _stores_of(path: Path) -> list[Path]:
    from tare.records.pack import stores_in

    try:
        return stores_in(path)
    except StoreError:
        return [path]  # who opens it says what is wrong


@contextmanager
def noting(source: Path) -> Iterator[Path]:
    """A store's or a table's path; which trials of a store are damaged, left out or suspect is reported."""
    numpy_on_one_thread()
    from tare.analysis.observations import source_notes

    with damage_named(source):
        say_notes(source_notes(source))
        yield source


def say_notes(notes: Sequence[str], about: str = "") -> None:
    """`note: ...` for each; `about` names the store where there are several."""
    for note in notes:
        say(f"note: {about}{': ' if about else ''}{note}")


def weighed(store: Store | Stages, **asked: Any) -> Weighing:
    """The comparisons of a store. Damaged trials were run: they are counted apart from those that were not."""
    from tare.analysis.weighing import weigh

    found = weigh(store, **asked)
    states = store.states()
    damaged = sum(states.get(trial, "planned") == "planned" for trial in store.damaged())
    return replace(found, counts={**found.counts, "damaged": damaged}) if damaged else found

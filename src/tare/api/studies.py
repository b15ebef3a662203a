"""Weighings and studies from Python: what `tare weigh`, `tare plan` and `tare run` do, on the same engine."""

from __future__ import annotations

import base64
import importlib
import io
import json
import secrets
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.api.results import Result, Stores, Table
from tare.api.running import needs_of_study, run_into, study_text
from tare.api.weighing import (
    Script,
    built_in_workload,
    choose_platform,
    end_early,
    fetched,
    sides,
    weigh_study,
)
from tare.base.errors import StudyError
from tare.base.text import heard_by

if TYPE_CHECKING:
    from tare.studies.model import Study as Written

_RUNNER = "call.py"


def weigh(
    work: str | Sequence[str] | Callable[..., Any], *, setup: Callable[[], Any] | None = None, calls: int = 100,
    on: str | None = None, image: str | None = None, against_image: str | None = None, margin: float = 0.05,
    repeat: int | None = None, seconds: int = 140, steps: int | None = None, minutes: float | None = None,
    reads: Sequence[str | Path] = (), writes: Sequence[str | Path] = (), env: Mapping[str, str] | None = None,
    network: str = "none", store: str | Path | None = None, progress: bool = True,
) -> Result:  # fmt: skip
    """Weigh a command, a built-in workload or a callable on bare metal against a container.

    `work` is a command line (`"python train.py"`, or a list of words), the name of a built-in workload (`"lenet5"`), or
    a callable: then each trial is a fresh process that calls `setup()` once and `work(what setup gave)` `calls` times.
    `on` names the platform; where it is left out, the first container that works here is taken. What is left open is as
    in `tare weigh`. The trials are kept in `store`, by default a new folder below `out`.

        result = tare.weigh("python train.py --epochs 1", on="docker")
        result.verdict, result.effect, result.interval
    """
    folder = Path(store) if store is not None else _new_folder()
    script = Script(
        tuple(Path(each).resolve() for each in reads), tuple(Path(each).resolve() for each in writes), dict(env or {}),
        network,
    )  # fmt: skip
    with ExitStack() as stack:
        stack.enter_context(_progress(progress))
        workload, is_command = _workload(work, setup, calls, script, folder, image)
        end_early(workload, steps, minutes)
        chosen = choose_platform(on, stack)
        fetched(chosen, image, against_image)
        levels, against = sides(chosen, script.platform(), image, against_image, command=is_command)
        made = weigh_study(
            workload, levels, against, repeat=repeat, margin=margin, seconds=seconds, design={}
        )  # fmt: skip
        run_into(made, study_text(made), folder, progress=progress)
    return Stores([folder]).compare()


def _workload(
    work: Any, setup: Callable[[], Any] | None, calls: int, script: Script, folder: Path, image: str | None
) -> tuple[dict[str, Any], bool]:
    """As a study has it, and whether it is a command."""
    if callable(work):
        if image:
            raise StudyError("a callable needs this Python, which an image does not have: leave `image` out.")
        return script.workload(_callable_command(work, setup, calls, folder)), True
    if setup is not None:
        raise StudyError("`setup` is for a callable; a command sets itself up.")
    words = shlex.split(work) if isinstance(work, str) else [str(word) for word in work]
    if not words:
        raise StudyError("there is nothing to weigh: give a command, a built-in workload or a callable.")
    if len(words) == 1 and isinstance(work, str) and "/" not in work and not Path(work).exists():
        return built_in_workload(work), False
    return script.workload(tuple(words), image=bool(image)), True


def _callable_command(
    step: Callable[..., Any], setup: Callable[[], Any] | None, calls: int, folder: Path
) -> tuple[str, ...]:
    """The command line of a process that calls it so often; what it needs is written beside the store."""
    import tare_inside

    if calls < 1:
        raise StudyError("`calls` is how often the callable is called in a trial: at least once.")
    told = {
        "step": reference(step),
        "setup": None if setup is None else reference(setup),
        "calls": calls,
        "path": [str(Path(each or ".").resolve()) for each in sys.path],
    }
    file = folder.with_name(f"{folder.name}.callable.json").resolve()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told), encoding="utf-8")
    runner = Path(tare_inside.__file__).with_name("programs") / _RUNNER
    return sys.executable, str(runner), str(file)


def reference(called: Callable[..., Any]) -> dict[str, str]:
    """How another process gets the same callable.

    >>> reference(json.dumps)
    {'module': 'json', 'name': 'dumps'}
    """
    module, name = getattr(called, "__module__", None), getattr(called, "__qualname__", "")
    if module and module != "__main__" and _is_found(module, name, called):
        return {"module": module, "name": name}
    try:
        import cloudpickle
    except ImportError:
        raise StudyError(
            f"{name or called!r} cannot be imported by another process (it is made in {module or 'no module'}, or "
            "inside a function). Put it into a module, or `pip install cloudpickle`, which carries it as it is."
        ) from None
    try:
        return {"pickle": base64.b64encode(cloudpickle.dumps(called)).decode()}
    except Exception as error:  # whatever an object's own reduction raises
        raise StudyError(f"{name or called!r} cannot be carried to another process: {error}.") from None


def _is_found(module: str, name: str, called: Callable[..., Any]) -> bool:
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return False
    return found is called


def study(source: str | Path | None = None, *, scale: str | None = None, trust: bool = False, **fields: Any) -> Study:
    """A study: a file, or fields as a study file has them.

    >>> study = tare.study(platform=["bare", "runc"], workload={"command": {"argv": "true"}}, repeat=3)
    >>> len(study.plan())
    9
    """
    from tare.studies.load import from_plain, load

    if (source is None) == (not fields):
        raise StudyError("give either a study file, or the fields of a study: platform=..., workload=...")
    if source is not None:
        return Study(load(source, trust=trust, scale=scale))
    return Study(from_plain({"study": "study", **fields}, "tare.studies"))


class Study:
    """What is to be measured: every combination of its factors, in blocks."""

    def __init__(self, written: Written) -> None:
        self.written = written

    def __repr__(self) -> str:
        return f"<tare.Study {self.written.study!r}>"

    @property
    def name(self) -> str:
        """As the study calls itself."""
        return self.written.study

    def plan(self) -> Table:
        """The trials, in the order in which they are run; nothing is run."""
        from tare.plan.matrix import cells, trials

        planned = trials(self.written, cells(self.written))
        named = dict.fromkeys(name for trial in planned for name in trial.settings)
        rows = [
            {"trial": each.id, "block": each.block, "position": each.position, "twin": each.twin,
             **{f"setting.{name}": value for name, value in each.settings.items()}}
            for each in planned
        ]  # fmt: skip
        return Table.of_rows(["trial", "block", "position", "twin", *(f"setting.{name}" for name in named)], rows)

    def run(
        self, store: str | Path | None = None, *, progress: bool = True, retry_failed: bool = False,
        accept_changes: bool = False,
    ) -> Stores:  # fmt: skip
        """Run it, or resume it where the store is there already; by default into `out/NAME`."""
        folder = Path(store) if store is not None else Path("out") / self.written.study
        with _progress(progress), needs_of_study(self.written):
            run_into(self.written, study_text(self.written), folder, accept_changes, retry_failed, progress=progress)
        return Stores([folder])


@contextmanager
def _progress(shown: bool) -> Iterator[None]:
    """Messages as the verbs print them, or none."""
    with ExitStack() as stack:
        if not shown:
            stack.enter_context(heard_by(io.StringIO().write))
        yield


def _new_folder() -> Path:
    return Path("out") / f"weigh-{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"

"""`tare weigh -- docker run ...`: the engineer's own line, as it is, against the same command without a container."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tare.base.errors import StudyError
from tare.base.host import LocalHost
from tare.base.secrets import masked_words
from tare.cli.command_line import refuse_no_program, words_of
from tare.cli.fields import Fields
from tare.cli.scaffold import Option, as_one, need, say
from tare.drivers.containers.line import Flag, Line, is_line

if TYPE_CHECKING:
    from tare.drivers.containers.specs import Member, Spec
    from tare.parts.protocols import Suspicion


@dataclass(frozen=True)
class Described:
    """The file that describes the container, of which the words name one."""

    compose: Path | None
    pod: Path | None

    @property
    def is_given(self) -> bool:
        return self.compose is not None or self.pod is not None


def _described_by(compose: Path | None, pod: Path | None) -> Described:
    need(compose is None or pod is None, "give either --compose or --pod, not both.")
    return Described(compose, pod)


NO_FILE = Described(None, None)
described_options: Option = as_one(
    "described", _described_by,
    click.option("--compose", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False),
                 help="The container is SERVICE of this compose file: --compose compose.yaml SERVICE."),
    click.option("--pod", metavar="FILE", type=click.Path(path_type=Path, exists=True, dir_okay=False),
                 help="The container is the first of this pod, or CONTAINER: --pod pod.yaml [CONTAINER]."),
)  # fmt: skip


@dataclass(frozen=True)
class Taken:
    """A line that can be run, and what bare metal runs against it."""

    line: Line
    fields: dict[str, Any]  # of the platform `own`
    work: dict[str, Any]  # the workload, as a study has it
    of_image: set[str]  # the variables that the image itself sets
    other: dict[str, Any] | None = None  # as `fields`, of the same line with another image
    keys: Mapping[str, str] = field(default_factory=dict)  # an option of the line -> its key in the file
    file: str = ""  # which describes the container

    @property
    def levels(self) -> list[Any]:
        """Both sides, as platforms of a study."""
        return ["bare", {"own": self.fields}]


def taken(
    words: tuple[str, ...], fields: Fields, given: Mapping[str, object], end_early: Callable[[dict[str, Any]], None],
    against: str | None = None, described: Described = NO_FILE,
) -> Taken | None:  # fmt: skip
    """The line after `--`, if it is one; says how it is run, what of it is not honoured, and what bare metal runs.

    `fields`: of the platform `own` and of the workload, by --set; `given`: options about a container of tare's own,
    which the line itself has; `end_early` puts into a workload where it ends; `against`: another image, whose container
    is the other side.
    """
    from tare.drivers.containers import own
    from tare.parts.platforms.own import read

    if not (described.is_given or is_line(words)):
        return None
    wrong = next((name for name, value in given.items() if value), None)
    need(
        wrong is None,
        f"{wrong} is for a container that tare makes: write it into your line as the engine has it.",
    )
    host = LocalHost()
    spec, joins = (None, "") if not described.is_given else _described(host, described, fields.platform, words)
    text = shlex.join(words if spec is None else spec.main.words)
    line = read(text)
    part = _own(text, {**({"joins": joins} if joins else {}), **fields.platform})
    own.refuse_remote(host, line)
    seen = own.look_at(host, line, part.allowed)
    if refused := own.refusals(line, seen, part.allowed):
        raise StudyError("\n".join([*refused, "Nothing was run."]))
    variables = {
        name: seen.env[name] for flag in line.flags if (name := flag.setting) in seen.env and flag.name == "--env"
    }
    its = {"line": text, **({"joins": joins} if joins else {}), **fields.platform}
    its |= {"env": variables} if variables else {}
    file = str(described.compose or described.pod or "")
    of_image = own.variables_of_image(host, line)
    say(f"container: {line.shown()}")
    _say_what_differs(line, part, seen)
    if against is not None:
        other = replace(line, image=against)
        own.look_at(host, other, part.allowed)  # it is there, and takes these options
        say(f"against it: the same line with {against}.")
        fields.workload.pop("argv", None)
        work = fields.on(_work(end_early, argv=list(seen.argv), in_image=True))
        other_side = {**its, "line": shlex.join(other.words())}
        return Taken(line, its, work, of_image, other_side, spec.main.keys if spec else {}, file)
    command, folder = _on_bare_metal(seen, fields.workload.pop("argv", None))
    work = fields.on(_work(end_early, argv=command, cwd=folder, plain=True))
    runs = shlex.join(masked_words(command))
    try:
        refuse_no_program(work)
    except StudyError as error:
        raise StudyError(
            f"bare metal cannot run `{runs}`, the command of this line's image: {str(error).splitlines()[0]}\n"
            "`--set workload.argv=COMMAND` names what runs on this device instead; --image A --against-image B "
            "compares two images. Nothing was run."
        ) from None
    say(f"bare metal: `{runs}` in {folder}")
    return Taken(line, its, work, of_image, None, spec.main.keys if spec else {}, file)


def _described(
    host: LocalHost, described: Described, fields: Mapping[str, Any], words: tuple[str, ...]
) -> tuple[Spec, str]:
    """What the file says of the container, and the network of those beside it, which run until the verb ends."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    from tare.drivers.containers import beside, specs
    from tare.parts.platforms.own import allowed_by

    need(len(words) == 1 or (not words and described.compose is None),
         "name one service of the compose file, or at most one container of the pod, behind the options.")  # fmt: skip
    if described.compose is not None:
        config = specs.configured(host, described.compose)
        name = beside.name_of(f"{described.compose.resolve()} {words[0]}")
        spec = specs.compose(
            config, words[0], lambda volume: host.run(["docker", "volume", "inspect", volume]).code == 0
        )
        for member in (spec.main, *spec.beside):
            _refuse_unbuilt(host, config, member)
    else:
        file = described.pod
        assert file is not None
        name = beside.name_of(f"{file.resolve()} {' '.join(words)}")
        try:
            documents = [*YAML(typ="safe").load_all(file)]
        except YAMLError as error:
            raise StudyError(f"{file} is no YAML: {error}") from None
        spec = specs.pod(documents, words[0] if words else None, str(beside.shared_below(name)))
    for member in (spec.main, *spec.beside):
        if member.left_out:
            say(f"  not honoured of {member.name}: {', '.join(member.left_out)}.")
    if spec.not_looked:
        say(f"  not looked at: {'; '.join(spec.not_looked)}.")
    running = beside.started(host, spec, name, allowed_by(fields), say)
    return spec, click.get_current_context().with_resource(running)


def _refuse_unbuilt(host: LocalHost, config: Mapping[str, Any], member: Member) -> None:
    """A service that is built from a folder runs as the image that was built, and no build is made here."""
    service = config["services"][member.name]
    image = service.get("image") or f"{config['name']}-{member.name}"
    if service.get("build") and host.run(["docker", "image", "inspect", image]).code != 0:
        raise StudyError(
            f"services.{member.name} has a build section, and its image {image} is not there: "
            f"`docker compose build {member.name}` makes it. Nothing was run."
        )


def _own(line: str, fields: Mapping[str, Any]) -> Any:
    from pydantic import ValidationError

    from tare.parts.platforms.own import Own
    from tare.studies.load import from_plain

    try:
        return Own(line=line, **fields)
    except ValidationError:
        plain = {
            "study": "line",
            "platform": [{"own": {"line": line, **fields}}],
            "workload": {"command": {"argv": "true"}},
        }
        from_plain(plain, "tare weigh")  # says it in words
        raise


def _work(end_early: Callable[[dict[str, Any]], None], **command: Any) -> dict[str, Any]:
    work: dict[str, Any] = {"command": command}
    end_early(work)
    return work


def _say_what_differs(line: Line, part: Any, seen: Any) -> None:
    """What of the line is not honoured, and what could be."""
    from tare.parts.platforms.own import not_honoured

    if away := not_honoured(line, part.fields()):
        shown = " ".join(word for flag in away for word in flag.shown())
        say(f"  not honoured: {shown} (the container has a name of its own, no port and no terminal).")
    if not part.allow_network:
        say("  its network is `none`: --set platform.allow_network=true gives it the line's own.")
    if not part.real_volumes and any(mount.writable for mount in seen.mounts):
        say("  each trial writes to a copy of its volumes: --set platform.real_volumes=true lets it write to them.")


def cured(taken: Taken, held: Mapping[str, Suspicion], causes: Sequence[str]) -> dict[str, str]:
    """The cure of each suspect, as a change of the line where it is one; the last of the causes has the line that is
    cured of all of them.
    """
    from tare.plan.why import Level

    own = Level("own", taken.fields)
    changes = {name: own.changed(each.without or {}).fields for name, each in held.items()}
    cures = {name: _in_line(taken, changes[name]) or each.cure for name, each in held.items()}
    for name in causes:
        own = own.changed(held[name].without or {})
        cures[name] = cures[name].partition("\n")[0] if name != causes[-1] else cures[name]
    if len(causes) > 1:
        first = cures[causes[-1]].partition("\n")[0]
        cures[causes[-1]] = f"{first} With all of these:\n{_shown(taken, own.fields)[1]}"
    return cures


def _in_line(taken: Taken, fields: Mapping[str, Any]) -> str:
    """What changes, and the whole line, to be pasted; empty where nothing of it changes."""
    difference, whole = _shown(taken, fields)
    return f"{difference}:\n{whole}" if difference else ""


def _shown(taken: Taken, fields: Mapping[str, Any]) -> tuple[str, str]:
    before = taken.fields.get("env", {})
    env = {name: value for name, value in fields.get("env", {}).items() if name not in before or before[name] != value}
    better = taken.line.changed(env, fields.get("flags", {}), taken.of_image)
    ours, theirs = ({" ".join(flag.words): flag for flag in line.flags} for line in (taken.line, better))
    if taken.file:
        return _in_file(taken, ours, theirs)
    gone = [f"without `{' '.join(flag.shown())}`" for words, flag in ours.items() if words not in theirs]
    new = [f"with `{' '.join(flag.shown())}`" for words, flag in theirs.items() if words not in ours]
    shown = better.shown_words()
    masked = "" if shown == [*better.words()] else "\n(each `hmac:...` stands for a value of yours that is not shown)"
    added = [flag for words, flag in theirs.items() if words not in ours and flag.name == "--env"]
    # A name alone takes over what the user's shell has, and is not set where that has none.
    unset = [word for flag in added if "=" not in flag.value for word in ("-u", flag.value)]
    return ", ".join([*gone, *new]), f"{shlex.join([*(['env', *unset] if unset else []), *shown])}{masked}"


def _in_file(taken: Taken, ours: Mapping[str, Flag], theirs: Mapping[str, Flag]) -> tuple[str, str]:
    """What changes in the file, as lines that go and lines that come, each by its key."""

    def key_of(flag: Flag) -> str:
        """That of the same option of the file; of a variable that it lacks, beside its others."""
        alike = {each.setting: taken.keys[words] for words, each in ours.items()
                 if each.name == flag.name and words in taken.keys}  # fmt: skip
        if flag.name == "--env" and alike and flag.setting not in alike:
            return f"{next(iter(alike.values())).rpartition('.')[0]}.{flag.setting}"
        return alike.get(flag.setting, flag.name)

    gone = [f"- {taken.keys.get(words, words)}: {_shown_value(flag)}"
            for words, flag in ours.items() if words not in theirs]  # fmt: skip
    new = [f"+ {key_of(flag)}: {_shown_value(flag)}"
           for words, flag in theirs.items() if words not in ours]  # fmt: skip
    return (f"in {taken.file}", "\n".join([*gone, *new])) if gone or new else ("", "")


def _shown_value(flag: Flag) -> str:
    shown = " ".join(flag.shown()).partition("=")[2] or flag.value
    return shown.removeprefix(f"{flag.setting}=") if flag.setting else shown


def _on_bare_metal(seen: Any, bare: Any) -> tuple[list[str], str]:
    """The container's command with the device's files in place of what is mounted inside, and its folder."""
    inside = seen.on_device(seen.folder)
    folder = inside if inside != seen.folder else str(Path.cwd())
    if bare is not None:
        return words_of(bare, "--set workload.argv") if isinstance(bare, str) else list(map(str, bare)), folder
    words = [seen.on_device(word) if word.startswith("/") else word for word in seen.argv]
    return words, folder

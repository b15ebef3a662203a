"""Seconds to make each platform, run `true` in it and remove it; beside it the bare command line doing the same.

`docker run --rm`, `podman run --rm` and `runc run` get the same small image as tare: an interpreter and a few commands,
made here. tare holds a platform open for many commands and so makes, starts, enters and removes it in steps; the
command line does it in one. Sides are interleaved, in an order that is shuffled anew in each round.

    python -m benchmarks.platforms [ROUNDS [SECONDS]]
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.rounds import Rounds
from tare.analysis.model import Estimate
from tare.analysis.numeric.medians import median_estimate
from tare.base.host import Host, LocalHost, Site
from tare.drivers.containers import client, engine
from tare.drivers.images.content import gather
from tare.drivers.images.takers import TAKERS
from tare.parts.find import find, names

Way = Callable[[], float]
OURS, THEIRS = "tare", "command line"


def measure(rounds: int = 7, seconds: float = 120.0) -> dict[str, Any]:
    """For each platform the seconds of both sides and their ratio; a slow one stops after its share of time."""
    host = LocalHost()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tare-bench-")))
        ways, missing = _ways(host, scratch, stack)
        kept = Rounds()
        spent = {name: _interleaved(sides, rounds, seconds, kept, name) for name, sides in ways.items()}
    kept.keep("platforms")
    return {
        "seconds": {name: {side: _figure(values) for side, values in sides.items()} for name, sides in spent.items()},
        "ratio": {name: _figure(_ratios(sides)) for name, sides in spent.items() if THEIRS in sides},
        "missing": missing,
    }


def _ways(host: Host, scratch: Path, stack: ExitStack) -> tuple[dict[str, dict[str, Way]], dict[str, str]]:
    """How each platform that works here is opened; where there is a command line for it, in the same image."""
    ways: dict[str, dict[str, Way]] = {}
    missing: dict[str, str] = {}
    for name in names("platforms"):
        part: Any = find("platforms", name)
        if obstacles := part().obstacles(host):
            missing[name] = " ".join(map(str, obstacles))
            continue
        ways[name] = {OURS: _opening(part(), host, scratch)}
    content = gather(sys.executable, [])
    image = f"tare/bench-{secrets.token_hex(3)}"
    for name, lines in _COMMAND_LINES.items():
        if name in ways:
            made, command = stack.enter_context(lines(content, image, scratch))
            part = find("platforms", name)(image=made)
            ways[f"{name}, an image"] = {OURS: _opening(part, host, scratch), THEIRS: _command(host, command)}
    return ways, missing


def _opening(part: Any, host: Host, scratch: Path) -> Way:
    def once() -> float:
        site = Site(f"tare-bench-{secrets.token_hex(4)}", scratch)
        begin_s = time.perf_counter()
        with closing(part.open(host, site)) as place:
            place.run(["true"]).checked()
        return time.perf_counter() - begin_s

    return once


def _command(host: Host, command: Callable[[], Sequence[str]]) -> Way:
    def once() -> float:
        begin_s = time.perf_counter()
        host.run(command()).checked()
        return time.perf_counter() - begin_s

    return once


@contextmanager
def _docker(content: Any, image: str, scratch: Path) -> Iterator[tuple[str, Callable[[], Sequence[str]]]]:
    found = engine.find()
    assert found is not None
    made = TAKERS["docker"](content, image, _silent)
    yield made, lambda: ["docker", "-H", found.address, "run", "--rm", "--network=none", made, "true"]
    engine.connect(LocalHost()).checked("remove it", "image", "rm", "--force", image)


@contextmanager
def _podman(content: Any, image: str, scratch: Path) -> Iterator[tuple[str, Callable[[], Sequence[str]]]]:
    made = f"localhost/{image}:latest"
    TAKERS["podman"](content, made, _silent)
    # Its own limits are refused where root lacks CAP_SYS_RESOURCE.
    flags = ["--network=none", "--ulimit=nofile=20000:20000", "--ulimit=nproc=32768:32768"]
    begun = client.podman(LocalHost()).words
    yield made, lambda: [*begun, "run", "--rm", *flags, made, "true"]
    LocalHost().run(["podman", "rmi", "--force", made])


@contextmanager
def _runc(content: Any, image: str, scratch: Path) -> Iterator[tuple[str, Callable[[], Sequence[str]]]]:
    bundle = scratch / "bundle"
    bundle.mkdir()
    made = TAKERS["folder"](content, str(bundle / "rootfs"), _silent)
    LocalHost().run(["runc", "spec", "--bundle", str(bundle)]).checked()
    config = json.loads((bundle / "config.json").read_text())
    config["process"] |= {"terminal": False, "args": ["true"], "rlimits": []}
    config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]  # refused on a hybrid machine
    (bundle / "config.json").write_text(json.dumps(config))
    yield made, lambda: ["runc", "run", "--bundle", str(bundle), f"bench-{secrets.token_hex(4)}"]


_COMMAND_LINES = {"docker": _docker, "podman": _podman, "runc": _runc}


def _silent(_: int) -> None:
    """Nobody watches."""


def _interleaved(
    sides: Mapping[str, Way], rounds: int, seconds: float, kept: Rounds, name: str
) -> dict[str, list[float]]:
    """Each side once a round; the first time, with cold files, is not counted."""
    order, spent = random.Random(7), {side: [] for side in sides}
    begin_s = time.monotonic()
    for number in range(rounds + 1):
        for side in order.sample(sorted(sides), len(sides)):
            took_s = sides[side]()
            if number:
                spent[side].append(took_s)
                kept.add(f"{name}, {side}", took_s)
        if number and time.monotonic() - begin_s > seconds:
            break
    return spent


def _ratios(sides: Mapping[str, Sequence[float]]) -> list[float]:
    return [ours / theirs for ours, theirs in zip(sides[OURS], sides[THEIRS], strict=True)]


def _figure(values: Sequence[float]) -> Estimate:
    return median_estimate(list(values))


def text(result: dict[str, Any]) -> str:
    lines = []
    for name, sides in result["seconds"].items():
        figures = [f"{side} {_shown(figure, ' s')}" for side, figure in sides.items()]
        ratio = f"; ratio {_shown(result['ratio'][name], 'x')}" if name in result["ratio"] else ""
        lines.append(f"open, `true`, close, {name}: {', '.join(figures)}{ratio}  (n = {sides[OURS].n})")
    return "\n".join(lines + [f"{name}: not measured: {why}" for name, why in result["missing"].items()])


def _shown(figure: Estimate, unit: str) -> str:
    interval = "" if figure.low is None or figure.high is None else f" [{figure.low:.2f}, {figure.high:.2f}]"
    return f"{figure.value:.2f}{unit}{interval}"


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.stdout.write(text(measure(*map(int, words[:1]), *map(float, words[1:2]))) + "\n")

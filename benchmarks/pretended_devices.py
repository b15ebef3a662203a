"""Devices that are not there: what answers in the place of the ssh line in `benchmarks.fleet`, inside dask's workers.

Each keeps its claims in a folder of its own, begins each once, takes its time, and hands over records that are the
bytes of one real sealed trial with ids, settings and times of their own. Some lines are cut, some trials die, some
devices go.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from tare.base import strict_json
from tare.fleet import exchange
from tare.fleet.inventory import on_device, planned_on
from tare.fleet.ssh import Answer, Unreachable
from tare.plan.matrix import Trial
from tare.records.model import Record
from tare.records.schema import MANIFEST_FILE, RECORD_FILE
from tare.records.sealed import folder_name, open_sealed
from tare.studies.load import loads
from tare_inside.agents.device import asked_for

ROOT = "TARE_PRETENDED_DEVICES"  # the folder of all of them, in the environment of the workers
SCENE, TEMPLATE, CLAIMS = "scene.json", "template", "claims"


@dataclass(frozen=True)
class Scene:
    """What happens to whom."""

    trial_s: float
    spread: float = 0.2  # of the time of a trial, about its mean
    cut: float = 0.01  # share of trials whose line breaks
    died: float = 0.005  # share of trials that end without a word
    vanish: Mapping[str, int] | None = None  # device -> the trial from which on nobody hears of it


def drive(fields: Mapping[str, Any], question: Mapping[str, Any], patience_s: float) -> dict[str, Any]:
    """`driving.drive` itself, with its patience; only the line is pretended."""
    exchange.ask = ask  # type: ignore[assignment]
    return exchange.drive(fields, question, patience_s)


def ask(device: Any, question: Mapping[str, Any], *, alive_s: float = 10.0) -> Answer:
    return {"engine": _engine, "collect": _collect, "run": _run}[question["do"]](device.name, question)


def _engine(name: str, question: Mapping[str, Any]) -> Answer:
    return Answer({"code": 0, "out": json.dumps({"obstacles": []}), "err": "", "sends": None})


def _run(name: str, question: Mapping[str, Any]) -> Answer:
    """Begin the claim, or find it begun; wait until it has ended; hand over what is new."""
    folder = _root() / CLAIMS / name
    claim = _begin(folder, question)
    number = len(list(folder.glob("[!.]*")))
    if (_scene().vanish or {}).get(name, number + 1) <= number:
        raise Unreachable(f"{name}: no line to it: the device has vanished")
    if _is_hit(question["claim"], "cut", _scene().cut) and _first_time(folder / f".cut-{question['claim']}"):
        _sleep_until((claim["began_s"] + claim["ends_s"]) / 2)
        raise Unreachable(f"{name}: no line to it: it was cut", heard=True)
    _sleep_until(claim["ends_s"])
    said = {"code": None, "text": "it ended without a word."} if claim["died"] else {"code": 0, "text": ""}
    return Answer({**said, "sends": 1}, _archive(folder, question))


def _collect(name: str, question: Mapping[str, Any]) -> Answer:
    """What an earlier run began and did not see the end of."""
    folder, endings = _root() / CLAIMS / name, []
    for claim in _claims(folder) if folder.is_dir() else ():
        if _first_time(folder / f".collected-{claim['claim']}"):
            _sleep_until(claim["ends_s"])
            endings.append({"claim": claim["claim"], "code": None if claim["died"] else 0})
    return Answer({"endings": endings, "sends": len(endings)}, _archive(folder, question) if endings else b"")


def _begin(folder: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """As the agent does: a claim has its name once, whoever asks again."""
    folder.mkdir(exist_ok=True)
    path, scene = folder / question["claim"], _scene()
    now_s = time.time()
    takes_s = scene.trial_s * (1 + scene.spread * (2 * _chance(question["claim"], "takes") - 1))
    claim = {key: question[key] for key in ("claim", "trial", "device", "study", "name")}
    claim |= {"began_s": now_s, "ends_s": now_s + takes_s, "died": _is_hit(question["claim"], "died", scene.died)}
    draft = folder / f".draft-{question['claim']}"
    draft.write_text(json.dumps(claim))
    try:
        os.link(draft, path)
    except FileExistsError:
        claim = json.loads(path.read_text())
    draft.unlink()
    return claim


def _claims(folder: Path, begins: str = "") -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(f"{begins}*" if begins else "[!.]*")):
        yield json.loads(path.read_text())


def _archive(folder: Path, question: Mapping[str, Any]) -> bytes:
    """The sealed attempts that the controller has not got, as the agent sends them."""
    made, have, begins = io.BytesIO(), set(question["have"]), asked_for(question)
    with tarfile.open(fileobj=made, mode="w") as archive:
        for record in _sealed_in(folder, begins):
            name = folder_name(record.trial, record.attempt)
            for file, data in _files(record).items() if name not in have else ():
                member = tarfile.TarInfo(f"{name}/{file}")
                member.size = len(data)
                archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def _sealed_in(folder: Path, begins: str) -> Iterator[Record]:
    """The attempts that have ended: one that died is sealed as interrupted by the next that begins."""
    tries: dict[str, list[dict[str, Any]]] = {}
    for claim in _claims(folder, begins):
        if claim["ends_s"] <= time.time():
            tries.setdefault(claim["trial"], []).append(claim)
    for of_one in tries.values():
        ordered = sorted(of_one, key=lambda claim: claim["began_s"])
        for attempt, claim in enumerate(ordered, 1):
            if not claim["died"] or attempt < len(ordered):
                yield _record(claim, attempt)


def _record(claim: Mapping[str, Any], attempt: int) -> Record:
    trial = _plan(claim["study"], claim["name"], tuple(map(tuple, claim["device"])))[claim["trial"]]
    template = _template()[0]
    takes_s = claim["ends_s"] - claim["began_s"]
    return replace(
        template, trial=trial.id, attempt=attempt, study=trial.study, block=trial.block, position=trial.position,
        settings=dict(trial.settings), state="interrupted" if claim["died"] else "ok", reasons=(),
        metrics={**template.metrics, "wall_s": takes_s},
        start_ns=int(claim["began_s"] * 1e9), end_ns=int(claim["ends_s"] * 1e9),
    )  # fmt: skip


def _files(record: Record) -> dict[str, bytes]:
    """The template's files around another record, and the manifest that belongs to them."""
    _, entries, lost_marks, data = _template()
    text = strict_json.dump(record.as_json())
    files = {**entries, RECORD_FILE: [len(text), hashlib.sha256(text).hexdigest()]}
    body = {"schema_version": 1, "files": files, "lost_marks": lost_marks}
    manifest = strict_json.dump({**body, "crc32": zlib.crc32(strict_json.dump(body))})
    return {**data, RECORD_FILE: text, MANIFEST_FILE: manifest}


def _root() -> Path:
    return Path(os.environ[ROOT])


@cache
def _scene() -> Scene:
    return Scene(**json.loads((_root() / SCENE).read_text()))


@cache
def _template() -> tuple[Record, dict[str, list[Any]], int, dict[str, bytes]]:
    (folder,) = (_root() / TEMPLATE).iterdir()
    sealed = open_sealed(folder)
    entries = {name: list(entry) for name, entry in sealed.files.items()}
    return sealed.record, entries, sealed.lost_marks, {name: sealed.data(name) for name in entries}


@cache
def _plan(text: str, name: str, device: tuple[tuple[str, str], ...]) -> dict[str, Trial]:
    return {trial.id: trial for trial in on_device(_planned(text, name), device)}


@cache
def _planned(text: str, name: str) -> list[Trial]:
    return planned_on(loads(text, name), ())


def _chance(claim: str, what: str) -> float:
    """A number in [0, 1) that is this claim's: the same whoever asks, and in every run of the same claims."""
    return int.from_bytes(hashlib.sha256(f"{what} {claim}".encode()).digest()[:6]) / 2**48


def _is_hit(claim: str, what: str, share: float) -> bool:
    return _chance(claim, what) < share


def _first_time(path: Path) -> bool:
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _sleep_until(end_s: float) -> None:
    while (left_s := end_s - time.time()) > 0:
        time.sleep(left_s)

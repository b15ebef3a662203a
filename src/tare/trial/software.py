"""What software a platform carries: asked inside it, outside of any trial."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

from tare.errors import TrialError
from tare.host import Host, Job, Site
from tare.parts.inside import built_in_env
from tare.parts.protocols import Platform
from tare.trial.desk import make_desk, read_json, remove_folders
from tare.trial.journal import Journal

_ANSWER_WITHIN_S = 120.0
# torch is imported first, so that its libraries are there to be compared.
_ASK = """
import json
try:
    import torch, numpy
except ImportError:
    pass
from tare_inside import fingerprint
print(json.dumps(fingerprint.gather()))
"""


def software_of(platform: Platform, host: Host, journal: Journal, scratch_root: Path) -> dict[str, Any]:
    """The fingerprint from inside this platform; it is opened for that, and noted in the journal before."""
    name = f"tare-software-{secrets.token_hex(4)}"
    noted = journal.note_site(platform.part_name(), name)
    scratch = scratch_root / name
    scratch.mkdir(mode=0o700, parents=True)
    desk = make_desk(name, scratch)

    def leave() -> None:
        remove_folders(name, scratch_root)
        journal.retire(noted, "removed")

    try:
        place = platform.open(host, Site(name=name, scratch=scratch, writes=(desk,)))
    except BaseException:
        leave()  # it has cleaned up after itself
        raise
    try:
        return _asked(place, desk)
    finally:
        place.close()  # if that fails the note stays, and `tare restore` takes over
        leave()


def _asked(place: Host, desk: Path) -> dict[str, Any]:
    job = Job((place.python, "-c", _ASK), env=built_in_env(desk, "fixed"), cwd="/")
    ended = place.spawn(job).wait(_ANSWER_WITHIN_S)
    said = read_json(ended.out)
    if not said:
        raise TrialError(f"{place.python} in {place.name} did not say what it is: {ended.err.strip()[-800:]}")
    return said

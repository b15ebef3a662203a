"""Lightning, Hugging Face Trainer and accelerate scripts, unchanged: they use the same hooks underneath.

All must be installed (tools/setup test): without them these tests fail, for a skipped one would say nothing. As for
the other scripts, all are forks of one process that has torch; each imports its framework after tare was attached.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from test_attach_own_times import check_parts, spans

from tare_inside import marks

# 32 examples in batches of 4, two batches a step, two epochs
TRAINED = {"fetch": 16, "forward": 16, "backward": 16, "compute": 16, "optimiser": 8, "step": 8, "epoch": 2}
EVALUATED = {
    "with_lightning.py": 3,
    "with_hugging_face.py": 2,
    "with_accelerate.py": 2,
}  # Lightning tries the test pass before it trains


@pytest.fixture(scope="module")
def ran(
    tmp_path_factory: pytest.TempPathFactory, torch_forks: Callable[..., None], request: pytest.FixtureRequest
) -> Path:
    """Each script that a selected test asks for, with us and without: the import of its framework is most of it."""
    folder = tmp_path_factory.mktemp("ran")
    cases = [each.callspec.params for each in request.session.items if hasattr(each, "callspec")]
    wanted = {case.get("script") for case in cases}
    torch_forks(folder, [[script, str(folder / "out")] for script in EVALUATED if script in wanted])
    return folder


@pytest.mark.parametrize("script", EVALUATED)
def test_a_framework_is_marked_as_a_loop_by_hand_would_be(script: str, ran: Path) -> None:
    plain, attached = (ran / script / side for side in ("plain", "attached"))
    assert (attached / "code").read_text() == "0", (attached / "err").read_text()
    losses = [line for line in (attached / "out").read_text().splitlines() if "0x" in line]
    assert losses == [line for line in (plain / "out").read_text().splitlines() if "0x" in line] != []
    found, lost = marks.load(str(attached / "marks.bin"))
    assert lost == 0
    seen = Counter(name for _, name, edge, _ in found if edge == "end" and name not in ("imports", "device"))
    assert seen == {**TRAINED, "evaluate": EVALUATED[script]}
    check_parts(spans(attached))
    assert json.loads((attached / "attach.json").read_text())["state"] == "marked"

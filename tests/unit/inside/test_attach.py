"""Real, small training scripts of someone's own, run unchanged as `tare weigh -- python script.py` would."""

from __future__ import annotations

import json
import runpy
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.base.host import Exit, LocalHost
from tare.figures.steps import phase_metrics
from tare.parts.protocols import Mark
from tare.parts.workloads.command import Command
from tare_inside import attach, marks
from tare_inside.programs import cold_epochs

Run = Callable[..., Exit]
Plainly = Callable[..., str]
OF_THE_RUN = ("imports", "device")  # what is marked of a run beside its steps

COMMON = """
import importlib.util
assert importlib.util.find_spec("torch") is not None    # as transformers asks before it imports
import sys, time, torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(20, 30), nn.Linear(30, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))

data = TensorDataset(torch.randn(32, 20), torch.randint(0, 2, (32,)))
net = Net()
"""

USUAL = """
class Files(torch.utils.data.Dataset):
    def __init__(self, wait):
        super().__init__()
        time.sleep(wait)

    def __len__(self):
        return 32

    def __getitem__(self, place):
        return data[place]

class Sorted(Files):
    def __init__(self):
        super().__init__(0.05)
        time.sleep(0.05)

def main():
    workers, optimiser = int(sys.argv[1]), getattr(torch.optim, sys.argv[2])(net.parameters(), lr=0.01)
    order = torch.Generator().manual_seed(1)
    training = DataLoader(Sorted(), 8, shuffle=True, num_workers=workers, generator=order)
    testing = DataLoader(data, 16)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, 1)
    for epoch in range(2):
        for x, y in training:
            optimiser.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()
            optimiser.step()
        schedule.step()
        with torch.no_grad():
            print(epoch, sum(cross_entropy(net(x), y).item() for x, y in testing))
    torch.save(net.state_dict(), "last.pt")
    print(sorted(torch.load("last.pt")), torch.__spec__.loader.__class__.__name__)

main()
"""


@pytest.fixture
def run(workdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a script through the `command` workload, in a folder of its own; what it left is in the workdir."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "work"
    folder.mkdir()

    def go(text: str, *arguments: str, **fields: object) -> Exit:
        (folder / "script.py").write_text(text)
        argv = (sys.executable, "script.py", *arguments)
        command = Command.model_validate({"argv": argv, "cwd": folder, **fields})
        return LocalHost().spawn(command.job(LocalHost(), workdir, seed=1)).wait(120)

    return go


@pytest.fixture
def plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Plainly:
    """What a script prints without us: run here, where torch is imported already."""

    def go(text: str, *arguments: str) -> str:
        script = tmp_path / "plain.py"
        script.write_text(text)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [str(script), *arguments])
        capsys.readouterr()
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr().out

    return go


def intervals(workdir: Path) -> Counter[str]:
    loaded, lost = marks.load(str(workdir / "marks.bin"))
    assert lost == 0
    begun, ended = (
        Counter(name for _, name, edge, _ in loaded if edge == wanted and name not in OF_THE_RUN)
        for wanted in ("begin", "end")
    )
    assert begun == ended
    return begun


def test_a_training_script_is_marked_taken_apart_begins_its_epochs_cold_and_prints_what_it_always_did(
    run: Run, plainly: Plainly, workdir: Path, tmp_path: Path
) -> None:
    """All of it on one run: each is an import of torch."""
    data = tmp_path / "data.bin"
    data.write_bytes(b"x" * 100_000)
    (workdir / cold_epochs.ORDER).write_text(json.dumps({"paths": [str(data)]}))

    ended = run(COMMON + USUAL, "2", "AdamW")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == plainly(COMMON + USUAL, "2", "AdamW")
    shares = json.loads((workdir / cold_epochs.SAID).read_text())["shares"]
    assert shares == [0.0] * 4  # two passes to train, two to test
    each = dict.fromkeys(("fetch", "compute", "step", "forward", "backward", "optimiser"), 8)
    assert intervals(workdir) == {**each, "epoch": 2, "evaluate": 2, "data_open": 1, "checkpoint": 1}
    marked = [Mark(*mark) for mark in marks.load(str(workdir / "marks.bin"))[0]]
    assert [mark.step for mark in marked if (mark.name, mark.edge) == ("step", "end")] == list(range(8))
    result = json.loads((workdir / "result.json").read_text())
    assert result["exit"] == 0
    assert "torch" in json.loads((workdir / "fingerprint.json").read_text())
    found = phase_metrics(marked, result, {"open": 0.5}, None)
    assert found.keys() >= {
        "platform_open_s", "interpreter_s", "imports_s", "data_open_s", "setup_s", "first_batch_s", "first_step_s",
        "startup_s", "evaluation_s", "checkpoints_s", "exit_s",
    }  # fmt: skip
    assert 0.1 <= found["data_open_s"] <= 0.1 + found["setup_s"]  # Files inside of Sorted counts once
    assert found["data_open_s"] < found["startup_s"]
    assert found["checkpoints_s"] > 0


LEAVING = """
import sys
import json as other
sys.stderr.write("its own words\\n")
print("torch" in sys.modules, other.dumps([1]))
sys.exit(4)
"""


def test_a_script_without_torch_is_left_alone(run: Run, workdir: Path) -> None:
    ended = run(LEAVING)

    assert (ended.code, ended.out, ended.err) == (4, "False [1]\n", "its own words\n")
    assert not (workdir / "marks.bin").exists()


def test_the_users_own_sitecustomize_still_runs_once(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys; print('mine'); sys.mine = __name__, __file__")
    monkeypatch.setenv("PYTHONPATH", str(own))

    ended = run("import sys, sitecustomize; print(sys.mine, sitecustomize.__file__)")

    path = str(own / "sitecustomize.py")
    assert ended.out == f"mine\n{('sitecustomize', path)} {path}\n"


def test_where_marks_cannot_be_written_the_script_runs_on_and_it_is_said_once(
    torch_forks: Callable[..., None], tmp_path: Path
) -> None:
    torch_forks(tmp_path, [["plain_loop.py", "TARE_MARKS=/proc/no/such/folder/marks.bin"]])
    plain, attached = (tmp_path / "plain_loop.py" / side for side in ("plain", "attached"))

    assert (attached / "code").read_text() == "0"
    assert (attached / "out").read_text() == (plain / "out").read_text() != ""
    (said,) = (attached / "err").read_text().splitlines()
    assert said.startswith("tare: the script runs unmarked from here on")


def test_without_attach_no_hook_of_ours_is_loaded_and_marks_can_be_imported(run: Run) -> None:
    show = "import os, sys; print('tare_inside' in sys.modules, 'inside_site' in str(sys.path))"
    said = run(f"{show}; from tare_inside import marks; marks.point('here'); print('marked')", attach="none").out

    assert said.split() == ["False", "False", "marked"]


def test_a_second_process_leaves_the_marks_of_the_first_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "marks.bin"
    path.write_bytes(b"of another process")
    watch = attach.Watch(str(path))
    watch.begin()

    assert watch.steps is None
    assert path.read_bytes() == b"of another process"
    assert capfd.readouterr().err == ""


def test_a_second_process_that_trains_by_hand_leaves_them_alone_too(tmp_path: Path) -> None:
    path = tmp_path / "marks.bin"
    path.write_bytes(b"of another process")
    watch = attach.Watch(str(path))

    assert watch.begin_without_optimiser() is None
    assert (watch.steps, path.read_bytes()) == (None, b"of another process")


@pytest.mark.parametrize(("rank", "marks_there"), [("0", True), ("1", False)])
def test_only_the_first_of_distributed_processes_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: str, marks_there: bool
) -> None:
    monkeypatch.setenv("RANK", rank)
    watch = attach.Watch(str(tmp_path / "marks.bin"))
    watch.begin()
    watch.end()

    assert (tmp_path / "marks.bin").exists() is marks_there

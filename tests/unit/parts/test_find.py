import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tare.base.errors import StudyError
from tare.base.host import Scope
from tare.base.processes import Owner
from tare.parts.find import KINDS, find, names
from tare.parts.probes import power
from tare.parts.protocols import Control, Probe
from tare.testing import FakeHost
from tare.trial.sampler import Sampler
from tare.trial.undo.journal import Journal
from tare.trial.undo.restoration import restore


def test_every_file_is_a_part_of_its_kind_under_the_name_of_the_file():
    for kind, protocol in KINDS.items():
        assert names(kind)
        for name in names(kind):
            part = find(kind, name)
            assert issubclass(part, protocol)
            assert part.part_name() == name
            assert part.__doc__, f"{kind}/{name}.py says nothing of itself"


def test_a_class_that_nobody_looked_for_knows_its_name(monkeypatch: pytest.MonkeyPatch):
    """In a file of several too: a control's name goes into the undo journal, by which it is put back."""
    for kind in KINDS:
        for name in names(kind):
            part = find(kind, name)
            monkeypatch.setattr(part, "called", None)
            assert part.part_name() == name


def test_an_unknown_name_is_answered_with_the_nearest_right_one():
    with pytest.raises(StudyError) as caught:
        find("platforms", "dokcer")
    assert "no platform 'dokcer'." in str(caught.value)
    assert "Did you mean 'docker'?" in str(caught.value)
    assert "bare" in str(caught.value)


def test_a_class_of_a_shared_file_that_is_no_part_of_the_kind_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tare.parts.probes.power.PowerRails", type("PowerRails", (), {"__module__": power.__name__}))
    with pytest.raises(StudyError, match=r"'power_rails': tare\.parts\.probes\.power\.PowerRails, .* is not a Probe"):
        find("probes", "power_rails")


# Parts of other packages


PACKAGE = """
from tare.base.units import Channel
from tare.parts.protocols import Control, Probe


class Feed:
    channels = (Channel("gadget.level", "", "gauge"),)

    def poll(self):
        return []

    def close(self):
        return []


class Gadget(Probe):
    '''Watches nothing.'''

    volts: int = 5

    def obstacles(self, host):
        return []

    def open(self, host, scope):
        return Feed()


class Dial(Control):
    '''A file with a number.'''

    file: str

    def obstacles(self, host):
        return []

    def target(self, host, inputs):
        return "2"

    def read(self, host):
        return host.read(self.file)

    def write(self, host, state):
        host.write(self.file, state)


class Finer(Dial):
    '''Found by nobody.'''
"""
ENTRY_POINTS = """
[tare.probes]
gadget = their_package.all_parts:Gadget
[tare.controls]
dial = their_package.all_parts:Dial
knob = their_package.all_parts:Dial
"""


@pytest.fixture
def their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package whose file of parts is called differently from each of them."""
    for name, text in {
        "their_package/__init__.py": "",
        "their_package/all_parts.py": PACKAGE,
        "theirs-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n",
        "theirs-1.0.dist-info/entry_points.txt": ENTRY_POINTS,
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    yield tmp_path
    for name in ("their_package", "their_package.all_parts"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("their_package")
def test_a_part_of_another_package_goes_by_the_name_of_its_entry_point():
    gadget, dial = find("probes", "gadget"), find("controls", "dial")
    assert (gadget.part_name(), dial.part_name()) == ("gadget", "dial")
    finer = vars(sys.modules["their_package.all_parts"])["Finer"]
    assert finer.part_name() == "all_parts"  # a name is not inherited


@pytest.mark.usefixtures("their_package")
def test_one_class_cannot_have_two_names():
    find("controls", "dial")
    with pytest.raises(StudyError, match="'dial' and 'knob' are the same class Dial"):
        find("controls", "knob")


@pytest.mark.usefixtures("their_package")
def test_a_probe_of_another_package_is_found_in_the_samplers_process(tmp_path: Path):
    probe = find("probes", "gadget").model_validate({"volts": 12})
    assert isinstance(probe, Probe)
    with Sampler([probe], tmp_path / "spool") as sampler:
        sampler.begin(Scope())
        report = sampler.end()
    assert report.ticks >= 1
    assert report.errors.get("gadget", 0) < report.ticks  # the last tick may come while it still reads for the first


@pytest.mark.usefixtures("their_package")
def test_a_control_of_another_package_is_put_back_from_the_journal(tmp_path: Path):
    host = FakeHost(files={"/dial": "1"})
    dial = find("controls", "dial").model_validate({"file": "/dial"})
    assert isinstance(dial, Control)
    journal = Journal(tmp_path / "journal" / "here", owner=Owner(4194304, 1))
    journal.note_knob(dial, "1", "2")
    host.write("/dial", "2")

    done = restore(host, Journal(journal.folder))

    assert done.clean, done.sentences()
    assert host.files["/dial"] == "1"

"""`tare why --only`: every layer that can be named, and what is left out."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from analysis_figures import record
from some_layers import stage
from tare.analysis.model import Comparison
from tare.analysis.why.causes import QUICK, SLOW, Answer, Tried, Wave
from tare.analysis.why.layers import waterfall
from tare.base.errors import StudyError
from tare.cli import tare, why
from tare.cli.why import runs
from tare.cli.why.runs import are_stores, told
from tare.drivers.containers.isolation import USUAL
from tare.parts.platforms.runc import Runc
from tare.plan.why import Level, Stages, Suspects
from tare.report.text.why import answer_sentences, phases_text


def test_only_mounts_is_the_container_with_no_other_layer():
    skipped = runs._skipped({}, ("mounts",))
    assert skipped.keys() == {*USUAL, "user"}
    stages = Stages({}, tuple(layer for layer in USUAL if layer not in skipped), ["docker"])
    assert stages.chain == [stages.whole] == [{"runc": {"isolation": [[]]}}]
    assert (stages.without, stages.aside) == ([], [])


def test_an_unpacked_image_is_taken_apart_with_runc_and_no_engine(monkeypatch):
    monkeypatch.setattr(Runc, "obstacles", lambda self, host: [])
    skipped = runs._skipped({"image": "/rootfs"}, ("mounts", "pid"))
    stages = runs._stages({"image": "/rootfs"}, {"image": "/rootfs"}, skipped)
    assert [each["runc"] for each in stages.chain] == [
        {"image": "/rootfs", "isolation": [layers]} for layers in ([], ["pid"])
    ]
    assert stages.engines == [] and "folder" in skipped["docker"]


def test_the_waterfall_of_mounts_alone_has_that_layer():
    records = [*stage("bare", (), 1.0, 1), *stage("runc", (), 1.3, 2)]
    found = waterfall(records, margin=0.05)
    assert [layer.layer for layer in found.layers] == ["mounts"]
    assert [layer.layer for layer in found.guilty] == ["mounts"]


def test_the_user_namespace_needs_the_layers_that_it_stands_on():
    with pytest.raises(StudyError, match="the layer user needs ipc, network, pid; name them too"):
        runs._skipped({}, ("user",))
    assert "user" not in runs._skipped({}, ("pid", "ipc", "network", "user"))


def test_without_only_a_layer_is_skipped_for_want_of_a_limit():
    assert runs._skipped({"quota": 1.0, "memory": "1GiB"}, None).keys() == {"cpuset"}


def test_a_single_store_is_not_taken_for_a_command(tmp_path):
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(StudyError, match=r"is one store: `tare why STORE STORE` explains"):
        are_stores((str(tmp_path),))
    assert not are_stores(("python", "train.py"))
    assert not are_stores(())


class OneWave:
    """What tries suspects, with an answer made before: one is the cause, of the other nothing is known."""

    quick, repeat, metric, margin = Level("bare", {}), 6, None, 0.05
    sides = ("container", "bare metal")

    def wave(self, stage, sides, **options):
        def trials(role, seconds):
            times = {"step_mean_s": seconds, "wall_s": 9.0, "cgroup_nr_throttled": 40.0}
            return [record(block=n, step_s=None, settings=sides[role].settings(), metrics=times) for n in range(2)]

        return Wave([*trials(QUICK, 1.0), *trials(SLOW, 9.0)], {role: side.settings() for role, side in sides.items()})

    def tried(self, search, waves, found, metric=None):
        search.learn({"debug_variables": "the cause", "cpu_quota": "cannot tell"})
        total = Comparison(metric, SLOW, QUICK, 8.0, 7.0, 9.0, "slower", 0.05, 6, None)
        outcomes = {"debug_variables": "the cause", "cpu_quota": "cannot tell"}
        return Answer(metric, total, tuple(Tried(name, word, None, None) for name, word in outcomes.items()))


def test_a_suspect_that_was_tried_is_not_named_as_untried():
    fields = {"quota": 0.5, "env": {"PYTHONTRACEMALLOC": "1", "APP_CHECKS": "1"}}
    found = why._explained(OneWave(), "runc", fields, quiet=True)

    assert {"debug_variables", "cpu_quota"} <= found.suspects.held.keys()
    assert "other_variables" in found.untried
    assert "cpu_quota" not in found.untried


def test_what_is_not_measured_later_is_not_promised():
    few = Comparison("step_s", SLOW, QUICK, 0.327, None, None, "cannot_tell", 0.05, 4, None)

    assert "by the median of 4 blocks, too few for an interval." in " ".join(
        phases_text(few, (), 80, look=False).split()
    )
    assert "measured below" in " ".join(phases_text(few, (), 80).split())


def test_of_two_images_the_software_is_where_the_cost_is_and_never_the_cause():
    class TwoImages(OneWave):
        quick, sides = Level("runc", {"image": "/app-1"}), ("app-2", "app-1")

        def tried(self, search, waves, found, metric=None):
            total = Comparison(metric, SLOW, QUICK, 8.0, 7.0, 9.0, "slower", 0.05, 6, None)
            assert search.candidates() == ["cold_layers"]  # whose major faults were not counted
            return Answer(metric, total, (Tried("cold_layers", "not it", None, None),))

    found = why._explained(TwoImages(), "runc", {"image": "/app-2"}, quiet=True)

    assert found.total.verdict == "slower" and found.located == ("software",)
    software = found.suspects.held["software"]
    assert software.without == {"image": "/app-1", "dockerfile": None}
    about = told(found.suspects, {}, {}, found.phases, found.located)
    (sentence,) = answer_sentences(found.answer, about, "app-1")
    assert sentence == (
        "9x slower: it is in the image's software, and what of it costs is not known: which software it has was not "
        "recorded."
    )


@pytest.mark.parametrize("word", ["the cause", "a part"])
def test_what_exchanges_many_things_at_once_is_located_and_the_layers_are_not_run_for_it(word):
    total = Comparison("step_mean_s", SLOW, QUICK, 8.0, 7.0, 9.0, "slower", 0.05, 6, None)
    found = Answer("step_mean_s", total, (Tried("software", "located", None, None),))

    assert found.causes == () and not found.explained
    assert not why.Explained(total, (), Suspects({}, {}), found).unexplained
    named = Answer("step_mean_s", total, (Tried("software", word, None, None),))
    assert [each.cause for each in named.causes] == ["software"]


@pytest.mark.parametrize(
    ("words", "why_not"),
    [
        (("--against-image", "app:1"), "name the slow one by --image"),
        (("--image", "/", "--against-image", "/", "--in", "runc", "--layers"), "not against an image"),
    ],
)
def test_an_image_to_compare_with_needs_another_one_and_no_layers(words, why_not):
    done = CliRunner().invoke(tare, ["why", *words, "--", "true"])

    assert isinstance(done.exception, StudyError) and why_not in str(done.exception), done.output

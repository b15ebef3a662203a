"""The rules by which steps are seen in someone's training loop, on made-up times: no torch is needed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tare_inside import marks
from tare_inside.steps import Pass, Steps


class Loop:
    """Events one after another, each ten ticks long with ten ticks between them."""

    def __init__(self, path: Path) -> None:
        self.steps = Steps(room=20)
        self.steps.take_back()  # an optimiser is made
        self._path, self._now_ns = path, 100

    def tick(self) -> tuple[int, int]:
        self._now_ns += 20
        return self._now_ns - 10, self._now_ns

    def iterate(self, loader: str = "training", graded: bool = True) -> Pass:
        return self.steps.iterated(self.tick()[1], loader, graded)

    def fetch(self, current: Pass) -> None:
        self.steps.finish()
        self.steps.fetched(current, *self.tick())

    def exhaust(self, current: Pass) -> None:
        self.steps.finish()
        self.steps.exhausted(current, self.tick()[1])

    def backward(self) -> None:
        self.steps.went_backward(*self.tick())

    def step(self, optimiser: str = "sgd") -> None:
        self.steps.optimised(optimiser, *self.tick())

    def train(self, current: Pass) -> None:
        self.fetch(current)
        self.backward()
        self.step()

    def seen(self) -> list[tuple[str, int, int, int]]:
        """(name, step, begin, end) of every interval, once the program has ended."""
        self.steps.close()
        begun: dict[tuple[str, int], int] = {}
        found = []
        self.steps.close = lambda: None  # type: ignore[method-assign]
        for t_ns, name, edge, step in marks.load(str(self._path))[0]:
            if edge == "begin":
                begun[name, step] = t_ns
            else:
                found.append((name, step, begun.pop((name, step)), t_ns))
        return found

    def named(self, name: str) -> list[tuple[int, int, int]]:
        return [(step, begin_ns, end_ns) for found, step, begin_ns, end_ns in self.seen() if found == name]


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    path = tmp_path / "marks.bin"
    marks.open_marks(str(path), capacity=1000)
    yield Loop(path)
    marks.close_marks()


def test_a_step_runs_from_the_fetch_to_the_end_of_the_optimiser(loop: Loop) -> None:
    loop.train(loop.iterate())

    assert sorted(loop.seen()) == [
        ("backward", 0, 150, 160),
        ("compute", 0, 140, 180),
        ("epoch", 0, 120, 180),
        ("fetch", 0, 120, 140),  # it begins with making the iterator
        ("forward", 0, 140, 150),
        ("optimiser", 0, 170, 180),
        ("step", 0, 120, 180),
    ]


def test_the_next_step_begins_where_the_last_one_ended(loop: Loop) -> None:
    current = loop.iterate()
    loop.train(current)
    loop.train(current)

    assert loop.named("step") == [(0, 120, 180), (1, 180, 240)]
    assert loop.named("fetch") == [(0, 120, 140), (1, 190, 200)]


def test_without_a_loader_the_first_step_begins_with_the_first_forward_pass(loop: Loop) -> None:
    loop.steps.forward_begins(loop.tick()[0])
    for _ in range(2):
        loop.backward()
        loop.steps.forward_begins(loop.tick()[0])  # only the first one counts
        loop.step()

    assert loop.named("step") == [(0, 110, 180), (1, 180, 240)]
    assert loop.named("forward") == [(0, 110, 130), (1, 180, 190)]


def test_with_a_loader_the_first_step_begins_with_its_fetch(loop: Loop) -> None:
    loop.fetch(loop.iterate())
    assert loop.steps.awaits_forward()
    loop.steps.forward_begins(loop.tick()[0])
    assert not loop.steps.awaits_forward()
    loop.backward()
    loop.step()

    assert loop.named("step") == [(0, 120, 200)]
    assert loop.named("forward") == [(0, 140, 170)]


def test_a_new_pass_begins_with_its_own_fetch_and_is_an_epoch(loop: Loop) -> None:
    for _ in range(2):
        current = loop.iterate()
        loop.train(current)
        loop.exhaust(current)

    assert loop.named("epoch") == [(0, 120, 200), (1, 220, 300)]


def test_steps_are_numbered_on_over_passes(loop: Loop) -> None:
    for _ in range(2):
        current = loop.iterate()
        loop.train(current)
        loop.train(current)
        loop.exhaust(current)

    assert [step for step, _, _ in loop.named("step")] == [0, 1, 2, 3]


def test_batches_for_evaluation_are_in_no_step(loop: Loop) -> None:
    training = loop.iterate()
    loop.train(training)
    evaluating = loop.iterate()
    for _ in range(3):
        loop.fetch(evaluating)
    loop.exhaust(evaluating)
    loop.train(training)

    assert len(loop.named("fetch")) == 2
    assert loop.named("step") == [(0, 120, 180), (1, 290, 340)]
    assert len(loop.named("epoch")) == 1


def test_several_batches_for_one_optimiser_step_are_one_step(loop: Loop) -> None:
    current = loop.iterate()
    loop.fetch(current)
    loop.backward()
    loop.train(current)

    assert loop.named("step") == [(0, 120, 220)]
    assert loop.named("fetch") == [(0, 120, 140), (0, 170, 180)]
    assert loop.named("compute") == [(0, 140, 170), (0, 180, 220)]
    assert len(loop.named("forward")) == len(loop.named("backward")) == 2


def test_two_optimisers_on_one_batch_are_one_step(loop: Loop) -> None:
    current = loop.iterate()
    for _ in range(2):
        loop.fetch(current)
        loop.backward()
        loop.step("discriminator")
        loop.backward()
        loop.step("generator")

    assert [step for step, _, _ in loop.named("step")] == [0, 1]
    assert [step for step, _, _ in loop.named("optimiser")] == [0, 0, 1, 1]


def test_the_same_optimiser_twice_on_one_batch_is_two_steps(loop: Loop) -> None:
    current = loop.iterate()
    loop.fetch(current)
    for _ in range(3):
        loop.backward()
        loop.step()

    assert loop.named("step") == [(0, 120, 180), (1, 180, 220), (2, 220, 260)]
    assert loop.named("backward") == [(0, 150, 160), (1, 190, 200), (2, 230, 240)]
    assert loop.named("compute") == [(0, 140, 180), (1, 180, 220), (2, 220, 260)]


def test_without_a_dataloader_a_step_runs_from_the_last_one(loop: Loop) -> None:
    for _ in range(2):
        loop.backward()
        loop.step()

    assert loop.named("step") == [(0, 110, 140), (1, 140, 180)]
    assert loop.named("fetch") == loop.named("epoch") == []


def test_an_optimiser_inside_another_is_counted_once(loop: Loop) -> None:
    current = loop.iterate()
    loop.fetch(current)
    loop.backward()
    loop.steps.optimised("inner", 175, 185)
    loop.steps.optimised("outer", 170, 190)

    assert loop.named("optimiser") == [(0, 175, 185)]
    assert len(loop.named("step")) == 1


def test_two_loaders_side_by_side_are_fetched_in_the_same_step(loop: Loop) -> None:
    first, second = loop.iterate("labelled"), loop.iterate("unlabelled")
    for _ in range(3):
        loop.fetch(first)
        loop.train(second)

    seen = loop.seen()
    assert [step for name, step, _, _ in seen if name == "fetch"] == [0, 0, 1, 1, 2, 2]
    assert [step for name, step, _, _ in seen if name == "step"] == [0, 1, 2]
    assert [name for name, *_ in seen if name in ("epoch", "evaluate")] == ["epoch"]


def test_a_loader_that_is_asked_anew_in_every_step_belongs_to_the_step_from_the_second_on(loop: Loop) -> None:
    first = loop.iterate("labelled")
    for _ in range(4):
        loop.fetch(first)
        loop.train(loop.iterate("unlabelled"))

    seen = loop.seen()
    assert [step for name, step, _, _ in seen if name == "fetch"] == [0, 1, 1, 2, 2, 3, 3]
    assert "evaluate" not in [name for name, *_ in seen]


def test_a_pass_that_is_never_trained_on_is_an_evaluation(loop: Loop) -> None:
    training = loop.iterate()
    loop.train(training)
    for graded in (True, False):
        testing = loop.iterate("testing", graded)
        loop.fetch(testing)
        loop.fetch(testing)
        loop.exhaust(testing)
    loop.train(training)

    assert [step for step, _, _ in loop.named("evaluate")] == [0, 0]  # both came after step 0
    assert len(loop.named("fetch")) == 2


def test_an_evaluation_that_is_left_early_ends_with_its_last_batch(loop: Loop) -> None:
    testing = loop.iterate("testing")
    loop.fetch(testing)
    loop.fetch(testing)
    training = loop.iterate()
    for _ in range(3):
        loop.train(training)

    assert loop.named("evaluate") == [(-1, 120, 160)]  # before the first step
    assert [step for step, _, _ in loop.named("fetch")] == [0, 1, 2]


def test_a_test_batch_taken_with_gradients_off_between_two_steps_is_in_neither(loop: Loop) -> None:
    training = loop.iterate()
    for _ in range(3):
        loop.train(training)
        loop.fetch(loop.iterate("testing", graded=False))

    assert [step for step, _, _ in loop.named("fetch")] == [0, 1, 2]
    assert [step for step, _, _ in loop.named("evaluate")] == [0, 1, 2]


def test_a_pass_that_is_left_early_ends_with_its_last_step(loop: Loop) -> None:
    left = loop.iterate()
    loop.train(left)
    loop.fetch(left)
    following = loop.iterate()
    loop.train(following)

    assert loop.named("epoch") == [(0, 120, 180), (1, 220, 280)]
    assert loop.named("step") == [(0, 120, 180), (1, 220, 280)]


def test_the_last_step_of_a_program_is_not_forgotten(loop: Loop) -> None:
    loop.train(loop.iterate())

    assert marks.load(str(loop._path))[0] == []
    assert len(loop.named("step")) == 1


def test_batches_that_are_taken_ahead_belong_to_the_step_in_which_they_were_waited_for(loop: Loop) -> None:
    current = loop.iterate()
    for taken in (3, 2, 0):  # as Hugging Face does: two batches a step, and one more to know whether it is the last
        for _ in range(taken):
            loop.fetch(current)
        if taken == 2:
            loop.exhaust(current)
        for _ in range(2):
            loop.backward()
        loop.step()

    seen = loop.seen()
    assert [step for name, step, _, _ in seen if name == "fetch"] == [0, 0, 0, 1, 1]
    assert [step for name, step, _, _ in seen if name == "step"] == [0, 1, 2]
    assert [name for name, *_ in seen if name in ("epoch", "evaluate")] == ["epoch"]


@pytest.fixture
def by_hand(loop: Loop) -> Loop:
    """No optimiser is made."""
    loop.steps.has_optimiser = False
    return loop


def test_without_an_optimiser_a_batch_is_a_step_to_the_next_fetch(
    by_hand: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "now_ns", lambda: by_hand._now_ns)
    current = by_hand.iterate()
    for _ in range(3):
        by_hand.fetch(current)
        by_hand.backward()
        by_hand.backward()
        by_hand.tick()  # the update
    by_hand.exhaust(current)

    assert by_hand.named("step") == [(0, 120, 200), (1, 200, 280), (2, 280, 360)]
    assert len(by_hand.named("backward")) == 6
    assert by_hand.named("epoch") == [(0, 120, 380)]
    assert by_hand.named("optimiser") == []


def test_without_an_optimiser_or_a_loader_each_backward_pass_is_a_step(by_hand: Loop) -> None:
    for _ in range(3):
        by_hand.backward()

    assert by_hand.named("step") == [(0, 110, 120), (1, 120, 140), (2, 140, 160)]


def test_where_a_model_clears_its_gradients_a_step_is_from_one_time_to_the_next(by_hand: Loop) -> None:
    for _ in range(3):
        by_hand.steps.cleared("model", by_hand.tick()[1])
        by_hand.backward()
        by_hand.backward()  # two losses

    assert by_hand.named("step") == [(0, 120, 180), (1, 180, 240), (2, 240, 280)]
    assert [step for step, _, _ in by_hand.named("backward")] == [0, 0, 1, 1, 2, 2]


def test_a_model_may_clear_its_gradients_after_the_step(by_hand: Loop) -> None:
    for _ in range(3):
        by_hand.backward()
        by_hand.steps.cleared("model", by_hand.tick()[1])

    assert by_hand.named("step") == [(0, 110, 140), (1, 140, 180), (2, 180, 220)]


def test_backward_passes_before_the_first_optimiser_step_become_one_step(loop: Loop) -> None:
    for _ in range(2):
        for _ in range(3):
            loop.backward()
        loop.step()

    assert loop.named("step") == [(0, 110, 180), (1, 180, 260)]
    assert [step for step, _, _ in loop.named("backward")] == [0, 0, 0, 1, 1, 1]


def test_what_came_before_an_optimiser_was_made_is_in_no_step(by_hand: Loop) -> None:
    for _ in range(5):
        by_hand.backward()
    by_hand.steps.take_back()
    by_hand.train(by_hand.iterate())

    assert [step for step, _, _ in by_hand.named("step")] == [0]
    assert len(by_hand.named("backward")) == 1


def test_an_evaluation_without_a_loader_is_in_no_step(loop: Loop) -> None:
    def train(steps: int) -> None:
        for _ in range(steps):
            loop.backward()
            loop.step()

    train(3)
    assert loop.steps.put_aside(loop.tick()[1])
    loop.steps.resumed(loop.tick()[1])
    train(3)

    assert loop.named("evaluate") == [(2, 240, 260)]
    assert loop.named("step")[3] == (3, 260, 300)


def test_an_evaluation_that_comes_with_every_step_belongs_to_it(loop: Loop) -> None:
    for _ in range(4):
        loop.backward()
        loop.step()
        loop.steps.put_aside(loop.tick()[1])
        loop.steps.resumed(loop.tick()[1])

    assert all(before[2] == after[1] for before, after in pairwise(loop.named("step")))
    assert loop.named("evaluate") == []


def test_what_closures_took_is_not_the_optimisers_time(loop: Loop) -> None:
    loop.fetch(loop.iterate())
    assert not loop.steps.calls_closure("lbfgs")
    loop.steps.went_backward(150, 160)
    loop.steps.closure_begins(170)
    loop.steps.went_backward(180, 190)
    loop.steps.optimised("lbfgs", 145, 200, [(160, 170), (190, 200)])

    assert loop.named("optimiser") == [(0, 160, 170), (0, 190, 200)]
    assert loop.named("forward") == [(0, 140, 150), (0, 170, 180)]


def test_a_step_whose_last_batches_were_taken_ahead_keeps_its_backward_passes(loop: Loop) -> None:
    current = loop.iterate()  # one batch ahead, two batches a step, as timm does
    loop.fetch(current)
    for last in (False, False, True):
        loop.fetch(current)
        loop.backward()
        if last:
            loop.exhaust(current)
        else:
            loop.fetch(current)
        loop.backward()
        loop.step()

    assert [step for step, _, _ in loop.named("backward")] == [0, 0, 1, 1, 2, 2]
    assert len(loop.named("epoch")) == 1


def test_batches_without_a_step_at_the_end_of_a_pass_are_in_none(loop: Loop) -> None:
    for _ in range(2):
        current = loop.iterate()
        loop.train(current)
        loop.fetch(current)
        loop.backward()  # the last one does not fill a step
        loop.exhaust(current)

    assert len(loop.named("step")) == len(loop.named("backward")) == 2
    assert len(loop.named("epoch")) == 2


@pytest.mark.parametrize("steps", [1, 3])
def test_each_evaluation_of_an_endless_loader_is_marked_and_covers_no_step(loop, steps):
    training, testing = loop.iterate(), None
    for _ in range(3):
        for _ in range(steps):
            loop.train(training)
        testing = testing or loop.iterate("testing", graded=False)
        for _ in range(2):
            loop.fetch(testing)
    seen = loop.seen()
    evaluations = [(begin_ns, end_ns) for name, _, begin_ns, end_ns in seen if name == "evaluate"]
    whole = [(begin_ns, end_ns) for name, _, begin_ns, end_ns in seen if name == "step"]
    assert (len(evaluations), len(whole)) == (3, 3 * steps)
    assert all(before[1] <= after[0] for before, after in pairwise(sorted(evaluations + whole)))


class SlowSteps(Steps):
    """Every step is marked by the general rules."""

    _steady = property(lambda self: False, lambda self, value: None)


def drawn_loop(kind: type[Steps], path: Path, seed: int) -> tuple[list[tuple[int, str, str, int]], int]:
    """The marks of a loop of events in an order that the seed draws: mostly fetch, backward, step."""
    draw = random.Random(seed)
    marks.open_marks(str(path), capacity=20000)
    try:
        loop = Loop(path)
        loop.steps = kind(room=400)
        loop.steps.take_back()
        passes = [loop.iterate()]
        for _ in range(150):
            chance = draw.random()
            if chance < 0.8:
                loop.train(passes[-1])
            elif chance < 0.84:
                loop.exhaust(passes.pop())
                passes.append(loop.iterate(draw.choice(["training", "test"]), draw.random() < 0.7))
            elif chance < 0.87:
                passes.append(loop.iterate(draw.choice(["training", "test"]), draw.random() < 0.7))
            elif chance < 0.89 and loop.steps.put_aside(loop.tick()[1]):
                loop.steps.resumed(loop.tick()[1])
            else:
                draw.choice([lambda: loop.fetch(draw.choice(passes)), loop.backward, loop.step])()
        loop.steps.close()
    finally:
        marks.close_marks()
    return marks.load(str(path))


@pytest.mark.parametrize("seed", range(20))
def test_the_short_way_of_a_steady_loop_leaves_the_marks_of_the_general_rules(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    shortly, general = [0], Steps._end

    def counted(self: Steps, end_ns: int) -> object:
        shortly[0] -= self._optimisers != []
        return general(self, end_ns)

    finish = Steps.finish

    def finished(self: Steps) -> None:
        shortly[0] += self._optimisers != []
        finish(self)

    monkeypatch.setattr(Steps, "_end", counted)
    monkeypatch.setattr(Steps, "finish", finished)
    short = drawn_loop(Steps, tmp_path / "short.bin", seed)

    assert len(short[0]) > 500
    assert shortly[0] > 20
    assert short == drawn_loop(SlowSteps, tmp_path / "general.bin", seed)

"""Our networks: their sizes are the papers', they compute and learn at any scale, and need torch only when built."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
import torch
from multiply_adds import multiply_adds
from torch import nn
from torch.nn.functional import cross_entropy

from tare_inside import named
from tare_inside.workloads.models import BertLarge, Dlrm, LeNet5, MobileBert, RnnT

NAMES = named.names("models")
IMAGES = [name for name in NAMES if named.find("models", name).KIND == "image"]
PIXELS = {"alexnet": 63, "lenet5": 28, "squeezenet": 32}  # the smallest that it takes; 32 for the others


@pytest.fixture(autouse=True)
def _the_same_chance() -> Iterator[None]:
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # these are so small that threads would only wait for each other
    yield
    torch.set_num_threads(threads)


def tokens(*shape: int, below: int) -> torch.Tensor:
    return torch.randint(below, shape)


def speech_of_1_5_s(network: Any) -> None:
    """Each encoded frame scored once, and a letter predicted for each."""
    frames, features = RnnT.INPUT
    encoded = network.encode(torch.zeros(1, frames // 10, features))
    predicted, _ = network.predict(tokens(1, encoded.shape[1], below=28))
    network.join(encoded, predicted[:, :1])


SHARES = {"lstm": 32, "rnnt": 10}  # they go step by step, each step costs the same, and few are quicker to count
WHOLE: dict[str, Callable[[Any], Any]] = {  # one item of the full size
    **{name: lambda network, name=name: network(torch.zeros(1, *named.find("models", name).INPUT)) for name in IMAGES},
    "lstm": lambda network: network(tokens(1, 128 // 32, below=9)),
    "mobilebert": lambda network: network(tokens(1, 128, below=9)),
    "bert_large": lambda network: network(tokens(1, 384, below=9)),
    "gpt2": lambda network: network(tokens(1, 128, below=9)),
    "rnnt": speech_of_1_5_s,
    "dlrm": lambda network: network(torch.zeros(1, 13), tokens(1, 26, below=3)),
}

SMALL: dict[str, Callable[[Any], Any]] = {  # two small items, and scores (..., 7) for classes, or (...) for a click
    **{
        name: lambda network, name=name: network(
            torch.randn(2, named.find("models", name).INPUT[0], *2 * [PIXELS.get(name, 32)])
        )
        for name in IMAGES
    },
    "lstm": lambda network: network(tokens(2, 5, below=7)),
    "mobilebert": lambda network: network(tokens(2, 5, below=7)),
    "bert_large": lambda network: torch.stack(network(tokens(2, 7, below=9)), 1),
    "gpt2": lambda network: network(tokens(2, 5, below=7)),
    "rnnt": lambda network: network(torch.randn(2, 9, 240), tokens(2, 3, below=6)),
    "dlrm": lambda network: network(torch.randn(2, 13), tokens(2, 26, below=3)),
}
SHAPES = {
    **dict.fromkeys(IMAGES, (2, 7)),
    "lstm": (2, 5, 7),
    "mobilebert": (2, 5, 7),
    "bert_large": (2, 2, 7),
    "gpt2": (2, 5, 7),
    "rnnt": (2, 5, 4, 7),
    "dlrm": (2,),
}


def small(name: str) -> nn.Module:
    """The network at a small scale, with seven classes where it can have so many."""
    module = named.find("models", name)
    network: nn.Module = module.build(**({} if name in ("bert_large", "dlrm") else {"classes": 7}), scale=0.01)
    return network


def counted_whole(name: str) -> tuple[int, int]:
    """Parameters and FLOPs of the network as its file has it by default; without memory, for shapes are enough."""
    with torch.device("meta"):
        network = named.find("models", name).build()
        flops = SHARES.get(name, 1) * multiply_adds(network, WHOLE[name])
    return sum(weight.numel() for weight in network.parameters()), flops


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_flops_are_counted_and_not_claimed(name: str) -> None:
    module = named.find("models", name)
    assert counted_whole(name) == (module.PARAMS, module.FLOPS)


@pytest.mark.parametrize(
    ("name", "classes", "params", "flops"),
    [
        ("mobilenet_v3_large", 1000, 5.48e6, 225.4e6),
        ("resnet18", 1000, 11.68e6, 1.82e9),
        ("vgg11", 1000, 132.86e6, 7.63e9),
        ("resnet50", 1000, 25.6e6, None),  # the papers say 4 G, too round to check
        ("rnnt", 29, 45.3e6, None),
    ],
)
def test_sizes_are_those_of_the_papers_tables(name: str, classes: int, params: float, flops: float | None) -> None:
    module = named.find("models", name)
    assert classes == module.CLASSES
    assert pytest.approx(params, rel=0.01) == module.PARAMS
    assert flops is None or pytest.approx(flops, rel=0.01) == module.FLOPS


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("resnet152", 60192808),  # torchvision's
        ("googlenet", 6998552),  # the article's, as Caffe has it, without the side classifiers
        ("nasnet", 5289978),  # NASNet-A (4 @ 1056), trainable ones
    ],
)
def test_networks_of_future_work_have_the_sizes_that_others_have_published(name: str, params: int) -> None:
    assert params == named.find("models", name).PARAMS


def test_another_class_count_would_not_give_the_papers_sizes() -> None:
    network = named.find("models", "mobilenet_v3_large").build(classes=203)
    assert sum(weight.numel() for weight in network.parameters()) == 4462075  # GLD-23k has 203 classes


def test_lenet_has_the_papers_parameters_and_a_tenth_of_their_flops() -> None:
    """60 k is LeCun's network; 4.4 M that of the pruning articles, which the paper cites for it (see the docs)."""
    assert pytest.approx(60e3, rel=0.03) == LeNet5.PARAMS
    assert LeNet5.PAPER_FLOPS == 4.4e6
    assert pytest.approx(10.4, abs=0.05) == LeNet5.PAPER_FLOPS / LeNet5.FLOPS

    pruned = nn.Sequential(
        nn.Conv2d(1, 20, 5), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip
    assert sum(weight.numel() for weight in pruned.parameters()) == 431080
    counted = multiply_adds(pruned, lambda network: network(torch.zeros(1, 1, 28, 28)))
    biases = 20 * 24 * 24 + 50 * 8 * 8 + 500 + 10
    assert 2 * (counted - biases) == 4586000  # multiplications and additions apart; 4.37 x 2**20


def test_bert_large_is_the_articles_340_m_but_for_what_answers_do_not_need() -> None:
    assert pytest.approx(340e6, rel=0.02) == BertLarge.PARAMS


def test_the_transducer_has_the_parameters_of_mlperfs() -> None:
    def lstm(inputs: int, units: int) -> int:
        return 4 * units * (inputs + units + 2)

    encoder = lstm(240, 1024) + lstm(1024, 1024) + lstm(2048, 1024) + 2 * lstm(1024, 1024)
    prediction = 28 * 320 + 2 * lstm(320, 320)
    joint = (1024 + 320 + 1) * 512 + (512 + 1) * 29
    assert encoder + prediction + joint == RnnT.PARAMS == 45323037


def test_the_recommender_has_the_tables_of_the_kaggle_log() -> None:
    rows = Dlrm.table_rows()
    assert len(rows) == 26
    assert sum(rows) == 33762577
    bottom = 14 * 512 + 513 * 256 + 257 * 64 + 65 * 16
    top = (16 + 27 * 26 // 2 + 1) * 512 + 513 * 256 + 257
    assert 16 * sum(rows) + bottom + top == Dlrm.PARAMS


def test_a_scale_shrinks_the_tables_and_no_table_grows_or_vanishes() -> None:
    whole, less = Dlrm.table_rows(), Dlrm.table_rows(0.001)
    assert all(0 < few <= rows for few, rows in zip(less, whole, strict=True))
    assert sum(less) == pytest.approx(sum(whole) / 1000, rel=0.01)


@pytest.mark.parametrize("name", NAMES)
def test_a_small_one_goes_forward_and_backward(name: str) -> None:
    network = small(name)
    found = SMALL[name](network)
    assert tuple(found.shape) == SHAPES[name]

    goal = torch.zeros(found.numel() // 7, dtype=torch.long)
    loss = found.mean() if name == "dlrm" else cross_entropy(found.reshape(-1, 7), goal)
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(_dense(weight.grad)).all() for weight in network.parameters())


def _dense(gradient: torch.Tensor | None) -> torch.Tensor:
    assert gradient is not None
    return gradient.coalesce().values() if gradient.is_sparse else gradient


def trained(network: nn.Module, items: torch.Tensor, labels: torch.Tensor, steps: int) -> list[float]:
    """The losses of so many steps with the papers' optimiser."""
    optimiser = torch.optim.SGD(network.train().parameters(), lr=0.01, momentum=0.9)
    losses = []
    for _ in range(steps):
        found = network(items)
        loss = cross_entropy(found.reshape(-1, found.shape[-1]), labels.reshape(-1))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", ["lenet5", "resnet18", "mobilenet_v3_large"])
def test_training_on_images_lowers_the_loss(name: str) -> None:
    channels, pixels = named.find("models", name).INPUT[0], PIXELS.get(name, 32)
    losses = trained(small(name), torch.randn(8, channels, pixels, pixels), torch.arange(8) % 7, steps=12)
    assert min(losses[-3:]) < losses[0]


def test_training_on_words_lowers_the_loss() -> None:
    items = tokens(8, 12, below=7)
    losses = trained(small("lstm"), items, items, steps=12)
    assert min(losses[-3:]) < losses[0]


def test_the_deep_network_without_norms_does_not_run_away() -> None:
    items = tokens(2, 8, below=200)
    losses = trained(MobileBert.build(classes=200), items, items, steps=5)
    assert all(after < before for before, after in pairwise(losses))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_no_network_can_have_is_refused(name: str, scale: float) -> None:
    with pytest.raises(ValueError, match="scale is a number above 0"):
        named.find("models", name).build(scale=scale)


@pytest.mark.parametrize(("module", "classes"), [(BertLarge, 3), (Dlrm, 2)])
def test_a_class_count_that_does_not_fit_is_refused(module: Any, classes: int) -> None:
    with pytest.raises(ValueError, match=rf"class(es)?, not {classes}\.$"):
        module.build(classes=classes, scale=0.01)


def test_the_same_seed_makes_the_same_network() -> None:
    first, second = ((torch.manual_seed(5), small("resnet18"))[1] for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))


def test_decoding_step_by_step_is_what_the_whole_lattice_says() -> None:
    network: Any = RnnT.build(classes=7, scale=0.02).eval()
    speech, letters = torch.randn(2, 8, 240), tokens(2, 3, below=6)
    encoded = network.encode(speech)
    assert encoded.shape[:2] == (2, 4)

    predicted, state = network.start(2)
    one_by_one = [network.join(encoded, predicted)]
    for place in range(3):
        predicted, state = network.predict(letters[:, place : place + 1], state)
        one_by_one.append(network.join(encoded, predicted))
    assert torch.allclose(torch.cat(one_by_one, 2), network(speech, letters), atol=1e-6)


def test_an_odd_number_of_frames_is_encoded_to_its_last() -> None:
    network: Any = RnnT.build(scale=0.02).eval()
    speech = torch.randn(1, 9, 240)
    assert network.encode(speech).shape[1] == 5
    assert not torch.equal(
        network.encode(speech)[:, 4], network.encode(torch.cat((speech[:, :8], -speech[:, 8:]), 1))[:, 4]
    )


def test_words_that_are_no_words_change_nothing_where_they_are_masked() -> None:
    network: Any = BertLarge.build(scale=0.05).eval()
    text = tokens(1, 6, below=100)
    padded = torch.cat((text, tokens(1, 4, below=100)), 1)
    mask = torch.arange(10)[None] < 6
    whole = torch.stack(network(text))
    assert torch.allclose(torch.stack(network(padded, mask=mask))[:, :, :6], whole, atol=1e-5)
    assert not torch.allclose(torch.stack(network(padded))[:, :, :6], whole, atol=1e-5)


def test_each_word_of_mobilebert_sees_its_neighbours_on_both_sides() -> None:
    embedding: Any = MobileBert.build(classes=50, scale=0.02).eval().embedding
    text = tokens(1, 9, below=49) + 1
    other = text.clone()
    other[0, 4] = 1 + text[0, 4] % 49
    changed = (embedding(text) != embedding(other)).any(-1)[0]
    assert changed.nonzero().flatten().tolist() == [3, 4, 5]


def test_what_is_known_about_a_network_is_known_without_torch() -> None:
    asked = (
        "import sys; sys.modules['torch'] = None\n"
        "from tare_inside import named\n"
        "print(sum(named.find('models', name).PARAMS > 0 for name in named.names('models')))"
    )
    done = subprocess.run([sys.executable, "-c", asked], check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{len(NAMES)}\n", "")

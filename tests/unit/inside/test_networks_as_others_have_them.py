"""Our networks against torchvision's and transformers': with the same weights they say the same."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision_shim import import_torchvision

from tare_inside import named
from tare_inside.workloads.layers import from_transformers
from tare_inside.workloads.models import BertLarge, Gpt2, MobileBert

VISION = {
    "alexnet": "alexnet",
    "mobilenet_v3_large": "mobilenet_v3_large",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "squeezenet": "squeezenet1_0",
    "vgg11": "vgg11",
}


@pytest.fixture(autouse=True)
def _the_same_chance() -> Iterator[None]:
    torch.manual_seed(3)
    with torch.no_grad():
        yield


def transformers_module(name: str) -> Any:
    """A module of transformers; it imports torchvision by itself, which has to be possible."""
    import_torchvision()
    return importlib.import_module(f"transformers.models.{name}.modeling_{name}")


def give(network: nn.Module, tensors: list[torch.Tensor]) -> None:
    """Put these tensors, in this order, in the place of the network's own."""
    own = network.state_dict()
    assert [tuple(tensor.shape) for tensor in own.values()] == [tuple(tensor.shape) for tensor in tensors]
    network.load_state_dict(dict(zip(own, tensors, strict=True)), assign=True)


def learn_norms(network: nn.Module, images: torch.Tensor) -> None:
    """Let batch norms take their means from these images: with made-up ones most values die on their way."""
    norms = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the mean over all that was seen
    if norms:
        network.train()(images)


def parameters(network: nn.Module) -> int:
    return sum(weight.numel() for weight in network.parameters())


@pytest.mark.parametrize("name", VISION)
def test_an_image_network_is_torchvisions(name: str) -> None:
    images = torch.randn(2, 3, 96, 96)
    theirs = getattr(import_torchvision().models, VISION[name])()
    learn_norms(theirs, images)
    with torch.device("meta"):
        ours = named.find("models", name).build().eval()
    give(ours, list(theirs.eval().state_dict().values()))

    expected = theirs(images)
    assert parameters(ours) == parameters(theirs) == named.find("models", name).PARAMS
    near = float(expected.std()) / 1000
    assert torch.allclose(ours(images), expected, rtol=0, atol=near)
    next(iter(ours.parameters())).mul_(1.5)  # the one that is farthest from the output
    assert not torch.allclose(ours(images), expected, rtol=0, atol=near)


@pytest.mark.parametrize("name", ["alexnet", "mobilenet_v3_large", "resnet18", "resnet50", "squeezenet", "vgg11"])
def test_flops_without_biases_and_norms_are_what_torch_counts(name: str) -> None:
    module = named.find("models", name)
    with torch.device("meta"):
        network = module.build().eval()
        counter = FlopCounterMode(display=False)
        with counter:
            network(torch.zeros(1, *module.INPUT))
    products = counter.get_total_flops() / 2  # torch counts a multiplication and its addition as two
    assert products < module.FLOPS < 1.05 * products


def test_answering_is_as_in_transformers() -> None:
    transformers = transformers_module("bert")
    config = transformers.BertConfig(
        hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512,
        vocab_size=BertLarge.VOCABULARY, max_position_embeddings=BertLarge.LONGEST,
    )  # fmt: skip
    theirs = transformers.BertForQuestionAnswering(config).eval()
    ours = BertLarge.build(scale=2 / 16).eval()
    del ours.layers[2:]
    give(ours, list(theirs.state_dict().values()))

    tokens, segments = torch.randint(9999, (2, 12)), torch.randint(2, (2, 12))
    mask = torch.arange(12)[None] < torch.tensor([[12], [7]])
    said = theirs(input_ids=tokens, token_type_ids=segments, attention_mask=mask.long())
    start, end = ours(tokens, segments, mask)
    assert torch.allclose(start[0], said.start_logits[0], atol=1e-5)
    assert torch.allclose(end[1, :7], said.end_logits[1, :7], atol=1e-5)


def test_the_large_one_has_the_parameters_of_transformers() -> None:
    transformers = transformers_module("bert")
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    with torch.device("meta"):
        theirs, ours = transformers.BertForQuestionAnswering(config), BertLarge.build()
    assert parameters(ours) == parameters(theirs) == BertLarge.PARAMS
    assert [weight.shape for weight in ours.parameters()] == [weight.shape for weight in theirs.parameters()]


def in_our_order(state: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """transformers' tensors of MobileBERT as ours come: the last of a layer's small networks after the others."""
    last = re.compile(r"layer\.\d+\.(intermediate|output\.dense|output\.LayerNorm)\.")
    layers: dict[str, list[str]] = {}
    for name in state:
        if name.startswith("mobilebert."):
            layers.setdefault(name.split(".")[3] if ".layer." in name else "", []).append(name)
    names = []
    for within in layers.values():
        names += sorted(within, key=lambda name: last.search(name) is not None)
    names += [name for name in state if name.startswith("cls.predictions.transform.")]
    return [state[name] for name in names]


def test_mobilebert_is_as_in_transformers() -> None:
    transformers = transformers_module("mobilebert")
    theirs = transformers.MobileBertForMaskedLM(transformers.MobileBertConfig(num_hidden_layers=2)).eval()
    ours = MobileBert.build().eval()
    ours.layers = ours.layers[:2]
    for weight in theirs.parameters():
        weight.normal_(0, 0.05)
    state = theirs.state_dict()
    head = {name.split(".")[-1]: tensor for name, tensor in ours.vocabulary.named_parameters()}
    body = [tensor for name, tensor in ours.named_parameters() if not name.startswith("vocabulary.")]
    for mine, tensor in zip(body, in_our_order(state), strict=True):
        mine.copy_(tensor)
    head["beyond"].copy_(state["cls.predictions.dense.weight"])
    head["bias"].copy_(state["cls.predictions.decoder.bias"])

    tokens = torch.randint(9999, (2, 11))
    assert torch.allclose(ours(tokens), theirs(input_ids=tokens).logits, rtol=1e-4, atol=1e-4)


def test_the_whole_mobilebert_has_the_parameters_of_transformers() -> None:
    transformers = transformers_module("mobilebert")
    with torch.device("meta"):
        theirs = transformers.MobileBertForMaskedLM(transformers.MobileBertConfig())
    assert parameters(theirs) == MobileBert.PARAMS


def test_the_decoder_is_transformers_gpt2_with_and_without_a_cache() -> None:
    transformers = transformers_module("gpt2")
    config = transformers.GPT2Config(
        vocab_size=101, n_positions=64, n_embd=128, n_head=2, n_layer=2, bos_token_id=0, eos_token_id=0
    )
    theirs = transformers.GPT2LMHeadModel(config).eval()
    ours = from_transformers(theirs).eval()
    tokens = torch.randint(101, (2, 9))
    expected = theirs(tokens).logits
    assert torch.allclose(ours(tokens), expected, atol=1e-5)

    cache = ours.new_cache(2, 12)  # with room for more: what is empty must not be attended to
    assert torch.allclose(ours(tokens[:, :5], torch.arange(5), cache), expected[:, 4], atol=1e-5)
    for at in range(5, 9):
        found = ours(tokens[:, at : at + 1], torch.tensor([at]), cache)
        assert torch.allclose(found, expected[:, at], atol=1e-5)


@pytest.mark.parametrize(("size", "params"), [("small", 124439808), ("medium", 354823168)])
def test_the_decoder_has_the_published_sizes(size: str, params: int) -> None:
    with torch.device("meta"):
        assert parameters(Gpt2.build(size=size)) == params

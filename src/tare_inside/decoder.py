"""A decoder with a cache of keys and values: what GPT-2 is made of, and what its weights are called elsewhere.

For fine-tuning: adapters (LoRA), and layers whose activations are computed again when the gradients need them.
"""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tare_inside.layers import Attend

_DROPOUT = 0.1
_EPS = 1e-5
_DEVIATION = 0.02


class DecoderLayer(nn.Module):
    """Attention to what came before, then two linear layers; each on a normalised input, and added to it."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.joined = nn.Linear(width, 3 * width)  # query, key and value
        self.attend = Attend(_DROPOUT)
        self.project = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width, eps=_EPS)
        self.widen = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, hidden, mask, positions=None, keys=None, values=None):
        query, key, value = (self._apart(each) for each in self.joined(self.norm(hidden)).chunk(3, -1))
        if keys is not None:  # of all places until now; the mask leaves out those that are still empty
            key, value = keys.index_copy_(2, positions, key), values.index_copy_(2, positions, value)
        found = self.attend(query, key, value, mask).transpose(1, 2).flatten(2)
        hidden = hidden + nn.functional.dropout(self.project(found), _DROPOUT, self.training)
        wide = nn.functional.gelu(self.widen(self.feed_norm(hidden)), approximate="tanh")
        return hidden + nn.functional.dropout(self.narrow(wide), _DROPOUT, self.training)

    def _apart(self, tokens):
        return tokens.view(tokens.shape[0], tokens.shape[1], self.heads, -1).transpose(1, 2)


class Decoder(nn.Module):
    """For each place of a text (N, L) a score for each word that may come next (N, L, V)."""

    def __init__(self, vocabulary, longest, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(longest, width)
        self.layers = nn.ModuleList([DecoderLayer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.words = nn.Linear(width, vocabulary, bias=False)
        self.apply(_begin)
        for layer in self.layers:
            for linear in (layer.project, layer.narrow):  # what is added up, layer by layer, stays of one size
                nn.init.normal_(linear.weight, 0, _DEVIATION / (2 * layers) ** 0.5)
        self.words.weight = self.tokens.weight
        later = torch.full((longest, longest), float("-inf")).triu(1)
        self.register_buffer("later", later, persistent=False)

    def forward(self, tokens, positions=None, cache=None):
        """With a cache (`new_cache`), the tokens stand at `positions`, and only the last place is scored (N, V)."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        total = tokens.shape[1] if cache is None else cache[0][0].shape[2]
        mask = self.later[positions, :total]
        hidden = nn.functional.dropout(self.tokens(tokens) + self.places(positions), _DROPOUT, self.training)
        for number, layer in enumerate(self.layers):
            keys, values = (None, None) if cache is None else cache[number]
            hidden = layer(hidden, mask, positions, keys, values)
        return self.words(self.norm(hidden if cache is None else hidden[:, -1]))

    def new_cache(self, batch, length):
        """Room for the keys and values of `length` tokens, layer by layer."""
        weight = self.tokens.weight
        heads = self.layers[0].heads
        shape = (batch, heads, length, weight.shape[1] // heads)
        return [
            tuple(torch.zeros(shape, dtype=weight.dtype, device=weight.device) for _ in range(2)) for _ in self.layers
        ]


def _begin(layer):
    """As the article has it."""
    if isinstance(layer, (nn.Linear, nn.Embedding)):
        nn.init.normal_(layer.weight, 0, _DEVIATION)
    if isinstance(layer, nn.Linear) and layer.bias is not None:
        nn.init.zeros_(layer.bias)


_ELSEWHERE = {  # our names in a layer -> those of transformers' GPT-2
    "norm": "ln_1", "joined": "attn.c_attn", "project": "attn.c_proj",
    "feed_norm": "ln_2", "widen": "mlp.c_fc", "narrow": "mlp.c_proj",
}  # fmt: skip


def from_transformers(theirs):
    """A decoder with the weights of a transformers GPT2LMHeadModel, whose linear layers are stored the other way."""
    known, config = theirs.state_dict(), theirs.config
    network = Decoder(config.vocab_size, config.n_positions, config.n_embd, config.n_head, config.n_layer)
    state = {
        "tokens.weight": known["transformer.wte.weight"],
        "words.weight": known["transformer.wte.weight"],
        "places.weight": known["transformer.wpe.weight"],
    }
    for kind in ("weight", "bias"):
        state["norm." + kind] = known["transformer.ln_f." + kind]
        for number in range(config.n_layer):
            for ours, name in _ELSEWHERE.items():
                tensor = known["transformer.h.{}.{}.{}".format(number, name, kind)]
                is_linear = kind == "weight" and "norm" not in ours
                state["layers.{}.{}.{}".format(number, ours, kind)] = tensor.t() if is_linear else tensor
    network.load_state_dict(state)
    return network


def from_folder(folder):
    """A decoder with the weights of a local folder."""
    from transformers import GPT2LMHeadModel

    return from_transformers(GPT2LMHeadModel.from_pretrained(folder, local_files_only=True))


class Adapted(nn.Module):
    """A linear layer that stays as it is, and beside it two narrow ones that learn (LoRA, Hu et al. 2021).

    The second begins with zeros: before the first step the sum is what the layer alone gives.
    """

    def __init__(self, linear, rank, alpha):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.share = alpha / float(rank)

    def forward(self, tokens):
        return self.linear(tokens) + self.up(self.down(tokens)) * self.share


def adapt(network, rank, alpha):
    """Nothing of the network learns any more but adapters, at the layers that make query, key and value."""
    for weights in network.parameters():
        weights.requires_grad_(False)
    for layer in network.layers:
        layer.joined = Adapted(layer.joined, rank, alpha)


class Recomputed(nn.Module):
    """A layer that keeps its input alone, and computes the rest again in the backward pass."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *inputs):
        return checkpoint(self.layer, *inputs, use_reentrant=False)


def recompute(network):
    network.layers = nn.ModuleList([Recomputed(layer) for layer in network.layers])

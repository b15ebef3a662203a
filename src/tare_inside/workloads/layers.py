"""Blocks of which the networks in models.py are built that read text, speech or tables, and what `scale` means for all.

This file and image_layers.py import torch; models.py does not, before a network is built.
"""

import math

import torch
from torch import nn
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint


def divisible(count, by=8):
    """The multiple of `by` nearest to `count`, never below nine tenths of it: the rule of the MobileNets."""
    near = max(by, int(count + by / 2) // by * by)
    return near if near >= 0.9 * count else near + by


def scaled(count, scale, by=8):
    """`count` at scale 1, exactly; else about that share of it, as a multiple of `by`."""
    return count if checked(scale) == 1 else divisible(count * scale, by)


def repeated(count, scale):
    """How often a block is repeated: `count` times at scale 1, at least once at any other."""
    return count if checked(scale) == 1 else max(1, int(count * scale + 0.5))


def checked(scale):
    """The scale, if a network can have it."""
    if not 0 < scale < float("inf"):
        raise ValueError("a network's scale is a number above 0, not {}.".format(scale))
    return scale


class Attend(nn.Module):
    """Softmax of query times key, times value, for heads that are already apart; `mask` is added to the scores."""

    def __init__(self, dropout):
        super().__init__()
        self.dropout = dropout

    def forward(self, query, key, value, mask=None):
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        if mask is not None:
            scores = scores + mask
        weights = nn.functional.dropout(scores.softmax(-1), self.dropout, self.training)
        return torch.matmul(weights, value)


class Heads(nn.Module):
    """Query, key and value, each by a linear layer of its own, and attention in so many heads."""

    def __init__(self, width, heads, dropout, value_width=None):
        super().__init__()
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(value_width or width, width)
        self.attend = Attend(dropout)
        self.heads = heads

    def forward(self, query, key, value, mask=None):
        query, key, value = (
            self._apart(layer(tokens)) for layer, tokens in ((self.query, query), (self.key, key), (self.value, value))
        )
        return self.attend(query, key, value, mask).transpose(1, 2).flatten(2)

    def _apart(self, tokens):
        return tokens.view(tokens.shape[0], tokens.shape[1], self.heads, -1).transpose(1, 2)


def score_mask(mask):
    """What is added to the scores, from a mask (N, L) that is true where there is a token; None if there is none."""
    if mask is None:
        return None
    return (~mask.bool())[:, None, None, :] * -1e9


def token_positions(tokens):
    """0, 1, 2, ... for tokens (N, L), as one row that goes for all of them."""
    return torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)


_DROPOUT = 0.1
_EPS = 1e-12


class BertEmbedding(nn.Module):
    """Tokens, their places and the segments that they are in, as one vector for each token."""

    def __init__(self, vocabulary, longest, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(longest, width)
        self.segments = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=_EPS)
        self.dropout = nn.Dropout(_DROPOUT)

    def forward(self, tokens, segments):
        places = self.positions(token_positions(tokens))
        return self.dropout(self.norm(self.tokens(tokens) + self.segments(segments) + places))


class BertLayer(nn.Module):
    """Attention, then a small network on each token; what goes in is added to what comes out, and normalised."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = Heads(width, heads, _DROPOUT)
        self.attended = nn.Sequential(nn.Linear(width, width), nn.Dropout(_DROPOUT))
        self.attended_norm = nn.LayerNorm(width, eps=_EPS)
        self.feed = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(_DROPOUT)
        )
        self.norm = nn.LayerNorm(width, eps=_EPS)

    def forward(self, tokens, mask):
        tokens = self.attended_norm(self.attended(self.heads(tokens, tokens, tokens, mask)) + tokens)
        return self.norm(self.feed(tokens) + tokens)


class QuestionAnswering(nn.Module):
    """For each token how likely the answer starts there, and how likely it ends there: two tensors (N, L)."""

    def __init__(self, vocabulary, longest, width, heads, layers):
        super().__init__()
        self.embedding = BertEmbedding(vocabulary, longest, width)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.span = nn.Linear(width, 2)

    def forward(self, tokens, segments=None, mask=None):
        """Tokens (N, L); segments, 0 for the question and 1 for the text; mask, true where there is a token."""
        found = self.embedding(tokens, tokens.new_zeros(tokens.shape) if segments is None else segments)
        added = score_mask(mask)
        for layer in self.layers:
            found = layer(found, added)
        start, end = self.span(found).unbind(-1)
        return start, end


_HEADS = 4
_FEEDS = 4
_ATTENTION_DROPOUT = 0.1
_DEVIATION = 0.02


class Affine(nn.Module):
    """What MobileBERT has for a normalisation: a weight and a bias for each channel, and no mean or deviation."""

    def __init__(self, width):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, tokens):
        return tokens * self.weight + self.bias


class MobileBertEmbedding(nn.Module):
    """Each token together with its two neighbours, its place, and the (only) segment."""

    def __init__(self, vocabulary, longest, embedded, width):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, embedded, padding_idx=0)
        self.positions = nn.Embedding(longest, width)
        self.segments = nn.Embedding(2, width)
        self.widen = nn.Linear(3 * embedded, width)
        self.norm = Affine(width)

    def forward(self, tokens):
        own = self.tokens(tokens)
        after, before = pad(own[:, 1:], (0, 0, 0, 1)), pad(own[:, :-1], (0, 0, 1, 0))
        found = self.widen(torch.cat((after, own, before), 2))
        return self.norm(found + self.positions(token_positions(tokens)) + self.segments.weight[0])


class Feed(nn.Module):
    """A small network on each token, added to what goes in."""

    def __init__(self, width, hidden):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))
        self.norm = Affine(width)

    def forward(self, tokens):
        return self.norm(self.body(tokens) + tokens)


class MobileBertLayer(nn.Module):
    """Narrow, attend, four small networks, widen again; what goes in is added to what comes out."""

    def __init__(self, width, narrow):
        super().__init__()
        self.heads = Heads(narrow, _HEADS, _ATTENTION_DROPOUT, value_width=width)
        self.attended = nn.Linear(narrow, narrow)
        self.attended_norm = Affine(narrow)
        self.widen = nn.Linear(narrow, width)
        self.norm = Affine(width)
        self.narrow = nn.Sequential(nn.Linear(width, narrow), Affine(narrow))
        self.narrow_shared = nn.Sequential(nn.Linear(width, narrow), Affine(narrow))  # for query and key
        self.feeds = nn.Sequential(*(Feed(narrow, width) for _ in range(_FEEDS)))

    def forward(self, tokens):
        shared = self.narrow_shared(tokens)
        attended = self.attended(self.heads(shared, shared, tokens))
        found = self.feeds(self.attended_norm(attended + self.narrow(tokens)))
        return self.norm(self.widen(found) + tokens)


class Vocabulary(nn.Module):
    """A score for each word: the table of the embedding, used again, beside a table for the channels beyond it."""

    def __init__(self, table, width):
        super().__init__()
        words, embedded = table.shape
        self.table = table
        self.beyond = nn.Parameter(torch.empty(width - embedded, words).normal_(0, _DEVIATION))
        self.bias = nn.Parameter(torch.zeros(words))

    def forward(self, tokens):
        return tokens.matmul(torch.cat((self.table.t(), self.beyond), 0)) + self.bias


def _begin_small(layer):
    """As the article has it: nothing here normalises, and from torch's larger weights the loss is soon NaN."""
    if isinstance(layer, (nn.Linear, nn.Embedding)):
        nn.init.normal_(layer.weight, 0, _DEVIATION)
    if isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)


class MaskedLanguage(nn.Module):
    """For each place of a text (N, L) a score for each word of the vocabulary (N, L, V)."""

    def __init__(self, vocabulary, longest, embedded, width, narrow, layers):
        super().__init__()
        self.embedding = MobileBertEmbedding(vocabulary, longest, embedded, width)
        self.layers = nn.Sequential(*(MobileBertLayer(width, narrow) for _ in range(layers)))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.LayerNorm(width, eps=1e-12))
        self.vocabulary = Vocabulary(self.embedding.tokens.weight, width)
        self.apply(_begin_small)

    def forward(self, tokens):
        return self.vocabulary(self.transform(self.layers(self.embedding(tokens))))


_TRANSDUCER_DROPOUT = 0.32


class Transducer(nn.Module):
    """Encoder, prediction network and joint network, each to be called by itself when decoding.

    The last of the classes is the blank; it is never an input of the prediction network.
    """

    def __init__(self, features, encoded, predicted, joint, classes):
        super().__init__()
        self.blank = classes - 1
        self.before = nn.LSTM(features, encoded, 2, batch_first=True, dropout=_TRANSDUCER_DROPOUT)
        self.after = nn.LSTM(2 * encoded, encoded, 3, batch_first=True, dropout=_TRANSDUCER_DROPOUT)
        self.embedding = nn.Embedding(classes - 1, predicted)
        self.prediction = nn.LSTM(predicted, predicted, 2, batch_first=True, dropout=_TRANSDUCER_DROPOUT)
        self.joint = nn.Sequential(
            nn.Linear(encoded + predicted, joint), nn.ReLU(), nn.Dropout(_TRANSDUCER_DROPOUT), nn.Linear(joint, classes)
        )

    def encode(self, features):
        """Features (N, T, F) as (N, T / 2, E): after two layers, each two frames in a row become one."""
        frames, _ = self.before(features)
        if frames.shape[1] % 2:
            frames = pad(frames, (0, 0, 0, 1))
        found, _ = self.after(frames.reshape(frames.shape[0], frames.shape[1] // 2, -1))
        return found

    def start(self, count):
        """What the prediction network says before the first letter, for so many texts: (N, 1, P), and its state."""
        nothing = self.embedding.weight.new_zeros(count, 1, self.embedding.embedding_dim)
        return self.prediction(nothing)

    def predict(self, letters, state=None):
        """What it says after these letters (N, U), going on from a state: (N, U, P), and the state after them."""
        return self.prediction(self.embedding(letters), state)

    def join(self, encoded, predicted):
        """Scores (N, T, U, classes) for each frame of (N, T, E) with each place in the text of (N, U, P)."""
        shape = (encoded.shape[0], encoded.shape[1], predicted.shape[1], -1)
        sides = (encoded.unsqueeze(2).expand(*shape), predicted.unsqueeze(1).expand(*shape))
        return self.joint(torch.cat(sides, 3))

    def forward(self, features, letters):
        """The scores of every alignment of the letters (N, U) to the speech: (N, T / 2, U + 1, classes)."""
        first, state = self.start(features.shape[0])
        later, _ = self.predict(letters, state)
        return self.join(self.encode(features), torch.cat((first, later), 1))


_WORD_LSTM_DROPOUT = 0.5


class WordLstm(nn.Module):
    """For each place of a text (N, L) a score for each word that may come next (N, L, V)."""

    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.embedding = nn.Sequential(nn.Embedding(vocabulary, width), nn.Dropout(_WORD_LSTM_DROPOUT))
        self.lstm = nn.LSTM(width, width, layers, batch_first=True, dropout=_WORD_LSTM_DROPOUT)
        self.words = nn.Sequential(nn.Dropout(_WORD_LSTM_DROPOUT), nn.Linear(width, vocabulary))

    def forward(self, tokens):
        found, _ = self.lstm(self.embedding(tokens))
        return self.words(found)


def _perceptron(widths, last):
    layers = []
    for inputs, outputs in zip(widths, widths[1:]):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *last)


class Products(nn.Module):
    """The product of each vector with each other one, beside the first vector itself."""

    def __init__(self, vectors):
        super().__init__()
        rows, columns = zip(*((row, column) for row in range(vectors) for column in range(row)))
        self.register_buffer("rows", torch.tensor(rows), persistent=False)
        self.register_buffer("columns", torch.tensor(columns), persistent=False)

    def forward(self, vectors):
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
        return torch.cat((vectors[:, 0], products), 1)


class Recommender(nn.Module):
    """How likely each click is: one score (N,) between 0 and 1."""

    def __init__(self, numbers, tables, bottom, top):
        super().__init__()
        width, vectors = bottom[-1], len(tables) + 1
        # Sparse gradients: a step touches a few rows of each table, not hundreds of millions of numbers.
        self.tables = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum", sparse=True) for rows in tables)
        self.bottom = _perceptron((numbers,) + tuple(bottom), [nn.ReLU()])
        self.products = Products(vectors)
        self.top = _perceptron((width + vectors * (vectors - 1) // 2,) + tuple(top), [nn.Sigmoid()])

    def forward(self, numbers, categories):
        """Numbers (N, 13) and, for each table, one row of it (N, 26)."""
        found = [table(categories[:, place : place + 1]) for place, table in enumerate(self.tables)]
        vectors = torch.stack([self.bottom(numbers)] + found, 1)
        return self.top(self.products(vectors)).squeeze(1)


# A decoder with a cache of keys and values: what GPT-2 is made of, and what its weights are called elsewhere.
#
# For fine-tuning: adapters (LoRA), and layers whose activations are computed again when the gradients need them.

_DECODER_EPS = 1e-5


class DecoderLayer(nn.Module):
    """Attention to what came before, then two linear layers; each on a normalised input, and added to it."""

    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=_DECODER_EPS)
        self.joined = nn.Linear(width, 3 * width)  # query, key and value
        self.attend = Attend(_DROPOUT)
        self.project = nn.Linear(width, width)
        self.feed_norm = nn.LayerNorm(width, eps=_DECODER_EPS)
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
        self.norm = nn.LayerNorm(width, eps=_DECODER_EPS)
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


def decoder_from_folder(folder):
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


def adapt_decoder(network, rank, alpha):
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


def recompute_decoder(network):
    network.layers = nn.ModuleList([Recomputed(layer) for layer in network.layers])

"""The built-in fine-tuning: `python -m tare_inside.workloads.programs.finetune JOB`.

JOB is JSON or the path of a file.

GPT-2 learns to predict the next token, with AdamW: all of its weights (`method: full`), or adapters beside the linear
layers that make query, key and value (`lora`). The loop, its marks and its figures are those of `train.py`. A step is
one update: `accumulate` mini-batches of `batch` texts go forward and backward, their gradients add up, and then the
optimiser steps. With `phases`, `forward` and `backward` are marked for each of them and add up over the step.

`precision: bf16` is mixed precision (autocast): the weights, their gradients and the optimiser's state stay in fp32.
The tokens are random, the same in every trial, or those of a file; the trial's seed changes the weights and the order.
"""

import inspect
import itertools
import json
import os
import struct
import sys

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint

from tare_inside.workloads import layers
from tare_inside.workloads.models import Gpt2
from tare_inside.workloads.programs import generate, running, tasks, train, training_loop
from tare_inside.workloads.programs.running import program, read_job

SHOWN = ("steps", "loss", "loss_digest", "trained_parameters")


def obstacle(device, precision, weights=None, checkpointing=False):
    """Why this PyTorch cannot compute so on this device, as a sentence; None if it can."""
    if precision == "bf16" and not hasattr(torch, "autocast"):
        return "`precision: bf16` needs PyTorch 1.10 or later: set `precision: fp32`."
    if checkpointing and "use_reentrant" not in inspect.signature(checkpoint).parameters:
        return "`checkpointing` needs PyTorch 1.11 or later: leave it out."
    return generate.obstacle(device, precision, weights)


class Windows(object):
    """Texts of equal length, one after another in a row of tokens; each with the tokens that follow."""

    def __init__(self, tokens, length):
        self._tokens, self._length = tokens, length

    def __len__(self):
        return (len(self._tokens) - 1) // self._length

    def __getitem__(self, index):
        begin = index * self._length
        end = begin + self._length
        return self._tokens[begin:end], self._tokens[begin + 1 : end + 1]


def open_data(job):
    """(the texts, the steps of an epoch, None: the vocabulary is the network's own); ValueError says why not."""
    vocabulary, longest = sizes(job)
    if job["length"] > longest:
        raise ValueError("GPT-2 has room for {} tokens and `length` is {}.".format(longest, job["length"]))
    texts = job["steps_per_epoch"] * job["batch"] * train.pieces_of(job)
    if job.get("data_path"):
        tokens = read_tokens(job["data_path"], texts * job["length"] + 1)
        check_tokens(job, tokens, texts * job["length"] + 1, vocabulary)
    else:
        words = torch.Generator()
        words.manual_seed(tasks.DATA_SEED)
        tokens = torch.randint(vocabulary, (texts * job["length"] + 1,), generator=words)
    return Windows(tokens, job["length"]), job["steps_per_epoch"], None


def sizes(job):
    """The vocabulary of the network, and the longest text that it takes."""
    if not job.get("weights"):
        return Gpt2.SIZES[job["size"]][2], Gpt2.LONGEST
    with open(os.path.join(job["weights"], "config.json")) as file:
        config = json.load(file)
    return config["vocab_size"], config["n_positions"]


def read_tokens(path, most):
    """The first tokens of a file, by their numbers: 16 bits each if it is called *.bin, else words of a text."""
    if path.endswith(".bin"):
        with open(path, "rb") as file:
            content = file.read(2 * most)
        numbers = struct.unpack("<{}H".format(len(content) // 2), content[: len(content) // 2 * 2])
        return torch.tensor(numbers, dtype=torch.long)
    with open(path) as file:
        try:
            numbers = [int(word) for word in itertools.islice((each for line in file for each in line.split()), most)]
            return torch.tensor(numbers, dtype=torch.long)
        except ValueError:
            raise ValueError("{}: not only numbers of tokens, with white space between them.".format(path)) from None


def check_tokens(job, tokens, wanted, vocabulary):
    """ValueError where the file has too few tokens for an epoch, or tokens that the network does not know."""
    if len(tokens) < wanted:
        raise ValueError(
            "{}: an epoch needs {} tokens (`steps_per_epoch` x `batch` x `accumulate` x `length`) and there are "
            "{}.".format(job["data_path"], wanted, len(tokens))
        )
    unknown = [each for each in (int(tokens.min()), int(tokens.max())) if not 0 <= each < vocabulary]
    if unknown:
        raise ValueError(
            "{}: token {} is not one of the network's {}.".format(job["data_path"], unknown[0], vocabulary)
        )


def built(job, classes=None):
    """The network on its device, ready to learn what it is to learn, and its optimiser."""
    if job.get("weights"):
        network = layers.decoder_from_folder(job["weights"])
    else:
        network = Gpt2.build(size=job["size"], scale=job["scale"])
    if job["method"] == "lora":
        layers.adapt_decoder(network, job["rank"], job["alpha"])
    if job["checkpointing"]:
        layers.recompute_decoder(network)
    network.train().to(job["device"])
    learning = [weights for weights in network.parameters() if weights.requires_grad]
    return network, torch.optim.AdamW(learning, lr=job["lr"])


def parts_of(job, network, optimiser):
    """Forward, backward and optimiser step; the gradients of all pieces add up to those of one large mini-batch."""
    pieces = train.pieces_of(job)

    def loss_of(scores, labels):
        return cross_entropy(scores, labels) / pieces

    forward, backward, optimise = training_loop.parts_of(network, optimiser, loss_of)
    if job["precision"] == "fp32":
        return forward, backward, optimise

    def mixed(inputs, labels):
        with torch.autocast(job["device"], dtype=torch.bfloat16):
            return forward(inputs, labels)

    return mixed, backward, optimise


def run(job):
    """Fine-tune as the job says; what came of it, as plain data."""
    problem = obstacle(job["device"], job["precision"], job.get("weights"), job["checkpointing"])
    if problem is not None:
        raise ValueError(problem)
    counted = {}

    def built_and_counted(job, classes):
        network, optimiser = built(job, classes)
        every = list(network.parameters())
        counted["parameters"] = sum(each.numel() for each in every)
        counted["trained_parameters"] = sum(each.numel() for each in every if each.requires_grad)
        return network, optimiser

    def parts(network, optimiser):
        return parts_of(job, network, optimiser)

    outcome = train.run(dict(job, workers=0), train.Task(open_data, built_and_counted, parts))
    on_gpu = job["device"] != "cpu"
    outcome["metrics"]["peak_bytes"] = torch.cuda.max_memory_allocated() if on_gpu else running.peak_bytes()
    outcome.update(counted, tokens_a_step=job["batch"] * train.pieces_of(job) * job["length"])
    return outcome


def main(arguments):
    return program(run, read_job(arguments[0]), SHOWN)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

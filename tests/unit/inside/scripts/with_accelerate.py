"""Hugging Face accelerate: a loop by hand, two batches a step, evaluation after each epoch."""

import warnings

import torchvision_shim  # noqa: F401  (before accelerate, which may import torchvision)

warnings.simplefilter("ignore")

import torch  # noqa: E402
from accelerate import Accelerator  # noqa: E402
from small import data, exact, net  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model, optimizer, training, testing = accelerator.prepare(
    net, torch.optim.SGD(net.parameters(), lr=0.1), DataLoader(data, 4), DataLoader(data, 16)
)
for _ in range(2):
    model.train()
    for x, y in training:
        with accelerator.accumulate(model):
            loss = cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        print(exact(loss))
    model.eval()
    with torch.no_grad():
        for x, y in testing:
            print("test", exact(cross_entropy(model(x), y)))

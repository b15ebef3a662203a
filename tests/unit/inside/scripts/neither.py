"""Batches, and modules, but nothing is trained and no model is asked: the mean of a data set."""

import torch
from small import data, exact, net
from torch.utils.data import DataLoader

sums = [torch.relu(x).sum() for x, _ in DataLoader(data, 8)]
print(exact(torch.stack(sums).mean()), exact(net(data.tensors[0]).sum()))

"""Inference on batches of a DataLoader whose data set has modules of its own (transforms with and without weights)."""

import torch
from small import data, exact, net
from torch.utils.data import DataLoader, Dataset

transform = torch.nn.Sequential(torch.nn.LayerNorm(20), torch.nn.Identity()).eval()


class Transformed(Dataset):
    def __len__(self):
        return len(data)

    def __getitem__(self, index):
        with torch.no_grad():
            return transform(data[index][0])


scale = torch.nn.Identity().eval()
net.eval()
for _ in range(2):
    for x in DataLoader(Transformed(), 8):
        with torch.no_grad():
            print(exact(net(scale(x)).sum()), exact(net(x * 2).sum()))

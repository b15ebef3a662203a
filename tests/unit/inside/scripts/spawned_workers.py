"""Loader workers that are started as fresh processes, and import this file again."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1)  # in the workers too, since it stands at the top


def main():
    for x, y in DataLoader(data, 8, num_workers=1, multiprocessing_context="spawn"):
        optimiser.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
        print(exact(loss))


if __name__ == "__main__":
    main()

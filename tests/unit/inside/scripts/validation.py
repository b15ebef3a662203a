"""Training with a validation pass after each epoch, a single test batch during it, and a pass that is left early."""

import itertools

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
training, testing = DataLoader(data, 8, shuffle=True), DataLoader(data, 4)


def test(batches):
    net.eval()
    with torch.no_grad():
        print("test", exact(sum(cross_entropy(net(x), y) for x, y in batches)))
    net.train()


test(itertools.islice(testing, 2))
for _ in range(2):
    for number, (x, y) in enumerate(training):
        optimiser.zero_grad()
        loss = cross_entropy(net(x), y)
        loss.backward()
        optimiser.step()
        print(exact(loss))
        if number == 1:
            with torch.no_grad():
                x, y = next(iter(testing))
                print("look", exact(cross_entropy(net(x), y)))
    test(testing)

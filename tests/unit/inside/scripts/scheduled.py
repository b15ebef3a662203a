"""A loop that knows its optimiser only through something else; closures; batches by hand, two for a step."""

import torch
from small import data, exact, net
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


class Averaged(torch.optim.SGD):
    pass


class Scheduled:
    def __init__(self, optimiser):
        self.optimiser = optimiser
        self.schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (1 + step))

    def step(self, closure=None):
        result = self.optimiser.step(closure)
        self.schedule.step()
        return result


loader = DataLoader(data, 8)
scheduled = Scheduled(Averaged(net.parameters(), lr=0.1, momentum=0.9))
quasi_newton = torch.optim.LBFGS(net.parameters(), max_iter=2)
for steps in (scheduled, quasi_newton):  # the second goes backward several times in one step
    for x, y in loader:

        def closure():
            scheduled.optimiser.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()
            return loss

        print(exact(steps.step(closure)))

batches = iter(loader)
for _ in range(2):
    for _ in range(2):
        x, y = next(batches)
        loss = cross_entropy(net(x), y)
        loss.backward()
    scheduled.step()
    print(exact(loss))

copied = torch.optim.Adam(net.parameters())
copied.load_state_dict(copied.state_dict())
print(type(iter(loader)).__name__, torch.optim.SGD.step.__name__)

"""Two networks with an optimiser each, on every batch."""

import torch
from small import Net, data, exact
from torch.nn.functional import binary_cross_entropy_with_logits as against
from torch.utils.data import DataLoader

generator, critic = Net(20), Net(1)
for_generator = torch.optim.Adam(generator.parameters(), lr=0.01)
for_critic = torch.optim.Adam(critic.parameters(), lr=0.01)
for x, _ in DataLoader(data, 8, shuffle=True):
    real, fake = torch.ones(len(x), 1), torch.zeros(len(x), 1)
    made = generator(torch.randn_like(x))
    for_critic.zero_grad()
    told = against(critic(x), real) + against(critic(made.detach()), fake)
    told.backward()
    for_critic.step()
    for_generator.zero_grad()
    fooled = against(critic(made), real)
    fooled.backward()
    for_generator.step()
    print(exact(told), exact(fooled))

"""The optimiser of local training, against torch's class."""

import torch
from torch import nn

from dncfl.common.tasks.training import Optimiser, Recipe


def test_every_bit_is_that_of_torchs_own_class() -> None:
    recipe = Recipe(epochs=1, batch_size=1, lr=0.03, momentum=0.7)
    torch.manual_seed(0)
    ours = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.Linear(3, 2))
    ours[3].bias.requires_grad_(False)
    theirs = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3), nn.Linear(3, 2))
    theirs.load_state_dict(ours.state_dict())
    theirs[3].bias.requires_grad_(False)
    optimisers = (
        Optimiser(ours.parameters(), recipe),
        torch.optim.SGD(theirs.parameters(), lr=recipe.lr, momentum=recipe.momentum),
    )
    for step in range(5):
        images = torch.randn(7, 5)
        for model, step_on in ((ours, optimisers[0].step), (theirs, optimisers[1].step)):
            model.zero_grad()
            outputs = model[:3](images) if step % 2 else model(images)  # the last layer has no gradient in odd steps
            outputs.square().sum().backward()
            step_on()
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))

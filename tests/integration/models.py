"""A model without dropout: nodes that train in threads of one process would share torch's random numbers."""

from torch import nn

LINEAR = "tests.integration.models:linear"


def linear() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))

"""From θ to a message."""

import numpy as np
import pytest
from torch import nn

from dncfl.common.config import load_config
from dncfl.common.errors import UpdateRefused
from dncfl.common.message import decode_message
from dncfl.common.scheme import message_format
from dncfl.common.tasks.model import build_model, load_vector, to_vector
from dncfl.common.tasks.training import Recipe, train
from dncfl.node.trainer import local_trainers

SIZES = (250, 10, 5000, 20, 16_000, 50, 500, 10)
"""Of the letter's model: two convolutions and two linear layers, weights and biases."""


@pytest.mark.parametrize("bound", [0.1, "adaptive", "per-tensor", 0.001])
def test_the_message_says_what_was_trained(bound: object) -> None:
    """The message, read back, is within a step of an update that is trained here once more."""
    config = load_config(None, {"clients": 10, "bound": bound, "local_epochs": 1})
    (trainer,) = local_trainers(config, [4])
    model = build_model("paper-cnn", config.seed, "cpu")
    theta = to_vector(model)
    local = trainer.update(theta, round=3)
    load_vector(model, theta)
    recipe = Recipe(epochs=1, batch_size=32, lr=0.01, momentum=0.5)
    train(model, trainer.samples, recipe, seed=config.seed, round=3, client=4)
    delta = to_vector(model) - theta
    update = decode_message(local.message, message_format(config, SIZES), round=3, sender=4)
    assert update.num_samples == 143
    if bound == "per-tensor":
        tensors = [delta[last - size : last] for last, size in zip(np.cumsum(SIZES), SIZES, strict=True)]
        assert update.parts == tuple((part.size, np.abs(part).max()) for part in tensors)
    else:
        assert update.parts == ((21_840, np.abs(delta).max() if bound == "adaptive" else bound),)
    bounds = np.repeat([part.bound for part in update.parts], [part.size for part in update.parts])
    assert local.num_clipped == np.count_nonzero(np.abs(delta) > bounds)
    errors = update.values(255) - np.clip(delta, -bounds, bounds)
    assert (np.abs(errors) <= 2 * bounds / 254 * (1 + 1e-6)).all()
    assert (local.num_clipped > 0) == (bound == 0.001)


def counting_batches() -> nn.Module:
    """A model whose batch norm weighs the next batch by how many it has counted."""
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(784, momentum=None), nn.Linear(784, 10))


def test_what_was_trained_before_changes_nothing() -> None:
    """Neither another round at this node, nor another node in the same process."""
    config = load_config(None, {"clients": 10, "local_epochs": 1, "model": f"{__name__}:counting_batches"})
    first, second = local_trainers(config, [0, 1])
    theta = to_vector(build_model(config.model, config.seed, "cpu"))
    alone = first.update(theta, round=1).message.symbols
    second.update(theta, round=1)
    first.update(theta, round=2)
    assert np.array_equal(first.update(theta, round=1).message.symbols, alone)


def test_buffers_have_bounds_of_their_own() -> None:
    """By default, for a model of one's own: a variance may change far more than any weight."""
    config = load_config(None, {"clients": 10, "local_epochs": 1, "model": f"{__name__}:counting_batches"})
    (trainer,) = local_trainers(config, [0])
    theta = to_vector(build_model(config.model, config.seed, "cpu"))
    local = trainer.update(theta, round=1)
    sizes = (784, 784, 7840, 10, 784, 784)
    assert trainer.tensor_sizes == sizes
    update = decode_message(local.message, message_format(config, sizes), round=1, sender=0)
    mean, variance = trainer.samples.inputs.flatten(1).mean(0), update.values(255)[-784:]
    assert update.parts[4].bound == pytest.approx(float(mean.abs().max()), rel=0.1)  # of batches that differ in size
    assert update.parts[5].bound == np.abs(variance).max() > 10 * update.parts[2].bound
    assert local.num_clipped == 0


def test_an_update_that_is_not_finite_is_refused_by_name() -> None:
    config = load_config(None, {"clients": 10, "lr": 1e30, "local_epochs": 1})
    (trainer,) = local_trainers(config, [7])
    theta = to_vector(build_model("paper-cnn", 0, "cpu"))
    told = r"node 7 has trained in round 1 holds NaN or infinite values \(.*fc2.bias.*smaller --lr"
    with pytest.raises(UpdateRefused, match=told):
        trainer.update(theta, round=1)


def test_each_node_has_samples_of_its_own() -> None:
    config = load_config(None, {"clients": 3})
    first, second = local_trainers(config, [0, 2])
    images = [{image.numpy().tobytes() for image in trainer.samples.inputs} for trainer in (first, second)]
    assert len(first.samples) == len(second.samples) == 479
    assert len(images[0] & images[1]) < 5  # digits has a few identical images

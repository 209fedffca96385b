"""The batched engine against torch's own layers, and against the reference."""

from collections.abc import Sequence
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, max_pool2d, relu

from dncfl.common.config import Config
from dncfl.common.errors import ConfigError
from dncfl.common.scheme import channel
from dncfl.common.tasks.data import Samples, load_dataset
from dncfl.common.tasks.model import PaperCNN, to_vector
from dncfl.common.tasks.training import Recipe, train
from dncfl.launch.batched import cohort
from dncfl.launch.batched.cnn import Dropout, scores
from dncfl.launch.batched.cohort import Client, Cohort, Trained
from dncfl.launch.batched.engine import BatchedRun, batched_rounds
from dncfl.launch.reference import reference_rounds, simulated
from dncfl.server.global_model import GlobalModel
from dncfl.server.records import RoundRecord
from tests.integration.models import LINEAR


def new_model(seed: int) -> PaperCNN:
    torch.manual_seed(seed)
    return PaperCNN()


def scores_of_one(model: PaperCNN, images: torch.Tensor, channels: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
    """PaperCNN's forward pass with given dropout masks, channels (n, 20) and hidden (n, 50)."""
    x = relu(max_pool2d(model.conv1(images), 2))
    x = relu(max_pool2d(model.conv2(x) * channels[:, :, None, None], 2))
    x = relu(model.fc1(x.flatten(1))) * hidden
    scores: torch.Tensor = model.fc2(x)
    return scores


def test_scores_and_gradients_are_those_of_torchs_own_layers() -> None:
    models, n = [new_model(seed) for seed in range(3)], 7
    images, labels = torch.randn(3, n, 1, 28, 28), torch.randint(10, (3, n))
    images[:, :, :, :14] = -0.42  # a plain background, where the values of a pooling window are equal
    dropout = Dropout.draw([torch.Generator().manual_seed(seed) for seed in range(3)], n)
    parameters = [
        torch.stack([parameter.detach() for parameter in parts]).requires_grad_()
        for parts in zip(*(model.parameters() for model in models), strict=True)
    ]
    outputs = scores(parameters, images.permute(0, 2, 3, 4, 1).contiguous(), dropout)
    cross_entropy(outputs, labels, reduction="sum").backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
    for i, model in enumerate(models):
        one = scores_of_one(model, images[i], dropout.channels[i].T, dropout.hidden[i].T)
        torch.testing.assert_close(outputs[i].T, one)
        cross_entropy(one, labels[i], reduction="sum").backward()  # type: ignore[no-untyped-call]  # torch does not annotate it
        for parameter, same in zip(model.parameters(), parameters, strict=True):
            assert same.grad is not None
            torch.testing.assert_close(same.grad[i], parameter.grad, rtol=1e-4, atol=1e-5)


def test_dropout_keeps_half_and_each_client_draws_its_own() -> None:
    one, other = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    together = Dropout.draw([one, other], 500)
    alone = Dropout.draw([torch.Generator().manual_seed(2)], 500)
    assert set(together.channels.flatten().tolist()) == {0.0, 2.0}
    for masks in (together.channels, together.hidden):
        assert abs(float(masks.mean()) - 1) < 4 / masks.numel() ** 0.5  # each value has mean 1 and deviation 1
    assert torch.equal(together.channels[1], alone.channels[0])
    assert not torch.equal(together.channels[0], together.channels[1])


class WithoutDropout(PaperCNN):
    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return scores_of_one(self, images, torch.ones(1, 20), torch.ones(1, 50))


def test_but_for_dropout_a_client_trains_as_at_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_dropout(generators: Sequence[torch.Generator], n: int) -> Dropout:
        return Dropout(torch.ones(len(generators), 20, n), torch.ones(len(generators), 50, n))

    monkeypatch.setattr(Dropout, "draw", no_dropout)
    monkeypatch.setitem(cohort.SAMPLES_AT_ONCE, "cpu", 48)  # batches of 20 side by side, and of 90 in parts
    data = load_dataset("digits", None, train=True).all_samples("cpu")
    rng = np.random.default_rng(5)
    for batch_size in (20, 90):
        recipe = Recipe(epochs=2, batch_size=batch_size, lr=0.05, momentum=0.5)
        clients = [
            Client(
                theta=to_vector(new_model(number)),
                indices=rng.permutation(1437)[: 200 + number % 2],
                seed=3,
                round=4,
                number=number,
            )
            for number in range(5)
        ]
        for client, trained in zip(clients, Cohort(data, recipe).train(clients), strict=True):
            model = WithoutDropout()
            model.load_state_dict(new_model(client.number).state_dict())
            own = Samples(data.inputs[client.indices], data.labels[client.indices])
            loss = train(model, own, recipe, seed=3, round=4, client=client.number)
            np.testing.assert_allclose(trained.theta, to_vector(model), rtol=1e-3, atol=2e-5)
            assert trained.loss == pytest.approx(loss, rel=1e-4)


def config(**settings: object) -> Config:
    return Config.model_validate({"clients": 4, "rounds": 2, "local_epochs": 1, **settings})


def side_by_side(configs: Sequence[Config]) -> list[BatchedRun]:
    return [
        BatchedRun(config=each, model=GlobalModel(each), communicate=partial(simulated, each, channel(each)))
        for each in configs
    ]


def figures_apart_from_learning(record: RoundRecord) -> dict[str, object]:
    learning = {"accuracy", "loss", "recall", "train_loss", "clip_fraction", "seconds"}
    return {name: value for name, value in record.as_dict().items() if name not in learning}


def test_runs_side_by_side_communicate_as_the_reference_and_learn_as_each_alone() -> None:
    configs = [
        config(method="nonanonymous", pe=0.5, seed=1),
        config(method="dnc", pe=0.5, seed=2, partition="classes:1"),
        config(method="dnc", pe=0.5, seed=2, clients=6),
        config(method="dnc", pe=0.5, seed=1, bound="per-tensor"),
    ]
    runs = side_by_side(configs)
    outcomes = list(batched_rounds(runs))
    assert [place for place, _, _ in outcomes] == [0, 1, 2, 3, 0, 1, 2, 3]
    for place, each in enumerate(configs):
        mine = [(record, attempts) for one, record, attempts in outcomes if one == place]
        theirs = list(reference_rounds(each, GlobalModel(each), partial(simulated, each, channel(each))))
        for (record, attempts), (expected, recorded) in zip(mine, theirs, strict=True):
            assert attempts == recorded
            assert figures_apart_from_learning(record) == figures_apart_from_learning(expected)
        (alone,) = side_by_side([each])
        for _ in batched_rounds([alone]):
            pass
        # A quantised value may go to the next knot (0.2/254 apart, divided by |W|) by another rounding.
        assert np.abs(runs[place].model.theta - alone.model.theta).max() < 0.002


def test_training_that_runs_have_in_common_is_done_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[int] = []
    original = Cohort.train

    def counted(self: Cohort, clients: Sequence[Client]) -> list[Trained]:
        trained.append(len(clients))
        return original(self, clients)

    monkeypatch.setattr(Cohort, "train", counted)
    runs = side_by_side([config(method="qfl"), config(method="dnc", pe=0.0), config(method="nonanonymous", pe=0.5)])
    for _ in batched_rounds(runs):
        pass
    assert trained == [4, 8]  # all start from the same θ; then the third has gone its own way
    assert runs[0].model.sha256 == runs[1].model.sha256 != runs[2].model.sha256


def test_accuracies_agree_with_the_reference_over_seeds() -> None:
    differences = []
    for seed in range(6):
        each = config(seed=seed, rounds=4, local_epochs=2, lr=0.03)
        (run,) = side_by_side([each])
        *_, (_, batched, _) = batched_rounds([run])
        *_, (reference, _) = reference_rounds(each, GlobalModel(each), partial(simulated, each, channel(each)))
        differences.append(batched.accuracy - reference.accuracy)
    assert np.ptp(differences) > 0, "other dropout masks give other runs"
    assert abs(np.mean(differences)) < 3 * np.std(differences, ddof=1) / len(differences) ** 0.5


def test_what_the_engine_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigError, match=f"model = {LINEAR}: the batched engine computes paper-cnn only"):
        list(batched_rounds(side_by_side([config(model=LINEAR)])))
    with pytest.raises(ConfigError, match=r"batch_size = .* side by side"):
        list(batched_rounds(side_by_side([config(batch_size=8), config(batch_size=16)])))

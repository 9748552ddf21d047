"""What the importer preserves: names, weights, their permutations, states, inputs, outputs."""

import copy
from collections import OrderedDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import pockengine
from pockengine.compiler.ir import F32, I64
from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch, to_state_dict
from pockengine.frontends.torch.outputs import output_names
from pockengine.models.cnn import SmallCNN
from pockengine.models.mobilenet_v2 import MobileNetV2
from pockengine.tests.frontends.torch.checks import Function, check_forward


def test_parameters_and_statistics_keep_their_names() -> None:
    model = MobileNetV2(0.35, 10)
    expected = {name for name in model.state_dict() if not name.endswith("num_batches_tracked")}

    graph = from_torch(model, (torch.randn(2, 3, 64, 64),))

    assert set(graph.params) == expected
    trainable = {name for name, param in graph.params.items() if param.trainable}
    assert trainable == {name for name, _ in model.named_parameters()}


def test_weights_are_stored_permuted_with_their_permutation() -> None:
    model = nn.Sequential(
        nn.Conv2d(4, 6, (3, 5)), nn.Conv2d(6, 6, 3, groups=6), nn.Flatten(), nn.Linear(12, 2)
    )

    graph = from_torch(model, (torch.randn(1, 4, 5, 8),))

    shapes = {name: param.value.shape for name, param in graph.params.items()}
    assert shapes["0.weight"] == (3, 5, 4, 6)
    assert shapes["1.weight"] == (3, 3, 1, 6)
    assert shapes["3.weight"] == (12, 2)
    assert graph.params["0.weight"].permutation == (2, 3, 1, 0)
    assert graph.params["3.weight"].permutation == (1, 0)
    assert graph.params["0.bias"].permutation is None
    weight = model[0].weight.detach().numpy()
    assert np.array_equal(graph.params["0.weight"].data, weight.transpose(2, 3, 1, 0))


def test_weights_round_trip_unchanged() -> None:
    model = SmallCNN()
    graph = from_torch(model, (torch.randn(2, 1, 8, 8),))

    state = to_state_dict(graph)

    for name, tensor in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(state[name], tensor), name
    other = SmallCNN()
    assert not other.load_state_dict(state, strict=False).unexpected_keys


def test_some_of_the_weights_can_be_loaded_back() -> None:
    graph = from_torch(nn.Linear(3, 2), (torch.randn(1, 3),))

    state = to_state_dict(graph, {"weight": np.arange(6, dtype=np.float32).reshape(3, 2)})

    assert state["weight"].tolist() == [[0, 2, 4], [1, 3, 5]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"wieght": np.zeros((3, 2), np.float32)}, "no parameter 'wieght'"),
        ({"weight": np.zeros((2, 3), np.float32)}, r"weight: shape \(2, 3\) .* \(3, 2\)"),
    ],
)
def test_wrong_weights_are_refused(values: dict[str, np.ndarray], message: str) -> None:
    graph = from_torch(nn.Linear(3, 2), (torch.randn(1, 3),))

    with pytest.raises(ImportModelError, match=message):
        to_state_dict(graph, values)


def test_later_changes_of_the_module_do_not_reach_the_graph() -> None:
    model = nn.Linear(3, 2)
    graph = from_torch(model, (torch.randn(1, 3),))
    before = graph.params["bias"].data.copy()

    with torch.no_grad():
        model.bias.add_(1)

    assert np.array_equal(graph.params["bias"].data, before)


def test_importing_changes_nothing_in_the_module() -> None:
    model = SmallCNN().train()
    before = copy.deepcopy(model.state_dict())

    from_torch(model, (torch.randn(2, 1, 8, 8),), loss="cross_entropy")

    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


class Tied(nn.Module):
    """Two layers with a shared weight, and an unused parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(4, 4, bias=False)
        self.decode = nn.Linear(4, 4, bias=False)
        self.decode.weight = self.encode.weight
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.decode(torch.relu(self.encode(x)))


def test_shared_parameter_is_one_under_its_first_name() -> None:
    graph = check_forward(Tied(), torch.randn(2, 4))

    assert set(graph.params) == {"encode.weight"}


def test_shared_parameter_is_loaded_into_every_owner() -> None:
    model = Tied()
    graph = from_torch(model, (torch.randn(2, 4),))
    tuned = {"encode.weight": np.full((4, 4), 2, np.float32)}

    model.load_state_dict(to_state_dict(graph, tuned), strict=False)

    assert float(model.decode.weight.detach().min()) == 2


def test_parameter_of_two_uses_keeps_the_frameworks_order() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, 5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, self.weight) @ self.weight

    graph = check_forward(Twice(), torch.randn(2, 5))

    assert graph.params["weight"].permutation is None


def test_frozen_parameter_is_not_trainable() -> None:
    model = nn.Linear(3, 2)
    model.weight.requires_grad_(False)

    graph = from_torch(model, (torch.randn(1, 3),))

    assert not graph.params["weight"].trainable
    assert graph.params["bias"].trainable


def test_buffers_are_states_and_constants_have_no_name() -> None:
    class Buffers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", torch.tensor([2.0, 3.0]))
            self.register_buffer("hidden", torch.tensor([5.0, 7.0]), persistent=False)
            self.plain = torch.tensor([0.5, 0.25])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale + self.hidden * self.plain

    graph = check_forward(Buffers(), torch.randn(3, 2))

    assert {name: param.trainable for name, param in graph.params.items()} == {"scale": False}


def test_inputs_have_the_names_of_forwards_parameters() -> None:
    class TwoInputs(nn.Module):
        def forward(self, image: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
            return image + index

    model, image, index = TwoInputs(), torch.randn(2, 3), torch.ones(3, dtype=torch.int64)
    graph = from_torch(model, {"index": index, "image": image})

    assert {v.name: (v.dtype, v.shape) for v in graph.inputs} == {
        "image": (F32, (2, 3)),
        "index": (I64, (3,)),
    }
    assert from_torch(model, (image, index)).inputs[0].name == "image"


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (lambda x: x * 2, ["output"]),
        (lambda x: (x * 2, x + 1), ["output.0", "output.1"]),
        (lambda x: {"logits": x * 2, "rest": [x + 1]}, ["logits", "rest.0"]),
        (lambda x: (x * 2).sum(), ["loss"]),
        (lambda x: (x * 2, None, 3), ["output.0"]),
    ],
)
def test_outputs_are_named_by_their_paths(function: object, names: list[str]) -> None:
    graph = from_torch(Function(function), (torch.randn(2, 3),))

    assert list(graph.outputs) == names


def test_a_mapping_without_paths_is_named_by_its_keys() -> None:
    """transformers registers its outputs this way for PyTorch before 2.9."""

    class Answer(OrderedDict[str, int]):
        pass

    pytree.register_pytree_node(
        Answer,
        lambda answer: (list(answer.values()), list(answer)),
        lambda values, keys: Answer(zip(keys, values, strict=True)),
    )
    spec = pytree.tree_flatten(Answer(logits=0, states=1))[1]

    assert output_names(spec, 2, own_loss=False) == ["logits", "states"]


def test_picture_output_has_the_frameworks_order() -> None:
    graph = check_forward(nn.Conv2d(3, 5, 3), torch.randn(1, 3, 6, 7))

    assert graph.outputs["output"].shape == (1, 5, 4, 5)


@pytest.mark.parametrize(
    ("loss", "shape", "target", "dtype"),
    [
        ("cross_entropy", (4, 3), (4,), I64),
        ("cross_entropy", (4, 3, 5, 6), (4, 5, 6), I64),
        ("mse", (4, 3), (4, 3), F32),
    ],
)
def test_loss_adds_a_target_for_the_output(
    loss: str, shape: tuple[int, ...], target: tuple[int, ...], dtype: object
) -> None:
    graph = from_torch(Function(lambda x: 2 * x), (torch.randn(shape),), loss=loss)

    assert [(v.name, v.shape, v.dtype) for v in graph.inputs[1:]] == [("target", target, dtype)]
    assert set(graph.outputs) == {"loss", "output"}
    assert graph.outputs["loss"].shape == ()


def test_loss_of_pictures_equals_pytorch() -> None:
    x, labels = torch.randn(2, 3, 4, 5), torch.randint(3, (2, 4, 5))
    graph = from_torch(nn.Identity(), (x,), loss="cross_entropy")

    found = run(graph, {"input": x.numpy(), "target": labels.numpy()})["loss"]

    assert float(found) == pytest.approx(float(nn.functional.cross_entropy(x, labels)), rel=1e-6)


def test_nodes_record_their_module() -> None:
    graph = from_torch(SmallCNN(), (torch.randn(2, 1, 8, 8),))

    scopes = {node.scope for node in graph.nodes if node.op == "conv2d"}
    assert "block2.conv1.0" in scopes


class WithLoss(nn.Module):
    """Returns a tuple of scalars and logits; transformers returns (loss, logits)."""

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.numbers = numbers

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        logits = self.linear(x)
        return (*(logits.square().mean() * (i + 1) for i in range(self.numbers)), logits)


def test_the_only_scalar_in_a_tuple_is_the_loss() -> None:
    model, x = WithLoss(1), torch.ones(4, 3)
    graph = from_torch(model, (x,))
    assert list(graph.outputs) == ["loss", "output.1"]
    pockengine.compile(model, (x,), check=True)


def test_of_two_scalars_neither_is_the_loss() -> None:
    model, x = WithLoss(2), torch.ones(4, 3)
    assert list(from_torch(model, (x,)).outputs) == ["output.0", "output.1", "output.2"]
    with pytest.raises(ImportModelError, match="and no loss: give loss=, such as"):
        pockengine.compile(model, (x,), check=True)

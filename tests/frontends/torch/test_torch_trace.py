"""Branches on values, and temporary changes to a model's configuration in a trace."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.fx import proxy

from pockengine.compiler.ir.evaluate import run
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.frontends.torch.nodes import name_of, source_line
from pockengine.frontends.torch.stacks import short_stacks
from pockengine.frontends.torch.trace import trace
from pockengine.tests.frontends.torch.checks import (
    FORWARD_TOLERANCE,
    Function,
    check_forward,
    check_training,
    relative_error,
)

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
Branch = Callable[[torch.Tensor], torch.Tensor]


def raising(x: torch.Tensor) -> torch.Tensor:
    if (x > 100).any():
        raise ValueError("too large")
    assert x.abs().sum() > 0
    return x * 2


def of_constants(x: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(6).mul_(torch.arange(6) < 3)
    if bool((mask == 0).any()):
        return x * mask
    return x


def by_numbers_of_constants(x: torch.Tensor) -> torch.Tensor:
    lengths = torch.tensor([1, 2, 3])
    return x[:, : int(lengths.max())] * float(lengths.sum())


def repairing(x: torch.Tensor) -> torch.Tensor:
    if not torch.isfinite(x).all() or torch.isnan(x).any():
        x = torch.nan_to_num(x)
    return x * 2


def of_distributions(x: torch.Tensor) -> torch.Tensor:
    normal = torch.distributions.Normal(x, x.exp())
    return normal.log_prob(x * 2) + torch.distributions.Categorical(logits=x).entropy()[:, None]


def checked_distribution(x: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Normal(x, x.exp(), validate_args=True).log_prob(x * 2)


@pytest.mark.parametrize(
    "branch",
    [
        raising,
        of_constants,
        by_numbers_of_constants,
        repairing,
        of_distributions,
        checked_distribution,
    ],
)
def test_branch_taken_alike_by_all_data_is_followed(branch: Branch) -> None:
    check_forward(Function(branch), X)


def taking_either(x: torch.Tensor) -> torch.Tensor:
    return x if x.sum() > 0 else -x


def hidden(x: torch.Tensor) -> torch.Tensor:
    """Branch once to validate and once to compute, both on the same line."""

    def positive(part: torch.Tensor) -> bool:
        return bool((part > -100).all())

    if not positive(x):
        raise ValueError("too small")
    return x if positive(x[:1]) else -x


def failing_otherwise(x: torch.Tensor) -> torch.Tensor:
    """Fail in the other branch with an error of PyTorch, not of the model."""
    return x if (x < 100).all() else x @ torch.ones(3, 3)


def caught(x: torch.Tensor) -> torch.Tensor:
    try:
        if (x > 100).any():
            raise ValueError("too large")
    except ValueError:
        x = -x
    return x


def by_a_written_mask(x: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(4, 6)
    mask[0] = x[0]
    return x if (mask > 0).all() else -x


@pytest.mark.parametrize(
    "branch", [taking_either, hidden, failing_otherwise, caught, by_a_written_mask]
)
def test_data_dependent_branch_is_refused(branch: Branch) -> None:
    with pytest.raises(ImportModelError, match=r"test_torch_trace\.py:.*use torch\.where"):
        from_torch(Function(branch), (X,))


def test_branch_on_a_parameter_is_refused() -> None:
    class Gate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Parameter(torch.ones(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.gate if self.gate > 0 else x

    with pytest.raises(ImportModelError, match="the same steps for any data"):
        from_torch(Gate(), (X,))


def test_transformer_with_a_causal_mask_trains() -> None:
    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layer = nn.TransformerDecoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
            self.body = nn.TransformerDecoder(layer, 1)
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(4)
            return self.head(self.body(x, x, tgt_mask=mask).mean(1))

    batches = [(torch.randn(2, 4, 6), torch.tensor([0, 2])) for _ in range(2)]
    check_training(Decoder(), batches)


class Config:
    """A configuration as in transformers."""

    use_cache = True
    problem_type = None
    num_labels = 3
    _experts_implementation = None


class Cached(nn.Module):
    """A model that returns an untraceable cache, unless its configuration disables it."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Config()

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, object]:
        if self.config.problem_type is None and bool((labels >= 0).nonzero().shape[0] > 2):
            x = -x
        past = object() if self.config.use_cache else None
        return {"output": x * 2, **({"past": past} if past else {})}


def test_configuration_is_set_for_training_and_restored() -> None:
    model = Cached()

    graph = from_torch(model, {"x": X, "labels": torch.zeros(4, dtype=torch.int64)})

    assert list(graph.outputs) == ["output"]
    assert (model.config.use_cache, model.config.problem_type) == (True, None)
    assert torch.distributions.Distribution._validate_args


def test_output_that_is_not_a_tensor_is_reported() -> None:
    class Other:
        pass

    with pytest.raises(ImportModelError, match=r"forward returns a .*Other; return tensors"):
        from_torch(Function(lambda x: (x, Other())), (X,))


def test_norm_applied_twice_updates_its_statistics_twice() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=0.3))
            self.head = nn.Linear(6, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.body(self.body(x * 3)[:3])
            with torch.no_grad():
                z = self.body(x)
            return self.head(y) + self.head(z)[:3]

    torch.manual_seed(0)
    batches = [(torch.randn(4, 6), torch.tensor([0, 2, 1])) for _ in range(3)]
    check_training(Twice(), batches)


def autocast(enabled: bool) -> nn.Module:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
                y = self.net(x)
            return y.float()

    return Cast()


def test_disabled_autocast_changes_nothing() -> None:
    check_training(autocast(False), [(X, torch.tensor([0, 1, 2, 0]))] * 2)


def test_enabled_autocast_is_dropped() -> None:
    module = autocast(True)
    with pytest.warns(UserWarning, match=r"float32: its autocast is left out; bf16=True"):
        graph = from_torch(module, (X,))
    found = run(graph, {"x": X.numpy()})["output"]

    expected = autocast(False)
    expected.load_state_dict(module.state_dict())
    assert relative_error(found, expected(X)) <= FORWARD_TOLERANCE
    assert relative_error(found, module(X)) <= 4 * torch.finfo(torch.bfloat16).eps


def test_autocast_in_an_exported_program_is_refused_with_the_fix() -> None:
    program = torch.export.export(autocast(True).eval(), (X,))
    with pytest.raises(ImportModelError, match=r"autocast is enabled.*bf16=True"):
        from_torch(program.module(), (X,))


def test_operator_that_pytorch_cannot_trace_is_reported() -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        labels, sizes = torch.ones(2, 2, dtype=torch.int64), torch.full((2,), 2)
        return torch._ctc_loss(x[:, None].expand(-1, 2, -1), labels, sizes, sizes)[0].sum()

    with pytest.raises(ImportModelError, match=r"cannot trace aten\._ctc_loss"):
        from_torch(Function(loss), (X,))


def test_scalar_squeezes_to_itself() -> None:
    check_forward(Function(lambda x: x.sum().squeeze() * x.mean().squeeze(0).squeeze(-1)), X)


def test_an_encoder_mask_is_applied_unchanged() -> None:
    layer = nn.TransformerEncoderLayer(6, 2, 8, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1)
    hidden = torch.triu(torch.full((4, 4), -torch.inf), 1)
    for mask in (hidden, hidden.T.contiguous()):
        check_forward(Function(lambda x, m: encoder(x[None], mask=m)), X, mask)


def test_a_check_before_a_no_grad_block_is_dropped() -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v = nn.Parameter(torch.randn(4, 3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            loss = nn.functional.cross_entropy(self.v + x, self.v.argmax(1))
            loss.long()
            with torch.no_grad():
                loss.abs().max()
            return loss.expand((4, 1)).mean()

    graph = from_torch(Watched(), (torch.zeros(4, 3),))
    assert list(graph.outputs) == ["loss"]


class InLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 6), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.layers(x)
        return hidden * 2


def lines_of(module: nn.Module) -> dict[str, str]:
    nodes = trace(module, (X,), {}).graph.nodes
    return {name_of(node): source_line(node) for node in nodes if node.op == "call_function"}


def test_operators_keep_the_line_of_the_module_that_calls_them() -> None:
    lines = lines_of(InLayers())
    assert lines["linear"].startswith(f"`hidden = self.layers(x)` at {__file__}:")
    assert lines["relu"] == lines["linear"]
    assert lines["mul"].startswith(f"`return hidden * 2` at {__file__}:")
    of_pytorch = lines_of(InLayers().layers)  # a Sequential has no lines of its own
    assert "F.linear(" in of_pytorch["linear"]


class Asking(nn.Module):
    def forward(self) -> list[str]:
        with short_stacks():
            found = proxy.CapturedTraceback.extract()
            assert found.format() == found.summary().format()  # of tracers old and new
            assert found.tb is not None  # anything else is PyTorch's own
        return found.format()


def test_tracers_of_each_release_get_the_line() -> None:
    (text,) = Asking()()
    assert "found = proxy.CapturedTraceback.extract()" in text
    assert __file__ in text

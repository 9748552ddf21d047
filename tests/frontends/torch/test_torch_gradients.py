"""Custom and stopped gradients equal PyTorch's, or are refused by name."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from pockengine.api import compile
from pockengine.errors import ImportModelError
from pockengine.frontends.torch.model import from_torch
from pockengine.tests.frontends.torch.checks import Function, check_forward
from pockengine.tests.frontends.torch.gradients import check_function

SHAPE = (4, 6)


class Reversal(torch.autograd.Function):
    """Returns its input and negates the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return -ctx.factor * dy, None


class StraightThrough(torch.autograd.Function):
    """Returns the sign, with the gradient of a clamp."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.sign(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return dy * (x.abs() <= 1).float()


class Clipped(torch.autograd.Function):
    """Clips the gradient: no function of the input has this gradient."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.round(x * 4) / 4

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.bound = 0.3

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return dy.clamp(-ctx.bound, ctx.bound)


class Product(torch.autograd.Function):
    """A matrix product that doubles the gradient of its left operand."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, w = ctx.saved_tensors
        dx = 2 * dy @ w if ctx.needs_input_grad[0] else None
        return dx, dy.t() @ x


class Sorted(torch.autograd.Function):
    """Returns sorted values and their indices; the indices have no gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Any:
        values, places = x.sort(-1)
        ctx.mark_non_differentiable(places)
        ctx.save_for_backward(places)
        return values, places

    @staticmethod
    def backward(ctx: Any, dy: Tensor, _: Tensor) -> Tensor:
        (places,) = ctx.saved_tensors
        return torch.zeros_like(dy).scatter_(-1, places, dy)


class Inherited(StraightThrough):
    """Halves the gradient of its base class."""

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return StraightThrough.backward(ctx, dy) / 2


class Nested(torch.autograd.Function):
    """Applies one function, and calls the forward methods of others."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return clip(StraightThrough.forward(ctx, x) + x) + Clipped.forward(x)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        return dy * ctx.saved_tensors[0]


class Scaled(torch.autograd.Function):
    """Has a default argument that setup_context reads."""

    @staticmethod
    def forward(x: Tensor, factor: float = 3.0) -> Tensor:
        return x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.factor = inputs[1] + 1

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        return dy * ctx.factor, None


reverse = Reversal.apply  # bound before any trace, as models do
clip, nest, inherit, scale, order = (
    part.apply for part in (Clipped, Nested, Inherited, Scaled, Sorted)
)


def bound_without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        a = reverse(x, 2.0)
        with torch.enable_grad():
            b = reverse(x, 3.0)
    return a * b * reverse(x, 4.0) + Clipped.forward(x * x) * scale(x)


@torch.inference_mode()
def tripled(x: Tensor) -> Tensor:
    return 3 * x


def inferred(x: Tensor) -> Tensor:
    with torch.inference_mode():
        constant = x * 2
    return x + constant


def nested_modes(x: Tensor) -> Tensor:
    with torch.no_grad():
        a = x.sin()
        with torch.enable_grad():
            b = x.cos()
        with torch.set_grad_enabled(False):
            c = x * 3
    return a * b + c * x


def hooked(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda dy: dy * 3)
    return y.sin() * y


def hooks_on_views(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda dy: dy.clamp(-0.2, 0.2))
    z = y[0] * y
    z.register_hook(lambda dy: dy + 1)
    return z + y.view(-1).view(4, 6)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: reverse(x * 2, 0.5) * x,
        lambda x: reverse(torch.relu(reverse(x, 2.0)), 3.0),
        lambda x: StraightThrough.apply(x) * x,
        lambda x: Clipped.apply(x * x).sin() * 2,
        lambda x: Product.apply(x, x.tanh()),
        lambda x: torch.mul(*Sorted.apply(x)),
        lambda x: torch.mul(*order(x)),
        lambda x: clip(x * x).sin() * 2,
        lambda x: inherit(x) * x,
        lambda x: nest(x) * x,
        lambda x: scale(x) * Scaled.apply(x) * Scaled.apply(x, 2.0),
        bound_without_gradients,
        hooked,
        hooks_on_views,
        inferred,
        lambda x: x + tripled(x),
        nested_modes,
        lambda x: x * x.detach() + torch.no_grad()(torch.sin)(x),
        lambda x: checkpoint(lambda y: y.sin() * y, x, use_reentrant=True),
        lambda x: checkpoint(lambda y: y.sin() * y, x, use_reentrant=False),
    ],
)
def test_custom_gradient_is_used(function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)

    check_function(function, SHAPE)


def two_results(x: Tensor) -> Tensor:
    class Pair(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            return x * 1, x * 2

        @staticmethod
        def backward(ctx: Any, dy: Tensor, dz: Tensor) -> Tensor:
            return dy + dz

    return torch.mul(*Pair.apply(x))


def written_input(x: Tensor) -> Tensor:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, dy: Tensor) -> Tensor:
            return dy

    return Doubled.apply(x * 1)


def inspecting_hook(x: Tensor) -> Tensor:
    y = x * 2
    y.register_hook(lambda dy: None)
    return y


def late_hook(x: Tensor) -> Tensor:
    y = x * 2
    z = y * 3
    y.register_hook(lambda dy: dy * 3)
    return y + z


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (two_results, ["Function Pair", "several tensors with gradients"]),
        (written_input, ["Function Doubled", "mark_dirty"]),
        (inspecting_hook, ["inspecting_hook", "returns no gradient"]),
        (late_hook, ["late_hook", "right after the tensor is computed"]),
    ],
)
def test_untraceable_gradient_is_refused_by_name(
    function: Callable[[Tensor], Tensor], words: list[str]
) -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(torch.ones(SHAPE))

        def forward(self, x: Tensor) -> Tensor:
            return function(x + self.shift)

    with pytest.raises(ImportModelError) as caught:
        from_torch(Shifted(), (torch.randn(SHAPE),))
    assert all(word in str(caught.value) for word in words)


def _full_backward(model: nn.Sequential) -> Any:
    return model[1].register_full_backward_hook(lambda module, dx, dy: None)


def _before_backward(model: nn.Sequential) -> Any:
    return model[1].register_full_backward_pre_hook(lambda module, dy: None)


def _on_parameter(model: nn.Sequential) -> Any:
    return model[0].weight.register_hook(lambda dw: dw * 2)


def _after_accumulation(model: nn.Sequential) -> Any:
    return model[0].weight.register_post_accumulate_grad_hook(lambda w: None)


@pytest.mark.parametrize(
    ("register", "words"),
    [
        (_full_backward, "module 1 has a backward hook"),
        (_before_backward, "module 1 has a backward hook"),
        (_on_parameter, "parameter 0.weight has a hook"),
        (_after_accumulation, "parameter 0.weight has a hook"),
    ],
)
def test_external_gradient_hook_is_refused_until_removed(
    register: Callable[[nn.Sequential], Any], words: str
) -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    handle = register(model)

    with pytest.raises(ImportModelError, match=words):
        from_torch(model, (torch.randn(SHAPE),))

    handle.remove()
    from_torch(model, (torch.randn(SHAPE),))


def test_forward_hooks_are_traced() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    model[0].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    model[0].register_forward_hook(lambda module, args, y: y + 1)

    check_forward(model, torch.randn(SHAPE))


def test_functions_are_restored_after_a_trace() -> None:
    parts = [
        (torch.autograd.Function, "apply"),
        (Reversal, "forward"),
        (torch.Tensor, "register_hook"),
    ]
    before = [vars(part)[name] for part, name in parts]
    from_torch(Function(lambda x: reverse(x, 1.0)), (torch.randn(SHAPE),))

    assert [vars(part)[name] for part, name in parts] == before
    assert "forward" not in vars(Inherited)
    x = torch.ones(1, requires_grad=True)
    reverse(x, 2.0).backward()
    assert x.grad == -2


def test_domain_adversarial_net_trains_in_generated_code_as_in_pytorch() -> None:
    class Adversarial(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(6, 5), nn.Linear(5, 3)
            self.domain = nn.Linear(5, 2)

        def forward(self, x: Tensor) -> Tensor:
            code = torch.tanh(self.body(x))
            domain = self.domain(reverse(code, 0.7))
            return self.head(code).square().mean() + domain.logsumexp(1).mean()

    torch.manual_seed(0)
    model, x = Adversarial(), torch.randn(SHAPE)
    reference = copy.deepcopy(model)
    optimizer = torch.optim.SGD(reference.parameters(), 0.1)

    compiled = compile(model, (x,))
    with compiled.session() as session:
        for _ in range(3):
            found = session.train_step({"x": x.numpy()}, lr=0.1)["loss"]
            optimizer.zero_grad()
            expected = reference(x)
            expected.backward()
            optimizer.step()
            assert float(found) == pytest.approx(float(expected.detach()), rel=1e-4)
        state = compiled.state_dict(session)

    for name, parameter in reference.named_parameters():
        np.testing.assert_allclose(state[name], parameter.detach(), atol=1e-5)

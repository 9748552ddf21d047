"""tiny-training's 15 published schemes on their nets: trained tensors, and costs.

The tensors of a scheme are determined from PyTorch's modules in order, as in tiny-training's own
code, and not from our graph.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from pockengine import compile
from pockengine.backends.registry import backend_for
from pockengine.compiler.autodiff import Channels
from pockengine.compiler.compile import compile_program
from pockengine.compiler.ir.graph import Graph
from pockengine.compiler.ops.registry import lookup
from pockengine.compiler.options import Training
from pockengine.devices import load_device
from pockengine.models.pretrained import INT8_SPECS
from pockengine.models.tiny_training import Published, convert, published, saved_bits
from pockengine.studies.tiny_training.study import (
    PEAKS,
    build_net,
    int8_graph,
    int8_within,
    needs_of,
    net_graph,
)

SCHEMES = published()


@pytest.fixture(name="graphs", scope="module")
def their_nets() -> dict[str, Graph]:
    return {net: net_graph(build_net(net)) for net in INT8_SPECS}


def named(scheme: Published) -> dict[str, int]:
    """Return the number of trained elements per tensor of a scheme."""
    model = build_net(scheme.net)
    convs = [(name, m) for name, m in model.named_modules() if isinstance(m, nn.Conv2d)]
    trained = {f"classifier.{name}": p.numel() for name, p in model.classifier.named_parameters()}
    for name, conv in convs[-scheme.config.biases :]:
        trained[f"{name}.bias"] = conv.out_channels
    for index, ratio in scheme.config.weights:
        name, conv = convs[index]
        kept = int(conv.in_channels * ratio)
        if kept:
            trained[f"{name}.weight"] = conv.weight.numel() // conv.in_channels * kept
    return trained


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_exactly_the_named_tensors_are_updated(scheme: Published, graphs: dict[str, Graph]) -> None:
    graph = graphs[scheme.net]

    program = compile_program(graph, Training(convert(scheme.config, graph, str(scheme))))

    updates = [n for n in program.entries["train"].graph.nodes if lookup(n.op).writes]
    sizes = {update.operands[0].name: update.operands[1].type.size for update in updates}
    assert len(sizes) == len(updates)
    assert sizes == named(scheme)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_their_count_gives_the_published_budget(
    scheme: Published, graphs: dict[str, Graph]
) -> None:
    assert int(saved_bits(scheme.config, graphs[scheme.net]).kilobytes) == scheme.budget_kb


def test_training_needs_hardly_more_than_inference(graphs: dict[str, Graph]) -> None:
    """The backward pass of the last layers fits in the memory of the first layers' activations."""
    backend = backend_for(load_device("stm32f746"))
    for scheme in (SCHEMES[0], SCHEMES[4], SCHEMES[5]):
        needs = needs_of(scheme, graphs[scheme.net], backend)
        assert needs.predict <= needs.train <= needs.predict + 256
        assert needs.saved < needs.backward < needs.train
        assert needs.ours <= 1.06 * needs.theirs.kilobytes
        assert needs.integers[0] <= needs.predict / 3.9
        assert needs.integers[0] <= needs.integers[1] <= needs.train / 3.3


@pytest.mark.parametrize(("device", "place"), [("stm32f746", 5), ("rpi4", 5), ("stm32f746", 14)])
def test_int8_fits_into_the_published_peak(
    device: str, place: int, graphs: dict[str, Graph]
) -> None:
    """Even if the kernels chosen without a budget pack weights in scratch.

    The last scheme trains such early biases that a wide cotangent would exceed the peak.
    """
    scheme, backend = SCHEMES[place], backend_for(load_device(device))
    budget = 1000 * PEAKS[scheme.net]
    assert int8_within(scheme, int8_graph(graphs[scheme.net]), backend, budget) <= budget


def test_a_compiled_step_moves_the_named_channels_as_pytorch_would(tmp_path: Path) -> None:
    """This scheme has dense and depthwise weights, whole ones and shares."""
    (scheme,) = (one for one in SCHEMES if str(one) == "mbv2-w0.35 at 49 KB")
    model = build_net(scheme.net)
    graph = net_graph(model, 32)
    x = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    nn.functional.cross_entropy(model(x), torch.tensor([3])).backward()
    rules = convert(scheme.config, graph, str(scheme))
    channels = rules.resolve(graph)

    compiled = compile(graph, None, scheme=rules, folder=tmp_path / "artifact")
    with compiled.session() as session:
        session.train_step({"x": x.numpy(), "target": np.array([3])}, lr=0.5)
        tuned = compiled.tuned(session)

    moved = set()
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        before = weight.detach().numpy()
        expected = before - 0.5 * weight.grad.numpy() * mask(channels, name, before.shape)
        after = tuned.get(name, before)  # frozen params may be folded away
        np.testing.assert_allclose(after, expected, atol=2e-6, err_msg=name)
        if (after != before).any():
            moved.add(name)
    assert moved == set(channels)


def mask(channels: Mapping[str, Channels], name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return ones where PyTorch's tensor trains: at input channels, or a depthwise's channels."""
    if name not in channels:
        return np.zeros(shape)
    ones = np.ones(shape)
    if (kept := channels[name]) is not None:
        axis = 0 if shape[1] == 1 else 1
        np.moveaxis(ones, axis, 0)[[i for i in range(shape[axis]) if i not in kept]] = 0
    return ones

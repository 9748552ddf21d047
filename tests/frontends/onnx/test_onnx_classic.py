"""Models by scikit-learn converters: operators of ai.onnx.ml, labels and probabilities."""

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import pockengine
from pockengine.backends.registry import open_session
from pockengine.errors import ImportModelError
from pockengine.frontends.onnx.model import from_onnx
from pockengine.tests.frontends.onnx.models import check, outputs_of, random

FEATURES, CLASSES, BATCH = 4, 3, 8


def classifier(*, norm: str = "L1", labels: str = "classlabels_ints", **more: object) -> ModelProto:
    """Return the model of a scikit-learn pipeline: scaler, logistic regression, normalizer."""
    names: object = [10, 20, 30] if labels == "classlabels_ints" else ["a", "b", "c"]
    options = {
        "coefficients": random(CLASSES * FEATURES).tolist(),
        "intercepts": random(CLASSES).tolist(),
        "post_transform": "SOFTMAX",
        labels: names,
        **more,
    }
    nodes = [
        helper.make_node(
            "Scaler", ["X"], ["scaled"], domain="ai.onnx.ml", offset=[1.0] * 4, scale=[0.5] * 4
        ),
        helper.make_node(
            "LinearClassifier",
            ["scaled"],
            ["label", "scores"],
            name="linear",
            domain="ai.onnx.ml",
            **options,
        ),
        helper.make_node("Normalizer", ["scores"], ["probs"], domain="ai.onnx.ml", norm=norm),
    ]
    return _model(nodes, {"label": (TensorProto.INT64, [BATCH]), "probs": (1, [BATCH, CLASSES])})


def _model(nodes: list[object], outputs: dict[str, tuple[int, list[int]]]) -> ModelProto:
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, [BATCH, FEATURES])
    infos = [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()]
    graph = helper.make_graph(nodes, "classic", [x], infos)
    domains = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=domains, ir_version=8)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"post_transform": "LOGISTIC"},
        {"post_transform": "NONE", "norm": "L2"},
        {"norm": "MAX"},
    ],
)
def test_classifiers_equal_the_reference(more: dict[str, object]) -> None:
    graph = check(classifier(**more), {"X": random(BATCH, FEATURES)})

    assert graph.params["linear.coefficients"].value.shape == (CLASSES, FEATURES)


def test_one_row_of_coefficients_for_two_classes() -> None:
    more = {"coefficients": random(FEATURES).tolist(), "intercepts": [0.3]}
    model = classifier(**more, post_transform="LOGISTIC", classlabels_ints=[0, 1])
    model.graph.output[1].type.tensor_type.shape.dim[1].dim_value = 2

    check(model, {"X": random(BATCH, FEATURES)})


def test_regressors_equal_the_reference() -> None:
    node = helper.make_node(
        "LinearRegressor",
        ["X"],
        ["y"],
        name="line",
        domain="ai.onnx.ml",
        coefficients=random(2 * FEATURES).tolist(),
        intercepts=[0.5, -1.0],
        targets=2,
    )

    check(_model([node], {"y": (1, [BATCH, 2])}), {"X": random(BATCH, FEATURES)})


def test_training_in_c_uses_the_probability_loss_and_writes_back() -> None:
    model, x = classifier(), random(BATCH, FEATURES)
    target = np.arange(BATCH) % CLASSES

    compiled = pockengine.compile(model, (x,), loss="cross_entropy", check=True)
    with open_session(compiled.artifact) as session:
        losses = [
            float(session.train_step({"X": x, "target": target}, lr=0.5)["loss"]) for _ in range(20)
        ]
        tuned = compiled.tuned(session)

    assert _loss(model, x, target) == pytest.approx(losses[0], rel=1e-4)
    assert _loss(tuned, x, target) < losses[-1] < 0.9 * losses[0]


def _loss(model: ModelProto, x: np.ndarray, target: np.ndarray) -> float:
    probabilities = outputs_of(from_onnx(model), {"X": x})["probs"]
    return float(-np.log(probabilities[np.arange(BATCH), target]).mean())


def test_text_labels_are_refused() -> None:
    with pytest.raises(ImportModelError, match=r"ai.onnx.ml.LinearClassifier in linear: .* text"):
        from_onnx(classifier(labels="classlabels_strings"))


@pytest.mark.parametrize(
    ("op", "reason"), [("ZipMap", "zipmap"), ("TreeEnsembleRegressor", "trees have no")]
)
def test_untrainable_operators_are_refused_with_the_reason(op: str, reason: str) -> None:
    model = classifier()
    model.graph.node[2].op_type = op
    del model.graph.node[2].attribute[:]

    with pytest.raises(ImportModelError, match=reason):
        from_onnx(model)

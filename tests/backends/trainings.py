"""Small trainings of every kind, to compare backends with C."""

from typing import Any

import numpy as np

from pockengine.compiler.ir import Graph
from pockengine.compiler.optim import Adam, AdamW, Sgd
from pockengine.compiler.sparse import Scheme
from pockengine.compiler.sparse.scheme import FULL, ParamChoice
from pockengine.tests.compiler.transformers import bert_net, llama_net
from pockengine.tests.replay.nets import mobile_net
from pockengine.tests.replay.nets import residual_net as resnet

SPARSE = Scheme(
    "channels",
    (
        ("*.bias", FULL),
        ("features.4.conv.0.0.weight", ParamChoice("share", share=0.25)),
        ("features.5.conv.0.0.weight", ParamChoice("channels", channels=(1, 4, 5))),
        ("features.5.conv.1.0.weight", ParamChoice("range", channels=(8, 24))),
    ),
)


def opened(graph: Graph) -> Graph:
    """Put batch norms in the middle of ReLU6, so that rounding is not amplified."""
    for name, param in graph.params.items():
        if name.endswith(".bias") and name.replace(".bias", ".running_var") in graph.params:
            param.data = np.full_like(param.data, 2.0)
    return graph


SMOOTH = {"eps": 1e-2}
"""Adam with small steps for gradients that are only rounding."""

TRAININGS: dict[str, tuple[Graph, dict[str, Any]]] = {
    "mobile": (opened(mobile_net(2, 16)), {"optimizer": Sgd(momentum=0.9, weight_decay=1e-3)}),
    "mobile-sparse": (opened(mobile_net(2, 16)), {"scheme": SPARSE}),
    "resnet-biases": (resnet(2, 16), {"scheme": "bias-only", "optimizer": Adam(**SMOOTH)}),
    "bert-lora": (bert_net(), {"scheme": "lora-4", "optimizer": AdamW(**SMOOTH)}),
    "llama": (llama_net(), {"optimizer": Adam(**SMOOTH)}),
}

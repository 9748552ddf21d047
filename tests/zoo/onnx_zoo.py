"""Handwritten ONNX models in the style of PyTorch's, Keras's and scikit-learn's converters.

bazel run //tests/zoo:onnx_zoo -- [--only PATTERN ...]
"""

import numpy as np
from onnx import ModelProto, helper, numpy_helper, parser

from pockengine.tests.zoo.framework_step import Subject, compared
from pockengine.tests.zoo.verdict import command

HEADER = '<ir_version: 8, opset_import: ["" : 18, "ai.onnx.ml" : 3]>\n'
MLP = """
mlp (float[4,8] x, float[16,8] w1, float[16] b1, float[16,5] w2, float[5] b2) => (float[4,5] y) {
  a = Gemm<transB=1>(x, w1, b1)
  b = LeakyRelu(a)
  c = MatMul(b, w2)
  y = Add(c, b2)
}"""
CNN = """
cnn (float[2,3,8,8] x, float[6,3,3,3] w1, float[6] b1, float[6,1,3,3] w2, float[5,6] w3)
    => (float[2,5] y) {
  a = Conv<pads=[1,1,1,1], strides=[2,2]>(x, w1, b1)
  b = HardSwish(a)
  c = Conv<pads=[1,1,1,1], group=6>(b, w2)
  d = Add(b, c)
  e = GlobalAveragePool(d)
  f = Flatten(e)
  y = Gemm<transB=1>(f, w3)
}"""
UPSAMPLER = """
up (float[2,3,4,4] x, float[3,4,2,2] w1, float[4,4,3,3] w2, float[4] s, float[4] t)
    => (float[2,4,8,8] y) {
  a = ConvTranspose<strides=[2,2]>(x, w1)
  b = InstanceNormalization(a, s, t)
  c = Elu(b)
  y = Conv<auto_pad="SAME_UPPER">(c, w2)
}"""
TAGGER = """
tagger (int64[6,4] words, float[20,8] table, float[2,16,8] w, float[2,16,4] r, float[2,32] b,
    float[8,5] head)
  => (float[24,5] y) <int64[2] flat = {24, 8}> {
  a = Gather(table, words)
  h, last, memory = LSTM<hidden_size=4, direction="bidirectional">(a, w, r, b)
  c = Transpose<perm=[0,2,1,3]>(h)
  d = Reshape(c, flat)
  y = MatMul(d, head)
}"""
GRU = """
gru (float[6,4,8] x, float[1,12,8] w, float[1,12,4] r, float[1,24] b, float[4,5] head)
    => (float[4,5] y)
  <int64[1] first = {0}> {
  h, last = GRU<hidden_size=4, linear_before_reset=1>(x, w, r, b)
  a = Squeeze(last, first)
  y = MatMul(a, head)
}"""
RNN = """
rnn (float[4,6,8] x, float[1,4,8] w, float[1,4,4] r, float[1,8] b, float[4,5] head)
    => (float[4,5] y)
  <int64[1] second = {1}> {
  h, last = RNN<hidden_size=4, direction="reverse", layout=1>(x, w, r, b)
  a = Squeeze(last, second)
  y = MatMul(a, head)
}"""
ATTENTION = """
attention (float[2,6,8] x, float[8,8] q, float[8,8] k, float[8,8] v, float[8] s, float[8] t,
    float[8,5] head)
  => (float[2,5] y) <int64[4] split = {2,6,2,4}, int64[3] whole = {2,6,8}, int64[1] second = {1},
    float scale = {0.5}> {
  n = LayerNormalization(x, s, t)
  qn = MatMul(n, q)
  kn = MatMul(n, k)
  vn = MatMul(n, v)
  qs = Reshape(qn, split)
  ks = Reshape(kn, split)
  vs = Reshape(vn, split)
  scores = Einsum<equation="bqhd,bkhd->bhqk">(qs, ks)
  scaled = Mul(scores, scale)
  shares = Softmax<axis=-1>(scaled)
  mixed = Einsum<equation="bhqk,bkhd->bqhd">(shares, vs)
  joined = Reshape(mixed, whole)
  sum = Add(x, joined)
  mean = ReduceMean<keepdims=0>(sum, second)
  y = MatMul(mean, head)
}"""
MESSAGES = """
messages (float[6,4] x, float[4,8] w, float[8,5] head) => (float[6,5] y)
  <int64[7] from = {0,1,2,3,4,5,2}, int64[7,1] to = {1,2,3,4,5,0,5}, float zero = {0.0}> {
  h = MatMul(x, w)
  none = Mul(h, zero)
  sent = Gather(h, from)
  total = ScatterND<reduction="add">(none, to, sent)
  both = Add(h, total)
  a = Tanh(both)
  y = MatMul(a, head)
}"""
BEST = """
best (float[4,9] x, float[9,12] w, float[3,5] head) => (float[4,5] y) <int64[1] three = {3}> {
  a = MatMul(x, w)
  values, places = TopK(a, three)
  b = Sigmoid(values)
  y = MatMul(b, head)
}"""
BRANCH = """
branch (float[4,8] x, float[8,5] w, float[5] b) => (float[4,5] y) <int64 four = {4},
    int64 first = {0}> {
  shape = Shape(x)
  rows = Gather(shape, first)
  known = Equal(rows, four)
  y = If (known) <
    then_branch = yes () => (float[4,5] p) { m = MatMul(x, w)  p = Add(m, b) },
    else_branch = no () => (float[4,5] q) { q = MatMul(x, w) }
  >
}"""


def net(text: str, **inputs: np.ndarray) -> Subject:
    """Parse a net; inputs without data are random weights."""
    model = parser.parse_model(HEADER + text.strip())
    rng = np.random.default_rng(0)
    first, *others = model.graph.input
    for value in others:
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        data = rng.standard_normal(shape) / np.sqrt(shape[-1])
        model.graph.initializer.append(numpy_helper.from_array(data.astype(np.float32), value.name))
    del model.graph.input[1:]
    feed = inputs.get(first.name)
    if feed is None:
        shape = [size.dim_value for size in first.type.tensor_type.shape.dim]
        feed = rng.standard_normal(shape).astype(np.float32)
    return Subject(model, (feed,))


def classic(op: str, loss: str, **options: object) -> Subject:
    """Scale features and apply a linear model, as scikit-learn's pipelines do."""
    rng = np.random.default_rng(0)
    outputs = ["label", "scores"] if op == "LinearClassifier" else ["scores"]
    coefficients = rng.standard_normal(4 * 3).tolist()
    nodes = [
        helper.make_node(
            "Scaler", ["x"], ["s"], domain="ai.onnx.ml", offset=[0.5] * 4, scale=[2.0] * 4
        ),
        helper.make_node(
            op,
            ["s"],
            outputs,
            domain="ai.onnx.ml",
            coefficients=coefficients,
            intercepts=[0.1, 0.2, 0.3],
            **options,
        ),
    ]
    infos = {"label": (7, [8]), "scores": (1, [8, 3])}
    graph = helper.make_graph(
        nodes,
        "classic",
        [helper.make_tensor_value_info("x", 1, [8, 4])],
        [helper.make_tensor_value_info(name, *infos[name]) for name in outputs],
    )
    model: ModelProto = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)],
        ir_version=8,
    )
    return Subject(model, (rng.standard_normal((8, 4)).astype(np.float32),), loss)


ZOO = {
    "mlp": lambda: net(MLP),
    "cnn": lambda: net(CNN),
    "upsampler": lambda: net(UPSAMPLER),
    "lstm-tagger": lambda: net(TAGGER, words=np.arange(24).reshape(6, 4) % 20),
    "gru": lambda: net(GRU),
    "rnn": lambda: net(RNN),
    "attention": lambda: net(ATTENTION),
    "messages": lambda: net(MESSAGES),
    "best-of": lambda: net(BEST),
    "branch": lambda: net(BRANCH),
    "logistic-regression": lambda: classic(
        "LinearClassifier", "cross_entropy", classlabels_ints=[0, 1, 2], post_transform="SOFTMAX"
    ),
    "ridge": lambda: classic("LinearRegressor", "mse", targets=3),
}

if __name__ == "__main__":
    command(ZOO, compared)()

"""Put subgraphs and signatures into the bytes of a TFLite file.

The file is a flatbuffer by the schema that the package `tflite` carries. Equal constants are one
buffer, whatever subgraphs read them. Every operator is of the runtime itself (BuiltinOperator).
"""

from collections.abc import Mapping, Sequence

import flatbuffers
import numpy as np
import tflite

from pockengine.backends.tflite.parts import (
    Attribute,
    LiteOperator,
    LiteSignature,
    LiteSubgraph,
    LiteTensor,
)

SCHEMA_VERSION = 3
MOST_BYTES = 2**31
"""Of a flatbuffer: places in it are numbers of 32 bits with a sign."""
ENUMS = {"OutputType": "TensorType", "Padding": "Padding"}
"""Attributes that the schema numbers, and where it names their values."""
VERSIONS = {"BROADCAST_TO": 2}
"""Those that the runtime has no first version of."""
LAST_OLD_CODE = 127
"""Codes above it have a field of their own, and this one in the old field."""
ALIGNMENT = 16
"""Bytes, as the schema asks of a buffer."""


class FlatWriter:
    """A file while it is written: tables are appended from the innermost outwards."""

    def __init__(self) -> None:
        self._builder = flatbuffers.Builder(1 << 16)
        self._buffers = [self._table("Buffer")]
        self._places: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        self._codes: dict[str, int] = {}

    def file(
        self,
        description: str,
        subgraphs: Sequence[LiteSubgraph],
        signatures: Sequence[LiteSignature],
    ) -> bytearray:
        """Return the file; ValueError where its constants alone are above 2 GiB."""
        data = {id(array): array.nbytes for graph in subgraphs for array in graph.data.values()}
        if sum(data.values()) >= MOST_BYTES:
            raise ValueError(f"its constants have {sum(data.values())} bytes")
        graphs = self._vector([self._subgraph(graph) for graph in subgraphs])
        named = self._vector([self._signature(signature) for signature in signatures])
        codes = self._vector([self._code(op) for op in self._codes])
        buffers = self._vector(self._buffers)
        root = self._table(
            "Model",
            Version=SCHEMA_VERSION,
            OperatorCodes=codes,
            Subgraphs=graphs,
            Description=self._builder.CreateString(description),
            Buffers=buffers,
            SignatureDefs=named,
        )
        self._builder.Finish(root, b"TFL3")
        written: bytearray = self._builder.Output()
        self._size = len(written)
        return written

    def place(self, data: np.ndarray) -> int:
        """Return where in the file the bytes of a constant begin."""
        return self._size - self._ends[id(data)]

    def _table(self, name: str, **fields: int | float | bool) -> int:
        """Append a table; offsets of what lies in it are given as numbers."""
        getattr(tflite, f"{name}Start")(self._builder)
        for field, value in fields.items():
            getattr(tflite, f"{name}Add{field}")(self._builder, value)
        end: int = getattr(tflite, f"{name}End")(self._builder)
        return end

    def _vector(self, offsets: Sequence[int]) -> int:
        self._builder.StartVector(4, len(offsets), 4)
        for offset in reversed(offsets):
            self._builder.PrependUOffsetTRelative(offset)
        end: int = self._builder.EndVector()
        return end

    def _numbers(self, values: Sequence[int]) -> int:
        end: int = self._builder.CreateNumpyVector(np.asarray(values, np.int32))
        return end

    def _buffer(self, data: np.ndarray) -> int:
        """Number of the buffer that holds an array; the same array has one buffer."""
        if id(data) not in self._places:
            held = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            self._builder.StartVector(1, held.size, ALIGNMENT)
            self._builder.head -= held.size
            start = self._builder.Head()
            self._builder.Bytes[start : start + held.size] = held.data
            self._ends[id(data)] = self._builder.Offset()
            vector = self._builder.EndVector()
            self._buffers.append(self._table("Buffer", Data=vector))
            self._places[id(data)] = len(self._buffers) - 1
        return self._places[id(data)]

    def _code(self, op: str) -> int:
        number = getattr(tflite.BuiltinOperator, op)
        old = min(number, LAST_OLD_CODE)
        return self._table(
            "OperatorCode",
            DeprecatedBuiltinCode=old,
            BuiltinCode=number,
            Version=VERSIONS.get(op, 1),
        )

    def _tensor(self, tensor: LiteTensor, data: np.ndarray | None) -> int:
        name = self._builder.CreateString(tensor.name)
        return self._table(
            "Tensor",
            Shape=self._numbers(tensor.shape),
            Type=getattr(tflite.TensorType, tensor.kind),
            Buffer=0 if data is None else self._buffer(data),
            Name=name,
            HasRank=True,
        )

    def _operator(self, operator: LiteOperator) -> int:
        index = self._codes.setdefault(operator.op, len(self._codes))
        inputs, outputs = self._numbers(operator.inputs), self._numbers(operator.outputs)
        fields = {"OpcodeIndex": index, "Inputs": inputs, "Outputs": outputs}
        if operator.options:
            kind = getattr(tflite.BuiltinOptions, operator.options)
            attrs = {name: self._attribute(name, x) for name, x in operator.attrs.items()}
            table = self._table(operator.options, **attrs)
            fields |= {"BuiltinOptionsType": kind, "BuiltinOptions": table}
        return self._table("Operator", **fields)

    def _attribute(self, name: str, value: Attribute) -> int | float | bool:
        if not isinstance(value, str):
            return value
        if name in ENUMS:
            number: int = getattr(getattr(tflite, ENUMS[name]), value)
            return number
        text: int = self._builder.CreateString(value)
        return text

    def _subgraph(self, graph: LiteSubgraph) -> int:
        tensors = self._vector([self._tensor(t, graph.data.get(t.number)) for t in graph.tensors])
        operators = self._vector([self._operator(operator) for operator in graph.operators])
        return self._table(
            "SubGraph",
            Tensors=tensors,
            Inputs=self._numbers(graph.inputs),
            Outputs=self._numbers(graph.outputs),
            Operators=operators,
            Name=self._builder.CreateString(graph.name),
        )

    def _signature(self, signature: LiteSignature) -> int:
        return self._table(
            "SignatureDef",
            Inputs=self._map(signature.inputs),
            Outputs=self._map(signature.outputs),
            SignatureKey=self._builder.CreateString(signature.key),
            SubgraphIndex=signature.subgraph,
        )

    def _map(self, tensors: Mapping[str, int]) -> int:
        rows = []
        for name, number in tensors.items():
            text = self._builder.CreateString(name)
            rows.append(self._table("TensorMap", Name=text, TensorIndex=number))
        return self._vector(rows)

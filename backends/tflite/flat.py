"""Serialize subgraphs and signatures to a TFLite file.

The file is a flatbuffer with the schema in the package `tflite`. Equal constants share one buffer
across subgraphs. Every operator is a BuiltinOperator.
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
"""Maximum bytes of a flatbuffer, whose offsets are signed 32-bit numbers."""
ENUMS = {"OutputType": "TensorType", "Padding": "Padding"}
"""Enum attributes, by their names in the schema."""
VERSIONS = {"BROADCAST_TO": 2}
"""Minimum versions of operators that have no version 1."""
LAST_OLD_CODE = 127
"""Codes above it have a separate field, and this number in the old field."""
ALIGNMENT = 16
"""Alignment of buffers in bytes, required by the schema."""


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
        """Return the file; ValueError if its constants alone exceed 2 GiB."""
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
        """Return the offset of a constant's bytes in the file."""
        return self._size - self._ends[id(data)]

    def _table(self, name: str, **fields: int | float | bool) -> int:
        """Append a table; offsets of nested tables are passed as numbers."""
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
        """Return the buffer number of an array; the same array has one buffer."""
        if id(data) not in self._places:
            raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            self._builder.StartVector(1, raw.size, ALIGNMENT)
            self._builder.head -= raw.size
            start = self._builder.Head()
            self._builder.Bytes[start : start + raw.size] = raw.data
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

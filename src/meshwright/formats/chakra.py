"""Chakra execution traces, one file a rank, which ASTRA-sim and its like simulate (write only).

A file is a GlobalMetadata and then Nodes, each behind its length. Every message is written by the
rules of Protocol Buffers' wire format: a field is its number and type, then a varint, or a length
and so many bytes.

    node(7, "F 0 layer 1 ffn/up", COMP, after=[6], micros=120, attributes=work(1e12, 4e9))

Source: MLCommons Chakra, schema/protobuf/et_def.proto and src/feeder/et_feeder_node.cpp (21585d8),
for the numbers of fields and the attributes that simulators read; protobuf.dev, "Encoding".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

VERSION = "0.0.4"
"""Of the schema."""
COMP, SEND, RECEIVE, COLLECTIVE = 4, 5, 6, 7
"""NodeType."""
COLLECTIVES = {
    "all_reduce": 0,
    "reduce": 1,
    "all_gather": 2,
    "broadcast": 5,
    "all_to_all": 6,
    "reduce_scatter": 7,
}
"""Kind of a message -> CollectiveCommType."""
VARINT, BYTES = 0, 2
"""Types on the wire."""
VALUES = {"int32": 7, "int64": 9, "uint64": 13, "bool": 27, "string": 29}
"""Type of an attribute's value -> its field in AttributeProto."""


def varint(number: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    digits = bytearray()
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def field(number: int, value: int | str | bytes) -> bytes:
    """One field of a message."""
    if isinstance(value, int):
        return varint(number << 3 | VARINT) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | BYTES) + varint(len(data)) + data


def length_prefixed(message: bytes) -> bytes:
    """A message as it stands in a file."""
    return varint(len(message)) + message


@lru_cache(maxsize=65536)
def attribute(name: str, kind: str, value: int | str) -> bytes:
    """An attribute of a node, as a field of it."""
    return field(10, field(1, name) + field(VALUES[kind], value))


ON_GPU = attribute("is_cpu_op", "bool", 0)


def work_attributes(flops: float, memory: float) -> bytes:
    """What a computation does: operations, and bytes of memory. Simulators that time by a roofline
    take a node without bytes for none."""
    size = max(round(memory), 1)
    return attribute("num_ops", "int64", round(flops)) + attribute(
        "tensor_size", "uint64", size
    )


def collective(kind: str, size: float, ranks: int) -> bytes:
    """One collective. size: bytes of the full vector, of which a gather is said by what each rank
    begins with (ASTRA-sim, Ring.cc: final_data_size)."""
    own = size / ranks if kind == "all_gather" else size
    return attribute("comm_type", "int64", COLLECTIVES[kind]) + attribute(
        "comm_size", "int64", max(round(own), 1)
    )


def group(number: int) -> bytes:
    """The communicator of a collective."""
    return attribute("pg_name", "string", str(number))


def message(size: float, tag: int) -> bytes:
    """One message between two ranks."""
    return attribute("comm_size", "int64", max(round(size), 1)) + attribute(
        "comm_tag", "int32", tag
    )


def endpoints(sender: int, receiver: int) -> bytes:
    """The ranks of a message."""
    return attribute("comm_src", "int32", sender) + attribute(
        "comm_dst", "int32", receiver
    )


def node(
    number: int,
    name: str,
    kind: int,
    after: Sequence[int] = (),
    micros: int = 0,
    attributes: bytes = b"",
) -> bytes:
    """One node. after: numbers of those that it waits for."""
    waits = field(5, b"".join(map(varint, after))) if after else b""
    lasts = field(7, micros) if micros else b""
    head = field(1, number) + field(2, name) + field(3, kind)
    return head + waits + lasts + ON_GPU + attributes


def file(nodes: Iterable[bytes]) -> bytes:
    """The text of a rank's file."""
    return length_prefixed(field(1, VERSION)) + b"".join(
        map(length_prefixed, nodes)
    )

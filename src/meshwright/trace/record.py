"""One forward pass on meta tensors, operation by operation: what PyTorch would compute, which
parameters it reads, what autograd would keep.

A `TorchDispatchMode` sees every operation below autograd; where a tensor came from is known by its
storage, which views share. Formulas of FLOPs are those of torch.utils.flop_counter.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from ..errors import BadInput
from .choices import Choices
from .even import Step, choice_count, even
from .source import Record, StorageSource

MOST = 400_000
"""Operations of one pass; what makes more loops over tokens in Python."""


MOVES = (
    "clone", "copy", "_to_copy", "repeat", "index", "index_select", "cat",
    "repeat_interleave", "contiguous", "_unsafe_view", "gather",
)  # fmt: skip
"""Operations that lay numbers out anew and compute none."""


SOFTMAX = ("_softmax", "_safe_softmax")


MASKS = ("all", "any")
"""Questions to which a mask without padding has an answer."""
SCATTERS = (
    "index_add",
    "index_put",
    "index_copy",
    "scatter",
    "scatter_add",
    "scatter_reduce",
)
"""Operations that write rows into a whole."""
CHOOSES = ("index", "index_select", "gather", "embedding")
"""Operations that take rows of a parameter."""


class TraceRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records of one pass."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sources: dict[int, StorageSource] = {}
        self.records: list[Record] = []
        self.stack: list[tuple[str, nn.Module]] = []
        self.call = -1
        self.calls = 0
        self.running = False
        self.long: dict[object, tuple[int, nn.Module, Any]] = {}
        """What a layer of many operations looks like -> its call, the layer, what it gave."""
        self.copies: dict[int, tuple[int, nn.Module, nn.Module]] = {}
        """Call of a layer that looks like an earlier one -> that one's call, it, and the layer."""
        self.ran: set[int] = set()
        """Modules that ran."""
        self.kept: set[int] = set()
        """Storages that autograd keeps."""
        self.pending: list[int] = []
        """Of these, those whose operation is not written yet."""
        self.hidden = 0
        """Width of what the first layer reads."""
        self.firsts: set[int] = set()
        """Records that make scores which a later record weighs values by."""
        self.last: dict[int, int] = {}
        """Storage -> the last record that reads it."""
        self.names = {name: id(p) for name, p in parameters.items()}
        self.causal = False
        self.choices = Choices(self.source)
        self.split = False
        """Tokens were spread over experts by numbers that the data would choose."""
        self.assumed: set[str] = set()
        """Modules with a branch on what only data decide, where one way was taken."""
        for name, parameter in parameters.items():
            self.source(parameter).parameter = name

    def key(self, tensor: torch.Tensor) -> int:
        """The number of a tensor's storage."""
        return int(tensor.untyped_storage()._cdata)

    def source(self, tensor: torch.Tensor) -> StorageSource:
        """Where a tensor came from; what nobody made is given."""
        storage = tensor.untyped_storage()
        of = self.sources.get(int(storage._cdata))
        if of is None:
            of = StorageSource(storage, int(storage.nbytes()))
            self.sources[int(storage._cdata)] = of
        return of

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run an operation and write down what it did."""
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        if name == "_local_scalar_dense":
            if not args[0].is_meta:
                return func(*args, **kwargs)
            return self.number(args[0])
        try:
            out = self.choices.made(func, name, args, self.call)
            out = func(*args, **kwargs) if out is None else out
        except (NotImplementedError, ValueError):
            if name == "_to_copy" and not args[0].is_floating_point():
                return self.spread(args[0])
            raise self.unknown(name) from None
        self.write(func, name, args, kwargs=kwargs, out=out)
        return out

    def picks(self, inputs: Any) -> bool:
        """Whether all that a module reads are rows that the data choose."""
        tensors = [t for t in tree_iter(inputs) if isinstance(t, torch.Tensor)]
        return bool(tensors) and all(self.source(t).picked for t in tensors)

    def number(self, tensor: torch.Tensor) -> object:
        """What a program is told that asks for a number of a tensor: what shapes say, yes to "all",
        no to "any" of masks of tokens, as without padding; yes to what depends on the data, which
        `assumed` says. BadInput for other numbers.
        """
        of = self.source(tensor)
        maker = self.records[of.maker].name if of.maker >= 0 else ""
        if tensor.dtype == torch.bool:
            if of.mean is not None and (of.mean in (0, 1) or maker in MASKS):
                return of.mean > 0
            if of.live or maker not in MASKS:
                self.assumed.add(self.path or "the model")
                return True
            return maker == "all"
        if of.mean is not None and not tensor.is_floating_point():
            return round(of.mean)
        raise self.unknown(maker or "an input")

    def spread(self, tensor: torch.Tensor) -> torch.Tensor:
        """The numbers of a tensor of counts, such as the tokens of each expert: evenly spread, with
        the sum that the data give. BadInput for other numbers.
        """
        of = self.source(tensor)
        if of.mean is None:
            maker = self.records[of.maker].name if of.maker >= 0 else ""
            raise self.unknown(maker or "an input")
        self.split = True
        ends = [round(of.mean * i) for i in range(tensor.numel() + 1)]
        counts = [b - a for a, b in itertools.pairwise(ends)]
        return torch.tensor(counts, dtype=tensor.dtype, device="cpu").view(
            tensor.shape
        )

    def unknown(self, name: str) -> BadInput:
        """The refusal of what only numbers would answer."""
        return BadInput(
            f"the code asks for a number that depends on the data ({name}, in"
            f" {self.path or 'the model'}), which a trace without numbers does not have"
        )

    @property
    def path(self) -> str:
        """The module that runs; * for each of a list whose rows the data choose."""
        return ".".join(name for name, _ in self.stack)

    def write(
        self,
        func: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        out: Any,
    ) -> None:
        """A record of an operation, unless it only looks at a tensor in another way."""
        tensors = [
            t
            for t in tree_iter((args, dict(kwargs)))
            if isinstance(t, torch.Tensor)
        ]
        results = [t for t in tree_iter(out) if isinstance(t, torch.Tensor)]
        inputs = tuple(self.key(t) for t in tensors)
        of = [self.source(t) for t in tensors]
        new = [t for t in results if self.key(t) not in inputs]
        if not new and not name.endswith("_"):
            return
        if len(self.records) > MOST:
            raise BadInput(
                f"one pass makes more than {MOST:,} operations, as a loop over tokens does"
            )
        formula = flop_registry.get(func._overloadpacket)
        flops = int(formula(*args, **kwargs, out_val=out)) if formula else 0
        whole = name.endswith("_") or name in SCATTERS
        asked = name in ("nonzero", "index", "masked_select")
        picked = any(s.picked for s in (of[:1] if whole else of)) or any(
            asked and s.live and (name == "nonzero" or t.dtype == torch.bool)
            for s, t in zip(of, tensors, strict=True)
        )
        record = Record(
            call=self.call,
            path=self.path,
            name=name,
            flops=flops,
            inputs=inputs,
            outputs=tuple(self.key(t) for t in results),
            shapes=tuple(tuple(t.shape) for t in tensors),
            made=tuple(results[0].shape) if results else (),
            parameters=tuple(s.parameter for s in of if s.parameter),
            chosen=any(
                s.chosen or (self.split and s.parameter and t.nbytes < s.bytes)
                for s, t in zip(of, tensors, strict=True)
            ),
            live=any(s.live or s.parameter for s in of),
            picked=picked,
            outside=not self.running,
        )
        self.derive(record, of, tensors)
        number = len(self.records)
        self.keep(record)
        self.records.append(record)
        weight_only = (
            not flops
            and name in (*MOVES, *CHOOSES[:3])
            and len(record.parameters) == 1
            and not any(
                s.live and t.is_floating_point() and not s.parameter
                for s, t in zip(of, tensors, strict=True)
            )
        )
        step = Step(name, args, of, tensors=tensors, results=results)
        mean, among = even(step), choice_count(step)
        for t in results:
            source = self.source(t)
            source.mean = mean
            source.among = 0 if t.is_floating_point() else among
            source.picked = record.picked
            if weight_only:
                record.live = False
                source.parameter = record.parameters[0]
                source.chosen = name in CHOOSES or record.chosen
                continue
            source.live = source.live or record.live
            if source.maker < 0 or not new:
                source.maker = number
            source.products = (
                frozenset([number])
                if flops
                else source.products | record.products
            )
            self.pass_scores(record, number, source, of)
            small = min((s.bytes for s in of if s.live), default=0)
            narrow = min((s.narrow for s in of if s.narrow), default=0)
            if name in MOVES and 0 < small < source.bytes:
                narrow = narrow or small
            source.narrow = 0 if flops else narrow

    def derive(
        self,
        record: Record,
        of: list[StorageSource],
        tensors: list[torch.Tensor],
    ) -> None:
        """What a record is made of."""
        record.products = frozenset().union(*(s.products for s in of))
        weighed = [s.weighed for s in of if s.weighed >= 0]
        scores = [s.scores for s in of if s.scores >= 0]
        record.inside = (weighed or scores or [-1])[0]
        if record.flops and weighed and not record.parameters:
            record.attention = weighed[0]
            self.firsts.add(weighed[0])
            record.inside = -1
            record.attributes = {"narrow": self.narrow(of, tensors)}
        if scores and len(tensors) > 1 and not record.flops:
            square = [
                t
                for s, t in zip(of, tensors, strict=True)
                if s.scores < 0 and t.dim() >= 2 and min(t.shape[-2:]) > 1
            ]
            self.causal = self.causal or bool(square)
        if record.flops and self.stack:
            inner = self.stack[-1][1]
            window = getattr(inner, "sliding_window", None)
            if isinstance(window, int) and not isinstance(window, bool):
                record.attributes = {**record.attributes, "window": window}

    def narrow(
        self, of: list[StorageSource], tensors: list[torch.Tensor]
    ) -> float:
        """Of the values of attention: what share of their bytes they were before heads shared
        them.
        """
        for source in of:
            if source.weighed < 0:
                return source.narrow / source.bytes if source.narrow else 1.0
        return 1.0

    def pass_scores(
        self,
        record: Record,
        number: int,
        source: StorageSource,
        of: list[StorageSource],
    ) -> None:
        """Scores stay scores until a softmax makes them weights, and these until a product."""
        if record.flops:
            alone = not record.parameters and record.attention < 0
            source.scores = number if alone else -1
            return
        weighed = [s.weighed for s in of if s.weighed >= 0]
        scores = [s.scores for s in of if s.scores >= 0]
        if record.name in SOFTMAX and scores:
            source.weighed = scores[0]
        elif weighed:
            source.weighed = weighed[0]
        elif scores:
            source.scores = scores[0]

    def pack(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor that autograd keeps: of an operation that comes, if that reads it, else of the
        one before.
        """
        of = self.source(tensor)
        key = self.key(tensor)
        if of.live and not of.parameter and key not in self.kept:
            self.kept.add(key)
            self.pending.append(key)
        return tensor

    def keep(self, record: Record) -> None:
        """Hand what autograd kept since the last record to this one, or to the last."""
        for key in self.pending:
            mine = key in record.inputs or not self.records
            owner = record if mine else self.records[-1]
            owner.saved[key] = self.sources[key].bytes
        self.pending.clear()

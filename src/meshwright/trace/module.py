"""`meshwright.model_of`: a person's own PyTorch model, to plan and predict with."""

from __future__ import annotations

from typing import Any

from ..describe.model import Model
from ..errors import BadInput


def model_of(module: Any, example: Any, name: str = "", seq: int = 0) -> Model:
    """The model of an `nn.Module`: parameters and products of each layer by a trace on tensors
    without values; the module itself is not changed.

    >>> import torch
    >>> from meshwright import Job, model_of, predict
    >>> layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    >>> class Net(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.embed = torch.nn.Embedding(256, 64)
    ...         self.layers = torch.nn.TransformerEncoder(layer, 2)
    ...         self.head = torch.nn.Linear(64, 256)
    ...     def forward(self, tokens):
    ...         return self.head(self.layers(self.embed(tokens)))
    >>> model = model_of(Net(), torch.zeros(1, 32, dtype=torch.long))
    >>> model.layers, predict(Job(model, "8xh100-sxm", batch=64)).fits
    (2, True)

    example: tokens [batch, T], or the arguments of `forward` as a tuple or mapping; any dimension
    of length T is taken for the sequence;  seq: tokens that training uses (0: T). Raises BadInput
    for code that depends on values.
    """
    try:
        from .example import count_module
    except ImportError:
        raise BadInput(
            "model_of runs the module's code, which needs torch: pip install 'meshwright[hf]'"
        ) from None
    return count_module(module, example, name, seq)

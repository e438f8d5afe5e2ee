"""`meshwright.model_of`: a person's own PyTorch model, to plan and predict with."""

from __future__ import annotations

from typing import Any

from ..describe.model import Model
from ..errors import BadInput


def model_of(module: Any, example: Any, name: str = "", seq: int = 0) -> Model:
    """The model of an `nn.Module`: parameters and products of each layer by a trace on tensors
    without numbers; the module itself is left as it is.

        model = meshwright.model_of(net, torch.zeros(1, 2048, dtype=torch.long))
        print(meshwright.plan(meshwright.Job(model, meshwright.cluster("64xh100-sxm"), 512)))

    example: tokens [batch, T], or the arguments of `forward` as a tuple or mapping; whatever side
    of their tensors is T long is taken for the sequence;  seq: tokens that training uses (0: T).
    Raises BadInput for code that asks for numbers.
    """
    try:
        from .example import counted
    except ImportError:
        raise BadInput(
            "model_of runs the module's code, which needs torch: pip install 'meshwright[hf]'"
        ) from None
    return counted(module, example, name, seq)

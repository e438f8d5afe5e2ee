"""The table [train] of a job file: how the optimizer moves, what data it sees, where results go.
The rest of the file is the job itself.

A field may name code of the user's own: an entry point of the group `meshwright.train`, or
"module:object" as Python imports it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from ..errors import BadInput
from .fields import (
    Amount,
    AnyShare,
    Checked,
    Count,
    Known,
    OneOf,
    Path,
    Range,
    SIUnit,
    Spelled,
    fields_of,
)
from .read import read


@dataclass(frozen=True)
class Settings(Checked):
    """How a job is run."""

    steps: int = 100
    """Optimizer steps of the run."""
    lr: float = 3e-4
    """Highest learning rate."""
    schedule: Annotated[
        str,
        OneOf("cosine", "linear", "wsd", "constant"),
        Spelled("lr_schedule"),
    ] = "cosine"
    """How the learning rate falls after the warm-up: cosine or linear, until the last step; wsd,
    which stays constant and falls linearly over the last `decay` steps; or constant.
    """
    decay: Count | None = None
    """wsd: steps in which the learning rate falls. None: a tenth of them."""
    final_lr: AnyShare = 0.1
    """Learning rate of the last step over the highest. 0: it falls to zero."""
    warmup: Count = 10
    """Steps in which the learning rate rises linearly from 0 (the first step takes 1/warmup of it);
    0 for none.
    """
    beta1: Amount = 0.9
    """AdamW's decay of the mean gradient."""
    beta2: Amount = 0.95
    """AdamW's decay of the mean squared gradient."""
    epsilon: Annotated[float, Range(1e-20, 1.0)] = 1e-8
    """AdamW's addition to the root of the mean squared gradient."""
    weight_decay: Amount | None = 0.1
    """Weight decay of matrices; 0 for none. Biases (also those of experts) and norms never
    decay.
    """
    clip: Amount | None = 1.0
    """Largest norm of the gradient of all parameters together; 0 for no limit."""
    seed: Annotated[int, Range(0, 2**53)] = 1
    """Random seed of the initial weights and of the order of the data."""
    ramp_batch: Count | None = None
    """Sequences of the first step, if the batch ramps up to that of the job. None: no ramp."""
    ramp_steps: Count | None = None
    """Steps over which the batch grows."""
    data: Path = "corpus"
    """Path of a token file of `meshwright data`, or of several with their shares ("a 0.7, b 0.3";
    without them, by their sizes), "corpus" (real text of this machine's Python), "synthetic", or
    your own code as "module:object".
    """
    documents: bool = False
    """A token attends only to its own document, if a sequence holds several; the data must have a
    token after each document.
    """
    eval_every: Count | None = None
    """Steps between evaluations on held-out text, and one after the last step. None: no evaluation,
    and all data is trained on.
    """
    eval_batches: int = 1
    """Batches of an evaluation."""
    eval_data: Path | None = None
    """Path of a token file to evaluate on, or code as for `data`. None: the end of `data`, which is
    then held out.
    """
    weights: Path | None = None
    """Folder of Hugging Face weights (model.safetensors and config.json) to start from; None:
    random initial weights.
    """
    compile: bool = False
    """Compile each layer with torch.compile (on CPUs it needs a C++ compiler)."""
    balance_loss: Amount | None = None
    """Coefficient of the loss that balances the load of experts over each sequence
    (DeepSeek-V3: 1e-4; Mixtral: 0.02 over a batch). None: no such loss.
    """
    balance_bias: Amount | None = None
    """How far an expert's bias moves per step to balance loads (DeepSeek-V3: 0.001); it affects
    which experts are chosen, not their weights. None: no biases.
    """
    router_z_loss: Amount | None = None
    """Coefficient of the loss that keeps the logits of routers small: the square of the log of the
    sum of their exponentials (ST-MoE: 1e-3). None: no such loss.
    """
    z_loss: Amount | None = None
    """The same for the logits of the vocabulary (PaLM: 1e-4). None: no such loss."""
    loss_scale: float = 2.0**16
    """fp16: scale of the loss in the first step; it halves at an overflow. A power of two."""
    scale_growth: int = 2000
    """fp16: steps without an overflow after which the scale doubles."""
    output: Annotated[Path, Spelled("output", "-o")] = "run"
    """Folder for metrics.jsonl and checkpoints, relative to the working directory."""
    own_model: Known | None = None
    """Your own decoder as "module:object" (`train.registry`). None: ours."""
    own_optimizer: Known | None = None
    """Your own optimizer as "module:object". None: AdamW, which a prediction counts."""
    logger: Known | None = None
    """An additional logger that gets every step, as "module:object". None: only metrics.jsonl."""
    sample: Count | None = None
    """Tokens of text that the run writes to sample.txt when it ends. None: no text."""
    tensorboard: bool = False
    """Also write metrics to tensorboard/ in the run's folder (needs the package tensorboard)."""
    save_every: Count | None = None
    """Steps between checkpoints; the last step is always saved. None: only that."""
    keep: int = 2
    """Newest checkpoints that are kept."""
    keep_every: Count | None = None
    """Steps between checkpoints that are kept for good. None: none."""
    max_skipped: int | None = 10
    """Updates in a row that may be skipped because a gradient or the loss is not finite; the run
    then ends, exit code 3. "none" for no limit.
    """
    async_save: bool = True
    """Steps go on while threads write a copy of the state (as large as the state, in CPU memory);
    false: steps wait.
    """
    restarts: Count | None = None
    """How often a run restarts by itself from its newest checkpoint after a rank was killed or
    failed. None: never (torchrun has --max-restarts).
    """
    check_every: Count | None = None
    """Steps between comparisons of the weights that replicas share, bit by bit; None: never."""
    record: Count | None = 3
    """Steps, after the first three of a run, whose parts are timed for `meshwright compare`; 0 for
    none.
    """
    profile: Annotated[int, Range(0, 10)] | None = None
    """Steps, after the recorded ones, under PyTorch's profiler: one trace per rank in profile/,
    with waits for messages by axis; a trace grows by megabytes per step.
    """
    shards: Count | None = None
    """Hybrid sharding: dp ranks among which ZeRO shards; the groups keep copies. None: all. The
    prediction assumes all.
    """
    device: Annotated[str, OneOf("cpu", "cuda")] = "cpu"
    """cpu (gloo) or cuda (NCCL)."""
    deterministic: bool = False
    """On GPUs: bit-identical results, with slower kernels where the fast ones add in arbitrary
    order (backward passes of attention and the embedding). CPUs always do so.
    """
    threads: Annotated[int, Range(1, 1024)] = 1
    """CPU threads per rank."""
    timeout: Annotated[float, SIUnit("s"), Range(1e-3, 1e6)] = 600.0
    """Seconds without progress after which a rank counts as hanging and the run is ended. A step or
    a checkpoint must not take longer.
    """

    @property
    def warning(self) -> str:
        """A sentence on a rise that outlasts the run; empty if it does not."""
        if self.warmup <= self.steps:
            return ""
        return (
            f"warmup {self.warmup} is longer than the {self.steps} steps of the run: its learning"
            f" rate ends at {100 * self.steps / self.warmup:.0f} % of {self.lr:g}"
        )


_ASYNC_TP = (
    "asynchronous tensor parallelism is a pass of torch.compile over symmetric memory, which this"
    " trainer does not set up: leave it out"
)
_BOUNDARY = (
    "stages send 1/tp of a boundary with layout.sequence_parallel = true, and have no other way to:"
    " set that"
)
_FP8 = "FP8 is not trained: take job.precision bf16 and leave it out"
_ADAMW = (
    "AdamW in fp32 is the optimizer that is trained: leave it out, or name one of your own with"
    " train.own_optimizer"
)
_GRAPHS = "layers are not captured as CUDA graphs: leave it out"
_OFFLOAD = "states and activations stay on their device: leave it out"
_TUNED = (
    "weights are trained as a whole on text: meshwright export --to axolotl writes the run of a"
    " trainer that tunes"
)
ABSENT = {
    "lora": _TUNED,
    "sft": _TUNED,
    "dpo": _TUNED,
    "async_tp": _ASYNC_TP,
    "enable_async_tensor_parallel": _ASYNC_TP,
    "tp_comm_overlap": _ASYNC_TP,
    "scatter_gather": _BOUNDARY,
    "scatter_gather_tensors_in_pipeline": _BOUNDARY,
    "fp8": _FP8,
    "float8": _FP8,
    "mxfp8": _FP8,
    "optimizer": _ADAMW,
    "muon": _ADAMW,
    "cuda_graphs": _GRAPHS,
    "enable_cuda_graph": _GRAPHS,
    "cpu_offload": _OFFLOAD,
    "deepep": (
        "experts exchange rows by PyTorch's all-to-all, not by DeepEP: leave it out"
    ),
}
"""What other trainers have and this one has not -> why not, and what to do."""


def settings(data: object) -> Settings:
    """The settings in a table; BadInput if one is unknown or impossible."""
    for name in data if isinstance(data, dict) else ():
        if name in ABSENT:
            raise BadInput(f"train.{name}: {ABSENT[name]}")
    values: Any = read(Settings, data, "train")
    for name in ("beta1", "beta2"):
        if getattr(values, name) >= 1:
            raise BadInput(
                f"train.{name} must be less than 1, not {getattr(values, name):g}"
            )
    if math.frexp(values.loss_scale)[0] != 0.5:
        raise BadInput(
            f"train.loss_scale must be a power of two, not {values.loss_scale:g}"
        )
    # where a field may be left without a number, 0 says the same
    none = {
        name: None
        for name, field in fields_of(Settings).items()
        if field.kind.none and getattr(values, name) == 0
    }
    return Settings(**{**vars(values), **none})


def train_table(s: Settings) -> dict[str, Any]:
    """The table that `settings` turns into equal ones; every field is in it, for defaults may
    change.
    """
    return {
        name: "none" if value is None else value
        for name, value in vars(s).items()
    }


def stated_values(data: Any) -> dict[str, Any]:
    """A table with each of its fields as `table` has it; BadInput as `settings` raises it."""
    whole = train_table(settings(data))
    return {name: whole[name] for name in data}

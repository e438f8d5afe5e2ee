"""The time of one training step: layers make stages, stages make a pipeline; synchronisation and
the optimizer follow.

A device holds a share of the model (`shares`) and its `parameters`. A microbatch costs so much in
each part of the model (`microbatch.ModelCost`), and so much on each device (`passes`). A pipeline
takes so long for all of them (`pipeline`; at least: `idle_bound`; in papers: `closed_form`).
Replicas exchange weights and gradients (`weights`; what shows of it: `sync`) as often as their ZeRO
stage says (`zero`), and update what they own (`optimizer`). `total` is the sum of a step, whose
parts `costs` shares among choices. Bytes: what microbatches keep (`activations`),
what a framework has of a parameter (`holding`), all of them (`memory`), and what must be there
(`oom`).

Every function takes a job and a layout whose numbers may be arrays, so one layout and a table of a
million are the same code.
"""

from .costs import StepCosts, step_time, whole_step
from .idle_bound import least_idle
from .microbatch import (
    ModelCost,
    clock_of,
    model_cost,
    with_recomputation,
)
from .optimizer import update
from .parameters import parameters_of
from .shares import ModelShare, ModelShares, model_shares
from .total import Step

__all__ = [
    "ModelCost",
    "ModelShare",
    "ModelShares",
    "Step",
    "StepCosts",
    "model_cost",
    "clock_of",
    "least_idle",
    "parameters_of",
    "with_recomputation",
    "model_shares",
    "whole_step",
    "step_time",
    "update",
]

"""The standing loop on this machine: config.json -> plan -> train -> compare -> calibrate -> a
prediction of a narrower interval, nearer to what was measured.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from shell import Shell

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 256,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
MACHINE = """
[chip]
name = "a core"
matrix_flops = { fp32 = "20 GFLOP/s" }
vector_flops = "5 GFLOP/s"
hbm_bytes = "4 GiB"
hbm_bandwidth = "5 GB/s"
[network]
name = "one machine"
dims = [{ name = "memory", bandwidth = "2 GB/s", latency = "20 us" }]
"""
"""One core, roughly: what it really does the run says."""


def test_a_run_makes_its_next_prediction_surer(
    elsewhere: Path,
    shell: Shell,
) -> None:
    Path("config.json").write_text(json.dumps(CONFIG))
    Path("machine.toml").write_text(MACHINE)
    asked = "config.json --on 1x./machine.toml --batch 4seq --seq 64 --framework meshwright"
    plan = f"plan {asked} --precision fp32 -o plan.toml"
    shell(plan)
    train = "train plan.toml --steps 12 --device cpu --output run"
    shell(train)
    beside = shell.json("compare run")
    measured = beside["step_time_s"]["measured"]
    before = shell.json("predict plan.toml")
    shell("calibrate --from run -o ours.toml")
    text = (
        Path("plan.toml")
        .read_text("utf-8")
        .replace("./machine.toml", "./ours.toml")
    )
    Path("again.toml").write_text(text)
    after = shell.json("predict plan.toml --on 1x./ours.toml")

    def width(of: dict[str, Any]) -> float:
        low, high = of["interval_s"]
        return float(high / low)

    def miss(of: dict[str, Any]) -> float:
        return abs(float(of["step_time_s"]) / measured - 1.0)

    assert width(after) < width(before)
    assert miss(after) < miss(before)

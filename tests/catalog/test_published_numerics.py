"""Numbers of published config.json files that change neither time nor memory, and that an export
writes into somebody's run: rope_theta and the epsilon of norms.
"""

from __future__ import annotations

import pytest

from meshwright import catalog

PUBLISHED = {
    "Qwen/Qwen2.5-7B": (1e6, 1e-6),
    "Qwen/Qwen2.5-14B": (1e6, 1e-5),
    "Qwen/Qwen2.5-32B": (1e6, 1e-5),
    "Qwen/Qwen2.5-72B": (1e6, 1e-5),
    "Qwen/Qwen3-8B": (1e6, 1e-6),
    "Qwen/Qwen3-14B": (1e6, 1e-6),
    "Qwen/Qwen3-32B": (1e6, 1e-6),
    "Qwen/Qwen3-30B-A3B": (1e6, 1e-6),
    "Qwen/Qwen3-235B-A22B": (1e6, 1e-6),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": (1e7, 1e-6),
    "deepseek-ai/DeepSeek-V2": (1e4, 1e-6),
    "deepseek-ai/DeepSeek-V2-Lite": (1e4, 1e-6),
    "deepseek-ai/DeepSeek-V3": (1e4, 1e-6),
    "moonshotai/Kimi-K2-Base": (5e4, 1e-6),
    "openai/gpt-oss-20b": (1.5e5, 1e-5),
    "openai/gpt-oss-120b": (1.5e5, 1e-5),
    "google/gemma-2-9b": (1e4, 1e-6),
    "google/gemma-2-27b": (1e4, 1e-6),
    "huggyllama/llama-7b": (1e4, 1e-6),
    "huggyllama/llama-65b": (1e4, 1e-5),
    "meta-llama/Llama-2-70b-hf": (1e4, 1e-5),
    "meta-llama/Llama-2-7b-hf": (1e4, 1e-5),
    "meta-llama/Meta-Llama-3-8B": (5e5, 1e-5),
    "meta-llama/Meta-Llama-3-70B": (5e5, 1e-5),
    "meta-llama/Llama-3.1-405B": (5e5, 1e-5),
    "meta-llama/Llama-3.2-1B": (5e5, 1e-5),
    "meta-llama/Llama-3.2-3B": (5e5, 1e-5),
    "mistralai/Mistral-7B-v0.1": (1e4, 1e-5),
    "mistralai/Mixtral-8x7B-v0.1": (1e6, 1e-5),
    "mistralai/Mixtral-8x22B-v0.1": (1e6, 1e-5),
    "allenai/OLMo-2-1124-7B": (5e5, 1e-6),
    "allenai/OLMo-2-1124-13B": (5e5, 1e-6),
    "microsoft/phi-4": (2.5e5, 1e-5),
    "zai-org/GLM-4.5": (1e6, 1e-5),
    "zai-org/GLM-4.5-Air": (1e6, 1e-5),
}
"""Name on Hugging Face -> (rope_theta, rms_norm_eps) of the config.json there."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_positions_and_norms_are_those_of_the_published_file(
    name: str,
) -> None:
    model = catalog.model(name)
    assert (model.rope_base, model.norm_epsilon) == PUBLISHED[name]


def test_part_of_a_head_is_rotated_where_the_file_says_so() -> None:
    assert catalog.model("EleutherAI/gpt-neox-20b").rotary_share == 0.25
    assert catalog.model("zai-org/GLM-4.5-Air").rotary_share == 0.5

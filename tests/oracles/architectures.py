"""Small models of the architectures people train, each with what sets it apart."""

from meshwright.describe.model import MLA, Model, MoE

GPT = Model(
    "GPT-3 style: biases, learned positions, tied embeddings",
    3,
    96,
    6,
    384,
    512,
    32,
    gated=False,
    norm="layernorm",
    positions="learned",
    qkv_bias=True,
    bias=True,
    tied_embeddings=True,
)
LLAMA = Model("Llama style: grouped queries, SwiGLU", 4, 64, 8, 176, 320, 48, kv_heads=2)
MIXTRAL = Model(
    "Mixtral style: top-2 of 8 experts", 2, 64, 4, 224, 256, 32, kv_heads=2, moe=MoE(8, 2, 224)
)
DEEPSEEK = Model(
    "DeepSeek-V3 style: latent attention, leading dense layers, shared experts, a next-token block",
    4,
    64,
    4,
    192,
    256,
    32,
    mla=MLA(24, 16, 8, 12, q_lora_rank=40),
    moe=MoE(16, 4, 32, shared_ffn=32, dense_layers=1),
    mtp_layers=1,
)
DEEPSEEK_LITE = Model(
    "DeepSeek-V2-Lite style: latent attention with plain queries, two shared experts",
    3,
    64,
    4,
    192,
    256,
    32,
    mla=MLA(24, 16, 8, 16),
    moe=MoE(8, 2, 48, shared_ffn=96, dense_layers=1),
)
FALCON = Model(
    "Falcon style: parallel block, one key/value head",
    3,
    96,
    6,
    384,
    256,
    32,
    kv_heads=1,
    gated=False,
    norm="layernorm",
    norms_per_layer=1,
    tied_embeddings=True,
)
GEMMA = Model(
    "Gemma 2 style: four norms, heads wider than D / H, windows in every second layer",
    4,
    80,
    4,
    320,
    512,
    48,
    kv_heads=2,
    head_dim=32,
    window=16,
    full_every=2,
    norms_per_layer=4,
    tied_embeddings=True,
)
QWEN = Model(
    "Qwen3 style: normalised queries and keys, many small experts",
    3,
    64,
    8,
    192,
    320,
    32,
    kv_heads=2,
    head_dim=16,
    qk_norm=True,
    moe=MoE(16, 4, 24),
)
QWEN2_MOE = Model(
    "Qwen2-MoE style: biases on q, k, v, a gate on the shared expert",
    2,
    64,
    4,
    192,
    256,
    32,
    qkv_bias=True,
    moe=MoE(8, 2, 40, shared_ffn=80, shared_gate=True),
)
GPT_OSS = Model(
    "gpt-oss style: biases in router and experts, attention sinks, windows",
    2,
    64,
    4,
    96,
    256,
    32,
    kv_heads=2,
    head_dim=8,
    window=8,
    full_every=2,
    attention_sinks=True,
    qkv_bias=True,
    bias=True,
    moe=MoE(8, 2, 96, router_bias=True, expert_bias=True),
)
OLMO2 = Model(
    "OLMo 2 style: all heads normalised together",
    2,
    64,
    4,
    160,
    256,
    32,
    qk_norm=True,
    qk_norm_whole=True,
)
BLOOM = Model(
    "BLOOM style: a norm after the embedding",
    2,
    64,
    4,
    256,
    256,
    32,
    gated=False,
    norm="layernorm",
    positions="alibi",
    qkv_bias=True,
    bias=True,
    tied_embeddings=True,
    embedding_norm=True,
)

ALL = (
    GPT,
    LLAMA,
    MIXTRAL,
    DEEPSEEK,
    DEEPSEEK_LITE,
    FALCON,
    GEMMA,
    QWEN,
    QWEN2_MOE,
    GPT_OSS,
    OLMO2,
    BLOOM,
)

"""Hugging Face weights: the logits are those of transformers under every layout, and what is
written is what was read.
"""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("safetensors")
import torch.distributed as dist  # noqa: E402
from jobs import GPT, LLAMA, MIXTRAL, SETTINGS, job, loss_and_norm  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch.nn import functional as fn  # noqa: E402

from meshwright.cli import main as cli  # noqa: E402
from meshwright.describe.layout import Layout  # noqa: E402
from meshwright.describe.model import Model, MoE, RopeScaling  # noqa: E402
from meshwright.formats.hf import load_hf, read_hf  # noqa: E402
from meshwright.formats.hf_config import model_differences, write_hf  # noqa: E402
from meshwright.train import checkpoint, run, weights  # noqa: E402
from meshwright.train.data import Synthetic  # noqa: E402
from meshwright.train.export import export_checkpoint  # noqa: E402
from meshwright.train.launch import fork_ranks  # noqa: E402
from meshwright.train.loop import Trainer  # noqa: E402
from meshwright.train.loss import Columns, loss  # noqa: E402
from meshwright.train.model import Decoder  # noqa: E402
from meshwright.train.storage import Reader, sealed  # noqa: E402
from refusals import refusal  # noqa: E402

MADE = Path(__file__).parent / "huggingface"
SEQ = 12


def model(name: str) -> Model:
    """With a vocabulary (37) padded to 40."""
    return replace(load_hf(MADE / name), vocab_multiple=8)


def of_transformers(name: str) -> tuple[Any, Any]:
    """(tokens [2, 12], logits [2, 12, 37])."""
    stored = load_file(MADE / name / "logits.safetensors")
    return stored["tokens"].long(), stored["logits"]


@pytest.mark.parametrize(
    "name",
    [
        "llama",
        "gpt2",
        "qwen3",
        "qwen2",
        "mistral",
        "mixtral",
        "qwen3_moe",
        "qwen2_moe",
        "olmo",
    ],
)
def test_logits_are_those_of_transformers(name: str) -> None:
    m = model(name)
    decoder = Decoder(m, range(m.layers), SEQ)
    weights.load({0: decoder}, m, MADE / name)
    tokens, want = of_transformers(name)
    got = decoder(tokens).detach()
    assert (got[..., : m.vocab] - want).abs().max() < 1e-5
    target = tokens.roll(-1, 1)
    padded = loss(got, target, Columns(0, m.vocab))
    real = torch.nn.functional.cross_entropy(
        want.flatten(0, 1), target.flatten()
    )
    assert padded.item() == pytest.approx(real.item(), rel=1e-5), (
        "rows that pad the vocabulary have no probability"
    )


@torch.no_grad()
def logits(trainer: Trainer, tokens: Any) -> Any:
    """The model's logits on the ranks of the last stage; the others hand on what they have."""
    pp, tp, x = trainer.mesh.group("pp"), trainer.layout.tp, tokens
    for number, stage in trainer.stages.items():
        if number:
            rows = SEQ // (tp if trainer.layout.sequence_parallel else 1)
            dist.recv(
                x := torch.empty(2, rows, trainer.job.model.hidden),
                group=pp,
                group_src=number - 1,
            )
        x = stage(x)
        if number < trainer.count - 1:
            dist.send(x.contiguous(), group=pp, group_dst=number + 1)
            return None
    shards = [torch.empty_like(x) for _ in range(int(tp))]
    dist.all_gather(shards, x.contiguous(), group=trainer.mesh.group("tp"))
    return torch.cat(shards, -1)


TP_PP, ZERO3 = (
    Layout(tp=2, pp=2, dp=1, sequence_parallel=True),
    Layout(dp=2, zero=3),
)


@pytest.mark.parametrize(
    ("name", "layout"),
    [
        ("llama", TP_PP),
        ("gpt2", TP_PP),
        ("llama", ZERO3),
        ("gpt2", ZERO3),
        ("mixtral", replace(ZERO3, ep=2)),
    ],
)
def test_any_layout_reads_its_slices_and_writes_the_same_bytes(
    name: str, layout: Layout, tmp_path: Path
) -> None:
    m = model(name)
    tokens, want = of_transformers(name)
    targets = tokens.roll(-1, 1)

    def work(device: torch.device) -> None:
        trainer = Trainer(
            replace(job(m, layout, batch=2), seq=SEQ), SETTINGS, device
        )
        weights.load(trainer.stages, m, MADE / name)
        found = logits(trainer, tokens)
        assert (
            found is None or (found[..., : m.vocab] - want).abs().max() < 1e-5
        )
        assert (found is None) == (
            layout.pp > 1 and trainer.mesh.index("pp") == 0
        )
        x, y = (
            part.chunk(int(layout.dp))[trainer.mesh.replica]
            for part in (tokens, targets)
        )
        assert loss_and_norm(trainer, x, y)[0] == pytest.approx(
            float(fn.cross_entropy(want.mT, targets)), abs=1e-5
        )
        checkpoint.save(trainer, tmp_path / "run", 0, keep=1)

    fork_ranks(work, int(layout.chips), timeout_s=120)
    told = export_checkpoint(
        tmp_path / "run", tmp_path / "out", largest=12_000
    )
    assert (
        told["files"]
        == len(list((tmp_path / "out").glob("*.safetensors")))
        == {"llama": 2, "gpt2": 1, "mixtral": 5}[name]
    )
    assert tensors(tmp_path / "out") == tensors(MADE / name)
    assert not model_differences(load_hf(tmp_path / "out"), m)
    with refusal("holds weights already"):
        export_checkpoint(tmp_path / "run", tmp_path / "out")
    half = export_checkpoint(
        tmp_path / "run", tmp_path / "half", largest=6_000, numbers="bf16"
    )
    assert half["files"] == told["files"]
    assert 2 * half["weights_bytes"] == told["weights_bytes"]
    narrow, rounded = (
        tensors(folder, torch.bfloat16)
        for folder in (tmp_path / "half", MADE / name)
    )
    assert narrow == rounded
    config = json.loads((tmp_path / "half/config.json").read_text())
    assert config["dtype"] == "bfloat16"


def test_a_run_starts_from_weights_and_is_exported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a learning rate of next to nothing: what comes out went in, and the first loss is that
    of the weights.
    """
    job_file = tmp_path / "job.toml"
    job_file.write_text(
        f"""[model]\nconfig = "{MADE / "llama"}/config.json"\nseq = {SEQ}
[cluster]\nchips = 1\nchip = {{ name = "core", matrix_flops = {{ fp32 = "100 GFLOP/s" }}, vector_flops = "10 GFLOP/s", hbm_bytes = "4 GB", hbm_bandwidth = "10 GB/s" }}
network = {{ name = "none", dims = [{{ name = "host", bandwidth = "1 GB/s", latency = "100 us" }}] }}
[layout]\nmicrobatch = 2\n[job]\nbatch = "2seq"\nprecision = "fp32"
[train]\nsteps = 1\nlr = 1e-30\ndata = "synthetic"\nweights = "{MADE / "llama"}"\noutput = "{tmp_path}/run"\n""",
        "utf-8",
    )
    assert cli.run(["train", str(job_file)]) == 0
    assert (
        cli.run(
            [
                "export",
                f"{tmp_path}/run",
                "--to",
                "safetensors",
                "-o",
                f"{tmp_path}/out",
            ]
        )
        == 0
    )
    assert "as llama in" in capsys.readouterr().out
    assert tensors(tmp_path / "out") == tensors(MADE / "llama")
    full = ["export", f"{tmp_path}/run", "--to", "safetensors"]
    with files_of_at_most(10_000):
        assert cli.run([*full, "-o", f"{tmp_path}/full"]) == 2
    assert "full cannot be written" in capsys.readouterr().err
    assert not [*(tmp_path / "full").iterdir()], "no half of them stays"
    decoder, row = (
        Decoder(m := load_hf(MADE / "llama"), range(2), SEQ),
        run.metrics(tmp_path / "run" / "metrics.jsonl")[0],
    )
    weights.load({0: decoder}, m, MADE / "llama")
    whole = torch.from_numpy(Synthetic(m.vocab, SEQ, 1).samples(0, 2))
    assert row["loss"] == pytest.approx(
        float(loss(decoder(whole[:, :-1]), whole[:, 1:]).detach()), abs=1e-5
    )
    for words, says in (
        (
            ["export", "nowhere", "--to", "safetensors", "-o", "x"],
            "neither a checkpoint nor",
        ),
        (["export", "nowhere", "--to", "safetensors"], "needs the folder"),
    ):
        assert cli.run(words) == 2 and says in capsys.readouterr().err


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Writing more bytes into a file fails, as on a full disk."""
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)


def tensors(folder: Path, dtype: Any = torch.float32) -> dict[str, list[int]]:
    """Bytes of all weights of a folder, by name; rounded by PyTorch if they are not of that type."""
    files = folder.glob("model*.safetensors")
    found = {k: x for file in files for k, x in load_file(file).items()}
    return {
        k: x.to(dtype).view(torch.uint8).flatten().tolist()
        for k, x in found.items()
    }


ALL = {
    "gpt": GPT,
    "llama": LLAMA,
    "llama 3.1": replace(
        LLAMA,
        rope_base=5e5,
        rope_scaling=RopeScaling("llama3", 8.0, 1.0, 4.0, 8192),
    ),
    "mistral": replace(LLAMA, window=16, full_every=0, norm_epsilon=1e-6),
    "qwen2": replace(LLAMA, qkv_bias=True),
    "mixtral": MIXTRAL,
    "qwen2_moe": replace(
        MIXTRAL, qkv_bias=True, moe=MoE(8, 2, 96, 64, shared_gate=True)
    ),
    "qwen3_moe": replace(MIXTRAL, qk_norm=True),
    "olmo": replace(LLAMA, norm="nonparametric"),
    "qwen3 with some windows": replace(
        LLAMA, qk_norm=True, window=16, full_every=2, tied_embeddings=True
    ),
}


@pytest.mark.parametrize("name", ALL)
def test_config_json_says_the_same_model(name: str) -> None:
    assert not model_differences(
        read_hf(json.loads(json.dumps(write_hf(ALL[name])))), ALL[name]
    )


def test_a_model_of_no_family_is_refused() -> None:
    with refusal("cannot be written as one of .* differs in norm"):
        write_hf(replace(LLAMA, norm="layernorm"))


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    """Whatever differs in what is computed has a sentence, before a rank starts."""
    for changed, says in (
        ({"rope_base": 1e4}, "rope_base 500.0, not 10000.0"),
        ({"norm_epsilon": 1e-5}, "norm_epsilon 2e-05"),
        ({"rope_scaling": None}, "rope_scaling"),
        ({"layers": 3}, "layers 2, not 3"),
    ):
        with refusal(says):
            weights.check(MADE / "llama", replace(model("llama"), **changed))
    for key, value, says in (
        ("hidden_act", "gelu", "activation gelu, not silu"),
        ("model_type", "bloom", "only llama"),
        ("model_type", "gemma2", "not trained: its embedding is multiplied"),
        ("model_type", "gemma3_text", "and a layer has four norms"),
        (
            "is_encoder_decoder",
            True,
            "is_encoder_decoder. is true, which .* cannot express",
        ),
    ):
        folder = copy("llama", tmp_path / f"{key}-{value}")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {key: value}))
        with refusal(says):
            weights.check(folder, model("llama"))


def test_damaged_or_other_files_are_refused(tmp_path: Path) -> None:
    def refuses(folder: Path, says: str, name: str = "gpt2") -> None:
        with refusal(says):
            weights.check(folder, model(name))

    folder = copy("gpt2", tmp_path / "a")
    whole = load_file(folder / "model.safetensors")
    save_file(
        {k: v for k, v in whole.items() if "ln_f.bias" not in k},
        folder / "model.safetensors",
    )
    refuses(folder, "have no transformer.ln_f.bias")
    save_file(
        {**whole, "transformer.extra": torch.zeros(1)},
        folder / "model.safetensors",
    )
    refuses(folder, "hold transformer.extra, which this model does not have")
    save_file(
        {**whole, "transformer.ln_f.bias": torch.zeros(9)},
        folder / "model.safetensors",
    )
    refuses(folder, r"shape \[9\], but the model needs \[8\]")
    save_file(
        {**whole, "transformer.ln_f.bias": torch.zeros(8, dtype=torch.int32)},
        folder / "model.safetensors",
    )
    refuses(folder, "of type I32")
    (folder / "model.safetensors").write_bytes(b"\x80\x02pickle")
    refuses(folder, "not a safetensors file")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refuses(folder, "pickled weights are not read")
    folder = copy("llama", tmp_path / "b")
    (folder / "model-00002-of-00002.safetensors").unlink()
    refuses(folder, "lacks model-00002-of-00002.safetensors", "llama")


def test_files_of_a_body_without_names_of_the_whole(tmp_path: Path) -> None:
    """The first GPT-2 files say h.0.ln_1.weight and hold masks of attention."""
    folder = copy("gpt2", tmp_path / "a")
    whole = load_file(folder / "model.safetensors")
    short = {
        name.removeprefix("transformer."): x for name, x in whole.items()
    } | {"h.0.attn.bias": torch.ones(4, 4)}
    save_file(short, folder / "model.safetensors")
    decoder = Decoder(model("gpt2"), range(2), SEQ)
    weights.load({0: decoder}, model("gpt2"), folder)
    tokens, want = of_transformers("gpt2")
    assert (decoder(tokens)[..., :37] - want).abs().max() < 1e-5


def copy(name: str, to: Path) -> Path:
    shutil.copytree(MADE / name, to)
    return to


def test_a_checkpoint_of_no_or_another_model_is_not_exported(
    tmp_path: Path,
) -> None:
    part = tmp_path / "step-00000001"
    part.mkdir()
    index = {
        "format": "meshwright-checkpoint-3",
        "step": 1,
        "scaler": {},
        "files": {},
    }
    (part / "index.json").write_text(json.dumps(sealed(index)))
    with refusal("the checkpoint's model"):
        export_checkpoint(part, tmp_path / "out")
    save_file({"weights/norm.weight": torch.ones(8)}, part / "0.safetensors")
    reader = Reader(part)
    says = r"does not hold this model: weights/norm.weight is \[8\], not \[4\]"
    with refusal(says):
        reader.fill({"weights/norm.weight": torch.empty(4)})

"""Ten minutes of training on a small real text, as a user would do it: make the text and its
tokens, train and evaluate, draw the losses, sample.

    python benchmarks/ten_minutes.py FOLDER [--steps N]

The text is the source of Python's standard library as it lies on this machine, without its tests (PSF
licence; none of it is part of this project), one document a file. Its tokens are pairs of bytes
merged 1,792 times (the package `tokenizers`), found in the text itself. The model has 2 million
parameters, which ten minutes on two cores can feed about one pass over the text. FOLDER then holds
text.jsonl, tokenizer.json, job.toml and the run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

VOCAB = 2048
END = "<|endoftext|>"
APART = ("test", "tests", "idlelib", "site-packages", "lib2to3", "pydoc_data")
"""Folders that are left out: tests, and tables of data in the form of a source."""
JOB = """\
[model]
name = "library"
layers = 4
hidden = 192
heads = 6
kv_heads = 2
ffn = 512
vocab = {vocab}
seq = 256
tied_embeddings = true

[cluster]
chips = 2
{cluster}
[layout]
dp = 2
zero = 1
microbatch = 8

[job]
batch = "16seq"
precision = "fp32"

[train]
steps = {steps}
lr = 3e-3
schedule = "wsd"
warmup = 20
data = "{folder}/tokens"
eval_every = 50  # on the last four batches of the text, which are not trained on
eval_batches = 4
save_every = 100
sample = 300
output = "{folder}/run"
"""


def documents() -> Iterator[str]:
    """The sources, in the order of their names."""
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if not set(path.relative_to(root).parts) & set(APART):
            try:
                yield path.read_text("utf-8")
            except UnicodeDecodeError:  # of an older encoding
                continue


def write_text(to: Path) -> None:
    """One document a line."""
    with to.open("w", encoding="utf-8") as file:
        for text in documents():
            file.write(json.dumps({"text": text}) + "\n")


def write_tokenizer(text: Path, to: Path) -> None:
    """Pairs of bytes that stand together often, merged."""
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
        trainers,
    )

    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    with text.open(encoding="utf-8") as lines:
        found.train_from_iterator(
            (json.loads(line)["text"] for line in lines), trainer
        )
    found.save(str(to))


def write_job(folder: Path, steps: int) -> None:
    """The machine is that of the quickstart."""
    quickstart = Path(__file__).parents[1] / "examples" / "quickstart.toml"
    lines = quickstart.read_text("utf-8").splitlines()
    begin = lines.index("[cluster]") + 2
    cluster = "\n".join(lines[begin : lines.index("[layout]")])
    text = JOB.format(vocab=VOCAB, cluster=cluster, steps=steps, folder=folder)
    (folder / "job.toml").write_text(text, "utf-8")


def main() -> int:
    """Everything, command by command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=700)
    given = parser.parse_args()
    folder = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    text, tokenizer = folder / "text.jsonl", folder / "tokenizer.json"
    write_text(text)
    write_tokenizer(text, tokenizer)
    write_job(folder, given.steps)
    commands = (
        f"data {text} -o {folder}/tokens --tokenizer {tokenizer}",
        f"train {folder}/job.toml",
        f"generate {folder}/run --length 300",
    )
    for words in commands:
        print(f"$ meshwright {words}", flush=True)
        subprocess.run(
            [sys.executable, "-m", "meshwright", *words.split()], check=True
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""Odd words on the command line: each is refused in a sentence that says what would do, or said."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from meshwright import Job, Layout, model, predict
from meshwright.cli.advice import flags_value
from meshwright.cli.read import TheirFile
from meshwright.formats.bridge.table import formats
from meshwright.formats.options import flags
from refusals import refusal
from shell import Shell

LLAMA = "llama3-8b --on 64xh100 --batch 64seq"
ROOFLINE = "roofline llama3-8b --on 64xtpu-v5p --batch 4M"
TORCH = "--framework megatron-2021 --dp-overlap gradients"
WHOLE = "--tp takes whole numbers: one, a list 1,2,4 or a range 1..16"
QUICKSTART = Path(__file__).parents[1] / "examples" / "quickstart.toml"
SENTENCES = {
    f"predict {LLAMA} --seq 0": "job.seq must be at least 1, not 0",
    f"plan {LLAMA} --tokens 1T --deadline=-3d": "above 0, not -3 days",
    f"plan {LLAMA} --tokens 1T --deadline 30": "--deadline 30 has no unit: say '30 days'",
    f"sweep {LLAMA} --fixed --over chip.usd_per_hour=1e308": "between 0 and 1e+06",
    "predict missing.json --model llama3-8b --on 8xh100 --batch 8seq": (
        "missing.json cannot be read: No such file"
    ),
    "predict EleutherAI/gpt-j-6b --on 8xh100 --batch 8seq": (
        "nor in the Hugging Face cache: hf download EleutherAI/gpt-j-6b config.json puts it there"
    ),
    "plan '' --on 8xh100 --batch 8seq": "the model has no name: give one, such as llama3-8b",
    "plan llama3-8b --on 1xrtx-4090": "such as --batch 8seq (sequences)",
    "plan llama3-8b --on 64xh100": "such as --batch 4M (tokens) or 512seq",
    f"plan {LLAMA} --tokens 15 T": "one value has no space, such as --tokens '15 T'",
    f"plan {LLAMA} --tp": "plan --tp needs a value, such as --tp 2;",
    f"predict {LLAMA} --explain": "needs a value, such as --explain step_time;",
    f"predict {LLAMA} --recompute half": "known: none, selective, full, ",
    f"predict {LLAMA} --tp 8 --pp 8 --dp 2": "has 64: dp may be at most 1",
    f"predict {LLAMA} --framework torch-xla": "is not known; did you mean maxtext?",
    f"sweep {LLAMA} --over chips=64..": "range '64..' must have a whole number at both ends",
    "plan llama3-8b --on 8xh100+8xa100-80 --batch 8seq": (
        "as many of each: meshwright sweep MODEL --over on=16xh100,16xa100-80"
    ),
    f"plan {LLAMA} --json yes": "'yes' is one word too many: --json takes no value",
    f"plan {LLAMA} --fp8": "unknown option --fp8; did you mean --precision fp8?",
    "train job.toml --batch 16seq": "train takes a job as it is, without --batch: write one first",
    f"plan {LLAMA} --compiled": "needs a value, such as --compiled true",
    f"plan {LLAMA} --against ''": "--against is given an empty value",
    f"predict {LLAMA} --tp 8 --pp 9": "has 64: tp x cp x pp may be at most 64",
    f"plan {LLAMA} --price h100=1e9": "above 0 and below 1,000,000 USD an hour",
    "plan foo --on 8xh100 --batch 8seq": "model 'foo' is not known; known: ",
    "limits h100 --restart -1min": "--restart must be at least 0 s, such as 10min",
    "compare missing.log": "there is no file or folder missing.log",
    "advise": "advise needs RUN, such as meshwright advise train.sh --on 256xh100-sxm -o train.diff; see",
    "advise notes.txt --on 8xh100": "notes.txt is no file of a training tool that is read here",
    "predict x0": "x0 is not recognised, as its name has no suffix: call a script x0.sh",
    f"predict x0 {LLAMA.partition(' ')[2]}": "x0 is not recognised",
    f"predict gpt3-175b --on 64xa100-80 --batch 64seq --tp 8 --pp 8 {TORCH}": (
        "PyTorch's DistributedDataParallel, which goes with pp 1 and zero 0, not pp 8"
    ),
    "advise run.py --on 8xh100": "run.py is Python, which is not run here",
    f"predict {LLAMA} --fsdp 8": "did you mean --zero 3?",
    f"predict {LLAMA} --hsdp": "did you mean --zero 3 --dp-replicate 2?",
    f"predict {LLAMA} --use-distributed-optimizer": "did you mean --zero 1?",
    "advise missing": "model 'missing' is not known; known: ",
    "advise runs/missing": "runs/missing is neither a model of the catalogue, nor a file here",
    "advise missing.json": "missing.json cannot be read: No such file",
    "advise .": "config.json cannot be read: No such file",
    "advise cfg.json": "--on is missing: give the chips",
    "plan lama3-70b": "did you mean llama3-70b",
    "plan ''": "the model has no name: give one, such as llama3-8b",
    "read notes.txt": "nothing in it starts one, sets one up or was printed by one",
    "read compose.yaml": "none of them has its keys (services.web.image)",
    "read near.yaml": (
        "the nearest is torchtune, which has 3 of its 6 keys (batch_size, epochs,"
    ),
    "predict job.toml": "job: field 'batchsize' is not known; did you mean batch?",
    f"predict cfg.json {LLAMA.partition(' ')[2]}": "cfg.json has no model_type",
    f"sweep {LLAMA} --over network.eth.bandwidth=400GB/s": "'eth' is not known; known: ib, nvlink",
    "predict llama3-8b --on 64xh1000 --batch 8seq": "did you mean h100-sxm",
    "predict llama3-8b --on 8x8xh100 --batch 8seq": "has two numbers: say 64xh100",
    "--foo": "option '--foo' is not known; known: --help, --version",
    "--verson": "did you mean --version?",
    "catalog foo": "known: chips, frameworks, models, networks",
    "limits h101": "h101",
    "limits h100 --months 0": "--months",
    "limits h100 --model ideal": "ideal",
    "limits h100 --run 1": "outside what the scaling law",
    "limits h100 -o x.pdf": "x.pdf",
    "limits h100 --sensitivity -o x.png": "answer with a table, not a curve",
    "limits nothing.toml": "nothing.toml",
    "limits h100 --depth -1": "--depth must be above 0",
    f"{ROOFLINE} --shape 5": "shape 5 must have 3 sides, the axes of tpu-v5p-pod",
    f"{ROOFLINE} --shape axb": "must be the sides of a slice, such as 8x16 or 16x16x16",
    f"{ROOFLINE} --layer x": "layer 'x' is not known; known: block, book, mlp, projections",
    f"{ROOFLINE} --context 9": "context 9 is more than the 4 chips of x; a ring lies on one",
    "roofline llama3-70b --on 512xh100-sxm --batch 4Mi --shape 8x8": (
        "a shape is for slices of a torus"
    ),
    f"predict {LLAMA} --tensor-paralel 2": "--tensor-parallel, which is --tp",
    f"predict {LLAMA} --pipeline-model-paralell-size=2": "which is --pp",
    "export plan.toml --to slurm": "did you mean sbatch?",
    "compare 64xmi300x 64xb200": "--over on=64xmi300x,64xb200",
    "compare 64xmi300x": "meshwright sweep MODEL",
    "limits --on 64xh100-sxm": "--over chips=64..4096",
    "limits llama3-8b": "meshwright sweep llama3-8b",
    "read llama.json": "meshwright plan llama.json --on 64xh100-sxm",
    "read job.toml": "a job of this project",
    f"predict {LLAMA} --price h1000=2": "chip of --price 'h1000' is not known; did you mean",
    f"predict {LLAMA} --price h200=2": (
        "--price says what h200 costs, and the job runs on h100-sxm"
    ),
    f"predict {LLAMA} --price h100-sxm=0": "--price must be above 0",
    f"predict {LLAMA} --price h100-sxm=cheap": "--price",
    "predict": "MODEL",
    "bogus": "command 'bogus' is not known; known: ",
    "plann llama3-8b": "did you mean plan",
    "plan llama3-8b --gpus 8": "--on says how many chips and which, such as --on 8xh100-sxm",
    "predict llama3-8b --on 8xh100-sxm --batch -5seq": "batch '-5seq' must be between 1",
    f"predict {LLAMA} --tp 1,2": "--tp takes one whole number here, not '1,2'",
    f"plan {LLAMA} --tp eight": f"{WHOLE}, not 'eight'",
    f"plan {LLAMA} --tp 1..x": f"{WHOLE}, not '1..x'",
    f"plan {LLAMA} --tp -4..8": f"{WHOLE}, not '-4..8'",
    f"plan {LLAMA} --tp 0..8": "layout.tp must be at least 1, not 0",
    f"plan {LLAMA} --zero 0..5": "layout.zero must be between 0 and 3, not 5",
    f"plan {LLAMA} --tp 1..1000000000": "--tp 1..1000000000 must rise, by at most 1,048,576",
    f"predict {LLAMA} --tp 3": "tp may be 1, 2, 4",
    f"predict {LLAMA} --dp 8 --ep 2": "llama3-8b has no experts: ep may be 1",
    f"predict {LLAMA} --dp 8 --etp 2": "llama3-8b has no experts: etp may be 1",
    "limits h100 --month 3": "unknown option --month; did you mean --months?",
    "predict llama3-8b --batch 4M": "--on",
    "predict llama3-8b --on 8xh100 --batch 4M --network nope": "nope",
    f"predict {LLAMA} --explain nope": "term 'nope'",
    f"predict {LLAMA} -o x.docx": ".toml",
    f"predict {LLAMA} -o /no/such/folder/x.json": "folder",
    "predict nowhere.toml": "nowhere.toml",
    f"plan {LLAMA} --tp 4..2": "--tp 4..2 must rise",
    f"plan {LLAMA} --schedule nope": "nope",
    f"plan {LLAMA} --placement tp=1x1": "--placement",
    f"plan {LLAMA} --assumptions nope": "nope",
    f"plan {LLAMA} --top 0": "--top",
    f"sweep {LLAMA} --over chips": "chips=64..4096",
    f"sweep {LLAMA} --over bogus=1": "bogus",
    f"sweep {LLAMA} --over chips=9..1": "9..1",
    f"sweep {LLAMA} --over chips=many": "cluster.chips 'many' has no number in it",
    f"sweep {LLAMA} --over chips=-1": "cluster.chips must be between 1 and 1e+08, not -1",
    f"sweep {LLAMA} --over batch=x": "batch 'x' has no number in it; write it like '4M'",
    f"sweep {LLAMA} --over network.dims[7].bandwidth=1": "entry '[7]' is not known; known: ib, nvlink",
    f"sweep {LLAMA} --over 'network.ib.bandwidth=3 s'": "is in s, but B/s is needed",
    f"sweep {LLAMA} --over model.heads=7": "hidden 4096 cannot be split into 7 heads",
    f"sweep {LLAMA} --over model.moe.experts=8": "'model.moe.experts' is not a number or a name that can",
    f"sweep {LLAMA} --over chip=bogus": "chip 'bogus' is not known; known: ",
    f"sweep {LLAMA} --over =1": "must look like chips=64..4096",
    f"sweep {LLAMA} --over tp.x=1": "'tp.x' is not a number or a name that can be varied",
    "timeline gpt3-175b --on 1xa100-80 --batch 999999999seq": "actions",
    "catalog chips bogus": "bogus",
    "catalog llama3-8b": "meshwright catalog models llama3-8b",
    "catalog h100": "meshwright catalog chips h100",
    "reproduce bogus": "bogus",
    "validate nowhere.json": "nowhere.json",
    "limits h100 --run nan": "--run must be above 0",
    "limits h100 --chips 1e99": "at most 1e+12",
    "limits h100 --growth 0": "--growth must be above 1",
    "limits h100 --experts two": "--experts takes a number",
    f"plan {LLAMA} --top 7e": "--top takes a whole number",
    f"plan {LLAMA} --top 1.5": "--top takes a whole number",
    f"train {QUICKSTART} --steps 1.5": "train.steps must be a whole number",
    "export plan.toml --on 64xh100 --to sbatch": "predict FILE --on",
    "predict llama3-8b --on 8xh100,8xa100-80 --batch 64seq": "mixes chips",
    "catalog chips apple-m4": "no training profile",
    f"predict {LLAMA} --framework torch_xla": "did you mean maxtext",
    "advise llama3-8b --on 8xh100 --batch 64seq --zero 3 --take quad": "--take must be pair",
    f"predict {LLAMA} --stages slot": "say even, slots",
}


@pytest.mark.parametrize("words", SENTENCES, ids=range(len(SENTENCES)))
def test_odd_words_are_one_sentence_with_what_would_do(
    words, tmp_path, monkeypatch, shell: Shell
):
    monkeypatch.chdir(tmp_path)
    Path("cfg.json").write_text("{}")
    Path("llama.json").write_text('{"model_type": "llama"}')
    Path("job.toml").write_text(
        'model = "llama3-8b"\ncluster = "8xh100"\n[job]\nbatchsize = "1Mi"\n'
    )
    Path("notes.txt").write_text("Dear diary, today I trained a model.\n")
    Path("x0").write_text("#!/bin/bash\ntorchrun pretrain_gpt.py\n")
    Path("run.py").write_text("print('hello')\n")
    Path("compose.yaml").write_text("services: {web: {image: nginx}}\n")
    Path("near.yaml").write_text(
        "batch_size: 4\nepochs: 3\ngradient_accumulation_steps: 2\na: 1\nb: 2\nc: 3\n"
    )
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    out, said = shell(words, ends=2)
    assert SENTENCES[words] in said and said.count("\n") == 1
    assert not out or "--json" in words


def test_a_schedule_on_one_stage_or_of_another_framework_is_said(
    shell: Shell,
) -> None:
    """Megatron-Core's schedules.py has 1F1B and interleaved 1F1B; one stage has no order."""
    line = f"predict {LLAMA} --schedule zbv --why"
    megatron = "megatron-core keeps to schedule 1f1b, interleaved, not zbv"
    alone = "schedule zbv has no effect on time with pp 1"
    said = shell(f"{line} --zero 3").out
    assert megatron in said and alone in said
    said = shell(f"{line} --zero 1 --pp 4").out
    assert megatron in said and alone not in said


def test_adapters_are_refused_by_name(tmp_path: Path, shell: Shell) -> None:
    """A base that is frozen is not predicted as if all of it were trained."""
    file = tmp_path / "lora.yml"
    file.write_text(
        "base_model: meta-llama/Meta-Llama-3-8B\nadapter: qlora\nsequence_len: 4096\n"
        "micro_batch_size: 2\ngradient_accumulation_steps: 4\n"
    )
    said = shell.refused(f"predict {file} --on 1xrtx-4090")
    assert "adapters alone (adapter): LoRA and QLoRA are not counted" in said
    asked = "predict llama3-8b --on 1xrtx-4090 --batch 8seq --lora-r 16"
    assert "LoRA and QLoRA are not counted" in shell.refused(asked)


def test_a_model_in_the_cache_of_the_hub_is_read_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The revision that main points to, as huggingface_hub lays out its cache."""
    folder = tmp_path / "hub" / "models--someone--Small-LM"
    for revision, width in (("aaaa", 256), ("bbbb", 512)):
        (folder / "snapshots" / revision).mkdir(parents=True)
        (folder / "snapshots" / revision / "config.json").write_text(
            '{"model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 4,'
            f' "hidden_size": {width}, "intermediate_size": 1024, "vocab_size": 1000}}'
        )
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("bbbb")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    found = model("someone/Small-LM")
    assert (found.name, found.hidden) == ("small-lm", 512)
    assert "Hugging Face cache, revision bbbb" in found.notes[-1]
    with refusal("nor in the Hugging Face cache"):
        model("someone/Other-LM")
    with refusal("not known"):
        model("someone/Small-LM", files=False)


def test_the_help_of_read_names_every_tool() -> None:
    """A refusal sends people there."""
    told = re.sub(r"\s+", " ", TheirFile.__metadata__[0].help)
    families = {f.title.partition(" v")[0] for f in formats().values()}
    known = {re.sub(r" [\d.]+$", "", title) for title in families}
    assert known and not {title for title in known if title not in told}


def test_a_layout_that_fsdp_does_not_run_is_another_frameworks() -> None:
    """Said in the job or beside it, the same."""
    layout = Layout(tp=2, dp=4, zero=1)
    inside = predict(Job("llama3-8b", "8xrtx-4090", 64, layout))
    beside = predict(Job("llama3-8b", "8xrtx-4090", 64), layout)
    assert inside.job.profile and inside.job.profile.name == "megatron-core"
    assert beside.step_time_s == inside.step_time_s


@pytest.mark.parametrize("name", [f.spelled for f in flags()])
def test_a_value_that_is_proposed_is_one_that_the_flag_takes(
    name: str, shell: Shell
) -> None:
    """Asked with it, no command is refused for this flag."""
    value = flags_value(name)
    if not value or name in ("--arguments", "--as"):
        return
    layout = "--pp 2" if name != "--pp" else ""
    code, (_, said) = shell.run(f"predict {LLAMA} {layout} {name} '{value}'")
    assert code < 2 or "not known" not in said and "must be" not in said, said


def test_experts_that_tp_does_not_cut_are_said(shell: Shell) -> None:
    """Who runs Megatron with tp 2 and says no more has etp 2."""
    line = "predict mixtral-8x7b --on 16xh100 --batch 128seq --ep 8"
    said = "etp 1 is assumed; Megatron's own default is etp = tp: --etp 2"
    for more, shown in (
        ("--tp 2", True),
        ("--tp 2 --etp 1", False),
        ("--tp 1", False),
        ("--tp 2 --framework torchtitan --zero 3", False),
    ):
        assert (said in shell.answer(f"{line} {more}")) == shown


def test_experts_that_a_file_leaves_whole_are_not_assumed(
    shell: Shell, tmp_path: Path
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        'model = "mixtral-8x7b"\n[layout]\nep = 8\netp = 1\n', "utf-8"
    )
    line = f"predict {job} --on 16xh100-sxm --batch 128seq --tp 2"
    assert "is assumed" not in shell.answer(line)


@pytest.mark.parametrize("verb", ["predict --zero 3", "plan"])
@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        (
            "15",
            "run of 15 tokens is less than one step of 524,288: for trillions say 15T",
        ),
        ("1e30", "run of 1e+30 tokens is more than the whole web"),
        ("524288", ""),
        ("36T", ""),
    ],
)
def test_a_length_that_nobody_means_is_said_before_the_numbers(
    shell: Shell, tokens: str, said: str, verb: str
) -> None:
    """--tokens 15 for 15T; also on a full card."""
    out = shell.answer(f"{verb} {LLAMA} --tokens {tokens}")
    labels = [line[:10].strip() for line in out.splitlines()]
    assert said in " ".join(out.split())
    assert ("length" in labels) == bool(said)
    assert not said or labels.index("length") < labels.index("step")


def test_active_parameters_are_counted_as_cards_count_them(
    shell: Shell,
) -> None:
    """OpenAI 2025, arXiv 2508.10925, table 1: 5.13 and 3.61 B, without the embedding; Mixtral's
    12.9 B has it.
    """
    for name, both in (
        ("gpt-oss-120b", ("5.712 B active", "(5.133 B without the")),
        ("gpt-oss-20b", ("4.187 B active", "(3.608 B without the")),
        ("mixtral-8x7b", ("12.88 B active", "(12.75 B without the")),
    ):
        card = " ".join(shell.answer(f"catalog models {name}").split())
        assert all(words in card for words in both)
    assert "active" not in shell.answer("catalog models llama3-8b")


@pytest.mark.parametrize(
    ("model", "way", "said", "all_keys"),
    [
        ("gpt-oss-20b", "gather", "--cp-exchange all-to-all", True),
        ("gpt-oss-20b", "ring", "--cp-exchange all-to-all", True),
        ("gpt-oss-20b", "all-to-all", "", False),
        ("gemma2-9b", "ring", "all-to-all or gather", True),
        ("gemma2-9b", "gather", "", True),
        ("llama3-8b", "ring", "", False),
    ],
)
def test_what_transformer_engine_refuses_is_said(
    shell: Shell, model: str, way: str, said: str, all_keys: bool
) -> None:
    """Keys of windows and of heads with sinks; an all-to-all gives no rank keys it does not read."""
    line = (
        f"predict {model} --on 32xh100 --batch 64seq --seq 8192 --zero 1 --cp 2 --tp 2"
        f" --cp-exchange {way}"
    )
    told = " ".join(json.loads(shell.answer(line, "--json"))["notes"])
    assert (f"refuses cp_exchange {way}" in told) == bool(said)
    assert ("sends each rank the keys and values of all" in told) == all_keys
    assert said in told


def test_a_log_and_its_script_are_told_apart(
    tmp_path: Path, shell: Shell
) -> None:
    """Both behind `compare`, in either order: the log is the run, the script its job."""
    log, script = tmp_path / "run.log", tmp_path / "train.sh"
    for path in (log, script):
        path.write_text("torchrun pretrain_gpt.py\n", "utf-8")
    for words in ([log, script], [script, log]):
        said = shell("compare", *words, "--on", "8xh100", ends=2).err
        assert f"compare {log} --job {script} --on 8xh100" in said

"""What to change of a run: against brute force by `predict`, and by reading the changed file back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layouts import cut
from meshwright import Advice, BadInput, Job, Layout, advise, predict
from meshwright.advice.changes import Change, change, singles, value_in_effect
from meshwright.advice.diff import diff
from meshwright.advice.judged import Judge
from meshwright.advice.spoken import tongue
from meshwright.describe.framework import framework
from meshwright.describe.frozen import FrozenDict
from meshwright.describe.software import Software
from meshwright.formats.bridge.edit import NONE
from meshwright.formats.flags import read_flags
from meshwright.report.advise_card import gain, gain_details, word
from refusals import refusal
from shell import Shell

SCRIPT = """#!/bin/bash
# llama3-8b
torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \\
    --tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 \\
    --sequence-parallel --use-distributed-optimizer \\
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\
    --group-query-attention --num-query-groups 8 --seq-length 8192 \\
    --max-position-embeddings 8192 --swiglu --normalization RMSNorm --disable-bias-linear \\
    --untie-embeddings-and-output-weights --position-embedding-type rope \\
    --micro-batch-size 1 --global-batch-size 256 --lr 3e-4 --train-iters 1000 \\
    --recompute-activations --bf16 --vocab-size 128256
"""
ON = "64xh100-sxm"


def script(folder: Path) -> tuple[str, Job]:
    path = folder / "train.sh"
    path.write_text(SCRIPT)
    return str(path), read_flags(str(path), {"on": ON}, [])


def patched(old: str, text: str) -> str:
    """A unified diff applied: lines of its hunks that stay or come, and what lies between."""
    lines = old.splitlines(keepends=True)
    made, at = [], 0
    for line in text.splitlines(keepends=True)[2:]:
        if line.startswith("@@"):
            first = int(line.split()[1].lstrip("-").split(",")[0]) - 1
            made += lines[at:first]
            at = first
        elif line.startswith("\\"):
            made[-1] = made[-1].rstrip("\n")
        elif line.startswith("+"):
            made.append(line[1:])
        else:
            assert lines[at].rstrip("\n") == line[1:].rstrip("\n")
            if line.startswith(" "):
                made.append(lines[at])
            at += 1
    return "".join(made + lines[at:])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Job]:
    return script(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def answer(run: tuple[str, Job]) -> Advice:
    return advise(run[1], format="megatron")


def test_the_best_value_of_a_degree_is_that_of_brute_force(
    run: tuple[str, Job], answer: Advice
) -> None:
    """All degrees that divide chips, heads and batch, predicted one by one."""
    job = run[1].filled
    own = predict(job)
    for axis, values in (("tp", (1, 2, 4, 8)), ("pp", (1, 2, 4, 8, 16))):
        gains = {}
        for value in values:
            parts = {"tp": job.layout.tp, "pp": job.layout.pp, axis: value}
            other = Layout(
                **parts,
                dp=64 // parts["tp"] // parts["pp"],
                zero=1,
                recompute="selective",
            )
            p = predict(job, other)
            if value != getattr(job.layout, axis) and p.fits:
                gains[value] = own.step_time_s / p.step_time_s - 1
        listed = {
            a.change.fields[f"layout.{axis}"]: a.gain
            for a in answer.changes
            if [*a.change.fields] == [f"layout.{axis}"]
        }
        assert listed == pytest.approx(gains)


def test_a_change_keeps_chips_and_batch_and_fits(answer: Advice) -> None:
    chips, batch = answer.run.layout.chips, answer.run.job.batch
    for each in (*answer.changes, answer.pair, answer.triple):
        if each:
            p = each.prediction
            assert (p.layout.chips, p.job.batch) == (chips, batch)
            assert p.fits and not each.change.numerics and each.words
    assert {p for a in answer.numerics for p in a.change.fields} <= {
        "job.precision",
        "job.batch",
        "software.gradients",
    }


def test_gains_are_more_than_ties(answer: Advice) -> None:
    assert answer.tie == 0.06
    assert all(a.gain > 0.06 for a in answer.gains)
    assert all(abs(a.gain) <= 0.06 for a in answer.ties)
    assert not {a.change for a in answer.gains} & {
        a.change for a in answer.ties
    }


def test_each_gain_is_there_in_full(answer: Advice) -> None:
    """The fields that change, from what the run has to what it would have, and the gain."""
    lines = gain_details(answer)
    assert answer.gains
    for i, each in enumerate(answer.gains, 1):
        line = next(lines)
        assert line.startswith(f"{i}. ") and gain(each, 1) in line
        for path, new in each.change.fields.items():
            before = value_in_effect(answer.run.job, path)
            if before != new:
                assert f"{word(before)} -> {word(new)}" in line


def test_what_the_format_cannot_say_is_not_offered(answer: Advice) -> None:
    """Megatron has no zero-bubble schedule; a schedule without a key would only be a wish."""
    schedule = "layout.schedule"
    tried = {c.fields.get(schedule) for c in singles(answer.run.job)}
    assert "zb-h1" in tried
    offered = {a.change.fields.get(schedule) for a in answer.changes}
    assert offered <= {None, "interleaved"}


def test_a_format_that_is_only_read_has_words_of_its_own() -> None:
    """The Trainer has no tensor parallelism, FSDP no ZeRO-1; NeMo calls Megatron's arguments its
    own; DeepSpeed's stage stands in a file of its own.
    """
    fsdp = framework("fsdp")
    job = Job("llama3-8b", "16xh100-sxm", batch=128, framework=fsdp)
    job = job.with_(zero=3, microbatch=1, dp=16, recompute="full").filled
    trainer = tongue(job, "transformers")
    assert trainer.words(change(microbatch=2)) == {
        "per_device_train_batch_size": (1, 2),
        "gradient_accumulation_steps": (8, 4),
    }
    key = "gradient_checkpointing"
    assert trainer.words(change(recompute="none")) == {key: (True, NONE)}
    words = trainer.words(change(zero=2)) or {}
    assert words["fsdp"][1] == "shard_grad_op auto_wrap"
    for other in ({"tp": 2}, {"zero": 1}, {"recompute": "full:8"}):
        assert trainer.words(change(**other)) is None, other
    stages = replace(job, framework=framework("deepspeed"))
    words = tongue(stages, "transformers").words(change(zero=2)) or {}
    assert words["deepspeed"][1] == "a file with zero_optimization.stage 2"
    # LLaMA-Factory v1 says how FSDP shards, and names a file of DeepSpeed's
    factory = "llama-factory-v1"
    words = tongue(job, factory).words(change(zero=2)) or {}
    assert words["dist_config.reshard_after_forward"] == (True, False)
    assert tongue(stages, factory).words(change(zero=2)) is None
    core = Job("llama3-8b", "16xh100-sxm", batch=128).with_(tp=8, zero=1)
    nemo = tongue(core.filled, "nemo").words(change(tp=4)) or {}
    assert nemo["model.tensor_model_parallel_size"] == (8, 4)
    redone = tongue(core.filled, "nemo").words(change(recompute="full")) or {}
    assert "model.activations_checkpoint_granularity" in redone


def test_settings_are_those_of_the_framework() -> None:
    """What its profile offers to such a model on such chips, and its own where the run says
    otherwise: no graphs of the whole iteration with experts, no overlap that is less than its own.
    """
    run = Job(
        "mixtral-8x7b",
        "64xh100-sxm",
        batch=256,
        layout=cut("dp64 ep8 zero1"),
        framework="megatron-core",
        software=Software(dp_overlap="off", dispatcher="deepep"),
    )
    tried: dict[str, list[object]] = {}
    for each in singles(run):
        for name, value in each.table_values("software").items():
            tried.setdefault(name, []).append(value)
    assert tried == {
        "dp_overlap": ["all"],
        "dispatcher": ["alltoall", "allgather", "hybridep"],
        "ep_overlap": [True],
        "tp_overlap": ["all"],
        "cuda_graphs": ["parts"],
        "gradients": ["half"],
    }


def test_a_layout_that_a_setting_of_the_run_does_not_take_is_not_offered() -> (
    None
):
    """Full recomputation goes with graphs of the whole iteration, not with those of parts; also
    where no format is known that would refuse it.
    """
    run = Job(
        "llama3-8b",
        "64xh100-sxm",
        batch=64,
        layout=cut("tp2 dp32 zero1"),
    )

    def recomputed(graphs: str) -> set[str]:
        software = replace(run.software, cuda_graphs=graphs)
        other = replace(run, software=software)
        changes = advise(other, format="olmo-core").changes
        field = "layout.recompute"
        return {a.change.fields.get(field) for a in changes}

    assert "full" in recomputed("off")
    assert "full" not in recomputed("parts")


def test_more_changes_gain_more(answer: Advice) -> None:
    """Against brute force over all pairs of the changes that can be made alone, by what ranks:
    seconds over the chance to fit.
    """
    pair = answer.pair
    assert pair and pair.gain > answer.changes[0].gain
    best = min(
        predict(both.applied_to(answer.run.job)).merit_s
        for one in answer.changes[:6]
        for other in answer.changes
        if one.change.apart(other.change)
        for both in [one.change.joined(other.change)]
        if runs(both, answer)
    )
    assert pair.prediction.merit_s <= best * (1 + 1e-9)


def runs(change, answer: Advice) -> bool:  # type: ignore[no-untyped-def]
    """A change that the run can make and that fits."""
    try:
        p = predict(change.applied_to(answer.run.job))
    except BadInput:
        return False
    rows = p.layout.dp * p.layout.microbatch
    return p.fits and not p.job.batch % rows


@pytest.mark.parametrize("number", range(4))
def test_a_patched_script_is_the_predicted_job(
    number: int, run: tuple[str, Job], answer: Advice, tmp_path: Path
) -> None:
    path, job = run
    each = (*answer.gains, *answer.rest, answer.pair)[number - 1]
    assert each
    text = diff(path, job, each.change, "megatron")
    made = tmp_path / "train.sh"
    made.write_text(patched(SCRIPT, text))
    back = predict(read_flags(str(made), {"on": ON}, []))
    assert back.step_time_s == each.prediction.step_time_s
    assert back.layout == each.prediction.layout
    gone = [x for x in text.splitlines()[2:] if x.startswith("-")]
    assert len(gone) <= 3 and "--lr 3e-4" in made.read_text()


def test_a_patched_job_file_is_the_predicted_job(tmp_path: Path) -> None:
    text = (
        '# mine\n[model]\nname = "llama3-8b"\n[cluster]\non = "64xh100-sxm"\n'
        '[layout]\ntp = 8 # all of a node\ndp = 8\nzero = 1\n[job]\nbatch = "256seq"'
    )
    path = tmp_path / "job.toml"
    path.write_text(text)
    job = read_flags(str(path), {}, [])
    best = advise(job).gains[0]
    assert best.change.fields == {"layout.tp": 2}
    made = patched(text, diff(str(path), job, best.change))
    assert "# all of a node" in made and "dp = 32" in made
    path.write_text(made)
    assert read_flags(str(path), {}, []) == best.prediction.job.laid_out(
        replace(best.prediction.layout, placement={})
    )


def test_a_stated_overlap_of_tp_does_not_forbid_tp_1() -> None:
    """Where one rank holds all, the setting goes with its collectives."""
    overlap = Software(tp_overlap="all")
    layout = cut("tp2 dp4 zero1")
    job = Job("llama3.2-1b", "8xh100-sxm", 64, layout, software=overlap)
    answer = advise(job, format="megatron")
    one = next(
        a for a in answer.changes if a.change.fields == {"layout.tp": 1}
    )
    assert one.words["--tp-comm-overlap"][1] == "(none)"
    assert one.prediction.job.software.tp_overlap is None


def test_steps_scale_every_prediction(run: tuple[str, Job]) -> None:
    """The run takes what was measured; its changes are scaled alike."""
    job = run[1]
    own = predict(job).step_time_s
    answer = advise(job, measured=[1.2 * own] * 3, format="megatron")
    assert answer.run.step_time_s == pytest.approx(1.2 * own)
    plain = advise(job, format="megatron")
    assert answer.gap and answer.gap.ratio == pytest.approx(1.2)
    assert [a.change for a in answer.changes[:3]] == [
        a.change for a in plain.changes[:3]
    ]


def test_a_gap_is_explained_by_what_nobody_said() -> None:
    """Steps of a run without overlap of its gradients, whose description says nothing of them."""
    job = Job(
        "llama3-8b",
        "64xh100-sxm",
        batch=64,
        layout=cut("tp2 dp32 zero1"),
    )
    off = replace(job, software=replace(job.software, dp_overlap="off"))
    measured = predict(off).step_time_s
    assert measured > 1.06 * predict(job).step_time_s
    gap = advise(job, measured=measured).gap
    assert gap
    named = {field: (a, b) for field, a, b, _ in gap.assumptions}
    assert named["software.dp_overlap"] == ("all", "off")
    told = advise(off, measured=measured).gap
    assert told and not told.assumptions and told.ratio == 1.0


def test_a_gap_is_explained_by_what_no_flag_said(shell: Shell) -> None:
    """Steps of full recomputation, of which the command line says nothing; where it says none, and
    in a file of ours, that is no explanation.
    """
    line = "llama3-70b --on 128xh100-sxm --batch 512seq --tp 8 --pp 4 --zero 1"
    seconds = shell.json(f"predict {line} --recompute full")["step_time_s"]
    asked = f"advise {line} --steps {seconds}"

    def assumed(words: str) -> dict[str, Any]:
        gap = shell.json(words)["measured"]
        return {a["field"]: a["may_be"] for a in gap["assumptions"]}

    said = shell(asked).out
    assert "gap     recompute full instead of the assumed none" in said
    assert assumed(asked)["layout.recompute"] == "full"
    assert "layout.recompute" not in assumed(f"{asked} --recompute none")
    # numbers would explain anything
    assert not {"layout.microbatch", "layout.tp"} & {*assumed(asked)}


def test_what_does_not_fit_is_mended_first() -> None:
    """70B without shards of its states: what makes it fit stands first, whatever it costs."""
    job = Job(
        "llama3-70b",
        "64xh100-sxm",
        batch=64,
        layout=cut("tp8 pp4 dp2 zero0 microbatch2"),
    )
    answer = advise(job)
    assert not answer.run.fits
    assert answer.gains and answer.gains[0].prediction.fits


def test_a_run_that_ran_fits() -> None:
    """70B on chips that have too little memory by our count: its steps were measured, so that
    it and what needs no more fit; what needs more by a share d fits as often as the error of the
    count, one factor of both, leaves it room: a power of 1 + d, by the width of the risk.
    """
    job = Job(
        "llama3-70b",
        "64xh100-sxm",
        batch=512,
        layout=cut("tp4 pp2 dp8 zero1"),
    )
    plain, ran = advise(job), advise(job, measured=[60.0, 61.0, 60.0])
    assert plain.run.risk_of_oom > 0.99 and not plain.fits and ran.fits
    overlap = {"software.tp_overlap": "all"}
    assert overlap not in [a.change.fields for a in plain.gains]
    assert ran.gains[0].change.fields == overlap and ran.gains[0].risk == 0
    assert ran.to_dict()["run"]["fits"]
    assert not [n for n in ran.notes if "are needed on the fullest" in n]

    judge = Judge(ran.run, ran=True)
    needed = ran.run.memory_bytes["needed"]
    share = 0.01
    use, law = ran.run.memory_use, job.how.memory
    assert law.holding and law.risk_width
    assert law.holding.allocator_need is not None
    beside = share * needed / (1.0 + law.holding.allocator_need)
    more = ran.run.with_results(
        uses={0: use._replace(buffers=use.buffers + beside)}
    )
    chance = (1.0 + share) ** (-1.0 / law.risk_width)
    assert 0.5 < chance < 0.9
    assert judge.risk(more) == pytest.approx(1.0 - chance, rel=1e-3)
    assert judge.risk(ran.run) == 0.0
    assert Judge(plain.run).risk(plain.run) == plain.run.risk_of_oom


def test_a_run_far_beyond_its_chips_is_no_room_for_more() -> None:
    """Where both risks are 1 to the last digit, bytes tell which needs more."""
    job = Job("llama3-70b", "8xh100-sxm", batch=8, layout=cut("tp1 dp8"))
    run = predict(job)
    assert run.risk_of_oom == 1.0
    more = predict(replace(job, layout=cut("tp1 dp4 pp1 microbatch2")))
    assert more.memory_bytes["needed"] > run.memory_bytes["needed"]
    assert Judge(run, ran=True).risk(more) == 1.0


TITAN = """torchrun --nproc_per_node 8 --nnodes 8 -m torchtitan.train \\
    --module llama3 --config llama3_70b --training.global_batch_size 64 \\
    --training.local_batch_size 1 --training.seq_len 8192 \\
    --parallelism.tensor_parallel_degree 8 \\
    --compile.enable activation-checkpoint:full
"""
RECIPE = """torchrun --nproc_per_node 8 --nnodes 8 run_recipe.py \\
    --recipe llama31_70b_pretrain_config model.seq_length=8192 \\
    model.tensor_model_parallel_size=8 'train.global_batch_size=128' \\
    model.pipeline_model_parallel_size=4 train.micro_batch_size=1 \\
    model.context_parallel_size=1 model.recompute_granularity=null
"""


@pytest.mark.parametrize(
    ("text", "format", "fields", "lines"),
    (
        (TITAN, "torchtitan", {"layout.tp": 4}, 2),
        (TITAN, "torchtitan", {"layout.recompute": "none"}, 1),
        (TITAN, "torchtitan", {"software.compiled": False}, 1),
        (RECIPE, "megatron-bridge", {"layout.pp": 2}, 1),
        (RECIPE, "megatron-bridge", {"layout.sequence_parallel": True}, 1),
    ),
)
def test_commands_of_other_tools_are_patched(
    text: str, format: str, fields: dict[str, Any], lines: int, tmp_path: Path
) -> None:
    """The changed command is the changed job, and few of its lines are others."""
    path = tmp_path / "run.sh"
    path.write_text(text)
    job = read_flags(str(path), {"on": ON}, [])
    change = Change(FrozenDict(fields))
    made = diff(str(path), job, change, format)
    path.write_text(patched(text, made))
    back = predict(read_flags(str(path), {"on": ON}, []))
    assert (
        back.step_time_s == predict(change.applied_to(job.filled)).step_time_s
    )
    assert sum(x.startswith("+") for x in made.splitlines()[2:]) <= lines


def test_some_layers_are_recomputed_where_none_and_all_are_worse() -> None:
    """70B of two sequences: without recomputation it does not fit; 12 of 40 layers need 72 GiB."""
    layout = cut("tp8 pp2 dp4 zero1 microbatch2 full")
    job = Job("llama3-70b", "64xh100-sxm", 128, layout)
    best = advise(job).gains[0]
    assert best.change.fields == {"layout.recompute": "full:12"}
    assert best.prediction.step_time_s == pytest.approx(
        predict(
            replace(job, layout=replace(layout, recompute="full:12"))
        ).step_time_s
    )


def test_what_another_file_says_is_no_diff(tmp_path: Path) -> None:
    """DeepSpeed's JSON holds ZeRO's stage; recomputation is the training script's."""
    path = tmp_path / "ds.json"
    path.write_text(
        '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
    )
    given = {"on": "8xh100-sxm", "model_": "llama3-8b", "batch": "64seq"}
    job = read_flags(str(path), given, [])
    answer = advise(job, format="deepspeed")
    named = {p: a for a in answer.changes for p in a.change.fields}
    with refusal("to the training script"):
        diff(str(path), job, named["layout.recompute"].change, "deepspeed")
    numbers = {p for a in answer.numerics for p in a.change.fields}
    assert answer.unsaid and "job.precision" not in numbers, "FP8 has no key"


def test_a_step_beyond_the_peak_is_of_another_job(
    run: tuple[str, Job],
) -> None:
    """Nothing can be learnt from 40 ms that are thought to be seconds of 64 chips."""
    p = predict(run[1].filled)
    least = p.hfu * p.step_time_s
    with refusal("times the peak of 64 x h100-sxm"):
        advise(run[1], [0.99 * least] * 3)
    assert advise(run[1], 1.01 * least).gap

"""The software of a plan: what a framework offers, what it gives, and what it asks of layouts."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from by_hand import by_hand
from meshwright import Job, Layout, Plan, Space, plan, predict
from meshwright.describe.framework import frameworks
from meshwright.describe.software import Software
from meshwright.formats import bridge, torchrun
from meshwright.formats.bridge.launch import Place
from meshwright.layout import setting_rules
from meshwright.prediction.certainty import resolution
from meshwright.search import NUMERICS, all_settings, offers
from refusals import refusal

DENSE = ("llama3-8b", "8xh100-sxm", "64seq", 8192, "bf16")
SMALL = ("qwen3-30b-a3b", "16xh100-sxm", "128seq", 4096, "bf16")
QWEN = ("qwen3-235b-a22b", "256xh100-sxm", "8192seq", 4096, "fp8")
OSS = ("gpt-oss-120b", "64xh100-sxm", "512seq", 4096, "bf16")
LLAMA = ("llama3-70b", "256xh100-sxm", "512seq", 8192, "bf16")


def job(
    model: str, on: str, batch: str, seq: int, precision: str, **more: Any
) -> Job:
    return Job(model, on, batch=batch, seq=seq, precision=precision, **more)


def written(run: Job, layout: Layout) -> str:
    """Megatron's arguments of a run."""
    nodes, ranks = torchrun.nodes(run)
    return bridge.write(run.laid_out(layout), "megatron", Place(nodes, ranks))[
        0
    ]


@cache
def planned(asked: tuple[str, str, str, int, str]) -> Plan:
    return plan(job(*asked))


@pytest.mark.parametrize(
    ("asked", "setting", "values"),
    [
        (DENSE, "dispatcher", None),
        (("gpt-oss-120b", "64xmi300x", "64seq", 4096, "bf16"), "dispatcher", ("allgather",)),
        (("llama3-8b", "8xmi300x", "64seq", 8192, "bf16"), "cuda_graphs", None),
        (DENSE, "float8", None),
        (("llama3-8b", "8xb200", "64seq", 8192, "fp4"), "tp_overlap", None),
        # graphs of the whole iteration go without experts only
        (OSS, "cuda_graphs", ("parts",)),
        (LLAMA, "cuda_graphs", ("parts", "full")),
        # DeepEP is not for the chips of an NVL72 rack
        (("deepseek-v3", "256xgb200", "2048seq", 4096, "fp8"), "dispatcher", ("allgather", "hybridep")),
        (QWEN, "dispatcher", ("allgather", "deepep", "hybridep")),
    ],
)  # fmt: skip
def test_what_a_chip_a_model_and_its_numbers_run_is_offered(
    asked: tuple[str, str, str, int, str],
    setting: str,
    values: tuple[str, ...] | None,
) -> None:
    assert offers(job(*asked)).get(setting) == values


def test_what_is_stated_is_not_offered() -> None:
    stated = Software(dispatcher="alltoall")
    assert "dispatcher" not in offers(job(*QWEN, software=stated))
    assert plan(job(*OSS, software=stated)).best.job.software == stated


def test_a_change_is_what_predict_says_of_it() -> None:
    found = planned(OSS)
    assert found.best and found.software
    for one in found.software:
        own = replace(found.best.job, software=Software(**one.settings))
        alone, best = predict(own, found.best.layout), found.best
        assert one.change == pytest.approx(
            alone.step_time_s / best.step_time_s - 1
        )
        assert one.merit == pytest.approx(alone.merit_s / best.merit_s - 1)
        assert one.since and not setting_rules.broken_settings(
            own, found.best.layout
        )


def test_settings_together_beat_each_alone_and_keep_the_numbers() -> None:
    found = planned(OSS)
    assert found.tuned and not {*found.tuned.settings} & {*NUMERICS}
    single = min(x.merit for x in found.software if not x.numerics)
    assert found.tuned.merit < single
    assert found.tuned.prediction.fits


@pytest.mark.parametrize("asked", [OSS, LLAMA])
def test_without_any_setting_of_them_a_tuned_step_takes_longer(
    asked: tuple[str, str, str, int, str],
) -> None:
    """By half a percent at least: CUDA graphs of a large dense model are not proposed."""
    found = planned(asked)
    assert found.best and found.tuned
    p = found.tuned.prediction
    for name in found.tuned.settings:
        rest = {k: v for k, v in found.tuned.settings.items() if k != name}
        fewer = replace(found.best.job, software=Software(**rest))
        assert predict(fewer, p.layout).merit_s > 1.005 * p.merit_s


@pytest.mark.parametrize("asked", [OSS, LLAMA, QWEN])
def test_what_the_tuned_layout_takes_goes_with_its_settings(
    asked: tuple[str, str, str, int, str],
) -> None:
    found = planned(asked)
    assert found.best and found.tuned
    p = found.tuned.prediction
    assert not setting_rules.broken_settings(p.job, p.layout)
    if p.layout != found.best.layout:
        kept = replace(found.best.job, software=p.job.software)
        stays = predict(kept, found.best.layout)
        near = 1 + resolution(p.job)
        assert setting_rules.broken_settings(kept, stays.layout) or (
            p.merit_s * near <= stays.merit_s
        )


def test_the_best_layout_of_a_plan_under_the_settings_is_no_better() -> None:
    """The search anew is one: a plan of the job that states the settings finds no more than ties."""
    found = planned(OSS)
    assert found.tuned
    own = found.tuned.prediction
    stated = plan(job(*OSS, software=own.job.software))
    assert stated.fastest
    assert own.merit_s <= stated.fastest.merit_s * (1 + resolution(own.job))


def test_overlap_of_experts_asks_for_chunks_and_keeps_what_was_sent() -> None:
    run = job(*OSS, software=Software(ep_overlap=True))
    space = Space(tp=1, pp=4, ep=16)
    best = plan(run, space).best
    assert best and best.layout.interleave > 1
    fine = best.layout
    assert not setting_rules.broken_settings(run, fine)
    for broken in (
        replace(fine, schedule="1f1b", interleave=1),
        replace(fine, recompute="full"),
        replace(fine, recompute="moe"),
    ):
        assert len(setting_rules.broken_settings(run, broken)) == 1
    assert not setting_rules.broken_settings(
        run, replace(fine, recompute="mlp")
    )
    assert not setting_rules.broken_settings(
        run, replace(fine, schedule="dualpipe")
    )
    assert not setting_rules.broken_settings(
        run, replace(fine, pp=1, schedule="1f1b")
    )


def test_a_recipe_is_no_answer_where_a_stated_setting_rules_it_out() -> None:
    """Nothing with several chunks fits here, and the recipe of these chips has one."""
    run = job(*OSS, software=Software(ep_overlap=True))
    found = plan(run, Space(tp=1, pp=4, ep=8))
    assert found.best and not found.recipe
    assert any("needs several chunks" in note for note in found.notes)


def test_offers_name_rules_and_values_that_exist() -> None:
    for profile in frameworks().values():
        for offer in profile.offers:
            Software(**{offer.setting: offer.meant})
            assert {*offer.rules} <= {*setting_rules.RULES}
            assert getattr(profile, offer.setting) != offer.meant or (
                offer.setting == "float8"
            )


def test_software_is_searched_with_the_layout() -> None:
    """The best of all combinations, each with its best layout; the plan of one that is stated."""
    named = {"dispatcher": ("alltoall", "deepep"), "ep_overlap": (True, False)}
    found = plan(job(*SMALL), Space(software=named))
    every = {
        (dispatcher, overlap): plan(
            job(
                *SMALL,
                software=Software(dispatcher=dispatcher, ep_overlap=overlap),
            )
        )
        for dispatcher in named["dispatcher"]
        for overlap in named["ep_overlap"]
    }
    least = min(p.fastest.merit_s for p in every.values())
    near = 1 + resolution(job(*SMALL))
    chosen = every[tuple(found.settings[name] for name in named)]
    assert found.best == chosen.best and found.best.job == chosen.best.job
    assert chosen.fastest.merit_s <= least * near * near
    assert {f.name for f in found.families} > {f.name for f in chosen.families}


def test_of_settings_that_tie_the_ones_that_a_framework_has_win() -> None:
    both = Space(software={"dispatcher": ("deepep", "hybridep")})
    assert plan(job(*SMALL), both).settings == {"dispatcher": "deepep"}
    none = Space(software={"cuda_graphs": ("parts", "off")}, tp=1)
    assert plan(job(*DENSE), none).settings == {"cuda_graphs": "off"}


def test_what_a_plan_may_choose_keeps_the_numbers_of_the_training() -> None:
    values = all_settings(job(*QWEN))
    assert not {*values} & {*NUMERICS}
    assert values["dispatcher"] == (
        "alltoall",
        "allgather",
        "deepep",
        "hybridep",
    )


def test_a_value_that_no_software_has_is_refused() -> None:
    with refusal("did you mean deepep"):
        Space(software={"dispatcher": ("alltoall", "deeep")})
    with refusal("dispatch"):
        Space(software={"dispatch": "deepep"})


def test_what_is_exported_says_each_setting_or_refuses_it() -> None:
    """Megatron's arguments have every setting that the framework offers, by its own flag."""
    found = planned(SMALL)
    assert found.best
    for one in found.software:
        p = one.prediction
        text = written(p.job, p.layout)
        assert text != written(found.best.job, found.best.layout)
    again = Software(ep_overlap=True)
    full = replace(found.best.layout, recompute="full")
    with refusal("expert"):
        written(replace(found.best.job, software=again), full)


def test_without_an_answer_or_a_question_nothing_more_is_searched() -> None:
    p = by_hand(Layout())
    for found in (Plan(None, asked=(p.job, Space())), Plan(p)):
        assert (found.outside, found.software, found.tuned) == ((), (), None)


def test_a_setting_that_the_answer_cannot_run_is_none_to_try() -> None:
    # gradients of torch's replicas go with pp 1 and zero 0 alone, and a prediction refuses others
    run = job(*LLAMA, framework="megatron-2021")
    answer = plan(run)
    assert answer.best and answer.best.layout.pp > 1
    assert "dp_overlap" in offers(run)
    assert answer.tuned is None
    assert all("dp_overlap" not in one.settings for one in answer.software)

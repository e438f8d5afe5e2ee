"""The class defaults of config.json against the configuration classes of an installed
transformers.
"""

import dataclasses

import pytest

from meshwright.formats.hf_keys import classes

transformers = pytest.importorskip(
    "transformers", reason="the defaults were taken from transformers 5.23"
)

VERSION = "5.23."


@pytest.mark.skipif(
    not transformers.__version__.startswith(VERSION),
    reason=f"defaults of transformers {VERSION}",
)
@pytest.mark.parametrize("kind", sorted(classes()))
def test_defaults_are_those_of_the_class(kind):
    """Every field that the class declares itself is there, but for ids of tokens, caches and
    initialisers.
    """
    of = transformers.CONFIG_MAPPING[kind]
    general = {
        f.name for f in dataclasses.fields(transformers.PretrainedConfig)
    }
    left_out = ("use_cache", "output_router_logits", "initializer_range")
    want = {
        f.name: f.default
        for f in dataclasses.fields(of)
        if f.name not in general and f.name not in left_out
    }
    want = {
        name: value
        for name, value in want.items()
        if not name.endswith("_token_id")
    }
    assert (
        classes()[kind]["defaults"] == want
        and classes()[kind]["aliases"] == of.attribute_map
    )

"""Bodies made from the description itself, and worse ones: an answer or one sentence, always."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("starlette")

from asking import QUESTION, call  # noqa: E402
from hypothesis import HealthCheck, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from junk import JUNK  # noqa: E402
from meshwright.web.app import app  # noqa: E402
from meshwright.web.endpoints import endpoints, openapi  # noqa: E402

SERVED = app()
ASKED = endpoints()
PATHS = openapi(ASKED)["paths"]
HEAVY = {"what_if", "choices", "clusters", "limits"}
"""Answers of many searches: asked with little, or with what is wrong."""
WORDS = st.one_of(
    st.sampled_from(
        [
            "1",
            "0",
            "-1",
            "1e9",
            "8xh100-sxm",
            "llama3-8b",
            "2,4",
            "1..4",
            "nan",
            "x",
        ]
    ),
    st.text(max_size=12),
)
QUESTIONS = st.one_of(
    st.just(QUESTION),
    st.dictionaries(
        st.sampled_from(
            [
                "model",
                "on",
                "batch",
                "seq",
                "tp",
                "pp",
                "zero",
                "schedule",
                "job",
            ]
        ),
        WORDS,
        max_size=4,
    ).map(lambda more: {**QUESTION, **more}),
)
BY_TYPE = {
    "number": st.floats(-1e6, 1e6),
    "integer": st.integers(-3, 60),
    "boolean": st.booleans(),
    "string": WORDS,
    "array": st.lists(WORDS, max_size=2),
    "object": st.dictionaries(
        st.sampled_from(["tp", "pp", "dp", "zero", "x"]), st.integers(-1, 9)
    ),
}


@st.composite
def requests(draw: Any) -> tuple[str, Any]:
    """(name, body): some as described, some not."""
    name = draw(st.sampled_from(sorted(ASKED)))
    schema = PATHS[f"/api/{name}"]["post"]["requestBody"]["content"][
        "application/json"
    ]["schema"]
    body = {}
    for field, of in schema["properties"].items():
        if draw(st.booleans()) or field == "question":
            right = (
                QUESTIONS
                if field == "question"
                else BY_TYPE[of.get("type", "object")]
            )
            body[field] = draw(
                st.one_of(right, JUNK)
                if draw(st.integers(0, 4)) == 0
                else right
            )
    if name in HEAVY:
        body["unheard-of"] = 1
    return name, body if draw(st.integers(0, 9)) else draw(JUNK)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(requests())
def test_an_answer_or_a_sentence(asked: tuple[str, Any]) -> None:
    name, body = asked
    text = json.dumps(body)
    reply = call("POST", f"/api/{name}", text.encode(), served=SERVED)
    assert reply.status in (200, 422), (name, text, reply.body[:300])
    if reply.status != 200:
        assert set(reply.json) == {"error"}
        assert "\n" not in reply.json["error"]


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=80))
def test_any_text_dropped_is_a_question_or_a_sentence(text: str) -> None:
    body = json.dumps({"text": text, "question": QUESTION}).encode()
    reply = call("POST", "/api/read", body, served=SERVED)
    assert reply.status in (200, 422)


@settings(max_examples=40, deadline=None)
@given(
    st.text(
        st.characters(exclude_characters="\r\n", codec="latin-1"), max_size=60
    )
)
def test_any_path_is_a_file_or_a_sentence(path: str) -> None:
    reply = call("GET", "/" + path, served=SERVED)
    assert reply.status in (200, 404)

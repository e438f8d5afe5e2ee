"""What can be asked, in one table: it answers requests, checks their bodies and describes itself as
OpenAPI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from sys import float_info
from typing import Any

from .._version import __version__
from ..describe.fields import FieldKind, fields_of
from ..describe.layout import Layout
from ..describe.read import brief
from ..errors import BadInput, unknown
from ..formats.options import flags
from ..search import Progress
from . import (
    advised,
    answers,
    changes,
    copies,
    dropped,
    explorers,
    opened,
    sure,
)
from .answers import Answer, Body
from .question import keys
from .runs import Folders, of_files, of_log

TEXTS = {
    "type": "object",
    "additionalProperties": {"type": "string", "maxLength": 2000},
}
LIST = {
    "type": "array",
    "items": {"type": "string", "maxLength": 200},
    "minItems": 1,
    "maxItems": 64,
}
LAYOUT = {
    "type": "object",
    "additionalProperties": {
        "type": ["integer", "string", "boolean", "object"]
    },
}
NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
NUMBER = {"type": "number"}
LINES = (
    "The answer, a line for each part. Who waits for one is told so every other second:"
    ' {"waiting": 3} is the third in the queue, {"waiting": 0} is being worked out.'
)
FILES = {"type": "object", "additionalProperties": {"type": "string"}}
YES = {"type": "boolean"}
TEXT = {"type": "string"}
TOP = {"type": "integer", "minimum": 1, "maximum": 50}
SCENARIO: Mapping[str, Mapping[str, Any]] = {
    "scenarios": LIST,
    "months": {"type": "number", "minimum": 0.01, "maximum": 1200},
    "linear": NUMBER,
    "failures": YES,
    "factors": {
        "type": "object",
        "properties": {
            name: {"type": "number", "minimum": 1e-3, "maximum": 1e6}
            for name in explorers.SCALED
        },
    },
}
KINDS: Mapping[str, tuple[type, ...]] = {
    "object": (Mapping,),
    "array": (list,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "string": (str,),
}


@dataclass(frozen=True)
class Endpoint:
    """One thing that can be asked."""

    ask: Callable[[Body, Progress], Answer | Iterator[Answer]]
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name -> JSON schema of what its body may hold."""
    streams: bool = False
    """Its answer is lines of JSON, one by one."""
    quick: bool = False
    """It takes a few milliseconds, and never waits behind a search."""
    kept: bool = True
    """The same body has the same answer as long as the server runs."""
    last: str = ""
    """Whose answer its last line is."""

    @property
    def says(self) -> str:
        """The first sentence of the endpoint's docstring."""
        return " ".join((self.ask.__doc__ or "").split())


def endpoints(runs: Mapping[str, Path] | None = None) -> dict[str, Endpoint]:
    """Name -> endpoint; runs: name -> folder of the runs that may be shown."""
    asked = {"question": TEXTS}
    laid_out = {**asked, "layout": LAYOUT}
    planned: dict[str, Mapping[str, Any]] = {
        **asked,
        "top": TOP,
        "pareto": YES,
        "families": YES,
        "prices": NUMBERS,
    }
    folders = Folders(runs or {})
    quick = partial(Endpoint, quick=True)
    return {
        "catalogue": quick(answers.catalogue),
        "predict": quick(
            answers.answer_predict, {**laid_out, "prices": NUMBERS}
        ),
        "explain": quick(
            opened.explain, {**laid_out, "term": TEXT, "prices": NUMBERS}
        ),
        "machine": quick(opened.machine, laid_out),
        "plan": Endpoint(answers.answer_plan, planned),
        "plan_lines": Endpoint(
            answers.plan_lines, planned, streams=True, last="plan"
        ),
        "beside": Endpoint(answers.neighbours_of, laid_out),
        "choices": Endpoint(answers.choices, laid_out, streams=True),
        "what_if": Endpoint(changes.what_if, asked, streams=True),
        "clusters": Endpoint(
            answers.clusters,
            {**asked, "clusters": LIST, "prices": NUMBERS},
            streams=True,
        ),
        "scaling": Endpoint(
            answers.answer_scaling, {**asked, "prices": NUMBERS}, streams=True
        ),
        "copies": quick(
            copies.ways_to_copy,
            {**laid_out, "clusters": LIST, "prices": NUMBERS},
        ),
        "read": Endpoint(dropped.read_dropped, {"text": TEXT, **asked}),
        "advise": Endpoint(advised.answer_advise, {"text": TEXT, **laid_out}),
        "timeline": quick(explorers.explore_timeline, laid_out),
        "trace": Endpoint(explorers.trace, laid_out),
        "limits": Endpoint(
            explorers.explore_limits, {**SCENARIO, "grid": YES}, streams=True
        ),
        "cluster_of_run": Endpoint(
            explorers.cluster_of_run,
            {**SCENARIO, "flops": NUMBER, "chips": NUMBER},
        ),
        "scenarios": quick(explorers.scenarios),
        "roofline": Endpoint(
            explorers.explore_roofline, {**asked, "layer": TEXT, "shape": TEXT}
        ),
        "runs": quick(sure.run_table),
        "nearest": quick(sure.nearest_table, asked),
        "run_question": quick(sure.run_question, {"id": TEXT}),
        "folders": quick(folders.list),
        "log": Endpoint(of_log, {"text": TEXT, **laid_out}),
        "run_files": Endpoint(of_files, {"files": FILES}, kept=False),
        "folder": Endpoint(folders.run, {"run": TEXT}, kept=False),
    }


def check_body(body: object, asked: Endpoint) -> Body:
    """A body whose fields are known and of the right kind.  Raises BadInput."""
    if not isinstance(body, Mapping):
        raise BadInput(f"the body must be a JSON object, not {brief(body)}")
    for name, value in body.items():
        if name not in asked.fields:
            raise unknown("the body: field", name, asked.fields)
        _check(name, value, asked.fields[name])
    return body


def _check(name: str, value: object, schema: Mapping[str, Any]) -> None:
    """A value, and those inside, of a schema's type and range.  Raises BadInput."""
    wanted = schema.get("type", [])
    kinds = [wanted] if isinstance(wanted, str) else wanted
    if not any(
        isinstance(value, KINDS[kind])
        and (kind == "boolean" or not isinstance(value, bool))
        for kind in kinds
    ):
        raise BadInput(
            f"{name} must be of type {' or '.join(kinds)}, not {brief(value)}"
        )
    if isinstance(value, (int, float)) and not abs(value) <= float_info.max:
        raise BadInput(f"{name} must be a finite number, not {brief(value)}")
    least = schema.get("minimum", -inf)
    most = schema.get("maximum", inf)
    if isinstance(value, (int, float)) and not least <= value <= most:
        raise BadInput(
            f"{name} must be between {least} and {most}, not {brief(value)}"
        )
    known, other = (
        schema.get(part) for part in ("properties", "additionalProperties")
    )
    if isinstance(value, Mapping) and (known or other):
        for key, inner in value.items():
            part = (known or {}).get(key, other)
            if part is None:
                raise unknown(f"{name}: field", key, known or {})
            _check(f"{name}.{key[:40]}", inner, part)
    if isinstance(value, list) and "items" in schema:
        least, most = schema["minItems"], schema["maxItems"]
        if not least <= len(value) <= most:
            raise BadInput(f"{name} must be a list of {least} to {most} texts")
        for inner in value:
            _check(f"each of {name}", inner, schema["items"])


def json_schema(kind: FieldKind) -> dict[str, Any]:
    """The JSON schema of a field: whatever it holds may be given as a text too."""
    if kind.words and kind.type is str:
        return {"enum": [*kind.words]}
    if kind.type is Any or kind.type in (int, float):
        plain = "number" if kind.type is float else "integer"
        least, most = kind.limits
        return {"type": [plain, "string"], "minimum": least, "maximum": most}
    return {
        "type": {str: "string", bool: ["boolean", "string"]}.get(
            kind.type, "object"
        )
    }


def openapi(asked: Mapping[str, Endpoint]) -> dict[str, Any]:
    """The description of the interface."""
    refused = {
        "description": "One sentence: what is wrong, and the nearest valid values.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"error": {"type": "string"}},
                    "required": ["error"],
                }
            }
        },
    }
    paths = {}
    for name, one in asked.items():
        kind = "application/x-ndjson" if one.streams else "application/json"
        fields = {**one.fields}
        for part in {"question", "layout"} & {*fields}:
            fields[part] = {
                "$ref": f"#/components/schemas/{part.capitalize()}"
            }
        schema = {
            "type": "object",
            "properties": fields,
            "additionalProperties": False,
        }
        paths[f"/api/{name}"] = {
            "post": {
                "operationId": name,
                "summary": one.says,
                "requestBody": {
                    "required": True,
                    "content": {"application/json": {"schema": schema}},
                },
                "responses": {
                    "200": {
                        "description": LINES if one.streams else "The answer.",
                        "content": {kind: {"schema": {"type": "object"}}},
                    },
                    "4XX": refused,
                },
            }
        }
    about = {flag.name: flag.help for flag in flags()}
    question = {
        "type": "object",
        "properties": {
            key: {"type": "string", "description": about.get(key, "")}
            for key in keys()
        },
        "additionalProperties": False,
        "example": {
            "model": "llama3-70b",
            "on": "512xh100-sxm",
            "batch": "4Mi",
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Meshwright", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {
                "Question": question,
                "Layout": {
                    **LAYOUT,
                    "properties": {
                        name: {
                            "description": about[name],
                            **json_schema(one.kind),
                        }
                        for name, one in fields_of(Layout).items()
                    },
                },
            }
        },
    }

"""Answers without a server: what the page's worker calls where Python runs in the browser."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, cast

from ..errors import BadInput, MeshwrightError
from .endpoints import Endpoint, check_body, endpoints
from .work import json_bytes


@cache
def _endpoints() -> Mapping[str, Endpoint]:
    return endpoints()


def unstoppable(what: str, share: float) -> None:
    """Nobody stops a worker but by ending it."""


def endpoint_answer(name: str, body: str) -> Any:
    """What an endpoint says to a body in JSON.  Raises BadInput."""
    one = _endpoints().get(name)
    if one is None:
        raise BadInput(f"nothing is asked under {name[:40]!r}")
    return one.ask(check_body(json.loads(body), one), unstoppable)


def json_answer(name: str, body: str) -> str:
    """One answer as JSON; {"error": sentence} for what is wrong."""
    try:
        return json_bytes(endpoint_answer(name, body)).decode()
    except MeshwrightError as error:
        return json_bytes({"error": str(error)}).decode()


def lines(name: str, body: str) -> Iterator[str]:
    """An answer of many parts, each as JSON."""
    try:
        for part in cast("Iterator[Any]", endpoint_answer(name, body)):
            yield json_bytes(part).decode()
    except MeshwrightError as error:
        yield json_bytes({"error": str(error)}).decode()

"""A question in other words: a command, Python, a JOB.toml, and the files of other tools."""

from __future__ import annotations

from ..describe.job import Job
from ..errors import MeshwrightError
from ..formats import bridge, torchrun
from ..formats.bridge.launch import Place
from ..formats.bridge.table import written
from ..formats.toml import dump_job
from ..prediction.prediction import predict as compute_step
from ..report.console import SCHEMA
from ..search import Progress
from .answers import Answer, Body, texts, varied
from .prices import by_chip, price_of_job, with_price
from .question import ask, check_question, command_of, laid_out, python_of


def ways_to_copy(body: Body, progress: Progress) -> Answer:
    """The question as a command, as Python and as a JOB.toml (with a layout: the job that runs
    it); with clusters: their comparison.
    """
    question = check_question(body.get("question"))
    job, _ = ask(question, [])
    names = texts(body, "clusters") if "clusters" in body else []
    others = [varied(job, "on", name) for name in names]
    chips = [j.cluster.chip.name for j in others if isinstance(j, Job)]
    given = body.get("prices", {})
    own_price = price_of_job(job, given)
    prices = by_chip(given, chips) if names else {}
    if own_price:
        prices[job.cluster.chip.name] = own_price
    job = with_price(job, own_price)
    copied = {
        "command": command_of(question, clusters=names, prices=prices),
        "python": python_of(question, names, prices),
    }
    layout = body.get("layout")
    if layout is not None:
        job = compute_step(job, laid_out(job, layout)).job
    return {
        "schema": SCHEMA,
        **copied,
        "toml": dump_job(job),
        "tools": tools(job),
    }


def tools(job: Job) -> list[dict[str, str]]:
    """The job in the words of each other tool, or why it cannot be expressed there."""
    exports = []
    for name, format in written().items():
        one = {"name": name, "title": format.title}
        try:
            nodes, ranks = torchrun.nodes(job, None)
            text, _ = bridge.write(
                job, name, Place(nodes, ranks, None, job.model.name)
            )
            exports.append({**one, "text": text})
        except MeshwrightError as error:
            exports.append({**one, "why": str(error)})
    return exports

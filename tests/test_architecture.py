"""The house rules that code can break: imports run one way, importing costs little, names are
kept.
"""

from __future__ import annotations

import ast
import pkgutil
import re
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

import meshwright
from meshwright import search

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "site"))
from rooms import PAGE, ROOMS, table  # noqa: E402

SOURCE = Path(meshwright.__file__).parent
TESTS = Path(__file__).parent
STUDIES = TESTS.parent / "studies" / "src"
LEVEL = {room: i for i, room in enumerate(["_version", *ROOMS, "__main__"])}


def modules(file: Path, types: bool = True) -> set[tuple[str, ...]]:
    """Modules of the package (and names in them) that a file imports, at its top or inside
    functions.

    types: also for types only.
    """
    tree = ast.parse(file.read_text("utf-8"))
    blocks = [
        b
        for b in ast.walk(tree)
        if isinstance(b, ast.If)
        and "TYPE_CHECKING" in ast.dump(b.test)
        and not types
    ]
    passed_over = {id(n) for b in blocks for n in ast.walk(b)}
    inside = (
        file.relative_to(SOURCE).parts[:-1] if SOURCE in file.parents else ()
    )
    package = ("meshwright", *inside)
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in passed_over:
            base = (
                package[: len(package) - node.level + 1] if node.level else ()
            )
            path = (*base, *(node.module.split(".") if node.module else ()))
            found |= {(*path, alias.name) for alias in node.names}
    return {path[1:] for path in found if path[0] == "meshwright"}


def imports(file: Path) -> set[str]:
    """Rooms of the package that a file imports, at its top or inside functions."""
    return {path[0] for path in modules(file, types=False)}


def room(file: Path) -> str:
    """The room a file belongs to."""
    first = file.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


FILES = [
    f for f in sorted(SOURCE.rglob("*.py")) if f != SOURCE / "__init__.py"
]


@pytest.mark.parametrize(
    "file", FILES, ids=lambda f: str(f.relative_to(SOURCE))
)
def test_imports_run_with_the_data(file: Path) -> None:
    here = room(file)
    for other in imports(file) - {"__version__"}:
        assert LEVEL[other] <= LEVEL[here], (
            f"{here} imports {other}, which stands after it"
        )


def test_the_study_trainer_stands_alone() -> None:
    for file in FILES:
        if room(file) == "study":
            assert imports(file) <= {"study"}, file
        else:
            assert "study" not in imports(file), file


def test_every_room_has_its_place() -> None:
    assert {room(f) for f in FILES} <= set(LEVEL)


def needs() -> dict[str, set[str]]:
    """File -> those of the package that it imports; the root, which loads what is asked for, is
    none of them."""
    named = {
        file.relative_to(SOURCE).with_suffix("").parts: file for file in FILES
    }
    named = {
        name[:-1] if name[-1] == "__init__" else name: file
        for name, file in named.items()
    }
    return {
        ".".join(name): {
            ".".join(path if path in named else path[:-1])
            for path in modules(file)
        }
        - {".".join(name), ""}
        for name, file in named.items()
    }


def reached(of: dict[str, set[str]], start: str) -> set[str]:
    """The files that one file needs, and those that they need."""
    found: set[str] = set()
    open_ = [start]
    while open_:
        new = of.get(open_.pop(), set()) - found
        found |= new
        open_ += new
    return found


def test_no_files_need_one_another() -> None:
    """Not even within a room. Imports inside functions, and for types only, count: a reader goes round
    them all the same."""
    of = needs()
    below = {name: reached(of, name) for name in of}
    circles = {
        frozenset(other for other in below[name] if name in below[other])
        for name in of
        if name in below[name]
    }
    assert not circles, sorted(map(sorted, circles))


def test_search_is_asked_by_the_names_that_it_gives_out() -> None:
    """Its files are its own, so that they may change: other rooms and tests ask what it answers.
    (The package lists where its names stand; tests of the page cut answers short by hand.)
    """
    files = [
        *(f for f in SOURCE.glob("*/**/*.py") if f.parent.name != "search"),
        *(f for f in TESTS.rglob("*.py") if f.parent.name != "web"),
    ]
    public = {(name,) for name in search.__all__}
    beyond = [
        (file.name, path)
        for file in files
        for path in modules(file)
        if path[0] == "search" and len(path) > 1 and path[1:] not in public
    ]
    assert len(files) > 500 and not beyond


def test_a_circle_is_seen() -> None:
    of = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert reached(of, "d") == {"a", "b", "c"} and "a" in reached(of, "a")


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_loads_nothing_heavy() -> None:
    heavy = "('torch', 'matplotlib', 'starlette', 'rich', 'cyclopts', 'numpy')"
    assert (
        run(
            f"import sys, meshwright; print([m for m in {heavy} if m in sys.modules])"
        ).strip()
        == "[]"
    )


def test_a_prediction_without_a_pipeline_needs_no_numpy() -> None:
    """Nor torch, nor plots: it is what a browser can do first."""
    code = (
        "import sys; from meshwright import Job, Layout, cluster, model, predict; predict(Job(model('llama3-8b'),"
        " cluster('64xh100-sxm'), 512, Layout(dp=64, zero=3)));print([m for m in ('torch',"
        " 'matplotlib', 'rich', 'starlette', 'numpy') if m in sys.modules])"
    )
    assert run(code).strip() == "[]"


def test_what_is_installed_is_imported() -> None:
    """Every dependency of the core is used somewhere."""
    project = tomllib.loads(
        (SOURCE.parents[1] / "pyproject.toml").read_text("utf-8")
    )["project"]
    needed = {
        re.split(r"[<>=!~\[]", words)[0] for words in project["dependencies"]
    }
    text = "\n".join(file.read_text("utf-8") for file in FILES)
    assert needed == {
        name
        for name in needed
        if re.search(rf"^\s*(?:from|import) {name}\b", text, re.MULTILINE)
    }


def test_that_test_can_fail() -> None:
    assert (
        run(
            "import sys, json, meshwright; print([m for m in ('json',) if m in sys.modules])"
        ).strip()
        == "['json']"
    )


def test_public_names_exist_and_are_sorted() -> None:
    assert meshwright.__all__[1:] == sorted(meshwright.__all__[1:])
    for name in meshwright.__all__:
        assert getattr(meshwright, name) is not None
    with pytest.raises(AttributeError):
        meshwright.nothing  # noqa: B018


def files_of_names(*roots: Path) -> dict[str, list[str]]:
    """Public functions and classes at the top of files -> the files that have one of that name."""
    files: dict[str, list[str]] = {}
    for file in sorted(f for root in roots for f in root.rglob("*.py")):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        body = ast.parse(file.read_text("utf-8")).body
        for name in {n.name for n in body if isinstance(n, kinds)}:
            if not name.startswith("_"):
                files.setdefault(name, []).append(file.name)
    return files


def test_no_public_name_stands_in_three_files() -> None:
    """Whoever meets a name knows whose it is, or has two files to look into."""
    files = files_of_names(SOURCE, STUDIES)
    assert len(files) > 2000
    assert {n: f for n, f in files.items() if len(f) > 2} == {}


DOTTED = re.compile(r"`(\w+(?:[./]\w+)+)[^`\n]*`")
"""`room.module.Name.field`, `room/module.Name` or `Class.field`, whatever follows it."""


def stands(name: str) -> bool:
    """Whether a name of the page is one of a room's (of any room's, if none is named), a field of a
    class, or a file."""
    parts = re.split(r"[./]", name)
    if parts[0][0].isupper():
        if hasattr(getattr(meshwright, parts[0], None), parts[1]):
            return True
        return any(
            re.search(rf"class {parts[0]}\b", text := f.read_text("utf-8"))
            and re.search(rf"^    (def )?{parts[1]}\b", text, re.MULTILINE)
            for f in FILES
        )
    if any((root / name).exists() for root in (SOURCE.parents[1], SOURCE)):
        return True
    packages = ("meshwright", "meshwright_studies")
    rooms = [""] if parts[0] in LEVEL else ["", *(f"{r}." for r in ROOMS)]
    return any(_resolves(f"{p}.{r}{name}") for p in packages for r in rooms)


def _resolves(path: str) -> bool:
    """Whether a module, or a name in one, has this path; a field need have no default."""
    whole = path.replace("/", ".")
    with suppress(ImportError, AttributeError):
        pkgutil.resolve_name(whole)
        return True
    owner, _, field = whole.rpartition(".")
    with suppress(ImportError, AttributeError, ValueError):
        return field in getattr(
            pkgutil.resolve_name(owner), "__annotations__", {}
        )
    return False


def test_every_name_of_the_architecture_exists() -> None:
    text = PAGE.read_text("utf-8")
    names = {*DOTTED.findall(text)} - {"meshwright.verbs"}
    assert len(names) > 100
    assert [name for name in sorted(names) if not stands(name)] == []
    assert not stands("cost.collectives.nccl.way_load") and not stands(
        "Way.slow"
    )


def test_the_table_of_rooms_is_made_of_their_docstrings() -> None:
    """`python docs/site/rooms.py` writes it."""
    assert table() in PAGE.read_text("utf-8")


def test_changelog_knows_the_version() -> None:
    text = (SOURCE.parents[1] / "CHANGELOG.md").read_text("utf-8")
    assert re.search(
        rf"^## {re.escape(meshwright.__version__)}\b", text, re.MULTILINE
    )


AT_THE_ROOT = {
    ".ci",
    ".github",
    ".gitignore",
    ".pre-commit-config.yaml",
    "benchmarks",
    "CHANGELOG.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "docs",
    "examples",
    "LICENSE",
    "pyproject.toml",
    "README.md",
    "run.py",
    "SECURITY.md",
    "src",
    "studies",
    "tests",
}


def test_the_repository_holds_nothing_that_a_run_left() -> None:
    """A run or a note committed by accident is seen: it stands at the root."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=TESTS.parent, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("no git repository")
    files = listed.stdout.splitlines()
    assert {file.split("/")[0] for file in files} <= AT_THE_ROOT


FILLED = {"LiveUnit", "SearchState"}
"""Dataclasses that a loop fills, beside those of readers, tracers and the trainer."""


def test_what_is_described_and_answered_does_not_change() -> None:
    """Dataclasses are frozen: what was computed of one stays true of it."""
    changing = {
        node.name
        for file in FILES
        if room(file) not in ("formats", "trace", "train")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for by in map(ast.unparse, node.decorator_list)
        if by.startswith("dataclass") and "frozen=True" not in by
    }
    assert changing == FILLED


def test_nothing_dangerous() -> None:
    """No pickle, no eval, no exec, no unsafe loader anywhere in the package."""
    for file in FILES:
        tree = ast.parse(file.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in (
                    "eval",
                    "exec",
                    "compile",
                    "__import__",
                ), file
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [a.name for a in node.names] + [
                    getattr(node, "module", "") or ""
                ]
                assert not {"pickle", "shelve", "marshal", "dill"} & set(
                    names
                ), file

"""Formulas as MathML, read from the functions that compute them: what the site shows is what runs.

A function's assignments, branches and results become equations, one a line; what has no notation
stays as code.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Sequence
from html import escape
from importlib import import_module
from pathlib import Path

OPERATORS: dict[type[ast.AST], tuple[str, int]] = {
    ast.Add: ("+", 4),
    ast.Sub: ("−", 4),
    ast.Mult: ("·", 5),
    ast.MatMult: ("·", 5),
    ast.Mod: ("mod", 5),
    ast.BitOr: ("or", 2),
    ast.BitAnd: ("and", 2),
    ast.Eq: ("=", 3),
    ast.NotEq: ("≠", 3),
    ast.Lt: ("&lt;", 3),
    ast.LtE: ("≤", 3),
    ast.Gt: ("&gt;", 3),
    ast.GtE: ("≥", 3),
    ast.In: ("∈", 3),
    ast.NotIn: ("∉", 3),
    ast.Is: ("is", 3),
    ast.IsNot: ("is not", 3),
    ast.And: ("and", 1),
    ast.Or: ("or", 1),
}
"""Operator -> (sign, how tightly it binds)."""
TIGHT = 9
SIGNS = {"maximum": "max", "minimum": "min", "max": "max", "min": "min"}
FENCES = {"ceil": "⌈⌉", "floor": "⌊⌋", "abs": "||"}
OWNERS = ("self", "d", "net", "how", "of", "r", "np", "num", "math", "found")
"""Objects whose fields are named without them."""


def row(*parts: str) -> str:
    return f"<mrow>{''.join(parts)}</mrow>"


def sign(text: str) -> str:
    return f"<mo>{text}</mo>"


def name(text: str) -> str:
    """A name; what follows an underscore of a short one is an index."""
    first, _, rest = text.strip("_").partition("_")
    if rest and len(first) == 1:
        return f"<msub><mi>{first}</mi>{name(rest)}</msub>"
    return f"<mi>{escape(text.strip('_'))}</mi>"


def code(node: ast.AST) -> str:
    return f"<mtext>{escape(ast.unparse(node))}</mtext>"


def fenced(inner: str, left: str = "(", right: str = ")") -> str:
    """Between fences as high as what is inside."""
    high = "<mfrac" in inner or "<mtable" in inner
    tag = "<mo>" if high else "<mo stretchy='false'>"
    return row(f"{tag}{left}</mo>", inner, f"{tag}{right}</mo>")


def listed(nodes: Sequence[ast.expr]) -> str:
    return sign(",").join(math(node) for node in nodes)


def cases(*lines: tuple[str, str]) -> str:
    """(value, when) a line."""
    cells = "".join(
        f"<mtr><mtd>{value}</mtd><mtd><mtext>&#160;{'if' if when else 'else'}"
        f"&#160;</mtext>{when}</mtd></mtr>"
        for value, when in lines
    )
    return row(sign("{"), f"<mtable columnalign='left'>{cells}</mtable>")


def binds(node: ast.expr) -> int:
    """How tightly an expression holds together."""
    if isinstance(node, ast.BinOp):
        return OPERATORS.get(type(node.op), ("", TIGHT))[1]
    if isinstance(node, ast.Compare):
        return 3
    if isinstance(node, ast.BoolOp):
        return 1
    if isinstance(node, ast.UnaryOp):
        return 4
    return 0 if isinstance(node, (ast.IfExp, ast.Lambda)) else TIGHT


def inside(node: ast.expr, least: int) -> str:
    """An expression as part of another; fenced where it binds less tightly."""
    return math(node) if binds(node) >= least else fenced(math(node))


def operation(node: ast.BinOp) -> str:
    if isinstance(node.op, ast.Div):
        return f"<mfrac>{row(math(node.left))}{row(math(node.right))}</mfrac>"
    if isinstance(node.op, ast.Pow):
        return (
            f"<msup>{row(inside(node.left, TIGHT))}{math(node.right)}</msup>"
        )
    if isinstance(node.op, ast.FloorDiv):
        parts = row(math(node.left)), row(math(node.right))
        return fenced(f"<mfrac>{parts[0]}{parts[1]}</mfrac>", "⌊", "⌋")
    if type(node.op) not in OPERATORS:
        return code(node)
    text, tight = OPERATORS[type(node.op)]
    return row(
        inside(node.left, tight), sign(text), inside(node.right, tight + 1)
    )


def called(node: ast.Call) -> str:
    """A call: those that have a notation in it, others by name."""
    of = node.func
    label = of.attr if isinstance(of, ast.Attribute) else ast.unparse(of)
    args = node.args
    if label == "where" and len(args) == 3:
        return cases((math(args[1]), math(args[0])), (math(args[2]), ""))
    if label in FENCES and len(args) == 1:
        return fenced(math(args[0]), *FENCES[label])
    if label == "sqrt":
        return f"<msqrt>{math(args[0])}</msqrt>"
    if label == "log2":
        return row("<msub><mi>log</mi><mn>2</mn></msub>", fenced(listed(args)))
    if label in ("sum", "float", "int", "cast", "replace") and args:
        if label == "sum":
            return row(sign("∑"), inside(args[0], 5))
        if label in ("float", "int"):
            return math(args[0])
    if label == "zip":
        return fenced(listed(args))
    named = [
        row(name(k.arg or ""), sign("="), math(k.value)) for k in node.keywords
    ]
    inner = sign(",").join([*(math(arg) for arg in args), *named])
    return row(
        f"<mi>{SIGNS.get(label, '') or escape(label)}</mi>", fenced(inner)
    )


def each(node: ast.GeneratorExp | ast.ListComp) -> str:
    """What is made of each of several."""
    parts = [math(node.elt), "<mtext>&#160;for each&#160;</mtext>"]
    for k, of in enumerate(node.generators):
        parts += [sign(",")] if k else []
        parts += [math(of.target), sign("∈"), math(of.iter)]
        for only in of.ifs:
            parts += ["<mtext>&#160;where&#160;</mtext>", math(only)]
    return row(*parts)


def field(node: ast.Attribute) -> str:
    """A field; its owner is an index where it says something."""
    owner = node.value
    if isinstance(owner, ast.Name) and owner.id not in OWNERS:
        return f"<msub>{name(node.attr)}{name(owner.id)}</msub>"
    return name(node.attr)


def compared(node: ast.Compare) -> str:
    parts = [inside(node.left, 4)]
    for op, right in zip(node.ops, node.comparators, strict=True):
        parts += [sign(OPERATORS[type(op)][0]), inside(right, 4)]
    return row(*parts)


def constant(node: ast.Constant) -> str:
    value = node.value
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return f"<mtext>{escape(str(value))}</mtext>"
    return (
        f"<mn>{value:g}</mn>"
        if isinstance(value, float)
        else f"<mn>{value}</mn>"
    )


def unary(node: ast.UnaryOp) -> str:
    text = {ast.USub: "−", ast.Not: "not&#160;", ast.UAdd: "+"}
    return row(sign(text.get(type(node.op), "~")), inside(node.operand, 5))


def indexed(node: ast.Subscript) -> str:
    return (
        f"<msub>{row(inside(node.value, TIGHT))}{row(math(node.slice))}</msub>"
    )


WRITTEN: dict[type[ast.AST], Callable[..., str]] = {
    ast.Name: lambda n: name(n.id),
    ast.Constant: constant,
    ast.Attribute: field,
    ast.BinOp: operation,
    ast.UnaryOp: unary,
    ast.Compare: compared,
    ast.BoolOp: lambda n: sign(OPERATORS[type(n.op)][0]).join(
        inside(v, 2) for v in n.values
    ),
    ast.Call: called,
    ast.Subscript: indexed,
    ast.IfExp: lambda n: cases(
        (math(n.body), math(n.test)), (math(n.orelse), "")
    ),
    ast.GeneratorExp: each,
    ast.ListComp: each,
    ast.Tuple: lambda n: fenced(listed(n.elts)),
    ast.List: lambda n: fenced(listed(n.elts), "[", "]"),
}
"""Kind of expression -> its notation."""


def math(node: ast.expr) -> str:
    """An expression in MathML."""
    write = WRITTEN.get(type(node))
    return row(write(node)) if write else code(node)


def equation(left: str, right: str) -> str:
    whole = row(left, sign("="), right)
    return f"<p><math displaystyle='true'>{whole}</math></p>"


def said(words: str, node: ast.expr | None = None) -> str:
    inner = f"<math>{math(node)}</math>" if node else ""
    return f"<p>{words} {inner}</p>"


def lines(body: Sequence[ast.stmt], whole: str) -> Iterator[str]:
    """The statements of a function; whole: its name with its arguments."""
    for node in body:
        if isinstance(node, ast.Return) and node.value:
            yield equation(whole, math(node.value))
        elif isinstance(node, ast.Assign):
            left = sign("=").join(math(target) for target in node.targets)
            yield equation(left, math(node.value))
        elif isinstance(node, ast.AnnAssign) and node.value:
            yield equation(math(node.target), math(node.value))
        elif isinstance(node, ast.AugAssign):
            both = ast.BinOp(node.target, node.op, node.value)
            yield equation(math(node.target), math(both))
        elif isinstance(node, ast.If):
            yield from branch(node, whole)
        elif isinstance(node, ast.For):
            over = ast.Compare(node.target, [ast.In()], [node.iter])
            yield said("for each", over) + block(node.body, whole)
        elif (added := appended(node)) is not None:
            yield added
        elif not isinstance(node, (ast.Expr, ast.FunctionDef, ast.Assert)):
            text = escape(ast.unparse(node))
            yield f"<pre><code>{text}</code></pre>"


def appended(node: ast.stmt) -> str | None:
    """A list that grows: its next element."""
    of = node.value if isinstance(node, ast.Expr) else None
    if not (
        isinstance(of, ast.Call)
        and isinstance(of.func, ast.Attribute)
        and of.func.attr == "append"
    ):
        return None
    last = f"<msub>{math(of.func.value)}<mtext>next</mtext></msub>"
    return equation(last, math(of.args[0]))


def branch(node: ast.If, whole: str) -> Iterator[str]:
    yield said("where", node.test) + block(node.body, whole)
    if node.orelse:
        yield said("else") + block(node.orelse, whole)


def block(body: Sequence[ast.stmt], whole: str) -> str:
    return f"<div class='inner'>{''.join(lines(body, whole))}</div>"


def function(path: str) -> tuple[ast.FunctionDef, str, str]:
    """The tree of `room.module:name`, its source and its file."""
    module, _, label = path.partition(":")
    of = import_module(f"meshwright.{module}")
    source = inspect.getsource(getattr(of, label))
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef), path
    file = Path(str(inspect.getsourcefile(of)))
    inside_package = file.relative_to(
        Path(import_module("meshwright").__path__[0])
    )
    return tree, source, f"src/meshwright/{inside_package}"


def rendered(path: str) -> str:
    """Markdown of a function: what it says, its equations, its source."""
    tree, source, file = function(path)
    arguments = [a.arg for a in tree.args.args if a.arg != "self"]
    whole = row(name(tree.name), fenced(sign(",").join(map(name, arguments))))
    doc = " ".join((ast.get_docstring(tree) or "").split())
    equations = "".join(lines(tree.body, whole))
    shown = escape(source).replace("\n\n", "\n&#8203;\n")
    return "\n".join(
        (
            f"\n**`{tree.name}`**, {file}\n",
            f"{doc}\n",
            f"<div class='formula'>{equations}</div>\n",
            "<details><summary>as code</summary>"
            f"<pre><code>{shown}</code></pre></details>\n",
        )
    )

"""The part of bash that launch scripts are written in, read without running anything.

Assignments, arrays, `${NAME:-default}`, `$((a * b))`, line continuation and conditions on texts are
followed, and so are positional arguments that `set -- 8B 1 8` states, and what Slurm sets of the
script's own directives. What a command prints, other scripts, `case`, several conditions in one
bracket (`-a`, `-o`), `=~` and single elements of an array are not (of 6,000 public scripts two have
arguments that depend on such): their texts are `UNREAD`, and so is what a name is set to under a
condition on them. Loops are read once; what grows from turn to turn is not known.

    commands('A=(--tp 2)\\ntorchrun train.py ${A[@]}') -> [["torchrun", "train.py", "--tp", "2"]]
"""

from __future__ import annotations

import itertools
import operator
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import lru_cache

from ...errors import BadInput
from ..formulas import worked_out

LARGEST = 2**22
"""Letters and words that names of a script stand for, each as often as it is filled in."""
DEEPEST = 20
"""Texts in texts."""
MOST_OPEN = 100
"""Conditions in conditions."""
OPERATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
PIECE = re.compile(
    r"""
      (?P<joined>\\\n)
    | (?P<quoted>'[^']*'|"(?:[^"\\]|\\.)*"|\$'(?:[^'\\]|\\.)*')
    | (?P<open>['"]|\$')
    | (?P<nested>\$[({])
    | (?P<comment>\#[^\n]*)
    | (?P<sum>\(\((?:[^()\n]|\([^()\n]*\))*\)\))
    | (?P<document><<(?!<))
    | (?P<operator>&&|\|\||;;|[;|&()\n])
    | (?P<between>[ \t\r])
    | (?P<word>\\.|`[^`]*`?|<<<|[^\s'"\\$`#(<&|;)]+|.)
    """,
    re.S | re.X,
)
"""What a script is made of; a comment and a sum are so only where a word may begin."""
QUOTED = re.compile(
    r"""'(?P<plain>[^']*)'|\$'(?P<escaped>(?:[^'\\]|\\.)*)'""", re.S
)
"""'a text', $'a text with escapes'."""
LETTERS = re.compile(r"[^'\"\\`$]+")
"""What stands for itself in a word, in quotes or not."""
BARE = re.compile(r'"\$\{?([A-Za-z_]\w*)\}?"')
"""A name in quotes and nothing else."""
HIDDEN = re.compile(r"\\(.)", re.S)
ESCAPES = {"n": "\n", "t": "\t"}
"""Letters behind a backslash in $'...' -> what they are there."""
UNREAD = "\ue000"
"""Stands for a text that only a run of the script knows: by itself, an argument of its call."""
DOUBTED = UNREAD + "\ue001"
"""The same, set under a condition that is not known."""
PRINTED = UNREAD + "\ue002"
"""The same, of a command or another script: it may hold any arguments."""
NO_TEXT = dict.fromkeys(map(ord, DOUBTED + PRINTED))
ELSEWHERE = "--arguments-from-elsewhere"
"""Stands for arguments of which not even the names are known."""
CHANGE = re.compile(r"//?([\w.-]+)/?([\w.-]*)")
"""Of a text that stands for a name: `//old/new` at each place, `/old/new` at the first."""
REDIRECTED = re.compile(r"\d?(?:>>?|<+)(.*)")
FLAG = re.compile(r"--?([A-Za-z][\w-]*)")
NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNED = re.compile(r"([A-Za-z_]\w*)(\+?)=", re.ASCII)
PART_SET = re.compile(r"([A-Za-z_]\w*)\[[^]]*\]\+?=", re.ASCII)
"""One element of an array is set."""
DEFAULTED = re.compile(r'"?\$\{([A-Za-z_]\w*):?=', re.ASCII)
"""A name that gets its default here, unless it has a text."""
LOOPS = ("for", "while", "until")
CHANGED = re.compile(r"([A-Za-z_]\w*) *(?:[-+*/%]?=(?!=)|\+\+|--)", re.ASCII)
"""A name that a sum changes."""
ORDER = {
    "-gt": operator.gt,
    "-ge": operator.ge,
    "-lt": operator.lt,
    "-le": operator.le,
}
"""Comparisons of numbers."""
MACHINES = re.compile(
    r"activate|bashrc|profile|conda|set_?vars|set_?env|modules|^(/etc|/opt|/usr)/"
)
"""What another script is called that sets up a machine, not a run."""
SLURM = {
    "SLURM_NNODES": ("nodes", "N"),
    "SLURM_JOB_NUM_NODES": ("nodes", "N"),
    "SLURM_NTASKS": ("ntasks", "n"),
    "SLURM_NTASKS_PER_NODE": ("ntasks-per-node",),
    "SLURM_GPUS_PER_NODE": ("gpus-per-node",),
    "SLURM_GPUS_ON_NODE": ("gpus-per-node", "gres"),
}
"""Name that Slurm sets -> the directives that say its number (sbatch's manual)."""
SHELLS = ("bash", "sh", "zsh")
SILENT = ("export", "local", "readonly", "declare", "typeset")
MOST_NUMBER = 10**15
"""No number that a script works out is as large."""


@dataclass
class Shell:
    """What a script has set so far, and the commands it starts."""

    names: dict[str, list[str]] = field(default_factory=dict)
    """Name -> its words (an array), or its one text."""
    commands: list[list[str]] = field(default_factory=list)
    directives: list[str] = field(default_factory=list)
    """Words after #SBATCH."""
    size: int = 0
    """Letters and words filled in so far."""
    doubtful: set[str] = field(default_factory=set)
    """Flags that stand under a condition which is not known, hyphens as underscores."""
    arguments: list[str] | None = None
    """What the script is called with; None: only who calls it knows."""
    functions: int = 0
    """Functions in each other that are being read: their arguments are those of their calls."""
    turns: list[set[str]] = field(default_factory=list)
    """Names that each of the loops in each other, which are read once, has set so far: anew in
    every turn, not from what they were in the last one."""
    sourced: bool = False
    """Another script was read into it, which may have set what nobody here sets."""
    asks: bool = False
    """It uses an argument that is not known."""
    status: bool | None = True
    """Whether what came before `&&`, `||` or `then` was true; None: that is not known."""
    ran: bool = False
    """It was a command, whose status only a run knows; it is taken to succeed."""
    testing: bool = False
    """A `[[` is open, whose parts `&&` and `||` join."""

    def text(self, name: str) -> str:
        """The text of a name; empty if it was never set."""
        return " ".join(self.filled_in(self.names.get(name, ())))

    def argument(self, number: int) -> list[str]:
        """The words of a positional argument, from 1 on; `UNREAD` where it is not known."""
        if not number:
            return [UNREAD]
        if self.arguments is None or self.functions:
            self.asks |= not self.functions
            return [UNREAD]
        return self.filled_in(self.arguments[number - 1 : number])

    def shift(self, by: str) -> None:
        """The arguments without the first ones."""
        if self.arguments is not None and by.isdecimal():
            self.arguments = self.arguments[int(by) :]
        else:
            self.arguments = None

    def filled_in(self, words: Iterable[str]) -> list[str]:
        """Words that stand for a name.  BadInput where they grow beyond any script: names that
        double each other, or one that is filled in over and over.
        """
        filled_words = [*words]
        self.size += len(filled_words) + sum(map(len, filled_words))
        if self.size > LARGEST:
            raise BadInput(
                f"the names of the script stand for more than {LARGEST:,} letters"
            )
        return filled_words


def read_script(text: str) -> Shell:
    """The names and commands of a script.  Raises BadInput for what no shell reads."""
    shell = Shell()
    for line in text.splitlines():
        if line.startswith("#SBATCH"):
            shell.directives += (
                line.removeprefix("#SBATCH").split("#")[0].split()
            )
    shell.names |= slurm_names(shell.directives)
    _run(shell, list(_all_tokens(text)))
    return shell


def number_of(words: Sequence[str], names: Sequence[str]) -> int | None:
    """The value of the first of these flags that has a whole number."""
    for name in names:
        for i, word in enumerate(words):
            flag, equals, value = word.partition("=")
            if re.fullmatch(rf"--?{re.escape(name)}", flag):
                text = (
                    value
                    if equals
                    else words[i + 1]
                    if i + 1 < len(words)
                    else ""
                )
                text = text.rpartition(":")[2]
                if text.isdecimal() and int(text):
                    return int(text)
    return None


def slurm_names(directives: Sequence[str]) -> dict[str, list[str]]:
    """What Slurm sets where a script runs, of what its directives ask for."""
    asked = {
        name: number_of(directives, flags) for name, flags in SLURM.items()
    }
    nodes, each = asked["SLURM_NNODES"], asked["SLURM_NTASKS_PER_NODE"]
    if nodes and each:
        asked["SLURM_NTASKS"] = nodes * each
    return {name: [str(n)] for name, n in asked.items() if n}


def called_with(arguments: Iterable[str]) -> str:
    """The line that states what a script is called with."""
    return f"set -- {shlex.join(arguments)}\n"


def live(text: str) -> tuple[str, list[bool]]:
    """(the text with spaces for its comments and documents, which characters are in quotes)."""
    made = [*text]
    quoted = [False] * len(text)
    for kind, start, stop in _pieces(text):
        if kind == "quoted":
            quoted[start:stop] = [True] * (stop - start)
        elif kind == "unread":
            made[start:stop] = [
                c if c == "\n" else " " for c in text[start:stop]
            ]
    return "".join(made), quoted


def _pieces(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, from, to) of all the text: a part of a word (in quotes or not), an operator, the
    bracket that opens an array, what no statement holds (unread), and what parts words (between).
    """
    i = first = 0  # of the word that is being read
    begun = False  # something of that word was read
    while i < len(text):
        match = PIECE.match(text, i)
        assert match
        kind, stop = str(match.lastgroup), match.end()
        if kind == "open":
            raise _not_closed(text[stop - 1], text, i)
        if kind == "nested":
            kind, stop = "word", _bracket(text, i + 1)
        elif kind == "document":
            kind, stop = "unread", _after_document(text, i)
        elif kind == "comment":
            kind, stop = ("word", i + 1) if begun else ("unread", stop)
        elif text[i] == "(" and (begun or kind == "operator"):
            # only here the word itself is asked for: at each piece a long one would be copied
            name = text[first:i].replace("\\\n", "")
            kind = "array" if ASSIGNED.fullmatch(name) else "operator"
            stop = i + 1
        elif kind == "sum":
            kind = "word"
        yield kind, i, stop
        begun = kind in ("word", "quoted") or (begun and kind == "joined")
        if kind not in ("word", "quoted", "joined"):
            first = stop
        i = stop


@lru_cache(maxsize=2)
def _all_tokens(text: str) -> tuple[str, ...]:
    """The tokens of a text that several readers ask for, one after another."""
    return tuple(_tokens(text))


def _tokens(text: str) -> Iterator[str]:
    """Words as they are written, quotes and all, and operators."""
    word = ""
    for kind, start, stop in _pieces(text):
        piece = text[start:stop]
        if kind in ("word", "quoted"):
            word += piece
        elif kind == "array":
            yield word + piece
            word = ""
        elif kind != "joined":
            if word:
                yield word
            word = ""
            if kind == "operator":
                yield piece
    if word:
        yield word


def _bracket(text: str, start: int) -> int:
    """The place after the bracket that closes the one at `start`."""
    depth = 0
    for i in range(start, len(text)):
        depth += (text[i] in "({") - (text[i] in ")}")
        if not depth:
            return i + 1
    raise _not_closed("bracket", text, start)


def _not_closed(what: str, text: str, start: int) -> BadInput:
    """The sentence for what opens and does not close."""
    opened = text[start : start + SHOWN].partition("\n")[0]
    return BadInput(
        f"a {what} of the script is not closed; it opens here: {opened}"
    )


SHOWN = 60
"""Characters of a script that a sentence shows."""


def _after_document(text: str, start: int) -> int:
    """The place after a here document; what is in it is not read."""
    match = re.compile(r"<<-?\s*(['\"]?)([\w.]+)\1").match(text, start)
    if not match:
        return start + 2
    line = text.find("\n", match.end())
    stop = re.compile(rf"^[ \t]*{re.escape(match[2])}[ \t]*$", re.M).search(
        text, max(line, match.end())
    )
    return stop.end() if stop else len(text)


@dataclass
class Branch:
    """An open `if`, `case` or group of commands in braces."""

    word: str
    runs: bool
    """What is read now is carried out."""
    done: bool = False
    """One branch was carried out, or none can be."""
    unknown: bool = False
    """Which one is, only a run knows."""


JOINED = ("&&", "||")


def _run(shell: Shell, tokens: list[str]) -> None:
    """Go through the statements, keeping track of conditions."""
    taken: list[Branch] = []
    statement: list[str] = []
    before, defined, after = "", False, ""
    for token in [*tokens, "\n"]:
        defined |= (before, token) == ("(", ")") or token == "function"
        before = token
        if token == "{" and (defined or shell.functions):
            shell.functions, defined = shell.functions + 1, False
        elif token == "}" and shell.functions:
            shell.functions -= 1
        if token in OPERATORS and not (
            statement and statement[0].endswith("=(")
        ):
            _statement(shell, statement, taken, after)
            if statement or token in JOINED:
                after = token if token in JOINED else ""
            statement = []
        elif token == ")" and statement:
            if _carried_out(shell, taken, after):
                _assign_array(shell, statement, _unknown(shell, taken, after))
            statement, after = [], ""
        elif token.endswith("=(") and statement:
            # `then NAME=(`, not `declare -a NAME=(`
            if statement[0] not in SILENT:
                _statement(shell, statement, taken, after)
                after = ""
            statement = [token]
        elif token != "\n":
            statement.append(token)


def _open(shell: Shell, word: str, taken: list[Branch], after: str) -> None:
    """Begin an `if`, a `case` or a group."""
    runs = _carried_out(shell, taken, after)
    unknown = runs and (word == "case" or _unknown(shell, taken, after))
    taken.append(Branch(word, runs, done=not runs, unknown=unknown))
    if len(taken) > MOST_OPEN:
        raise BadInput(
            f"the script has more than {MOST_OPEN} conditions in each other"
        )


def _runs(shell: Shell, after: str) -> bool | None:
    """Is what stands after `&&` or `||` carried out? None: only a run knows."""
    if after == "&&":
        return True if shell.ran else shell.status
    if after == "||" and (shell.ran or shell.status is None):
        return None
    return not (after and shell.status)


def _carried_out(shell: Shell, taken: list[Branch], after: str) -> bool:
    """May a statement be carried out, in all branches that are open?"""
    return all(b.runs for b in taken) and _runs(shell, after) is not False


def _unknown(shell: Shell, taken: list[Branch], after: str) -> bool:
    """Does only a run know whether that statement is carried out?"""
    return any(b.unknown for b in taken) or _runs(shell, after) is None


def _statement(
    shell: Shell, words: list[str], taken: list[Branch], after: str
) -> None:
    """One simple command, or a part of a condition.  after: what joins it to the one before."""
    at, negated = 0, False
    while at < len(words):
        first = words[at]
        if first in ("if", "case", "{"):
            _open(shell, first, taken, after)
        elif first == "elif":
            if not taken:
                raise BadInput("the script has an elif without an if")
            taken[-1].runs = not taken[-1].done
        elif first == "then" and taken:
            branch = taken[-1]
            holds = None if shell.ran else shell.status
            branch.unknown |= branch.runs and holds is None
            branch.done |= branch.runs and holds is True
            branch.runs &= holds is not False
        elif first == "else" and taken:
            taken[-1].runs, taken[-1].done = not taken[-1].done, True
        elif first in ("fi", "esac") and taken:
            taken.pop()
        elif first == "}":
            if taken and taken[-1].word == "{":
                taken.pop()
        elif first == "!":
            negated = not negated
        elif first not in ("then", "do"):
            break
        if first in ("case", "fi", "esac"):
            return
        at += 1
        after = "" if first != "!" else after
    words = words[at:]
    if not words:
        return
    inside = shell.testing and bool(after)
    tests = inside or _tests(shell, words)
    shell.testing = "]]" not in words and (inside or words[0] == "[[")
    if not _carried_out(shell, taken, after):
        return
    unknown = _unknown(shell, taken, after)
    if tests:
        holds = _holds(shell, words)
        shell.status = None if holds is None else holds is not negated
        shell.status = None if _runs(shell, after) is None else shell.status
    else:
        _command(shell, words, unknown)
        shell.status = True
    shell.ran = not tests and not ASSIGNED.match(words[-1])


def _tests(shell: Shell, words: list[str]) -> bool:
    """Is it a condition on texts or numbers, or a name that is true or false?"""
    first = words[0]
    if first in ("[", "[[", "test", "true", "false") or first.startswith("(("):
        return True
    alone = len(words) == 1 and first.startswith(("$", '"$'))
    return alone and "".join(filled(shell, first, one=True)) in TRUTHS


TRUTHS = {"true": True, "false": False}


def _command(shell: Shell, words: list[str], doubtful: bool) -> None:
    """Set names, or keep a command with its words filled in.

    doubtful: whether it runs is not known.
    """
    if words[0] in LOOPS:
        shell.arguments = None  # each turn may shift them
        shell.turns.append(set())
    elif words[0] == "done" and shell.turns:
        shell.turns.pop()
    _unread(shell, _names_set(words))
    if words[0] in ("source", ".") and len(words) > 1:
        other = "".join(filled(shell, words[1], one=True))
        shell.sourced |= not MACHINES.search(other)
    if words[0] == "shift":
        shell.shift("" if doubtful else "".join(words[1:]) or "1")
    if words[:2] == ["set", "--"]:
        said = [w for word in words[2:] for w in filled(shell, word)]
        shell.arguments = None if doubtful else said
    if words[0] in SILENT:
        words = [w for w in words[1:] if not w.startswith("-")]
    elif words[0] == ":":
        named = ((DEFAULTED.match(w), w) for w in words[1:])
        words = [f"{match[1]}={w}" for match, w in named if match]
    at = 0
    while at < len(words) and (match := ASSIGNED.match(words[at])):
        name = match[1]
        more = match[2]
        value = words[at][match.end() :]
        text = " ".join(filled(shell, value, one=True))
        grows = bool(more) or re.search(rf"\b{name}\b", value) is not None
        again = grows and any(name not in turn for turn in shell.turns[-1:])
        if shell.turns and not grows:
            shell.turns[-1].add(name)
        if doubtful or again:
            _doubt(shell, [text])
            text = "" if more else DOUBTED
        shell.names[name] = [shell.text(name) + text] if more else [text]
        at += 1
    if at < len(words):
        plain = _not_redirected(words[at:])
        made = [w for word in plain for w in filled(shell, word)]
        anew = made and made[0] == "eval"
        for one in _evaluated(shell, made[1:]) if anew else [made]:
            if command := readable(one):
                shell.commands.append(_run_by_shells(shell, command))


def _names_set(words: Sequence[str]) -> list[str]:
    """Names that a command other than an assignment sets."""
    match words:
        case ["for", name, *_] | ["printf", "-v", name, *_]:
            return [name]
        case ["read" | "mapfile" | "readarray", *names]:
            return [*names]
        case ["let", *sums]:
            return CHANGED.findall(" ".join(sums))
        case [word, *_] if part := PART_SET.match(word):
            return [part[1]]
    return []


def _unread(shell: Shell, names: Iterable[str]) -> None:
    """Only a run knows what these names stand for."""
    shell.names |= {n: [PRINTED] for n in names if NAME.fullmatch(n)}


def _evaluated(shell: Shell, words: list[str]) -> list[list[str]]:
    """The commands that `eval` reads anew: quotes within them are the shell's. What is no whole
    text (a quote that an unknown value closes) is taken as it stands.
    """
    try:
        tokens = [*_tokens(" ".join(words))]
    except BadInput:
        return [words]
    parts = itertools.groupby(tokens, lambda token: token in OPERATORS)
    return [
        [w for token in part for w in filled(shell, token)]
        for between, part in parts
        if not between
    ]


def _run_by_shells(shell: Shell, command: list[str]) -> list[str]:
    """The command, with what another shell is given to run (`bash -c '$LAUNCHER $CMD'`) filled in
    by that one: the names that the script exports.
    """
    made = [*command]
    for i, (name, flag) in enumerate(itertools.pairwise(command[:-1])):
        runs = flag.startswith("-") and flag.endswith("c")
        if name.rpartition("/")[2] in SHELLS and runs and "$" in made[i + 2]:
            made[i + 2] = " ".join(readable(filled(shell, made[i + 2])))
    return made


def _assign_array(shell: Shell, words: list[str], doubtful: bool) -> None:
    """NAME=( words ) or NAME+=( words ).  doubtful: whether it runs is not known."""
    if match := ASSIGNED.match(words[0]):
        values = [w for word in words[1:] for w in filled(shell, word)]
        if doubtful:
            _doubt(shell, values)
            values = [] if match[2] else [DOUBTED]
        shell.names[match[1]] = (
            [*shell.filled_in(shell.names.get(match[1], ())), *values]
            if match[2]
            else values
        )


def _doubt(shell: Shell, texts: list[str]) -> None:
    """Keep which flags may be set."""
    names = [flag for text in texts for flag in FLAG.findall(text)]
    shell.doubtful |= {name.replace("-", "_") for name in names}


def _not_redirected(words: list[str]) -> list[str]:
    """The words without `> FILE`, `2> FILE` and their like."""
    kept: list[str] = []
    skip = False
    for word in words:
        match = REDIRECTED.fullmatch(word)
        if not (match or skip):
            kept.append(word)
        skip = bool(match and not match[1])
    return kept


def readable(words: list[str]) -> list[str]:
    """The words without what is not known: a flag keeps its name, a path its rest."""
    kept = []
    for before, word in itertools.pairwise(["", *words]):
        rest = word.translate(NO_TEXT)
        if UNREAD not in word:
            kept.append(word)
        elif " " in word:
            kept.append(" ".join(readable(word.split())))
        elif word.startswith("-") and "=" in word:
            kept.append(word.partition("=")[0])
        elif rest in ("-", "--") or (
            PRINTED in word and not rest and not before.startswith("-")
        ):
            kept.append(ELSEWHERE)
        elif rest and not rest.isdecimal():
            kept.append(rest)
    return kept


def _holds(shell: Shell, words: list[str]) -> bool | None:
    """Is the condition true? None: only a run knows, as of files and of what was never set."""
    if words[0].startswith("(("):
        _unread(shell, CHANGED.findall(words[0]))
        value = _number(shell, words[0][2:-2])
        return None if value in ("", UNREAD) else value != "0"
    if len(words) == 1:  # without brackets
        return TRUTHS.get("".join(filled(shell, words[0], one=True)))
    raw = [w for w in words if w not in ("[", "[[", "]", "]]", "test")]
    negated = raw[:1] == ["!"]
    holds = _compared(shell, raw[negated:])
    return None if holds is None else holds is not negated


def _compared(shell: Shell, raw: list[str]) -> bool | None:
    """A condition of up to three words, as they are written; longer ones (`-a`, `-o`) are not
    followed.
    """
    if len(raw) > 3:
        return None
    plain = [" ".join(filled(shell, w, one=True)) for w in raw]
    match plain:  # whoever reads it gives no arguments
        case ["-n" | "-z", text] if text in ("", UNREAD):
            return plain[0] == "-z"
    if any(UNREAD in text for text in plain):
        return None
    match plain:
        case ["-n" | "-z", _]:
            return plain[0] == "-n"
        case [text]:
            return text != ""
        case [a, "==" | "=" | "-eq" | "!=" | "-ne" as sign, b]:
            fits = fnmatchcase(a, b) and not {*raw[2]} & {*"'\""}
            return (a == b or fits) is not (sign in ("!=", "-ne"))
        case [a, sign, b] if sign in ORDER and a.isdecimal() and b.isdecimal():
            return bool(ORDER[sign](int(a), int(b)))
    return None


def filled(
    shell: Shell, word: str, one: bool = False, depth: int = 0
) -> list[str]:
    """The words that one word stands for; one: as a single text, as in an assignment."""
    if depth > DEEPEST:
        raise BadInput("the variables of the script stand for each other")
    name = BARE.fullmatch(word)
    if name and not one and name[1] not in shell.names:
        return [UNREAD]  # it is set where the script is called
    out, text, i = [], "", 0
    quoted = started = none = False
    while i < len(word):
        c = word[i]
        if c != '"' and not quoted and (hidden := QUOTED.match(word, i)):
            text += hidden["plain"] or HIDDEN.sub(
                lambda m: ESCAPES.get(m[1], m[1]), hidden["escaped"] or ""
            )
            i = hidden.end()
            started = True
        elif c == '"':
            quoted = not quoted
            started = True
            i = i + 1
        elif c == "\\" and i + 1 < len(word):
            text += word[i + 1].strip("\n")  # a line that goes on
            i = i + 2
            started = True
        elif c == "`":
            i = word.find("`", i + 1) + 1 or len(word)
            text = text + PRINTED
            started = True
        elif c == "$":
            values, several, i = _value(shell, word, i, depth)
            if several and quoted and not one:
                values = [v for v in values if v]
                none = not values  # "$@" of nothing is no word
                if values:
                    out.append(text + values[0])
                    out += values[1:-1]
                    text = values[-1] if len(values) > 1 else out.pop()
            elif quoted or one:
                text += " ".join(values)
            else:
                parts = " ".join(values).split()
                if len(parts) > 1:
                    out += [text + parts[0], *parts[1:-1]]
                text = parts[-1] if len(parts) > 1 else text + "".join(parts)
            started = started or bool(text)
        else:
            # at once: a long word would be copied at each of its letters
            run = LETTERS.match(word, i)
            stop = run.end() if run else i + 1
            text = text + word[i:stop]
            i = stop
            started = True
    last = started and (text or quoted or not (out or none))
    return [*out, text] if last else out


def _value(
    shell: Shell, word: str, i: int, depth: int
) -> tuple[list[str], bool, int]:
    """(words of the variable at `i`, it is a whole array, the place after it)."""
    if word[i + 1 : i + 2] not in ("(", "{"):
        name = NAME.match(word, i + 1)
        stop = name.end() if name else i + 2
        return *_parameter(shell, word[i + 1 : stop], depth), stop
    stop = _bracket(word, i + 1)
    if word.startswith("$((", i):
        return [_number(shell, word[i + 3 : stop - 2])], False, stop
    if word.startswith("$(", i):  # what a command prints
        return [PRINTED], False, stop
    return *_parameter(shell, word[i + 2 : stop - 1], depth), stop


PARAMETER = re.compile(
    r"([A-Za-z_]\w*|\d+|[@*#]$)(\[[@*]\]|\[\d+\])?(?:(:?[-+=?])(.*))?", re.S
)
"""(name, index, what to do where it has a text or none, another text)."""


def _parameter(
    shell: Shell, inside: str, depth: int
) -> tuple[list[str], bool]:
    """(words that `$inside` or `${inside}` stands for, it is a whole array): NAME, NAME[@],
    NAME:-default, NAME:+other, NAME//old/new, or an argument; other changes of a text (`%`, `#`,
    parts) are not followed.
    """
    match = PARAMETER.match(inside)
    if not match:
        return [UNREAD], False
    name, index, how, other = match.groups()
    change = inside[match.end() :]
    known = None if shell.functions else shell.arguments
    if name in ("@", "*"):
        return shell.filled_in(known or ()), True
    if name == "#":  # whoever reads a script gives it no arguments
        return [str(len(known or ()))], False
    unset: list[str] = []
    if shell.sourced and not how and NAME.match(name):
        unset = [ELSEWHERE if index else PRINTED]
    values = (
        shell.argument(int(name))
        if name.isdecimal()
        else shell.filled_in(shell.names.get(name, unset))
    )
    if values == [UNREAD] and how and "?" not in how and not shell.functions:
        values = []  # whoever reads a script gives it no arguments
    if change and values:
        new = CHANGE.fullmatch(change)
        count = -1 if change.startswith("//") else 1
        values = [
            v.replace(new[1], new[2], count) if new else UNREAD for v in values
        ]
    if index in ("[@]", "[*]"):
        return values, True
    values = [UNREAD] if index else values[:1]
    # with a colon an empty text is none
    there = any(values) if how and ":" in how else bool(values)
    if how and "?" not in how and ("+" in how) == there:
        return filled(shell, other, one=True, depth=depth + 1), False
    return values, False


def _number(shell: Shell, text: str) -> str:
    """The value of a sum, product, ... of whole numbers; empty if it is none."""
    plain = " ".join(
        filled(shell, text.replace("$((", "(").replace("))", ")"), one=True)
    )
    plain = NAME.sub(lambda m: shell.text(m[0]) or UNREAD, plain)
    if UNREAD in plain:
        return UNREAD
    try:
        plain = plain[:200].strip().replace("/", "//")
        plain = plain.replace("&&", " and ").replace("||", " or ")
        value = worked_out(plain, {})
    except (ValueError, ZeroDivisionError, TypeError, KeyError):
        return ""
    whole = isinstance(value, int) and abs(value) < MOST_NUMBER
    return str(int(value)) if whole else ""

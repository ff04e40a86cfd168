"""Orderings in the sources of a room: where they stand, and the forms that are weaker.

An ordering is known by its file, the number in its comment, the access, and its place among those that share all three:
so a line that is added elsewhere changes nothing. `Ordering` names one; `Form` one of its weaker forms.
"""
import pathlib
import re
from dataclasses import dataclass

ROOMS = {
    "machine": "core/machine",
    "sync": "core/sync",
    "structures": "core/structures",
    "channel": "core/channel",
    "am": "core/am",
    "shm": "core/shm",
    "device": "mpi/fabric",
}
# The explorer's and loom's machines, and the list of all orderings: no algorithm's.
LEFT_OUT = {"core/machine/src/weaken.rs", "core/machine/src/checked.rs"}
# Of a load, of a store, of an update, of a fence.
WEAKER = {
    "load": {"SeqCst": ["Acquire", "Relaxed"], "Acquire": ["Relaxed"]},
    "store": {"SeqCst": ["Release", "Relaxed"], "Release": ["Relaxed"]},
    "update": {
        "SeqCst": ["AcqRel", "Acquire", "Release", "Relaxed"],
        "AcqRel": ["Acquire", "Release", "Relaxed"],
        "Acquire": ["Relaxed"],
        "Release": ["Relaxed"],
    },
    "fence": {"SeqCst": ["AcqRel", "none"], "AcqRel": ["Acquire", "Release", "none"], "Acquire": ["none"], "Release": ["none"]},
}
NAME = re.compile(r"(?<![\w:])(Ordering::)?(Acquire|Release|AcqRel|SeqCst)\b")
NUMBER = re.compile(r"\(([A-Z]*[0-9]+[a-z]?)(?:, *[A-Z]*[0-9]+[a-z]?)*\)")
PARTNER = re.compile(r"pairs with|fence|ordered|orders|partner|total order")


@dataclass(frozen=True)
class Place:
    """An ordering. `line` and `column` are those of the call, as the compiler names them."""

    file: str
    number: str
    access: str
    part: str
    order: str
    turn: int
    line: int
    column: int

    def key(self):
        return f"{self.file} ({self.number}) {self.access} {self.part} {self.turn} {self.order}"

    def kind(self):
        if "fence" in self.access:
            return "fence"
        if self.part == "failure" or re.search(r"load|spin|poll|until|wait", self.access):
            return "load"
        return "store" if re.search(r"^(store|put|clear)", self.access) else "update"

    def forms(self):
        if self.access in ("compiler_fence", "light_fence", "heavy_fence"):
            return ["none"]
        return WEAKER[self.kind()].get(self.order, ["Relaxed"])

    def weakening(self, to):
        return f"{self.file}:{self.line}:{self.column} {self.part} {self.order} {to}"


def blank(source):
    """The source with comments and texts as blanks of the same length; and the comments, by line."""
    out, comments, at, line = [], {}, 0, 1
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|b?r(#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'|\n|.', re.S
    )
    for match in pattern.finditer(source):
        text = match.group()
        if text == "\n":
            line += 1
            out.append(text)
        elif len(text) == 1:
            out.append(text)
        else:
            if text.startswith("//"):
                comments[line] = comments.get(line, "") + re.sub(r"^//[/!]?", "", text)
            out.append(re.sub(r"[^\n]", " ", text))
            line += text.count("\n")
    return "".join(out), comments


def opening(code, at):
    """The parenthesis in which `at` stands, or -1; braces and the ends of statements are borders."""
    depth = 0
    for here in range(at - 1, -1, -1):
        if code[here] in ")]}":
            depth += 1
        elif code[here] in "([{":
            if depth == 0:
                return here if code[here] == "(" else -1
            depth -= 1
        elif code[here] == ";" and depth == 0:
            return -1
    return -1


def callee(code, paren):
    """The name of the function that is called, and where the compiler sees the call: at a method's name, or at the beginning of a
    function's path. `None`: the parenthesis is no call's."""
    end = len(code[:paren].rstrip())
    if code[:end].endswith(">"):
        depth, end = 1, end - 1
        while depth:
            end -= 1
            depth += {">": 1, "<": -1}.get(code[end], 0)
        end = len(code[:end].removesuffix("::"))
    match = re.search(r"((?:\w+(?:::<[^;(){}]*?>)?::)*)(\w+)$", code[max(0, end - 200) : end])
    if not match or match.group(2) in {"if", "while", "match", "return", "in", "let", "else", "move"}:
        return None
    start = end - len(match.group())
    is_method = code[:start].rstrip().endswith(".")
    name = match.group(2)
    return name, end - len(name) if is_method else start


def argument(code, paren, at):
    """The number of the argument, from 0, and the number of all."""
    depth, number, before = 0, 0, 0
    for here in range(paren + 1, len(code)):
        if here == at:
            before = number
        if code[here] in "([{":
            depth += 1
        elif code[here] in ")]}":
            if depth == 0:
                return before, number + bool(code[paren + 1 : here].strip() and not code[:here].rstrip().endswith(","))
            depth -= 1
        elif code[here] == "," and depth == 0:
            number += 1
    return before, number


def tests(code):
    """Where the modules of tests begin: what follows is theirs."""
    match = re.search(r"#\[cfg\((?:all\()?test[^\n]*\n(?: *#\[[^\n]*\n)* *(?:pub(?:\([a-z ]+\))? )?mod \w+ \{", code)
    return match.start() if match else len(code)


def numbers(comments, line):
    """The number of the ordering on this line: of the comment on it, else of the last one on the eight lines before."""
    if line in comments and NUMBER.search(comments[line]):
        return NUMBER.search(comments[line]).group(1)
    for last in range(line - 1, max(0, line - 9), -1):
        if last not in comments:
            continue
        first = last
        while first - 1 in comments:
            first -= 1
        text = " ".join(" ".join(comments[n] for n in range(first, last + 1)).split())
        found = NUMBER.search(text)
        if found and PARTNER.search(text):
            return found.group(1)
    return "-"


def places(root, file):
    """All orderings of a file that are not Relaxed."""
    source = (root / file).read_text()
    code, comments = blank(source)
    code = code[: tests(code)]
    uses = " ".join(re.findall(r"\buse [^;]*;", code))
    found, turns = [], {}
    for match in NAME.finditer(code):
        qualified, order = match.groups()
        at, after = match.start(), code[match.end() :].lstrip()
        if not qualified and not re.search(rf"Ordering::(?:\{{[^}}]*\b{order}\b|{order}\b|\*)", uses):
            continue
        before = code[:at].rstrip()
        line_of = code[code.rfind("\n", 0, at) + 1 : code.find("\n", at)]
        statement = code[max(code.rfind(";", 0, at), code.rfind("}", 0, at)) + 1 : at].strip()
        is_pattern = after.startswith(("=>", "|")) or before.endswith("|") or re.search(r"matches!\([^()]*$", before[-200:])
        is_pattern = is_pattern or re.search(r"Ordering::[A-Za-z]+ *(=>|\|)", line_of)
        if is_pattern or before.endswith(("==", "!=", "::")) or statement.startswith(("use ", "pub use ", "pub(crate) use ")):
            continue
        paren, call = opening(code, at), None
        inner = at
        while paren >= 0:
            call = callee(code, paren)
            if call:
                break
            inner, paren = paren, opening(code, paren)
        line = code.count("\n", 0, at) + 1
        name, start, part = "-", at, "whole"
        if call:
            name, start = call
            number, count = argument(code, paren, inner)
            exchanges = re.search(r"compare_exchange|compare_and|fetch_update", name)
            rest = re.split(r"[()]", code[at:])[0]
            if exchanges and len(re.findall(r"\b(?:Acquire|Release|AcqRel|SeqCst|Relaxed)\b", code[paren : at + len(rest)])) > 1:
                part = "failure" if number == count - 1 else "success"
        label = numbers(comments, line)
        first = (file, label, name, part, order)
        turns[first] = turns.get(first, 0) + 1
        start_line = code.count("\n", 0, start) + 1
        found.append(Place(file, label, name, part, order, turns[first], start_line, start - code.rfind("\n", 0, start)))
    return found


def room(root, name):
    """All orderings of a room, by key."""
    folder = ROOMS[name]
    files = sorted(str(path.relative_to(root)) for path in (root / folder / "src").rglob("*.rs"))
    files = [f for f in files if f not in LEFT_OUT and not re.search(r"/(tests|model_tests|[a-z_]*_tests)\.rs$|/tests/", f)]
    return {place.key(): place for file in files for place in places(root, file)}

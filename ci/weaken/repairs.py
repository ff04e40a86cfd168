"""The steps of repairs: each store and update in the functions that put things in order after a death.

A step is known by its file, the function, the access, and its place among those that share all three.
"""
import re
from dataclasses import dataclass

from orderings import blank, callee, tests

# By room: files, the functions in them that repair (all: None), and the subjects that come there.
REPAIRS = {
    "sync": {
        "core/sync/src/locks/robust.rs": (["enter", "enter_inconsistent", "make_consistent"], ["lock/robust*"]),
        "core/sync/src/locks/robust/releasing.rs": (None, ["lock/robust*"]),
        "core/sync/src/locks/robust/waiting.rs": (None, ["lock/robust*"]),
        "core/sync/src/robust/barrier.rs": (["end", "turn_over", "note_told", "note_join", "join_for", "renew"], ["barrier/robust", "barrier/leaving", "barrier/renewed"]),
        "core/sync/src/robust/condvar.rs": (["begin", "leave", "lost_one", "notify"], ["condvar*"]),
        "core/sync/src/robust/once.rs": (["begin", "give_up"], ["once"]),
        "core/sync/src/robust/readers_writer/reading.rs": (["read_slowly", "insist", "take_place", "leave_slowly"], ["readers-writer/*"]),
        "core/sync/src/robust/readers_writer/writing.rs": (["close_gate", "begin_changes", "await_place", "open_gate", "let_in"], ["readers-writer/*"]),
        "core/sync/src/robust/semaphore.rs": (["settled", "operate", "my_place", "take_back"], ["semaphore*"]),
        "core/sync/src/queues/many_to_many/repair.rs": (None, ["transfer/*"]),
        "core/sync/src/queues/ring_per_sender/joining.rs": (["take_ring", "note_used"], ["transfer/per-sender-*"]),
        "core/sync/src/queues/positions.rs": (["drop_dead"], ["broadcast/*"]),
    },
    "structures": {
        "core/structures/src/dcas/bershad.rs": (["take_over", "roll", "unlock"], ["repair/dcas-bershad", "repair/dcas-bershad-successor"]),
        "core/structures/src/dcas/guerraoui.rs": (["decide", "settle", "settle_word"], ["repair/dcas-guerraoui", "repair/stack-guerraoui"]),
        "core/structures/src/dcas/harris.rs": (["decide", "settle", "resolve"], ["repair/dcas-harris", "repair/stack-harris", "repair/late-help-harris"]),
        "core/structures/src/nonblocking/audit.rs": (["audit"], ["repair/stack-*", "repair/fifo-*", "repair/list-*", "repair/pool*"]),
    },
    "channel": {
        "core/channel/src/claim/towpath.rs": (["resolve_head", "resolve_late", "heal", "close_hole"], ["channel/watched-towpath", "channel/damaged-progress-towpath"]),
        "core/channel/src/claim/lock_free.rs": (["resolve_head", "free_if_dead", "give_up"], ["channel/watched-lock-free"]),
        "core/channel/src/claim/locked.rs": (["resolve_head", "heal", "free_nonsense", "sweep_packets", "free_packet"], ["channel/watched-ticket", "channel/watched-posix", "channel/damaged-packet-*"]),
        "core/channel/src/queue.rs": (["free_block", "show_consumed"], ["channel/watched-*", "channel/damaged-*", "channel/handled"]),
        "core/channel/src/queue/receiver.rs": (["heal", "sweep"], ["channel/watched-*", "channel/damaged-*", "channel/handled"]),
        "core/channel/src/census.rs": (["write_intent", "stop"], ["channel/announced", "channel/watched-*"]),
    },
    "am": {
        "core/am/src/directory.rs": (["begin_opening", "bury", "acquit", "show_generation", "finish_opening", "reset", "give_up_entry"], ["endpoint/*"]),
        "core/am/src/upkeep.rs": (["copy_outstanding"], ["endpoint/*"]),
    },
}
ACCESS = re.compile(r"(?<!fn )\b(store|swap|compare_exchange|fetch_add|fetch_or|fetch_and)\s*\(")
FUNCTION = re.compile(r"\bfn (\w+)")


@dataclass(frozen=True)
class Step:
    """A store or update of a repair; `line` and `column` as the compiler names them."""

    file: str
    function: str
    access: str
    turn: int
    line: int
    column: int

    def key(self, folder):
        return f"{self.file.removeprefix(folder + '/')} {self.function} {self.access}" + f" #{self.turn}" * (self.turn > 1)

    def left_out(self):
        return f"{self.file}:{self.line}:{self.column} whole Relaxed none"


def body(code, start):
    """Where the body of the function that is declared at `start` begins and ends."""
    begin = code.find("{", start)
    end = code.find(";", start)
    if begin < 0 or 0 <= end < begin:
        return None
    depth = 0
    for at in range(begin, len(code)):
        depth += {"{": 1, "}": -1}.get(code[at], 0)
        if depth == 0:
            return begin, at
    return None


def steps(root, file, functions):
    """All steps in these functions of a file."""
    code, _ = blank((root / file).read_text())
    code = code[: tests(code)]
    found, turns = [], {}
    for declared in FUNCTION.finditer(code):
        name, span = declared.group(1), body(code, declared.end())
        if span is None or not (functions is None or name in functions):
            continue
        for match in ACCESS.finditer(code, *span):
            access, at = callee(code, match.end() - 1)
            turns[name, access] = turns.get((name, access), 0) + 1
            line = code.count("\n", 0, at) + 1
            found.append(Step(file, name, access, turns[name, access], line, at - code.rfind("\n", 0, at)))
    return found


def room(root, name):
    """All steps of a room, with the subjects that come there."""
    return [(step, subjects) for file, (functions, subjects) in REPAIRS[name].items() for step in steps(root, file, functions)]

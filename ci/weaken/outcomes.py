"""Outcomes of trials, kept in a file beside each room's code: what the files of the two tools have in common."""
import sys

# Written by hand, with a reason.
REASONED = ("needless", "argued")


def entries(path):
    """What was tried, and what is said of it on a line below; of a file that need not be there."""
    at = None
    for line in path.read_text().splitlines() if path.exists() else []:
        if line.startswith("    ") and at:
            yield at, line.strip()
        elif line and not line.startswith("#"):
            at = line


def write(path, text):
    """Replaces the file at once."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)


def mistakes(file, outcomes, kinds):
    """Outcomes, by what was tried, that are none or lack their reason."""
    for key, outcome in outcomes.items():
        words = outcome.split()
        if words[0] not in kinds:
            yield f"{file}: {key}: no outcome: {outcome}"
        elif words[0] in REASONED and len(words) < 4:
            yield f"{file}: {key}: {words[0]} without a reason"


def check(rooms, hint):
    """Ends the program if the files and the code differ."""
    if bad := [line for room in rooms for line in room.differences()]:
        print("\n".join(bad))
        sys.exit(hint)


def table(rooms, kinds):
    """Prints how many outcomes of each kind the rooms have."""
    print(f"{'room':<12}" + "".join(f"{kind:>11}" for kind in kinds))
    for room in rooms:
        said = [outcome.split()[0] for outcome in room.all_outcomes()]
        print(f"{room.name:<12}" + "".join(f"{said.count(kind):>11}" for kind in kinds))

"""The command ``towpath``, if the wheel has it; the MPI provider lies beside it."""

from __future__ import annotations

import os
import sys


def path() -> str:
    """The command's file. Raises FileNotFoundError if this wheel was built without it."""
    found = os.path.join(os.path.dirname(__file__), "bin", "towpath")
    if not os.path.exists(found):
        raise FileNotFoundError(
            "this package was built without the command towpath: build it by "
            "scripts/build-python.sh --with-command, or the command alone by cargo"
        )
    return found


def main() -> None:
    """Runs the command in the place of this process."""
    try:
        found = path()
    except FileNotFoundError as error:
        sys.exit(str(error))
    os.execv(found, ["towpath", *sys.argv[1:]])

"""Hands a command to the native placer."""

from __future__ import annotations

import os
import sys


def become(verb: str) -> None:
    """Replace this process by the native program, with the original arguments, because the parser removes `--`."""
    from meshmark.native import start_error
    from meshmark.place.native import find_place

    sys.stdout.flush()
    program = find_place()
    try:
        os.execv(program, ["meshmark-place", verb, *sys.argv[2:]])
    except OSError as error:
        raise start_error(program, error) from error

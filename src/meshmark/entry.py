"""Entry point of the command `meshmark`.

Placement commands immediately execute the native program in the same process, because every job pays for their start-up
time; `meshmark.cli` handles all others. This module imports only modules that Python has already loaded.
"""

# Importing pathlib would take as long as everything else here.
# ruff: noqa: PTH100, PTH110, PTH118, PTH120
import os
import sys

VERBS = frozenset({"run", "slots", "migrate", "translate"})
EXPECTATIONS = frozenset({"--cpus", "--nodes", "--each", "--interval"})  # with one of them, `placed` only verifies it


def native_argv(argv: list[str]) -> list[str] | None:
    """Return the arguments for `meshmark-place`; None if Python must handle the command."""
    if argv[:1] == ["run"] and len(argv) > 1 and not argv[1].startswith("-"):
        return ["run", "--", *argv[1:]]  # a command without options of Meshmark
    if argv and argv[0] in VERBS:
        return argv
    if argv[:1] == ["placed"] and any(argument.partition("=")[0] in EXPECTATIONS for argument in argv):
        return argv
    if argv and argv[0] == "place" and not any(map(_needs_python, ["", *argv], argv)):
        return ["plan", *argv[1:]]
    return None


def _needs_python(previous: str, argument: str) -> bool:
    """Return whether an argument needs Python: modelled machines, measured distances, drawings and help."""
    option, equals, value = argument.partition("=")
    if not equals:
        option, value = previous, argument
    if option == "--topology":
        return value != "host" and ":" not in value and not os.path.exists(value)
    return argument in ("-h", "--help") or option in ("--on", "--svg") or (option, value) == ("--matrix", "measured")


def main() -> None:
    """Run the installed command."""
    argv = native_argv(sys.argv[1:])
    if argv is not None:
        package = os.path.dirname(os.path.abspath(__file__))
        override = os.environ.get("MESHMARK_PLACE")
        build = os.path.join(os.path.dirname(os.path.dirname(package)), "build", "release", "bin")
        for program in (
            [override] if override else [os.path.join(f, "meshmark-place") for f in (package + "/bin", build)]
        ):
            try:
                os.execv(program, ["meshmark-place", *argv])
            except OSError:
                continue  # `command_line` below reports the missing program
    import signal

    # Ctrl-C during the imports below must not print a traceback; `end_by_signals` takes over afterwards.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from meshmark.cli.app import main as command_line

    command_line()

"""Where the command `meshmark` starts. What places programs becomes the native program at once, in the same process:
its start-up counts in every job. All else is for `meshmark.cli`. Imports nothing that Python has not loaded already.
"""

# pathlib alone would take as long as all the rest.
# ruff: noqa: PTH100, PTH110, PTH118, PTH120
import os
import sys

VERBS = frozenset({"run", "slots", "placed", "migrate", "translate"})


def native_words(words: list[str]) -> list[str] | None:
    """A command line as meshmark-place takes it; None where Python has to answer."""
    if words and words[0] in VERBS:
        return words
    if words and words[0] == "place" and not any(map(_needs_python, ["", *words], words)):
        return ["plan", *words[1:]]
    return None


def _needs_python(before: str, word: str) -> bool:
    """Described machines and measured distances come from Python, and so does the help that tells of them."""
    option, equals, value = word.partition("=")
    if not equals:
        option, value = before, word
    if option == "--topology":
        return value != "host" and ":" not in value and not os.path.exists(value)
    return word in ("-h", "--help") or option in ("--on", "--svg") or (option, value) == ("--matrix", "measured")


def main() -> None:
    """Entry point of the installed command."""
    words = native_words(sys.argv[1:])
    if words is not None:
        package = os.path.dirname(os.path.abspath(__file__))
        named = os.environ.get("MESHMARK_PLACE")
        built = os.path.join(os.path.dirname(os.path.dirname(package)), "build", "release", "bin")
        for program in [named] if named else [os.path.join(f, "meshmark-place") for f in (package + "/bin", built)]:
            try:
                os.execv(program, ["meshmark-place", *words])
            except OSError:
                continue  # the command line below says what is missing
    import signal

    # What is loaded now takes a moment, in which Ctrl-C would end in a traceback. `end_by_signals` takes over.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from meshmark.cli.app import main as command_line

    command_line()

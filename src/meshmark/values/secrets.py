"""Keeps the values of variables whose names look like secrets out of everything that is written.

`hide_text` and `hide_value` replace a value by a placeholder, `…`, and keep it in this process. Plans, labels, records
and journals therefore contain the placeholder. `reveal_text` and `reveal_value` return the value where a program is
started. A later process, such as a resumed run, takes the value from the environment variable of that name.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from meshmark.errors import UsageError
from meshmark.native import call_library

HIDDEN: Final = "…"  # in place of a value; further values of the same variable are …2, …3 and so on

_NAME: Final = re.compile(r"(?<![A-Za-z0-9_])([A-Za-z_][A-Za-z0-9_-]*)=(?!=)")  # a variable or an option
# The value extends to the next part of a setting or else to the end of the text. A text is one word of a command line,
# and whatever follows the first space in it may belong to the value.
_VALUE: Final = re.compile(r".*?(?=\ \+\ |,[A-Z_][A-Z0-9_]*=|\Z)", re.DOTALL)
_PLACEHOLDER: Final = re.compile(rf"{_NAME.pattern}({HIDDEN}\d*)")
_OPTION: Final = re.compile(r"--?([A-Za-z][A-Za-z0-9_-]*)")  # an option, whose value may be the next word
_NO_SECRET: Final = re.compile(r"-.*|[0-9.]*", re.DOTALL)  # a further option, or a number as in `--sort-key 2`

_REFERENCE: Final = re.compile(r"\{\w+\}|\$\w+|\$\{\w+\}")  # a dimension or a variable, not a secret itself
_UNMISTAKABLE: Final = 6  # shortest value, in characters, that is replaced wherever it occurs

_values_by_name: dict[str, list[str]] = {}


@functools.cache
def is_secret(name: str) -> bool:
    """Return true if a variable or an option of this name usually holds a secret.

    >>> [name for name in ("HF_TOKEN", "MAX_TOKENS", "DB_PASSWORD", "OMP_NUM_THREADS", "KEY", "PWD") if is_secret(name)]
    ['HF_TOKEN', 'DB_PASSWORD']
    """
    text = name.encode(errors="surrogatepass")
    return bool(call_library("meshmark_is_secret", name, len(text))["value"])


def mask_text(text: str) -> str:
    """Return a word of a command line with the values of secrets replaced, also where a hidden value stands alone.

    >>> mask_text("HF_TOKEN=hf_abc,OMP_NUM_THREADS=4")
    'HF_TOKEN=…,OMP_NUM_THREADS=4'
    >>> mask_text("--api-key=sk-abc")
    '--api-key=…'
    """
    for value in sorted((v for values in _values_by_name.values() for v in values), key=len, reverse=True):
        if len(value) >= _UNMISTAKABLE:
            text = text.replace(value, HIDDEN)
    return _replaced(text, lambda name, value: HIDDEN)


def mask_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the values of secrets replaced.

    >>> mask_words(["serve", "--api-key", "sk-abc", "--port", "80"])
    ['serve', '--api-key', '…', '--port', '80']
    """
    return _replaced_words(words, mask_text, lambda name, value: HIDDEN)


def mask_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with the values of secrets replaced."""
    return {name: HIDDEN if is_secret(name) else mask_text(value) for name, value in variables.items()}


def hide_value(name: str, value: str) -> str:
    """Return the placeholder of a secret's value, which this process keeps; any other value as it is."""
    if not is_secret(name) or _is_placeholder(value) or _REFERENCE.fullmatch(value):
        return value
    values = _values_by_name.setdefault(name, [])
    if value not in values:
        values.append(value)
    position = values.index(value) + 1
    return HIDDEN if position == 1 else f"{HIDDEN}{position}"


def hide_text(text: str) -> str:
    """Return a text with the value of each secret replaced by its placeholder.

    >>> reveal_text(hide_text("HF_TOKEN=hf_abc")) == "HF_TOKEN=hf_abc"
    True
    """
    return _replaced(text, hide_value)


def hide_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the value of each secret replaced by its placeholder.

    >>> reveal_words(hide_words(["--api-key", "sk-abc"]))
    ['--api-key', 'sk-abc']
    """
    return _replaced_words(words, hide_text, hide_value)


def hide_command(command: Any) -> Any:
    """Return a command, which is a list of words or one text, with the value of each secret replaced."""
    if isinstance(command, list | tuple):
        hidden_words = iter(hide_words(word for word in command if isinstance(word, str)))
        return [next(hidden_words) if isinstance(word, str) else word for word in command]  # others are refused later
    try:
        words = shlex.split(command)
    except (ValueError, AttributeError):  # not a command line; it is refused later
        return command
    new_words = hide_words(words)
    return command if new_words == words else shlex.join(new_words)


def hide_values(variables: Any, *, is_list: bool = False) -> Any:
    """Return variables with one value or a list of them, with the values of secrets replaced; other data as it is.

    Args:
        variables: Values by the name of a variable.
        is_list: A text is a list of values with commas, as in dimensions.
    """
    if not isinstance(variables, Mapping):
        return variables

    def hide_variable(name: str, value: Any) -> Any:
        if is_list and isinstance(value, str):
            value = [item.strip() for item in value.split(",")]
        if isinstance(value, list | tuple):
            return [hide_item(name, item) for item in value]
        return hide_item(name, value)

    def hide_item(name: str, value: Any) -> Any:
        is_value = isinstance(value, str | int | float) and not isinstance(value, bool)
        return hide_value(name, str(value)) if is_value else value

    return {name: hide_variable(name, value) if is_secret(name) else value for name, value in variables.items()}


def reveal_value(name: str, text: str) -> str:
    """Return the value of a placeholder; any other text as it is.

    Raises:
        UsageError: The value was given to an earlier process, and no environment variable of this name has it.
    """
    if not is_secret(name) or not _is_placeholder(text):
        return text
    position = int(text.removeprefix(HIDDEN) or "1")
    values = _values_by_name.get(name, [])
    if position <= len(values):
        return values[position - 1]
    variable = name.upper().replace("-", "_") if "-" in name else name  # shells set no variable with a hyphen
    if position == 1 and variable in os.environ:
        return os.environ[variable]
    hint = f"set the environment variable {variable}" if position == 1 else "start a new run"
    raise UsageError(f"--resume: the value of {name} was not recorded, since it looks like a secret", hint)


def reveal_text(text: str) -> str:
    """Return a text with the value of each placeholder.

    Raises:
        UsageError: See `reveal_value`.
    """
    return _PLACEHOLDER.sub(lambda match: f"{match[1]}={reveal_value(match[1], match[2])}", text)


def reveal_words(words: Iterable[str]) -> list[str]:
    """Return the words of a command line with the value of each placeholder.

    Raises:
        UsageError: See `reveal_value`.
    """
    return _replaced_words(words, reveal_text, reveal_value)


def reveal_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with the value of each placeholder.

    Raises:
        UsageError: See `reveal_value`.
    """
    return {name: reveal_text(reveal_value(name, value)) for name, value in variables.items()}


def _replaced(text: str, replacement: Callable[[str, str], str]) -> str:
    """Return a text with the value of each secret replaced by what `replacement` returns for its name and value."""
    parts, end = list[str](), 0
    for match in _NAME.finditer(text):
        if match.start() < end or not is_secret(match[1]):
            continue
        value = _VALUE.match(text, match.end())
        if value is not None and value[0]:
            parts += [text[end : match.end()], replacement(match[1], value[0])]
            end = value.end()
    return "".join([*parts, text[end:]])


def _replaced_words(
    words: Iterable[str], in_word: Callable[[str], str], replacement: Callable[[str, str], str]
) -> list[str]:
    """Return words as `in_word` returns them; `replacement` replaces the value of a secret that follows its option."""
    new_words = list[str]()
    name = ""  # of the option in the previous word, if its value is a secret
    for word in words:
        is_value = bool(name) and not _NO_SECRET.fullmatch(word)
        new_words.append(replacement(name, word) if is_value else in_word(word))
        option = _OPTION.fullmatch(word)
        name = option[1] if option is not None and is_secret(option[1]) else ""
    return new_words


def _is_placeholder(text: str) -> bool:
    return text.startswith(HIDDEN) and (not text[1:] or text[1:].isdecimal())

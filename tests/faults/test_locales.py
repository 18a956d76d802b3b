"""Five locales: text is read and written as UTF-8 in each, and what a terminal cannot display is replaced."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.cli import meshmark

LOCALES = ("en_US.ISO-8859-1", "ja_JP.EUC-JP", "ru_RU.KOI8-R", "POSIX", "C.UTF-8")
# Otherwise Python would replace the POSIX locale by UTF-8.
PLAIN = {"PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
COMMANDS = (
    "list machines",
    "list metrics",
    "machine show",
    "model list",
    "model show gs1280-4 --origins",
    "model validate A01 --no-page",
    "measure latency --on gs1280-4 --footprint 1MiB",
    "model measure hot_spot gs1280-4",
    "measure clock --budget 300ms",
    "survey --spec spec.toml --out run --json",
    "report run",
    "store list",
    "store export --format csv --out out.csv",
    "store export",
    "store import out.csv",
    "load kernels",
    "load run scenario.toml --out load",
    "load show load",
    "record --on gs1280-4 --frames 3 --out night.parquet",
    "replay night.parquet",
    "plot night.parquet --out plots",
    "machine capture here.tar.gz",
    "machine show here.tar.gz",
    "place --topology host --policy pack --jobs 1",
    "measure --help",
    "load run missing-ü.toml",
)


def locale_folder(folder: Path, name: str) -> dict[str, str]:
    """Return the variables of the locale, which is compiled if the system can do so and lacks it."""
    if name in ("POSIX", "C.UTF-8"):
        return {"LC_ALL": name}
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales").is_dir():
        pytest.skip("no localedef, or no sources of locales (Debian: locales)")
    language, _, charmap = name.partition(".")
    subprocess.run(
        ["localedef", "--no-archive", "-i", language, "-f", charmap, str(folder / name)],
        capture_output=True,
        check=False,
    )  # it warns, and its status says so
    assert (folder / name).is_dir()
    return {"LC_ALL": name, "LOCPATH": str(folder)}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOCALES)
def test_every_command_works_in_every_locale(name: str, tmp_path: Path) -> None:
    env = {**os.environ, **PLAIN, **locale_folder(tmp_path, name), "XDG_DATA_HOME": str(tmp_path / "data")}
    (tmp_path / "spec.toml").write_text(
        'name = "s"\nsummary = "größer – 大"\n[[step]]\ninstrument = "clock"\noptions = { budget = "300ms" }\n',
        encoding="utf-8",
    )
    (tmp_path / "scenario.toml").write_text(
        '[scenario]\nname = "größer"\n[[program]]\nname = "a"\ncommand = ["echo", "ü"]\n', encoding="utf-8"
    )
    query = [sys.executable, "-c", "import sys; print(sys.stdout.encoding)"]
    encoding = subprocess.run(query, env=env, capture_output=True, text=True, check=True).stdout.strip()
    for command in COMMANDS:
        completed = meshmark(*command.split(), env=env, cwd=tmp_path, text=False, timeout_s=300)
        message = completed.stderr.decode(encoding)  # the terminal can display the output
        if not command.startswith("store export"):
            completed.stdout.decode(encoding)
        assert "Unicode" not in message and "codec" not in message and "Traceback" not in message, (command, message)
        assert completed.returncode == (2 if "missing" in command else 0), (command, message)
    (tmp_path / "out.csv").read_text(encoding="utf-8")
    (tmp_path / "run" / "report.html").read_text(encoding="utf-8")

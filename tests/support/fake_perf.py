"""A simulated program `perf` that profiles nothing: it runs its command and prints a recorded report."""

from __future__ import annotations

import os
from pathlib import Path

# The report in the format of perf 6.1, shortened.
REPORT = """\
# To display the perf.data header info, please use --header/--header-only options.
#
#
# Total Lost Samples: 3
#
# Samples: 1K of event 'cpu-clock:ppp'
# Event count (approx.): 1000000000
#
# Overhead\t     Samples\tCommand \tShared Object       \tSymbol
 60.00% \t 600         \tstencil \tstencil             \t[.] sweep(double*, int)
 15.00% \t 150         \tworker 1\tstencil             \t[.] sweep(double*, int)
 20.00% \t 200         \tstencil \t[kernel.kallsyms]   \t[k] clear_page_erms
  2.00% \t 20          \tstencil \tlibm.so.6           \t[.] 0x00007f4774a56240
  3.00% \t 30          \tstencil \tlibm.so.6           \t[.] 0x00007f4774336a80
  1.00% \t 10          \tmeshmark-place\tmeshmark-place    \t[.] main
  0.10% \t 1           \tperf-exec\t[kernel.kallsyms]   \t[k] do_mmap
"""

_SCRIPT = """\
#!/bin/sh
case "$1" in
--version) echo perf version 6.1.187; exit;;
report) cat "$(dirname "$0")/report.txt"; exit;;
esac
[ -z "$FAKE_PERF_REFUSES" ] || { printf 'Error:\\n%s\\nmore\\n' "$FAKE_PERF_REFUSES" >&2; exit 255; }
echo "$*" > "$(dirname "$0")/recorded.txt"
while [ "$1" != -- ]; do [ "$1" != -o ] || out=$2; shift; done
shift
echo data > "$out"
exec env UNDER_PERF=1 "$@"
"""


def install(folder: Path, report: str = REPORT) -> str:
    """Write the program into a folder, and return a PATH that begins with it.

    `recorded.txt` in the folder contains the words of the last `perf record`.
    """
    folder.mkdir(exist_ok=True)
    (folder / "report.txt").write_text(report)
    (folder / "perf").write_text(_SCRIPT)
    (folder / "perf").chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"

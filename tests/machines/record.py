"""Records the captures in this folder again, each in a guest with the topology of its name.

    .venv/bin/python tests/machines/record.py [NAME …]

A tree and the view of hwloc are recorded in the guest (tests/guest/record-tree, half a minute each without hardware
virtualisation) and packed as `meshmark machine capture` does.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from meshmark.machine.capture import capture

HERE = Path(__file__).resolve().parent
GUEST = HERE.parent / "guest"

# Files that record-tree leaves out and that facts need.
MORE = """
{offline}
{tree} "$1" && cd "$1" || exit 1
for f in firmware/dmi/tables/DMI class/dmi/id/bios_vendor class/dmi/id/bios_version class/dmi/id/bios_date \
         class/dmi/id/sys_vendor class/dmi/id/product_name; do
  mkdir -p "sys/$(dirname $f)" && cat "/sys/$f" >"sys/$f"
done
mkdir -p sys/devices/system/cpu/vulnerabilities sys/devices/system/clocksource/clocksource0
cp /sys/devices/system/cpu/vulnerabilities/* sys/devices/system/cpu/vulnerabilities/
for f in current_clocksource available_clocksource; do
  cat /sys/devices/system/clocksource/clocksource0/$f >sys/devices/system/clocksource/clocksource0/$f
done
for f in loadavg cmdline self/status self/cgroup sys/kernel/osrelease sys/kernel/hostname sys/kernel/numa_balancing \
         sys/kernel/sched_rt_runtime_us sys/kernel/sched_rt_period_us sys/kernel/perf_event_paranoid \
         sys/vm/swappiness sys/vm/zone_reclaim_mode sys/vm/overcommit_memory; do
  mkdir -p "proc/$(dirname $f)" && cat "/proc/$f" >"proc/$f"
done
exit 0
"""


def record(name: str, preset: str, offline: list[int]) -> Path:
    """Boot `preset`, record it, pack it as NAME.tar.xz, and return the path."""
    with tempfile.TemporaryDirectory(prefix="record-", dir=Path.home()) as folder:
        script = Path(folder) / "record.sh"
        down = "\n".join(f"echo 0 >/sys/devices/system/cpu/cpu{c}/online" for c in offline)
        script.write_text(MORE.format(tree=GUEST / "record-tree", offline=down))
        tree = Path(folder) / name
        subprocess.run(
            [str(GUEST / "numa-guest"), "-t", preset, "--hmat", "--share", folder, "--", "sh", str(script), str(tree)],
            check=True,
        )
        out = HERE / f"{name}.tar.xz"
        capture(out, tree, label="recorded-in-guest", xml=tree.with_name(f"{name}.xml").read_bytes())
        return out


def main() -> None:
    machines = tomllib.loads((HERE / "index.toml").read_text())["machine"]
    for machine in machines:
        if machine["label"] == "recorded-in-guest" and sys.argv[1:] in ([], [machine["name"]]):
            out = record(machine["name"], machine["preset"], machine.get("offline", []))
            print(f"{out.name}: {out.stat().st_size} B")


if __name__ == "__main__":
    main()

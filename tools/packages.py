"""Builds dist/meshmark-native*.deb and .rpm from the bundle, as packaging/meshmark-native.toml describes them.

It needs dpkg-deb and rpmbuild (Debian: packages dpkg and rpm), dist/meshmark-native-VERSION-ARCH.tar.xz (`make bundle`)
and build/man/native (`make man`). Two builds of a commit give the same files.

The packager nfpm (2.43) is not used: it writes absolute paths into the archive of an .rpm, so
`rpm2cpio FILE | cpio -id`, and linters that do the same, overwrite files of the system.

example: .venv/bin/python tools/packages.py --arch aarch64
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
DESCRIPTION: Final = ROOT / "packaging" / "meshmark-native.toml"
DEBIAN_NAMES: Final = {"x86_64": "amd64", "aarch64": "arm64"}  # of architectures


def version() -> str:
    """Return the version in pyproject.toml."""
    text: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return text


def sources(pattern: str, bundle: Path, pages: Path) -> list[Path]:
    """Return the files that a pattern of the description names, which must exist."""
    kind, _, rest = pattern.partition("/")
    folder = {"bundle": bundle, "man": pages}.get(kind, ROOT)
    paths = sorted(folder.glob(pattern if folder == ROOT else rest))
    if not paths:
        raise FileNotFoundError(f"{pattern}: no such file")
    return paths


def fill(root: Path, files: dict[str, list[str]], bundle: Path, pages: Path) -> None:
    """Copy the files of a package to its root."""
    for folder, patterns in files.items():
        target = root / folder
        target.mkdir(parents=True, exist_ok=True)
        for source in (path for pattern in patterns for path in sources(pattern, bundle, pages)):
            if source.suffix == ".1":
                compress(target / f"{source.name}.gz", source.read_bytes())
            else:
                shutil.copyfile(source, target / source.name)
                (target / source.name).chmod(0o755 if folder == "usr/bin" else 0o644)


def compress(path: Path, content: bytes) -> None:
    path.write_bytes(gzip.compress(content, mtime=0))
    path.chmod(0o644)


def build_deb(d: dict[str, Any], root: Path, arch: str, seconds: int) -> Path:
    """Build the .deb of a root."""
    name, release = d["name"], f"{version()}-{d['release']}"
    date = time.strftime("%a, %d %b %Y %H:%M:%S +0000", time.gmtime(seconds))
    entry = (
        f"{name} ({release}) unstable; urgency=medium\n\n"
        f"  * Package of version {version()}. CHANGELOG.md lists its changes.\n\n -- {d['maintainer']}  {date}\n"
    )
    compress(root / "usr" / "share" / "doc" / name / "changelog.Debian.gz", entry.encode())
    upstream = root / "usr" / "share" / "doc" / name / "CHANGELOG.md"
    compress(upstream.with_name("changelog.gz"), upstream.read_bytes())
    upstream.unlink()
    size_kib = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    lines = [f" {line}" if line else " ." for line in d["description"].strip().splitlines()]
    control = root / "DEBIAN" / "control"
    control.parent.mkdir()
    control.write_text(
        f"Package: {name}\nVersion: {release}\nArchitecture: {DEBIAN_NAMES[arch]}\nMaintainer: {d['maintainer']}\n"
        f"Installed-Size: {size_kib}\nSection: {d['section']}\nPriority: optional\nHomepage: {d['homepage']}\n"
        f"Description: {d['summary']}\n" + "\n".join(lines) + "\n",
        encoding="utf-8",
    )
    sums = sorted(path.relative_to(root).as_posix() for path in (root / "usr").rglob("*") if path.is_file())
    with (root / "DEBIAN" / "md5sums").open("w", encoding="utf-8") as out:
        subprocess.run(["md5sum", *sums], cwd=root, stdout=out, check=True)
    path = ROOT / "dist" / f"{name}_{release}_{DEBIAN_NAMES[arch]}.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Zxz", "-z9", "--build", root, path], check=True)
    return path


def build_rpm(d: dict[str, Any], root: Path, arch: str, seconds: int) -> Path:
    """Build the .rpm of a root."""
    date = time.strftime("%a %b %d %Y", time.gmtime(seconds))
    kinds = {"usr/share/doc": "%doc ", "usr/share/man": "%doc ", "usr/share/licenses": "%license "}
    paths = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    folders = sorted({p.parent for p in paths if p.parent.name == d["name"]})
    files = [f"%dir /{folder}" for folder in folders]
    files += [kinds.get("/".join(p.parts[:3]), "") + f"/{p.as_posix()}" for p in paths]
    spec = root.with_name("package.spec")
    spec.write_text(
        f"Name: {d['name']}\nVersion: {version()}\nRelease: {d['release']}\n"
        f"Summary: {d['summary'][:1].upper()}{d['summary'][1:]}\n"
        f"License: {d['license']}\nURL: {d['homepage']}\nPackager: {d['maintainer']}\nGroup: {d['group']}\n"
        f"%description\n{d['description'].strip()}\n"
        f"%install\ncp -a {root}/. %{{buildroot}}/\n"
        "%files\n%defattr(-,root,root)\n" + "\n".join(files) + "\n"
        f"%changelog\n* {date} {d['maintainer']} - {version()}-{d['release']}\n- Package of version {version()}.\n",
        encoding="utf-8",
    )
    work = root.with_name("rpmbuild")
    macros = {
        "_topdir": work,
        "_rpmdir": ROOT / "dist",
        "_rpmfilename": "%{name}-%{version}-%{release}.%{arch}.rpm",
        "_buildhost": "localhost",
        "_binary_payload": "w9.xzdio",
        "use_source_date_epoch_as_buildtime": 1,
        "clamp_mtime_to_source_date_epoch": 1,
        "debug_package": "%{nil}",
        "__os_install_post": "%{nil}",  # the programs stay as they are in the bundle
        "_build_id_links": "none",
    }
    defines = [word for macro, value in macros.items() for word in ("--define", f"{macro} {value}")]
    subprocess.run(["rpmbuild", "--quiet", "-bb", "--target", arch, *defines, spec], check=True)
    return ROOT / "dist" / f"{d['name']}-{version()}-{d['release']}.{arch}.rpm"


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the packages of the static programs.")
    parser.add_argument("--arch", choices=DEBIAN_NAMES, default=platform.machine(), help="of the bundle [this machine]")
    arch = parser.parse_args().arch
    d = tomllib.loads(DESCRIPTION.read_text(encoding="utf-8"))
    seconds = int(subprocess.check_output(["git", "-C", ROOT, "log", "-1", "--format=%ct"]))
    os.environ["SOURCE_DATE_EPOCH"] = str(seconds)
    os.umask(0o022)
    work = ROOT / "build" / "packages"
    shutil.rmtree(work, ignore_errors=True)
    bundle = work / "bundle"
    bundle.mkdir(parents=True)
    archive = ROOT / "dist" / f"{d['name']}-{version()}-{arch}.tar.xz"
    try:
        subprocess.run(["tar", "xf", archive, "-C", bundle, "--strip-components=1"], check=True)
        for kind, build in (("deb", build_deb), ("rpm", build_rpm)):
            root = work / kind / "root"
            for files in (d["files"], d[kind]["files"]):
                fill(root, files, bundle, ROOT / "build" / "man" / "native" / "man1")
            for path in root.rglob("*"):
                os.utime(path, (seconds, seconds))
            print(build(d, root, arch, seconds).relative_to(ROOT))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"packages: error: {error}", file=sys.stderr)
        print("hint: make bundle man; apt-get install dpkg rpm", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

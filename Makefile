# Everything from a clean clone: `make run` characterises this machine, `make test` tests the project.
# Variables: PYTHON=python3.12, JOBS=2 (compile jobs), ARGS='…' (more words for `make run`),
# SURVEY='--spec FILE' (another survey than the quick one), APPS=yes (the applications of native/apps, too; APPS=no ends
# that).

JOBS ?= $(shell nproc)
SURVEY ?= --quick
BIN := .venv/bin
version = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)
export PYTHON JOBS APPS
own_cpp = $(wildcard $(foreach depth,native native/* native/*/* native/*/*/* tests/native tests/native/* bench,$(depth)/*.cpp $(depth)/*.hpp))
python_code = src tests bench docs/generate.py docs/man.py docs/transcripts.py docs/notebooks.py docs/gallery.py docs/synthetic_fleet.py docs/versions.py tools/describe_applications.py tools/packages.py tools/tidy.py

.PHONY: help setup setup-run setup-tests run test test-native test-python test-fast test-unit test-unit-cli test-unit-first test-unit-second test-unit-third test-faults test-system test-guests test-ranks test-slow check check-all fuzz format fix lint prose types layers \
        sanitize tidy tsan mutants bench-peers transcripts notebooks docs gallery man wheel bundle packages cross release-check lock clean distclean
.DEFAULT_GOAL := help

help: ## say what can be made
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 16

setup: ## install what is missing, make .venv, build the native half
	@tools/setup.sh

setup-tests:
	@tools/setup.sh --tests

setup-run:
	@tools/setup.sh --run

run: setup-run ## characterise this machine (meshmark survey --quick)
	$(BIN)/meshmark survey $(SURVEY) $(ARGS)

test: setup-tests test-native test-python ## every test: C++, Python, guests, browser

test-fast: setup-tests ## while you work: the tests that start no other process, two minutes
	MESHMARK_FAST=1 $(MAKE) --no-print-directory -j 2 --output-sync=target $(unit_tests) PYTEST_ARGS="-r fE $(PYTEST_ARGS)"

test-native:
	ctest --test-dir build/release -j 2 --output-on-failure --no-tests=error

# All at once, since they mostly wait for processes; the longest first. Slow tests compute, and have time limits.
SUITES ?= 8
test-python:
	$(MAKE) --no-print-directory -j $(SUITES) --output-sync=target test-system test-ranks test-guests $(unit_tests) test-faults

MARKED ?= not slow
# The unit tests in parts that take about as long, so that both processors are busy to the end.
unit_tests := test-unit-cli test-unit-first test-unit-second test-unit-third
unit_first := $(addprefix tests/unit/,compare doctor fleet interface load)
unit_second := $(addprefix tests/unit/,applications experiments machine measure model place)
pytest = $(BIN)/python -m pytest -q -m "$(MARKED)"

test-unit: $(unit_tests)

test-unit-cli:
	$(pytest) tests/unit/cli $(PYTEST_ARGS)

test-unit-first:
	$(pytest) $(unit_first) $(PYTEST_ARGS)

test-unit-second:
	$(pytest) $(unit_second) $(PYTEST_ARGS)

test-unit-third:
	$(pytest) $(filter-out tests/unit/cli $(unit_first) $(unit_second),$(wildcard tests/unit/[a-z]*)) tests/bench tests/terminal $(PYTEST_ARGS)

test-faults:
	$(pytest) tests/faults $(PYTEST_ARGS)

test-system:
	$(pytest) tests/system $(PYTEST_ARGS)

test-guests:
	$(pytest) tests/guest $(PYTEST_ARGS)

test-ranks: # browsers last: they keep an event loop
	$(pytest) tests/ranks tests/browser $(PYTEST_ARGS)

test-slow:
	$(MAKE) --no-print-directory MARKED="slow and not alone" SUITES=3 test-python
	$(BIN)/python -m pytest -q -m alone tests/system $(PYTEST_ARGS)
	$(BIN)/python -m pytest -q -m slow tests/sanitized $(PYTEST_ARGS)

check: setup-tests ## format, lint, prose, types, layers, all tests, address and undefined-behaviour sanitizers
	$(MAKE) --no-print-directory format lint prose types layers
	tools/build.sh check all mm_tests
	$(MAKE) --no-print-directory test-native test-python sanitize

format:
	$(if $(own_cpp),$(BIN)/clang-format --dry-run --Werror $(own_cpp))
	$(BIN)/ruff format --check $(python_code)

fix: ## format the code, and mend what ruff can
	$(if $(own_cpp),$(BIN)/clang-format -i $(own_cpp))
	-$(BIN)/ruff check -q --fix $(python_code)
	$(BIN)/ruff format -q $(python_code)

lint:
	$(BIN)/ruff check $(python_code)

prose: ## spelling, phrases and docstrings; `make test` checks them, too
	$(BIN)/python -m pytest -q tests/unit/project/test_prose.py $(PYTEST_ARGS)

types:
	$(BIN)/mypy --strict

layers:
	$(BIN)/lint-imports

sanitize:
	tools/build.sh asan all mm_tests
	ctest --test-dir build/asan -j 2 --output-on-failure --no-tests=error
	$(BIN)/python -m pytest -q -m "not slow" tests/sanitized $(PYTEST_ARGS)

check-all: export APPS := yes
check-all: check test-slow fuzz tsan tidy ## also clang-tidy on changed sources (ALL=1: on all), the thread sanitizer, slow tests, new random inputs

fuzz: setup-tests ## random inputs that were not tried before
	MESHMARK_FUZZ=1 $(BIN)/python -m pytest -q -m hypothesis tests $(PYTEST_ARGS)

tidy:
	tools/build.sh check
	mkdir -p build/check/openmp  # clang has no omp.h of its own, and GCC's has an attribute in a form that is GCC's alone
	rm -f build/check/openmp/omp.h  # it was a link once
	sed 's/__malloc__ (omp_free)/__malloc__/' "$$(c++ -print-file-name=include/omp.h)" > build/check/openmp/omp.h
	$(BIN)/python tools/tidy.py build/check $(JOBS) $(if $(ALL),--all) $(filter-out bench/%,$(filter %.cpp,$(own_cpp)))

tsan:
	tools/build.sh tsan all mm_tests
	ctest --test-dir build/tsan -j 2 --output-on-failure --no-tests=error

mutants: setup-tests ## plant faults in the core, and count those that the tests catch (two hours); ARGS, NATIVE_ARGS=--help
	$(BIN)/uv pip install -q --target build/mutants/lib -r requirements/mutants.txt
	$(BIN)/python tests/mutation/python.py $(ARGS); python=$$?; $(BIN)/python tests/mutation/native.py $(NATIVE_ARGS) && exit $$python

bench-peers: export APPS := $(if $(NPB),yes,$(APPS))
bench-peers: setup ## measure the peers and ours side by side; more words in ARGS, OSU=FOLDER, NPB=FOLDER; see bench/README.md
	$(BIN)/python bench/peers.py $(ARGS)
	$(BIN)/python bench/comm.py bare $(if $(OSU),peers --osu $(OSU)) $(filter --record,$(ARGS))
	$(if $(NPB),$(BIN)/python bench/npb.py $(NPB) $(filter --record,$(ARGS)))

transcripts: setup ## run the commands of the documentation, write what they print into it; pages in PAGES
	$(BIN)/python docs/transcripts.py $(PAGES)

notebooks: setup ## run the notebooks of the documentation, write their outputs into them; notebooks in PAGES
	$(BIN)/python docs/notebooks.py $(PAGES)

docs: setup ## build/docs/index.html: the site of this version, beside those that are in build/docs
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -q -W --keep-going -b html -d build/doctrees docs build/docs/$(version)
	$(BIN)/python docs/versions.py

gallery: setup ## build/gallery/index.html: reports of this host, three models and a synthetic fleet; reports in PARTS
	$(BIN)/python docs/gallery.py $(PARTS)

man: setup ## build/man: a manual page for every command and native program
	$(BIN)/python docs/man.py

wheel: setup ## dist/*.whl, which runs on every distribution with glibc 2.28 or newer
	tools/wheel.sh

packages: bundle man ## dist/meshmark-native*.deb and .rpm: the bundle and its manual pages; needs dpkg-deb and rpmbuild
	$(BIN)/python tools/packages.py $(ARGS)

cross: setup ## the same wheel and bundle for Arm, cross-compiled on Debian
	tools/wheel.sh aarch64
	tools/bundle.sh aarch64

release-check: wheel packages $(if $(shell command -v aarch64-linux-gnu-g++),cross) ## build wheel, bundle and packages, and try them on other distributions (as root)
	$(BIN)/python -m pytest -q tests/release $(PYTEST_ARGS)

bundle: setup ## dist/meshmark-native-*.tar.xz: static programs that need no Python
	tools/bundle.sh

lock: setup ## requirements/*.txt anew, from pyproject.toml; ARGS=--upgrade for newer versions
	tools/lock.sh $(ARGS)

clean: ## remove what was built
	rm -rf build

distclean: clean ## and the virtual environment
	rm -rf .venv

# Everything happens in .venv; Python 3.11 or newer and make are all that must be there.
PORT ?= 8000
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
RUN_STAMP := .venv/installed
DEV_STAMP := .venv/installed-dev
PIP := $(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --no-header --no-annotate pyproject.toml --extra server --extra otel

.PHONY: help install install-dev run test test-fast test-acceptance test-exhaustive bench screenshots wheel lint lock
.DEFAULT_GOAL := help

help: ## say what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

install: $(RUN_STAMP) ## a virtual environment in .venv, from requirements.lock

install-dev: $(DEV_STAMP) ## what tests and linters need as well

run: $(RUN_STAMP) ## the standalone demo, PORT=8000
	@$(BIN)/python manage.py standalone --demo --port $(PORT)

# The tests start Python some hundred times: without bytecode each start compiles everything anew.
unexport PYTHONDONTWRITEBYTECODE

# More than there are cores, for many tests wait; those that start the real processes wait the most.
WORKERS := $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 ))
PATIENT_WORKERS := $$(( $$(getconf _NPROCESSORS_ONLN) * 2 ))
FAST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --ignore tests/acceptance --ignore tests/bench
ACCEPTANCE := $(BIN)/python -m pytest --numprocesses $(PATIENT_WORKERS) --dist loadfile --no-loadscope-reorder tests/acceptance

test: test-fast test-acceptance ## every promise once

test-fast: $(DEV_STAMP) ## all but the tests that start the real processes
	$(FAST) -m "not exhaustive"

test-acceptance: $(DEV_STAMP) ## the tests that start the real processes
	$(ACCEPTANCE) -m "not exhaustive"

test-exhaustive: $(DEV_STAMP) ## every pair of transactions, every address, every phase; long outages
	$(FAST) -m exhaustive
	$(ACCEPTANCE) -m exhaustive

bench: $(DEV_STAMP) ## what it can do, as ratios; BENCH="heartbeats claim" for some
	$(BIN)/python -m tests.bench $(BENCH)

screenshots: $(DEV_STAMP) ## the pictures of the README anew, with a Chromium
	$(BIN)/python -m tests.screenshots

wheel: $(DEV_STAMP) ## what others install, in dist/
	$(BIN)/python -m hatchling build --target wheel

lint: $(DEV_STAMP) ## style, types, import rules, migrations, known vulnerabilities
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	DATABASE_POOL_SIZE=0 $(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(BIN)/python .ci/audit.py

lock: $(DEV_STAMP) ## write both lock files anew, from pyproject.toml
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock

# A virtual environment that was moved, or whose Python has gone, is made anew; one that works is kept.
WORKS := $(BIN)/python -c 'import pip' 2>/dev/null && \
	{ test ! -e .venv/created || test "$$(cat .venv/created)" = "$(CURDIR)"; }

.venv/created:
	@$(WORKS) || { \
		test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed; name it with PYTHON=/path/to/python3." >&2; exit 1; }; \
		echo "Making .venv with $$($(PYTHON) --version) …"; \
		$(PYTHON) -m venv --clear .venv; }
	@echo "$(CURDIR)" > $@

ifneq ($(shell $(WORKS) && echo yes),yes)
.PHONY: .venv/created
endif

$(RUN_STAMP): .venv/created requirements.lock
	@echo "Installing the locked packages into .venv (a minute) …"
	@$(PIP) --requirement requirements.lock
	@touch $@

$(DEV_STAMP): $(RUN_STAMP) requirements-dev.lock
	@echo "Installing the packages for tests and linters into .venv (a minute) …"
	@$(PIP) --requirement requirements-dev.lock
	@touch $@

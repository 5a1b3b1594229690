# All targets work in .venv. Only make and Python 3.11 or newer must be installed.
PORT ?= 8000
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

BIN := .venv/bin
RUN_STAMP := .venv/installed
DEV_STAMP := .venv/installed-dev
DOCS_STAMP := .venv/installed-docs
PIP := $(BIN)/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-strip-extras --no-emit-index-url --no-emit-find-links --no-header --no-annotate
PROJECT := pyproject.toml --all-extras

.PHONY: help install install-dev run test test-fast test-acceptance test-exhaustive coverage bench screenshots docs wheel lint lock
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' Makefile

install: $(RUN_STAMP) ## make a virtual environment in .venv from requirements.lock

install-dev: $(DEV_STAMP) ## also install what tests and linters need

run: $(RUN_STAMP) ## run the standalone demo, PORT=8000
	@$(BIN)/python manage.py standalone --demo --port $(PORT)

# The tests start Python some hundred times. Without bytecode each start would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

# More workers than cores, because many tests wait. Tests that start real processes wait the most.
WORKERS := $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 ))
PATIENT_WORKERS := $$(( $$(getconf _NPROCESSORS_ONLN) * 2 ))
FAST := $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --ignore tests/acceptance --ignore tests/bench
ACCEPTANCE := $(BIN)/python -m pytest --numprocesses $(PATIENT_WORKERS) --dist loadfile --no-loadscope-reorder tests/acceptance
# With SECOND_TRY=1, as in CI, tests that failed run once more, by themselves. 1 is pytest's status for failed tests.
AGAIN := { test $$? = 1 && test -n "$(SECOND_TRY)" && echo "Second try of what failed beside other tests:" && \
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -m "not exhaustive"; }

test: test-fast test-acceptance ## run all tests but the exhaustive ones

test-fast: $(DEV_STAMP) ## run the tests that start no real processes
	$(FAST) -m "not exhaustive" || $(AGAIN)

test-acceptance: $(DEV_STAMP) ## run the tests that start real processes
	$(ACCEPTANCE) -m "not exhaustive" || $(AGAIN)

test-exhaustive: $(DEV_STAMP) ## test all pairs of transactions, addresses and phases; long outages
	$(FAST) -m exhaustive
	$(ACCEPTANCE) -m exhaustive

coverage: $(DEV_STAMP) ## run the fast tests, and report the lines that none of them runs
	$(FAST) -m "not exhaustive" --cov --cov-report=term-missing:skip-covered

bench: $(DEV_STAMP) ## measure performance as ratios; BENCH="heartbeats claim" for some
	$(BIN)/python -m tests.bench $(BENCH)

screenshots: $(DEV_STAMP) ## take the README's pictures again, with Chromium
	$(BIN)/python -m tests.screenshots

docs: $(DOCS_STAMP) ## build the documentation as a site with search, in dist/docs
	$(BIN)/python .ci/docs.py

wheel: $(DEV_STAMP) ## build the wheel in dist/
	$(BIN)/python -m hatchling build --target wheel

lint: $(DEV_STAMP) ## check style, spelling, types, import rules, migrations, vulnerabilities
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	git ls-files -z | xargs -0 $(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports
	DATABASE_POOL_SIZE=0 $(BIN)/python -W ignore::RuntimeWarning manage.py makemigrations --check --dry-run
	$(BIN)/python .ci/audit.py

lock: $(DEV_STAMP) ## write the lock files again, from pyproject.toml
	$(COMPILE) $(PROJECT) --output-file requirements.lock
	$(COMPILE) $(PROJECT) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(COMPILE) --group docs --constraint requirements-dev.lock --output-file requirements-docs.lock

# A virtual environment is made again if it was moved or its Python has gone.
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

$(DOCS_STAMP): $(RUN_STAMP) requirements-docs.lock
	@echo "Installing the packages for the documentation into .venv …"
	@$(PIP) --requirement requirements-docs.lock
	@touch $@

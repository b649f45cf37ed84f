# What a user and a developer type; `make help` lists it. Everything is installed into .venv, nothing elsewhere.

PYTHON ?= python3
DATA ?=
DEMO ?= demo
PIP_ARGS ?=
WORKERS ?= 2

BIN := .venv/bin
# The pinned set needs Python 3.11; on 3.10 torch alone is pinned.
PINS = $(shell $(PYTHON) -c 'import sys; print("-c constraints.txt" if sys.version_info >= (3, 11) else "")') torch==2.13.0
# Threads that spin while they wait cost a factor of ten on busy cores, and tests run side by side.
QUIET_CORES := OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1

.DEFAULT_GOAL := help
.PHONY: help demo test browser test-slow test-faults lint bench clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 18

demo: .venv/demo.stamp  ## render data, train two methods on noisy triplets, write demo/report.html and a gallery to serve; DATA=folder for your own
	$(BIN)/triptych demo -o $(DEMO) $(if $(DATA),--data $(DATA))

test: lint  ## lint, then all tests but the slow ones
	$(QUIET_CORES) $(BIN)/python -m pytest -m "not slow and not faults" -n $(WORKERS) --dist loadfile

browser:  ## what the tests of pages need: Chromium by apt, axe-core by npm into .node
	.ci/browser

test-slow: .venv/dev.stamp  ## the slow tests
	$(QUIET_CORES) $(BIN)/python -m pytest -m slow

test-faults: .venv/dev.stamp  ## kill indexing at 50 random moments, flood the server for a minute
	$(QUIET_CORES) $(BIN)/python -m pytest -m faults -o timeout=3600

lint: .venv/dev.stamp  ## ruff, mypy and the import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: .venv/dev.stamp  ## measure what is promised, as the token cache's gain
	for script in $(wildcard benchmarks/token_cache.py benchmarks/objectives.py benchmarks/method_steps.py benchmarks/evaluation.py); do \
		OMP_WAIT_POLICY=passive $(BIN)/python $$script || exit; done

clean:  ## remove what make made, .venv included
	rm -rf .venv .node build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(call install,lite$(COMMA)figures$(COMMA)search$(COMMA)serve)
	@touch $@

.venv/dev.stamp: pyproject.toml constraints.txt | .venv/bin/python
	$(call install,lite$(COMMA)figures$(COMMA)search$(COMMA)serve$(COMMA)dev,-q)
	@touch $@ .venv/demo.stamp

# pip compiles one file after the other; all cores together are done in half the time. Some files are not meant to be
# compiled (templates, tests of other versions), so that is no fault.
COMMA := ,
define install
	@echo "Installing into .venv: a minute or two, 2 GB on disk"
	$(BIN)/python -m pip install --no-compile $(2) $(PIP_ARGS) $(PINS) -e ".[$(1)]"
	@echo "Compiling what was installed"
	@$(BIN)/python -m compileall -qq -j 0 -x '/tests?/' .venv/lib || true
endef

# Everything a user or CI needs. `make reproduce` and `make test` work on a fresh machine.
VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.docs_installed
OUT    ?= report
STORE  ?= runs
# Libraries are compiled when they are installed, as tests start hundreds of processes, and never later: a test whose
# disk is full would leave half a module.
export PYTHONDONTWRITEBYTECODE = 1

.PHONY: setup page check test quick-tests test-slow test-gpu reproduce lint docs bench clean

setup: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q -j 2 -x '/tests?/' $(VENV)/lib || true
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks docs conftest.py
	$(BIN)/ruff format --check src tests benchmarks docs conftest.py
	$(BIN)/mypy
	$(BIN)/lint-imports

page:  # the script of explorer pages, by the tools of its world
	npm install --silent && npm run --silent lint && npm test

check: lint  # a minute, between edits
	$(BIN)/python -m pytest -n 2 --dist loadfile -q tests -m 'not integration and not slow and not gpu and not browser'

test: $(STAMP)  # lint beside the tests, as it takes one core
	$(MAKE) --no-print-directory -j 2 lint quick-tests

quick-tests: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow and not gpu'

test-slow: $(DOCS)  # among them the site
	$(BIN)/python -m pytest -m slow

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

reproduce: $(STAMP)
	$(BIN)/recombine reproduce --preset quick --device cpu --store $(STORE) --out $(OUT)

$(DOCS): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $(DOCS)

docs: $(DOCS)  # the site, into build/docs; warnings are errors, and examples are run
	$(BIN)/python -m pytest docs README.md
	$(BIN)/python -m sphinx -W --keep-going --quiet -b html -d build/doctrees docs build/docs
	@echo "site: build/docs/index.html"

bench: $(STAMP)
	$(BIN)/recombine bench

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/*.egg-info

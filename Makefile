# Everything a user or CI needs. `make reproduce` and `make test` work on a fresh machine.
VENV   := .venv
PYTHON ?= python3
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.docs_installed
SLOW   := $(VENV)/.slow_installed
OUT    ?= report
STORE  ?= runs

.PHONY: setup page check test quick-tests test-slow test-gpu test-wheel test-lowest test-newest reproduce lint docs bench \
  dist clean
# Tests that import everything, or run every example.
WHOLE  := tests/metrics/test_examples.py tests/metrics/test_registry.py tests/test_annotations.py tests/test_api.py \
  tests/test_manifest.py
FAST   := not integration and not slow and not gpu and not browser
RELEASE := .venv-release
# More words for pip where torch comes from another index, as `--index-url https://download.pytorch.org/whl/cpu`.
PIP_WORDS ?=
CONSTRAINTS ?= constraints.txt

setup: $(STAMP)

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Known versions are installed without resolving them, several at a time, since most of it is waiting for an index; pip
# resolves only where something is missing, as with another Python. All is compiled at once, since tests start hundreds of
# processes, and by none of them: one whose disk is full would leave half a module.
LOCKED := $(PIP) --no-compile --no-deps
UNUSED := /(fontTools|jedi|mypyc?|networkx|pip|prompt_toolkit|rich_rst|setuptools|wcwidth)/
UNUSED := $(UNUSED)|playwright/async_api/|pygments/lexers/|sympy/(parsing|physics|stats)/|torch/_vendor/quack/|dask/dataframe/
COMPILE := $(BIN)/python -m compileall -q -j 2 -x '/tests?/|torch/(testing|_inductor|onnx|ao)/|$(UNUSED)'
$(STAMP): pyproject.toml constraints.txt requirements-dev.txt | $(BIN)/python
	{ $(LOCKED) $$(grep ^torch== requirements-dev.txt) && $(COMPILE) $(VENV)/lib/python*/site-packages/torch || true; } & \
	$(LOCKED) -e . & \
	grep -v '^torch==\|^#' requirements-dev.txt | xargs -n 28 -P 4 $(LOCKED) && wait
	$(BIN)/python -m pip check > /dev/null || $(PIP) -c constraints.txt -e '.[dev]'
	$(COMPILE) $(VENV)/lib src || true
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import torch, matplotlib.pyplot'  # they import some of what is left out
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks docs tools conftest.py
	$(BIN)/ruff format --check src tests benchmarks docs tools conftest.py
	$(BIN)/mypy
	$(BIN)/lint-imports

page:  # the script of explorer pages, by the tools of its world
	npm install --silent && npm run --silent lint && npm test

check: lint  # less than a minute, between edits: metrics, tasks and contracts
	$(BIN)/python -m pytest -n 2 --dist loadfile -q -m '$(FAST)' $(WHOLE:%=--ignore %) \
	  tests/contracts tests/metrics tests/tasks $(filter-out $(WHOLE),$(wildcard tests/test_*.py))

test: $(STAMP)  # lint beside the tests, as it takes one core
	$(MAKE) --no-print-directory -j 2 lint quick-tests

quick-tests: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m 'not slow and not gpu'

test-slow: $(SLOW)  # among them the site
	$(BIN)/python -m pytest -m slow

test-gpu: $(STAMP)
	$(BIN)/python -m pytest -m gpu

# The tools of a release have an environment of their own.
$(RELEASE)/.installed: pyproject.toml constraints.txt tools/requirements.py
	$(PYTHON) -m venv $(RELEASE)
	$(PYTHON) tools/requirements.py release > $(RELEASE)/requirements.txt
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -r $(RELEASE)/requirements.txt
	touch $@

dist: $(RELEASE)/.installed  # an sdist, and the wheel that it builds
	rm -rf dist build
	$(RELEASE)/bin/python -m build --outdir dist .
	$(RELEASE)/bin/python -m twine check --strict dist/*
	$(RELEASE)/bin/check-wheel-contents dist/*.whl

test-wheel: $(STAMP)  # every Python that is present, with all that a wheel requires installed from scratch
	RECOMBINE_TEST_INSTALL=$(CONSTRAINTS) $(BIN)/python -m pytest -m slow tests/package

# Fast tests with the lowest versions that pyproject.toml allows, and with the newest. torch is not taken newer than in
# constraints.txt, which keeps a build for CPUs.
test-lowest: WORDS = --lowest project dask widget parquet test=ranges
test-newest: WORDS = project dask widget parquet test
test-newest: PIP_WORDS += -c $@.venv/constraints.txt
test-lowest test-newest:
	rm -rf $@.venv && $(PYTHON) -m venv $@.venv
	$(PYTHON) tools/requirements.py $(WORDS) > $@.venv/requirements.txt
	grep '^torch==' requirements-dev.txt > $@.venv/constraints.txt
	$@.venv/bin/python -m pip install --quiet --upgrade pip
	$@.venv/bin/python -m pip install --quiet $(PIP_WORDS) --upgrade -r $@.venv/requirements.txt
	$@.venv/bin/python -m pip install --quiet --no-deps -e .
	$@.venv/bin/python -m pytest -n 2 --dist loadfile -q tests -m '$(FAST)'

reproduce: $(STAMP)
	$(BIN)/recombine reproduce --preset quick --device cpu --store $(STORE) --out $(OUT)

$(SLOW): $(STAMP)
	$(PIP) -c constraints.txt -e '.[slow]'
	touch $(SLOW) $(DOCS)

$(DOCS): $(STAMP)
	$(PIP) -c constraints.txt -e '.[docs]'
	touch $(DOCS)

docs: $(DOCS)  # the site, into build/docs; warnings are errors, and examples are run
	$(BIN)/python -m pytest docs README.md
	$(BIN)/python -m sphinx -W --keep-going --quiet -b html -d build/doctrees docs build/docs
	@echo "site: build/docs/index.html"

bench: $(STAMP)
	$(BIN)/python -m benchmarks.performance

clean:
	rm -rf $(VENV) $(RELEASE) test-lowest.venv test-newest.venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis src/*.egg-info

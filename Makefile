# Every target does its own set-up in .venv, from a bare Python 3.11 or newer.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEMO_READY := $(VENV)/.ready-demo
ALL_READY := $(VENV)/.ready-all
DOCS_READY := $(VENV)/.ready-docs

.PHONY: help test test-all test-oldest test-slow coverage fuzz lint bench reproduce audit docs demo build clean fresh-kernels chromium

help:
	@echo "make demo       train a private model on a synthetic census, with its report"
	@echo "make test       lint, type-check, the tests that a change needs and the documented examples: minutes"
	@echo "make test-all   all tests: every class, audits, notebooks, a browser, other frameworks"
	@echo "make test-oldest  scikit-learn's estimator checks on the oldest release supported"
	@echo "make test-slow  the tests that take minutes"
	@echo "make coverage   every branch of core, accounting, mechanisms and purse is run by a test of theirs: minutes"
	@echo "make lint       ruff and mypy --strict"
	@echo "make bench      the benchmarks; results are printed and kept in benchmarks/results/"
	@echo "make reproduce  the papers' tables and figures in full, into docs/reproduction; hours on two cores, minutes where their results are kept"
	@echo "make fuzz       an hour of odd files and arguments for everything that reads them; findings in fuzz-findings/"
	@echo "make audit      attack every method, estimator and planted bug in full, into docs/audit; about two hours on two cores"
	@echo "make docs       build the HTML documentation in docs/_build/"
	@echo "make build      both distributions in dist/, and the demo from their wheels in a bare environment"

# What the command line needs, and no more: a minute on a bare machine.
$(DEMO_READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("privypurse needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Set PYTHON=/path/to/python3.11 (or newer).") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[cli]" --editable lab
	@touch $@

$(READY): $(DEMO_READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0" # this version has a build without gigabytes of CUDA
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@

$(ALL_READY): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev-all]"
	@touch $@

$(DOCS_READY): $(ALL_READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $@

test: lint fresh-kernels
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow and not full" --durations=25 $(ARGS)

test-all: $(ALL_READY) fresh-kernels chromium
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow" --durations=25 $(ARGS)

# For the tests of the report. Where it cannot be installed, those tests are skipped, and say so.
chromium:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
	  && (apt-get install -y -qq --no-install-recommends chromium || (apt-get update -qq \
	  && apt-get install -y -qq --no-install-recommends chromium)) > /dev/null 2>&1; } \
	  || echo "Chromium is not here and cannot be installed: the tests of the report in a browser will be skipped."

# In an environment of its own, with the scikit-learn and numpy of that time.
OLDEST := .venv-oldest
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --editable . "scikit-learn==1.4.*" "numpy<2" \
	  "pytest<9" pytest-xdist hypothesis pandas polars skops
	$(OLDEST)/bin/python -m pytest -n 2 -m "not slow" -p no:cacheprovider tests/estimators $(ARGS) \
	  -W ignore::DeprecationWarning -W ignore::sklearn.exceptions.SkipTestWarning # its own, with newer libraries

test-slow: $(ALL_READY)
	$(BIN)/python -m pytest -m slow $(ARGS)

GATE := core accounting mechanisms purse
coverage: $(ALL_READY)
	$(BIN)/python -m coverage erase
	$(BIN)/python -m coverage run -m pytest -m "not slow" $(GATE:%=tests/%) $(GATE:%=src/privypurse/%) $(ARGS)
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report --fail-under=100

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY) fresh-kernels
	@mkdir -p benchmarks/results
	@for script in benchmarks/*.py; do \
	  echo "== $$script"; out=benchmarks/results/$$(basename $$script .py).txt; \
	  $(BIN)/python $$script > $$out; status=$$?; cat $$out; \
	  [ $$status = 0 ] || echo "exit code $$status: it failed, or a goal that it names was missed."; \
	done

reproduce: $(READY) fresh-kernels
	$(BIN)/privypurse reproduce all --out docs/reproduction $(ARGS)

# In turn, 330 seconds each.
fuzz: $(ALL_READY)
	$(BIN)/python -m tests.fuzz.run --target all --seconds 330 --seed 1 --out fuzz-findings $(ARGS)

audit: $(READY) fresh-kernels
	$(BIN)/privypurse audit all --out docs/audit $(ARGS)

docs: $(DOCS_READY)
	$(BIN)/python -m sphinx -W --keep-going -b html docs docs/_build

demo: $(DEMO_READY)
	@$(BIN)/privypurse demo --out demo

build: $(ALL_READY)
	rm -rf dist .venv-bare demo-bare
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m build --outdir dist lab
	$(PYTHON) -m venv .venv-bare
	.venv-bare/bin/python -m pip install --quiet --disable-pip-version-check --find-links dist "privypurse[cli]==$$($(BIN)/python -c 'import privypurse; print(privypurse.__version__)')"
	.venv-bare/bin/privypurse demo --out demo-bare --quiet
	rm -rf .venv-bare demo-bare

# Compiled functions are kept beside their files, and do not notice that another file they were compiled from has changed.
fresh-kernels:
	@for source in $(addprefix src/privypurse/oracles/,_links.py _kernels.py _sparse_kernels.py _exact_kernels.py); do \
	  find src -name '*.nb[ci]' ! -newer $$source -delete; \
	done

clean:
	rm -rf demo dist $(VENV) $(OLDEST) docs/_build docs/jupyter_execute docs/api .mypy_cache .pytest_cache .ruff_cache .hypothesis

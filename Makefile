# make demo and make test set everything up themselves; both need only python3, make and a package index.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test lint lock vulnerabilities clean

setup: $(READY)

# The environment is made again only when pyproject.toml changes.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "sitar needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) 2>/dev/null || { rm -rf $(VENV); false; } || \
	  $(PYTHON) -m virtualenv -q $(VENV) 2>/dev/null || virtualenv -q -p $(PYTHON) $(VENV) 2>/dev/null || \
	  uv venv -q --seed -p $(PYTHON) $(VENV) 2>/dev/null || \
	  { echo "Cannot make a virtual environment: apt-get install python3-venv (or install virtualenv or uv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $@

demo: $(READY)
	$(BIN)/sitar demo

test: $(READY) lint
	$(BIN)/python -m pytest -q -m "shapes and not ci" tests/unit \
	  --jaxtyping-packages=sitar.functional,sitar.evaluation,beartype.beartype
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not shapes and not slow and not ci and not ray"
	@{ test -n "$$SITAR_CHROMIUM" || command -v chromium || command -v chromium-browser; } >/dev/null && $(BIN)/python -c 'import playwright' 2>/dev/null || \
	  echo "No browser here: the tests in tests/browser were left out (apt-get install chromium, pip install --group browser)."

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright

# Every package that development needs, with the hashes of its files. Nothing is installed from it unless you do so:
# python -m pip install --require-hashes -r requirements-dev.lock
lock: $(READY)
	$(BIN)/python -m pip install --quiet --group supply
	$(BIN)/uv pip compile pyproject.toml --group dev --group docs --group release --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --quiet --upgrade --output-file requirements-dev.lock

vulnerabilities: $(READY)
	$(BIN)/python -m pip install --quiet --group supply
	$(BIN)/python .ci/vulnerabilities.py

clean:
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis

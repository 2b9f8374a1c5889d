# Two commands matter: `make predict` sets everything up and prints the headline prediction, `make test` sets everything
# up and passes the tests. Both need only make and Python 3.11 or newer, and both can be run again.

# The newest interpreter that will do; `make PYTHON=/path/to/python3.12 predict` overrides it.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$python; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := predict
.PHONY: predict test bench format clean

predict: $(VENV)/.installed
	@$(BIN)/pciesim predict --topo topologies/rtx6000x8.txt --model models/qwen35_397b.yaml

test: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -n 2 -m "not bench"

bench: $(VENV)/.installed-dev
	$(BIN)/pytest -m bench -p no:xdist

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Always a private environment: system Pythons refuse packages (PEP 668).
$(VENV)/.made:
	@test -n "$(PYTHON)" || { echo "pciesim: error: needs Python 3.11 or newer and found none; if it is not on PATH: make PYTHON=/path/to/python3" >&2; exit 2; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@sh tools/make_venv.sh "$(PYTHON)" "$(VENV)"
	@touch $@

$(VENV)/.installed: pyproject.toml $(VENV)/.made
	@echo "Installing pciesim into $(VENV) (about a minute the first time)"
	@$(PIP) install --upgrade "pip>=25.1"
	@$(PIP) install --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo "Installing what the tests need into $(VENV)"
	@$(PIP) install --group dev
	@touch $@

clean:
	rm -rf $(VENV)

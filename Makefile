PYTHON ?= python3
VENV ?= .venv

.PHONY: demo test clean

demo: $(VENV)/installed  ## create the environment, install, run the main job
	$(VENV)/bin/dncfl run

test: $(VENV)/installed-dev  ## create the environment, install, run all tests and linters
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy -p dncfl -p tests
	$(VENV)/bin/pytest

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "dncfl needs Python 3.11 or newer; name one by: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet -e .
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	$(VENV)/bin/pip install --quiet -e '.[dev]'
	@touch $@

clean:
	rm -rf $(VENV) build *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis

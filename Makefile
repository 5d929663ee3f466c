# make install   an environment in .venv; PYTHON= chooses the interpreter (3.11 to 3.13)
# make demo      an ablation study on the text that comes with Python, with its report
# make test      what guards a commit; FOR=transformer/norms for one room, EVERY=5 for one test in five
# make release   what guards a release: notebooks and killed processes, every pair of options, published architectures
# make parity   published architectures against the library transformers, which it installs
# make notebooks   notebooks/*.ipynb from the texts beside them
# make conformance   every option and every pair of options; DRAW=60 for a draw of both

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo test release notebooks conformance parity lint

install: $(VENV)/installed

$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[test,dev]'
	touch $@

demo: install
	$(BIN)/python -m experiments.norm_position --workdir results/norm_position --resume

test: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not release" $(if $(EVERY),--every $(EVERY)) \
		$(FOR:transformer/%=tests/%)

release: install conformance parity
	$(BIN)/python -m pytest -n 2 --dist worksteal -m release

notebooks: install
	$(BIN)/jupytext --quiet --to ipynb notebooks/[0-9]*.py

conformance: install
	$(BIN)/python -m transformer.testing $(if $(DRAW),--draw $(DRAW))

parity: install
	$(BIN)/python -m pip install --quiet --editable '.[parity]'
	$(BIN)/python -m pytest -n 2 tests/pretrained

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

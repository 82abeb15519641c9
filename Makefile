# cotkit's commands. Each sets up .venv first when that is missing or out of date.
# PYTHON=/path/to/python3.12 names the Python to use, ARGS="..." is passed on to the command.

SHELL := /bin/sh
PYTHON ?=
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.cotkit-ready

.PHONY: help setup train demo test lab lint reports bench soak lock clean

help:
	@echo "make demo      set up, distil word problems with the embedded model, write a report"
	@echo "make test      set up, run all tests"
	@echo "make lab       JupyterLab on the tour and the notebooks"
	@echo "make reports   run every notebook"
	@echo "make lint      ruff on code and notebooks, notebooks without outputs"
	@echo "make train     adds what training needs (torch; some GB with a GPU)"
	@echo "make bench     speed, bytes, memory and survival against bare loops (twenty minutes)"
	@echo "make soak      ten minutes of runs that are killed, interrupted, out of disk, and resumed"
	@echo "make lock      constraints.txt anew from pyproject.toml (needs uv)"
	@echo "make clean     remove .venv and caches (runs/ and reports/ stay)"

setup: $(READY)

train: $(VENV)/.cotkit-train

demo: $(READY)
	$(BIN)/cotkit run distillation $(ARGS)

test: $(READY)
	$(BIN)/python -m pytest $(ARGS)

lab: $(READY)
	$(BIN)/jupyter lab --notebook-dir=notebooks --LabApp.default_url=/lab/tree/00_tour.ipynb $(ARGS)

reports: $(READY)
	@failed=""; for notebook in notebooks/*.ipynb; do \
	  $(BIN)/cotkit run "$$notebook" $(ARGS) || failed="$$failed $$notebook"; \
	done; \
	if [ -n "$$failed" ]; then echo "failed:$$failed" >&2; exit 1; fi; \
	echo "all reports: reports/index.html"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/cotkit strip --check

bench: $(READY)
	$(BIN)/cotkit bench $(ARGS)

soak: $(READY)
	$(BIN)/python benchmarks/soak.py $(ARGS)

lock:
	@command -v uv >/dev/null || { echo "make lock needs uv (pip install uv)" >&2; exit 1; }
	uv pip compile pyproject.toml --extra test --extra cluster --universal --python-version 3.11 \
	  --no-annotate --no-header --quiet $(ARGS) -o constraints.txt

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The first of these Pythons that runs and is new enough: PYTHON, python3, python3.13, python3.12, python3.11.
# uv installs when it is on PATH, pip otherwise or when uv fails (it does not read pip's settings).
$(READY): pyproject.toml constraints.txt
	@begun=$$(date +%s); \
	new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; \
	python=""; \
	for candidate in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	  if "$$candidate" -c "$$new_enough" 2>/dev/null; then python=$$candidate; break; fi; \
	done; \
	if [ -z "$$python" ]; then \
	  echo "cotkit needs Python 3.11 or newer; $(or $(PYTHON),python3) is $$($(or $(PYTHON),python3) --version 2>&1)." >&2; \
	  echo "Install one, or name it: make demo PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	with=pip; if command -v uv >/dev/null; then with=uv; fi; \
	echo "Setting up $(VENV) with $$("$$python" --version) and $$with (once; one to three minutes with pip) ..."; \
	if ! $(BIN)/python -c "$$new_enough" 2>/dev/null; then \
	  rm -rf $(VENV); \
	  if [ $$with = uv ]; then uv venv --quiet --seed --python "$$(command -v "$$python")" $(VENV) || with=pip; fi; \
	  if [ $$with = pip ]; then "$$python" -m venv $(VENV); fi; \
	fi || exit 1; \
	if [ $$with = uv ]; then \
	  uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[test]' || with=pip; \
	fi; \
	if [ $$with = pip ]; then \
	  $(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null || exit 1; \
	  $(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[test]' || exit 1; \
	fi; \
	touch $@; \
	echo "Set up in $$(( $$(date +%s) - begun )) s"

# pip, not uv: only pip reads the settings that choose a build of torch.
$(VENV)/.cotkit-train: $(READY) pyproject.toml
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null
	$(BIN)/python -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[test,train]'
	touch $@

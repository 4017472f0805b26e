# From a bare clone: `make demo` runs a real request, `make test` runs the whole suite. `make help` lists the rest.
#
#   PYTHON=python3.12 make demo    another Python to make the virtual environment with
#   VENV=.venv-312 make test       another place for it
#   WORKERS=4 make test            test processes; each holds about 2 GB when it loads the model

PYTHON ?=
VENV ?= .venv
WORKERS ?= 2

export PYTHON VENV

bin := $(VENV)/bin
# One process, one thread: the test processes share the cores.
pytest := OMP_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false $(bin)/python -m pytest -n $(WORKERS) --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint check doctor docs docs-serve docs-data notebooks lab peers setup setup-dev clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.installed-base ## install what is missing, then run one real request through every stage
	@echo "demo: one request through every stage (the first run fetches and converts the model, about 100 MB)"
	@$(bin)/jumpforward compare

test: $(VENV)/.installed-dev ## install what is missing, then run the whole suite
	@echo "test: the whole suite, $(WORKERS) processes (make quick runs the fast half)"
	@$(pytest)

quick: $(VENV)/.installed-dev ## run the fast half of the suite
	@echo "quick: not what is marked slow, and a sample of what repeats over every stage, $(WORKERS) processes"
	@$(pytest) --quick

lint: $(VENV)/.installed-dev ## ruff check and mypy --strict
	@echo "lint: ruff check"
	@$(bin)/ruff check
	@echo "lint: mypy --strict (the first run takes about half a minute)"
	@$(bin)/mypy

check: lint test ## lint, then the whole suite

doctor: $(VENV)/.installed-base ## say what this machine has, and how to mend what it lacks
	@$(bin)/jumpforward doctor

docs-data: $(VENV)/.installed-base ## write the pages that are made from data
	@$(bin)/python -m scripts.make_tested
	@$(bin)/python -m scripts.make_matrix
	@$(bin)/python -m scripts.make_performance

docs: $(VENV)/.installed-dev ## build the documentation site into site/
	@echo "docs: pages from code and data, then the site; anything that does not fit fails the build"
	@$(bin)/python -m scripts.site

docs-serve: $(VENV)/.installed-dev ## build the site's pages and serve them on this machine
	@$(bin)/python -m scripts.site --serve

notebooks: $(VENV)/.installed-dev ## bring the .ipynb files up to date with their text, and run them all
	@$(bin)/python -m scripts.make_notebooks
	@echo "notebooks: each one from top to bottom (a few minutes)"
	@OMP_NUM_THREADS=1 $(bin)/python -m pytest tests/notebooks

lab: $(VENV)/.installed-dev ## open the notebooks in JupyterLab
	@$(bin)/jupyter lab --notebook-dir notebooks

peers: ## make .venv-peers, for the benchmark's peers whose packages do not go with these
	@$(or $(PYTHON),python3) -m venv .venv-peers
	@echo "peers: installing benchmarks/peers.txt (llama.cpp is compiled: 5 to 20 minutes, needs a C++ compiler and CMake)"
	@CMAKE_ARGS="-DLLAVA_BUILD=OFF $$CMAKE_ARGS" .venv-peers/bin/python -m pip install -q -r benchmarks/peers.txt

setup: $(VENV)/.installed-base ## only install what the command line needs

setup-dev: $(VENV)/.installed-dev ## only install what tests and lint need

clean: ## remove caches of the tools (not the virtual environment, not the model)
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	@find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

# The stamps are younger than the two files exactly when the environment holds what they ask for.
$(VENV)/.installed-base: pyproject.toml constraints.txt
	@sh scripts/set_up.sh base

$(VENV)/.installed-dev: pyproject.toml constraints.txt
	@sh scripts/set_up.sh dev

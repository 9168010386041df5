# Two commands are enough: make book, make test. make help names the rest.
# Another interpreter:               make book PYTHON=python3.12
# torch without CUDA, on Linux:      make book TORCH=cpu

VENV := .venv/bin/python
# The interpreter that makes .venv: the one already in it, else python3.
PYTHON ?= $(shell $(VENV) -c '' 2>/dev/null && echo $(VENV) || echo python3)
TORCH ?=
# Worker processes for make test, for example JOBS=2.
JOBS ?=
WORKERS := $(if $(JOBS),-n $(JOBS) --dist loadfile)

export OMP_NUM_THREADS := 1

.DEFAULT_GOAL := help
.PHONY: help book test test-all mutants lab refresh lock clean environment

help: ## print this list
	@echo "make TARGET, where TARGET is one of:"
	@sed -n 's/^\([a-z-]*\):[^#]*## \(.*\)/  \1|\2/p' Makefile | \
		while IFS='|' read -r name text; do printf '%-13s %s\n' "$$name" "$$text"; done
	@echo "With another interpreter: make book PYTHON=python3.12"

environment: ## make .venv, or mend it, or do nothing
	@$(PYTHON) book/environment.py $(if $(TORCH),--torch $(TORCH))

book: environment ## train the reference run if it is not there, then build the site in _build/html
	@$(VENV) -m book.build

test: environment ## run every test, plant every fault, then run every notebook and compare
	$(VENV) -m $(if $(JOBS),pytest tests $(WORKERS),tests.run_tests --output evidence/my-tests.json)
	$(VENV) -m tests.faults
	$(VENV) -m pytest --nbval --nbval-current-env notebooks

test-all: environment ## the same, with the tests that take long
	$(VENV) -m pytest tests --slow $(WORKERS)
	$(VENV) -m tests.faults --whole
	$(VENV) -m pytest --nbval --nbval-current-env notebooks

mutants: environment ## change the library in thousands of places and see that a test fails (needs mutmut)
	@$(VENV) -m tests.mutation

lab: environment ## open the notebooks in JupyterLab
	$(VENV) -m jupyterlab notebooks

refresh: environment ## make again what is recorded: reference run, numbers, notebook outputs, site
	@$(VENV) -m book.refresh

lock: environment ## make constraints/ again after a change of requirements.txt (needs uv)
	@$(VENV) -m book.lock

clean: ## remove what was built: _build, build, runs/reference, caches (never other runs, never .venv)
	rm -rf _build build course_lib.egg-info runs/reference runs/reference-old .pytest_cache .hypothesis
	find book course_lib data notebooks tests -name __pycache__ -type d -prune -exec rm -rf {} +

# build, test, fuzz, gpu-test, bench, report, candidates, tune: one line each; the recipes are in Python.
PYTHON ?= python3
export TARGETS MIN_DRIVER JOBS

.PHONY: build test fuzz gpu-test bench report candidates tune clean

build:
	@$(PYTHON) build/bootstrap.py build && .venv/bin/python -m build

test:
	@$(PYTHON) build/bootstrap.py test && .venv/bin/python -m build && .venv/bin/python -m pytest -n auto --dist loadfile

fuzz:
	@$(PYTHON) build/bootstrap.py test && .venv/bin/python tests/fuzz/run.py $(or $(SECONDS),60)

gpu-test:
	@$(PYTHON) tests/gpu/run.py

bench:
	@$(PYTHON) bench/run.py

report:
	@$(PYTHON) build/bootstrap.py report && .venv/bin/python bench/pictures.py && .venv/bin/python bench/readme.py

candidates:
	@$(PYTHON) build/bootstrap.py build && .venv/bin/python -m build.candidates

tune:
	@$(PYTHON) bench/tune.py $(if $(SHAPES),--file $(SHAPES)) $(if $(SHAPES),,&& $(PYTHON) bench/tune_grouped.py) \
		&& $(PYTHON) -m build.fit

clean:
	rm -rf .cache dist runtime/libgemm/_lib runtime/libgemm/_ffi.py

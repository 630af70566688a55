# build, test, gpu-test, bench: one line each; the recipes are in Python.
PYTHON ?= python3
export TARGETS MIN_DRIVER JOBS

.PHONY: build test gpu-test bench clean

build:
	@$(PYTHON) build/bootstrap.py build && .venv/bin/python -m build

test:
	@$(PYTHON) build/bootstrap.py test && .venv/bin/python -m build && .venv/bin/python -m pytest -n auto --dist loadfile

gpu-test:
	@$(PYTHON) tests/gpu/run.py

bench:
	@$(PYTHON) bench/run.py

clean:
	rm -rf .cache dist runtime/libgemm/_lib runtime/libgemm/_ffi.py

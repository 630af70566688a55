# build, install, test, fuzz, gpu-test, bench, report, candidates, tune, lock: one line each; the recipes are in Python.
PYTHON ?= python3
PREFIX ?= /usr/local
export TARGETS TYPES MIN_DRIVER JOBS

.PHONY: build install test fuzz gpu-test bench report candidates tune lock clean

# Runs a command and says how long it took; the exit status is the command's.
timed = started=$$(date +%s); ($(1)); status=$$?; took=$$(($$(date +%s) - started)); \
	echo "make $@ took $$((took / 60)) min $$((took % 60)) s"; exit $$status

build:
	@$(call timed,$(PYTHON) build/bootstrap.py build && .venv/bin/python -m build)

install:
	@$(PYTHON) -m build.install "$(PREFIX)" "$(DESTDIR)"

test:
	@$(call timed,$(PYTHON) build/bootstrap.py test && .venv/bin/python -m build \
		&& .venv/bin/python -m pytest -n auto --dist loadfile --no-loadscope-reorder)

fuzz:
	@$(PYTHON) build/bootstrap.py test && .venv/bin/python tests/fuzz/run.py $(or $(SECONDS),60)

gpu-test:
	@$(PYTHON) tests/gpu/run.py

bench:
	@$(PYTHON) bench/run.py && $(PYTHON) bench/run_drawn.py && $(PYTHON) bench/measure/experts.py \
		&& $(PYTHON) bench/run_scaled.py

report:
	@$(PYTHON) build/bootstrap.py report && .venv/bin/python bench/report/pictures.py && .venv/bin/python bench/report/readme.py

candidates:
	@$(PYTHON) build/bootstrap.py build && .venv/bin/python -m build.tune.library

tune:
	@$(PYTHON) build/tune/dense.py $(if $(SHAPES),--file $(SHAPES)) $(if $(SHAPES),,&& $(PYTHON) build/tune/grouped.py \
		$(foreach types,e4m3 e4m3_fast e4m3_blocks,&& $(PYTHON) build/tune/dense.py --dtype $(types) \
			&& $(PYTHON) build/tune/grouped.py --dtype $(types))) \
		&& $(PYTHON) -m build.tune.merge && $(PYTHON) -m build.tune.fit

lock:
	@$(PYTHON) -m build.pin

clean:
	rm -rf .cache dist runtime/libgemm/_lib runtime/libgemm/_ffi.py

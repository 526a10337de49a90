# Assumes Python >= 3.11, git, make and a C++ compiler; everything else is installed into .venv. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := help

PYTHON ?=
# loadgroup: tests that share an expensive fixture name a group and go to one worker.
PYTEST_ARGS ?= -n 2 --dist loadgroup
ARGS ?=

VENV := .venv
STAMPS := $(VENV)/.stamps
PY := $(VENV)/bin/python
FMHA := $(VENV)/bin/fmha
# -qq: pip warns once a package about every index that lacks it; errors still show.
PIP := $(PY) -m pip install -qq --disable-pip-version-check --no-input

CORE_SOURCES := $(wildcard emulator/core/*)

.PHONY: help
help:
	@echo 'make run        run the default suite on the emulator: build, guard, matrix, gates, archive (ARGS="--filter t=1")'
	@echo 'make test       lint, then every test (PYTEST_ARGS="-k fence" for some)'
	@echo 'make regress    run the proven suite, guard first; it compares with no earlier run yet'
	@echo "make bench      measure the emulator's speed"
	@echo "make mutation   break our kernel's PTX in every way the tool knows, and see what the machine notices"
	@echo 'make lint       ruff and mypy'
	@echo 'make install    .venv with everything the other targets need'
	@echo 'make clean      remove build products and caches; keeps .venv and results/'
	@echo 'make distclean  clean, and remove .venv'

.PHONY: run
run: install
	@$(FMHA) run-matrix $(ARGS)

.PHONY: test
test: lint install
	@$(PY) -m pytest $(PYTEST_ARGS)

.PHONY: regress
regress: install
	@$(FMHA) run-matrix --suite proven $(ARGS)

.PHONY: bench
bench: install
	@$(PY) -m emulator.bench $(ARGS)
	@$(PY) -m tests.emulator.attention_speed $(ARGS)

# Every mutant of our kernel's PTX: minutes. The tests run a sample.
MUTATION := tests/emulator/mutation
.PHONY: mutation
mutation: install
	@mkdir -p build results
	@nvcc=$$($(PY) -c 'from harness.worker.nvcc import find_nvcc; print(find_nvcc().path)'); \
	  "$$nvcc" -arch=sm_100a -std=c++17 -O3 -lineinfo -Ikernel/include -DFMHA_HEAD_DIM=64 -ptx \
	    kernel/sm100/fmha_fwd.cu -o build/fmha_fwd_sm100_hd64_ptmem.ptx
	@$(PY) -m emulator.mutation build/fmha_fwd_sm100_hd64_ptmem.ptx --launch $(MUTATION)/sm100_hd64.py \
	  --redundant $(MUTATION)/redundant.yaml --json results/mutation-sm100_hd64.json $(ARGS)

.PHONY: lint
lint: $(STAMPS)/requirements
	@echo 'lint: ruff'
	@$(PY) -m ruff check --quiet
	@echo 'lint: clang-format'
	@$(VENV)/bin/clang-format --dry-run --Werror emulator/core/*.cpp emulator/core/*.hpp
	@echo 'lint: mypy'
	@$(PY) -m mypy

.PHONY: install
install: $(STAMPS)/core nvcc

.PHONY: clean
clean:
	@rm -rf build dist .fmha .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info $(STAMPS)/core
	@find . -path ./$(VENV) -prune -o -type d -name __pycache__ -exec rm -rf {} +

.PHONY: distclean
distclean: clean
	@rm -rf $(VENV)

# python3 comes first because it is the one a user has chosen; the others are for systems whose python3 is too old.
# Each is started, not merely looked up: a version manager's shim is on PATH for versions that are not active.
$(STAMPS)/venv:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    echo "venv: $$($$python --version), $(VENV)"; \
	    $$python -m venv $(VENV); \
	    mkdir -p $(@D); touch $@; exit 0; \
	  fi; \
	done; \
	echo 'no Python >= 3.11 found; name one with: make PYTHON=/path/to/python3' >&2; exit 1

$(STAMPS)/requirements: $(STAMPS)/venv pyproject.toml constraints.txt scripts/requirements.py
	@echo 'install: requirements'
	@$(PY) scripts/requirements.py build run test lint >$@.txt
	@$(PIP) -c constraints.txt -r $@.txt || { echo 'install failed; if pip names torch, the head of constraints.txt says where its build is' >&2; exit 1; }
	@touch $@

# Without build isolation, so that build/ is reused and a change to one file of the core compiles one file.
$(STAMPS)/core: $(STAMPS)/requirements CMakeLists.txt $(CORE_SOURCES)
	@echo "build: the emulator's core"
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

# Asked every time, not stamped: the answer depends on PATH. An nvcc named by FMHA_NVCC is used or refused, never replaced.
.PHONY: nvcc
nvcc: $(STAMPS)/requirements
	@[[ -n "$${FMHA_NVCC:-}" ]] || $(PY) -c 'from harness.worker.nvcc import find_nvcc; find_nvcc()' 2>/dev/null || { \
	  echo 'install: nvcc'; \
	  $(PY) scripts/requirements.py nvcc >$(STAMPS)/nvcc.txt; \
	  $(PIP) -c constraints.txt -r $(STAMPS)/nvcc.txt; \
	}

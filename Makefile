# Everything a developer types. Each target sets up what it needs; nothing else is needed first
# (root and apt on Debian or Ubuntu are assumed for what needs CRIU).

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ENGINE ?= reference
PYTEST_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup native demo test test-vllm lint types imports schemas check bench docs clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(BIN)/.ready: requirements/dev.txt pyproject.toml
	@tools/setup $(VENV) $(PYTHON)

setup: $(BIN)/.ready native ## virtual environment with everything pinned, and the native binaries

native: build/native/.ready ## the static binaries that run on targets, and the hydration library
build/native/.ready: $(wildcard native/src/*) native/CMakeLists.txt $(wildcard native/include/*) \
		$(wildcard native/hydrate/src/*) native/hydrate/CMakeLists.txt $(wildcard native/hydrate/include/*) \
		$(wildcard native/fill/src/*) native/fill/CMakeLists.txt $(wildcard native/guard/src/*) native/guard/CMakeLists.txt \
		$(wildcard native/bridge/*/*) native/bridge/CMakeLists.txt $(wildcard native/shims/*/*) native/shims/CMakeLists.txt
	@tools/build-native

demo: setup ## capture a live engine, kill it, bring it back: ENGINE=reference or ENGINE=vllm
	@tools/demo $(ENGINE)

test: setup ## every test that needs no vLLM
	@tools/test $(PYTEST_ARGS)

test-vllm: setup ## the tests with vLLM on CPU, in an environment of its own
	@tools/setup-vllm && COLDSNAP_VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python tools/test -m vllm tests/e2e $(PYTEST_ARGS)

lint: $(BIN)/.ready ## ruff, shellcheck, lengths of modules and functions
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && tools/lint-shell && $(BIN)/python tools/limits

types: $(BIN)/.ready ## mypy, strict
	@$(BIN)/mypy

imports: $(BIN)/.ready ## who may import whom
	@$(BIN)/lint-imports

schemas: $(BIN)/.ready ## write schemas/ from the typed specs
	@$(BIN)/python -m coldsnap.cli.schemas

check: lint types imports ## all static checks, and that schemas/ is what the specs say
	@$(BIN)/python -m coldsnap.cli.schemas --check

bench: setup ## ratios, measured side by side in one run
	@$(BIN)/python tests/bench/run.py

docs: setup ## run every command and plan in the documentation
	@tools/test tests/docs

clean: ## what was built here
	@rm -rf build dist .demo .pytest_cache .mypy_cache .ruff_cache

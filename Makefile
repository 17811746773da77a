# The two commands of the README, and what they stand on. `make help` lists the rest.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.13 python3.12 python3.11 python3; do command -v $$p >/dev/null && \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PLAN ?= inventory/virtual
ONLY ?=
export PATH := $(CURDIR)/$(BIN):$(PATH)
export ANSIBLE_NOCOWS := 1

.PHONY: help
help: ## what there is to do
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml requirements/lock.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is missing. Install it: sudo apt-get install python3 python3-venv"; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "Python's venv is missing. Install it: sudo apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --requirement requirements/lock.txt
	$(BIN)/pip install --quiet --no-deps --editable .
	@touch $@

.PHONY: venv
venv: $(VENV)/.installed ## the virtual environment, from the lock

.PHONY: demo
demo: venv ## a virtual rack from power-on to in service
	@metalyard virtual -i $(PLAN) up
	@metalyard bringup -i $(PLAN); status=$$?; metalyard report -i $(PLAN); \
	if [ $$status -eq 3 ]; then echo "Exit status 3 of bringup: not all nodes are in service, as the demo's three faults want."; \
	else exit $$status; fi

.PHONY: down
down: venv ## end the virtual rack
	@metalyard virtual -i $(PLAN) down

.PHONY: test
test: venv ## everything CI checks
	@tests/run all

.PHONY: lint
lint: venv ## formats, linters, types, licences
	@tests/run lint

.PHONY: unit
unit: venv ## fast tests: policy, contracts, recordings
	@tests/run unit

.PHONY: molecule
molecule: venv ## each role in containers
	@tests/run molecule

.PHONY: e2e
e2e: venv ## the whole journey on the virtual rack
	@tests/run e2e

.PHONY: bench
bench: venv ## measure; ONLY=name for one; writes build/bench.json
	@$(BIN)/python -m tests.bench $(ONLY)

.PHONY: lock
lock: ## resolve requirements/lock.txt anew
	$(PYTHON) -m venv build/lock-env
	build/lock-env/bin/pip install --quiet uv
	build/lock-env/bin/uv pip compile --quiet --python-version 3.11 --universal --no-emit-index-url --extra test \
		--extra postgresql --output-file requirements/lock.txt pyproject.toml

.PHONY: clean
clean: ## what was built here; end the virtual rack first with `make down`
	rm -rf build dist $(VENV)

# Everything a contributor or an operator types. Works in a fresh clone: the virtual environment is made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install up test check bench bench-discovery soak soak-limits soak-memory soak-probers soak-budgets soak-ledger soak-reports soak-dashboards soak-health proto lock format

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile

install: $(VENV)/run.stamp  ## make the virtual environment and install n4n from the lock

up: install  ## start everything here, with simulated providers (ARGS="--port 9090")
	@exec $(BIN)/n4n up --sim $(ARGS)

test: $(VENV)/dev.stamp  ## run the tests, two files at a time (ARGS="-k sse", ARGS="-n 0" for one after the other)
	@$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

check: $(VENV)/dev.stamp  ## format, lint, types, import contracts, fresh stubs, core tests with full branch coverage
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tests/support/check_stubs.py
	@$(BIN)/python -m pytest -q -n auto -p no:randomly --hypothesis-profile=quick --cov --cov-report=term:skip-covered tests/core

bench: $(VENV)/dev.stamp  ## measure n4n beside other gateways, write docs/performance.md (ARGS=--quick, or ARGS="--ab DIR DIR")
	@$(BIN)/python -m bench $(ARGS)

bench-discovery: $(VENV)/dev.stamp  ## measure how a catalog reaches 200 routers, write it into docs/discovery.md
	@$(BIN)/python -m bench.discovery $(ARGS)

soak: $(VENV)/dev.stamp  ## steady load while everything is killed, stopped and replaced (ARGS="--minutes 10")
	@$(BIN)/python -m tests.soak $(ARGS)

soak-limits: $(VENV)/dev.stamp  ## limits over three routers and one Redis, overloaded, killed and stopped (ARGS="rpm places --minutes 1")
	@$(BIN)/python -m tests.soak.limits $(ARGS)

soak-memory: $(VENV)/dev.stamp  ## a million requests and 50,000 broken streams: does a worker keep its memory (ARGS="--requests 50000 --aborted 2000")
	@$(BIN)/python -m tests.soak.memory $(ARGS)

soak-budgets: $(VENV)/dev.stamp  ## budgets while Redis loses everything, routers die, keys change: what is overspent (ARGS="--edits 20")
	@$(BIN)/python -m tests.soak.budgets $(ARGS)

soak-probers: $(VENV)/dev.stamp  ## three probers and 720 endpoints, one killed, one stopped: rate and gaps (ARGS="--interval 30")
	@$(BIN)/python -m tests.soak.probers $(ARGS)

soak-health: $(VENV)/dev.stamp  ## incidents on a virtual clock: shares, scores and what clients noticed, drawn into docs/ (ARGS="--rate 20")
	@$(BIN)/python -m tests.soak.health $(ARGS)

soak-ledger: $(VENV)/dev.stamp  ## twice 20,000 mixed requests beside a provider's own bill, once while everything is killed (ARGS="--requests 2000")
	@$(BIN)/python -m tests.soak.ledger $(ARGS)

soak-reports: $(VENV)/dev.stamp  ## reports over a million rows, and rows that come in while a router serves (ARGS="--rows 100000")
	@$(BIN)/python -m tests.soak.reports $(ARGS)

soak-dashboards: $(VENV)/dev.stamp  ## five minutes of traffic, as deployed, and what every panel of every dashboard shows then (ARGS="--minutes 1")
	@$(BIN)/python -m tests.soak.dashboards $(ARGS)

proto: $(VENV)/dev.stamp  ## generate the stubs in n4n/v1 from proto/
	@$(BIN)/python -m grpc_tools.protoc -Iproto --python_out=. --pyi_out=. --grpc_python_out=. proto/n4n/v1/*.proto

format: $(VENV)/dev.stamp  ## format the code
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

lock:  ## resolve the dependencies anew (needs uv)
	@printf 'setuptools>=77\n' | uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --extra aws --extra sim pyproject.toml - -o requirements.lock
	@printf 'setuptools>=77\n' | uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --extra dev -c requirements.lock pyproject.toml - -o requirements-dev.lock

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "n4n needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements.lock pyproject.toml | $(BIN)/python
	@echo "installing n4n and what it needs from requirements.lock, about half a minute"
	@$(PIP) install --require-hashes -r requirements.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/dev.stamp: requirements-dev.lock $(VENV)/run.stamp
	@echo "installing what the tests need from requirements-dev.lock"
	@$(PIP) install --require-hashes -r requirements-dev.lock
	@touch $@

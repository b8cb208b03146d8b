# One entry for people and CI. Every target sets itself up: its own virtual environment, and as root the Debian
# packages it needs (named before they are installed). Without make: scripts/setup && .venv/bin/sdfstream demo
SHELL := /bin/bash
VENV ?= .venv
export VENV
# bytecode is kept: without it every process of a test run compiles the whole tree anew
unexport PYTHONDONTWRITEBYTECODE
BIN := $(VENV)/bin
.DEFAULT_GOAL := help
# one worker more than cores: a test that waits for a broker leaves a core idle
PARALLEL := -n $(shell expr $$(nproc) + 1) --dist loadfile --no-loadscope-reorder
.PHONY: help setup demo test test-rdma check audit fuzz quick bench bench-clock scorecard trials gray chaos schemas lock clean

help: ## This page
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: ## Virtual environment with everything pinned by hash
	@scripts/setup python

demo: ## A live leaf-spine fabric: measured, broken, named, queried (under 3 minutes after set-up)
	@scripts/setup python
	@$(BIN)/sdfstream demo

test: ## All checks and all tests, lab and Kafka included
	@scripts/setup python peers lab kafka rdma tools web prometheus chart
	@$(MAKE) --no-print-directory check-rest
	@echo "check: format, lint, layers, house rules, licences, secrets: clean; types go beside the tests"
	@scripts/run-tests

test-rdma: ## Queue pairs on a real RDMA stack: Soft-RoCE in a small emulated machine (three minutes)
	@scripts/setup python rdma
	@$(BIN)/pytest -q -m rdma tests/rdma -k timed
	@$(BIN)/pytest -q -m rdma tests/rdma -k replayed & long=$$!; \
	$(BIN)/pytest -q -m rdma tests/rdma -k "not timed and not replayed"; others=$$?; \
	wait $$long && exit $$others

quick: ## The tests that need neither lab nor broker nor processes, in parallel
	@scripts/setup python
	@$(BIN)/pytest -q $(PARALLEL) -m "not real"

check: ## Format, lint, types, import layers, house rules, licences, secrets
	@scripts/setup python
	@$(BIN)/mypy --no-error-summary & types=$$!; $(MAKE) --no-print-directory check-rest; rest=$$?; wait $$types && exit $$rest
	@echo "check: format, lint, types, layers, house rules, licences, secrets: clean"

.PHONY: check-rest
check-rest:
	@$(BIN)/ruff format --check -q .
	@$(BIN)/ruff check -q .
	@said=$$($(BIN)/lint-imports --no-cache 2>&1) || { echo "$$said"; exit 1; }
	@$(BIN)/python -m tests.audit --offline & audit=$$!; $(BIN)/python -m tests.house; house=$$?; wait $$audit && exit $$house

audit: ## Known vulnerabilities of what is locked (says how old its list is), licences, secrets in the tree
	@scripts/setup python
	@$(BIN)/python -m tests.audit

FUZZ ?= 3
INPUTS ?= 1000000
fuzz: ## Every decoder (INPUTS=1000000 each), the stages, property tests with fresh cases (FUZZ=3 rounds); hours; a find prints its seed
	@scripts/setup python
	@for round in $$(seq $(FUZZ)); do seed=$$RANDOM$$RANDOM; echo "round $$round of $(FUZZ), seed $$seed"; \
	  $(BIN)/pytest -q -m "hypothesis and not lab and not kafka" --hypothesis-profile=fuzz --hypothesis-seed=$$seed || exit 1; done
	@$(BIN)/python -W ignore -m tests.fuzz stages --count $(INPUTS)
	@$(BIN)/python -W ignore -m tests.fuzz decoders --count $(INPUTS) --timed

bench: ## Speed as ratios measured side by side in one run; cost of the agent; share of each stage
	@scripts/setup python lab
	@$(BIN)/python -m tests.bench

bench-clock: ## The clocks on published laws and seeds, beside others: docs/scorecard.md (20 minutes; CLOCK=--quick: 3)
	@scripts/setup python peers
	@$(BIN)/sdfstream score clock --peers --plots docs/img --markdown docs/scorecard.md $(CLOCK)

SEEDS ?= 3
scorecard: ## Findings against the twin's truth over its scenarios (SEEDS=3: seeds 1 to 3; a quarter of an hour on two idle cores)
	@scripts/setup python
	@$(BIN)/sdfstream score detect --seeds $(SEEDS)

TRIALS ?= 20
trials: ## The loop on real packets, again and again: failover, collisions, lapses, forged commands (TRIALS=20: 40 minutes)
	@scripts/setup python lab
	@$(BIN)/python -m tests.trials --trials $(TRIALS)

gray: ## Gray loss on seeded fabrics: which links are named, with which share; fails below its limits (8 minutes)
	@scripts/setup python
	@for shape in wide narrow; do $(BIN)/python -m tests.trials.gray --seeds 10 --latest 20 --shape $$shape --check || exit 1; \
	  $(BIN)/python -m tests.trials.gray --clean --seeds 10 --first 500 --shape $$shape --check || exit 1; done

SEED ?= 1
chaos: ## Real broker, real processes, killed at random, then everything counted (SHORT=1: 6 minutes; 200 kills: 50)
	@scripts/setup python kafka chaos
	@$(BIN)/python -m tests.chaos $(if $(SHORT),--short) $(if $(ROWS),--rows) --seed $(SEED)

schemas: ## Write schemas/ from the vocabulary in sdfstream/records
	@scripts/setup python
	@$(BIN)/python -m sdfstream.records.publish schemas

lock: ## Pin all dependencies by hash, without index addresses (needs uv)
	uv pip compile -q pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-header -o requirements.lock
	uv pip compile -q pyproject.toml --extra acl -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-header -o requirements-run.lock
	uv pip compile -q pyproject.toml --extra peers -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-header -o requirements-peers.lock
	uv pip compile -q pyproject.toml --extra chart -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-header -o requirements-chart.lock

clean: ## Remove the virtual environment and caches
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# One entry for people and CI. Every target sets itself up.
SHELL := /bin/bash
VENV ?= .venv
PY := $(VENV)/bin/python
.DEFAULT_GOAL := help

help: ## This page
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

check: ## Format, lint, types, import layers
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache | tail -n 3
.PHONY: help check

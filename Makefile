# Every target makes and reuses its own environment: nothing needs preparing.
# `make` alone lists what there is.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

# Tests start hundreds of Pythons, each of which would compile anew what the last one
# was forbidden to keep.
unexport PYTHONDONTWRITEBYTECODE

VENV ?= .venv
# Empty: python3, else the newest python3.x found. Set it to choose another.
PYTHON ?=
PYTEST_ARGS ?=
LOCK_ARGS ?=
# For tests of the extra `inference`: no lock has it, the machine's own pip knows where.
TORCH := torch==2.13.0
# Recorded traces for bench-scheduler and bench-live; empty: ../shared/data.
TRACES ?=
# Debian packages that some tests use: network namespaces, containers, sandboxes,
# Prometheus, a terminal, a browser.
DEBIAN_PACKAGES := iproute2 podman runc busybox-static bubblewrap slirp4netns nftables \
	prometheus tmux chromium

# Who makes the environment may be at it, too. RUNLEVEL=1: no package starts a service.
APT_INSTALL := apt-get install -y -qq -o DPkg::Lock::Timeout=300

BIN := $(VENV)/bin
PYTEST := $(BIN)/python -m pytest $(PYTEST_ARGS)
QUICK_TESTS := $(addprefix tests/,test_house.py test_ratchets.py test_documents.py \
	test_practice.py unit contract)
# Long ones that show what shorter tests touch, too: `make proofs`, before a release.
PROOFS := tests/acceptance/test_examples.py tests/acceptance/test_script_chaos.py \
	tests/integration/test_embedded_pythons.py tests/load/test_api_endpoints.py
# Two Podmans with storages of their own do not get on: one process has them all.
BOXES := $(filter-out $(PROOFS), \
	$(shell grep -l 'tests.containers import' tests/*/test_*.py))
BOX_LOG := $(VENV)/boxes.log
# The longest first: what is begun last should be over soon.
LONG := $(addprefix tests/acceptance/test_,inference.py dashboard_tasks.py dashboard.py \
	schedules.py faces.py script_files.py job_api.py startup.py faults.py demo.py \
	celery_ingress.py)
# Needs what its own target compiles.
LLAMA_TEST := tests/acceptance/test_llama.py
SLOW_TESTS := $(LONG) $(filter-out $(LONG) $(BOXES) $(PROOFS) $(LLAMA_TEST), \
	$(wildcard $(addsuffix /test_*.py,tests/acceptance tests/security tests/integration \
	tests/load)))
LINT_LOG := $(VENV)/lint.log
SYSTEM_LOG := build/system.log
CACHE := $(VENV)/pytest
# They wait for processes more than they compute; a file stays with one of them.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder
# Forked when all tests are found; how many, so that two cores seldom wait.
FORKS := -p tests.forks --forks 5
TYPED := src tests $(sort $(dir $(wildcard examples/*.py bench/*.py)))
LINT := $(BIN)/ruff format --check . && $(BIN)/ruff check . \
	&& $(BIN)/mypy $(TYPED) && $(BIN)/lint-imports
LOCK := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-emit-index-url --no-annotate --no-header $(LOCK_ARGS) pyproject.toml

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' Makefile

.PHONY: setup
setup: ## make .venv with what Corral needs to run
	@PYTHON="$(PYTHON)" tools/venv.sh $(VENV) requirements.lock

.PHONY: setup-dev
setup-dev: ## make .venv with what tests and linters need, too
	@PYTHON="$(PYTHON)" tools/venv.sh $(VENV) requirements-dev.lock
	@PYTHON="$(PYTHON)" tools/venv.sh $(VENV) requirements-inference.lock $(TORCH)

.PHONY: system
system: ## install Debian packages some tests need (as root, with apt)
	@missing=; \
	for package in $(DEBIAN_PACKAGES); do \
		dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; \
	done; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if ! command -v apt-get >/dev/null; then \
		echo "skipping Debian packages:$$missing (no apt-get here)"; \
	elif [ "$$(id -u)" != 0 ]; then \
		echo "skipping Debian packages:$$missing (not root)"; \
	else \
		{ apt-get update -qq && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive $(APT_INSTALL) \
			--no-install-recommends $$missing; } \
		|| echo "could not install Debian packages:$$missing; going on without"; \
	fi

.PHONY: demo
demo: setup ## a cluster on this machine: work, a killed worker, nothing lost
	@$(BIN)/python examples/demo.py

.PHONY: up
up: setup ## start Corral on this machine and stay with it (Ctrl-C stops it)
	@$(BIN)/corral up

.PHONY: lint
lint: setup-dev ## formatting, lint, types and import rules
	@$(LINT)

# Linters use one processor, so tests run beside them; what they say comes last.
define QUICK
{ $(LINT); } >$(LINT_LOG) 2>&1 & lint=$$!; status=0; \
	$(PYTEST) $(FORKS) -o cache_dir=$(CACHE)/quick $(QUICK_TESTS) || status=$$?; \
	wait $$lint || { cat $(LINT_LOG); exit 1; }; cat $(LINT_LOG)
endef

.PHONY: check
check: setup-dev ## lint beside house, unit and contract tests (90 s)
	@$(QUICK); exit $$status

# Debian's packages are fetched meanwhile, which only the slow tests need.
.PHONY: test
test: ## what check does, then the tests on real clusters
	@mkdir -p build; $(MAKE) system >$(SYSTEM_LOG) 2>&1 & system=$$!; $(MAKE) setup-dev; \
	$(QUICK); \
	wait $$system || true; cat $(SYSTEM_LOG); \
	exit $$status
	@$(PYTEST) -o cache_dir=$(CACHE)/boxes $(BOXES) >$(BOX_LOG) 2>&1 & boxes=$$!; \
	slow=0; box=0; $(PYTEST) $(PARALLEL) -o cache_dir=$(CACHE)/slow \
	$(SLOW_TESTS) || slow=$$?; \
	wait $$boxes || box=$$?; cat $(BOX_LOG); \
	[ $$slow = 0 ] && [ $$box = 0 ]

# What tests/test_house.py reads: no test file may be left out.
.PHONY: print-tests
print-tests:
	@printf '%s\n' $(QUICK_TESTS) $(SLOW_TESTS) $(BOXES) $(PROOFS) $(LLAMA_TEST)

.PHONY: proofs
proofs: setup-dev system ## examples, chaos among scripts, other Pythons, load (2 min)
	@CORRAL_STRICT=1 $(PYTEST) $(PROOFS)

.PHONY: bench
bench: setup ## measure throughput and cost per task, beside plain Celery
	@$(BIN)/python bench/bulk.py

.PHONY: bench-gateway
bench-gateway: setup ## measure requests through the gateway beside direct ones
	@$(BIN)/python bench/gateway.py

.PHONY: bench-metrics
bench-metrics: setup ## thirty days of readings: their size, and how fast charts are
	@$(BIN)/python bench/metrics_history.py

.PHONY: bench-scheduler
bench-scheduler: setup-dev ## packing, serving and decisions on recorded traces (TRACES=)
	@TRACES="$(TRACES)" $(BIN)/python bench/scheduler.py

.PHONY: bench-live
bench-live: setup ## strategies on a real cluster with simulated cards, 25 min (TRACES=)
	@TRACES="$(TRACES)" $(BIN)/python bench/strategies_live.py

.PHONY: bench-nodes
bench-nodes: setup ## what the heartbeats of 200 nodes cost (NODES_SECONDS=30: shorter)
	@$(BIN)/python bench/nodes.py --restart

.PHONY: bench-events
bench-events: setup ## what 500 who listen to events cost (EVENTS_SECONDS=15: shorter)
	@$(BIN)/python bench/events.py

.PHONY: bench-ui
bench-ui: system setup-dev ## the dashboard with 200 nodes and 100,000 tasks (UI_SECONDS=10: shorter)
	@$(BIN)/python bench/ui.py

.PHONY: load
load: setup-dev ## users on the API for a minute, with locust
	@LOAD_SECONDS=60 LOAD_USERS=32 $(PYTEST) -s tests/load

.PHONY: show-pythons
show-pythons: setup-dev ## the embedded stores on every CPython found here
	@$(BIN)/python tests/integration/pythons.py

.PHONY: show-scripts
show-scripts: setup-dev system ## 200 scripts of every sort while parts are killed
	@CHAOS_JOBS=200 $(PYTEST) -s tests/acceptance/test_script_chaos.py

.PHONY: show-llama
show-llama: setup-dev ## llama.cpp itself as the server of a model (compiled once, 10 min)
	@tools/llama.sh build/llama $(BIN)/python
	@[ ! -x build/llama/bin/llama-server ] || $(PYTEST) $(LLAMA_TEST)

.PHONY: show-mass-loss
show-mass-loss: setup-dev ## three of five nodes silent for a minute: nothing moves
	@MASS_LOSS_S=60 $(PYTEST) -s tests/acceptance/test_mass_loss.py

.PHONY: spec
spec: setup-dev ## which items of docs/spec.md are shown, by which tests
	@$(BIN)/python -m tests.spec_report

.PHONY: format
format: setup-dev ## format and fix what can be fixed by itself
	@$(BIN)/ruff check --fix --quiet . || true
	@$(BIN)/ruff format .

.PHONY: lock
lock: setup ## write all locks again (LOCK_ARGS=--upgrade for newer versions)
	@$(LOCK) --group build --output-file requirements.lock
	@$(LOCK) --group build --group dev --constraint requirements.lock \
		--output-file requirements-dev.lock
	@echo torch >$(VENV)/not-locked
	@$(LOCK) --extra inference --group inference --group build \
		--constraint requirements-dev.lock --excludes $(VENV)/not-locked \
		--output-file requirements-inference.lock
	@$(LOCK) --group build --group audit --constraint requirements-dev.lock \
		--output-file requirements-audit.lock

.PHONY: audit
audit: setup ## known faults, licences and parts list of what Corral is made of
	@PYTHON="$(PYTHON)" tools/venv.sh $(VENV)-audit requirements-audit.lock
	@tools/audit.sh $(VENV)-audit/bin $(BIN)

.PHONY: clean
clean: ## remove environments, caches and build output
	@rm -rf .venv .venv-* build dist .demo htmlcov .coverage .coverage.*
	@rm -rf .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +

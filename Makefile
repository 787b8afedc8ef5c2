# Two commands do everything from a fresh clone: `make demo` and `make test`. Both are quick when run again.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
.PHONY: help demo test faults lint bench bench-queue build clean setup venv
.DELETE_ON_ERROR:

# rustup's place, for shells that do not have it in their path.
export PATH := $(HOME)/.cargo/bin:$(PATH)
export PYTHONPATH := $(CURDIR)/python
export KERNELOPT_PYTHON := $(CURDIR)/.venv/bin/python

KERNELOPT := target/release/kernelopt
# Time that the demo's search may spend.
BUDGET ?= 5m

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup out/demo-bundle/manifest.json ## Capture examples/token_loss.py, tune it into out/demo, say where to look
	$(KERNELOPT) tune out/demo-bundle -o out/demo --budget $(BUDGET) --resume
	@printf '\nLook at   %s\nRun       %s\nCheck     %s\n' \
	  'out/demo/report.html' \
	  'out/demo/optimized/output_code_0.py (needs torch only)' \
	  'KERNELOPT_PYTHON=.venv/bin/python PYTHONPATH=python $(KERNELOPT) verify out/demo'

# A new bundle is a new job: what was tuned from the old one goes.
out/demo-bundle/manifest.json: examples/token_loss.py $(shell find python/kernelopt -name '*.py' 2>/dev/null) | setup
	rm -rf out/demo out/demo-bundle
	$(KERNELOPT_PYTHON) -m kernelopt capture examples/token_loss.py:make -o out/demo-bundle

test: ## Format, lints, all tests of Rust and Python, end to end
	scripts/test.sh

faults: setup ## Processes and servers killed, stopped, cut off, wiped and lied to in mid-job (docs/faults.md)
	@scripts/packages.sh servers
	KERNELOPT_FAULTS=all cargo test --release --locked --quiet -p kernelopt-tests --test faults
	PROFILE=release scripts/with-fleet.sh tests/api/fuzz.sh 30
	PROFILE=release FLEET_BUSY=1 scripts/with-fleet.sh bash -c 'scripts/deploy-check.sh --coordinator "$$FLEET_COORDINATOR" --agent "$$FLEET_AGENT" --no-gpu --patience 240'

lint: ## Format and lints only
	scripts/test.sh packages fmt clippy lint
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --all-features check; else echo 'cargo-deny is not installed: licences and advisories were not checked'; fi

bench: setup ## Benchmarks, whose figures docs/performance.md explains
	cargo bench --locked --workspace

# OPTIONS='--agents 8 --json' goes to the command.
bench-queue: ## What the queue costs, on private RabbitMQ and Redis servers
	@scripts/packages.sh servers
	@$(MAKE) build
	cargo run --quiet --locked -p kernelopt-test-servers -- $(KERNELOPT) bench queue $(OPTIONS)

build: ## The release binary, target/release/kernelopt
	scripts/packages.sh
	cargo build --release --locked -p kernelopt-cli

# torch installs while cargo builds.
setup:
	@scripts/packages.sh
	@$(MAKE) -j2 venv build

venv:
	@scripts/venv.sh

clean: ## Remove what was built; the Python environment in ~/.cache/kernelopt stays
	cargo clean --quiet
	rm -rf out .venv

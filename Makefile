# Every command that CI runs, and a few for people. `make` alone lists them.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo dev bench test test-sdk chaos chaos-minute crowd fuzz mutants build check fmt fmt-check lint purity tidy doc bless deny deps deps-cc deps-redis deps-sdk rust ci

# rustup's folder is not in the search path of a shell that was open before it was installed, and Debian keeps haproxy
# in /usr/sbin, where ordinary users do not look.
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin

RUST_VERSION := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
TARGET := $(or $(CARGO_TARGET_DIR),target)
# CI builds what was committed; while developing, Cargo.lock may follow Cargo.toml.
LOCKED := $(if $(CI),--locked)
PROCESSES := -p relevo-cli -p relevo-gateway -p relevo-worker

help: ## list the targets
	@echo "usage: make TARGET"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "    %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: rust deps-redis ## a cluster of processes streams a conversation and survives kill -9 of the worker that runs it
	cargo build --locked --profile demo $(PROCESSES) --bins
	$(TARGET)/demo/relevo demo

dev: rust deps-redis ## an interactive cluster on http://127.0.0.1:41242: 2 gateways, 3 workers, data in .relevo
	cargo build --locked --profile demo $(PROCESSES) --bins
	$(TARGET)/demo/relevo dev --gateways 2 --workers 3

bench: rust deps ## turns per second, latency, processor time and memory, beside the floor of Redis and HTTP; on a quiet machine
	cargo build $(LOCKED) --release -p relevo-gateway -p relevo-worker
	cargo bench $(LOCKED) -p relevo-loadtest --bench cluster

test: rust deps build ## all tests; needs redis-server, haproxy and openssl and installs them if missing
	@if cargo nextest --version >/dev/null 2>&1; then \
	    set -x; cargo nextest run $(LOCKED) --workspace; \
	else \
	    set -x; cargo test $(LOCKED) --workspace; \
	fi

test-sdk: rust deps-sdk build ## the A2A SDKs for Python, JavaScript and Rust against a cluster; needs python3 and node
	gateway/tests/sdk/run

# Flags are in `make chaos CHAOS_FLAGS=--help`; each has a variable, too: make chaos CHAOS_SECONDS=60 CHAOS_SEED=7.
chaos: rust deps ## 10 minutes of faults of every kind under load, and proof that nothing was lost; report in target/chaos
	$(call chaos,$(CHAOS_FLAGS))

# A minute of it, with another seed each time: it is printed, and CHAOS_SEED repeats it.
chaos-minute: rust deps
	$(call chaos,--seconds 60)

# Over the workspace, although it needs little of it: with the features of `build`, so that nothing is built twice.
define chaos
	cargo build $(LOCKED) --workspace --bins --test chaos
	cargo test $(LOCKED) --workspace --test chaos -- $(1)
endef

# FUZZ_CASES=1000 for a short one. The tests are those of `make test`, which tries 256 of each.
fuzz: rust deps-redis build ## 100,000 hostile inputs for every reader of what clients send, and for a whole gateway
	PROPTEST_CASES=$(or $(FUZZ_CASES),100000) cargo test $(LOCKED) -p relevo-shared --lib hostile
	PROPTEST_CASES=$(or $(FUZZ_CASES),100000) cargo test $(LOCKED) -p relevo-gateway --lib --test it hostile
	PROPTEST_CASES=$(or $(FUZZ_CASES),100000) cargo test $(LOCKED) -p relevo-worker --lib hostile

crowd: rust deps build ## the long rounds that `test` leaves out: 2,000 conversations at once
	cargo test $(LOCKED) -p relevo-loadtest --test cluster -- --ignored

mutants: rust deps ## breaks each invariant in one line of a copy and asks the tests whether they notice
	shared/tests/mutants/run

# Tests of whole processes start the binaries beside them. Bins and tests in one command, so that dependencies are
# built once, with the features of both.
build: rust
	cargo build $(LOCKED) --workspace --bins --tests

check: fmt-check purity lint tidy ## everything of `ci` that is quick

fmt: rust ## format the code
	cargo fmt --all

fmt-check: rust
	cargo fmt --all --check

lint: rust deps-cc ## clippy, warnings are errors
	cargo clippy $(LOCKED) --workspace --all-targets -- -D warnings

# Never via --workspace: that unifies features, and the impure parts would be there.
purity: rust deps-cc ## the domain compiles without any I/O, and the load test needs no more than that
	cargo check $(LOCKED) -p relevo-shared --no-default-features
	cargo check $(LOCKED) -p relevo-loadtest

tidy: rust deps-cc ## the rules of the repository that no compiler checks
	cargo test $(LOCKED) -p relevo-shared --test tidy

doc: rust deps-cc ## the API documentation, broken links are errors
	RUSTDOCFLAGS="-D warnings" cargo doc $(LOCKED) --workspace --no-deps --document-private-items

bless: rust deps-redis ## rewrite the generated documents
	BLESS=1 cargo test $(LOCKED) --workspace --exclude relevo-loadtest --exclude relevo-testkit

deny: rust ## licences, advisories, sources (needs cargo-deny)
	cargo deny $(LOCKED) check

ci: fmt-check purity lint test test-sdk chaos-minute ## what .ci/run runs

# --- What must be installed --------------------------------------------------------------------------------------

# $(call install,what:package ...) installs the packages whose command or file is missing. A service that a package starts
# does no harm: everything here runs its own servers on unix sockets and free ports.
define install
	@missing=(); \
	for pair in $(1); do \
	    what=$${pair%%:*}; [ -e "$$what" ] || command -v "$$what" >/dev/null || missing+=("$${pair#*:}"); \
	done; \
	[ $${#missing[@]} -gt 0 ] || exit 0; \
	if ! command -v apt-get >/dev/null; then echo "please install: $${missing[*]}" >&2; exit 1; fi; \
	sudo=(); \
	if [ "$$(id -u)" -ne 0 ]; then \
	    if ! command -v sudo >/dev/null; then echo "as root: apt-get install $${missing[*]}" >&2; exit 1; fi; \
	    sudo=(sudo); \
	fi; \
	set -x; \
	"$${sudo[@]}" apt-get update -q; \
	"$${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -q -y --no-install-recommends "$${missing[@]}" </dev/null
endef

# The C compiler links, and builds one cryptography crate; setpriv ties child processes to their test.
deps: ## install what the tests need from Debian
	$(call install,redis-server:redis-server haproxy:haproxy openssl:openssl cc:gcc /usr/include/stdio.h:libc6-dev setpriv:util-linux)

deps-cc:
	$(call install,cc:gcc /usr/include/stdio.h:libc6-dev)

deps-redis:
	$(call install,redis-server:redis-server cc:gcc /usr/include/stdio.h:libc6-dev)

# Debian's python3 has venv in a package of its own, any other has it.
VENV = $(if $(shell python3 -c 'import ensurepip' 2>/dev/null && echo yes),python3,no-venv):python3-venv

deps-sdk: deps-redis
	$(call install,python3:python3 $(VENV) node:nodejs npm:npm setpriv:util-linux)

rust:
	@if ! found=$$(rustc --version 2>/dev/null) || ! cargo --version >/dev/null 2>&1; then \
	    echo "Relevo needs Rust $(RUST_VERSION) or newer and found none: see https://rustup.rs" >&2; exit 1; \
	fi; \
	found=$${found#rustc }; found=$${found%% *}; \
	if [ "$$(printf '%s\n' "$(RUST_VERSION)" "$$found" | sort -V | head -n 1)" != "$(RUST_VERSION)" ]; then \
	    echo "Relevo needs Rust $(RUST_VERSION) or newer and found $$found: try \`rustup update stable\`" >&2; exit 1; \
	fi

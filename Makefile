# The only place where command lines are written down: people, CI and the documents say
# `make TARGET` (`make help` lists them), and the README's commands are these.
#
# Why cargo gets --workspace and never -p here: the selection of packages decides which
# features the shared dependencies have, and a dependency with other features is another
# dependency. aws-sdk-ec2 alone costs minutes and 8 GB; with one selection it is compiled
# once for `make demo` and `make test` together, and once more (as metadata) for `make
# check`. For the same reason no recipe sets RUSTFLAGS, and warnings become errors behind
# clippy's `--`.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Recipes start compilers that fill the memory; cargo and go use the cores themselves.
.NOTPARALLEL:

CARGO ?= cargo
# Where cargo builds to; cargo reads the variable, too.
TARGET := $(or $(CARGO_TARGET_DIR),target)
PROGRAMS := $(TARGET)/debug

# Options of the targets; `make help` explains them.
CONTROL_PLANE ?= embedded
ARGS ?=
TEST ?=
FUZZ_SECONDS ?= 60
PODS ?= 1000

# Naming one test target makes cargo count the dev-dependencies, whose features then are
# those of `cargo test`; without it the programs would be built with a second set. tidy is
# the smallest.
BUILD_PROGRAMS := $(CARGO) build --workspace --bins --test tidy

.PHONY: help demo test check ci control-plane crds fuzz bench bench-burst
.PHONY: programs t fmt doc deny tools

help: ## Show this text
	@echo 'usage: make TARGET [VARIABLE=value ...]'
	@echo
	@awk -F ' ## ' '/^[a-z-]+:.* ## / { split($$1, t, ":"); printf "  %-14s %s\n", t[1], $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo 'variables:'
	@echo '  CONTROL_PLANE  of demo: embedded (default; simulated, needs only Rust) or real (etcd,'
	@echo '                 kube-apiserver, kube-controller-manager and kube-scheduler, built by Go)'
	@echo '  ARGS           more arguments for the program that runs, for example ARGS=--help'
	@echo '  TEST           of t: the test target, for example make t TEST=apiserver ARGS=restart'
	@echo '  FUZZ_SECONDS   of fuzz: for how long, default 60'
	@echo '  PODS           of bench-burst: how many, default 1000'
	@echo
	@echo 'environment:'
	@echo '  KUBEBUILDER_ASSETS      folder whose etcd, kube-apiserver, ... are taken instead of ours'
	@echo '  REQUIRE_APISERVER=1     absence of a control plane or tool fails a test (test sets it)'
	@echo '  MILLWRIGHT_TESTS_KEEP=1 keep the folders of the control planes that tests start'
	@echo '  XDG_CACHE_HOME          where the built control plane and the tools are kept'

# --- run ---------------------------------------------------------------------------------

demo: programs $(if $(filter real,$(CONTROL_PLANE)),control-plane-program) ## Show the main job: pods that cannot be placed get nodes
	@$(CONTROL_PLANE_ENVIRONMENT) $(PROGRAMS)/millwright-loadtest demo --control-plane $(CONTROL_PLANE) $(ARGS)

control-plane: ## Start a real control plane, print its KUBECONFIG line; Ctrl-C ends it
	@program=$$(tests/controlplane/ensure.sh) && folder=$$(mktemp -d) && \
	  exec "$$program" up --shell --dir "$$folder" --remove-dir \
	    $${KUBEBUILDER_ASSETS:+--assets "$$KUBEBUILDER_ASSETS"} $(ARGS)

# Programs that start a control plane themselves look for it in this variable.
CONTROL_PLANE_ENVIRONMENT = \
  $(if $(filter real,$(CONTROL_PLANE)),MILLWRIGHT_CONTROLPLANE="$$(tests/controlplane/ensure.sh)")

.PHONY: control-plane-program
control-plane-program:
	@tests/controlplane/ensure.sh >/dev/null

programs:
	$(BUILD_PROGRAMS)

# --- test --------------------------------------------------------------------------------

test: tools programs ## Install what the tests need, run all of them, fuzz a minute
	REQUIRE_APISERVER=1 $(CARGO) test --workspace --no-fail-fast
	$(MAKE) fuzz

t: programs ## Run one test target: make t TEST=apiserver [ARGS=name-of-a-test]
	$(if $(TEST),,$(error TEST is missing: make t TEST=apiserver))
	$(CARGO) test --workspace --test $(TEST) -- $(ARGS)

fuzz: ## Fuzz the loader of manifests for FUZZ_SECONDS
	tests/fuzz/run.sh $(FUZZ_SECONDS)

# Downloads run beside the Go build; compilers never beside each other: the linker of the
# control plane wants 3 GB, the compiler of aws-sdk-ec2 8 GB.
tools: ## Install what the tests need: control plane, kubectl, helm, boto3
	@$(CARGO) fetch --locked --quiet & fetching=$$!; \
	  tests/tools.sh all && tests/controlplane/ensure.sh && wait $$fetching

# --- measure -----------------------------------------------------------------------------

# With -p, against the rule above: the packing core stands on nothing that the AWS SDK
# stands on, and a benchmark is a profile of its own, in which the SDK would be compiled again.
bench: ## Time the packing core beside the naive reference: [ARGS='ROUNDS LARGEST-FOR-REFERENCE']
	$(CARGO) bench -p millwright-scheduling --bench solve -- $(ARGS)

# What a burst costs is judged on the real API server.
bench-burst: CONTROL_PLANE = real
bench-burst: programs control-plane-program ## Time a burst of PODS pods from creation to binding
	@$(CONTROL_PLANE_ENVIRONMENT) $(PROGRAMS)/millwright-loadtest burst --pods $(PODS) --control-plane $(CONTROL_PLANE) $(ARGS)

# --- check -------------------------------------------------------------------------------

check: ## Format, lints as errors, scripts and Go sources
	$(CARGO) fmt --all --check
	cd tests/fuzz && $(CARGO) fmt --check
	@for script in tests/*.sh tests/*/*.sh; do sh -n "$$script" || exit 1; done
	@bash -n .ci/run
	@if command -v go >/dev/null; then cd tests/controlplane && \
	  unformatted=$$(gofmt -l .) && { [ -z "$$unformatted" ] || { echo "gofmt: $$unformatted" >&2; exit 1; }; } && \
	  go vet -tags supervisor .; fi
	$(CARGO) clippy --workspace --all-targets -- -D warnings

fmt: ## Format everything
	$(CARGO) fmt --all
	cd tests/fuzz && $(CARGO) fmt
	@if command -v gofmt >/dev/null; then gofmt -w tests/controlplane; fi

doc: ## Build the documentation, private items included
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --document-private-items

deny: ## Licences, advisories and bans of dependencies (cargo install cargo-deny)
	$(CARGO) deny --workspace check

# What CI runs. Incremental compilation only fills a disk that is thrown away.
ci: export CI = true
ci: export REQUIRE_APISERVER = 1
ci: export CARGO_INCREMENTAL = 0
ci: ## Exactly what CI runs: check, then test
	$(MAKE) check
	$(MAKE) test

# --- generate ----------------------------------------------------------------------------

crds: programs ## Write the CRD manifests of the chart anew from the types
	$(PROGRAMS)/millwright crds --output deploy/chart/crds $(ARGS)

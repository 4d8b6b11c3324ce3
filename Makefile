# Everything that is done with this repository, as small recipes. CI calls only these (see .ci/run).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# The folders of the debug and of the optimised programs.
DEBUG := $(or $(CARGO_TARGET_DIR),target)/debug
RELEASE := $(or $(CARGO_TARGET_DIR),target)/release
# How many histories `make sim` tries, and the first of them.
SEEDS ?= 10000
FROM ?= 0
CRATES := mcs-core mcs-proto mcs-pem mcs-runtime mcs-registry mcs-controller global-discovery-service global-discovery-client mcs-admin mcs-e2e
PROGRAMS := mcs-registry mcs-controller mcs-admin global-discovery-service

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- use -------------------------------------------------------------------------------------------------------------

.PHONY: build
build: ## Build the four programs, optimised, into bin/
	cargo build --release --locked $(PROGRAMS:%=-p %)
	mkdir -p bin
	cp $(PROGRAMS:%=$(RELEASE)/%) bin/

.PHONY: demo
demo: controlplane ## Show two clusters sharing a Service; ONCE=1 ends by itself
	@echo "building the programs, takes minutes the first time"
	@cargo build --workspace --bins --locked
	@$(DEBUG)/demo $(if $(ONCE),--once)

ETCD := target/controlplane/plain/etcd

# An etcd that is nothing else: the one beside the API server is linked with it, and has its memory.
$(ETCD): e2e/controlplane/go.mod e2e/controlplane/go.sum
	cd e2e/controlplane && CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "-s -w" -o ../../$@ go.etcd.io/etcd/server/v3

.PHONY: bench
bench: controlplane $(ETCD) ## Measure NAME (g1 to g13; all) with optimised programs; QUICK=1 for a first look
	cargo build --release --workspace --bins --locked
	@$(RELEASE)/bench $(NAME) $(if $(QUICK),--quick) $(RATE:%=--rate=%) $(COUNT:%=--count=%)

.PHONY: controlplane
controlplane: ## Build etcd and Kubernetes for tests and demo (once; or set KUBEBUILDER_ASSETS)
	$(if $(KUBEBUILDER_ASSETS),@echo "using the control planes of KUBEBUILDER_ASSETS",e2e/controlplane/build.sh)

# Programs of others that the tests of the charts need.
.PHONY: helm
helm: ## Build helm for tests (once; or have it on PATH, or set HELM)
	@if [[ -n "$(HELM)" ]] || helm version --template '{{.Version}}' 2>/dev/null | grep -q '^v3\.'; then \
		echo "using the helm of $(or $(HELM),PATH)"; \
	else \
		e2e/tools/build.sh helm; \
	fi

.PHONY: prometheus
prometheus: ## Build prometheus and promtool for tests (once; or have them on PATH)
	@if command -v prometheus promtool >/dev/null; then \
		echo "using the prometheus of PATH"; \
	else \
		e2e/tools/build.sh prometheus; \
	fi

# --- images ----------------------------------------------------------------------------------------------------------

# The image of registry, controller and admin; that of the discovery service is called after it.
IMG ?= global-discovery-mcs:$(VERSION)
IMG_DISCOVERY ?= $(subst global-discovery-mcs,global-discovery-service,$(IMG))
VERSION := $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# Another base, as of a mirror: RUNTIME_IMAGE=…
IMAGE_ARGS = --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) \
	$(RUNTIME_IMAGE:%=--build-arg RUNTIME_IMAGE=%) $(RUST_IMAGE:%=--build-arg RUST_IMAGE=%)
BUILD_STAGE = $(if $(PREBUILT),prebuilt,compiled)
OTHER_STAGE = $(if $(PREBUILT),compiled,prebuilt)
# An engine without BuildKit builds every stage, so the one that is not wanted is taken out.
DOCKERFILE = sed '/^FROM .* AS $(OTHER_STAGE)$$/,/^$$/d' Dockerfile
DOCKER_BUILD = $(DOCKERFILE) | docker build -f - $(IMAGE_ARGS) --build-arg BUILD=$(BUILD_STAGE)

.PHONY: docker-build
docker-build: $(if $(PREBUILT),build) ## Build both images as IMG; PREBUILT=1 takes the programs of `make build`
	@if [[ "$(IMG)" == "$(IMG_DISCOVERY)" ]]; then \
		echo "IMG lacks the name global-discovery-mcs, so name the other image too: IMG_DISCOVERY=…" >&2; exit 1; \
	fi
	$(DOCKER_BUILD) --target mcs -t $(IMG) .
	$(DOCKER_BUILD) --target discovery -t $(IMG_DISCOVERY) .
	@# A program that was linked with a newer libc than the image has does not start.
	@for program in mcs-registry mcs-controller mcs-admin; do docker run --rm --network none $(IMG) /$$program --version; done
	@docker run --rm --network none $(IMG_DISCOVERY) --version

.PHONY: docker-push
docker-push: ## Push both images
	docker push $(IMG)
	docker push $(IMG_DISCOVERY)

# --- test ------------------------------------------------------------------------------------------------------------

# The programs are built first: tests of whole clusters start them as they are shipped.
.PHONY: test
test: controlplane helm prometheus ## Run every test that needs no container engine, and count them
	cargo build --workspace --bins --locked
	cargo test --workspace --locked --no-fail-fast | .ci/count-tests

# The images that `make e2e` brings to its clusters, and the program that runs it; see docs/e2e.md.
.PHONY: e2e-images
e2e-images: helm
	@for program in docker kind kubectl; do \
		command -v "$$program" >/dev/null || { echo "$$program is not on PATH, see docs/e2e.md" >&2; exit 1; }; \
	done
	$(MAKE) --no-print-directory docker-build PREBUILT=1 IMG=global-discovery-mcs:e2e
	cargo build --release --locked -p mcs-e2e --bin kind --bin workload

.PHONY: e2e
e2e: e2e-images ## Run the programs in three kind clusters; PHASE=4 (or "2 4"): these phases only, the clusters stay
	@$(RELEASE)/kind run $(PHASE)

.PHONY: e2e-up
e2e-up: e2e-images ## Make the clusters of `make e2e` (KIND_NODE_IMAGE), join them, bring the images to them
	@$(RELEASE)/kind up

.PHONY: e2e-down
e2e-down: ## Delete the clusters of `make e2e`
	cargo build --release --locked -p mcs-e2e --bin kind
	@$(RELEASE)/kind down

# The suite is made outside of this repository, see docs/conformance.md.
.PHONY: conformance-suite
conformance-suite:
	@if [[ ! -f "$(CONFORMANCE)" ]]; then \
		echo "CONFORMANCE must name the suite's test binary, see docs/conformance.md: make conformance CONFORMANCE=<path>" >&2; exit 1; \
	elif [[ -n "$(filter-out kind,$(PROVIDER))" ]]; then \
		echo "PROVIDER is kind, or not set" >&2; exit 1; \
	fi

.PHONY: conformance
conformance: conformance-suite $(if $(PROVIDER),e2e-images,controlplane) ## Run the MCS API suite CONFORMANCE against two clusters; PROVIDER=kind: all of it
ifeq ($(PROVIDER),kind)
	cargo build --release --locked -p mcs-e2e --bin conformance
	@$(RELEASE)/conformance "$(CONFORMANCE)" --kind $(if $(FLAGS),-- $(FLAGS))
else
	cargo build --workspace --bins --locked
	@$(DEBUG)/conformance "$(CONFORMANCE)" $(if $(SINGLE_STACK),--single-stack) $(if $(FLAGS),-- $(FLAGS))
endif

# One at a time, so that each measures itself alone.
.PHONY: faults
faults: ## Attack the servers with thousands of connections and slow clients, and tell what that cost
	cargo test --locked -p mcs-registry --test faults -- --include-ignored --nocapture --test-threads=1
	cargo test --locked -p global-discovery-service --test faults -- --include-ignored --nocapture --test-threads=1

.PHONY: sim
sim: ## Try SEEDS (10000) random histories of registry and controllers, FROM (0) on
	FROM=$(FROM) SEEDS=$(SEEDS) cargo test --release --locked -p mcs-core --test simulation -- --nocapture

# The targets are a crate of their own, which only this recipe builds; findings become tests of the workspace.
.PHONY: fuzz
fuzz: ## Fuzz TARGET (see fuzz/fuzz_targets) for MINUTES (10); needs nightly Rust and cargo-fuzz
	@if ! cargo +nightly --version >/dev/null 2>&1; then \
		echo "fuzzing needs a nightly compiler: rustup toolchain install nightly" >&2; exit 1; \
	elif ! command -v cargo-fuzz >/dev/null; then \
		echo "fuzzing needs cargo-fuzz: cargo install --locked cargo-fuzz" >&2; exit 1; \
	elif [[ ! -f "fuzz/fuzz_targets/$(TARGET).rs" ]]; then \
		echo "TARGET is one of: $$(cd fuzz/fuzz_targets && ls | sed 's/\.rs$$//' | xargs)" >&2; exit 1; \
	fi
	mkdir -p fuzz/corpus/$(TARGET)
	cd fuzz && cargo +nightly fuzz run -s none --fuzz-dir . $(TARGET) corpus/$(TARGET) seeds/$(TARGET) -- \
		$(patsubst fuzz/%,-dict=%,$(wildcard fuzz/dictionaries/$(TARGET))) -max_len=65536 -rss_limit_mb=2048 \
		-max_total_time=$$(($(or $(MINUTES),10) * 60))

.PHONY: fuzz-check
fuzz-check: ## Check that the fuzz targets compile, with the compiler that everything else has
	RUSTFLAGS="--cfg fuzzing" cargo check --quiet --manifest-path fuzz/Cargo.toml --no-default-features --all-targets --locked \
		--target-dir $(or $(CARGO_TARGET_DIR),target)/fuzz-check

# --- check -----------------------------------------------------------------------------------------------------------

.PHONY: lint
lint: fmt-check clippy doc crds-check openapi-check config-check charts-check cases-check check-alone one-crypto deny ## Check format, lints, docs, generated files, dependencies

.PHONY: fmt
fmt: ## Format the code
	cargo fmt --all

.PHONY: fmt-check
fmt-check:
	cargo fmt --all --check

.PHONY: clippy
clippy:
	cargo clippy --workspace --all-targets --locked -- -D warnings

.PHONY: doc
doc: ## Build the documentation of the crates
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Each crate by itself: with the features of the others unified in, a missing one does not show.
.PHONY: check-alone
check-alone:
	for crate in $(CRATES); do cargo check --quiet --locked -p "$$crate"; done

# One crypto provider in the process (aws-lc-rs); two make rustls panic.
.PHONY: one-crypto
one-crypto:
	@packages=$$(cargo tree --workspace --locked --edges all --prefix none); \
	if grep -E '^(ring|openssl-sys|native-tls) v' <<<"$$packages"; then \
		echo "a dependency brings the crypto library above; find it with: cargo tree --workspace -i <crate>" >&2; exit 1; \
	fi

# Licences, banned crates and sources need no network; advisories do, and run where they can be fetched.
.PHONY: deny
deny: ## Check licences and sources of dependencies (needs cargo-deny)
	@if ! command -v cargo-deny >/dev/null; then \
		echo "cargo-deny is not installed, licences are not checked: cargo install --locked cargo-deny"; \
	else \
		cargo deny --locked --offline check licenses bans sources; \
	fi

.PHONY: advisories
advisories: ## Check dependencies for known vulnerabilities (needs cargo-deny and network)
	cargo deny --locked check advisories

# --- generate --------------------------------------------------------------------------------------------------------

.PHONY: openapi
openapi: ## Write docs/openapi.json and docs/openapi-discovery.json anew from the routes
	UPDATE_OPENAPI=1 cargo test --locked -p mcs-registry --test it the_document_checked_in | .ci/some-tests
	UPDATE_OPENAPI=1 cargo test --locked -p global-discovery-service --test it the_document_checked_in | .ci/some-tests

.PHONY: openapi-check
openapi-check:
	cargo test --locked -p mcs-registry --test it the_document_checked_in | .ci/some-tests
	cargo test --locked -p global-discovery-service --test it the_document_checked_in | .ci/some-tests

.PHONY: cases-check
cases-check: ## Fail if the table of cases names other tests than name the cases
	.ci/check-cases

.PHONY: config
config: ## Write docs/configuration.md anew from the flags of the programs
	UPDATE_CONFIG=1 cargo test --locked -p mcs-e2e --test it configuration:: | .ci/some-tests

.PHONY: config-check
config-check:
	cargo test --locked -p mcs-e2e --test it configuration:: | .ci/some-tests

.PHONY: crds
crds: ## Write the CRDs anew from the types of the controller
	UPDATE_CRDS=1 cargo test --locked -p mcs-controller --test it crds:: | .ci/some-tests

.PHONY: crds-check
crds-check:
	cargo test --locked -p mcs-controller --test it crds:: | .ci/some-tests

.PHONY: charts
charts: helm ## Write the goldens of the charts and the tables in their READMEs anew
	UPDATE_CHARTS=1 cargo test --locked -p mcs-e2e --test charts -- goldens:: readme:: | .ci/some-tests

.PHONY: charts-check
charts-check: helm
	cargo test --locked -p mcs-e2e --test charts -- goldens:: readme:: flags:: guides:: | .ci/some-tests

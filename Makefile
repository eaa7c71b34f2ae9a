# One verb each; `make help` lists them. Everything runs without a GPU.

SHELL       := /bin/bash -o pipefail
GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS     := -s -w -X main.version=$(VERSION)
# How long, or how often (300x), each fuzz target runs.
FUZZTIME    ?= 10s
BENCHTIME   ?= 1s
# go-nvml wraps functions that NVIDIA calls deprecated; the rest is Go's default.
export CGO_CFLAGS ?= -O2 -g -Wno-deprecated-declarations
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/dcgm-exporter and bin/gpuop
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/dcgm-exporter ./cmd/dcgm-exporter
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/gpuop ./cmd/gpuop

.PHONY: run
run: build ## Serve this machine's GPUs on :9400, or a simulated node where there are none
	@./bin/dcgm-exporter --sim-fallback --collectors etc/default-counters.csv --collect-interval 5000

.PHONY: test
test: prometheus ## Run every test (no GPU, no root, no running server)
	@skipped=$$(mktemp) && code=0; SKIPPED_CHECKS=$$skipped $(GO) test ./... || code=$$?; \
	  cut -d' ' -f1 $$skipped | sort | uniq -c | awk '{print "SKIP " $$2 ": it cost this run " $$1 " checks"}'; \
	  rm -f $$skipped; exit $$code

.PHONY: prometheus
prometheus: ## Install the Prometheus that the dashboards are tested with; without one that test is skipped
	@tests/dashboards/prometheus.sh >/dev/null || [ -z "$$CI" ]

.PHONY: race
race: prometheus ## Run the tests under the race detector; those of memory say nothing under it
	$(GO) test -race -timeout 30m $$($(GO) list ./... | grep -v /tests/bench)

.PHONY: lint
lint: ## Check formatting, vet and static analysis
	@out=$$(gofmt -l cmd etc internal tests); [ -z "$$out" ] || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags gpu ./tests/hardware/...
	$(GO) vet -tags e2e ./tests/e2e/...
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/dcgm-exporter
	$(GO) run $(STATICCHECK) ./...

.PHONY: generate
generate: ## Regenerate the field catalog and the generated pages (the tables of charts: docs/contributing.md)
	$(GO) generate $$($(GO) list ./... | grep -v internal/gpuop/chart$$)

.PHONY: check-generated
check-generated: generate ## Fail if a generated file is not what its source says
	git diff --exit-code -- internal docs etc

.PHONY: check-config
check-config: build ## Check every shipped counters file
	./bin/dcgm-exporter check etc/*.csv

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@set -e; for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' cmd internal tests | xargs -n1 dirname | sort -u); do \
	  for target in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | sed 's/func //'); do \
	    echo "fuzz $$pkg $$target"; $(GO) test ./$$pkg -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME); \
	  done; done

.PHONY: bench
bench: ## Run the benchmarks that docs/performance.md tells about
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./internal/... ./tests/...

.PHONY: golden-diff
golden-diff: ## Show how the pages of CASE (a regular expression) differ from those of BASE (default HEAD)
	@[ -n '$(CASE)' ] || { echo "golden-diff needs a CASE, such as CASE=sim-t4/default/classic/pods/plain"; exit 2; }
	@dir=$$(mktemp -d) && git worktree add --quiet --detach $$dir/base $(or $(BASE),HEAD) && \
	  { (cd $$dir/base && $(GO) test ./tests/goldens -count=1 -dump $$dir/was -case '$(CASE)') >/dev/null; \
	    $(GO) test ./tests/goldens -count=1 -dump $$dir/is -case '$(CASE)' >/dev/null; \
	    git worktree remove --force $$dir/base; echo "pages in $$dir/was and $$dir/is"; \
	    diff -ru $$dir/was $$dir/is || true; }

.PHONY: hardware
hardware: ## Run the contract suite on a real GPU, and compare with nvidia-smi
	REQUIRE_GPU=1 $(GO) test -count=1 -tags gpu -v ./tests/hardware/...

.PHONY: e2e
e2e: ## Test on a real one-node Kubernetes, started and ended for it (root; builds it once, in ten minutes)
	GO=$(GO) tests/e2e/run.sh

.PHONY: image
image: build ## Build the container image without a registry, and run it (root, buildah, podman, runc)
	deployment/docker/build.sh

.PHONY: ci
ci: test ci-rest ## Everything that CI runs, but for the image

.PHONY: ci-rest
ci-rest: lint check-generated check-config race gpuop-all
	$(MAKE) fuzz FUZZTIME=300x
	$(MAKE) bench BENCHTIME=100ms

.PHONY: gpuop-all
gpuop-all: ## Compare gpuop with every release of the chart, where a plain test takes a sample
	GPUOP_ALL=1 $(GO) test ./internal/gpuop/lint ./internal/gpuop/values

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin

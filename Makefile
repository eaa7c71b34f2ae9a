# `make help` lists the targets. Only `make hardware` needs a GPU.

SHELL       := /bin/bash -o pipefail
GO          ?= go
# Go downloads the toolchain that go.mod names, unless it is installed.
export GOTOOLCHAIN := auto
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
REVISION    ?= $(shell git describe --always --abbrev=40 --dirty --exclude='*' 2>/dev/null)
# The date of the commit makes the files, packages and images of a commit reproducible.
EPOCH       ?= $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
DATE        := $(shell date -u -d @$(EPOCH) +%Y-%m-%dT%H:%M:%SZ)
LDFLAGS     := -s -w -X main.version=$(VERSION) -X main.revision=$(REVISION) -X main.date=$(DATE)
# Each fuzz target runs for this time, or this often (300x).
FUZZTIME    ?= 10s
BENCHTIME   ?= 1s
# The C compiler warns about the deprecated functions that go-nvml wraps. SILENT turns the warnings off. It changes the
# compiler flags, so go-nvml would be compiled again for `go test` outside make. Targets that share their build cache with
# it depend on go-nvml instead.
SILENT      := CGO_CFLAGS="-O2 -Wno-deprecated-declarations"
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.7.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: gcc go-nvml ## Build bin/dcgm-exporter and bin/gpuop
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/dcgm-exporter ./cmd/dcgm-exporter
	CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o bin/gpuop ./gpuop

# Compile go-nvml and hide its warnings. Later builds find it in Go's cache and print no warnings.
.PHONY: go-nvml
go-nvml:
	@$(GO) build github.com/NVIDIA/go-nvml/pkg/nvml 2>/dev/null || true

# If there is no C compiler, programs are built without cgo. The exporter then cannot read DCGM and NVML, but it can
# simulate a node.
COMPILER    := $(shell command -v $${CC:-gcc} 2>/dev/null)
ifeq ($(COMPILER),)
CGO_ENABLED ?= 0
export CGO_ENABLED
endif

.PHONY: run
run: ## Serve this machine's GPUs on :9400, or a simulated node where there are none
	@[ "$$CGO_ENABLED" != 0 ] || echo "Without a C compiler: the program reads no GPU and serves a simulated node"
	@echo "Building bin/dcgm-exporter (the first time takes some minutes), then serving http://localhost:9400"
	@$(MAKE) --no-print-directory go-nvml
	@$(GO) build -ldflags '$(LDFLAGS)' -o bin/dcgm-exporter ./cmd/dcgm-exporter
	@./bin/dcgm-exporter --sim-fallback --collectors etc/default-counters.csv --collect-interval 5000

.PHONY: gcc
gcc:
	@[ "$(origin CGO_ENABLED)" = environment ] || [ -n "$(COMPILER)" ] || { echo "$${CC:-gcc} is missing: install it (apt-get install gcc libc6-dev), or build without DCGM and NVML by CGO_ENABLED=0 make build" >&2; exit 1; }

# $(call counted,COMMAND) runs tests, and then prints for each reason how many checks were skipped.
counted = skipped=$$(mktemp) && code=0; SKIPPED_CHECKS=$$skipped $(1) || code=$$?; \
	  cut -d' ' -f1 $$skipped | sort | uniq -c | awk '{print "SKIP " $$2 ": it cost this run " $$1 " checks"}'; \
	  rm -f $$skipped; exit $$code

# Packages are tested in this order, four at a time. The first ones mostly wait, and the next ones need the most CPU time.
# Go tests a package once even if it is named twice. Debugging information is not linked, and vet is a part of lint, which
# saves a tenth of the time of a first run.
WAITING     := ./tests/process
COMPUTING   := ./tests/rules ./tests/dashboards ./tests/scenarios ./tests/goldens
# The test of deployment/alertmanager is a separate module, because it needs 48 modules that nothing else needs.
ALERTMANAGER := tests/alertmanager

.PHONY: test
test: prometheus go-nvml ## Run every test (no GPU, no root, no running server; without a C compiler those that need none)
	@[ "$$CGO_ENABLED" != 0 ] || echo "Without a C compiler: tests over the C test libraries are skipped (compiler-absent)"
	@$(call counted,$(GO) test -p 4 -vet=off -ldflags='-s -w' $(WAITING) $(COMPUTING) ./...)
	@cd $(ALERTMANAGER) && $(GO) test -vet=off -ldflags='-s -w' ./...

.PHONY: prometheus
prometheus: ## Install the promtool that rules are tested with; without it those tests are skipped
	@tests/rules/promtool.sh >/dev/null || [ -z "$$CI" ]

.PHONY: scrapers
scrapers: ## Build the scrapers and databases that docs/integrations is tested with; without them those tests are skipped
	GO=$(GO) tests/manifests/scrapers.sh --build vmagent vmalert victoria-metrics prometheus otelcol

# 1,250 nodes with eight GPUs each need 10 GiB of memory.
NODES       ?= 1250
MINUTES     ?= 20

.PHONY: fleet
fleet: ## Measure a Prometheus that scrapes NODES simulated nodes for MINUTES, without and with the recording rules
	$(GO) build -o bin/fleet ./tests/fleet
	bin/fleet -nodes $(NODES) -minutes $(MINUTES) -prometheus "$$(GO=$(GO) tests/manifests/scrapers.sh --build prometheus)"

# Packages with concurrent code, and the whole program. Other packages would only compile every dependency again.
RACING      := ./internal/... ./gpuop/cli/... ./gpuop/cluster/... ./tests/process ./tests/scenarios ./tests/pagefuzz

.PHONY: race
race: ## Run the tests of concurrent code under the race detector
	$(SILENT) $(GO) test -race -timeout 30m $(RACING)

.PHONY: lint
lint: go-nvml ## Check formatting, vet and static analysis
	@out=$$(gofmt -l cmd etc gpuop internal tests tools); [ -z "$$out" ] || { echo "not gofmt'ed:"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(GO) vet -tags generate ./tools/grafana
	cd $(ALERTMANAGER) && $(GO) vet ./...
	$(GO) vet -tags gpu ./tests/hardware/...
	$(GO) vet -tags e2e ./tests/e2e/...
	$(GO) vet -tags images ./tests/images/...
	$(GO) vet -tags packages ./tests/packages/...
	CGO_ENABLED=0 $(GO) build -o /dev/null ./cmd/dcgm-exporter
	$(GO) run $(STATICCHECK) ./...

.PHONY: generate
generate: go-nvml ## Regenerate the field catalog and the generated pages (the tables of charts: docs/gpuop/dev/recipes.md)
	$(GO) generate $$($(GO) list ./... | grep -v gpuop/chart$$) ./tools/grafana
	$(GO) run ./tools/metrics
	$(GO) run ./tools/alerts
	$(MAKE) chart-files

.PHONY: chart
chart: chart-files ## Write what is derived of the Helm chart (schema, defaults, deployment/kubernetes), and check it
	$(GO) test ./tests/chart

.PHONY: chart-files
chart-files:
	$(GO) run ./tools/chart

.PHONY: check-generated
check-generated: ## Fail if a generated file is not what its source says; uncommitted edits do not matter
	@before=$$(git -c user.name=make -c user.email=make@localhost stash create) && $(MAKE) --no-print-directory generate && \
	  git diff --exit-code $${before:-HEAD} -- internal gpuop docs etc grafana deployment

.PHONY: check-config
check-config: build ## Check every shipped counters file
	./bin/dcgm-exporter check etc/*.csv

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@set -e; for pkg in $$(grep -rl --include='*_test.go' '^func Fuzz' cmd gpuop internal tests tools | xargs -n1 dirname | sort -u); do \
	  for target in $$(grep -ho '^func Fuzz[A-Za-z0-9_]*' $$pkg/*_test.go | sed 's/func //'); do \
	    echo "fuzz $$pkg $$target"; $(SILENT) $(GO) test ./$$pkg -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME); \
	  done; done

.PHONY: bench
bench: go-nvml ## Run the benchmarks that docs/performance.md reports
	$(GO) test -run '^$$' -bench . -benchmem -benchtime $(BENCHTIME) ./internal/... ./gpuop/... ./tests/...

.PHONY: hardware
hardware: go-nvml ## Run the contract suite on a real GPU, and compare with nvidia-smi
	REQUIRE_GPU=1 $(GO) test -count=1 -tags gpu -v ./tests/hardware/...

.PHONY: states
states: ## Test gpuop with states of clusters on a real API server (no root; builds the server once, in ten minutes)
	GO=$(GO) tests/e2e/run.sh --states
.PHONY: e2e
e2e: ## Test on a real one-node Kubernetes, started and ended for it (root; builds it once, in ten minutes)
	GO=$(GO) tests/e2e/run.sh

# The architectures of images, packages and archives, and the C compiler of each.
ARCHES      ?= amd64 arm64
HOSTARCH    := $(shell $(GO) env GOHOSTARCH)
PACKAGES    := $(if $(filter file,$(origin ARCHES)),$(HOSTARCH),$(ARCHES))
CC_amd64    := $(if $(filter amd64,$(HOSTARCH)),gcc,x86_64-linux-gnu-gcc)
CC_arm64    := $(if $(filter arm64,$(HOSTARCH)),gcc,aarch64-linux-gnu-gcc)

.PHONY: cross $(addprefix cross-,$(ARCHES))
cross: $(addprefix cross-,$(ARCHES)) ## Build the programs for linux/amd64 and linux/arm64 into bin/linux (gcc-aarch64-linux-gnu)
$(addprefix cross-,$(ARCHES)): cross-%:
	@command -v $(CC_$*) >/dev/null || { echo "$(CC_$*) is missing: apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross"; exit 1; }
	$(SILENT) CC=$(CC_$*) CGO_ENABLED=1 GOOS=linux GOARCH=$* $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/linux/$*/dcgm-exporter ./cmd/dcgm-exporter
	CGO_ENABLED=0 GOOS=linux GOARCH=$* $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/linux/$*/gpuop ./gpuop

.PHONY: image
image: cross-$(HOSTARCH) ## Build localhost/dcgm-exporter:dev without a registry; TARGETS=nvml: the image without DCGM (root, buildah)
	TARGETS='$(or $(TARGETS),dcgm)' ARCHES=$(HOSTARCH) VERSION=$(VERSION) REVISION=$(REVISION) EPOCH=$(EPOCH) deployment/docker/build.sh

.PHONY: image-test
image-test: cross ## Build both images for both architectures, with a stand-in for DCGM, and run them (root, buildah, podman)
	@export VERSION=$(VERSION) REVISION=$(REVISION) EPOCH=$(EPOCH); $(call counted,$(GO) test -count=1 -tags images -timeout 20m -v ./tests/images)

.PHONY: packages
packages: $(addprefix cross-,$(PACKAGES)) ## Build the packages for Debian and RPM into dist/packages, for this architecture or for ARCHES
	rm -rf dist/packages
	VERSION=$(VERSION) EPOCH=$(EPOCH) ARCHES='$(PACKAGES)' deployment/packages/build.sh dist/packages

.PHONY: packages-test
packages-test: cross ## Install, upgrade and remove the packages in a minimal Debian, and build a release (root, debootstrap, rpm)
	@$(call counted,$(GO) test -count=1 -tags packages -timeout 20m -v ./tests/packages)

.PHONY: release
release: cross ## Build every part of the release VERSION=v0.1.0 from its tag into dist/VERSION: docs/contributing.md
	VERSION=$(VERSION) REVISION=$(REVISION) EPOCH=$(EPOCH) ARCHES='$(ARCHES)' deployment/release/build.sh dist/$(VERSION)

.PHONY: ci
ci: test ci-rest ## Everything that CI runs, but for the image

.PHONY: ci-rest
ci-rest: lint check-generated check-config race storm gpuop-all contradicted
	$(MAKE) fuzz FUZZTIME=300x
	$(MAKE) bench BENCHTIME=100ms

.PHONY: storm
storm: ## Storms of XIDs in full size: 2,500 over 20 reloads, and 10,000 random ones
	XID_STORM=1 $(GO) test -count=1 ./tests/process -run TestXIDsInAStormOverReloads -v
	XID_STORM=1 $(GO) test -count=1 ./tests/goldens -run TestRandomXIDsAreCountedOnce -v

.PHONY: gpuop-all
gpuop-all: ## Compare gpuop with every release of the chart, where a plain test takes a sample
	GPUOP_ALL=1 $(GO) test ./gpuop/lint ./gpuop/values ./gpuop/images ./tools/operator

.PHONY: contradicted
contradicted: ## A million pages of work that contradicts no profiling field, where a plain test has some thousand
	CONTRADICTED_PAGES=1000000 $(GO) test ./internal/snapshot -run ^TestWorkloadsAreNotContradicted$$

.PHONY: healthy
healthy: ## A million simulated pages of healthy work, each with the verdict ok, where a plain test has some thousand
	HEALTHY_PAGES=1000000 $(GO) test -timeout 60m ./tests/scenarios -run ^TestHealthyWorkIsOK$$

.PHONY: vulnerabilities
vulnerabilities: ## Check both programs against Go's vulnerability database
	.ci/vulnerabilities

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin dist

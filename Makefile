# What a newcomer needs: `make demo` and `make test`. Everything they download
# lies in .cache and node_modules, pinned and checked; a second run downloads
# nothing.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CACHE := .cache
BIN := $(CACHE)/bin
TOOLS := $(CACHE)/tools
OUT ?= out/demo
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

export SWARM_TOOLS_DIR := $(CURDIR)/$(TOOLS)

.PHONY: e2e engine image preview policy help setup demo test lint fuzz bench-million build tools clean vuln

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: ## Fetch the llama.cpp libraries and the demo model
	@scripts/setup.sh

build: ## Build the swarm command into .cache/bin
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN)/swarm ./cmd/swarm

demo: setup build ## Run 48 users through the whole pipeline with a real model
	@$(BIN)/swarm run --input examples/users.csv --out $(OUT) \
		$$(if [ -z "$${SWARM_MODEL:-}" ]; then cat $(CACHE)/models/demo.args; fi)
	@echo
	@echo "Open $(OUT)/report.html in a browser, and any of $(OUT)/mail/*.eml in a mail program."
	@echo "The demo model has 135 million parameters: it shows the pipeline, not good prose."
	@echo "SWARM_MODEL=/path/to/model.gguf OUT=out/mine make demo takes a better one."

tools: ## Build the pinned programs that tests run
	@mkdir -p $(TOOLS)
	@CGO_ENABLED=0 go build -C tools -o $(CURDIR)/$(TOOLS)/ $$(go list -C tools -f '{{.ImportPath}}' tool | grep -v '/pulumi$$')

engine: ## Build the Pulumi engine that tests run, once; it is large
	@scripts/engine.sh

lint: tools ## gofmt, go vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	@go vet ./...
	@$(TOOLS)/staticcheck ./...

preview: ## The preview of the dev stack with its cost review and the policies' verdict; no AWS account
	@scripts/preview.sh

policy: ## Build the policy pack into .cache/bin, and docs/policies.md out of it
	@mkdir -p $(BIN)
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(BIN)/briefing-swarm-policies ./policy/pack
	@go test ./policy -run TestPage -update

vuln: tools ## Known vulnerabilities in what we depend on (needs the network)
	@$(TOOLS)/govulncheck ./...

test: setup lint engine ## Everything that must pass: linters, then all tests with the race detector
	@scripts/test-tools.sh
	@scripts/moto.sh
	@scripts/states.sh
	@go test -race -timeout 30m ./...

e2e: tools ## The Lambda program under its runtime emulator, on this processor and on an emulated Graviton2
	@scripts/e2e.sh

image: tools ## Build the worker image for both processors, run it, push it to a loopback registry
	@scripts/image.sh

fuzz: ## Fuzz every parser for 30 seconds each
	@scripts/fuzz.sh 30s

bench-million: ## 1,000,000 users from file to reconciled Parquet with a fake model
	@go test ./runtime/local -run '^$$' -bench Million -benchtime 1x -timeout 20m

clean: ## Remove what was built and fetched
	@rm -rf $(CACHE) node_modules out

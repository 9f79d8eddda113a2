# make run     the main job: build, then measure TCP on this machine
# make test    every test; sets up what they need on Debian
# The rest is for development; see CONTRIBUTING.md.

GO ?= go
BIN := bin/kvbench
FUZZTIME ?= 10s

.PHONY: all build run test race fuzz bench compare lint fmt setup clean test-hdr test-model test-rdma cross

all: build

build:
	$(GO) build -o $(BIN) ./cmd/kvbench

run: build
	./$(BIN) loopback

# Tools that tests use. Without root, or elsewhere than on Debian, what is
# missing shows as a skip with its reason.
setup:
	@scripts/setup

test: setup lint
	$(GO) test ./...

race:
	$(GO) test -race -p 1 -timeout 20m ./...

# Every fuzz target in turn, FUZZTIME each.
fuzz:
	@scripts/fuzz $(FUZZTIME)

# Histograms are read back by another implementation of HdrHistogram.
test-hdr: build
	@scripts/check-hdr ./$(BIN)

# The model against links whose truth is known: shaped pairs of network
# namespaces. Needs root; takes about four minutes.
test-model: setup
	$(GO) test -tags slow -count 1 -run Shaped ./cmd/kvbench

# RDMA on Soft-RoCE in a virtual machine; installs qemu and UCX on Debian. Takes
# about three minutes.
test-rdma:
	@scripts/test-rdma

# What must build, and where C is absent.
cross:
	for t in linux/amd64 linux/arm64 darwin/arm64; do \
		CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build -o /dev/null ./... || exit 1; \
		CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) vet ./... || exit 1; \
	done
	CGO_ENABLED=0 $(GO) build -tags static -o /dev/null ./...
	CGO_ENABLED=0 $(GO) vet -tags static ./...

bench:
	$(GO) test -run '^$$' -bench . -benchmem ./...
	@scripts/compare-iperf3 ./$(BIN)

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags slow ./cmd/kvbench
	$(GO) tool staticcheck ./...

fmt:
	gofmt -w .

clean:
	rm -rf bin out

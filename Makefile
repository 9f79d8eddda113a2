# make run     the main job: build, then measure TCP on this machine
# make test    every test that needs neither a VM nor long; sets up what they need on Debian
# The rest is for development; see CONTRIBUTING.md.

GO ?= go
BIN := bin/kvbench
FUZZTIME ?= 10s
# UCX is bound in where its headers are. Asked anew each time: setup installs them.
TAGS = $(shell $(CC) -E -x c -include ucp/api/ucp.h /dev/null >/dev/null 2>&1 && echo ucx)
with_ucx = @[ -n "$(TAGS)" ] || echo "without ucx, whose headers are not installed: no --transport rdma (Debian: apt-get install libucx-dev)" >&2

.PHONY: all build static run test race fuzz bench lint fmt setup clean test-hdr test-model test-rdma cross

all: build

build:
	$(with_ucx)
	$(GO) build -tags "$(TAGS)" -o $(BIN) ./cmd/kvbench

# One file that starts on any Linux. Without a C library to load others by it has neither
# RDMA nor GPU memory.
static:
	CGO_ENABLED=0 $(GO) build -tags static -o $(BIN) ./cmd/kvbench

run: build
	./$(BIN) loopback

# Tools that tests use. Without root, or elsewhere than on Debian, what is
# missing shows as a skip with its reason.
setup:
	@scripts/setup

test: setup lint
	$(with_ucx)
	$(GO) test -p 1 -tags "$(TAGS)" ./...

race: setup
	$(with_ucx)
	$(GO) test -tags "$(TAGS)" -race -p 1 -timeout 30m ./...

# Every fuzz target in turn, FUZZTIME each.
fuzz:
	@scripts/fuzz $(FUZZTIME) "$(TAGS)"

# Histograms are read back by another implementation of HdrHistogram.
test-hdr: build
	@scripts/check-hdr ./$(BIN)

# The model against links whose truth is known: shaped pairs of network
# namespaces. Needs root; takes about five minutes.
test-model: setup
	$(GO) test -tags "slow,$(TAGS)" -count 1 -timeout 40m -run Shaped ./cmd/kvbench

# RDMA on Soft-RoCE in an emulated virtual machine; installs qemu and UCX on Debian.
# Takes about a quarter of an hour.
test-rdma: setup
	@scripts/test-rdma

# What must build, and where C is absent.
cross:
	for t in linux/amd64 linux/arm64 darwin/arm64; do \
		CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build -o /dev/null ./... || exit 1; \
		CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) vet ./... || exit 1; \
	done
	CGO_ENABLED=0 $(GO) build -tags static -o /dev/null ./...
	CGO_ENABLED=0 $(GO) vet -tags static ./...

bench: build
	$(GO) test -tags "$(TAGS)" -run '^$$' -bench . -benchmem ./...
	@scripts/compare-iperf3 ./$(BIN)
	@[ -z "$(TAGS)" ] || scripts/compare-ucx ./$(BIN)

lint:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) vet -tags "slow,$(TAGS)" ./...
	$(GO) tool staticcheck ./...
	$(GO) tool staticcheck -tags "slow,$(TAGS)" ./...

fmt:
	gofmt -w .

clean:
	rm -rf bin out

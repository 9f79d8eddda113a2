# make run     the main job: build, then measure TCP on this machine
# make test    the tests; sets up what they need on Debian
# The rest is for development; see CONTRIBUTING.md.

GO ?= go
BIN := bin/kvbench
FUZZTIME ?= 10s
# UCX is bound in where its headers are. Asked anew each time: setup installs them.
TAGS = $(shell $(CC) -E -x c -include ucp/api/ucp.h /dev/null >/dev/null 2>&1 && echo ucx)
with_ucx = @[ -n "$(TAGS)" ] || echo "without ucx, whose headers are not installed: no --transport rdma (Debian: apt-get install libucx-dev)" >&2
# The race detector needs a C compiler. RACE= runs the tests without it.
RACE = $(if $(filter 1,$(shell $(GO) env CGO_ENABLED)),-race)
# At the end it lists each test that failed or was skipped, with the reason.
gotestsum = $(GO) tool gotestsum --format pkgname --format-hide-empty-pkg --format-icons text --
# cross: the targets that are vetted as well as built; all, or those that lint does not see.
VET ?= darwin/arm64

.PHONY: all build static run setup test test-timing test-vm test-full test-model test-rdma test-hdr fuzz cross bench lint fmt clean

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

test: setup
	$(with_ucx)
	$(gotestsum) $(RACE) -count 1 -tags "$(TAGS)" ./...

# The tests that compare durations or that the race detector forbids: one at a time.
# FULL=full measures more.
test-timing: setup
	@scripts/test-timing "$(FULL),$(TAGS)"

# Conformance, push, pull, a refusal and counters on Soft-RoCE, in one boot of a virtual machine.
test-vm: setup
	@scripts/test-rdma gate

# Every permutation, random moments, long series.
test-full: setup
	$(gotestsum) $(RACE) -count 1 -timeout 60m -tags "full,$(TAGS)" ./...

# The model against links whose truth is known: shaped pairs of network
# namespaces. Needs root; takes about five minutes.
test-model: setup
	$(gotestsum) -count 1 -timeout 40m -tags "full,timing,$(TAGS)" -run Shaped ./cmd/kvbench

# Every check on Soft-RoCE, each in a virtual machine of its own; installs qemu and UCX on
# Debian. Takes about a quarter of an hour.
test-rdma: setup
	@scripts/test-rdma

# Histograms are read back by another implementation of HdrHistogram.
test-hdr: build
	@scripts/check-hdr ./$(BIN)

# Every fuzz target in turn, FUZZTIME each.
fuzz:
	@scripts/fuzz $(FUZZTIME) "$(TAGS)"

# What must build, and where C is absent.
cross:
	for t in linux/amd64 linux/arm64 darwin/arm64; do \
		CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) build -o /dev/null ./... || exit 1; \
		case " $(VET) " in *" $$t "* | " all ") CGO_ENABLED=0 GOOS=$${t%/*} GOARCH=$${t#*/} $(GO) vet ./... || exit 1 ;; esac; \
	done
	CGO_ENABLED=0 $(GO) build -tags static -o /dev/null ./...
	[ "$(VET)" != all ] || CGO_ENABLED=0 $(GO) vet -tags static ./...

bench: build
	$(GO) test -tags "$(TAGS)" -run '^$$' -bench . -benchmem ./...
	@scripts/compare-iperf3 ./$(BIN)
	@[ -z "$(TAGS)" ] || scripts/compare-ucx ./$(BIN)

# One pass over every file that this machine can build.
lint: setup
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "not gofmt-ed: $$unformatted"; exit 1; fi
	$(GO) vet -tags "full,timing,$(TAGS)" ./...
	$(GO) tool staticcheck -tags "full,timing,$(TAGS)" ./...

fmt:
	gofmt -w .

clean:
	rm -rf bin out

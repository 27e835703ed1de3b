# Asteria: `make demo` trains, `make test` checks everything that CI checks.

SHELL   := /bin/bash
TOOLS   := GOWORK=off go -C tools run .
MODULES := $(shell ls */go.mod | xargs -n1 dirname | grep -vxE 'tools|bench')

export CGO_ENABLED = 0

.PHONY: all demo test test-long test-cluster memory build fmt vet lint work tidy tidy-check alone consumer \
	cross arm64 noasm race fuzz generate generate-check cudasim ptx test-cuda gpu-check bench-smoke bench-peers bench-step bench-spike bench/nvmepage prefix clean

all: test

demo: build ## train the demo model with each optimizer and write a report
	./scripts/demo.sh

build: ## bin/trainer-olmo
	go build -trimpath -o bin/trainer-olmo ./trainer-olmo/cmd/trainer-olmo

test: ## everything CI runs; ends with go test's own summary
	./scripts/test.sh

test-long: ## the slower suites: long kill loops, long fuzzing, every ISA level
	./scripts/test-long.sh

test-cluster: ## two hosts in network namespaces under mpirun, bytes counted on the wire; needs root
	./scripts/test-cluster.sh

memory: ## peak memory of runs with GiBs of state against what plan says
	ASTERIA_LONG=1 go test -timeout 60m -v -run PeakMemoryIsThePlans ./trainer-olmo/cmd/trainer-olmo

test/%: ## one module's tests, as in test/gemm; GOARCH=arm64 runs them under qemu-user
	$(if $(filter arm64,$(GOARCH)),./scripts/qemu.sh,go test) ./$*/...

bench/nvmepage: ## its benchmarks, and its engines beside fio
	go test -run '^$$' -bench . -benchmem ./nvmepage/...
	./scripts/bench.sh nvme $(ARGS)

bench/%: ## one module's benchmarks, as in bench/invroot
	go test -run '^$$' -bench . -benchmem ./$*/...

fmt:
	gofmt -l -w $(MODULES) tools bench

vet:
	go vet work

lint:
	$(TOOLS) lint

work: ## regenerate go.work from the module list
	$(TOOLS) work

tidy: ## tidy every module against a proxy of the working tree
	$(TOOLS) tidy

tidy/%: ## one module, as in tidy/kron
	$(TOOLS) tidy $*

tidy-check:
	$(TOOLS) work -check
	$(TOOLS) tidy -check

alone: ## build and vet each module outside the workspace
	$(TOOLS) alone

consumer: ## go get each module the way a user does
	$(TOOLS) consumer

arm64: ## the NEON kernels under qemu-user, in short
	./scripts/qemu.sh -short ./gemm/...

cross: ## vet for the other systems and processors
	./scripts/cross.sh

noasm: ## the portable kernels
	go test -short -tags noasm ./gemm/... ./invroot/... ./kron/...

race: ## the packages in which goroutines meet
	CGO_ENABLED=1 go test -race -short $(shell cat scripts/race-packages.txt | grep -v '^\#')

fuzz: ## every fuzz target for FUZZTIME (default 5s)
	./scripts/fuzz.sh $(or $(FUZZTIME),5s)

generate: ## regenerate the assembly
	./scripts/generate.sh

generate-check: ## regenerate the assembly and compare
	./scripts/generate.sh -check

cudasim: ## the simulated CUDA driver, into .cache/cudasim
	@./scripts/cudasim.sh

ptx: ## compile the CUDA kernels; needs clang-19
	./scripts/ptx.sh

test-cuda: ## the CUDA paths against the simulated driver; skipped without g++
	./scripts/test-cuda.sh

gpu-check: ## prepare the check for a machine with a GPU, and run it against what is here
	./scripts/gpu-check.sh

bench-smoke: ## one iteration of every benchmark
	go test -run '^$$' -bench . -benchtime 1x -short $(MODULES:%=./%/...)

bench-peers: ## our kernels beside OpenBLAS, BLIS and oneDNN in one process
	./scripts/bench.sh peers $(ARGS)

bench-step: ## our training step beside PyTorch
	./scripts/bench.sh step $(ARGS)

bench-spike: build ## refreshes beside training: the slow steps beside AdamW's
	./scripts/bench.sh spike $(ARGS)

prefix: ## make prefix PREFIX=example.com/you/asteria
	$(TOOLS) prefix "$(PREFIX)"
	gofmt -w $(MODULES) tools bench
	$(TOOLS) work

clean:
	rm -rf bin runs .cache

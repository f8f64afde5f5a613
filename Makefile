# The front door. `make help` lists what is here.
SHELL := /bin/bash
.DEFAULT_GOAL := help
BUN := node_modules/.bin/bun

.PHONY: help setup build check format test unit properties golden manifests image image-context parity expected reference docs release bench clean e2e lab pictures conformance chaos soak leader-soak redteam test-vm try-bare fuzz

help: ## this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

lab: as-root build ## a 3-node cluster in network namespaces, with a demonstration
	@dist/calico lab up && echo && dist/calico lab demo && echo && echo "look around with dist/calico lab help; remove it with dist/calico lab down"

.PHONY: as-root
as-root:
	@[ "$$(id -u)" -eq 0 ] || { echo "make $(MAKECMDGOALS): it makes network namespaces, run it as root"; exit 1; }

setup: ## install the Debian and npm packages that are missing
	@scripts/setup.sh

build: setup ## one executable under dist/, with its role links
	@$(BUN) scripts/build.ts

check: setup ## types, lint, format, import direction, tests without fixed sleeps
	@$(BUN) scripts/check.ts

format: setup ## rewrite the sources in the house format
	@node_modules/.bin/biome format --write

unit: setup ## unit and property tests only (no root, seconds)
	@$(BUN) scripts/test.ts unit

properties: setup ## property tests with RUNS times their usual runs (default: 100 under src, 10 under test), with seeds; ONLY=path
	@$(BUN) scripts/properties.ts --runs=$(RUNS) $(ONLY)

test: setup ## everything a change must pass, from a fresh clone
	@$(BUN) scripts/test.ts

golden: build ## replay the recordings of the original system, when they are beside the checkout
	@$(BUN) scripts/golden.ts

manifests: setup ## write the CRDs and Kubernetes manifests
	@$(BUN) scripts/manifests.ts

image: build ## the container image as one file, without a registry
	@$(BUN) scripts/image.ts

release: build ## the executable, the image, manifests with its digest, and SHA256SUMS in dist/release
	@$(BUN) scripts/release.ts

image-context: build ## what image/Containerfile copies into the image
	@$(BUN) scripts/image/context.ts

expected: setup ## write test/functional/dataplane/expected, the kernel's state for named states
	@CALICO_UPDATE_EXPECTED=1 $(BUN) test --timeout=120000 ./test/functional/dataplane/expected.test.ts

reference: setup ## write docs/reference: resources, settings, variables, metrics, commands, exit codes
	@$(BUN) scripts/reference.ts

docs: setup ## build the documentation as a website in dist/docs
	@$(BUN) scripts/docs.ts

parity: setup ## write docs/parity.md from the IDs in the tests' names
	@$(BUN) scripts/parity.ts

bench: build ## all benchmarks, ours beside the peer
	@$(BUN) scripts/bench.ts $(ONLY)

leader-soak: build ## two kube-controllers, the leader killed for five minutes, conflicting writes counted
	@LEADER_SECONDS=300 $(BUN) test --timeout=900000 ./test/kubernetes/leader.test.ts

fuzz: setup ## every parser that reads bytes from somebody else, for SECONDS each (default 10); TARGET=name, SEED=n
	@$(BUN) test/fuzz/run.ts --seconds=$(SECONDS) --target=$(TARGET) --seed=$(SEED)

clean: ## remove what was built
	@rm -rf dist .cache

try-bare: as-root build ## the executable on a bare Debian root: what it says is missing, and the lab once that is installed (minutes)
	@$(BUN) scripts/try-bare.ts

pictures: as-root build ## the README's pictures, from real runs in a lab
	@$(BUN) scripts/pictures.ts

conformance: as-root build ## every policy case by packets, on both dataplanes, against the evaluator; DATASTORE=kubernetes: by kubectl
	@CONFORMANCE_DATASTORE=$(DATASTORE) $(BUN) test --timeout=60000 ./test/conformance/

chaos: as-root build ## random faults under traffic, with a printed seed, on both dataplanes; 50 labs made and taken down; packets lost for minutes
	@CHAOS_DATAPLANE=nft $(BUN) test --timeout=600000 ./test/chaos/chaos.test.ts
	@CHAOS_DATAPLANE=iptables $(BUN) test --timeout=600000 ./test/chaos/chaos.test.ts
	@$(BUN) test --timeout=1800000 ./test/chaos/cycles.test.ts
	@$(BUN) test --timeout=600000 ./test/chaos/outage.test.ts

redteam: as-root build ## ten minutes of a tenant's attacks on its neighbour and the nodes, with a printed seed: SECONDS, SEED, DATAPLANE, IPV6
	@SECONDS=$(SECONDS) SEED=$(SEED) DATAPLANE=$(DATAPLANE) IPV6=$(IPV6) $(BUN) test/redteam/main.ts

e2e: as-root image ## a real Kubernetes cluster with our image and manifests, under upstream's own NetworkPolicy specs
	@$(BUN) scripts/e2e.ts

test-vm: as-root build ## WireGuard, IPIP and systemd in a virtual machine with Debian's kernel (software emulation, minutes)
	@$(BUN) test/vm/run.ts $(if $(ONLY),'$(ONLY)')

soak: setup ## a million random packets: evaluator = nftables = iptables (both tools), with a printed seed
	@$(BUN) test/soak/differential.ts

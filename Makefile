# The one door to this project. `make` lists what there is; every target works in a fresh clone.

.DEFAULT_GOAL := help
.PHONY: help run demo certificates-demo identity-demo work-demo pubsub-demo migrate-demo pipeline-demo kafka cluster cluster-demo spark-cluster console console-pictures setup system test test-all test-long check fmt openapi client proto docs pins faults faults-cluster faults-push faults-pipeline power-loss simulate fuzz fuzz-packets attacks mutants bench soak dist site clean

PYTHON ?= python3
PORT ?= 8080
DATA ?= ams-data
N ?= 200
SECONDS ?= 3600
BIN := .venv/bin
export PYTHON

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile

run: .venv/core ## Start the service, run the main job against it, keep serving (PORT=8080 DATA=ams-data)
	@$(BIN)/python -m demo --keep-serving --port $(PORT) --data $(DATA)

demo: .venv/core ## The same, but end by itself; the exit code is 0 when all went well
	@$(BIN)/python -m demo --port $(PORT) --data $(DATA)

certificates-demo: .venv/core ## Log in with certificates, publish and pull, with the official library; others are refused
	@$(BIN)/python -m demo.certificates

identity-demo: .venv/core ## Log in with tokens of an OpenID Connect issuer and with named tokens; others are refused
	@$(BIN)/python -m demo.identity

work-demo: .venv/core ## Let eight workers of two programs do 20,000 jobs of one subscription, and kill two of them
	@$(BIN)/python -m demo.work

pubsub-demo: .venv/dev ## Let Google's clients publish and consume 20,000 messages beside the official library, and kill two
	@$(BIN)/python -m demo.pubsub

migrate-demo: .venv/dev ## Move a service like the reference, with a day of 10^6 messages, while five kinds of clients work (SMALL=--small)
	@scripts/system java maven haproxy curl
	@$(BIN)/python -m demo.migrate $(SMALL)

pipeline-demo: .venv/dev ## Feed a day of five worlds to the service, run the jobs on Spark, write a page with plots
	@scripts/system java
	@$(BIN)/python -m demo.pipeline

kafka: .venv/dev ## Start one Kafka broker for developers and say where it is; Ctrl-C stops it
	@scripts/system java maven
	@$(BIN)/python -m local_cluster kafka

cluster: .venv/dev ## Start three of everything behind haproxy on this machine; Ctrl-C stops them (SECURE=--secure)
	@scripts/system java maven postgresql haproxy
	@$(BIN)/python -m local_cluster up $(SECURE)

cluster-demo: .venv/dev ## Run the main job through haproxy while one of everything is killed in turn
	@scripts/system java maven postgresql haproxy
	@$(BIN)/python -m local_cluster.demo $(SECURE)

spark-cluster: .venv/dev ## Start a master of Spark and three workers on this machine; Ctrl-C stops them
	@scripts/system java
	@$(BIN)/python -m local_cluster spark

test: ## Run what must hold for each commit: style, types, layers, every law, one real part of each kind (SEED=1 for an order)
	@scripts/test

test-all: ## Run `make test`, and all that takes processes, browsers, kills, clusters and Spark jobs (REQUIRE=all: nothing may be missing)
	@scripts/test all

test-long: ## Run what `make test-all` adds to `make test`
	@scripts/test long

console: .venv/core ## Build the console, the pages that the service serves at /console/, anew from console/
	@scripts/console

console-pictures: .venv/dev ## Draw every page of the console, light, dark and as on a phone, to be looked at (FOLDER=pictures)
	@scripts/system chromium
	@$(BIN)/python -m tests.console.pictures $(or $(FOLDER),pictures)

setup: .venv/dev ## Make .venv with the command line (.venv/bin/ams) and all that tests need

system: ## Install what comes from Debian and is missing (as root), or name the command
	@scripts/system

check: .venv/dev ## Style, spelling, format, strict types, also of the console, and which layer may import which
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/typos
	@MYPYPATH=src $(BIN)/mypy -p ams -p pyspark_ams -p demo -p local_cluster -p simulation
	@PYTHONPATH=src $(BIN)/lint-imports --no-logo
	@scripts/console check

fmt: .venv/dev ## Format the code by ruff, and that of the console by biome
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet
	@scripts/console fmt

openapi: .venv/dev ## Write docs/reference/openapi.json anew from the code
	@$(BIN)/python -m tests.support.description

client: .venv/core ## Write src/ams/client/client.py, the client for threads, anew from that for asyncio
	@$(BIN)/python scripts/client.py

proto: .venv/dev ## Write src/ams/push/rpc/push_service_pb2.py and .pyi anew from the schema of the wire
	@$(BIN)/python -m grpc_tools.protoc -Isrc --python_out=src --pyi_out=src src/ams/push/rpc/push_service.proto

docs: .venv/dev ## Check the documents: links, settings, and the tutorials line by line
	@scripts/system curl openssl
	@$(BIN)/pytest -q tests/test_docs.py tests/test_reference.py tests/acceptance/test_guides.py

pins: .venv/dev ## Write requirements/service.txt anew: every package the service needs, with the hashes of its files
	@scripts/pins

faults: .venv/dev ## Kill the service N times at bad moments and check that nothing was lost (N=200)
	@$(BIN)/python -m tests.faults.campaign --kills $(N)

faults-cluster: .venv/dev ## Break one thing after another of a cluster under load, N times each (N=3 FAULT="kill-node upgrade")
	@scripts/system java maven postgresql haproxy
	@$(BIN)/python -m tests.faults.cluster.campaign --runs $(if $(filter file,$(origin N)),3,$(N)) $(if $(FAULT),--fault $(FAULT))

faults-push: .venv/dev ## Kill the push runner N times, and check that nothing is lost and all in order (N=50)
	@$(BIN)/python -m tests.faults.push.campaign --kills $(if $(filter file,$(origin N)),50,$(N))

faults-pipeline: .venv/dev ## Kill the Spark driver of each job N times and compare with a calm run (N=5 JOB="archive" CLUSTER=--cluster)
	@scripts/system java postgresql
	@$(BIN)/python -m tests.faults.pipeline.campaign --kills $(if $(filter file,$(origin N)),5,$(N)) $(CLUSTER) $(JOB)

power-loss: .venv/dev ## Let power and calls fail under the log in N scenarios, and hold it to its answers (N=20000 SEED=1)
	@$(BIN)/python -m tests.faults.power_loss --scenarios $(if $(filter file,$(origin N)),20000,$(N)) $(if $(SEED),--seed $(SEED))

simulate: .venv/dev ## Play the service in SEEDS simulated worlds, and shrink what fails to a story (SEEDS=1000 SEED=1 HOURS=0)
	@$(BIN)/python -m simulation --seeds $(or $(SEEDS),1000) $(if $(SEED),--seed $(SEED)) $(if $(HOURS),--hours $(HOURS)) $(if $(NODES),--nodes $(NODES))

fuzz: .venv/dev ## Ask the service N wrong things: no 5xx, every error in its envelope, memory flat (N=1000000)
	@$(BIN)/python -m tests.fuzz.campaign --requests $(if $(filter file,$(origin N)),1000000,$(N))
	@FUZZ_EXAMPLES=200 $(BIN)/pytest -q -n 2 tests/http/test_described_answers.py

fuzz-packets: .venv/dev ## Cut requests into packets at every byte, and send them in a row to every port; same answers (SECONDS=600)
	@$(BIN)/python -m tests.fuzz.packets --seconds $(if $(filter file,$(origin SECONDS)),600,$(SECONDS))

attacks: .venv/dev ## Attack each port, for as long each, while a neighbour works and is timed (SECONDS=1800, ATTACK=schemas)
	@$(BIN)/python -m tests.faults.attacks --seconds $(if $(filter file,$(origin SECONDS)),1800,$(SECONDS)) $(if $(ATTACK),--only $(ATTACK))

mutants: .venv/dev ## Change the program N times, each time alone, and see that the tests notice (N=100)
	@$(BIN)/python -m tests.contract.mutants --sample $(if $(filter file,$(origin N)),100,$(N))

bench: .venv/dev ## Measure, one JSON line a case (BENCH="publish pull" for some of them)
	@$(if $(BENCH),:,scripts/system java maven postgresql)
	@$(BIN)/python -m bench $(BENCH)

soak: .venv/dev ## Load it for an hour with retention cutting: memory and p99 stay flat (SECONDS=3600)
	@$(BIN)/python -m bench.soak --seconds $(SECONDS)

dist: .venv/dev ## Build the wheel, install it outside the clone, and see it serve
	@scripts/dist

site: .venv/dev ## Build the site of the documents, with search and the API, into dist/site
	@$(BIN)/python website/build.py

clean: ## Remove .venv, caches and builds; data folders stay
	@rm -rf .venv dist build console/node_modules website/node_modules src/ams/http/console_files src/ams/client/client.py .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Git does not have it: what is installed into .venv imports it from here.
src/ams/client/client.py: $(wildcard src/ams/client/async_client.py) scripts/client.py
	@scripts/preflight python >&2 && $(PYTHON) scripts/client.py

.venv/core: pyproject.toml requirements/constraints.txt | src/ams/client/client.py
	@scripts/setup core

.venv/dev: pyproject.toml requirements/constraints.txt | src/ams/client/client.py
	@scripts/setup dev

# make demo and make test do all their own set-up: they need Python 3.11 to 3.14 with venv, and nothing else.
# PYTHON=/path/to/python chooses the interpreter of .venv.

VENV := .venv
BIN := $(VENV)/bin
JARS := .cache/jars
INSTALLED := $(VENV)/.installed
JARS_READY := $(JARS)/.complete
SERVERS_READY := .cache/servers/.complete
CLASSES := .cache/classes.jsa
CLASSES_READY := .cache/.classes-complete
S3_JARS_READY := .cache/jars-s3/.complete
LIVE_READY := $(JARS_READY) $(SERVERS_READY) $(CLASSES_READY) $(S3_JARS_READY)
EMULATORS := .cache/emulators
EMULATORS_READY := $(EMULATORS)/.complete
ARGS ?=
# tests that need a server, Spark or a browser, or take long
LIVE := postgres or spark or browser or slow
# most of them wait for a server or a JVM, so there are more workers than cores. Each has servers and a session of its
# own: up to 4 GiB
WORKERS ?= 3
# the quick ones never wait, and each worker begins with seconds of collecting all tests
QUICK_WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS)

# without cached bytecode, each of the hundreds of processes that tests start compiles what it imports: 2 s
unexport PYTHONDONTWRITEBYTECODE

DAGSTER_HOME ?= $(CURDIR)/.cache/dagster_home
export DAGSTER_HOME

.DELETE_ON_ERROR:
.PHONY: help demo test nightly readers kills faults schemas golden servers emulators fuzz check types quick coverage bench ui site lock logstore clean

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "make %-8s %s\n", $$1, $$2}' Makefile

demo: $(JARS_READY)  ## the whole thing on an embedded PostgreSQL, in a few minutes
	@$(BIN)/postgres-cdc demo --jars $(JARS) --folder .cache/demo $(ARGS)

# `make check test` runs no test twice
REST := $(if $(filter check,$(MAKECMDGOALS)),-m "($(LIVE)) and not nightly")
# JVMs of tests live for minutes and do little: compiling their code thoroughly costs a fifth more than it saves. The room
# for code is a fifth of the usual with it: a third of the time went into looking for code to throw away
test nightly: export JDK_JAVA_OPTIONS ?= -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m \
	-XX:SharedArchiveFile="$(CURDIR)/$(CLASSES)"
test: $(LIVE_READY)  ## each thing that must hold, once, on real servers
	@$(PYTEST) --dist loadfile --no-loadscope-reorder $(REST) $(ARGS)

nightly: $(LIVE_READY) $(EMULATORS_READY)  ## the tests in every way: servers 14 to 19, each engine, plugin, option; ARGS=tests/matrix: a part of them
	@$(PYTEST) --dist loadfile --no-loadscope-reorder -m "" $(ARGS)

readers: $(JARS_READY) $(SERVERS_READY)  ## which readers read which kind of table: docs/readers.md, in an environment of their own (1 GB)
	@test -x .cache/readers/bin/pip || $(BIN)/python -m venv .cache/readers
	@.cache/readers/bin/pip install -q -r tests/readers/requirements.txt
	@$(BIN)/python -m tests.readers.matrix

KILLS ?= 50
kills: $(JARS_READY) $(SERVERS_READY)  ## kill KILLS=50 clients of a Spark Connect server while it writes for them; ARGS="--seed N"
	@$(BIN)/python -m tests.orphan_kills --kills $(KILLS) $(ARGS)

ROUNDS ?= 500
schemas: $(JARS_READY) $(SERVERS_READY)  ## ROUNDS=500 of random tables, changes and DDL, also during syncs, compared after each; ARGS="--seed N"
	@$(BIN)/python -m tests.random_schemas --rounds $(ROUNDS) $(ARGS)

RUNS ?= 300
faults: $(JARS_READY) $(SERVERS_READY)  ## RUNS=300 runs under load, a random fault in each, then every row compared; ARGS="--seed N"
	@$(BIN)/python -m tests.fault_campaign --runs $(RUNS) $(ARGS)

golden: $(SERVERS_READY)  ## record the golden files anew, from servers 14 to 19
	@$(BIN)/python -m tests.golden.record $(ARGS)

servers: $(SERVERS_READY)  ## fetch PostgreSQL 14 to 19 with contrib for the tests: 100 MB, once (19: where apt has a mirror of Debian)

emulators: $(EMULATORS_READY)  ## fetch emulators of Google's and Azure's storage for the tests by night; needs Go and npm

SECONDS ?= 600
fuzz: $(INSTALLED)  ## coverage-guided fuzzing of the decoders for SECONDS=600; installs atheris (which lacks wheels for some Pythons)
	@$(BIN)/python -c "import atheris" 2>/dev/null || $(BIN)/pip install --quiet atheris
	@mkdir -p .cache/fuzz
	@$(BIN)/python -m tests.fuzz .cache/fuzz/corpus -max_total_time=$(SECONDS) -max_len=4096 -timeout=10 \
		-artifact_prefix=.cache/fuzz/ -print_final_stats=1 $(ARGS)

# what `make check test` fetches for the tests comes while these compute
check: $(INSTALLED)  ## format, lint, types, import arrows, the quick tests
	@$(BIN)/ruff format --check
	@$(BIN)/ruff check
	@$(BIN)/lint-imports
	@$(MAKE) --no-print-directory --jobs=4 types quick $(if $(filter test,$(MAKECMDGOALS)),$(LIVE_READY))

# mypy keeps one core busy
types: $(INSTALLED)
	@$(BIN)/mypy

quick: $(INSTALLED)
	@$(BIN)/python -m pytest -n $(QUICK_WORKERS) --dist worksteal -q -m "not ($(LIVE))" $(ARGS)

coverage: export COVERAGE_FILE := .cache/coverage.data
coverage: $(INSTALLED)  ## the percentage of lines that the quick tests run; each line in .cache/coverage/index.html
	@$(PYTEST) --dist worksteal -q -m "not ($(LIVE))" --cov=cdc_assets --cov=spark_jobs --cov-report=html:.cache/coverage $(ARGS)
	@$(BIN)/coverage report --format=total

bench: $(JARS_READY) $(SERVERS_READY)  ## speed by stage, as ratios to the server's own limit
	@$(BIN)/python -m benchmarks --jars $(JARS) $(ARGS)

ui: $(JARS_READY)  ## postgres-cdc demo --ui: the demo in Dagster; with SHOP_DSN and SHOP_LAKE set, on those
ifdef SHOP_DSN
	@mkdir -p "$(DAGSTER_HOME)"; test -e "$(DAGSTER_HOME)/dagster.yaml" || cp orchestration/dagster.yaml "$(DAGSTER_HOME)"
	@$(BIN)/dagster dev --workspace workspace.yaml $(ARGS)
else
	@$(BIN)/postgres-cdc demo --ui --folder .cache/demo --jars $(JARS) $(ARGS)
endif

site: $(INSTALLED)  ## the documentation as a site, in .cache/site; a link that leads nowhere is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict $(ARGS)
	@echo .cache/site/index.html

lock: $(INSTALLED)  ## write requirements.lock anew from pyproject.toml
	@$(BIN)/pip install --quiet --no-deps "uv>=0.9"
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
		--extra demo --extra connect --group dev pyproject.toml --output-file requirements.lock

logstore: $(JARS_READY)  ## build the jar with our LogStore anew; needs a JDK
	@$(BIN)/python tools/log_store.py $(JARS)

clean:  ## remove what make made: .venv, .cache, tool caches
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(INSTALLED): requirements.lock pyproject.toml tools/install.sh
	@sh tools/install.sh $(VENV)
	@touch $@

$(JARS_READY): $(INSTALLED) spark_jobs/spark/delta_jars.py
	@$(BIN)/python -m spark_jobs.spark.delta_jars $(JARS)
	@touch $@

$(S3_JARS_READY): $(INSTALLED) spark_jobs/spark/delta_jars.py spark_jobs/object_stores.py
	@$(BIN)/python -m spark_jobs.spark.delta_jars $(@D) --storage s3
	@touch $@

$(SERVERS_READY): $(INSTALLED) tests/fixtures/server_binaries.py tests/fixtures/debian_server.py
	@$(BIN)/python -m tests.fixtures.server_binaries
	@touch $@

$(EMULATORS_READY):
	@mkdir -p $(EMULATORS) && echo '{}' > $(EMULATORS)/package.json
	@GOBIN="$(CURDIR)/$(EMULATORS)" go install github.com/fsouza/fake-gcs-server@v1.56.1 && \
		npm install --silent --no-audit --no-fund --prefix $(EMULATORS) azurite@3.35.0 && touch $@ || \
		echo "without Go and npm the tests of gs:// and abfss:// are skipped"

$(CLASSES_READY): $(JARS_READY) spark_jobs/spark/archive_classes.py
	@$(BIN)/python -m spark_jobs.spark.archive_classes $(CLASSES) --jars $(JARS)
	@touch $@

# Needs GNU make 3.81 or later (what macOS has) and Python 3.11 or later; all else is installed
# into .venv.

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CODE := conftest.py src tests assurance $(wildcard examples benchmarks)

# Arguments for pytest: make test TESTS="-k access -x"
TESTS ?=
# Engines that brokers of the tests stand on: make test ENGINES="sqlite cluster"; by default what
# each test names. What cannot run on them is left out, and the last line says how much that is.
ENGINES ?=
# The parts of assurance/ that run every day: nothing else proves their claims (assurance/README.md).
EVERYDAY := assurance/fuzz/test_decoders.py assurance/mutations assurance/flips assurance/exhaustive
# The tests that build and boot a whole machine: CI has no time for them.
MACHINE := tests/deploy/test_image.py tests/deploy/test_machine.py
# For make test-cluster: engines to do without, as WITHOUT="ceph", and which tests run on the others
# beside those in assurance/cluster.
WITHOUT ?=
SUITE ?= tests
# Processes that run the tests: they wait for brokers about half of their time.
WORKERS ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) * 2)))
# What the tests cover is measured where it is asked for, for it takes twice as long: make coverage
COVER ?=
# How long all searches take, and which run (after make install-fuzz): make fuzz SECONDS=60 TARGETS="container openapi"
SECONDS ?= 600
TARGETS ?=
# Arguments for the measurements: make bench BENCH="--only small crowd"
BENCH ?=
# Arguments for it beside a million containers: make scale SCALE="--engine sqlite"
SCALE ?=
# Arguments for the resolver: make lock LOCK=--upgrade
LOCK ?=

# Python keeps what it compiled, whatever the caller says: pytest would rewrite every test's assertions
# again in each process, and each broker that starts would compile the source.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install install-windows install-fuzz demo test test-assurance coverage test-long test-machine test-cluster fuzz check format wheel pages recording screenshot diagrams docs docs-serve lock clean conformance attacks exhaustive flips audit bench crash scale

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Set up .venv with everything pinned, and this project in it

install-windows: $(INSTALLED) ## Add PySide6 to .venv, for the tests with windows (250 MB)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --only-binary :all: --requirement requirements-windows.txt

install-fuzz: $(INSTALLED) ## Add atheris to .venv, for make fuzz (35 MB; Linux on x86-64)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --only-binary :all: --requirement requirements-fuzz.txt

demo: $(INSTALLED) ## Run a broker and the whole story on a real file: FILE=PATH is yours, UI=1 opens the page
	@$(BIN)/python -m examples.demo $${FILE:+--file "$$FILE"} $${UI:+--ui}

PYTEST := $(BIN)/pytest --numprocesses $(WORKERS) --maxprocesses 8 --dist worksteal

test: $(INSTALLED) ## Run the everyday tests
	$(PYTEST) $(COVER) --engines "$(ENGINES)" tests examples $(EVERYDAY) $(TESTS)

test-assurance: $(INSTALLED) ## Run the rest of assurance/ that is quick: the broker from its OpenAPI, checks that can fail (2 min)
	$(PYTEST) $(TESTS) assurance $(addprefix --ignore ,$(EVERYDAY))

# The second run ends engines and brokers, and starts its own: one process, one cluster.
test-long: $(INSTALLED) ## Run the tests that take long: kills, faults, memory, mutants, the built site (8 min)
	$(PYTEST) --long -m long $(addprefix --ignore ,$(MACHINE)) $(TESTS)

test-machine: $(INSTALLED) ## Build and run the image, and walk the guide to one machine on a booted copy (root; 4 min)
	$(PYTEST) --long -m long $(MACHINE) $(TESTS)

coverage: ## Run all tests, and fail under 95 % of branches, or 100 % of crypto and wire (10 min)
	$(MAKE) test EVERYDAY=assurance COVER="--cov --cov-report= --cov-fail-under 0"
	$(BIN)/coverage report --include '*/scbroker/crypto/*,*/scbroker/wire/*' --fail-under 100
	$(BIN)/coverage report --fail-under 95

test-cluster: $(INSTALLED) ## Run the tests on PostgreSQL under Patroni, Ceph and HAProxy
	$(PYTEST) --engines cluster --without "$(WITHOUT)" $(TESTS) $(SUITE)
	$(BIN)/pytest --engines cluster --without "$(WITHOUT)" $(TESTS) assurance/cluster

fuzz: $(INSTALLED) ## Search for inputs that break a decoder or the broker, for SECONDS
	$(BIN)/python -m assurance.fuzz.run --seconds $(SECONDS) $(TARGETS)

check: $(INSTALLED) ## Lint, check formatting, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(CODE) $(wildcard docs/*.py)
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/basedpyright --verifytypes scbroker --ignoreexternal
	$(BIN)/lint-imports

format: $(INSTALLED) ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(INSTALLED) ## Build the wheel in dist/
	$(BIN)/python -m hatchling build --target wheel

pages: $(INSTALLED) ## Write the pages of commands and settings, from the program
	$(BIN)/python docs/make_commands.py
	$(BIN)/python docs/make_settings.py

screenshot: $(INSTALLED) ## Write docs/images/…-page.png and example-notes.png, the real pages and window
	$(BIN)/python -m docs.screenshot
	$(BIN)/python -m docs.screenshot_ui
	$(BIN)/python -m docs.notes_screenshot

recording: $(INSTALLED) ## Write docs/images/command-line.svg and demo.svg, the real commands at a terminal
	$(BIN)/python -m docs.recording

# Mermaid is fetched for this target alone; the pages have its drawings. Needs npm.
MERMAID := 11.17.2
diagrams: $(INSTALLED) ## Draw the diagrams of the pages into docs/diagrams/, in Debian's chromium
	folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && \
	  npm pack --silent --pack-destination "$$folder" mermaid@$(MERMAID) && \
	  tar --extract --gzip --file "$$folder"/mermaid-*.tgz --directory "$$folder" package/dist/mermaid.min.js && \
	  $(BIN)/python -m docs.diagrams "$$folder/package/dist/mermaid.min.js"

docs: $(INSTALLED) ## Build the site into site/; REPOSITORY=https://... links every page to the repository
	$(BIN)/python -m zensical build --clean --strict

docs-serve: $(INSTALLED) ## Serve the site at http://127.0.0.1:8000, and build a page again when it changes
	$(BIN)/python -m zensical serve

conformance: $(INSTALLED) ## Break each operation in turn, expect its row's tests to fail, write docs/mutants.md (6 min)
	$(BIN)/python -m assurance.mutations.conformance.run --jobs 2

attacks: $(INSTALLED) ## Take out each defence, expect its test to fail, write docs/attacks.md (10 min)
	$(BIN)/python -m assurance.mutations.attacks.run --jobs 2

exhaustive: $(INSTALLED) ## Try every small history on the rules of validity, print how many there were (1 h)
	$(BIN)/python -m assurance.exhaustive

flips: $(INSTALLED) ## Flip every byte that a broker keeps, read everything after each (1 h)
	$(BIN)/python -m assurance.flips.population --part 1/2 & \
	  $(BIN)/python -m assurance.flips.population --part 2/2 && wait $$!

crash: $(INSTALLED) ## Kill brokers and databases under load, compare with all that was acknowledged (20 min)
	$(BIN)/python -m assurance.faults.crash --kills 200
	$(BIN)/python -m assurance.faults.crash --kills 50 --engine postgresql
	$(BIN)/python -m assurance.faults.histories --histories 20
	$(BIN)/python -m assurance.faults.histories --histories 20 --engine postgresql

bench: $(INSTALLED) ## Measure everything beside its floor, write docs/performance.md (15 min)
	$(BIN)/python -m benchmarks --markdown docs/performance.md --plots docs/images $(BENCH)

scale: $(INSTALLED) ## Measure beside a million containers, write docs/scale.md (30 min, 20 GB)
	$(BIN)/python -m benchmarks.scale --markdown docs/scale.md $(SCALE)

audit: $(INSTALLED) ## Ask for known flaws in the pinned dependencies (needs the advisories' server)
	$(BIN)/uv tool run pip-audit --strict --disable-pip --requirement requirements.txt

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

lock: $(INSTALLED) ## Pin the dependencies of pyproject.toml in the requirements files
	$(COMPILE) pyproject.toml --all-extras --group dev --output-file requirements.txt $(LOCK)
	$(COMPILE) pyproject.toml --extra server --constraint requirements.txt --output-file requirements-server.txt $(LOCK)
	$(COMPILE) --group build --constraint requirements.txt --output-file requirements-build.txt $(LOCK)
	$(COMPILE) --group windows --output-file requirements-windows.txt $(LOCK)
	$(COMPILE) --group fuzz --output-file requirements-fuzz.txt $(LOCK)

clean: ## Remove .venv and all that tools leave behind
	rm -rf $(VENV) .cache dist site .coverage .coverage.* .fuzz .hypothesis .import_linter_cache .mypy_cache \
	  .pytest_cache .ruff_cache
	find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +

# The stamp is newer than what it was made from, or the installation is done again.
$(INSTALLED): requirements.txt pyproject.toml
	@if ! $(BIN)/python -c '' 2>/dev/null; then \
	  for python in $(PYTHON) python3.13 python3.12 python3.11 python3; do \
	    if $$python -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	      echo "Setting up $(VENV) with $$($$python --version)"; \
	      exec $$python -m venv --clear $(VENV); \
	    fi; \
	  done; \
	  echo 'No Python 3.11 or later was found (or only one without its venv module).' >&2; \
	  echo 'Install one, or name it: make install PYTHON=/path/to/python3' >&2; \
	  exit 1; \
	fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes --only-binary :all: --requirement requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@

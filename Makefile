# Needs GNU make 3.81 or later (what macOS has) and Python 3.11 or later; all else is installed
# into .venv: what runs by `make demo`, what tests and checks need by the other targets.

VENV := .venv
BIN := $(VENV)/bin
RUNNING := $(VENV)/.running
INSTALLED := $(VENV)/.installed
STUBS := $(wildcard src/scbroker/client/*.pyi)
CODE := conftest.py src tests assurance tools $(wildcard examples benchmarks)

# Arguments for pytest: make test TESTS="-k access -x"
TESTS ?=
# For make test-all: which parts, of those in tools/run_tests.py: make test-all PARTS="long cluster"
PARTS ?= all
# How long all searches take, and which run: make fuzz SECONDS=60 TARGETS="container openapi"
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
.PHONY: help install demo test test-all coverage fuzz check format wheel stubs pages recording screenshot diagrams docs docs-serve lock clean conformance attacks exhaustive flips audit bench crash scale

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Set up .venv with everything pinned, and this project in it

demo: $(RUNNING) ## Run a broker and the whole story on a real file: FILE=PATH is yours, UI=1 opens the page
	@$(BIN)/python -m examples.demo $${FILE:+--file "$$FILE"} $${UI:+--ui}

test: $(INSTALLED) ## Run the everyday tests (3 min)
	$(BIN)/python tools/run_tests.py everyday $(TESTS)

test-all: $(INSTALLED) ## Run all tests, or some PARTS; goes on where it stopped (1 h; see CONTRIBUTING.md)
	$(UV) --group windows
	$(BIN)/python tools/run_tests.py "$(PARTS)" $(TESTS)

coverage: ## Run all tests, and fail under 95 % of branches, or 100 % of crypto and wire
	$(MAKE) test-all TESTS="--cov --cov-append --cov-report= --cov-fail-under=0"
	$(BIN)/coverage report --include '*/scbroker/crypto/*,*/scbroker/wire/*' --fail-under 100
	$(BIN)/coverage report --fail-under 95

fuzz: $(INSTALLED) ## Search for inputs that break a decoder or the broker, for SECONDS (Linux on x86-64)
	$(UV) --group fuzz
	$(BIN)/python -m assurance.fuzz.run --seconds $(SECONDS) $(TARGETS)

check: $(INSTALLED) ## Lint, check formatting, types, import contracts, and that no test reads a clock
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	! git grep -nE '[^_a-z](sleep|monotonic|perf_counter|process_time)\(' -- tests assurance 'examples/*/test_*.py' ':!tests/kit' \
	  | grep -v '# about time$$'
	$(BIN)/mypy $(CODE)
	$(BIN)/mypy --follow-imports silent --cache-dir .mypy_cache/bodies $(STUBS:.pyi=.py) # which the stubs hide
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/basedpyright --verifytypes scbroker --ignoreexternal
	$(BIN)/lint-imports

format: $(INSTALLED) ## Format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(INSTALLED) ## Build the wheel in dist/
	$(BIN)/python -m hatchling build --target wheel

stubs: $(INSTALLED) ## Write what type checkers see of modules with operations, from their bodies
	$(BIN)/python tools/make_stubs.py

pages: $(INSTALLED) ## Write the pages of commands and settings, from the program
	$(BIN)/python tools/make_commands.py
	$(BIN)/python tools/make_settings.py

screenshot: $(INSTALLED) ## Write docs/images/…-page.png and example-notes.png, the real pages and window
	$(BIN)/python -m tools.screenshot
	$(BIN)/python -m tools.screenshot_ui
	$(BIN)/python -m tools.notes_screenshot

recording: $(INSTALLED) ## Write docs/images/command-line.svg and demo.svg, the real commands at a terminal
	$(BIN)/python -m tools.recording

# Mermaid is fetched for this target alone; the pages have its drawings. Needs npm.
MERMAID := 11.17.2
diagrams: $(INSTALLED) ## Draw the diagrams of the pages into docs/diagrams/, in Debian's chromium
	folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && \
	  npm pack --silent --pack-destination "$$folder" mermaid@$(MERMAID) && \
	  tar --extract --gzip --file "$$folder"/mermaid-*.tgz --directory "$$folder" package/dist/mermaid.min.js && \
	  $(BIN)/python -m tools.diagrams "$$folder/package/dist/mermaid.min.js"

docs: $(INSTALLED) ## Build the site into site/; REPOSITORY=https://... links every page to the repository
	$(BIN)/python -m zensical build --clean --strict

docs-serve: $(INSTALLED) ## Serve the site at http://127.0.0.1:8000, and build a page again when it changes
	$(BIN)/python -m zensical serve

conformance: $(INSTALLED) ## Break each operation in turn, expect its row's tests to fail, write docs/mutants.md (8 min)
	$(BIN)/python -m assurance.mutations.conformance.run --jobs 2

attacks: $(INSTALLED) ## Take out each defence, expect its test to fail, write docs/attacks.md (30 min)
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

bench: $(INSTALLED) ## Measure everything beside its floor, write docs/performance.md (30 min and more)
	$(BIN)/python -m benchmarks --markdown docs/performance.md --json docs/performance.json --plots docs/images \
	  $(BENCH)

scale: $(INSTALLED) ## Measure beside a million containers, write docs/scale.md (30 min, 20 GB)
	$(BIN)/python -m benchmarks.scale --markdown docs/scale.md $(SCALE)

audit: $(INSTALLED) ## Ask for known flaws in the pinned dependencies (needs the advisories' server)
	$(BIN)/uv tool run pip-audit --strict --disable-pip --requirement requirements-dev.txt

COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock'

lock: $(BIN)/uv ## Pin the dependencies of pyproject.toml: those to run, and all to develop
	$(COMPILE) pyproject.toml --all-extras --group dev --group windows --group fuzz --output-file requirements-dev.txt $(LOCK)
	$(COMPILE) pyproject.toml --extra server --extra ui --group build --constraint requirements-dev.txt \
	  --output-file requirements.txt $(LOCK)

clean: ## Remove .venv and all that tools leave behind
	rm -rf $(VENV) .cache dist site .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache \
	  .pytest_cache .ruff_cache
	find $(CODE) -type d -name __pycache__ -prune -exec rm -rf {} +

# uv installs all else, and checks every hash: also of the groups, which are pinned as constraints. pip before 24.1
# cannot install a list in which a package asks for another with an extra (as pytest-cov does), hence a list of uv alone.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --only-binary :all: \
	  --constraint requirements-dev.txt
OFFLINE := { echo 'Installing failed. It needs a network, or a package index that pip and uv are set up to use.' >&2; exit 1; }

$(BIN)/uv: requirements-dev.txt
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
	@sed -n '/^uv==/,/[^\]$$/p' requirements-dev.txt | $(BIN)/python -m pip install --quiet \
	  --disable-pip-version-check --retries 1 --require-hashes --only-binary :all: --requirement /dev/stdin || $(OFFLINE)
	@touch $@

# A stamp is newer than what it was made from, or the installation is done again.
$(RUNNING): requirements.txt pyproject.toml | $(BIN)/uv
	@echo "Installing $$(grep -c == requirements.txt) packages and scbroker into $(VENV)"
	@$(UV) --requirement requirements.txt || $(OFFLINE)
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --offline --editable .
	@touch $@

$(INSTALLED): requirements-dev.txt pyproject.toml $(RUNNING)
	@echo "Installing what tests and checks need"
	@$(UV) --requirement pyproject.toml --all-extras --group dev || $(OFFLINE)
	@touch $@

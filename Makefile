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
# Arguments for a long search: make fuzz SEARCH="--seconds 60 container", make attacks SEARCH="--attack 3"
SEARCH ?=
# Arguments for the measurements: make bench BENCH="--only small crowd", make scale SCALE="--engine sqlite"
BENCH ?=
SCALE ?=
# Arguments for the resolver: make lock LOCK=--upgrade
LOCK ?=

# Python keeps what it compiled, whatever the caller says: pytest would rewrite every test's assertions
# again in each process, and each broker that starts would compile the source.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all check format pages images docs lock audit clean \
  fuzz attacks conformance exhaustive flips crash bench scale

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

install: $(INSTALLED) ## Set up .venv with everything pinned, and this project in it

demo: $(RUNNING) ## Run a broker and the whole story on a real file: FILE=PATH is yours, UI=1 opens the page
	@$(BIN)/python -m examples.demo $${FILE:+--file "$$FILE"} $${UI:+--ui}

test: $(INSTALLED) ## Run the everyday tests (3 min)
	$(BIN)/python tools/run_tests.py everyday $(TESTS)

test-all: $(INSTALLED) ## Run all tests, or some PARTS; goes on where it stopped (1 h; see CONTRIBUTING.md)
	$(UV) --group windows
	$(BIN)/python tools/run_tests.py "$(PARTS)" $(TESTS)

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

pages: $(INSTALLED) ## Write what is made from the code: stubs of operations, pages of commands and settings
	$(BIN)/python tools/make_stubs.py
	$(BIN)/python tools/make_commands.py
	$(BIN)/python tools/make_settings.py

# Mermaid is fetched for this target alone; the pages have its drawings. Needs npm and Debian's chromium.
MERMAID := 11.17.2
images: $(INSTALLED) ## Write the images of the pages: diagrams, screenshots and recordings of the real program
	folder=$$(mktemp -d) && trap 'rm -r "$$folder"' EXIT && \
	  npm pack --silent --pack-destination "$$folder" mermaid@$(MERMAID) && \
	  tar --extract --gzip --file "$$folder"/mermaid-*.tgz --directory "$$folder" package/dist/mermaid.min.js && \
	  $(BIN)/python -m tools.diagrams "$$folder/package/dist/mermaid.min.js"
	for program in screenshot screenshot_ui notes_screenshot recording; do \
	  $(BIN)/python -m tools.$$program || exit; done

docs: $(INSTALLED) ## Build the site into site/; REPOSITORY=https://... links every page to the repository
	$(BIN)/python -m zensical build --clean --strict

PROGRAM_fuzz := fuzz.run
PROGRAM_attacks := mutations.attacks.run --jobs 2
PROGRAM_conformance := mutations.conformance.run --jobs 2
PROGRAM_exhaustive := exhaustive
PROGRAM_flips := flips.population
fuzz attacks conformance exhaustive flips: $(INSTALLED) ## Search long for faults: see assurance/README.md
	$(if $(filter fuzz,$@),$(UV) --group fuzz)
	$(BIN)/python -m assurance.$(PROGRAM_$@) $(SEARCH)

crash: $(INSTALLED) ## Kill brokers and databases under load, compare with all that was acknowledged (20 min)
	for engine in sqlite postgresql; do \
	  $(BIN)/python -m assurance.faults.crash --kills 100 --engine $$engine && \
	  $(BIN)/python -m assurance.faults.histories --histories 20 --engine $$engine || exit; done

bench: $(INSTALLED) ## Measure everything beside its floor, write docs/performance.md (30 min and more)
	$(BIN)/python -m benchmarks --markdown docs/performance.md --json docs/performance.json --plots docs/images \
	  $(BENCH)

scale: $(INSTALLED) ## Measure beside a million containers, into docs/performance.md (30 min, 20 GB)
	$(BIN)/python -m benchmarks.scale --markdown docs/performance.md $(SCALE)

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

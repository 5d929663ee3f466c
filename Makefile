# make install   an environment in .venv; PYTHON= chooses the interpreter (3.11 to 3.13)
# make demo      a published effect, reproduced on the text that comes with Python, with its report
# make test      what guards a commit, without what takes seconds; all of a room with FOR=transformer/norms,
#                and of one test in five of all rooms with EVERY=5
# make release   what guards a release: the tests that take long (tests/long.txt), notebooks and killed processes (LONG=1/3
#                for the first of three parts), every pair of options (PART=2/6), published architectures
# make parity   published architectures against the library transformers, which it installs
# make evaluation   benchmarks by lm-evaluation-harness, which it installs, on tasks in files
# make docs   the pages of docs as a site in build/site; make docs-serve shows it while they are written
# make notebooks   notebooks/*.ipynb from the texts beside them, those executed whose code has changed; FOR=03 for one
# make mutants   small faults in the code of some rooms, and which of them their tests do not find; FOR=transformer/study,
#                or one file of it, TESTS=tests/study in place of the tests of its name, MUTMUT="'*_7'" for some of them
# make campaign   faults at random moments and in random files, counted in tests/CAMPAIGN.md; KILLS=50 of each kind
# make conformance   every option and every pair of options; PART=2/6 for the second of six parts
# make package   a wheel and an archive of sources in dist/, tried in an empty environment
# make lock   requirements.lock: the newest versions that fit together, with hashes

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install demo test release notebooks campaign conformance parity evaluation mutants lint package lock docs \
	docs-serve

install: $(VENV)/installed

$(VENV)/library: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/installed: $(VENV)/library
	$(BIN)/python -m pip install --quiet --editable '.[test,dev]'
	touch $@

demo: $(VENV)/library
	$(BIN)/python -m experiments.atlas --only alibi_longer --looks 1 --afresh --workdir results/demo

test: install
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not release" \
		$(if $(EVERY),--every $(EVERY)) $(if $(EVERY)$(FOR),,--tests short) $(FOR:transformer/%=tests/%)

release: install conformance parity evaluation docs
	$(BIN)/python -m pytest -n 2 --dist worksteal --tests long $(if $(LONG),--part $(LONG))

notebooks: install
	$(BIN)/python -m pip install --quiet --editable '.[notebooks]'
	$(BIN)/python notebooks/execute.py $(FOR)

docs: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve

$(VENV)/docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	touch $@

campaign: install
	$(BIN)/python tests/campaign.py --kills $(or $(KILLS),50)

conformance: install
	$(BIN)/python -m transformer.testing $(if $(PART),--part $(PART))

parity: install
	$(BIN)/python -m pip install --quiet --editable '.[parity]'
	$(BIN)/python -m pytest -n 2 tests/pretrained/test_parity.py

evaluation: install
	$(BIN)/python -m pip install --quiet --editable '.[evaluation]'
	$(BIN)/python -m pytest -n 2 tests/experiments/test_evaluate.py

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/pyright --pythonpath $(BIN)/python

# Outside of the checkout, so that nothing but the wheel can be found; its data are what the commands read.
package: install
	rm -rf dist build/empty && $(BIN)/python -m build
	$(PYTHON) -m venv build/empty && build/empty/bin/python -m pip install --quiet dist/*.whl
	cd build/empty && bin/python -c 'import transformer as T; T.RMSNorm(); T.train; T.study.Study' \
		&& bin/python -m experiments.language_model --help > /dev/null

lock: install
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv export --quiet --upgrade --no-emit-project --no-annotate --no-header --extra test --extra dev --extra notebooks \
		--format requirements.txt --output-file requirements.lock

MUTATED := transformer/runs/schedules.py transformer/functional/masks.py transformer/objectives transformer/study \
	$(patsubst %,transformer/training/%.py,metrics optimizer replicas step) transformer/inference

mutants: install
	$(BIN)/python -m pip install --quiet --editable '.[mutants]'
	$(foreach at,$(or $(FOR),$(MUTATED)),$(MAKE) -B --no-print-directory build/mutants/$(at);)

# One room, or one file of it, in a copy, with its own tests. Modules are loaded once, and each mutant is a fork that
# collects its tests by itself: some make arrays when they are collected, and JAX does not survive a fork after that.
# A timeout is most often a mutant that broke the collection.
build/mutants/transformer/%:
	rm -rf $@ && mkdir -p $@ && cp -r transformer experiments tests pyproject.toml $@
	printf '%s\n' hypothesis scipy.stats transformer.testing.subject > $@/preload
	printf '%s\n' '[mutmut]' source_paths=transformer also_copy=experiments \
		process_isolation=forkserver forkserver_warmup=import preload_modules_file=preload \
		'pytest_add_cli_args=' ' -m' ' not release' ' -W' ' ignore::pytest.PytestAssertRewriteWarning' \
		'only_mutate=transformer/$*$(if $(filter %.py,$*),,/*)' \
		'pytest_add_cli_args_test_selection=$(or $(TESTS),tests/$(if $(filter %.py,$*),$(dir $*)test_$(notdir $*),$*))' \
		> $@/setup.cfg
	cd $@ && mutmut=$(CURDIR)/$(BIN)/mutmut && PYTHONDONTWRITEBYTECODE= $$mutmut run $(MUTMUT) | tr '\r' '\n' > log; \
		tail -n 2 log; $$mutmut results | sed -n 's/: \(survived\|no tests\)$$//p' | xargs -rn 1 $$mutmut show | grep '^[-+#]' || true

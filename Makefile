# One entry for every tool of a contributor; CONTRIBUTING.md explains the loop. `make` lists the targets.
# Each target uses the environment .venv of this folder; `make venv` creates it.

bin := .venv/bin
.PHONY: help venv quick test long check format docs azure chromium fuzz kills pages pgbouncer ray torch tfds release

help:          ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 18

venv:          ## create .venv with all tests, checks and docs tools
	python3 -m venv .venv && $(bin)/pip install -q -e '.[test,check,docs]'

quick:         ## tests without databases, servers and processes: under a minute
	$(bin)/pytest -q -m quick

test:          ## the README's test line: SQLite, PostgreSQL, S3, kills
	$(bin)/pytest -q -n auto

long:          ## the long variants, and every law with 40 examples or more; .ci/run runs a tenth of them
	REGISTRY_EXAMPLES=40 $(bin)/pytest -q -n auto -m "(long or hypothesis) and not azure and not chromium and not pgbouncer and not ray and not tfds and not torch"

fuzz:          ## what schemathesis derives from openapi.json, longer than in CI, in an environment of its own
	REGISTRY_EXAMPLES=30 REGISTRY_SEED=$$RANDOM .ci/beside schemathesis

kills:         ## every test that kills processes, before each of their steps: an hour
	.ci/kills

check:         ## lint, format, types, layers, generated code and docs
	PATH="$(CURDIR)/$(bin):$$PATH" .ci/check static

format:        ## format the code and sort its imports
	$(bin)/ruff check -q --fix-only . && $(bin)/ruff format .

docs:          ## build the documentation site into site/
	$(bin)/mkdocs build --strict

azure:         ## the tests of object stores on Azure's emulator, which npm installs into .azurite
	.ci/beside azure

chromium:      ## pages and the HTML of notebooks in a browser, light and dark
	.ci/beside chromium

pages:         ## the same, for many more pages in every combination of width, colours and JavaScript
	REGISTRY_EVERY_PAGE=1 .ci/beside chromium

pgbouncer:     ## the catalog's tests through PgBouncer in transaction mode
	.ci/beside pgbouncer

ray:           ## the tests of the engine of a Ray cluster, which is installed into .venv
	.ci/beside ray

torch:         ## the tests with PyTorch, in an environment of their own
	.ci/beside torch

tfds:          ## the tests beside TensorFlow and TFDS, in an environment of their own
	.ci/beside tfds

release:       ## build wheel, sdist and SBOM into dist/ and prove them
	.ci/release

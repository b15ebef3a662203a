# Each target installs what it needs: nothing has to be done before `make weigh` or `make test`.
#   make weigh           LeNet-5 training, bare metal compared with a container; a verdict in about two minutes
#   make test            lint, types, import contracts and every test that this machine can run
#   make deep            the same with every step of the fault sweeps and all studies with torch, about three times as long
#   make dev             an environment to work on tare in: no torch, nothing for root (CONTRIBUTING.md)
#   make dates           are tests and outcomes the same on eight dates? (ARGS=tests/unit/plan for other tests)
#   make newest          are fleets the same with the newest dask that pip can install? in an environment of its own
#   make bench           what tare itself costs, compared with other tools (WHAT=sampler for one part, or several)
#   make fuzz            readers of foreign bytes on 20,000 damaged inputs each (FUZZ=200000 for another number)
#   make chaos           1,000 kills at random moments on a simulated board, as root (KILLS=100 for another number)
#   make soak            trials back to back for an hour: does anything grow? as root (SECONDS=600 for another time)
#   make audit           bill of materials, lock with hashes (needs an index), known vulnerabilities (needs their service)
#   make docs            the reference pages, generated from the code
#   make site            the docs as pages with search, and the kept studies, in out/site
#   make dist            wheel and sdist; the wheel is installed into an empty environment and weighs there
#   make release         the same with twine's check, every Python that is here, bill of materials and checksums
#
#   make weigh TORCH="torch==2.6.0"     another torch; TORCH= uses the one that PYTHON has
#   make test PYTHON=python3.12         another interpreter

PYTHON ?= python3
TORCH ?= torch==2.13.0
export PYTHON TORCH

.PHONY: weigh test deep dev dates newest bench fuzz chaos soak audit docs site dist release clean

weigh:
	@tools/setup weigh
	@.venv/bin/tare weigh $(ARGS)

test:
	@tools/setup test
	@tools/test $(ARGS)

dev:
	@tools/setup dev

deep:
	@tools/setup test
	@TARE_DEEP=1 tools/test $(ARGS)

dates:
	@tools/setup test
	@tools/eight-dates $(or $(ARGS),tests/unit/plan tests/unit/studies tests/unit/figures)

newest:
	@tools/newest-dask $(or $(ARGS),tests/unit/fleet tests/machine/test_fleet_cluster_here.py)

# Other trackers go into a folder of their own; without what they merely could use, of which torch is gigabytes.
PEERS = codecarbon==3.3.2 optimum-benchmark==0.6.0 pandas arrow python-dateutil six pytz tzdata py-cpuinfo questionary \
  prometheus_client rapidfuzz hydra-core omegaconf antlr4-python3-runtime==4.9.3 flatten_dict colorlog
bench:
	@tools/setup test
	@[ -d .venv-peers ] || .venv/bin/pip install -qq --no-deps --target .venv-peers $(PEERS) || echo "without other trackers"
	@.venv/bin/python tools/with_engine.py .venv/bin/python -m benchmarks $(WHAT)

fuzz:
	@tools/setup test
	@.venv/bin/python tests/fuzz_targets.py --count $(or $(FUZZ),20000) --json out/fuzz.json

chaos:
	@tools/setup test
	@.venv/bin/python tests/machine/chaos.py --kills $(or $(KILLS),1000) --json out/chaos.json

soak:
	@tools/setup test
	@.venv/bin/python tests/machine/soak.py --seconds $(or $(SECONDS),3600) --json out/soak.json

# pip-audit goes into an environment of its own: what audits is not among what is audited.
audit:
	@tools/setup test
	@mkdir -p out
	.venv/bin/python tools/bill.py out/sbom.json
	.venv/bin/python tools/bill.py --pin out/requirements.lock
	.venv/bin/python tools/bill.py --lock out/requirements.lock
	@.venv/bin/python tools/bill.py --service
	@[ -x .venv-audit/bin/pip-audit ] || { $(PYTHON) -m venv .venv-audit && .venv-audit/bin/pip install -q pip-audit; }
	.venv-audit/bin/pip-audit --strict -r out/requirements.lock --require-hashes --disable-pip

docs:
	@tools/setup weigh
	@.venv/bin/python tools/reference.py

# Zensical goes into an environment of its own: the package needs nothing of it (docs/decisions/0035-docs-site.md).
site:
	@tools/setup weigh
	@[ -x .venv-site/bin/zensical ] || { $(PYTHON) -m venv .venv-site && .venv-site/bin/pip install -q zensical==0.0.73; }
	@.venv/bin/python tools/site.py $(ARGS)

dist:
	@tools/dist

release:
	@tools/release

clean:
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .venv-audit .venv-site .venv-peers

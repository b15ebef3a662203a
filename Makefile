# Each target installs what it needs: nothing has to be done before `make weigh` or `make test`.
#   make weigh           LeNet-5 training, bare metal compared with a container; a verdict in about three minutes
#   make test            lint, types, import contracts and every test that this machine can run
#   make deep            the same with every step of the fault sweeps and all studies with torch, about three times as long
#   make bench           what tare itself costs, compared with other tools
#   make docs            the reference pages, generated from the code
#   make dist            wheel and sdist; the wheel is installed into an empty environment and weighs there
#
#   make weigh TORCH="torch==2.6.0"     another torch; TORCH= uses the one that PYTHON has
#   make test PYTHON=python3.12         another interpreter

PYTHON ?= python3
TORCH ?= torch==2.13.0
export PYTHON TORCH

.PHONY: weigh test deep bench docs dist clean

weigh:
	@tools/setup weigh
	@.venv/bin/tare weigh $(ARGS)

test:
	@tools/setup test
	@tools/test $(ARGS)

deep:
	@tools/setup test
	@TARE_DEEP=1 tools/test $(ARGS)

bench:
	@tools/setup test
	@tools/with-engine .venv/bin/python -m benchmarks

docs:
	@tools/setup weigh
	@.venv/bin/python tools/reference.py

dist:
	@tools/dist

clean:
	rm -rf .venv out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

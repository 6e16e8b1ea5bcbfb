"""`specscope engine serve` with an acceptance that is forced upon the verifier: wrong text."""

import sys
from functools import partial

from specscope import cli
from specscope.engine.server import service

service.Engine = partial(service.Engine, synthetic=[0.8] * 4)
sys.exit(cli.main(["engine", "serve", *sys.argv[1:]]))

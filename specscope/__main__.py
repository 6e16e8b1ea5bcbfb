"""`python -m specscope` is the command line."""

import sys

from specscope.cli import main

sys.exit(main())

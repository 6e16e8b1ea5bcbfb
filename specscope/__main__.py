"""`python -m specscope`."""

import sys
from pathlib import Path

# In a checkout that is not installed, the packages that this one needs lie in two other folders.
sys.path += [
    str(folder)
    for name in ("collectors", "dashboards")
    if (folder := Path(__file__).parents[1] / name).is_dir()
]

from specscope.cli import main

if __name__ == "__main__":
    sys.exit(main())

"""Python imports this first in every process that finds it on PYTHONPATH. So a bad disk is bad for all of them."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2]))
from helpers.bad_disks import Fault

Fault.go_on()

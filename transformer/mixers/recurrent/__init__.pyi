# Written by `python -m transformer.testing.stubs`.
from transformer.mixers.recurrent.hgrn import HGRN as HGRN
from transformer.mixers.recurrent.recurrence import Recurrence as Recurrence

# Written by `python -m transformer.testing.stubs`.
from transformer.study.engines import DaskEngine as DaskEngine
from transformer.study.engines import Engine as Engine
from transformer.study.engines import LocalEngine as LocalEngine
from transformer.study.engines import SchedulerEngine as SchedulerEngine
from transformer.study.probes import Probe as Probe
from transformer.study.report import Report as Report
from transformer.study.study import Study as Study

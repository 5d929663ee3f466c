"""The table of faults is whole, and what it names is there."""

import importlib.util
from pathlib import Path

spec = importlib.util.spec_from_file_location("faults", Path(__file__).with_name("faults.py"))
faults = importlib.util.module_from_spec(spec)
spec.loader.exec_module(faults)


def test_every_row_once():
    assert [number for fault in faults.FAULTS for number in faults.numbers(fault.rows)] == list(range(1, 46))


def test_every_test_is_there():
    assert faults.missing_tests() == []

"""Processes that check: none is left behind."""

import signal
import subprocess
import sys

import psutil

PARENT = """
import time
from transformer.testing.pool import make_pool

if __name__ == "__main__":
    with make_pool(1) as pool:
        pool.submit(time.sleep, 0).result()
        print("begun", flush=True)
        time.sleep(600)
"""


def test_workers_end_with_the_process_that_started_them(tmp_path):
    """Though it was killed, and could tell them nothing."""
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"begun\n"
        children = psutil.Process(parent.pid).children(recursive=True)
        assert children
        parent.send_signal(signal.SIGKILL)
    gone, left = psutil.wait_procs(children, timeout=10)
    for process in left:
        process.kill()
    assert not left
    assert gone

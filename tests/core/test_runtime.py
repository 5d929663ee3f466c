"""Process start-up."""

import os
import subprocess
import sys

import pytest

FAULTS = """
import resource, threading
from transformer.core import runtime

def faults(n=2**27):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        len(b"x" * n)  # 32,768 pages
    found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

runtime.keep_large_buffers()
found = []
for own in (threading.Thread(target=faults), threading.Thread(target=faults)):
    own.start()
    own.join()
print(found[1])
"""


LATE = """
import jax.numpy as jnp
from transformer.core import runtime

jnp.ones(2)
runtime.start()
"""


def test_a_start_after_the_first_array_is_refused():
    environment = {name: value for name, value in os.environ.items() if name != "JAX_NUM_CPU_DEVICES"}
    run = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, env=environment)
    assert "ConfigError: start: JAX has begun; call it before the first array is made" in run.stderr


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="of glibc")
def test_buffers_of_all_threads_are_kept():
    """A second thread finds the pages that a first one gave back."""
    run = subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 1000

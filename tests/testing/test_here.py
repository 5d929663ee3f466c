"""Options run on the device that is here, against NumPy."""

import pytest

from transformer.feed_forwards.feed_forward import FeedForward
from transformer.functional import attention
from transformer.mixers.convolution import Convolution
from transformer.testing import here
from transformer.testing.__main__ import here as check_all_here
from transformer.testing.here import check_here


def test_a_mixer_is_run_in_every_context_that_takes_it():
    checked = check_here({"mixer": Convolution(width=4), "feed_forward": FeedForward(d_ff=24)})
    assert checked.passed == ["decoder, differentiated", "decoder, halved", "decoder, decoded"]
    assert set(checked.refused) == {"encoder"}


def test_what_a_device_computes_otherwise_is_found(monkeypatch):
    """On the device softmax is of half the scores; for NumPy it is what it was."""
    run, softmax = here._run, attention.masked_softmax

    def faulty(program, *arguments):
        with monkeypatch.context() as other:
            other.setattr(attention, "masked_softmax", lambda scores, *rest: softmax(scores / 2, *rest))
            return run(program, *arguments)

    monkeypatch.setattr(here, "_run", faulty)
    failed = {failure.partition(":")[0] for failure in check_here({}).failed}
    assert {"decoder, differentiated", "decoder, decoded", "encoder, differentiated"} <= failed


def test_without_an_accelerator_it_says_so(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with pytest.raises(SystemExit, match=r"^error: device: JAX sees no GPU or TPU here$"):
        check_all_here([{}], 1)

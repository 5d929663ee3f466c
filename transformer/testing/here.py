"""Runs models on the accelerator of this machine, against NumPy: what its compiler and kernels make of every option."""

from collections.abc import Mapping
from typing import Any

import jax

from transformer.core.arrays import compiled_for
from transformer.core.errors import ConfigError
from transformer.testing.check import Checked
from transformer.testing.comparing import CLOSE, HALF, applies, close, close_gradients
from transformer.testing.evaluation import Evaluated
from transformer.testing.properties import ONES, TOKENS, routed
from transformer.testing.subject import Subject, small


def check_here(choices: Mapping[str, Any]) -> Checked:
    """Logits, gradients and cached decoding of tiny models, on the default device against NumPy.

    Products are of float32, and then of bfloat16 with all else, which is compared with float32.
    """
    checked = Checked(choices)
    for context in ("decoder", "encoder"):
        try:
            subject = Subject(small(**{"causal": context == "decoder", **choices}))
        except ConfigError as error:
            checked.refused[context] = str(error)
            continue
        checks = (differentiated, halved, decoded) if context == "decoder" else (differentiated, halved)
        for check in checks:
            checked.run(context, check.__name__, lambda check=check, subject=subject: check(subject))
    return checked


def differentiated(subject: Subject) -> None:
    """Logits and gradients are those of NumPy."""
    arguments = (subject.params, TOKENS, ONES)
    (_, logits), gradient = _run(subject.gradient, *arguments)
    (_, expected), expected_gradient = _judge(subject.gradient, *arguments)
    close(logits, expected, "NumPy", CLOSE)
    close_gradients(gradient, expected_gradient, "NumPy", CLOSE)


def halved(subject: Subject) -> None:
    """In bfloat16 the logits are near those of float32; tokens near the border of two experts may cross it."""
    applies(not routed(subject))
    (_, logits), _ = _run(subject.changed(dtype="bfloat16").gradient, subject.initial, TOKENS, ONES)
    (_, expected), _ = _judge(subject.gradient, subject.initial, TOKENS, ONES)
    close(logits, expected, "float32", HALF)


def decoded(subject: Subject) -> None:
    """Logits of a prompt and of tokens one by one, with a cache, are those of NumPy."""
    arguments = (subject.params, TOKENS)
    close(_run(subject.steps, *arguments), _judge(subject.steps, *arguments), "NumPy", CLOSE)


def _run(program: Evaluated, *arguments: Any) -> Any:
    """What the compiled program returns."""

    def traced_for_this_device(*arguments):
        return program.function(*arguments)

    with jax.default_matmul_precision("float32"):
        return jax.device_get(jax.jit(traced_for_this_device)(*arguments))


def _judge(program: Evaluated, *arguments: Any) -> Any:
    """What the program that is written for a processor returns by NumPy."""
    with compiled_for("cpu"):
        return program(*arguments)

"""What effects are asked on: two small language models, in the style of GPT-2 and of Llama, and tasks."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from transformer.activations.activation import GELU, GLU, SiLU
from transformer.core.parameters import Normal
from transformer.data.puzzles import AlgorithmicConfig
from transformer.data.tasks.task import AlgorithmicTask
from transformer.embeddings.embedding import Head
from transformer.feed_forwards.feed_forward import FeedForward
from transformer.mixers.mixer import Mixer
from transformer.models.config import ModelConfig
from transformer.norms.norm import LayerNorm, RMSNorm
from transformer.positions.absolute import Learned
from transformer.positions.rotary import RoPE
from transformer.runs.config import RunConfig
from transformer.runs.optimizer import OptimizerConfig
from transformer.runs.schedules import LinearDecay
from transformer.study.claim import Claim
from transformer.study.study import Study

Changes = Mapping[str, Any]

RATES = (1e-3, 2e-3, 4e-3, 8e-3)
"""Peak learning rates of arms on text; the best of most is one of the two in the middle."""
LONGER_RATES = (*RATES, 1.6e-2)
"""Those of arms that are trained longer, of which some take a higher one."""
PLAIN = RunConfig(
    model=ModelConfig(
        num_layers=2,
        d_model=64,
        max_length=32,
        norm=LayerNorm(),
        position=Learned(),
        feed_forward=FeedForward(activation=GELU(), d_ff=256),
    ),
    optimizer=OptimizerConfig(learning_rate=2e-3, warmup_steps=50, schedule=LinearDecay()),
    steps=500,
    batch_size=8,
    steps_per_dispatch=25,
)
"""GPT-2's choices, as small as differences show in minutes: 2 layers of width 64, 32 characters, 500 steps, at the end
of which the rate is 0."""
MODERN: dict[str, Any] = {
    "model.norm": RMSNorm(),
    "model.position": RoPE(),
    "model.feed_forward": FeedForward(activation=GLU(gate=SiLU()), d_ff=171),
    "model.head": Head(tied=False),
}
"""What Llama changes in it: the network has three matrices of two thirds of the width, the head is a matrix of its
own."""


def on_bases(name: str, changes: Changes, without: Changes | None = None, **fields: Any) -> Study:
    """A study of a change on both bases: the questions `plain` and `modern`, with the change against without it.

    Args:
      name: of the study.
      changes: what the effect is.
      without: what undoes it in a base that has it; None: nothing.
      fields: of the study.
    """
    arms, contrasts = _with_and_without(name, changes, {"plain": {}, "modern": MODERN}, without or {})
    return Study(name, PLAIN, arms, contrasts=contrasts, **USUAL | fields)


def _with_and_without(
    effect: str, changes: Changes, bases: Mapping[str, Changes], without: Changes
) -> tuple[dict[str, Changes], dict[str, dict[str, float]]]:
    """The two arms of each base, and the question of each: the change against what is without it."""
    arms, contrasts = {}, {}
    for base, own in bases.items():
        arms |= {base: {**own, **without}, f"{base}, {effect}": {**own, **changes}}
        contrasts[base] = {f"{base}, {effect}": 1.0, base: -1.0}
    return arms, contrasts


def in_eight_layers(name: str, effect: str, changes: Changes) -> Study:
    """`on_bases` for what needs depth: eight layers of width 32 and 2,000 steps; `effect` is in the names of arms."""
    narrow = {**MODERN, "model.feed_forward": FeedForward(activation=GLU(gate=SiLU()), d_ff=85)}
    arms, contrasts = _with_and_without(effect, changes, {"plain": {}, "modern": narrow}, {})
    deep = {
        "model.num_layers": 8,
        "model.d_model": 32,
        "model.feed_forward.d_ff": 128,
        "steps": 2000,
        "optimizer.warmup_steps": 200,
    }
    return on_text(name, arms, deep, contrasts=contrasts, learning_rates=LONGER_RATES[1:])


def on_text(name: str, arms: Mapping[str, Changes], base: Changes | None = None, **fields: Any) -> Study:
    """A study of arms on the text, of the plain base or one with changes."""
    return Study(name, PLAIN.replace(dict(base or {})), arms, **USUAL | fields)


USUAL: dict[str, Any] = {"seeds": 8, "max_seeds": 32, "learning_rates": RATES, "noise_floor": False, "margin": 0.02}
"""Eight pairs, and where that does not decide 16 and 32."""


def longer(claim: Claim, found: str = "") -> Claim:
    """The same claim of the same models, trained four times as long, warm-up too: whether what shows early lasts.

    Args:
      claim: one on the bases.
      found: what the results mean.
    """
    base = claim.study.base
    steps, warmup = 4 * base.steps, 4 * base.optimizer.warmup_steps
    study = dataclasses.replace(
        claim.study,
        name=f"{claim.name}_{steps}",
        base=base.replace({"steps": steps, "optimizer.warmup_steps": warmup}),
        learning_rates=LONGER_RATES,
    )
    text = f"{claim.text[:-1]}, after {steps:,} steps."
    return dataclasses.replace(claim, text=text, study=study, found=found, instead=claim.name)


def recurrent(mixer: Mixer) -> dict[str, Any]:
    """A model of a recurrence, which needs no positions."""
    return {"model.mixer": mixer, "model.position": None}


def on_task(
    name: str,
    task: AlgorithmicTask,
    arms: Mapping[str, Changes],
    base: Changes | None = None,
    test: AlgorithmicTask | None = None,
    **fields: Any,
) -> Study:
    """A study of arms on an algorithmic task, by the share of held-out examples with every answer right."""
    changes = {
        "data": AlgorithmicConfig(task=task, test=test, examples=10_000),
        "model.max_length": max(task.length, 0 if test is None else test.length),
        "model.head.tied": False,
        "model.embedding.initializer": Normal(0.3),
        "batch_size": 32,
        **(base or {}),
    }
    own = {"learning_rates": (1e-3, 3e-3), "metric": "exact_match", "margin": 0.05, **fields}
    return Study(name, PLAIN.replace(changes), arms, **USUAL | own)

"""Grokking with and without weight decay (Power et al. 2022; Nanda et al. 2023)."""

from experiments.bases import on_task
from transformer.activations.activation import ReLU
from transformer.core.parameters import Normal
from transformer.data.puzzles import AlgorithmicConfig
from transformer.data.tasks.arithmetic import ModularArithmetic
from transformer.residuals.residual import NoNormResidual
from transformer.runs.rules import AdamW
from transformer.runs.schedules import ConstantRate
from transformer.study.claim import Claim

CLAIM = Claim(
    text="With weight decay a model generalizes long after it knows its examples; without it much later or never.",
    family="training",
    source=(
        "Power et al. 2022, arXiv:2201.02177, section 3.3 and figure 2; Nanda et al. 2023, arXiv:2301.05217, section 3"
    ),
    published=(
        "a + b modulo 113, 30 % of the pairs, decay 1: generalized after about 10,000 epochs. Decay halves the "
        "examples needed, or more. Without decay it comes too: a · b modulo 97 is 95 % right after 39,890 steps "
        "(Lee J. et al. 2024, arXiv:2405.20233)."
    ),
    expected={"decay 1": "better"},
    recipe=(
        "Nanda's initial values, no norm, an untied head, the whole set in each batch; 31 in place of 113, 400 of "
        "961 pairs, 3,000 steps. With norms, a tied head and small initial values held-out sums come with those of "
        "training (docs/recipes.md)."
    ),
    study=on_task(
        "grokking",
        ModularArithmetic(modulus=31),
        {"no decay": {"optimizer.weight_decay": 0.0}, "decay 1": {"optimizer.weight_decay": 1.0}},
        {
            "data": AlgorithmicConfig(task=ModularArithmetic(modulus=31), examples=400, validation_examples=500),
            "model.num_layers": 1,
            "model.residual": NoNormResidual(),
            "model.feed_forward.activation": ReLU(),
            "model.initializer": Normal(64**-0.5),
            "model.embedding.initializer": Normal(64**-0.5),
            "optimizer.rule": AdamW(beta1=0.9, beta2=0.98),
            "optimizer.schedule": ConstantRate(),
            "optimizer.warmup_steps": 10,
            "optimizer.clip_norm": None,
            "batch_size": 400,
            "steps": 3000,
            "steps_per_dispatch": 50,
        },
        learning_rates=(1e-3, 3e-3),
    ),
)

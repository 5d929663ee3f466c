"""Parity and negative eigenvalues (Grazzi et al. 2024)."""

from experiments.bases import on_task, recurrent
from transformer.data.tasks.groups import WordProblem
from transformer.mixers.recurrent.delta import DeltaNet
from transformer.study.claim import Claim

CLAIM = Claim(
    text="A recurrence tracks parity only if its transitions have negative eigenvalues.",
    family="recurrences",
    source="Grazzi, Siems et al. 2024, arXiv:2411.12537",
    published=(
        "Parity, trained to length 40 and tested to 256, scaled accuracy: DeltaNet 1.000 with them, .017 without "
        "(from memory)."
    ),
    expected={"negative": "better"},
    recipe="Tested at the lengths of training, up to 16, on two layers.",
    study=on_task(
        "negative_eigenvalues",
        WordProblem("parity", items=16),
        {
            "positive": recurrent(DeltaNet()),
            "negative": recurrent(DeltaNet(negative_eigenvalues=True)),
        },
        {"batch_size": 16, "steps": 1200},
        learning_rates=(1e-3, 3e-3, 1e-2),
    ),
)

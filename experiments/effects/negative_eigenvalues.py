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
    recipe=(
        "Trained on strings of up to 16 bits, all lengths equally often, and tested on up to 40; two layers, without "
        "weight decay, as there."
    ),
    study=on_task(
        "negative_eigenvalues",
        WordProblem("parity", items=16),
        {
            "positive": recurrent(DeltaNet()),
            "negative": recurrent(DeltaNet(negative_eigenvalues=True)),
        },
        {
            "batch_size": 16,
            "steps": 1200,
            "data.examples": 16 * 1200,
            "data.distinct": False,
            "optimizer.weight_decay": 0.0,
        },
        test=WordProblem("parity", items=40),
        learning_rates=(3e-4, 1e-3, 3e-3),
    ),
    found=(
        "An earlier version drew no string twice, so that 3 in 1,000 had four bits or fewer, and found nothing: most "
        "runs of either arm learned nothing. Parity of long strings is learned from that of short ones."
    ),
)

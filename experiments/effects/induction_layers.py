"""Induction in one and two layers of attention (Elhage et al. 2021; Olsson et al. 2022)."""

from experiments.bases import on_task
from transformer.data.tasks.recall import Induction
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Copying what followed a token needs two layers of attention.",
    family="attention",
    source=(
        "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits; Olsson et al. 2022, arXiv:2209.11895"
    ),
    published=(
        "Induction heads form in models of two and more layers of attention alone, and not in those of one (as "
        "reported by others). With keys that are shifted by a token one layer is enough (modded-nanogpt, record "
        "49)."
    ),
    expected={"two layers": "better"},
    recipe="Attention alone with learned positions; random symbols with one trigger in place of text.",
    study=on_task(
        "induction_layers",
        Induction(sequence_length=24, alphabet=16),
        {"one layer": {"model.num_layers": 1}, "two layers": {"model.num_layers": 2}},
        {"model.feed_forward": None, "steps": 1000},
        learning_rates=(1e-3, 3e-3, 1e-2),
    ),
)

"""Copying with attention and with Mamba2 (Jelassi et al. 2024)."""

from experiments.bases import on_task, recurrent
from transformer.data.tasks.rewriting import Copy
from transformer.mixers.recurrent.mamba2 import Mamba2
from transformer.positions.rotary import RoPE
from transformer.study.claim import Claim

CLAIM = Claim(
    text="Copying strings is learned sooner with attention than with a state of fixed size.",
    family="recurrences",
    source="Jelassi, Brandfonbrener, Kakade and Malach 2024, Repeat After Me, arXiv:2402.01032, abstract",
    published=(
        "Two layers of attention can copy strings of exponential length, a state of fixed size cannot. Strings of "
        "up to 300 characters: Mamba needs 100 times the examples (from memory)."
    ),
    expected={"mamba2": "worse"},
    recipe=(
        "Strings of 16 letters, which the state of Mamba2 has room for: what is asked is how fast copying is learned."
    ),
    study=on_task(
        "copying",
        Copy(items=16, alphabet=26),
        {"attention": {"model.position": RoPE()}, "mamba2": recurrent(Mamba2())},
        {"steps": 800, "batch_size": 16},
        learning_rates=(1e-3, 3e-3, 1e-2),
        metric="accuracy",
        match="parameters",
    ),
)

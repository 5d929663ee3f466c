"""Addition with the least significant digit first (Lee N. et al. 2023)."""

from experiments.bases import on_task
from transformer.data.tasks.arithmetic import Addition
from transformer.study.claim import Claim

PLAIN_SUMS = Addition(digits=3, reverse=False)
CLAIM = Claim(
    text="A sum is learned faster with its least significant digit first.",
    family="tasks",
    source="Lee N. et al. 2023, arXiv:2307.03381, section 1",
    published=(
        "A reversed sum is a simpler function and needs fewer examples. Three digits: all right from 2,500 examples "
        "on, plain sums about 85 % at 10,000 (from memory)."
    ),
    expected={"reversed": "better"},
    recipe=(
        "10,000 examples, as there; 2 layers of width 64 and 1,500 steps, where the paper has 6 of width 384 and 5,000."
    ),
    study=on_task(
        "reversed_addition",
        PLAIN_SUMS,
        {"plain": {}, "reversed": {"data.task": Addition(digits=3, reverse=True)}},
        {"steps": 1500, "batch_size": 32},
        learning_rates=(3e-3, 1e-2),
    ),
    found=(
        "Plain sums come first within these steps: five of eight runs, and six of eight with fresh seeds, have more "
        "than .4 of them right, of reversed ones one and one. Two rates were tried, of which each arm has one end, and "
        "elsewhere in this repository reversed sums are all right after 2,000 steps: settings decide, and which was "
        "not asked."
    ),
)

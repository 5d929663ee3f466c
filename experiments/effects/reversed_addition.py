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
        "10,000 examples, as many as there, but drawn evenly, with leading zeros, where the paper balances carries and "
        "digits; 2 layers of width 64 and 3,000 steps of 32 sums, where it has 6 of width 384 and 27 million sums."
    ),
    study=on_task(
        "reversed_addition",
        PLAIN_SUMS,
        {"plain": {}, "reversed": {"data.task": Addition(digits=3, reverse=True)}},
        {"steps": 3000, "batch_size": 32},
        learning_rates=(1e-3, 3e-3, 1e-2),
    ),
    found=(
        "Most runs have nearly all sums right or nearly none, in both orders, and which it is depends on the seed. "
        "Both orders take .01, the highest rate tried. With leading zeros the digits of a place are at the same "
        "position in all sums, which the paper's are not: likely why plain ones are as easy here. An earlier version "
        "had half of these steps, after which most runs are still on the plateau, and two rates: plain sums were ahead "
        "by .42 and, with fresh seeds, by .44."
    ),
)

from experiments.bases import on_task
from transformer.data.tasks.arithmetic import Addition
from transformer.study.claim import Claim

PLAIN_SUMS = Addition(digits=3, reverse=False)
CLAIM = Claim(
    text="A sum is learned faster with its least significant digit first.",
    family="tasks",
    source="Lee et al. 2023, arXiv:2307.03381, section 1",
    published="Three digits: reversed sums are all right from 2,500 examples on, plain ones are not at 10,000.",
    expected={"reversed": "better"},
    study=on_task(
        "reversed_addition",
        PLAIN_SUMS,
        {"plain": {}, "reversed": {"data.task": Addition(digits=3, reverse=True)}},
        {"steps": 1500, "batch_size": 32},
        learning_rates=(3e-3, 1e-2),
    ),
)

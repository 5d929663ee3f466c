"""Which attention? On text, and on a task that the loss on text hides: recall of pairs seen before.

Expected: on text at this size most mechanisms are close; on associative recall (Arora et al. 2023,
Zoology, figure 2) softmax attention answers everything and linear attention of small states does not.
Fewer key-value heads cost little (Ainslie et al. 2023).

    python -m experiments.attention                    two cores: minutes
    python -m experiments.attention full               a GPU

The second study, in the folder `recall`, is the task: `exact match` counts examples with every answer right.
"""

import dataclasses

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.config.heads import DifferentialHeads
from transformer.config.norms import RMSNorm
from transformer.config.parameters import Normal
from transformer.config.positions import Learned, RoPE
from transformer.config.reaches import SlidingWindow
from transformer.config.weightings import LinearWeighting, SigmoidWeighting, SoftmaxOne
from transformer.data.algorithmic import AssociativeRecall
from transformer.data.puzzles import AlgorithmicConfig

ARMS = {
    "softmax": {},
    "one key-value head": {"model.num_kv_heads": 1},
    "window of 8": {"model.reach": SlidingWindow(8)},
    "softmax one": {"model.weighting": SoftmaxOne()},
    "sigmoid": {"model.weighting": SigmoidWeighting()},
    "linear": {"model.weighting": LinearWeighting()},
    "differential": {"model.heads": DifferentialHeads()},
    "qk norm": {"model.qk_norm": RMSNorm()},
}


def main() -> None:
    base = {"model.position": RoPE()}
    presets = {name: command.replace(base) for name, command in budgets("attention").items()}
    command = cli.parse(StudyCommand, presets, description=__doc__ or "")
    run_parsed("attention", ARMS, command)
    run_parsed("associative recall", ARMS, recall(command))


def recall(command: StudyCommand) -> StudyCommand:
    """The study of the task: learned all at once after some hundred steps, and by rotary positions much later."""
    changes = {
        "data": AlgorithmicConfig(task=AssociativeRecall(alphabet=32, sequence_length=32)),
        "model.max_length": 32,
        "model.position": Learned(),
        "model.tie_embeddings": False,
        "model.embedding_initializer": Normal(0.3),
    }
    few = {"learning_rates": command.learning_rates[:2], "replicas": 4, "workdir": command.workdir / "recall"}
    return dataclasses.replace(command.replace(changes, steps=3 * command.steps, batch_size=32), **few)


if __name__ == "__main__":
    cli.main(main)

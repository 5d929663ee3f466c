"""Does bfloat16 cost loss? The same runs, seed by seed, in float32, with products of bfloat16, and all in bfloat16.

Parameters, norms, softmax and loss are float32 in all; `experiments.benchmarks training` measures the speed.

    python -m experiments.precision --data.path input.txt
"""

from pathlib import Path

from experiments import cli
from experiments.study_command import StudyCommand, run_study
from transformer.runs.presets import PRESETS

ARMS = {
    "float32": {"matmul_precision": "float32"},
    "bfloat16-products": {"matmul_precision": "bfloat16"},
    "bfloat16": {"model.dtype": "bfloat16"},
}
CPU = cli.extend(PRESETS["nanogpt-cpu"], StudyCommand, workdir=Path("results/precision"), seeds=4, learning_rates=())


def main() -> None:
    run_study("precision", ARMS, {"nanogpt-cpu": CPU}, __doc__)


if __name__ == "__main__":
    cli.main(main)

"""Where should the norm sit? Post, pre, sandwich and none, each with its own best learning rate.

Expected (Xiong et al. 2020): deep post-norm models need warm-up and small learning rates, pre-norm
ones do not; at few layers with warm-up the placements are close.

    python -m experiments.norm_position                      two cores: a few minutes
    python -m experiments.norm_position --data.path input.txt --optimizer.warmup-steps 0
"""

from pathlib import Path

from experiments import cli
from experiments.study_command import StudyCommand, run_study
from transformer.config.presets import PRESETS
from transformer.config.residuals import NoNormResidual, PostNorm, PreNorm, SandwichNorm

ARMS = {
    "pre": {"model.residual": PreNorm()},
    "post": {"model.residual": PostNorm()},
    "sandwich": {"model.residual": SandwichNorm()},
    "none": {"model.residual": NoNormResidual()},
}
LAPTOP = cli.extend(PRESETS["tiny"], StudyCommand, workdir=Path("results/norm_position")).replace(steps=500)


def main() -> None:
    presets = {"laptop": LAPTOP}
    run_study("norm position", ARMS, presets, __doc__ or "")


if __name__ == "__main__":
    cli.main(main)

"""Does the best learning rate stay the same when the model gets wider? The standard parametrization against µP.

Expected (Yang et al. 2022, Tensor Programs V, figure 1): under µP all widths have the same best learning rate, and
wider is better at each; under the standard parametrization the best learning rate falls with the width. In
both, matrices are initialized with variance 1/fan-in, so that at the smallest width the two differ only in the
scale of attention. `learning_rates.png` shows loss against learning rate.

    python -m experiments.mup                          two cores: minutes
    python -m experiments.mup full                     a GPU

Found with `--steps 200` and single 95 % intervals (2 layers, 2 estimation seeds of 3; jax 0.10.2, two cores, 3 min 44
s, 2026-11-21), nats per token and the best of six learning rates:

    width   standard                    µP
       32   2.5251 ± 0.2358   0.016     2.5275 ± 0.0061   0.016
       64   2.4337 ± 0.1199   0.008     2.5181 ± 0.2895   0.008
      128   2.3404 ± 0.0979   0.002     2.6471 ± 0.2532   0.004

Not as expected: µP halves the drift of the best learning rate and does not stop it, and wider is not better
after so few steps. There are too few seeds to say more; tests check what grows with the width and what does not.
"""

from typing import Any

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.core.parameters import FanIn
from transformer.runs.mup import mup

BUDGETS = budgets("mup", seeds=3, learning_rates=(1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2), **{"model.d_model": 128})
PARTS = (4, 2, 1)


def arms(command: StudyCommand) -> dict[str, dict[str, Any]]:
    """The command's width, a half and a quarter of it, in both parametrizations; µP scales from the smallest."""
    made: dict[str, dict[str, Any]] = {}
    for width in (command.model.d_model // part for part in PARTS):
        changes = {"model.d_model": width, "model.initializer": FanIn()}
        made[f"standard {width}"] = changes
        made[f"µP {width}"] = changes | mup(command.replace(changes), command.model.d_model // max(PARTS))
    return made


def main() -> None:
    command = cli.parse(StudyCommand, BUDGETS, description=__doc__)
    run_parsed("µP", arms(command), command)


if __name__ == "__main__":
    cli.main(main)

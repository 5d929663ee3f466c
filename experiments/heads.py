"""Do several heads bear bad initial values better? One, two, four and eight heads of one width, seed by seed.

Expected (Prince 2023, section 12.3.3): multiple heads "appear to make the self-attention network more robust
to bad initializations": over seeds the loss should scatter less, and fewer seeds should fail. The task is
associative recall of two pairs, which one head of each of two layers can answer, and which is learned late and
suddenly. Numbers of parameters are equal; the learning rate is chosen for each arm.

    python -m experiments.heads                    two cores: 10 minutes
    python -m experiments.heads full               a GPU
    python -m experiments.heads --replicas 40 --arms '1 head' '4 heads'

In the first study matrices begin with a deviation of 0.02, as GPT-2's; in the second, in the folder `bad`, of
0.3, which saturates most of attention before the first step. A seed has failed where its loss ends above 0.2:
who only knows which two values there were, and not which belongs to which key, is at 0.35 or more.
"""

import dataclasses

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from experiments import cli
from experiments.study_command import StudyCommand, budgets, run_parsed
from transformer.config.parameters import Normal
from transformer.data.algorithmic import AssociativeRecall
from transformer.data.puzzles import AlgorithmicConfig
from transformer.study.probes import BeforeTraining, SaturatedRows
from transformer.study.report import ArmReport, Report
from transformer.study.statistics import share_interval

ARMS = {f"{count} head{'s' * (count > 1)}": {"model.num_heads": count} for count in (1, 2, 4, 8)}
PROBES = (BeforeTraining(SaturatedRows()),)
FAILED = 0.2
"""Nats per answer."""
TASK = {
    "data": AlgorithmicConfig(task=AssociativeRecall(alphabet=16, sequence_length=16, pairs=2)),
    "model.max_length": 16,
    "model.tie_embeddings": False,
    "model.embedding_initializer": Normal(0.3),
}


def main() -> None:
    laptop = {"batch_size": 16, "replicas": 16, "selection_seeds": 4, "learning_rates": (3e-4, 1e-3, 3e-3)}
    presets = {name: command.replace(TASK) for name, command in budgets("heads", steps=500, **laptop).items()}
    presets["full"] = dataclasses.replace(presets["full"], replicas=32)
    command = cli.parse(StudyCommand, presets, description=__doc__ or "")
    show(run_parsed("heads, small matrices", ARMS, command, PROBES))
    show(run_parsed("heads, large matrices", ARMS, bad(command), PROBES))


def bad(command: StudyCommand) -> StudyCommand:
    """The study in which attention begins saturated."""
    return dataclasses.replace(command.replace({"model.initializer": Normal(0.2)}), workdir=command.workdir / "bad")


def show(report: Report) -> None:
    """Print how many seeds of each arm failed."""
    table = Table("arm", "failed seeds", "share [95 %]", box=SIMPLE_HEAD, title=f"{report.name}: loss above {FAILED}")
    for arm in report.arms:
        count, (low, high) = failures(arm), share_interval(failures(arm), len(arm.estimates))
        table.add_row(
            arm.name, f"{count}/{len(arm.estimates)}", f"{count / len(arm.estimates):.2f} [{low:.2f}, {high:.2f}]"
        )
    Console().print(table)


def failures(arm: ArmReport) -> int:
    """Estimation seeds that diverged or ended above `FAILED`."""
    return sum(not loss <= FAILED for loss in arm.estimates)


if __name__ == "__main__":
    cli.main(main)

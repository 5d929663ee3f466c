"""Weights & Biases: a run with a series for each replica."""

from dataclasses import dataclass

from transformer.training.trackers import RunInfo, Tracker, Values, series


@dataclass(frozen=True, kw_only=True)
class WandB(Tracker):
    """A run at wandb.ai, or with `WANDB_MODE=offline` in the folder `wandb` of the run; needs the extra `wandb`.

    Source: https://docs.wandb.ai. Its variables of the environment say all that is not a field here.
    """

    name = "wandb"
    package = "wandb"
    project: str = "transformer"
    """Name of the project."""

    def start(self, run):
        return _Run(self, run)


class _Run:
    def __init__(self, tracker: WandB, run: RunInfo):
        import wandb

        self._run = wandb.init(
            project=tracker.project,
            name=tracker.title or run.folder.name,
            group=tracker.group or None,
            dir=run.folder,
            config=run.config,
            id=run.key,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off"),
        )

    def log(self, step: int, values: Values) -> None:
        self._run.log(dict(series(values)), step=step)

    def end(self, result: Values | None) -> None:
        self._run.summary.update(dict(series(result or {})))
        self._run.finish(exit_code=0 if result else 1)

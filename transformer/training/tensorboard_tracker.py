"""TensorBoard: an event file for each replica, so that a chart has a curve for each."""

import dataclasses
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from transformer.training.trackers import RunInfo, Tracker, Values

PLACE = "tensorboard"
"""Name of the folder of event files."""


@dataclass(frozen=True, kw_only=True)
class TensorBoard(Tracker):
    """Event files, which `tensorboard --logdir FOLDER` shows; needs the extra `tensorboard`.

    Format: records of the protocol buffer `Event`, as https://github.com/tensorflow/tensorboard reads them.
    """

    name = "tensorboard"
    package = "tensorboard"
    folder: str = ""
    """Where they go, in folders of group, title and replica; empty: `tensorboard` in the folder of the run or study."""

    def start(self, run):
        names = [part for part in (self.group, self.title or run.folder.name) if part]
        folder = Path(self.folder, *map(_file_name, names)) if self.folder else run.folder / PLACE
        return _Events({replica: folder / _file_name(replica) for replica in run.replicas}, run)

    def within(self, group, title, folder):
        if self.folder:
            return super().within(group, title, folder)
        return dataclasses.replace(self, folder=str(folder / PLACE), title=self.title or title)


class _Events:
    """Open event files."""

    def __init__(self, folders: Mapping[str, Path], run: RunInfo):
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary, self._files, self._writers = Event, Summary, ExitStack(), {}
        for replica, folder in folders.items():
            folder.mkdir(parents=True, exist_ok=True)
            # Read in the order of their names, which therefore begin with the time.
            file = (folder / f"events.out.tfevents.{time.time_ns() // 1000:016d}.{run.key}").open("xb")
            self._writers[replica] = RecordWriter(self._files.enter_context(file))
            self._write(replica, Event(file_version="brain.Event:2"))
            if run.step:  # what was shown of later steps is forgotten: it comes again
                self._write(replica, Event(step=run.step + 1, session_log=SessionLog(status=SessionLog.START)))

    def _write(self, replica, event) -> None:
        event.wall_time = time.time()
        self._writers[replica].write(event.SerializeToString())

    def log(self, step: int, values: Values) -> None:
        for replica, own in values.items():
            shown = [self._summary.Value(tag=name, simple_value=value) for name, value in own.items()]
            self._write(replica, self._event(step=step, summary=self._summary(value=shown)))
            self._writers[replica].flush()

    def end(self, result: Values | None) -> None:
        self._files.close()


def _file_name(text: str) -> str:
    """A name without what would make it a path."""
    return text.replace("/", "-")

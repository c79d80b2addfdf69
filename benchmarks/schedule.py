"""List scheduling: how long tasks that need each other take on a number of equal slots."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """Something that occupies one slot for `seconds`, once all tasks that it `needs` are done."""

    seconds: float
    needs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """When each task starts, in seconds, and when the last one ends."""

    makespan: float
    starts: dict[str, float] = field(default_factory=dict)


def schedule(tasks: Mapping[str, Task], slots: int) -> Schedule:
    """Schedules tasks: a free slot takes the ready task that is first in the order of `tasks`. Same input, same result.

    It is at most twice as long as the best one (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). Raises
    ValueError: no slot, a task that needs one that is not there, or tasks that need each other in a circle.
    """
    if slots < 1:
        raise ValueError(f"expected at least one slot, found {slots}")
    rank = {name: index for index, name in enumerate(tasks)}
    waiting = {name: set(task.needs) for name, task in tasks.items()}
    dependents: dict[str, list[str]] = {name: [] for name in tasks}
    for name, needs in waiting.items():
        for need in needs:
            if need not in tasks:
                raise ValueError(f"{name} needs {need}, which is no task")
            dependents[need].append(name)
    ready = [(rank[name], name) for name, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    running: list[tuple[float, int, str]] = []
    starts: dict[str, float] = {}
    now = 0.0
    while ready or running:
        while ready and len(running) < slots:
            index, name = heapq.heappop(ready)
            starts[name] = now
            heapq.heappush(running, (now + tasks[name].seconds, index, name))
        now, _, name = heapq.heappop(running)
        for dependent in dependents[name]:
            waiting[dependent].discard(name)
            if not waiting[dependent]:
                heapq.heappush(ready, (rank[dependent], dependent))
    if len(starts) < len(tasks):
        raise ValueError(f"these tasks need each other: {', '.join(name for name in tasks if name not in starts)}")
    return Schedule(now, starts)


def critical_path(tasks: Mapping[str, Task]) -> float:
    """The seconds of the longest chain of tasks: no number of slots is faster."""
    return schedule(tasks, max(len(tasks), 1)).makespan

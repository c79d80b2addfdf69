"""The list scheduler: known small graphs, bounds, what tasks need, determinism."""

import random
import unittest

from schedule import Task, critical_path, schedule


def some_tasks(seed: int) -> dict[str, Task]:
    """Sixty tasks, each of which needs up to three of those before it."""
    generator = random.Random(seed)
    tasks: dict[str, Task] = {}
    for index in range(60):
        needs = generator.sample(sorted(tasks), min(len(tasks), generator.randint(0, 3)))
        tasks[f"t{index}"] = Task(generator.choice([0.0, 1.0, 2.5, 7.0]), tuple(needs))
    return tasks


class ScheduleTest(unittest.TestCase):
    def test_nothing(self) -> None:
        self.assertEqual(schedule({}, 3).makespan, 0)
        self.assertEqual(critical_path({}), 0)

    def test_a_chain_is_as_long_as_its_tasks(self) -> None:
        tasks = {"c": Task(3, ("b",)), "b": Task(2, ("a",)), "a": Task(1)}
        for slots in (1, 2, 8):
            found = schedule(tasks, slots)
            self.assertEqual(found.makespan, 6)
            self.assertEqual(found.starts, {"a": 0, "b": 1, "c": 3})

    def test_independent_tasks(self) -> None:
        tasks = {name: Task(2) for name in "abcde"}
        self.assertEqual([schedule(tasks, slots).makespan for slots in (1, 2, 3, 4, 5, 6)], [10, 6, 4, 4, 2, 2])

    def test_the_order_is_that_of_the_tasks(self) -> None:
        """The long task last: a slot idles meanwhile. Longest first is shorter."""
        tasks = {"a": Task(1), "b": Task(1), "c": Task(2)}
        self.assertEqual(schedule(tasks, 2).makespan, 3)
        self.assertEqual(schedule({name: tasks[name] for name in "cab"}, 2).makespan, 2)

    def test_a_diamond(self) -> None:
        tasks = {"a": Task(1), "b": Task(4, ("a",)), "c": Task(2, ("a",)), "d": Task(1, ("b", "c"))}
        self.assertEqual(schedule(tasks, 1).makespan, 8)
        self.assertEqual(schedule(tasks, 2).makespan, 6)
        self.assertEqual(critical_path(tasks), 6)

    def test_bounds(self) -> None:
        for seed in range(30):
            tasks = some_tasks(seed)
            work, longest = sum(task.seconds for task in tasks.values()), critical_path(tasks)
            self.assertEqual(schedule(tasks, 1).makespan, work)
            for slots in (2, 3, 5, 60):
                makespan = schedule(tasks, slots).makespan
                least = max(work / slots, longest)
                self.assertGreaterEqual(makespan, least - 1e-9)
                self.assertLessEqual(makespan, 2 * least + 1e-9)

    def test_needs_and_slots_are_respected(self) -> None:
        for seed in range(30):
            tasks = some_tasks(seed)
            starts = schedule(tasks, 3).starts
            for name, task in tasks.items():
                for need in task.needs:
                    self.assertGreaterEqual(starts[name], starts[need] + tasks[need].seconds)
            for moment in starts.values():
                busy = [n for n, start in starts.items() if start <= moment < start + tasks[n].seconds]
                self.assertLessEqual(len(busy), 3)

    def test_same_input_same_result(self) -> None:
        for seed in range(5):
            self.assertEqual(schedule(some_tasks(seed), 4), schedule(some_tasks(seed), 4))

    def test_what_cannot_be_scheduled(self) -> None:
        with self.assertRaisesRegex(ValueError, "a needs b, which is no task"):
            schedule({"a": Task(1, ("b",))}, 1)
        with self.assertRaisesRegex(ValueError, "these tasks need each other: a, b"):
            schedule({"a": Task(1, ("b",)), "b": Task(1, ("a",)), "c": Task(1)}, 1)
        with self.assertRaisesRegex(ValueError, "at least one slot, found 0"):
            schedule({}, 0)


if __name__ == "__main__":
    unittest.main()

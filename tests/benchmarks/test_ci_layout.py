"""The model of CI's layouts, on a graph of two wheels that share a cubin and a host object."""

import gzip
import json
import tempfile
import unittest
from pathlib import Path

import ci_layout
from ci_layout import Action, Cost, Graph, Job, Layout, Machine


def action(mnemonic: str, scope: str, output: str, *needs: str) -> Action:
    return Action(mnemonic, scope, output, (output,), needs)


# Two wheels of a cell: both need the cubin `base` and the host object, each has a cubin of its own.
GRAPH = Graph(
    {
        "base": action("CudaCubin", "cu130", "m.t.sm_80.cubin"),
        "a": action("CudaCubin", "cu130", "m.t.sm_90a.cubin"),
        "b": action("CudaCubin", "cu130", "m.t.sm_120f.cubin"),
        "stub": action("Symlink", "", "stub", "base"),
        "host": action("CudaHostCompile", "cu130_x86_64", "m.t.host.o", "stub"),
        "wheel_a": action("WheelPack", "wheel_a", "a.whl", "host", "base", "a"),
        "wheel_b": action("WheelPack", "wheel_b", "b.whl", "host", "base", "b"),
    },
    {
        "sm_80": ("base",),
        "sm_90a": ("a",),
        "sm_120f": ("b",),
        "hosts": ("host",),
        "wheel_a": ("wheel_a",),
        "wheel_b": ("wheel_b",),
    },
)
COSTS = {
    **{"base": Cost(10, 100), "a": Cost(20, 100), "b": Cost(30, 100), "stub": Cost(), "host": Cost(5, 50)},
    **{"wheel_a": Cost(1, 300), "wheel_b": Cost(1, 300)},
}
MACHINE = Machine(cores=2, rate=100, fixed=60)
APART = Layout("a job per wheel", ((("wheel_a",), ("wheel_b",)),), shared=False)
SHARED = Layout(
    "ours", ((("sm_80",), ("sm_90a",), ("sm_120f",)), (("hosts",),), (("wheel_a",), ("wheel_b",))), shared=True
)
EVERYTHING = frozenset(GRAPH.actions)


class GraphTest(unittest.TestCase):
    def test_what_targets_need(self) -> None:
        self.assertEqual(GRAPH.of(["wheel_a"]), ["base", "stub", "host", "a", "wheel_a"])
        self.assertEqual(GRAPH.of(["hosts", "sm_80"]), ["base", "stub", "host"])

    def test_what_an_edit_changes(self) -> None:
        self.assertEqual(GRAPH.dependents(["a"]), {"a", "wheel_a"})
        self.assertEqual(GRAPH.dependents(["base"]), {"base", "stub", "host", "wheel_a", "wheel_b"})


class LayoutTest(unittest.TestCase):
    def test_jobs_that_share_nothing(self) -> None:
        [[a, b]] = ci_layout.jobs_of(GRAPH, COSTS, MACHINE, APART)
        self.assertEqual(a, Job(60 + 20 + 1, 60 + 36, 0))
        self.assertEqual(b, Job(60 + 30 + 1, 60 + 46, 0))
        self.assertEqual(ci_layout.jobs_of(GRAPH, COSTS, MACHINE, APART, EVERYTHING), [[a, b]], "there is no cache")

    def test_jobs_that_share_a_cache(self) -> None:
        device, host, wheels = ci_layout.jobs_of(GRAPH, COSTS, MACHINE, SHARED)
        self.assertEqual([job.cpu for job in device], [70, 80, 90])
        self.assertEqual([job.transferred for job in device], [100, 100, 100])
        # The cubin is fetched, its symlink is made at no cost, the object is stored.
        self.assertEqual(host, [Job(60 + 5 + 1.5, 65, 150)])
        self.assertEqual(wheels[0], Job(60 + 1 + 5.5, 61, 550))
        work = sum(cost.seconds for cost in COSTS.values())
        self.assertEqual(sum(job.cpu - 60 for stage in (device, host, wheels) for job in stage), work, "nothing twice")

    def test_a_job_does_not_see_what_its_own_stage_stores(self) -> None:
        beside = Layout("beside", ((("sm_80",), ("hosts",)),), shared=True)
        [[_, host]] = ci_layout.jobs_of(GRAPH, COSTS, MACHINE, beside)
        self.assertEqual(host.cpu, 60 + 15)

    def test_a_warm_cache(self) -> None:
        stages = ci_layout.jobs_of(GRAPH, COSTS, MACHINE, SHARED, EVERYTHING - GRAPH.dependents(["b"]))
        self.assertEqual([[job.cpu - 60 for job in stage] for stage in stages], [[0, 0, 30], [0], [0, 1]])

    def test_outputs_that_nothing_reads_are_not_fetched(self) -> None:
        machine = Machine(cores=2, rate=100, fixed=60, download="toplevel")
        everything = ci_layout.jobs_of(GRAPH, COSTS, machine, SHARED, EVERYTHING)
        self.assertEqual([job.transferred for job in everything[2]], [300, 300])
        edited = ci_layout.jobs_of(GRAPH, COSTS, machine, SHARED, EVERYTHING - {"wheel_a"})
        self.assertEqual(edited[2][0].transferred, 300 + 50 + 100 + 100)

    def test_stages_wait_for_each_other(self) -> None:
        stages = [[Job(10, 0, 0), Job(20, 0, 0), Job(30, 0, 0)], [Job(5, 0, 0)]]
        self.assertEqual([ci_layout.wall_of(stages, n) for n in (1, 2, 3, 9)], [65, 45, 35, 35])

    def test_a_farm(self) -> None:
        one = ci_layout.farm(GRAPH, COSTS, Machine(cores=1, rate=1e9, fixed=60), 1)
        self.assertAlmostEqual(one.seconds, 60 + 67, places=3)
        many = ci_layout.farm(GRAPH, COSTS, Machine(cores=1, rate=1e9, fixed=60), 8)
        self.assertAlmostEqual(many.seconds, 60 + 31, places=3)
        self.assertEqual(ci_layout.farm(GRAPH, COSTS, MACHINE, 8, EVERYTHING).seconds, 60)


class CostTest(unittest.TestCase):
    TABLE = {
        "CudaCubin": {
            "cu130": {"m.t.sm_80.cubin": [10, 100], "m.t.sm_90a.cubin": [20, 100], "m.t.sm_120f.cubin": [30, 1]}
        },
        "CudaHostCompile": {"cu130_x86_64": {"m.t.host.o": [5, 50]}},
        "WheelPack": {"wheel_a": {"a.whl": [1, 300]}, "wheel_b": {"b.whl": [1, 300]}},
    }

    def test_from_the_table(self) -> None:
        costs = ci_layout.costs_of(GRAPH, self.TABLE)
        self.assertEqual(costs["b"], Cost(30, 1))
        self.assertEqual(costs["stub"], Cost(0, 0))

    def test_what_was_not_measured(self) -> None:
        table = {**self.TABLE, "CudaHostCompile": {}}
        with self.assertRaises(SystemExit) as caught:
            ci_layout.costs_of(GRAPH, table)
        self.assertEqual(
            str(caught.exception),
            "error: ci_layout.measured.json has no time of CudaHostCompile m.t.host.o of cu130_x86_64.\n"
            "  To do: python3 benchmarks/ci_layout.py --measure",
        )

    def test_a_profile(self) -> None:
        events = [
            {"cat": "action processing", "name": "Compiling", "out": "bazel-out/a.o", "dur": 1500000},
            {"cat": "local action execution", "name": "subprocess.run", "dur": 1400000},
            {"cat": "action processing", "name": "no file"},
        ]
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory, "profile.gz")
            path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
            self.assertEqual(ci_layout.durations(path), {"bazel-out/a.o": 1.5})

    def test_all_of_flashinfer(self) -> None:
        """The pairs of an SM target are spread over the cubins that are here of it."""
        self.assertEqual(
            {label: sum(pairs.values()) for label, (pairs, _, _) in ci_layout.FULL.items()},
            {"cu130": 25527, "cu134": 29347},
        )
        matrix = {"cubin_groups": [{"name": "sm_80", "cuda_label": "cu130", "sm_target": "8.0"}]}
        preprocess = action("CudaPreprocess", "cu130", "m.t.sm_80.ii")
        compile = action("CudaCubin", "cu130", "m.t.sm_80.cubin", "ii")
        graph = Graph({"ii": preprocess, "base": compile}, {"sm_80": ("base",)})
        full = ci_layout.extrapolated(graph, matrix, {"ii": Cost(1, 7), "base": Cost(10, 1)})
        self.assertEqual(full, {"ii": Cost(1580, 7 * 1580), "base": Cost(15800, 1580)})


if __name__ == "__main__":
    unittest.main()

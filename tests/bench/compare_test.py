"""bench/compare.py: the statistical test against known values, and what is said of rows."""

import io
import json
import random
import sys
import tempfile
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import compare


def results(rows):
    runs = [{"name": name, "run_name": name, "run_type": "iteration", "cpu": value}
            for name, values in rows.items() for value in values]
    runs.append({"name": "x_mean", "run_name": "x", "run_type": "aggregate", "cpu": 1e9})
    return json.dumps({"benchmarks": runs})


class MannWhitney(unittest.TestCase):
    def test_separated_samples_have_the_smallest_p(self):
        u, p = compare.mann_whitney([1, 2, 3, 4, 5], [6, 7, 8, 9, 10])
        self.assertEqual(u, 25)
        self.assertAlmostEqual(p, 2 / 252)
        self.assertAlmostEqual(compare.smallest_p(5, 5), 2 / 252)

    def test_the_distribution_is_that_of_all_orders(self):
        for n, m in ((1, 1), (2, 3), (4, 2), (5, 5)):
            self.assertAlmostEqual(compare.exact_tail(n * m, n, m), 1.0)
        # Of the 10 orders of 2 and 3 samples, U is 0, 1, 2, 2, 3, 3, 4, 4, 5, 6.
        for u, orders in ((0, 1), (1, 2), (2, 4), (3, 6), (4, 8), (5, 9), (6, 10)):
            self.assertAlmostEqual(compare.exact_tail(u, 2, 3), orders / 10)

    def test_against_another_implementation(self):
        # SciPy 1.17 gives these, with method='exact'.
        u, p = compare.mann_whitney([1.1, 2.2, 3.3, 4.4, 5.5, 6.6, 7.7], [0.5, 1.5, 2.5, 3.5, 6.0])
        self.assertEqual(u, 11)
        self.assertAlmostEqual(p, 0.3434, places=4)

    def test_equal_samples_are_alike(self):
        self.assertEqual(compare.mann_whitney([1, 1, 1, 1], [1, 1, 1, 1]), (8.0, 1.0))

    def test_ties_take_the_normal_approximation(self):
        _, p = compare.mann_whitney([1, 1, 2, 2, 3, 3], [2, 3, 3, 4, 4, 5])
        self.assertTrue(0.02 < p < 0.1)

    def test_few_false_alarms(self):
        generator = random.Random(1)
        draw = lambda: [generator.gauss(1, 0.1) for _ in range(10)]
        alarms = sum(compare.mann_whitney(draw(), draw())[1] <= 0.05 for _ in range(1000))
        self.assertTrue(20 <= alarms <= 70, alarms)


class Rows(unittest.TestCase):
    def setUp(self):
        base = [10.0 + 0.01 * i for i in range(8)]
        self.base = {"faster": base, "slower": base, "same": base, "few": base[:2], "gone": base}
        self.contender = {"faster": [x * 0.901 for x in base], "slower": [x * 1.052 for x in base],
                          "same": [x + 0.001 for x in base], "few": [1.0, 2.0]}

    def run_program(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, rows in (("a.json", self.base), ("b.json", self.contender)):
                paths.append(str(Path(folder) / name))
                Path(paths[-1]).write_text(results(rows), encoding="utf-8")
            out = io.StringIO()
            with redirect_stdout(out), redirect_stderr(out):
                return compare.main([*paths, *arguments]), out.getvalue()

    def test_verdicts(self):
        rows = compare.compare(self.base, self.contender, "cpu", 0.05)
        self.assertEqual({name: row["verdict"] for name, row in rows.items()},
                         {"faster": "better", "slower": "worse", "same": "no difference shown",
                          "few": "too few samples"})
        self.assertEqual(rows["faster"]["won"], 1.0)
        self.assertAlmostEqual(rows["slower"]["change"], 0.052)

    def test_more_is_better_for_rates(self):
        rows = compare.compare(self.base, self.contender, "GFLOP/s", 0.05)
        self.assertEqual(rows["faster"]["verdict"], "worse")
        self.assertEqual(rows["slower"]["verdict"], "better")

    def test_exit_codes(self):
        self.assertEqual(self.run_program()[0], 0)
        self.assertEqual(self.run_program("--fail-above", "4")[0], 1)
        self.assertEqual(self.run_program("--fail-above", "6")[0], 0)
        code, text = self.run_program("--metric", "absent")
        self.assertEqual(code, 2)
        self.assertIn("absent", text)
        self.assertNotIn("slower", self.run_program("--filter", "faster")[1])


if __name__ == "__main__":
    unittest.main()

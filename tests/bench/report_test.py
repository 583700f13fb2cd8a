"""bench/report.py: the tables and plots that it makes of results."""

import json
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import report

ROW = {"GFLOP/s": 50.0, "GB/s": 12.5, "of_limit": 0.5, "of_limit_best": 0.52, "cpu": 2e-3, "peak": 100.0,
       "peak_spread": 0.01, "read": 25.0, "read_spread": 0.2, "scratch": 2048.0, "flops": 1e8, "bytes": 2.5e7,
       "wall": 2.5e-3, "peak_memory": float(3 << 20)}


def benchmark(name, **more):
    return {"name": name, "label": "limit: memory", **ROW, **more}


def comparison_row(tokens, naive):
    row = {"tokens": tokens, "heads": 4, "kv_heads": 4, "head_dim": 64, "threads": 1, "tiled_cpu_seconds": 1e-3,
           "tiled_fraction_of_peak": 0.8, "fma_peak_spread": 0.0 if naive else 0.12, "tiled_scratch_bytes": 1 << 18, "naive_needs_bytes": 4 * tokens * tokens,
           "tiled_peak_rss_bytes": 1 << 24, "bits_equal": True, "naive_cpu_seconds": None,
           "naive_peak_rss_bytes": None}
    return {**row, "naive_cpu_seconds": 3e-3, "naive_peak_rss_bytes": 1 << 26} if naive else row


def contestant(name, ratio, agrees=True):
    return {"name": name, "median_seconds": 2e-3 * ratio, "ratio": ratio, "of_limit": 0.8, "agrees": agrees}


OTHERS = [
    {"case": {"name": "a model", "kv_type": "bf16"}, "threads": 2, "least_spread": 0.3,
     "rows": [contestant("Tilewise", 1), contestant("Tilewise, fastest arithmetic", 0.5), contestant("L 1.0", 3),
              contestant("L 1.0, keys repeated", 2)]},
    {"case": {"name": "a model", "kv_type": "f32"}, "threads": 1, "least_spread": 0.01,
     "rows": [contestant("Tilewise", 1), contestant("naive, loops", 1.5), contestant("L 1.0", 0.9, False)]}]


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        rows = [benchmark("prefill/avx2/f32/d:64/one_head/T:2k/causal/threads:1", label="limit: FMA"),
                benchmark("decode/avx2/f32/bhsd/batch:1/heads:8/T:512/threads:1"),
                benchmark("decode/avx2/f32/bhsd/batch:1/heads:8/T:2k/threads:1"),
                benchmark("decode/avx2/f32/bhsd/batch:1/heads:8/T:2k/threads:2", cpu=8e-3),
                benchmark("rows/avx2/f32/d:128/rows:1"), benchmark("rows/avx2/f32/d:128/rows:17"),
                {"name": "decode/too_large", "error_occurred": True}]
        context = {"date": "2026-01-02T03:04:05", "tilewise": "1.2.3", "compiler": "g++ 12.2.0"}
        self.write("benchmarks.json", {"context": context, "benchmarks": rows})
        self.write("comparison.json", {"machine": {"cpu": "A CPU", "isa": "avx2", "naive_products": "loops"},
                                       "rows": [comparison_row(512, True), comparison_row(65536, False)]})

    def write(self, name, content):
        (self.folder / name).write_text(json.dumps(content), encoding="utf-8")

    def test_tables(self):
        report.write_report(self.folder, "svg")
        text = (self.folder / "report.md").read_text(encoding="utf-8")
        self.assertIn("A CPU, avx2 kernels, 2026-01-02; Tilewise 1.2.3, g++ 12.2.0; naive products by loops", text)
        # The memory's limit is marked as unsteady; that of the multiply-adds is steady.
        self.assertIn("| 2 ms | 2.5 ms | 50.0 | 12.5 | 50 % | 52 % | 25 GB/s **± 20 %** | 2 KiB | 3.0 MiB |", text)
        self.assertIn("| 100 GFLOP/s |", text)
        # Two threads: the CPU time of one of them.
        self.assertIn("threads:2` | 4 ms |", text)
        self.assertIn("| 65,536 | 1 ms | skipped | 80 % **± 12 %** |", text)
        self.assertNotIn("too_large", text)
        self.assertNotIn("others", text)

    def test_others(self):
        self.write("others.json", OTHERS)
        report.write_report(self.folder, "svg")
        text = (self.folder / "report.md").read_text(encoding="utf-8")
        # The fastest way of a library counts; a limit that moved and results that differ are marked.
        self.assertIn("|  | threads | Tilewise | of its limit | fastest arithmetic | L 1.0 | naive |", text)
        self.assertIn("| a model, bf16 | 2 | 2 ms | 80 % **± 30 %** | **0.50** | 2.0 |  |", text)
        self.assertIn("| a model, f32 | 1 | 2 ms | 80 % |  | **0.90** (**disagrees**) | 1.5 |", text)

    @unittest.skipUnless(shutil.which("gnuplot"), "gnuplot is not installed")
    def test_plots(self):
        report.write_report(self.folder, "svg")
        text = (self.folder / "report.md").read_text(encoding="utf-8")
        for name in ("comparison", "roofline", "decode", "rows"):
            self.assertIn(f"({name}.svg)", text)
            self.assertIn("</svg>", (self.folder / f"{name}.svg").read_text(encoding="utf-8"))

    def test_numbers(self):
        self.assertEqual(report.seconds_text(1.5), "1.5 s")
        self.assertEqual(report.seconds_text(2.34567e-3), "2.35 ms")
        self.assertEqual(report.seconds_text(5e-6), "5 µs")
        self.assertEqual(report.bytes_text(1536), "2 KiB")
        self.assertEqual(report.bytes_text(3 << 29), "1.5 GiB")


if __name__ == "__main__":
    unittest.main()

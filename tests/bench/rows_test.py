"""The benchmarks' programs: which rows there are, and what each reports. TILEWISE_BENCHMARKS is their folder."""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

FOLDER = os.environ.get("TILEWISE_BENCHMARKS")

REPORTED = ["cpu", "cpu_best", "wall", "wall_best", "GFLOP/s", "GB/s", "of_limit", "of_limit_best", "of_limit_wall", "peak",
            "peak_spread", "read", "read_spread", "scratch", "flops", "bytes", "repeats"]


def output_of(program, *arguments):
    return subprocess.run([Path(FOLDER) / program, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def rows_of(program):
    options = {"attention_benchmark": ["--list"], "kernel_benchmark": ["--benchmark_list_tests"]}
    return output_of(program, *options[program]).split()


def results_of(program, pattern):
    text = output_of(program, f"--benchmark_filter={pattern}", "--benchmark_min_time=0.001", "--benchmark_format=json")
    return json.loads(text)["benchmarks"]


def instruction_sets(rows):
    return sorted({row.split("/")[1] for row in rows if row.startswith("prefill/")})


@unittest.skipUnless(FOLDER, "TILEWISE_BENCHMARKS is not set")
class Rows(unittest.TestCase):
    def assert_reported(self, results):
        self.assertTrue(results)
        for row in results:
            self.assertNotIn("error_occurred", row, row["name"])
            self.assertTrue(row["label"].startswith("limit: "), row["name"])
            for counter in REPORTED:
                self.assertIn(counter, row, row["name"])
            self.assertGreater(row["of_limit"], 0, row["name"])

    def test_there_are_rows_of_all_axes(self):
        rows = set(rows_of("attention_benchmark"))

        def assert_row(name):
            self.assertTrue(name in rows, name)

        self.assertTrue(any(row.startswith("threads/") for row in rows))
        for name in ("Llama-3-8B", "Qwen3-0.6B", "SmolLM2-135M", "ViT-L-16-384", "Whisper-large-encoder",
                     "DeepSeek-V2-Lite-MLA", "DeepSeek-V2-Lite-latent"):
            self.assertTrue(any(row.startswith(f"models/{name}/") for row in rows), name)
        types = ("f32", "f64", "f16", "bf16", "bf16:fastest", "q8_0", "q4_0", "i8", "e4m3", "e5m2")
        for isa in instruction_sets(rows):
            for kind in types:
                for heads in ("MHA", "GQA:4", "MQA:8"):
                    for tokens in ("512", "128k"):
                        assert_row(f"prefill/{isa}/{kind}/d:256/{heads}/T:{tokens}/causal/threads:1")
                for batch in (1, 8):
                    for tokens in ("128", "128k"):
                        assert_row(f"decode/{isa}/{kind}/bhsd/batch:{batch}/heads:32/T:{tokens}/threads:1")
            for mask in ("window_1024", "bias", "soft_cap", "documents_8"):
                assert_row(f"masks/{isa}/d:64/T:4k/{mask}")
            assert_row(f"small_call/{isa}/d:64/T:1")

    def test_rows_report_time_limit_and_memory(self):
        isa = instruction_sets(rows_of("attention_benchmark"))[0]
        has_f64 = any("/f64/" in row for row in rows_of("kernel_benchmark"))
        results = results_of("attention_benchmark",
                             rf"(prefill/{isa}/(f32|f16)/d:64/one_head/T:512/causal/threads:1|small_call/{isa}/d:64/T:16"
                             rf"|decode/{isa}/(q8_0{'|f64' if has_f64 else ''})/bhsd/batch:1/heads:8/T:128/threads:2)$")
        self.assertEqual(len(results), 5 if has_f64 else 4)
        self.assert_reported(results)
        for row in results:
            # Of a process that holds the tensors, too.
            self.assertGreater(row["peak_memory"], row["bytes"] + row["scratch"], row["name"])

    def test_every_part_reports_its_limit(self):
        rows = rows_of("kernel_benchmark")
        parts = {row.split("/")[0] for row in rows}
        self.assertLessEqual({"scores", "softmax", "values", "narrow_scores", "narrow_values", "key_tile"}, parts)
        isa = rows[-1].split("/")[1]
        chosen = []
        for part in parts:
            for numbers in ("f32", "f64", "bf16"):
                chosen += [row for row in rows if row.startswith(f"{part}/{isa}/{numbers}/")][-1:]
        results = results_of("kernel_benchmark", "^(" + "|".join(map(re.escape, chosen)) + ")$")
        self.assertEqual(len(results), len(chosen))
        self.assert_reported(results)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""Times Tilewise against other libraries on the same tensors, and checks that the results agree.

    against_others.py --build BUILD_DIRECTORY [--threads 1] [--cases REGEX] [--json FILE]

Takes NumPy, and of torch, onnxruntime with onnx, and ggml-python what is installed. With bf16, arithmetic::fastest
runs as well, where the processor has it. Every round times a batch of
each library in turn, so that all see the same state of the machine; a ratio is that of the two batches of one
round, the median over the rounds. With one thread, times are the thread's CPU time, else wall time. The limit is
the larger of operations over the multiply-add peak and bytes over the read bandwidth, both measured by Tilewise's
program in each round.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from contestants import Unsupported, all_contestants


@dataclass
class Case:
    name: str
    heads: int
    kv_heads: int
    head_dim: int
    queries: int
    keys: int
    causal: bool = False
    kv_type: str = "f32"

    @property
    def q_type(self):
        return self.kv_type if self.kv_type in ("f64", "f16", "bf16") else "f32"


CASES = [
    Case("SmolLM2-135M, prefill 2k", 9, 3, 64, 2048, 2048, True),
    Case("Llama-3-8B, prefill 1k", 32, 8, 128, 1024, 1024, True),
    Case("Llama-3-8B, prefill 1k", 32, 8, 128, 1024, 1024, True, "bf16"),
    Case("Llama-3-8B, prefill 1k", 32, 8, 128, 1024, 1024, True, "f16"),
    Case("ViT-L, 577 patches", 16, 16, 64, 577, 577),
    Case("Whisper-large encoder", 20, 20, 64, 1500, 1500),
    Case("Whisper-large encoder", 20, 20, 64, 1500, 1500, False, "f64"),
    Case("one head, prefill 8k", 1, 1, 128, 8192, 8192, True),
    Case("Llama-3-8B, decode 8k", 32, 8, 128, 1, 8192),
    Case("Llama-3-8B, decode 8k", 32, 8, 128, 1, 8192, False, "f16"),
    Case("Llama-3-8B, decode 8k", 32, 8, 128, 1, 8192, False, "bf16"),
    Case("Llama-3-8B, decode 8k", 32, 8, 128, 1, 8192, False, "q8_0"),
    Case("Llama-3-8B, decode 8k", 32, 8, 128, 1, 8192, False, "q4_0"),
    Case("SmolLM2-1.7B, decode 2k", 32, 32, 64, 1, 2048),
    Case("Llama-2-7B, decode 4k", 32, 32, 128, 1, 4096),
    Case("Llama-2-7B, decode 4k", 32, 32, 128, 1, 4096, False, "f16"),
    Case("Llama-2-7B, decode 4k", 32, 32, 128, 1, 4096, False, "q8_0"),
]

# How far two right results may be apart: the rounding of the stored type, and of sums in another order.
# Files of results are f32.
TOLERANCE = {"f32": 2e-5, "f64": 2e-6, "f16": 5e-3, "bf16": 3e-2, "q8_0": 3e-2, "q4_0": 1e-1}

BATCH_SECONDS = 0.03

OURS, FASTEST = "Tilewise", "Tilewise, fastest arithmetic"


class Program:
    """The tilewise program, one call or batch at a time on request. Raises Unsupported if it does not offer that."""

    def __init__(self, name, program, files, case, threads, *options):
        self.name, self.out = name, files["q"].with_name(f"{name}.npy")
        command = [program, "time", "--on-request", "--threads", str(threads), "--out", str(self.out), *options]
        for tensor in "qkv":
            command += ["--" + tensor, str(files[tensor])]
        command += ["--type", case.q_type, "--kv-type", case.kv_type]
        command += ["--causal"] if case.causal else []
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        first = self.process.stdout.readline()
        self.facts = json.loads(first) if first else {}
        if self.facts.get("arithmetic") != ("fastest" if name == FASTEST else "exact"):
            self.close()
            raise Unsupported

    def batch(self, calls, threads):
        self.process.stdin.write(f"{calls}\n")
        self.process.stdin.flush()
        self.last = json.loads(self.process.stdout.readline())
        return self.last["cpu_seconds" if threads == 1 else "wall_seconds"]

    def output(self):
        return np.load(self.out)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class InProcess:
    """A contestant of this process."""

    def __init__(self, contestant):
        self.contestant, self.name = contestant, contestant.name

    def output(self):
        return self.contestant.output()

    def batch(self, calls, threads):
        clock = time.thread_time if threads == 1 else time.perf_counter
        start = clock()
        for _ in range(calls):
            self.contestant()
        return (clock() - start) / calls

    def close(self):
        pass


def make_tensors(case, folder):
    random = np.random.default_rng(1)
    tensors = {name: random.standard_normal((1, heads, tokens, case.head_dim), dtype=np.float32)
               for name, heads, tokens in (("q", case.heads, case.queries), ("k", case.kv_heads, case.keys),
                                           ("v", case.kv_heads, case.keys))}
    files = {name: folder / f"{name}.npy" for name in tensors}
    for name, tensor in tensors.items():
        np.save(files[name], tensor)
    return tensors, files


def calls_for(runner, threads):
    seconds = min(runner.batch(1, threads) for _ in range(2))
    return max(1, round(BATCH_SECONDS / seconds))


def programs_for(case, program, files, threads):
    """Tilewise itself, and what else its program computes."""
    programs = [Program(OURS, program, files, case, threads)]
    more = []
    if case.kv_type == "f32":
        more = [("naive, loops", "--naive", "loops"), ("naive, openblas", "--naive", "openblas")]
    elif case.kv_type == "bf16":
        more = [(FASTEST, "--arithmetic", "fastest")]
    for name, *options in more:
        try:
            programs.append(Program(name, program, files, case, threads, *options))
        except Unsupported:
            pass
    return programs


def measure(case, program, threads, seconds):
    with tempfile.TemporaryDirectory() as folder:
        tensors, files = make_tensors(case, Path(folder))
        runners = programs_for(case, program, files, threads)
        ours = runners[0]
        runners += [InProcess(c) for c in all_contestants(case, tensors["q"], tensors["k"], tensors["v"], threads)]
        calls = [calls_for(r, threads) for r in runners]
        times = {r.name: [] for r in runners}
        least = {OURS: [], FASTEST: []}
        start = time.monotonic()
        while len(least[OURS]) < 5 or time.monotonic() - start < seconds:
            for runner, count in zip(runners, calls):
                time.sleep(0.005)  # the threads of the one before stop spinning
                times[runner.name].append(runner.batch(count, threads))
                if runner.name in least:
                    least[runner.name].append(runner.last["least_seconds"])
        result = ours.output()
        differences = {r.name: float(np.abs(r.output() - result).max()) for r in runners[1:]}
        for runner in runners:
            runner.close()
    return summary(case, threads, times, least, differences, ours.facts)


def spread(values):
    """Of the middle half, over the median."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / statistics.median(ordered)


def summary(case, threads, times, least, differences, facts):
    ours = times[OURS]
    rows = []
    for name, all_times in times.items():
        limits = least[FASTEST if name == FASTEST else OURS]
        rows.append({"name": name,
                     "best_seconds": min(all_times),
                     "median_seconds": statistics.median(all_times),
                     "ratio": statistics.median(t / o for t, o in zip(all_times, ours)),
                     "of_limit": statistics.median(x / t for x, t in zip(limits, all_times)),
                     "largest_difference": differences.get(name),
                     "agrees": differences.get(name, 0) <= TOLERANCE[case.kv_type]})
    return {"case": asdict(case), "threads": threads, "clock": "cpu" if threads == 1 else "wall",
            "rounds": len(ours), "least_seconds": statistics.median(least[OURS]), "least_spread": spread(least[OURS]),
            "facts": facts, "rows": rows}


def time_text(seconds):
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


def markdown(results):
    lines = []
    for result in results:
        case = Case(**result["case"])
        heads = f"{case.heads} heads" + (f", {case.kv_heads} key heads" if case.heads != case.kv_heads else "")
        unsteady = f"; UNSTEADY limit, ± {100 * result['least_spread']:.0f} %" if result["least_spread"] > 0.1 else ""
        lines += ["", f"**{case.name}, {case.kv_type}** ({heads} of {case.head_dim}, {case.queries} × {case.keys}"
                  f"{', causal' if case.causal else ''}; {result['threads']} thread"
                  f"{'s' if result['threads'] > 1 else ''}, {result['clock']} time, {result['rounds']} rounds{unsteady})", "",
                  "| | median | best | of the limit | time over Tilewise's | largest difference |",
                  "|---|---|---|---|---|---|"]
        for row in result["rows"]:
            difference = "" if row["largest_difference"] is None else f"{row['largest_difference']:.1e}"
            difference += "" if row["agrees"] else " **disagrees**"
            lines.append(f"| {row['name']} | {time_text(row['median_seconds'])} | {time_text(row['best_seconds'])} "
                         f"| {100 * row['of_limit']:.0f} % | {row['ratio']:.2f} | {difference} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="directory of the build")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cases", default="", help="regular expression on 'name, type'")
    parser.add_argument("--seconds", type=float, default=4, help="for each case")
    parser.add_argument("--json", help="write the results to this file")
    given = parser.parse_args()
    program = Path(given.build) / "bin" / "tilewise"
    if not program.exists():
        sys.exit(f"{program} does not exist: build first, or give --build")
    results = []
    for case in CASES:
        if re.search(given.cases, f"{case.name}, {case.kv_type}"):
            results.append(measure(case, str(program), given.threads, given.seconds))
            print(markdown(results[-1:]), flush=True)
    if given.json:
        Path(given.json).write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(row["agrees"] for result in results for row in result["rows"]) else 1


if __name__ == "__main__":
    sys.exit(main())

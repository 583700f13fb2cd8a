#!/usr/bin/env python3
"""Says whether a change made benchmarks faster: compares two builds' programs, or two JSON files of theirs.

    compare.py base/bin/attention_benchmark contender/bin/attention_benchmark --filter REGEX [--rounds 10]
    compare.py base.json contender.json [--filter REGEX]

Programs run in turn, once in every round, so that both see the same states of the machine. Files are those of
--benchmark_out with --benchmark_out_format=json and --benchmark_repetitions. Every round or repetition is one sample of the metric: a counter (cpu, the median CPU time of a call, by default) or one of
Google Benchmark's own fields (cpu_time, real_time). A row is called different if the two-sided Mann-Whitney U test
finds it so; 'won' is the effect size: how often a sample of the contender beats one of the base (50 % if they are
alike). Smaller is better, unless the metric's name ends in /s or begins with of_limit.
"""

import argparse
import json
import math
import re
import statistics
import subprocess
import sys


def exact_tail(u, n, m):
    """The probability of a U of at most `u` when all orders of n and m samples are alike (no ties)."""
    # counts[j][k]: orders of i samples of one side and j of the other with U = k, i growing row by row.
    counts = [[1] + [0] * (n * m) for _ in range(m + 1)]
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            row, before = counts[j], counts[j - 1]
            counts[j] = [(row[k - j] if k >= j else 0) + before[k] for k in range(n * m + 1)]
        counts[0] = [1] + [0] * (n * m)
    return sum(counts[m][: int(u) + 1]) / math.comb(n + m, n)


def mann_whitney(a, b):
    """U of a (pairs in which a's sample is smaller, ties count half), and the two-sided p."""
    n, m = len(a), len(b)
    u = sum(1.0 if x < y else 0.5 if x == y else 0.0 for x in a for y in b)
    groups = [sum(1 for x in a + b if x == value) for value in set(a + b)]
    if all(size == 1 for size in groups) and n * m <= 900:
        return u, min(1.0, 2 * exact_tail(min(u, n * m - u), n, m))
    total = n + m
    ties = sum(size**3 - size for size in groups)
    variance = n * m / 12 * (total + 1 - ties / (total * (total - 1)))
    if variance == 0:
        return u, 1.0
    z = max(0.0, abs(u - n * m / 2) - 0.5) / math.sqrt(variance)
    return u, math.erfc(z / math.sqrt(2))


def smallest_p(n, m):
    """What the test can say at most with so many samples."""
    return 2 / math.comb(n + m, n)


def more_is_better(metric):
    return metric.endswith("/s") or metric.startswith("of_limit")


def samples_of(text, metric):
    """{name of the row: samples}, of the repetitions and not of their statistics."""
    rows = {}
    for run in json.loads(text)["benchmarks"]:
        if run.get("run_type", "iteration") == "iteration" and not run.get("error_occurred") and metric in run:
            rows.setdefault(run.get("run_name", run["name"]), []).append(float(run[metric]))
    return rows


def run_in_turn(programs, pattern, rounds, seconds):
    """The output of each program, once per round; the first alternates."""
    texts = [[], []]
    for i in range(rounds):
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            command = [programs[which], f"--benchmark_filter={pattern or '.'}", "--benchmark_format=json",
                       f"--benchmark_min_time={seconds}"]
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
            texts[which].append(done.stdout)
            print(f"round {i + 1} of {rounds}", end="\r", file=sys.stderr, flush=True)
    return texts


def read_files(paths):
    texts = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts.append([file.read()])
    return texts


def joined_samples(texts, metric):
    rows = {}
    for text in texts:
        for name, values in samples_of(text, metric).items():
            rows.setdefault(name, []).extend(values)
    return rows


def compare_row(base, contender, metric, alpha):
    """What there is to say of one row."""
    u, p = mann_whitney(contender, base)
    before, after = statistics.median(base), statistics.median(contender)
    won = u / (len(base) * len(contender))
    if more_is_better(metric):
        won = 1 - won
    if smallest_p(len(base), len(contender)) > alpha:
        verdict = "too few samples"
    elif p > alpha:
        verdict = "no difference shown"
    else:
        verdict = "better" if won > 0.5 else "worse"
    change = after / before - 1 if before else math.nan
    return {"base": before, "contender": after, "change": change, "won": won, "p": p, "verdict": verdict}


def compare(base, contender, metric, alpha, pattern=""):
    common = [name for name in base if name in contender and re.search(pattern, name)]
    return {name: compare_row(base[name], contender[name], metric, alpha) for name in common}


def print_table(rows, alpha):
    width = max(len(name) for name in rows)
    print(f"{'':{width}}  {'base':>10}  {'contender':>10}  {'change':>8}  {'won':>5}  {'p':>7}")
    for name, r in rows.items():
        print(f"{name:{width}}  {r['base']:10.4g}  {r['contender']:10.4g}  {100 * r['change']:+7.1f}%  "
              f"{100 * r['won']:4.0f}%  {r['p']:7.4f}  {r['verdict']}")
    changes = [r["contender"] / r["base"] for r in rows.values() if r["base"] > 0 and r["contender"] > 0]
    if changes:
        mean = math.exp(sum(map(math.log, changes)) / len(changes)) - 1
        print(f"\n{len(rows)} rows, geometric mean of the changes {100 * mean:+.1f}%. By chance alone, "
              f"{alpha * len(rows):.1f} of them would be called different.")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("contender")
    parser.add_argument("--metric", default="cpu")
    parser.add_argument("--filter", default="", help="regular expression on the rows' names")
    parser.add_argument("--alpha", type=float, default=0.05, help="the most error of the first kind")
    parser.add_argument("--fail-above", type=float, help="exit with 1 if a row is worse by more percent")
    parser.add_argument("--rounds", type=int, default=10, help="of two programs")
    parser.add_argument("--seconds", default="0.05", help="of a row in a round")
    given = parser.parse_args(arguments)
    paths = (given.base, given.contender)
    if given.base.endswith(".json"):
        texts = read_files(paths)
    else:
        texts = run_in_turn(paths, given.filter, given.rounds, given.seconds)
    base, contender = (joined_samples(t, given.metric) for t in texts)
    rows = compare(base, contender, given.metric, given.alpha, given.filter)
    if not rows:
        print(f"no row is in both files and has '{given.metric}'", file=sys.stderr)
        return 2
    print_table(rows, given.alpha)
    if given.fail_above is None:
        return 0
    worse = [r for r in rows.values() if r["verdict"] == "worse" and 100 * abs(r["change"]) > given.fail_above]
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())

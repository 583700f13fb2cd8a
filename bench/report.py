#!/usr/bin/env python3
"""One command to a report: runs a selection of the benchmarks, and writes JSON, Markdown and plots.

    report.py --build BUILD_DIRECTORY --out FOLDER [--quick] [--from FOLDER] [--format svg|png]

Takes some minutes, with --quick one. What is written: report.md with tables and plots, benchmarks.json of
attention_benchmark, comparison.json of tilewise compare. --from draws and writes anew from the JSON files of an
earlier report. Plots take gnuplot, and are left out without it.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import report_plots

# What runs: the lengths of the comparison, and filters of attention_benchmark; then the same for --quick.
LENGTHS = "512,1k,2k,4k,8k,16k"
FILTERS = [
    r"prefill/ISA/f32/d:(64|128)/one_head/T:(512|1k|2k|4k|8k|16k)/(no_mask|causal)/threads:1",
    r"prefill/ISA/[a-z].*/d:128/one_head/T:4k/no_mask/threads:1",
    r"decode/ISA/(f32|f16|bf16|q8_0|q4_0)/bhsd/batch:1/heads:(8|32)/T:(128|512|2k|8k|32k)/threads:1",
    r"decode/ISA/(f32|f16)/bshd/batch:1/heads:32/T:(2k|8k|32k)/threads:1",
    r"rows/ISA/f32/d:128/",
]
QUICK_LENGTHS = "512,1k,2k"
QUICK_FILTERS = [
    r"prefill/ISA/f32/d:(64|128)/one_head/T:(512|2k)/causal/threads:1",
    r"decode/ISA/(f32|f16)/bhsd/batch:1/heads:(8|32)/T:(512|2k)/threads:1",
    r"rows/ISA/f32/d:128/rows:(1|8|16|17)$",
]


def run(command):
    print("  " + " ".join(str(part) for part in command), flush=True)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def fastest_isa(program):
    text = subprocess.run([program, "info"], stdout=subprocess.PIPE, text=True, check=True).stdout
    return re.search(r"^ +(\w+) .*<- active", text, re.MULTILINE)[1]


def measure(programs, folder, quick):
    isa = fastest_isa(programs / "tilewise")
    filters = "|".join(f"({f.replace('ISA', isa)})" for f in (QUICK_FILTERS if quick else FILTERS))
    run([programs / "attention_benchmark", f"--benchmark_filter={filters}",
         f"--benchmark_min_time={0.02 if quick else 0.2}", f"--benchmark_out={folder / 'benchmarks.json'}",
         "--benchmark_out_format=json"])
    run([programs / "tilewise", "compare", "--tokens", QUICK_LENGTHS if quick else LENGTHS, "--heads", "4",
         "--kv-heads", "4", "--head-dim", "64", "--causal", "--threads", "1", "--seconds", "0.2" if quick else "1",
         "--json", folder / "comparison.json"])


def seconds_text(seconds):
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def bytes_text(count):
    for power, unit in ((30, "GiB"), (20, "MiB")):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count / 2**10:.0f} KiB"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def limit_text(row):
    """Which limit counts and how fast it was; how far its measurements spread, if that is much."""
    memory = "memory" in row["label"]
    text = f"{row['read']:.0f} GB/s" if memory else f"{row['peak']:.0f} GFLOP/s"
    spread = row["read_spread" if memory else "peak_spread"]
    return text + (f" **± {100 * spread:.0f} %**" if spread > 0.1 else "")


def suite_table(rows):
    return table(["row", "time", "GFLOP/s", "GB/s", "of its limit", "best", "limit", "scratch"],
                 [[f"`{row['name'].split('/', 1)[1]}`", seconds_text(row["cpu"] / threads_of(row)),
                   f"{row['GFLOP/s']:.1f}", f"{row['GB/s']:.1f}", f"{100 * row['of_limit']:.0f} %",
                   f"{100 * row['of_limit_best']:.0f} %", limit_text(row), bytes_text(row["scratch"])]
                  for row in rows])


def threads_of(row):
    found = re.search(r"threads:(\d+)", row["name"])
    return int(found[1]) if found else 1


def comparison_table(comparison):
    rows = []
    for row in comparison["rows"]:
        naive = row["naive_cpu_seconds"] is not None
        rows.append([f"{row['tokens']:,}", seconds_text(row["tiled_cpu_seconds"]),
                     seconds_text(row["naive_cpu_seconds"]) if naive else "skipped",
                     f"{100 * row['tiled_fraction_of_peak']:.0f} %", bytes_text(row["tiled_scratch_bytes"]),
                     bytes_text(row["naive_needs_bytes"]), bytes_text(row["tiled_peak_rss_bytes"]),
                     bytes_text(row["naive_peak_rss_bytes"]) if naive else "",
                     "yes" if row["bits_equal"] else "**NO**"])
    return table(["tokens", "tiled", "naive", "tiled, of FMA peak", "scratch", "naive scratch", "peak memory",
                  "naive", "bits as the oracle"], rows)


INTRODUCTION = """# Benchmarks

{cpu}, {isa} kernels, {date}. Times are CPU time, medians over repeats. The limit of a row is the larger of its
operations over the multiply-add peak and its bytes (q, k, v and the output, each once) over the speed at which the
same memory can be read; both are measured right before and after every repeat, and compared with it. 'Best' is the
best limit over the best time. A limit whose measurements spread by more than 10 % (their middle half) is marked.
"""


def write_report(folder, plot_format):
    benchmarks = json.loads((folder / "benchmarks.json").read_text())
    comparison = json.loads((folder / "comparison.json").read_text())
    rows = [row for row in benchmarks["benchmarks"] if not row.get("error_occurred")]
    plots = {}
    if shutil.which("gnuplot"):
        plots = report_plots.draw(folder, rows, comparison, plot_format)
    else:
        print("gnuplot is not installed: there will be no plots")

    def picture(name):
        return f"\n![{name}]({plots[name]})\n" if name in plots else ""

    text = INTRODUCTION.format(cpu=comparison["machine"]["cpu"], isa=comparison["machine"]["isa"],
                               date=benchmarks["context"]["date"][:10])
    text += "\n## Tiled and naive\n" + picture("comparison") + "\n" + comparison_table(comparison)
    for suite, title, name in (("prefill", "Prefill", "roofline"), ("decode", "Decoding", "decode"),
                               ("rows", "A few query rows", "rows")):
        selected = [row for row in rows if row["name"].startswith(suite + "/")]
        if selected:
            text += f"\n## {title}\n" + picture(name) + "\n" + suite_table(selected)
    (folder / "report.md").write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build", help="directory of the build")
    parser.add_argument("--out", default="report", help="folder to write to")
    parser.add_argument("--quick", action="store_true", help="fewer rows, shorter")
    parser.add_argument("--from", dest="source", help="folder of an earlier report")
    parser.add_argument("--format", choices=("svg", "png"), default="svg", help="of the plots")
    given = parser.parse_args()
    folder = Path(given.out)
    folder.mkdir(parents=True, exist_ok=True)
    if given.source:
        for name in ("benchmarks.json", "comparison.json"):
            if Path(given.source).resolve() != folder.resolve():
                shutil.copy(Path(given.source) / name, folder / name)
    else:
        programs = Path(given.build) / "bin"
        if not (programs / "attention_benchmark").exists():
            sys.exit(f"{programs} has no attention_benchmark: build first, or give --build")
        measure(programs, folder, given.quick)
    write_report(folder, given.format)
    print(f"Written: {folder / 'report.md'}")


if __name__ == "__main__":
    main()

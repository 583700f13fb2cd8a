#!/usr/bin/env python3
"""One command to a report: runs a selection of the benchmarks, and writes JSON, Markdown and plots.

    report.py --build BUILD_DIRECTORY --out FOLDER [--quick] [--from FOLDER] [--format svg|png]

Takes some minutes, with --quick one. What is written: report.md with tables and plots, benchmarks.json of
attention_benchmark, comparison.json of tilewise compare, and others.json of others/against_others.py, where this
Python has NumPy and one of the libraries that it knows. --from draws and writes anew from the JSON files of an
earlier report. Plots take gnuplot, and are left out without it.
"""

import argparse
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import report_plots

# What runs: the lengths of the comparison, and filters of attention_benchmark; then the same for --quick.
LENGTHS = "512,1k,2k,4k,8k,16k,32k"
FILTERS = [
    r"prefill/ISA/f32/d:(64|128)/one_head/T:(512|1k|2k|4k|8k|16k)/(no_mask|causal)/threads:1",
    r"prefill/ISA/[a-z].*/d:128/one_head/T:4k/no_mask/threads:1",
    r"decode/ISA/(f32|f16|bf16|q8_0|q4_0)/bhsd/batch:1/heads:(8|32)/T:(128|512|2k|8k|32k)/threads:1",
    r"decode/ISA/(f64|bf16:fastest)/bhsd/batch:1/heads:(8|32)/T:8k/threads:1",
    r"decode/ISA/(f32|f16)/bshd/batch:1/heads:32/T:(2k|8k|32k)/threads:1",
    r"rows/ISA/f32/d:128/",
    r"masks/ISA/d:64/T:4k/",
    r"models/.*/threads:1$",
    r"threads/ISA/.*/T:1k/",
    r"small_call/ISA/d:64/",
]
OTHERS = "SmolLM2-135M|Llama-3-8B|ViT-L|encoder, f64"
QUICK_LENGTHS = "512,1k,2k"
QUICK_FILTERS = [
    r"prefill/ISA/f32/d:(64|128)/one_head/T:(512|2k)/causal/threads:1",
    r"decode/ISA/(f32|f16)/bhsd/batch:1/heads:(8|32)/T:(512|2k)/threads:1",
    r"rows/ISA/f32/d:128/rows:(1|8|16|17)$",
]
QUICK_OTHERS = "Llama-3-8B.*, f32"


def run(command, may_fail=False):
    print("  " + " ".join(str(part) for part in command), flush=True)
    subprocess.run(command, stdout=subprocess.DEVNULL, check=not may_fail)


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
    if has_others():
        run([sys.executable, Path(__file__).parent / "others/against_others.py", "--build", programs.parent,
             "--cases", QUICK_OTHERS if quick else OTHERS, "--seconds", "0.5" if quick else "2",
             "--json", folder / "others.json"], may_fail=True)


def has_others():
    found = [name for name in ("numpy", "torch", "onnxruntime", "ggml") if importlib.util.find_spec(name)]
    return "numpy" in found and len(found) > 1


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


def percent_text(fraction):
    return f"{100 * fraction:.0f} %" if fraction >= 0.0995 else f"{100 * fraction:.1f} %"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def unsteady_text(spread):
    """How far the measurements of a limit spread, if that is much."""
    return f" **± {100 * spread:.0f} %**" if spread > 0.1 else ""


def limit_text(row):
    """Which limit counts and how fast it was."""
    memory = "memory" in row["label"]
    text = f"{row['read']:.0f} GB/s" if memory else f"{row['peak']:.0f} GFLOP/s"
    text += unsteady_text(row["read_spread" if memory else "peak_spread"])
    return text + (" **exceeded**" if row["of_limit"] > 1 else "")


def suite_table(rows):
    return table(["row", "CPU time", "wall time", "GFLOP/s", "GB/s", "of its limit", "best", "limit", "scratch",
                  "peak memory"],
                 [[f"`{row['name'].split('/', 1)[1]}`", seconds_text(row["cpu"] / threads_of(row)),
                   seconds_text(row["wall"]), f"{row['GFLOP/s']:.1f}", f"{row['GB/s']:.1f}",
                   percent_text(row["of_limit"]), percent_text(row["of_limit_best"]), limit_text(row),
                   bytes_text(row["scratch"]), bytes_text(row["peak_memory"]) if "peak_memory" in row else ""]
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
                     f"{percent_text(row['tiled_fraction_of_peak'])}{unsteady_text(row['fma_peak_spread'])}",
                     bytes_text(row["tiled_scratch_bytes"]),
                     bytes_text(row["naive_needs_bytes"]), bytes_text(row["tiled_peak_rss_bytes"]),
                     bytes_text(row["naive_peak_rss_bytes"]) if naive else "",
                     "yes" if row["bits_equal"] else "**NO**"])
    return table(["tokens", "tiled", "naive", "tiled, of FMA peak", "scratch", "naive scratch", "peak memory",
                  "naive", "bits as the oracle"], rows)


def ratio_text(rows):
    """How long the fastest of a library's ways takes, over Tilewise's time; bold where it is faster."""
    best = min(rows, key=lambda row: row["ratio"])
    text = f"{best['ratio']:.1f}" if best["ratio"] >= 1.15 else f"{best['ratio']:.2f}"
    text = f"**{text}**" if best["ratio"] < 1 else text
    return text if all(row["agrees"] for row in rows) else text + " (**disagrees**)"


def others_table(results):
    """One row for each case; of a library with several ways, whose names have a comma, the fastest counts."""
    def library_of(row):
        return row["name"].split(",")[0]

    names = {library_of(row): None for result in results for row in result["rows"]}
    libraries = [name for name in names if name != "Tilewise"]
    rows = []
    for result in results:
        case, ours = result["case"], result["rows"][0]
        cells = [f"{case['name']}, {case['kv_type']}", str(result["threads"]), seconds_text(ours["median_seconds"]),
                 f"{percent_text(ours['of_limit'])}{unsteady_text(result['least_spread'])}"]
        fastest = [row for row in result["rows"][1:] if library_of(row) == "Tilewise"]
        cells.append(ratio_text(fastest) if fastest else "")
        for library in libraries:
            same = [row for row in result["rows"] if library_of(row) == library]
            cells.append(ratio_text(same) if same else "")
        rows.append(cells)
    return table(["", "threads", "Tilewise", "of its limit", "fastest arithmetic", *libraries], rows)


OTHERS_TEXT = """
The same tensors for all, in turn in every round. Tilewise's median time, CPU time with one thread and wall time with
several; what its `arithmetic::fastest` and other libraries take over that: below 1, they are faster. Outputs are
compared; where they differ by more than their rounding, it says so.

"""

INTRODUCTION = """# Benchmarks

{cpu}, {isa} kernels, {date}; Tilewise {version}, {compiler}; naive products by {naive}. Times are of one thread
unless a row says otherwise, medians over repeats; CPU time is that of a thread. The limit of a row is the larger of its
operations over the multiply-add peak and its bytes (q, k, v and the output, each once) over the speed at which the
same memory can be read; both are measured right before and after every repeat, and compared with it. 'Best' is the
best limit over the best time. A limit whose measurements spread by more than 10 % (their middle half) is marked.
Scratch is what a call allocates, peak memory that of a process that makes one call and nothing else, input included.
"""

# Titles, and plots that belong to them.
SUITES = {"prefill": ("Prefill", "roofline"), "decode": ("Decoding", "decode"), "rows": ("A few query rows", "rows"),
          "masks": ("Masks", None), "models": ("Models", None), "threads": ("Threads", None),
          "small_call": ("Small calls", None)}


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

    machine, context = comparison["machine"], benchmarks["context"]
    text = INTRODUCTION.format(cpu=machine["cpu"], isa=machine["isa"], date=context["date"][:10],
                               version=context["tilewise"], compiler=context["compiler"],
                               naive=machine["naive_products"])
    text += "\n## Tiled and naive\n" + picture("comparison") + "\n" + comparison_table(comparison)
    for suite, (title, name) in SUITES.items():
        selected = [row for row in rows if row["name"].startswith(suite + "/")]
        if selected:
            text += f"\n## {title}\n" + picture(name) + "\n" + suite_table(selected)
    if (folder / "others.json").exists():
        text += "\n## Against others\n" + OTHERS_TEXT
        text += others_table(json.loads((folder / "others.json").read_text()))
    (folder / "report.md").write_text(text)


def copy_results(source, folder):
    for name in ("benchmarks.json", "comparison.json", "others.json"):
        if source.resolve() != folder.resolve() and (name != "others.json" or (source / name).exists()):
            shutil.copy(source / name, folder / name)


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
        copy_results(Path(given.source), folder)
    else:
        programs = Path(given.build) / "bin"
        if not (programs / "attention_benchmark").exists():
            sys.exit(f"{programs} has no attention_benchmark: build first, or give --build")
        measure(programs, folder, given.quick)
    write_report(folder, given.format)
    print(f"Written: {folder / 'report.md'}")


if __name__ == "__main__":
    main()

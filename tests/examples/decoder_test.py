"""The decoder with a tiny model of random weights, against a model in Python; and with files that are no models.

    decoder_test.py COMMAND...    the decoder, with what must precede it under emulation
"""

import array
import itertools
import math
import random
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

COMMAND = sys.argv[1:]
F32, Q4_1, Q8_0 = 0, 3, 8
U32, FLOAT, TEXT, LIST = 4, 6, 8, 9
WIDTH, HIDDEN, HEADS, KV_HEADS, DIM, LAYERS, CONTEXT = 64, 96, 2, 1, 32, 2, 300
THETA, EPSILON = 10000.0, 1e-5
# Of the logits, by the type of the cache: the same with every compiler and instruction set.
HASHES = {"f32": "a65196e25ff8d174", "bf16": "2b62b1da9c51bbe7", "f16": "5ca83424f9e29b7b", "q8_0": "20e52aea6fa19aff"}
PROMPT = "in the Tin, 12 hen's sat.  And then the end"


def f16(x):
    return struct.unpack("<e", struct.pack("<e", x))[0]


def characters():
    """How a byte-level vocabulary writes each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in plain]
    return {**{b: chr(b) for b in plain}, **{b: chr(256 + i) for i, b in enumerate(others)}}


# --- a model ---


class Source:
    """Numbers that every version of Python draws alike."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def uniform(self, low, high):
        return low + (high - low) * self.random()

    def below(self, limit):
        return int(limit * self.random())


class Tensor:
    """Rows as a file stores them, and as numbers."""

    def __init__(self, rows, width, kind, source):
        self.shape, self.kind = (rows, width), kind
        encode = {F32: self.encode_f32, Q4_1: self.encode_q4_1, Q8_0: self.encode_q8_0}[kind]
        self.bytes, self.rows = b"", []
        for _ in range(rows):
            data, row = encode(width, source)
            self.bytes += data
            self.rows.append(row)

    @staticmethod
    def encode_f32(width, source):
        row = array.array("f", (source.uniform(0.7, 1.3) for _ in range(width)))
        return row.tobytes(), list(row)

    @staticmethod
    def encode_q4_1(width, source):
        data, row = b"", []
        for _ in range(width // 32):
            scale, least = f16(source.uniform(0.02, 0.04)), f16(source.uniform(-0.4, -0.1))
            numbers = [source.below(16) for _ in range(32)]
            data += struct.pack("<ee16B", scale, least, *(numbers[i] | numbers[i + 16] << 4 for i in range(16)))
            row += [n * scale + least for n in numbers]
        return data, row

    @staticmethod
    def encode_q8_0(width, source):
        data, row = b"", []
        for _ in range(width // 32):
            scale = f16(source.uniform(-0.02, 0.02))
            numbers = [source.below(256) - 128 for _ in range(32)]
            data += struct.pack("<e32b", scale, *numbers)
            row += [n * scale for n in numbers]
        return data, row

    def times(self, x):
        return [sum(w * v for w, v in zip(row, x)) for row in self.rows]


class Model:
    def __init__(self):
        source = Source(7)
        self.merges = ["t h", "Ġ th", "Ġth e", "i n", "e n", "en d", "n d", "s a", "h e", "Ġ A", "' s"]
        self.tokens = [*characters().values(), *(pair.replace(" ", "") for pair in self.merges)]
        self.tokens += ["<end>"] + ["unused"] * (3 + len(self.tokens) % 2)  # rows that are no multiple of 4
        self.tensors = {"token_embd.weight": Tensor(len(self.tokens), WIDTH, Q8_0, source),
                        "output_norm.weight": Tensor(1, WIDTH, F32, source)}
        shapes = {"attn_norm": (1, WIDTH, F32), "attn_q": (WIDTH, WIDTH, Q4_1), "attn_k": (DIM, WIDTH, Q4_1),
                  "attn_v": (DIM, WIDTH, Q8_0), "attn_output": (WIDTH, WIDTH, Q4_1), "ffn_norm": (1, WIDTH, F32),
                  "ffn_gate": (HIDDEN, WIDTH, Q4_1), "ffn_up": (HIDDEN, WIDTH, Q8_0), "ffn_down": (WIDTH, HIDDEN, Q4_1)}
        for layer in range(LAYERS):
            for name, shape in shapes.items():
                self.tensors[f"blk.{layer}.{name}.weight"] = Tensor(*shape, source)

    def metadata(self):
        return {"general.architecture": (TEXT, "llama"), "llama.block_count": (U32, LAYERS),
                "llama.context_length": (U32, CONTEXT), "llama.embedding_length": (U32, WIDTH),
                "llama.feed_forward_length": (U32, HIDDEN), "llama.attention.head_count": (U32, HEADS),
                "llama.attention.head_count_kv": (U32, KV_HEADS), "llama.rope.dimension_count": (U32, DIM),
                "llama.rope.freq_base": (FLOAT, THETA), "llama.attention.layer_norm_rms_epsilon": (FLOAT, EPSILON),
                "tokenizer.ggml.model": (TEXT, "gpt2"), "tokenizer.ggml.pre": (TEXT, "smollm"),
                "tokenizer.ggml.tokens": (LIST, (TEXT, self.tokens)), "tokenizer.ggml.merges": (LIST, (TEXT, self.merges)),
                "tokenizer.ggml.token_type": (LIST, (U32, [1] * len(self.tokens))),
                "tokenizer.ggml.eos_token_id": (U32, self.tokens.index("<end>"))}

    def logits(self, ids):
        """After the last token, in f64."""
        rows = [self.tensors["token_embd.weight"].rows[i] for i in ids]
        for layer in range(LAYERS):
            w = {name: self.tensors[f"blk.{layer}.{name}.weight"] for name in
                 ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down")}
            normal = [normalized(x, w["attn_norm"]) for x in rows]
            k = [turned(w["attn_k"].times(x), t) for t, x in enumerate(normal)]
            v = [w["attn_v"].times(x) for x in normal]
            for t, x in enumerate(normal):
                q = w["attn_q"].times(x)
                heads = [attended(turned(q[h * DIM:(h + 1) * DIM], t), k[:t + 1], v) for h in range(HEADS)]
                rows[t] = added(rows[t], w["attn_output"].times(sum(heads, [])))
            for t, x in enumerate(rows):
                x = normalized(x, w["ffn_norm"])
                gated = [g / (1 + math.exp(-g)) * u for g, u in zip(w["ffn_gate"].times(x), w["ffn_up"].times(x))]
                rows[t] = added(rows[t], w["ffn_down"].times(gated))
        return self.tensors["token_embd.weight"].times(normalized(rows[-1], self.tensors["output_norm.weight"]))


def added(a, b):
    return [x + y for x, y in zip(a, b)]


def normalized(x, weight):
    factor = 1 / math.sqrt(sum(v * v for v in x) / len(x) + EPSILON)
    return [v * factor * w for v, w in zip(x, weight.rows[0])]


def turned(x, position):
    y = []
    for i in range(0, DIM, 2):
        turn = complex(x[i], x[i + 1]) * complex(math.cos(a := position * THETA ** (-i / DIM)), math.sin(a))
        y += [turn.real, turn.imag]
    return y


def attended(q, k, v):
    scores = [sum(a * b for a, b in zip(q, row)) / math.sqrt(DIM) for row in k]
    weights = [math.exp(s - max(scores)) for s in scores]
    return [sum(w * row[i] for w, row in zip(weights, v)) / sum(weights) for i in range(DIM)]


# --- its file ---


def text_bytes(text):
    return struct.pack("<Q", len(text.encode())) + text.encode()


def value_bytes(kind, value):
    if kind == LIST:
        return struct.pack("<IQ", value[0], len(value[1])) + b"".join(value_bytes(value[0], x) for x in value[1])
    return text_bytes(value) if kind == TEXT else struct.pack({U32: "<I", FLOAT: "<f"}[kind], value)


def file_bytes(metadata, tensors, version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata))
    for name, (kind, value) in metadata.items():
        head += text_bytes(name) + struct.pack("<I", kind) + value_bytes(kind, value)
    data = b""
    for name, tensor in tensors.items():
        rows, width = tensor.shape
        extents = [width] if rows == 1 else [width, rows]
        head += text_bytes(name) + struct.pack(f"<I{len(extents)}QIQ", len(extents), *extents, tensor.kind, len(data))
        data += tensor.bytes + b"\0" * (-len(tensor.bytes) % 32)
    return head + b"\0" * (-len(head) % 32) + data


class DecoderTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = Model()
        cls.path = cls.write("tiny.gguf", file_bytes(cls.model.metadata(), cls.model.tensors))

    @classmethod
    def write(cls, name, content):
        path = Path(cls.folder.name) / name
        path.write_bytes(content)
        return path

    def run_decoder(self, *arguments):
        return subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True)

    def lines(self, *arguments):
        """What a run prints last, by name."""
        done = self.run_decoder("--model", self.path, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return dict(line.decode().split(": ", 1) for line in done.stdout.splitlines()[-3:])

    def refuse(self, message, *arguments):
        done = self.run_decoder(*arguments)
        self.assertIn(message, done.stderr.decode())
        self.assertEqual(done.returncode, 2)


class Results(DecoderTest):
    def test_tokens_and_logits_are_those_of_the_formula(self):
        out = Path(self.folder.name) / "logits"
        found = self.lines("--prompt", PROMPT, "--generate", 4, "--logits", out)
        words = ["in", "Ġthe", "Ġ", "T", "in", ",", "Ġ", "1", "2", "Ġ", "h", "en", "'s", "Ġ", "sa", "t", ".", "Ġ", "ĠA", "nd",
                 "Ġthe", "n", "Ġthe", "Ġ", "end"]
        ids = [self.model.tokens.index(word) for word in words]
        self.assertEqual(found["prompt"], " ".join(map(str, ids)))
        logits = array.array("f", out.read_bytes())
        wanted = self.model.logits(ids)
        self.assertLess(max(abs(a - b) for a, b in zip(logits, wanted, strict=True)), 1e-4)
        self.assertGreater(max(wanted) - min(wanted), 1)
        continuation = []
        for _ in range(4):
            logits = self.model.logits(ids + continuation)
            continuation.append(logits.index(max(logits)))
        self.assertEqual(found["continuation"], " ".join(map(str, continuation)))

    def test_bits_are_the_same_whatever_the_chunks_pages_and_threads(self):
        prompt = ("--prompt", " ".join([PROMPT] * 6), "--generate", 12)
        for kind, logits in HASHES.items():
            wanted = self.lines(*prompt, "--cache", kind)
            self.assertEqual(wanted["logits"], logits, kind)
            self.assertGreater(len(wanted["prompt"].split()), 140)
            for i, (chunk, page) in enumerate(itertools.product((1, 7, 65, 0), (0, 16, 128))):
                how = ("--cache", kind, "--prefill-chunk", chunk, "--page-tokens", page, "--threads", 1 + (i + i // 3) % 3)
                self.assertEqual(self.lines(*prompt, *how), wanted, how)
        oracle = self.lines(*prompt, "--attention", "oracle")
        self.assertEqual(oracle, self.lines(*prompt))
        for chunk in (1, 7, 0):
            for threads in (1, 2, 3):
                naive = self.lines(*prompt, "--attention", "naive", "--prefill-chunk", chunk, "--threads", threads)
                self.assertEqual(naive["continuation"], oracle["continuation"])

    def test_naive_logits_are_those_of_the_formula_within_rounding(self):
        files = [Path(self.folder.name) / name for name in ("tiled", "naive")]
        for out in files:
            self.lines("--prompt", PROMPT * 5, "--generate", 1, "--attention", out.name, "--logits", out)
        tiled, naive = (array.array("f", out.read_bytes()) for out in files)
        self.assertLess(max(abs(a - b) for a, b in zip(tiled, naive, strict=True)), 1e-4)
        self.assertNotEqual(tiled, naive)

    def test_expectations_are_compared(self):
        found = self.lines("--generate", 3)
        good = f"# a comment\nprompt: {found['prompt']}\ncontinuation: {found['continuation']}\nlogits f32: {found['logits']}\n"
        expected = self.write("expected", good.encode())
        self.assertEqual(self.lines("--generate", 3, "--expect", expected), found)
        for wrong in (good.replace("continuation: ", "continuation: 1 "), good.replace("prompt: ", "prompt: 1 "),
                      good.replace("logits f32: ", "logits f32: 1"), good.replace("f32", "f16")):
            done = self.run_decoder("--model", self.path, "--generate", 3, "--expect", self.write("wrong", wrong.encode()))
            self.assertEqual(done.returncode, 1, wrong)
            self.assertIn(b"it must be", done.stderr)

    def test_no_model_is_no_error(self):
        for arguments in ((), ("--model", "")):
            done = self.run_decoder(*arguments)
            self.assertEqual((done.returncode, done.stdout[:17]), (77, b"skipped: no model"))


class Refusals(DecoderTest):
    def refuse_file(self, message, content):
        path = self.write("refused.gguf", content)
        self.refuse(message, "--model", path)
        self.refuse(f"decoder: --model {path}: ", "--model", path)

    def refuse_changed(self, message, metadata=None, tensors=None, **how):
        changed = {**self.model.metadata(), **(metadata or {})}
        kept = {name: tensor for name, tensor in {**self.model.tensors, **(tensors or {})}.items() if tensor}
        self.refuse_file(message, file_bytes({name: value for name, value in changed.items() if value}, kept, **how))

    def test_other_files(self):
        self.refuse("cannot be read", "--model", "/nowhere/model.gguf")
        self.refuse("cannot be read", "--model", self.folder.name)
        for content in (b"", b"GGU", b"PK\3\4" + b"\0" * 100):
            self.refuse_file("not a GGUF file", content)
        self.refuse_changed("version 1 of GGUF, supported are 2 and 3", version=1)

    def test_truncated_files(self):
        content = self.path.read_bytes()
        for length in (4, 7, 23, 100, 1000, 5000):
            self.refuse_file(f"truncated: it ends at byte {length}, inside of its header", content[:length])
        for length in (len(content) // 2, len(content) - 40):
            self.refuse_file(f"truncated: it ends at byte {length}, before the end of tensor", content[:length])

    def test_numbers_that_lie(self):
        content = self.path.read_bytes()
        # Numbers of tensors (what follows them is read as more, and may be wrong in any way) and of metadata, the length
        # of the first name.
        for at in (8, 16, 24):
            for lie in (2**64 - 1, 2**63, 2**40):
                self.refuse_file("" if at == 8 else "truncated", content[:at] + struct.pack("<Q", lie) + content[at + 8:])
        self.refuse_changed("allowed is 1 to 2^24", {"general.alignment": (U32, 0)})
        self.refuse_file("metadata of type 77, 0 to 12 are known", content.replace(
            text_bytes("general.architecture") + b"\x08", text_bytes("general.architecture") + b"\x4d"))

    def test_models_of_other_kinds(self):
        self.refuse_changed("the architecture is 'gpt2', it must be 'llama'", {"general.architecture": (TEXT, "gpt2")})
        self.refuse_changed("'gpt2', 'llama-bpe', it must be 'gpt2', 'smollm'", {"tokenizer.ggml.pre": (TEXT, "llama-bpe")})
        self.refuse_changed("'llama.block_count' has another type", {"llama.block_count": (TEXT, "2")})
        self.refuse_changed("'llama.block_count' is missing", {"llama.block_count": None})
        self.refuse_changed("'llama.attention.head_count' is 0", {"llama.attention.head_count": (U32, 0)})
        self.refuse_changed("with 3 query and 1 key heads: not supported", {"llama.attention.head_count": (U32, 3)})
        self.refuse_changed("rotary embedding is not supported", {"llama.rope.dimension_count": (U32, 16)})
        self.refuse_changed("rotary embedding is not supported", {"llama.rope.scaling.type": (TEXT, "yarn")})
        self.refuse_changed("'tokenizer.ggml.tokens' has another type", {"tokenizer.ggml.tokens": (LIST, (U32, [1]))})
        self.refuse_changed("lists of lists", {"x": (LIST, (LIST, [(U32, [1])]))})

    def test_tensors(self):
        name, source = "blk.1.ffn_up.weight", Source(1)
        other_type = Tensor(HIDDEN, WIDTH, Q4_1, source)
        other_type.kind = 14
        self.refuse_changed(f"tensor '{name}' has ggml's type 14, supported are 0 (F32), 3 (Q4_1) and 8 (Q8_0)", None,
                            {name: other_type})
        self.refuse_changed(f"tensor '{name}' is missing", None, {name: None})
        self.refuse_changed(f"tensor '{name}' has 32 rows of 64, it must have 96 of 64", None,
                            {name: Tensor(32, WIDTH, Q8_0, source)})
        self.refuse_changed("tensor 'output_norm.weight' is not F32", None,
                            {"output_norm.weight": Tensor(1, WIDTH, Q8_0, source)})

    def test_arguments(self):
        for message, arguments in (
                ("unknown option '--tokens'", ("--tokens", 3)),
                ("--threads: its value is missing", ("--threads",)),
                ("--threads: '0' given, allowed is 1 to 1024", ("--threads", 0)),
                ("--generate: '3x' given", ("--generate", "3x")),
                ("--cache: 'f64' given, allowed are f32, bf16, f16, q8_0", ("--cache", "f64")),
                ("--attention: 'fast' given, allowed are tiled, naive, oracle", ("--attention", "fast")),
                ("only --cache f32 without pages is allowed", ("--attention", "naive", "--page-tokens", 16)),
                ("--prompt-file /nowhere", ("--prompt-file", "/nowhere")),
                ("characters beyond ASCII", ("--prompt", "é")),
                ("--prompt-tokens 9: the prompt has 2", ("--prompt", "TT", "--prompt-tokens", 9)),
                ("2 tokens and 299 to add: the model allows 300", ("--prompt", "TT", "--generate", 299)),
                ("--expect /nowhere", ("--generate", 1, "--expect", "/nowhere")),
                ("--logits /nowhere/x: cannot be written", ("--logits", "/nowhere/x"))):
            self.refuse(message, "--model", self.path, *arguments)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

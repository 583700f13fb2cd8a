"""Attention in other libraries, each if its Python package is installed: PyTorch, ONNX Runtime, ggml.

A contestant is made from a case and its tensors (NumPy f32, [1, heads, tokens, head_dim]) and is called to
compute once. What a library does not offer raises Unsupported. Keys and values are converted, and where a
library has no grouped heads also repeated, before the clock starts.
"""

import ctypes

import numpy as np


class Unsupported(Exception):
    """This library cannot do this case."""


def import_or_none(name):
    try:
        return __import__(name)
    except (ImportError, OSError):
        return None


def repeat_heads(case, tensor):
    return np.ascontiguousarray(tensor.repeat(case.heads // case.kv_heads, axis=1))


class Torch:
    """torch.nn.functional.scaled_dot_product_attention, with grouped heads as they are or repeated."""

    def __init__(self, case, q, k, v, threads, repeated):
        self.torch = torch = import_or_none("torch")
        if torch is None or case.kv_type not in ("f32", "f64", "f16", "bf16"):
            raise Unsupported
        if repeated and case.heads == case.kv_heads:
            raise Unsupported
        self.name = "PyTorch " + torch.__version__.split("+")[0] + (", keys repeated" if repeated else "")
        torch.set_num_threads(threads)
        kind = {"f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16}[case.kv_type]
        if repeated:
            k, v = repeat_heads(case, k), repeat_heads(case, v)
        self.tensors = [torch.from_numpy(x).to(kind) for x in (q, k, v)]
        self.options = {"is_causal": case.causal}
        if not repeated and case.heads != case.kv_heads:
            self.options["enable_gqa"] = True
        self.result = None

    def __call__(self):
        with self.torch.inference_mode():
            self.result = self.torch.nn.functional.scaled_dot_product_attention(*self.tensors, **self.options)

    def output(self):
        return self.result.float().numpy()


class OnnxRuntime:
    """A model of one operator: ONNX's Attention, or the MultiHeadAttention of ONNX Runtime."""

    def __init__(self, case, q, k, v, threads, operator):
        ort, onnx = import_or_none("onnxruntime"), import_or_none("onnx")
        if ort is None or onnx is None or case.kv_type != "f32":
            raise Unsupported
        self.name = f"ONNX Runtime {ort.__version__}, {operator}"
        self.case, self.fused = case, operator == "MultiHeadAttention"
        tensors = {"q": q, "k": k, "v": v}
        if self.fused:
            tensors = {"q": q, "k": repeat_heads(case, k), "v": repeat_heads(case, v)}
            tensors = {name: self.tokens_first(x) for name, x in tensors.items()}
        self.feeds = tensors
        model = self.model(onnx, case, operator, tensors).SerializeToString()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.result = None

    @staticmethod
    def tokens_first(x):
        return np.ascontiguousarray(x.transpose(0, 2, 1, 3)).reshape(x.shape[0], x.shape[2], -1)

    @staticmethod
    def model(onnx, case, operator, tensors):
        helper, floats = onnx.helper, onnx.TensorProto.FLOAT
        if operator == "MultiHeadAttention":
            node = helper.make_node(operator, ["q", "k", "v"], ["o"], domain="com.microsoft",
                                    num_heads=case.heads, unidirectional=int(case.causal))
        else:
            node = helper.make_node(operator, ["q", "k", "v"], ["o"], is_causal=int(case.causal))
        inputs = [helper.make_tensor_value_info(n, floats, x.shape) for n, x in tensors.items()]
        graph = helper.make_graph([node], "attention", inputs, [helper.make_tensor_value_info("o", floats, None)])
        opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 10
        return model

    def __call__(self):
        self.result = self.session.run(None, self.feeds)[0]

    def output(self):
        if not self.fused:
            return self.result
        batch, tokens, _ = self.result.shape
        return self.result.reshape(batch, tokens, self.case.heads, -1).transpose(0, 2, 1, 3)


class Ggml:
    """ggml_flash_attn_ext, what llama.cpp runs, with its settings: f32 sums, an f16 mask."""

    def __init__(self, case, q, k, v, threads):
        self.ggml = ggml = import_or_none("ggml")
        if ggml is None or case.kv_type == "f64":
            raise Unsupported
        self.name = f"ggml {ggml.ggml_version().decode()}"
        kind = getattr(ggml, "GGML_TYPE_" + case.kv_type.upper())
        _, heads, queries, dim = q.shape
        kv_heads, keys = k.shape[1:3]
        size = 64 * 2**20 + 8 * q.nbytes + 2 * k.nbytes + 2 * v.nbytes + 4 * queries * keys
        self.context = ggml.ggml_init(ggml.ggml_init_params(mem_size=size, mem_buffer=None, no_alloc=False))
        at = ggml.ggml_new_tensor_4d(self.context, ggml.GGML_TYPE_F32, dim, queries, heads, 1)
        self.fill(at, q)
        ak, av = (ggml.ggml_new_tensor_4d(self.context, kind, dim, keys, kv_heads, 1) for _ in range(2))
        self.store(ak, k, case.kv_type, kind)
        self.store(av, v, case.kv_type, kind)
        mask = self.causal_mask(queries, keys) if case.causal else None
        self.node = ggml.ggml_flash_attn_ext(self.context, at, ak, av, mask, dim**-0.5, 0.0, 0.0)
        ggml.ggml_flash_attn_ext_set_prec(self.node, ggml.GGML_PREC_F32)
        self.graph = ggml.ggml_new_graph(self.context)
        ggml.ggml_build_forward_expand(self.graph, self.node)
        parameters = ggml.ggml_threadpool_params_default(threads)
        self.pool = ggml.ggml_threadpool_new(ctypes.byref(parameters))
        self.plan = ggml.ggml_graph_plan(self.graph, threads, self.pool)
        self.work = (ctypes.c_uint8 * max(1, self.plan.work_size))()
        self.plan.work_data = ctypes.cast(self.work, ctypes.POINTER(ctypes.c_uint8))
        self.shape = (1, queries, heads, v.shape[3])

    def fill(self, tensor, values):
        values = np.ascontiguousarray(values)
        ctypes.memmove(self.ggml.ggml_get_data(tensor), values.ctypes.data, values.nbytes)

    def store(self, tensor, values, name, kind):
        if name == "f32":
            self.fill(tensor, values)
        elif name == "f16":
            self.fill(tensor, values.astype(np.float16))
        elif name == "bf16":
            bits = np.ascontiguousarray(values).view(np.uint32)
            self.fill(tensor, ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16))
        else:
            values = np.ascontiguousarray(values)
            rows, dim = values.size // values.shape[-1], values.shape[-1]
            source = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            self.ggml.ggml_quantize_chunk(kind, source, self.ggml.ggml_get_data(tensor), 0, rows, dim, None)

    def causal_mask(self, queries, keys):
        padded = (queries + 63) // 64 * 64
        rows = np.full((padded, keys), -np.inf, dtype=np.float16)
        positions = np.arange(queries)[:, None] + keys - queries
        rows[:queries][np.arange(keys)[None, :] <= positions] = 0
        mask = self.ggml.ggml_new_tensor_4d(self.context, self.ggml.GGML_TYPE_F16, keys, padded, 1, 1)
        self.fill(mask, rows)
        return mask

    def __call__(self):
        self.ggml.ggml_graph_compute(self.graph, ctypes.byref(self.plan))

    def output(self):
        result = np.empty(self.shape, dtype=np.float32)
        ctypes.memmove(result.ctypes.data, self.ggml.ggml_get_data(self.node), result.nbytes)
        return result.transpose(0, 2, 1, 3)


def all_contestants(case, q, k, v, threads):
    """Those that can do the case."""
    makers = [lambda: Torch(case, q, k, v, threads, False), lambda: Torch(case, q, k, v, threads, True),
              lambda: OnnxRuntime(case, q, k, v, threads, "Attention"),
              lambda: OnnxRuntime(case, q, k, v, threads, "MultiHeadAttention"),
              lambda: Ggml(case, q, k, v, threads)]
    found = []
    for make in makers:
        try:
            found.append(make())
        except Unsupported:
            pass
    return found

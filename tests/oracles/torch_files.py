"""Writes tests/data/torch: small files by torch.save, good ones and ones that must be refused.

Needs torch (1.13 was used). Run from the root of the repository: python3 tests/oracles/torch_files.py

  whole/             a Meta folder of one part
  parts2/, parts3/   the same model in two parts; the embedding split along columns (as in Llama 2) and
                     along rows (as in Llama 3)
  *.pth              single files, see below
"""
import collections
import json
import os
import pickle
import zipfile

import torch

OUT = "tests/data/torch"
DIM, LAYERS, HEADS, KV, VOCAB, FFN = 16, 1, 4, 2, 24, 44
torch.manual_seed(1)


def model():
    t = lambda *shape: torch.randn(*shape).to(torch.bfloat16)
    hd = DIM // HEADS
    d = collections.OrderedDict()
    d["tok_embeddings.weight"] = t(VOCAB, DIM)
    d["norm.weight"] = t(DIM)
    d["output.weight"] = t(VOCAB, DIM)
    for i in range(LAYERS):
        p = f"layers.{i}."
        d[p + "attention.wq.weight"] = t(HEADS * hd, DIM)
        d[p + "attention.wk.weight"] = t(KV * hd, DIM)
        d[p + "attention.wv.weight"] = t(KV * hd, DIM)
        d[p + "attention.wo.weight"] = t(DIM, HEADS * hd)
        d[p + "feed_forward.w1.weight"] = t(FFN, DIM)
        d[p + "feed_forward.w2.weight"] = t(DIM, FFN)
        d[p + "feed_forward.w3.weight"] = t(FFN, DIM)
        d[p + "attention_norm.weight"] = t(DIM)
        d[p + "ffn_norm.weight"] = t(DIM)
    d["rope.freqs"] = 1.0 / (10000 ** (torch.arange(0, hd, 2).float() / hd))
    return d


def write_folder(name, parts):
    folder = os.path.join(OUT, name)
    os.makedirs(folder, exist_ok=True)
    params = {"dim": DIM, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": KV, "vocab_size": -1,
              "multiple_of": 4, "norm_eps": 1e-5}
    if name == "parts3":
        params["vocab_size"] = VOCAB
    json.dump(params, open(os.path.join(folder, "params.json"), "w"))
    for i, part in enumerate(parts):
        torch.save(part, os.path.join(folder, f"consolidated.{i:02d}.pth"))


def split(d, n, embed_dim):
    parts = [collections.OrderedDict() for _ in range(n)]
    for name, t in d.items():
        dim = 0
        if name.endswith(("wo.weight", "w2.weight")):
            dim = 1
        if name == "tok_embeddings.weight":
            dim = embed_dim
        pieces = [t] * n if t.dim() == 1 else [p.contiguous().clone() for p in t.chunk(n, dim)]
        for part, piece in zip(parts, pieces):
            part[name] = piece
    return parts


d = model()
write_folder("whole", [d])
write_folder("parts2", split(d, 2, 1))
write_folder("parts3", split(d, 2, 0))

# Refused: an embedding without rows, of which the parts' columns together are more than 2^63.
torch.save({"tok_embeddings.weight": torch.empty(0, 1 << 62, dtype=torch.bfloat16)}, f"{OUT}/bad_columns.pth")

# Good: every element type, scalar, empty, slices of one storage, parameters, attributes, protocol 4.
base = torch.arange(12, dtype=torch.float32)
module = torch.nn.Linear(3, 2)
with torch.no_grad():
    module.weight.copy_(torch.arange(6).float().reshape(2, 3))
    module.bias.copy_(torch.tensor([7.0, 8.0]))
torch.save({
    "f32": base.reshape(3, 4), "f16": base.half(), "bf16": base.bfloat16(), "f64": base.double(),
    "i64": base.long(), "i32": base.int(), "i16": base.short(), "i8": base.to(torch.int8),
    "u8": base.byte(), "bool": base > 5, "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3),
    "slice": base[4:8], "parameter": torch.nn.Parameter(base[:2].clone()),
}, f"{OUT}/types.pth")
torch.save(module.state_dict(), f"{OUT}/state_dict.pth")
torch.save({"a": base}, f"{OUT}/protocol4.pth", pickle_protocol=4)

# Refused.
torch.save({"a": base.reshape(3, 4).t()}, f"{OUT}/bad_strides.pth")
torch.save({"a": {"b": base}}, f"{OUT}/bad_nested.pth")
torch.save([base], f"{OUT}/bad_list.pth")
torch.save(module, f"{OUT}/bad_module.pth")
torch.save({"a": base}, f"{OUT}/bad_legacy.pth", _use_new_zipfile_serialization=False)


class Evil:
    def __reduce__(self):
        return (os.system, ("echo owned",))


with zipfile.ZipFile(f"{OUT}/bad_evil.pth", "w") as z:
    z.writestr("x/data.pkl", pickle.dumps({"a": Evil()}, protocol=2))
with zipfile.ZipFile(f"{OUT}/protocol4.pth") as src, \
        zipfile.ZipFile(f"{OUT}/bad_compressed.pth", "w", zipfile.ZIP_DEFLATED) as z:
    for n in src.namelist():
        z.writestr(n, src.read(n))
with zipfile.ZipFile(f"{OUT}/protocol4.pth") as src, \
        zipfile.ZipFile(f"{OUT}/bad_storage.pth", "w") as z:
    for n in src.namelist():
        z.writestr(n, src.read(n)[:-4] if n.endswith("data/0") else src.read(n))
with zipfile.ZipFile(f"{OUT}/protocol4.pth") as src, \
        zipfile.ZipFile(f"{OUT}/bad_byteorder.pth", "w") as z:
    for n in src.namelist():
        if n != "protocol4/byteorder":  # which torch 2 writes, and 1.13 did not
            z.writestr(n, src.read(n))
    z.writestr("protocol4/byteorder", "big")

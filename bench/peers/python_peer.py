"""Helper process of 'bstk bench --peer scipy,torch': does bstk's problems with SciPy or torch and times itself.

Started by the tool as python3 -c TEXT LIBRARY THREADS with a socket as standard input. It first sends "ok VERSION", then
answers, until the socket ends:
    problem OP DTYPE B Z H M N K ROWS COLS NNZ TA TB TC CAUSAL BWD, then the raw arrays: row_ptr i64 [H*ROWS+1],
        col_idx i32 [NNZ], a, b and, for attention, v and with BWD d_o
                   -> "COUNT", then COUNT lines "KEY HOW"; or "0 WHY"
    run WAY CALLS  -> seconds of one run
    get WAY        -> the raw results
CPU time of this process with one thread, else wall time.
"""
import os
import socket
import sys
import time

import numpy as np

LIBRARY, THREADS = sys.argv[1], int(sys.argv[2])
LINK = socket.socket(fileno=os.dup(0))
READER = LINK.makefile("rb")
CLOCK = time.process_time if THREADS == 1 else time.perf_counter


def read(dtype, shape):
    """An array of the problem; bfloat16 comes as uint16."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    data = READER.read(count)
    if len(data) != count:
        sys.exit(0)
    return np.frombuffer(bytearray(data), dtype).reshape(shape)


class Problem:
    """What the tool sent: sizes by name, arrays as NumPy's."""

    def __init__(self, words):
        self.op, self.dtype = words[:2]
        (self.block, self.z, self.h, self.m, self.n, self.k, self.rows, self.cols, self.nnz, self.ta, self.tb, self.tc,
         self.causal, self.bwd) = map(int, words[2:])
        self.raw = {"bfloat16": np.uint16}.get(self.dtype, self.dtype)
        self.row_ptr = read(np.int64, (self.h * self.rows + 1,))
        self.col = read(np.int32, (self.nnz,))
        z, h, m, n, k, packed = self.z, self.h, self.m, self.n, self.k, (self.z, self.nnz, self.block, self.block)
        shape_a, shape_b = (z, h, k, m) if self.ta else (z, h, m, k), (z, h, n, k) if self.tb else (z, h, k, n)
        if self.op == "attention":
            shapes = [(z, h, m, k), (z, h, n, k), (z, h, n, k)] + ([(z, h, m, k)] if self.bwd else [])
        else:
            shapes = [packed if self.op == "dsd" else shape_a, packed if self.op == "dds" else shape_b]
        self.arrays = [read(self.raw, shape) for shape in shapes]

    def heads(self):
        """(z, h, row_ptr of the head from 0, its blocks) of every batch and head."""
        for z in range(self.z):
            for h in range(self.h):
                row_ptr = self.row_ptr[h * self.rows:(h + 1) * self.rows + 1]
                yield z, h, row_ptr - row_ptr[0], slice(row_ptr[0], row_ptr[-1])

    def mask(self):
        """[H, rows, cols], True where a block is stored."""
        mask = np.zeros((self.h, self.rows, self.cols), bool)
        for h in range(self.h):
            for r in range(self.rows):
                at = h * self.rows + r
                mask[h, r, self.col[self.row_ptr[at]:self.row_ptr[at + 1]]] = True
        return mask

    def elements(self):
        """The mask of elements [H, M, N]."""
        mask = self.mask().repeat(self.block, 1).repeat(self.block, 2)[:, :self.m, :self.n]
        return np.tril(mask) if self.causal else mask


def scipy_ways(p):
    """dsd and dds by scipy.sparse.bsr_matrix."""
    import scipy.sparse
    if p.op not in ("dsd", "dds"):
        return "its sparse matrices have no " + p.op
    if p.dtype not in ("float32", "float64"):
        return "its products take no " + p.dtype
    if p.ta or p.tb:
        return "transposed operands"
    a, b = p.arrays
    rows, cols = p.rows * p.block, p.cols * p.block
    if (rows, cols) != ((p.m, p.k) if p.op == "dsd" else (p.k, p.n)):
        return "a size that is no multiple of the block"
    values = a if p.op == "dsd" else b
    matrices = [(z, h, scipy.sparse.bsr_matrix((values[z, blocks], p.col[blocks], row_ptr), shape=(rows, cols)))
                for z, h, row_ptr, blocks in p.heads()]
    out = np.zeros((p.z, p.h, p.m, p.n), p.dtype)

    def run():
        for z, h, matrix in matrices:
            out[z, h] = matrix @ b[z, h] if p.op == "dsd" else a[z, h] @ matrix
    return [("scipy", "scipy.sparse.bsr_matrix @ dense" if p.op == "dsd" else "dense @ scipy.sparse.bsr_matrix", run,
             lambda: [out])]


def torch_ways(p):
    """dsd by sparse_bsr_tensor and by dense tensors, attention by scaled_dot_product_attention with a mask."""
    import torch

    def tensor(array):
        return torch.from_numpy(array).view(torch.bfloat16) if p.dtype == "bfloat16" else torch.from_numpy(array)

    def numpy(result):
        result = result.detach().contiguous()
        return (result.view(torch.int16) if p.dtype == "bfloat16" else result).numpy()
    if p.op == "attention":
        q, k, v = (tensor(x) for x in p.arrays[:3])
        mask = torch.from_numpy(p.elements())
        attend = torch.nn.functional.scaled_dot_product_attention
        held = {}

        def forward():
            with torch.no_grad():
                held["o"] = attend(q, k, v, attn_mask=mask)
        if not p.bwd:
            return [("torch_dense", "scaled_dot_product_attention with a boolean mask", forward,
                     lambda: [numpy(held["o"])])]
        leaves = [x.requires_grad_() for x in (q, k, v)]
        o, d_o = attend(*leaves, attn_mask=mask), tensor(p.arrays[3])

        def backward():
            held["grads"] = torch.autograd.grad(o, leaves, d_o, retain_graph=True)
        return [("torch_dense", "gradient of scaled_dot_product_attention with a boolean mask", backward,
                 lambda: [numpy(g) for g in held["grads"]])]
    if p.op != "dsd" or p.tb:
        return "its sparse tensors have no " + p.op + (" with a transposed operand" if p.tb else "")
    a, b = (tensor(x) for x in p.arrays)
    size = (p.rows * p.block, p.cols * p.block)
    if size != (p.m, p.k):
        return "a size that is no multiple of the block"
    held, ways = {}, []
    matrices = [(z, h, torch.sparse_bsr_tensor(torch.from_numpy(row_ptr.copy()),
                                               torch.from_numpy(p.col[blocks].astype(np.int64)),
                                               a[z, blocks], size)) for z, h, row_ptr, blocks in p.heads()]
    dense = torch.stack([matrix.to_dense() for _, _, matrix in matrices]).reshape(p.z, p.h, *size)

    def bsr():
        held["bsr"] = [matrix @ b[z, h] for z, h, matrix in matrices]

    def whole():
        held["dense"] = torch.matmul(dense, b)
    try:
        bsr()
        ways.append(("torch", "sparse_bsr_tensor @ dense", bsr,
                     lambda: [numpy(torch.stack(held["bsr"]).reshape(p.z, p.h, p.m, p.n))]))
    except RuntimeError:
        pass  # without MKL it has no such product: the dense one is left
    return ways + [("torch_dense", "matmul of the dense matrix", whole, lambda: [numpy(held["dense"])])]


def version():
    """Imports the library and says which it is."""
    if LIBRARY == "scipy":
        import scipy
        return f"SciPy {scipy.__version__}"
    import torch
    torch.set_num_threads(THREADS)
    return f"torch {torch.__version__}" + (", with MKL" if torch.backends.mkl.is_available() else ", without MKL")


def answer(words, ways):
    """One request; returns the ways that are open from now on."""
    if words[0] == "problem":
        try:
            found = (scipy_ways if LIBRARY == "scipy" else torch_ways)(Problem(words[1:]))
        except Exception as error:  # whatever a library raises is its answer
            found = f"{type(error).__name__}: {error}".splitlines()[0][:200]
        if isinstance(found, str):
            LINK.sendall(f"0 {found}\n".encode())
            return []
        LINK.sendall(f"{len(found)}\n".encode() + b"".join(f"{key} {how}\n".encode() for key, how, _, _ in found))
        return found
    _, _, run, results = ways[int(words[1])]
    if words[0] == "run":
        calls = int(words[2])
        start = CLOCK()
        for _ in range(calls):
            run()
        LINK.sendall(f"{(CLOCK() - start) / calls!r}\n".encode())
    else:
        for result in results():
            LINK.sendall(np.ascontiguousarray(result).data.cast("B"))
    return ways


def main():
    """Requests until the tool is gone."""
    LINK.sendall(f"ok {version()}\n".encode())
    ways = []
    for line in iter(READER.readline, b""):
        ways = answer(line.decode().split(), ways)


if __name__ == "__main__":
    try:
        main()
    except (BrokenPipeError, ConnectionResetError):
        pass

"""Training steps of an OLMo-2-like decoder in PyTorch, driven over a pipe.

Prints one JSON line when warm, then answers each line "run K" on standard input
with a JSON list of K pairs: seconds and CPU seconds of each step. A step is forward, backward, clipping
of the global norm at 1, and the optimizer, in float32.

SOAP follows its published update order (moments kept in the eigenbasis, moved to
the new basis and back every step, one QR iteration per refresh); embedding, head
and norms take AdamW, as in the run that this one is compared with. With
--momentum refresh the first moment is moved only when the basis changes, which
gives the same updates for less work.
"""

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("--threads", type=int, required=True)
    p.add_argument("--optimizer", choices=["adamw", "soap"], required=True)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--momentum", choices=["step", "refresh"], default="step")
    p.add_argument("--warmup", type=int, default=12)
    p.add_argument("--frequency", type=int, default=10)
    for name in ("width", "layers", "heads", "hidden", "vocab", "seq", "rows"):
        p.add_argument("--" + name, type=int, required=True)
    return p.parse_args()


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, self.weight.shape, self.weight, 1e-6)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


def linear(n_in, n_out):
    layer = nn.Linear(n_in, n_out, bias=False)
    nn.init.normal_(layer.weight, std=0.02)
    return layer


class Block(nn.Module):
    """Norms on the outputs, QK-norm over the projected width, SwiGLU."""

    def __init__(self, a):
        super().__init__()
        d, self.heads = a.width, a.heads
        self.q, self.k, self.v, self.o = (linear(d, d) for _ in range(4))
        self.q_norm, self.k_norm, self.att_norm, self.mlp_norm = (Norm(d) for _ in range(4))
        self.gate, self.up, self.down = linear(d, a.hidden), linear(d, a.hidden), linear(a.hidden, d)

    def split(self, x):
        rows, seq, d = x.shape
        return x.view(rows, seq, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x, cos, sin):
        q = rotate(self.split(self.q_norm(self.q(x))), cos, sin)
        k = rotate(self.split(self.k_norm(self.k(x))), cos, sin)
        y = attention(q, k, self.split(self.v(x)))
        x = x + self.att_norm(self.o(y.transpose(1, 2).reshape(x.shape)))
        return x + self.mlp_norm(self.down(F.silu(self.gate(x)) * self.up(x)))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


def attention(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    seq = q.shape[2]
    mask = torch.full((seq, seq), float("-inf")).triu(1)
    return torch.softmax(q @ k.transpose(2, 3) * q.shape[3] ** -0.5 + mask, -1) @ v


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embed = nn.Embedding(a.vocab, a.width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(a) for _ in range(a.layers))
        self.norm, self.head = Norm(a.width), linear(a.width, a.vocab)
        half = a.width // a.heads // 2
        angle = torch.arange(a.seq)[:, None] * 500000.0 ** (-torch.arange(half) / half)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens):
        x = self.embed(tokens)
        for b in self.blocks:
            x = b(x, self.cos, self.sin)
        return self.head(self.norm(x))

    def loss(self, tokens):
        logits = self(tokens)[:, :-1]
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))


class Soap:
    """SOAP for matrices, from its equations."""

    def __init__(self, params, lr, frequency, keep, betas=(0.95, 0.95), eps=1e-8, decay=0.01):
        self.lr, self.f, self.keep, self.betas, self.eps, self.decay = lr, frequency, keep, betas, eps, decay
        self.state = [{"w": p, "m": torch.zeros_like(p), "v": torch.zeros_like(p)} for p in params]
        self.t = -1

    @torch.no_grad()
    def step(self):
        self.t += 1
        for s in self.state:
            (self.update if self.t else self.begin)(s, s["w"].grad)

    def begin(self, s, g):
        rate = 1 - self.betas[1]
        s["left"], s["right"] = rate * (g @ g.T), rate * (g.T @ g)
        s["ql"], s["qr"] = (torch.linalg.eigh(s[k])[1].flip(1) for k in ("left", "right"))

    def update(self, s, g):
        b1, b2 = self.betas
        p = s["ql"].T @ g @ s["qr"]
        s["m"].lerp_(p, 1 - b1)
        s["v"].mul_(b2).addcmul_(p, p, value=1 - b2)
        u = s["ql"] @ (s["m"] / (s["v"].sqrt() + self.eps)) @ s["qr"].T
        s["w"].add_(u, alpha=-self.lr * (1 - b2**self.t) ** 0.5 / (1 - b1**self.t))
        s["w"].mul_(1 - self.lr * self.decay)
        fresh = self.t % self.f == 0
        if fresh or not self.keep:
            original = s["ql"] @ s["m"] @ s["qr"].T
        s["left"].lerp_(g @ g.T, 1 - b2)
        s["right"].lerp_(g.T @ g, 1 - b2)
        if fresh:
            self.refresh(s)
        if fresh or not self.keep:
            s["m"] = s["ql"].T @ original @ s["qr"]

    def refresh(self, s):
        for axis, (factor, basis) in enumerate((("left", "ql"), ("right", "qr"))):
            q, a = s[basis], s[factor]
            order = torch.argsort((q * (a @ q)).sum(0), descending=True)
            s["v"] = s["v"].index_select(axis, order)
            s[basis] = torch.linalg.qr(a @ q[:, order])[0]


def adamw(params):
    """The fastest form that this release has on a CPU."""
    for form in ({"fused": True}, {"foreach": True}, {}):
        try:
            return torch.optim.AdamW(params, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, **form)
        except (RuntimeError, TypeError):
            continue
    raise SystemExit("no AdamW")


def optimizers(model, a):
    """One AdamW, or SOAP for the blocks' matrices and AdamW for the rest."""
    matrices = [p for n, p in model.named_parameters() if n.startswith("blocks") and p.dim() == 2]
    chosen = {id(p) for p in matrices} if a.optimizer == "soap" else set()
    rest = [p for p in model.parameters() if id(p) not in chosen]
    out = [adamw(rest)]
    if a.optimizer == "soap":
        out.append(Soap(matrices, 3e-3, a.frequency, a.momentum == "refresh"))
    return out


def main():
    a = arguments()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    model = Model(a)
    loss_of = torch.compile(model.loss) if a.compile else model.loss
    opts = optimizers(model, a)
    params = list(model.parameters())

    def step():
        tokens = torch.randint(0, a.vocab, (a.rows, a.seq))
        start, cpu = time.perf_counter(), time.process_time()
        for p in params:
            p.grad = None
        loss_of(tokens).backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        for o in opts:
            o.step()
        return time.perf_counter() - start, time.process_time() - cpu

    for _ in range(a.warmup):
        step()
    blas = "mkl" if torch.backends.mkl.is_available() else "openblas or blis"
    say({"version": torch.__version__, "blas": blas, "params": sum(p.numel() for p in params)})
    for line in sys.stdin:
        words = line.split()
        if words[:1] != ["run"]:
            break
        say([step() for _ in range(int(words[1]))])


def say(x):
    print(json.dumps(x), flush=True)


main()

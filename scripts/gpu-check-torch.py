"""torch.linalg.eigh in float32 and an inverse fourth root by it, beside our own refreshes.

The residual is that of our reports: |(A - QLQ')v| / (|A||v|) for one fixed vector v.
"""
import sys
import time

try:
    import torch
except ImportError:
    sys.exit(1)
if not torch.cuda.is_available():
    sys.exit(1)
torch.backends.cuda.matmul.allow_tf32 = False


def timed(f):
    f()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(3):
        f()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 3


for n in (512, 1024, 2048):
    torch.manual_seed(n)
    x = torch.randn(2 * n, n, device="cuda")
    a = x.T @ x / (2 * n)
    v = 1 + 0.5 * torch.sin(3 * torch.arange(n, device="cuda", dtype=torch.float32) + 1)

    def root():
        w, q = torch.linalg.eigh(a)
        return (q * w.clamp(min=1e-7 * w[-1]) ** -0.25) @ q.T

    w, q = torch.linalg.eigh(a)
    residual = float((a @ v - q @ (w * (q.T @ v))).norm() / (w.abs().max() * v.norm()))
    print(f"{'torch.linalg.eigh/n=%d' % n:44s} {timed(lambda: torch.linalg.eigh(a)) * 1e9:.0f} ns/op {residual:.3g} residual", flush=True)
    print(f"{'torch root4/n=%d' % n:44s} {timed(root) * 1e9:.0f} ns/op", flush=True)

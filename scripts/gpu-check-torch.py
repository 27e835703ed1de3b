"""torch.linalg.eigh and an inverse fourth root by it, beside our own refreshes."""
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
    x = torch.randn(2 * n, n, device="cuda")
    a = x.T @ x / (2 * n)

    def root():
        w, q = torch.linalg.eigh(a)
        return (q * w.clamp(min=1e-7 * w[-1]) ** -0.25) @ q.T

    print(f"{'torch.linalg.eigh/n=%d' % n:44s} {timed(lambda: torch.linalg.eigh(a)) * 1e9:.0f} ns/op")
    print(f"{'torch root4/n=%d' % n:44s} {timed(root) * 1e9:.0f} ns/op")

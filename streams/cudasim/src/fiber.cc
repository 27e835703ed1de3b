// Threads of a block as fibers of one operating-system thread: BARRIER switches to
// the next one, so a block needs no locks and runs the same way every time.

#include <cstdlib>
#include <memory>
#include <ucontext.h>

#include "sim.h"

namespace cudasim {

thread_local Position here;

namespace {

constexpr size_t stack_bytes = 32 << 10;

#if defined(__x86_64__)

// swap saves the callee-saved registers on the running stack and continues on
// another one: ucontext's swap makes a system call each time, which would make a
// matrix product ten times slower.
extern "C" void cudasim_swap(void **save, void *load);
asm(R"(
.text
.globl cudasim_swap
.hidden cudasim_swap
.type cudasim_swap,@function
cudasim_swap:
	pushq %rbp
	pushq %rbx
	pushq %r12
	pushq %r13
	pushq %r14
	pushq %r15
	movq %rsp, (%rdi)
	movq %rsi, %rsp
	popq %r15
	popq %r14
	popq %r13
	popq %r12
	popq %rbx
	popq %rbp
	ret
.size cudasim_swap,.-cudasim_swap
)");

struct Context {
	void *sp = nullptr;
};

void prepare(Context &c, char *stack, void (*entry)()) {
	auto top = reinterpret_cast<uintptr_t>(stack + stack_bytes) & ~uintptr_t(15);
	auto *sp = reinterpret_cast<void **>(top) - 2;
	*sp = reinterpret_cast<void *>(entry); // where ret goes; rsp is then 8 mod 16, as after a call
	c.sp = sp - 6;
	for (int i = 0; i < 6; i++) static_cast<void **>(c.sp)[i] = nullptr;
}

void change(Context &from, Context &to) { cudasim_swap(&from.sp, to.sp); }

#else

struct Context {
	ucontext_t u;
};

void prepare(Context &c, char *stack, void (*entry)()) {
	getcontext(&c.u);
	c.u.uc_stack.ss_sp = stack;
	c.u.uc_stack.ss_size = stack_bytes;
	c.u.uc_link = nullptr;
	makecontext(&c.u, entry, 0);
}

void change(Context &from, Context &to) { swapcontext(&from.u, &to.u); }

#endif

// Crew is the set of fibers that an operating-system thread keeps for its blocks.
struct Crew {
	std::vector<std::unique_ptr<char[]>> stacks;
	std::vector<Context> fibers;
	std::vector<char> done;
	Context home;
	const Function *function = nullptr;
	const uint64_t *slots = nullptr;
	long current = 0;
};
thread_local Crew crew;

void body() {
	crew.function->call(crew.slots);
	crew.done[crew.current] = 1;
	change(crew.fibers[crew.current], crew.home);
	abort(); // a fiber that ended is never resumed
}

} // namespace

void barrier() { change(crew.fibers[crew.current], crew.home); }

// run_block runs the threads of the block that here names.
void run_block(const Function &f, const uint64_t *slots) {
	if (!f.barriers) {
		for (here.thread = 0; here.thread < here.threads; here.thread++) f.call(slots);
		return;
	}
	size_t n = here.threads;
	while (crew.stacks.size() < n) crew.stacks.emplace_back(new char[stack_bytes]);
	crew.fibers.resize(n);
	crew.done.assign(n, 0);
	crew.function = &f, crew.slots = slots;
	for (size_t i = 0; i < n; i++) prepare(crew.fibers[i], crew.stacks[i].get(), body);
	for (size_t left = n; left > 0;) {
		for (size_t i = 0; i < n; i++) {
			if (crew.done[i]) continue;
			crew.current = here.thread = i;
			change(crew.home, crew.fibers[i]);
			left -= crew.done[i];
		}
	}
}

} // namespace cudasim

// How the simulated driver runs a kernel that was compiled as C++.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

namespace cudasim {

// Position is where the running thread of a kernel stands.
struct Position {
	long block, block_y, blocks, thread, threads;
};
extern thread_local Position here;

// barrier waits for the other threads of the block. Only fibers may call it.
void barrier();

// Parameter is one argument of a kernel, as its C++ signature says.
struct Parameter {
	size_t size;
	bool pointer;
	size_t align; // of what a pointer points at
};

// Function is a kernel that a module may name.
struct Function {
	std::string name;
	bool barriers;
	std::vector<Parameter> parameters;
	std::function<void(const uint64_t *)> call; // one 8-byte slot an argument
};

void add(Function f);

template <class T> T slot(uint64_t bits) {
	T v;
	std::memcpy(&v, &bits, sizeof v);
	return v;
}

template <class... A, size_t... I>
void spread(void (*f)(A...), const uint64_t *slots, std::index_sequence<I...>) {
	f(slot<A>(slots[I])...);
}

struct Registered {
	template <class... A> Registered(const char *name, void (*f)(A...), bool barriers) {
		add(Function{name, barriers, {Parameter{sizeof(A), std::is_pointer<A>::value, sizeof(typename std::remove_pointer<A>::type)}...}, [f](const uint64_t *slots) {
			             spread(f, slots, std::index_sequence_for<A...>{});
		             }});
	}
};

} // namespace cudasim

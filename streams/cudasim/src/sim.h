// What the parts of the simulator share.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "emulate.h"

namespace cudasim {

void run_block(const Function &f, const uint64_t *slots);
const Function *find(const std::string &name);

} // namespace cudasim

// Stream is an ordered queue served by a thread of its own.
struct Stream {
	explicit Stream(int priority);
	~Stream();
	void enqueue(std::function<void()> f);
	void drain();
	bool idle();

	const int priority;

private:
	void serve();

	std::mutex mu;
	std::condition_variable changed;
	std::deque<std::function<void()>> queue;
	bool busy = false, stop = false;
	std::thread thread;
};

// What the libraries beside the driver (cuBLAS, cuSOLVER) need of it.
extern "C" {
// cudasim_enqueue runs f(argument) in stream order, then release(argument).
__attribute__((visibility("default"))) void cudasim_enqueue(Stream *stream, void (*f)(void *), void *argument);
// cudasim_device returns where the simulator keeps so many bytes at a device address,
// or breaks the context and returns nothing where the device cannot use them.
__attribute__((visibility("default"))) void *cudasim_device(uint64_t address, size_t bytes);
// cudasim_current reports whether the calling thread has a current context.
__attribute__((visibility("default"))) int cudasim_current();
}

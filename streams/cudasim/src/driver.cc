// A simulated libcuda.so.1 over host memory, for tests.
//
// Streams are threads, so work is asynchronous and a missing dependency shows.
// Device addresses are not readable by the host: kernels and copies translate them.
// Everything that a test needs to vary comes from the environment, read by cuInit,
// or from cudasim_configure, both as KEY=VALUE:
//
//	CUDASIM_KIND     discrete (default) | basic | integrated | coherent
//	CUDASIM_MEMORY   bytes of device memory [1 GiB]
//	CUDASIM_DEVICES  number of devices [1]
//	CUDASIM_VERSION  what cuDriverGetVersion says [12040]
//	CUDASIM_DELAY    longest random pause before an operation, microseconds [0]
//	CUDASIM_FAIL     call:n:status, the n-th call from now fails once; "kernel" fails
//	                 a launch while it runs, which the context does not survive
//	CUDASIM_TRACE    1 prints each managed-memory hint to stderr

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <sys/mman.h>
#include <unistd.h>

#include "sim.h"

namespace cudasim {

std::map<std::string, Function> &functions() {
	static std::map<std::string, Function> f; // made on first use: registration runs before main
	return f;
}
void add(Function f) { functions()[f.name] = std::move(f); }
const Function *find(const std::string &name) {
	auto it = functions().find(name);
	return it == functions().end() ? nullptr : &it->second;
}

} // namespace cudasim

using Status = int;
using Address = uint64_t;

enum : Status {
	SUCCESS = 0,
	INVALID_VALUE = 1,
	OUT_OF_MEMORY = 2,
	NOT_INITIALIZED = 3,
	NO_DEVICE = 100,
	INVALID_DEVICE = 101,
	INVALID_IMAGE = 200,
	INVALID_CONTEXT = 201,
	INVALID_PTX = 218,
	UNSUPPORTED_PTX_VERSION = 222,
	INVALID_HANDLE = 400,
	NOT_FOUND = 500,
	NOT_READY = 600,
	ILLEGAL_ADDRESS = 700,
	LAUNCH_OUT_OF_RESOURCES = 701,
	MISALIGNED_ADDRESS = 716,
	LAUNCH_FAILED = 719,
	NOT_PERMITTED = 800,
	NOT_SUPPORTED = 801,
};

struct Named {
	Status status;
	const char *name, *text;
};
static const Named names[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {INVALID_PTX, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {MISALIGNED_ADDRESS, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

// ---- configuration

struct Failure {
	std::string call;
	long countdown;
	Status status;
};

static std::recursive_mutex mu; // guards everything down to the streams
static std::map<std::string, std::string> settings;
static std::vector<Failure> failures;
static std::atomic<long> longest_pause{0};
static std::atomic<Status> sticky{SUCCESS};
static thread_local bool calling_back = false; // a host function runs on this thread
static std::map<std::string, std::atomic<long>> counts; // made before any thread runs: see cuInit
static bool initialised = false;

static std::string setting(const std::string &key, const char *otherwise) {
	auto it = settings.find(key);
	if (it != settings.end()) return it->second;
	const char *v = getenv(key.c_str());
	return v ? v : otherwise;
}
static long number(const std::string &key, long otherwise) {
	return std::atol(setting(key, std::to_string(otherwise).c_str()).c_str());
}

static void read_failure(const std::string &text) {
	size_t a = text.find(':'), b = text.rfind(':');
	if (a == std::string::npos || a == b) return;
	failures.push_back({text.substr(0, a), std::atol(text.c_str() + a + 1), std::atoi(text.c_str() + b + 1)});
}

// due counts a call down and returns the status that it must fail with.
static Status due(const char *call) {
	std::lock_guard<std::recursive_mutex> l(mu);
	for (size_t i = 0; i < failures.size(); i++) {
		if (failures[i].call == call && --failures[i].countdown <= 0) {
			Status s = failures[i].status;
			failures.erase(failures.begin() + i);
			return s;
		}
	}
	return SUCCESS;
}

// ---- memory

enum Kind { DEVICE, MANAGED, PINNED };
struct Allocation {
	size_t size;
	Kind kind;
	char *backing;
	bool resident; // managed memory that is on the device
};
static std::map<Address, Allocation> allocations;
static size_t used = 0; // bytes of device memory
static Address next_address = 0, window_start = 0;
constexpr size_t window = size_t(1) << 40; // reserved, never readable

static std::string kind() { return setting("CUDASIM_KIND", "discrete"); }
static size_t memory_bytes() { return number("CUDASIM_MEMORY", 1l << 30); }

// holder returns the allocation that contains an address.
static std::pair<const Address, Allocation> *holder(Address a) {
	auto it = allocations.upper_bound(a);
	if (it == allocations.begin()) return nullptr;
	--it;
	return a < it->first + it->second.size ? &*it : nullptr;
}

// host translates an address; what the driver did not allocate is the process's own.
static char *host(Address a) {
	std::lock_guard<std::recursive_mutex> l(mu);
	if (auto *h = holder(a)) return h->second.backing + (a - h->first);
	return reinterpret_cast<char *>(a);
}

// concurrent reports whether both sides may use managed memory at the same time.
static bool concurrent() { return kind() != "basic" && kind() != "integrated"; }

// span_ok reports whether n bytes at an address may be copied or set: inside one
// allocation, or memory that is not the driver's at all.
static bool span_ok(Address a, size_t n, bool own) {
	std::lock_guard<std::recursive_mutex> l(mu);
	if (auto *h = holder(a)) return a + n <= h->first + h->second.size;
	return !own && !(a >= window_start && a < window_start + window); // a device address that is nobody's
}

static void move(Address a, bool on_device);

// device_use is what touching an address from the device does: an error for one that
// it cannot reach, a fault for managed memory that is on the host's side.
static Status device_use(Address a, size_t n) {
	std::lock_guard<std::recursive_mutex> l(mu);
	auto *h = holder(a);
	if (!h) return kind() == "coherent" && !(a >= window_start && a < window_start + window) ? SUCCESS : ILLEGAL_ADDRESS;
	if (a + n > h->first + h->second.size) return ILLEGAL_ADDRESS;
	if (h->second.kind == MANAGED && !h->second.resident) {
		counts["faults"]++;
		move(a, true);
	}
	return SUCCESS;
}
extern "C" void *cudasim_device(uint64_t address, size_t bytes) {
	if (sticky != SUCCESS) return nullptr;
	if (Status bad = device_use(address, bytes)) return sticky = bad, nullptr;
	return host(address);
}

// ---- streams

static thread_local std::minstd_rand pauses{std::random_device{}()};

// Processor runs one block at a time, those of high priority first.
static struct Processor {
	std::mutex mu;
	std::condition_variable changed;
	bool busy = false;
	std::map<int, int> waiting; // priority -> threads

	void enter(int priority) {
		std::unique_lock<std::mutex> l(mu);
		waiting[priority]++;
		changed.wait(l, [&] { return !busy && waiting.begin()->first == priority; });
		if (--waiting[priority] == 0) waiting.erase(priority);
		busy = true;
	}
	void leave() {
		std::lock_guard<std::mutex> l(mu);
		busy = false;
		changed.notify_all();
	}
} processor;

Stream::Stream(int p) : priority(p) {
	// The host's signals belong to its own threads.
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	thread = std::thread([this] { serve(); });
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
}
Stream::~Stream() {
	{
		std::lock_guard<std::mutex> l(mu);
		stop = true;
		changed.notify_all();
	}
	thread.join();
}
void Stream::enqueue(std::function<void()> f) {
	std::lock_guard<std::mutex> l(mu);
	queue.push_back(std::move(f));
	changed.notify_all();
}
void Stream::drain() {
	std::unique_lock<std::mutex> l(mu);
	changed.wait(l, [&] { return queue.empty() && !busy; });
}
bool Stream::idle() {
	std::lock_guard<std::mutex> l(mu);
	return queue.empty() && !busy;
}
void Stream::serve() {
	for (;;) {
		std::function<void()> f;
		{
			std::unique_lock<std::mutex> l(mu);
			changed.wait(l, [&] { return stop || !queue.empty(); });
			if (queue.empty()) return;
			f = std::move(queue.front());
			queue.pop_front();
			busy = true;
		}
		if (long d = longest_pause) usleep(pauses() % (d + 1));
		f();
		std::lock_guard<std::mutex> l(mu);
		busy = false;
		changed.notify_all();
	}
}

static Stream *null_stream() {
	static Stream *s = new Stream(0); // lives as long as the process
	return s;
}
static Stream *of(Stream *s) { return s ? s : null_stream(); }

extern "C" void cudasim_enqueue(Stream *s, void (*f)(void *), void *argument) {
	of(s)->enqueue([=] { f(argument); });
}

struct Event {
	std::mutex mu;
	std::condition_variable changed;
	uint64_t recorded = 0, done = 0;
	bool timed = true;
	std::chrono::steady_clock::time_point when;

	void reach(uint64_t n) {
		std::lock_guard<std::mutex> l(mu);
		done = std::max(done, n);
		when = std::chrono::steady_clock::now();
		changed.notify_all();
	}
	void await(uint64_t n) {
		std::unique_lock<std::mutex> l(mu);
		changed.wait(l, [&] { return done >= n; });
	}
	uint64_t latest() {
		std::lock_guard<std::mutex> l(mu);
		return recorded;
	}
};
using EventRef = std::shared_ptr<Event>; // a destroyed event lives until its point is reached

struct Module {
	std::string ptx;
};
struct Context {
	int device, retained;
};
static Context contexts[8];
static thread_local std::vector<Context *> stack;

// ENTER begins every call that needs a context; CALL those that do not.
#define CALL(name)                                     \
	if (Status s_ = due(name); s_ != SUCCESS) return s_; \
	if (calling_back) return NOT_PERMITTED;              \
	if (!initialised) return NOT_INITIALIZED
#define ENTER(name)                             \
	CALL(name);                                   \
	if (sticky != SUCCESS) return sticky;         \
	if (stack.empty()) return INVALID_CONTEXT

// KNOWN refuses a stream that is none, or another context's.
static std::map<Stream *, Context *> live;
static bool known(Stream *s) {
	std::lock_guard<std::recursive_mutex> l(mu);
	auto it = live.find(s);
	return it != live.end() && it->second == stack.back();
}
#define KNOWN(s) \
	if ((s) && !known(s)) return INVALID_HANDLE

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int cudasim_configure(const char *text) {
	std::lock_guard<std::recursive_mutex> l(mu);
	std::string t = text;
	size_t eq = t.find('=');
	if (eq == std::string::npos) return INVALID_VALUE;
	std::string key = t.substr(0, eq), value = t.substr(eq + 1);
	if (key == "CUDASIM_FAIL") {
		if (value.empty()) failures.clear();
		read_failure(value);
	} else {
		settings[key] = value;
	}
	longest_pause = number("CUDASIM_DELAY", 0);
	return SUCCESS;
}

// cudasim_count returns how often something happened: faults (a kernel or library
// touched managed memory on the host's side), launches, prefetches, copies.
EXPORT long cudasim_count(const char *name) {
	std::lock_guard<std::recursive_mutex> l(mu);
	auto it = counts.find(name);
	return it == counts.end() ? -1 : it->second.load();
}
// cudasim_current reports whether the calling thread has a context.
EXPORT int cudasim_current() { return !stack.empty(); }

EXPORT Status cuInit(unsigned flags) {
	if (Status s = due("cuInit")) return s;
	std::lock_guard<std::recursive_mutex> l(mu);
	if (flags) return INVALID_VALUE;
	if (initialised) return SUCCESS;
	void *w = mmap(nullptr, window, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (w == MAP_FAILED) return OUT_OF_MEMORY;
	next_address = window_start = reinterpret_cast<Address>(w);
	for (const char *name : {"faults", "launches", "prefetches", "copies"}) counts[name] = 0;
	read_failure(setting("CUDASIM_FAIL", ""));
	longest_pause = number("CUDASIM_DELAY", 0);
	if (number("CUDASIM_DEVICES", 1) == 0) return NO_DEVICE;
	initialised = true;
	return due("cuInit");
}
EXPORT Status cuDriverGetVersion(int *v) {
	*v = number("CUDASIM_VERSION", 12040);
	return SUCCESS;
}
EXPORT Status cuGetErrorName(Status s, const char **out) {
	for (auto &n : names)
		if (n.status == s) return *out = n.name, SUCCESS;
	return *out = nullptr, INVALID_VALUE;
}
EXPORT Status cuGetErrorString(Status s, const char **out) {
	for (auto &n : names)
		if (n.status == s) return *out = n.text, SUCCESS;
	return *out = nullptr, INVALID_VALUE;
}

EXPORT Status cuDeviceGetCount(int *n) {
	CALL("cuDeviceGetCount");
	*n = number("CUDASIM_DEVICES", 1);
	return SUCCESS;
}
EXPORT Status cuDeviceGet(int *d, int ordinal) {
	CALL("cuDeviceGet");
	if (ordinal < 0 || ordinal >= number("CUDASIM_DEVICES", 1) || ordinal >= 8) return INVALID_DEVICE;
	*d = ordinal;
	return SUCCESS;
}
EXPORT Status cuDeviceGetName(char *name, int len, int) {
	CALL("cuDeviceGetName");
	snprintf(name, len, "Simulated GPU (%s)", kind().c_str());
	return SUCCESS;
}
EXPORT Status cuDeviceTotalMem_v2(size_t *bytes, int) {
	CALL("cuDeviceTotalMem_v2");
	*bytes = memory_bytes();
	return SUCCESS;
}
EXPORT Status cuDeviceGetAttribute(int *v, int attribute, int) {
	CALL("cuDeviceGetAttribute");
	std::string k = kind();
	bool coherent = k == "coherent", integrated = k == "integrated";
	switch (attribute) {
	case 1: *v = 1024; break;                    // threads a block
	case 10: *v = 32; break;                     // warp
	case 16: *v = 1; break;                      // multiprocessors
	case 18: *v = integrated; break;             // integrated
	case 19: *v = 1; break;                      // can map host memory
	case 40: *v = 2; break;                      // copy engines
	case 41: *v = 1; break;                      // unified addressing
	case 75: *v = 9; break;                      // compute capability
	case 76: *v = 0; break;
	case 83: *v = 1; break;                      // managed memory
	case 88: *v = coherent; break;               // pageable access
	case 89: *v = concurrent(); break;           // concurrent managed access
	case 100: *v = coherent; break;              // pageable access by host page tables
	default: return INVALID_VALUE;
	}
	return SUCCESS;
}

EXPORT Status cuDevicePrimaryCtxRetain(Context **c, int device) {
	CALL("cuDevicePrimaryCtxRetain");
	std::lock_guard<std::recursive_mutex> l(mu);
	*c = &contexts[device];
	(*c)->device = device, (*c)->retained++;
	return SUCCESS;
}
EXPORT Status cuDevicePrimaryCtxRelease_v2(int device) {
	CALL("cuDevicePrimaryCtxRelease_v2");
	std::lock_guard<std::recursive_mutex> l(mu);
	if (contexts[device].retained == 0) return INVALID_CONTEXT;
	if (--contexts[device].retained == 0) sticky = SUCCESS; // the broken context is gone
	return SUCCESS;
}
EXPORT Status cuCtxPushCurrent_v2(Context *c) {
	CALL("cuCtxPushCurrent_v2");
	if (!c || c->retained <= 0) return INVALID_CONTEXT;
	stack.push_back(c);
	return SUCCESS;
}
EXPORT Status cuCtxPopCurrent_v2(Context **c) {
	CALL("cuCtxPopCurrent_v2");
	if (stack.empty()) return INVALID_CONTEXT;
	if (c) *c = stack.back();
	stack.pop_back();
	return SUCCESS;
}
EXPORT Status cuCtxGetCurrent(Context **c) {
	CALL("cuCtxGetCurrent");
	*c = stack.empty() ? nullptr : stack.back();
	return SUCCESS;
}
EXPORT Status cuCtxGetStreamPriorityRange(int *least, int *greatest) {
	ENTER("cuCtxGetStreamPriorityRange");
	*least = 0, *greatest = -5;
	return SUCCESS;
}

EXPORT Status cuStreamCreateWithPriority(Stream **s, unsigned flags, int priority) {
	ENTER("cuStreamCreateWithPriority");
	if (flags > 1 || priority > 0 || priority < -5) return INVALID_VALUE;
	*s = new Stream(priority);
	std::lock_guard<std::recursive_mutex> l(mu);
	live[*s] = stack.back();
	return SUCCESS;
}
EXPORT Status cuStreamDestroy_v2(Stream *s) {
	CALL("cuStreamDestroy_v2");
	if (stack.empty()) return INVALID_CONTEXT;
	{
		std::lock_guard<std::recursive_mutex> l(mu);
		if (!live.erase(s)) return INVALID_HANDLE;
	}
	delete s;
	return SUCCESS;
}
EXPORT Status cuStreamQuery(Stream *s) {
	ENTER("cuStreamQuery");
	KNOWN(s);
	if (!of(s)->idle()) return NOT_READY;
	return sticky;
}
EXPORT Status cuStreamSynchronize(Stream *s) {
	ENTER("cuStreamSynchronize");
	KNOWN(s);
	of(s)->drain();
	return sticky;
}
EXPORT Status cuLaunchHostFunc(Stream *s, void (*f)(void *), void *data) {
	ENTER("cuLaunchHostFunc");
	KNOWN(s);
	if (!f) return INVALID_VALUE;
	of(s)->enqueue([=] {
		if (sticky != SUCCESS) return; // the driver does not call back from a broken context
		calling_back = true;
		f(data);
		calling_back = false;
	});
	return SUCCESS;
}

EXPORT Status cuEventCreate(EventRef **e, unsigned flags) {
	ENTER("cuEventCreate");
	if (flags > 3) return INVALID_VALUE;
	*e = new EventRef(std::make_shared<Event>());
	(**e)->timed = !(flags & 2);
	return SUCCESS;
}
EXPORT Status cuEventDestroy_v2(EventRef *e) {
	CALL("cuEventDestroy_v2");
	delete e;
	return SUCCESS;
}
EXPORT Status cuEventRecord(EventRef *e, Stream *s) {
	ENTER("cuEventRecord");
	KNOWN(s);
	EventRef event = *e;
	uint64_t n;
	{
		std::lock_guard<std::mutex> l(event->mu);
		n = ++event->recorded;
	}
	of(s)->enqueue([=] { event->reach(n); });
	return SUCCESS;
}
EXPORT Status cuEventQuery(EventRef *e) {
	ENTER("cuEventQuery");
	std::lock_guard<std::mutex> l((*e)->mu);
	return (*e)->done >= (*e)->recorded ? SUCCESS : NOT_READY;
}
EXPORT Status cuEventSynchronize(EventRef *e) {
	ENTER("cuEventSynchronize");
	(*e)->await((*e)->latest());
	return sticky;
}
EXPORT Status cuEventElapsedTime(float *ms, EventRef *a, EventRef *b) {
	ENTER("cuEventElapsedTime");
	for (EventRef *e : {a, b}) {
		std::lock_guard<std::mutex> l((*e)->mu);
		if (!(*e)->timed || (*e)->recorded == 0) return INVALID_HANDLE;
		if ((*e)->done < (*e)->recorded) return NOT_READY;
	}
	*ms = std::chrono::duration<float, std::milli>((*b)->when - (*a)->when).count();
	return SUCCESS;
}
EXPORT Status cuStreamWaitEvent(Stream *s, EventRef *e, unsigned flags) {
	ENTER("cuStreamWaitEvent");
	KNOWN(s);
	if (flags > 1) return INVALID_VALUE;
	EventRef event = *e;
	uint64_t n = event->latest();
	of(s)->enqueue([=] { event->await(n); });
	return SUCCESS;
}

static Status allocate(Address *out, size_t size, Kind k) {
	std::lock_guard<std::recursive_mutex> l(mu);
	if (size == 0) return INVALID_VALUE;
	if (k == DEVICE && used + size > memory_bytes()) return OUT_OF_MEMORY;
	size_t page = 4096, whole = (size + page - 1) / page * page;
	void *m = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED) return OUT_OF_MEMORY;
	*out = reinterpret_cast<Address>(m);
	if (k == DEVICE) {
		memset(m, 0xfe, size); // never zero by luck
		*out = next_address;
		next_address += whole + page;
		used += size;
	}
	allocations[*out] = Allocation{size, k, static_cast<char *>(m), false};
	return SUCCESS;
}
static Status give_back(Address a, bool pinned) {
	std::lock_guard<std::recursive_mutex> l(mu);
	auto it = allocations.find(a);
	if (it == allocations.end() || (it->second.kind == PINNED) != pinned) return INVALID_VALUE;
	if (it->second.kind == DEVICE || it->second.resident) used -= it->second.size;
	munmap(it->second.backing, (it->second.size + 4095) / 4096 * 4096);
	allocations.erase(it);
	return SUCCESS;
}

EXPORT Status cuMemGetInfo_v2(size_t *free, size_t *total) {
	ENTER("cuMemGetInfo_v2");
	std::lock_guard<std::recursive_mutex> l(mu);
	*total = memory_bytes();
	*free = *total > used ? *total - used : 0;
	return SUCCESS;
}
EXPORT Status cuMemAlloc_v2(Address *a, size_t n) {
	ENTER("cuMemAlloc_v2");
	return allocate(a, n, DEVICE);
}
EXPORT Status cuMemAllocManaged(Address *a, size_t n, unsigned flags) {
	ENTER("cuMemAllocManaged");
	if (flags != 1 && flags != 2) return INVALID_VALUE;
	return allocate(a, n, MANAGED);
}
EXPORT Status cuMemHostAlloc(void **p, size_t n, unsigned flags) {
	ENTER("cuMemHostAlloc");
	if (flags > 7) return INVALID_VALUE; // portable, mapped, write-combined
	Address a;
	Status s = allocate(&a, n, PINNED);
	if (s == SUCCESS) *p = reinterpret_cast<void *>(a);
	return s;
}
// free waits for the work of all streams in the real driver; here the caller must.
EXPORT Status cuMemFree_v2(Address a) {
	CALL("cuMemFree_v2");
	if (stack.empty()) return INVALID_CONTEXT;
	return give_back(a, false);
}
EXPORT Status cuMemFreeHost(void *p) {
	CALL("cuMemFreeHost");
	if (stack.empty()) return INVALID_CONTEXT;
	return give_back(reinterpret_cast<Address>(p), true);
}
EXPORT Status cuMemcpyAsync(Address dst, Address src, size_t n, Stream *s) {
	ENTER("cuMemcpyAsync");
	KNOWN(s);
	if (!span_ok(dst, n, false) || !span_ok(src, n, false)) return INVALID_VALUE;
	counts["copies"]++;
	of(s)->enqueue([=] {
		if (sticky == SUCCESS) memmove(host(dst), host(src), n);
	});
	return SUCCESS;
}
EXPORT Status cuMemsetD8Async(Address dst, unsigned char v, size_t n, Stream *s) {
	ENTER("cuMemsetD8Async");
	KNOWN(s);
	if (!span_ok(dst, n, true)) return INVALID_VALUE;
	of(s)->enqueue([=] {
		if (sticky == SUCCESS) memset(host(dst), v, n);
	});
	return SUCCESS;
}

// move makes a managed allocation resident on the device, or takes it off.
static void move(Address a, bool on_device) {
	std::lock_guard<std::recursive_mutex> l(mu);
	auto *h = holder(a);
	if (!h || h->second.kind != MANAGED || h->second.resident == on_device) return;
	h->second.resident = on_device;
	used += on_device ? h->second.size : -h->second.size;
}
static Status prefetch(const char *call, Address a, size_t n, int type, int id, Stream *s) {
	if (!concurrent() || (type == 1 && (id < 0 || id >= number("CUDASIM_DEVICES", 1)))) return INVALID_DEVICE;
	if (n == 0) return INVALID_VALUE;
	std::lock_guard<std::recursive_mutex> l(mu);
	auto *h = holder(a);
	bool managed = h && h->second.kind == MANAGED && a + n <= h->first + h->second.size;
	if (!managed && kind() != "coherent") return INVALID_VALUE;
	if (number("CUDASIM_TRACE", 0)) fprintf(stderr, "cudasim: %s bytes=%zu location=%d:%d\n", call, n, type, id);
	counts["prefetches"]++;
	of(s)->enqueue([=] { move(a, type == 1); });
	return SUCCESS;
}
// Location is CUmemLocation: type 1 a device, 2 the host.
struct Location {
	int type, id;
};
EXPORT Status cuMemPrefetchAsync(Address a, size_t n, int device, Stream *s) {
	ENTER("cuMemPrefetchAsync");
	KNOWN(s);
	return prefetch("cuMemPrefetchAsync", a, n, device < 0 ? 2 : 1, device, s);
}
EXPORT Status cuMemPrefetchAsync_v2(Address a, size_t n, Location where, unsigned flags, Stream *s) {
	ENTER("cuMemPrefetchAsync_v2");
	KNOWN(s);
	if (flags || where.type < 1 || where.type > 2) return INVALID_VALUE;
	return prefetch("cuMemPrefetchAsync_v2", a, n, where.type, where.id, s);
}
static Status advise(const char *call, Address a, size_t n, int advice, int type, int id) {
	std::lock_guard<std::recursive_mutex> l(mu);
	auto *h = holder(a);
	bool managed = h && h->second.kind == MANAGED && a + n <= h->first + h->second.size;
	if (n == 0 || (!managed && kind() != "coherent")) return INVALID_VALUE;
	if (advice < 1 || advice > 6) return INVALID_VALUE;
	bool place = advice == 3 || advice == 5; // preferred location, accessed by
	if (place && type == 1 && (!concurrent() || id < 0 || id >= number("CUDASIM_DEVICES", 1))) return INVALID_DEVICE;
	if (place && (type < 1 || type > 2)) return INVALID_VALUE;
	if (number("CUDASIM_TRACE", 0)) fprintf(stderr, "cudasim: %s bytes=%zu advice=%d location=%d:%d\n", call, n, advice, type, id);
	return SUCCESS;
}
EXPORT Status cuMemAdvise(Address a, size_t n, int advice, int device) {
	ENTER("cuMemAdvise");
	return advise("cuMemAdvise", a, n, advice, device < 0 ? 2 : 1, device);
}
EXPORT Status cuMemAdvise_v2(Address a, size_t n, int advice, Location where) {
	ENTER("cuMemAdvise_v2");
	return advise("cuMemAdvise_v2", a, n, advice, where.type, where.id);
}

// ---- modules

static void log_error(unsigned n, int *options, void **values, const std::string &text) {
	char *buffer = nullptr;
	size_t size = 0;
	for (unsigned i = 0; i < n; i++) {
		if (options[i] == 5) buffer = static_cast<char *>(values[i]);       // error log buffer
		if (options[i] == 6) size = reinterpret_cast<size_t>(values[i]);    // its size
	}
	if (buffer && size) snprintf(buffer, size, "%s", text.c_str());
}
EXPORT Status cuModuleLoadDataEx(Module **m, const void *image, unsigned n, int *options, void **values) {
	ENTER("cuModuleLoadDataEx");
	std::string ptx = static_cast<const char *>(image);
	size_t at = ptx.find(".target sm_");
	if (ptx.find(".version") == std::string::npos || at == std::string::npos) {
		log_error(n, options, values, "ptxas application ptx input, line 1; fatal   : Missing .version directive at start of file");
		return INVALID_PTX;
	}
	int target = std::atoi(ptx.c_str() + at + 11);
	if (target > 90) {
		log_error(n, options, values, "ptxas fatal   : SM version in .target exceeds the device's");
		return UNSUPPORTED_PTX_VERSION;
	}
	// PTX of a version is understood by the drivers of the CUDA release that brought it
	// and later ones: 7.0 by 11.0, 7.8 by 11.8, 8.0 by 12.0.
	int major = 0, minor = 0, driver = number("CUDASIM_VERSION", 12040);
	sscanf(ptx.c_str() + ptx.find(".version"), ".version %d.%d", &major, &minor);
	if ((major + 4) * 1000 + minor * 10 > driver) {
		log_error(n, options, values, "ptxas fatal   : Unsupported .version " + std::to_string(major) + "." + std::to_string(minor));
		return UNSUPPORTED_PTX_VERSION;
	}
	for (const char *name : {".extern .func", "vprintf", "__assertfail"}) {
		if (ptx.find(name) == std::string::npos) continue;
		log_error(n, options, values, std::string("ptxas fatal   : Unresolved extern function: ") + name);
		return INVALID_PTX;
	}
	size_t shared = 0;
	for (size_t p = ptx.find(".shared"); p != std::string::npos; p = ptx.find(".shared", p + 1)) {
		size_t open = ptx.find_first_of("[;\n", p);
		if (open != std::string::npos && ptx[open] == '[') shared = std::max(shared, size_t(std::atol(ptx.c_str() + open + 1)));
	}
	if (shared > 48 << 10) {
		log_error(n, options, values, "ptxas error   : uses too much shared data");
		return INVALID_PTX;
	}
	*m = new Module{ptx};
	return SUCCESS;
}
EXPORT Status cuModuleUnload(Module *m) {
	CALL("cuModuleUnload");
	delete m;
	return SUCCESS;
}
EXPORT Status cuModuleGetFunction(const cudasim::Function **f, Module *m, const char *name) {
	ENTER("cuModuleGetFunction");
	if (m->ptx.find(std::string(".entry ") + name + "(") == std::string::npos) return NOT_FOUND;
	*f = cudasim::find(name);
	return *f ? SUCCESS : NOT_FOUND;
}

struct Grid {
	unsigned x, y, z, threads;
};
static void run_kernel(const cudasim::Function &f, Grid g, std::vector<uint64_t> slots, Stream *s) {
	if (sticky != SUCCESS) return;
	if (Status bad = due("kernel")) {
		sticky = bad;
		return;
	}
	for (size_t i = 0; i < slots.size(); i++) {
		if (!f.parameters[i].pointer || slots[i] == 0) continue; // 0: an absent argument; using it would crash
		Status bad = slots[i] % f.parameters[i].align ? MISALIGNED_ADDRESS : device_use(slots[i], 1);
		if (bad) {
			sticky = bad;
			return;
		}
		slots[i] = reinterpret_cast<uint64_t>(host(slots[i]));
	}
	for (unsigned y = 0; y < g.y; y++) {
		for (unsigned x = 0; x < g.x; x++) {
			processor.enter(s->priority);
			cudasim::here = {long(x), long(y), long(g.x), 0, long(g.threads)};
			cudasim::run_block(f, slots.data());
			processor.leave();
		}
	}
}
EXPORT Status cuLaunchKernel(const cudasim::Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                             unsigned bz, unsigned shared, Stream *s, void **params, void **extra) {
	ENTER("cuLaunchKernel");
	if (!gx || !gy || gz != 1 || !bx || by != 1 || bz != 1 || extra) return INVALID_VALUE;
	if (bx > 1024) return LAUNCH_OUT_OF_RESOURCES;
	if (gx > 0x7fffffff || gy > 65535 || shared > 48 << 10) return INVALID_VALUE;
	KNOWN(s);
	counts["launches"]++;
	std::vector<uint64_t> slots(f->parameters.size());
	for (size_t i = 0; i < slots.size(); i++) memcpy(&slots[i], params[i], f->parameters[i].size);
	Stream *on = of(s);
	on->enqueue([=] { run_kernel(*f, Grid{gx, gy, gz, bx}, slots, on); });
	return SUCCESS;
}

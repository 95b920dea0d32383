// The C++ half of guard.rs: turns ggml's aborts into C++ exceptions where somebody waits for them.

#include <cstddef>
#include <cstdio>
#include <stdexcept>

// Of ggml.h, whose version may differ from ours when GGML_LIB_DIR names a prebuilt library; guard.rs checks that.
extern "C" {
typedef void (*abort_callback)(const char *message);
typedef void (*log_callback)(int level, const char *text, void *data);
abort_callback ggml_set_abort_callback(abort_callback callback);
void ggml_log_set(log_callback callback, void *data);
void ggml_log_get(log_callback *callback, void **data);
}

namespace {

const int log_level_error = 4; // GGML_LOG_LEVEL_ERROR

// Guarded calls that this thread is inside of. Threads of ggml's own pools stay at 0: nothing could catch there.
thread_local int depth = 0;

struct Inside {
    Inside() { ++depth; }
    // Also runs when a Rust panic unwinds through the call.
    ~Inside() { --depth; }
};

void on_abort(const char *message) {
    if (depth > 0) {
        throw std::runtime_error(message);
    }
    // ggml aborts the process next; the reason goes where its other messages go.
    log_callback log = nullptr;
    void *data = nullptr;
    ggml_log_get(&log, &data);
    log(log_level_error, message, data);
    log(log_level_error, "\n", data);
}

void silence(int, const char *, void *) {}

// Before main: a library prints nothing of its own accord, not even before somebody calls a function of guard.rs.
const bool installed = [] {
    ggml_log_set(silence, nullptr);
    ggml_set_abort_callback(on_abort);
    return true;
}();

} // namespace

// Calls body(data). True if it returned; false with the message, cut to size - 1 bytes, if it threw a C++ exception.
// Rust panics are not std::exception and pass through.
extern "C" bool ggml_sys_guarded(void (*body)(void *data), void *data, char *message, std::size_t size) {
    try {
        Inside inside;
        body(data);
        return true;
    } catch (const std::exception &e) {
        std::snprintf(message, size, "%s", e.what());
        return false;
    }
}

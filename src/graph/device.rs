//! Devices that compute graphs.

use std::ffi::{CStr, CString};
use std::ptr::NonNull;

use ggml_sys as sys;

use crate::error::{Error, Result};

/// A compute device with its thread pool; graphs run on one device, or on a GPU with the CPU beside it.
pub struct Device {
    backend: NonNull<sys::ggml_backend>,
    pool: Option<NonNull<sys::ggml_threadpool>>,
    threads: usize,
    cpu: bool,
    name: String,
}

// SAFETY: a ggml backend may be used from any thread as long as it is one at a time; `Device` offers no
// call through `&self` that computes (graphs take `&Device` only inside `Program::run`, which holds `lock`
// of the context), and the immutable getters are plain reads.
unsafe impl Send for Device {}
// SAFETY: see `Send`; shared access only reads fields set at construction.
unsafe impl Sync for Device {}

impl Device {
    /// The CPU with `threads` worker threads (at least one).
    pub fn cpu(threads: usize) -> Result<Self> {
        let threads = threads.clamp(1, 512);
        // SAFETY: no preconditions; NULL is checked.
        let backend = NonNull::new(unsafe { sys::ggml_backend_cpu_init() })
            .ok_or_else(|| Error::Backend("the CPU backend could not be started".into()))?;
        let pool = new_pool(threads);
        // SAFETY: `backend` is a live CPU backend; the pool, if any, outlives it (see `Drop`).
        unsafe {
            sys::ggml_backend_cpu_set_n_threads(backend.as_ptr(), threads as i32);
            if let Some(pool) = pool {
                sys::ggml_backend_cpu_set_threadpool(backend.as_ptr(), pool.as_ptr());
            }
        }
        Ok(Self { backend, pool, threads, cpu: true, name: "CPU".into() })
    }

    /// The device ggml knows as `name` (such as `CUDA0`, `Vulkan0`), or the CPU for `cpu` in any case.
    pub fn open(name: &str, threads: usize) -> Result<Self> {
        if name.eq_ignore_ascii_case("cpu") {
            return Self::cpu(threads);
        }
        let c_name = CString::new(name)
            .map_err(|_| Error::invalid(format!("backend {name:?}: a name has no NUL character")))?;
        // SAFETY: the argument is a NUL-terminated string; the result is checked.
        let device =
            NonNull::new(unsafe { sys::ggml_backend_dev_by_name(c_name.as_ptr()) }).ok_or_else(|| {
                Error::invalid(format!("backend {name:?} is not there; found: {}", device_names().join(", ")))
            })?;
        // SAFETY: `device` comes from the registry and lives as long as the process.
        let backend = NonNull::new(unsafe { sys::ggml_backend_dev_init(device.as_ptr(), std::ptr::null()) })
            .ok_or_else(|| Error::Backend(format!("device {name} could not be started")))?;
        Ok(Self { backend, pool: None, threads: threads.clamp(1, 512), cpu: false, name: name.to_owned() })
    }

    /// Worker threads of the CPU part.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Whether this is the CPU.
    pub fn is_cpu(&self) -> bool {
        self.cpu
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn raw(&self) -> *mut sys::ggml_backend {
        self.backend.as_ptr()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: both were created by this value and are freed once; the backend goes first, since it
        // refers to the pool.
        unsafe {
            sys::ggml_backend_free(self.backend.as_ptr());
            if let Some(pool) = self.pool {
                sys::ggml_threadpool_free(pool.as_ptr());
            }
        }
    }
}

/// A pool that keeps its threads between graphs; without one ggml starts threads for every graph.
fn new_pool(threads: usize) -> Option<NonNull<sys::ggml_threadpool>> {
    if threads < 2 {
        return None;
    }
    // SAFETY: `params` is initialised by ggml for `threads` threads; NULL means no pool.
    unsafe {
        let mut params = sys::ggml_threadpool_params_default(threads as i32);
        NonNull::new(sys::ggml_threadpool_new(&mut params))
    }
}

/// Name and description of every device that ggml found.
pub fn devices() -> Vec<(String, String)> {
    // SAFETY: indices run below the count; names are static NUL-terminated strings of the registry.
    unsafe {
        (0..sys::ggml_backend_dev_count())
            .map(|i| {
                let device = sys::ggml_backend_dev_get(i);
                let text = |p| CStr::from_ptr(p).to_string_lossy().into_owned();
                (text(sys::ggml_backend_dev_name(device)), text(sys::ggml_backend_dev_description(device)))
            })
            .collect()
    }
}

/// Free and total bytes of the memory of device `name`, if ggml knows it.
pub fn device_memory(name: &str) -> Option<(usize, usize)> {
    let name = CString::new(name).ok()?;
    // SAFETY: a NUL-terminated name; the device is checked; both outputs are valid for writing.
    unsafe {
        let device = sys::ggml_backend_dev_by_name(name.as_ptr());
        if device.is_null() {
            return None;
        }
        let (mut free, mut total) = (0, 0);
        sys::ggml_backend_dev_memory(device, &mut free, &mut total);
        Some((free, total))
    }
}

fn device_names() -> Vec<String> {
    devices().into_iter().map(|(name, _)| name).collect()
}

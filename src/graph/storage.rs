//! Persistent tensors: weights and adapters that live outside graphs.

use std::collections::HashSet;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ggml_sys as sys;
use parking_lot::{Mutex, RwLock};

use super::device::Device;
use super::types::Type;
use crate::error::{Error, Result};

/// A set of named tensors with one life: declared first, given memory later, perhaps released and given
/// memory again. Graphs refer to the tensors, never copy them.
pub struct Storage {
    ctx: NonNull<sys::ggml_context>,
    state: Mutex<State>,
    generation: AtomicU64,
    capacity: usize,
}

#[derive(Default)]
struct State {
    declared: usize,
    buffers: Vec<NonNull<sys::ggml_backend_buffer>>,
    /// Mapped files that tensors point into.
    mappings: Vec<Arc<dyn AsRef<[u8]> + Send + Sync>>,
    /// Addresses of the tensors that do.
    mapped: HashSet<usize>,
    /// Full names by address; ggml shortens the ones it keeps.
    names: Vec<(usize, Arc<str>)>,
}

// SAFETY: the ggml context is only changed under `state`'s lock; tensor fields that change later (data,
// buffer) are written under that lock by `allocate`, `map` and `release`, whose documentation forbids a
// running graph that uses the storage.
unsafe impl Send for Storage {}
// SAFETY: see `Send`.
unsafe impl Sync for Storage {}

/// One tensor of a [`Storage`]; cheap to clone.
#[derive(Clone)]
pub struct Weight {
    storage: Arc<Storage>,
    tensor: NonNull<sys::ggml_tensor>,
    name: Arc<str>,
    shape: [usize; 4],
    ty: Type,
    /// Guards the bytes: writers exclude each other and readers.
    access: Arc<RwLock<()>>,
}

// SAFETY: the tensor is owned by `storage`, which the value keeps alive; see `Storage`.
unsafe impl Send for Weight {}
// SAFETY: see `Send`.
unsafe impl Sync for Weight {}

impl Storage {
    /// Room for `capacity` tensors.
    pub fn new(capacity: usize) -> Result<Arc<Self>> {
        let overhead = sys_tensor_overhead();
        let size =
            capacity.max(1).checked_mul(overhead).ok_or_else(|| Error::Memory("tensor table".into()))?;
        let params =
            sys::ggml_init_params { mem_size: size, mem_buffer: std::ptr::null_mut(), no_alloc: true };
        // SAFETY: plain parameters; NULL is checked.
        let ctx = NonNull::new(unsafe { sys::ggml_init(params) })
            .ok_or_else(|| Error::Memory(format!("{size} bytes for the table of {capacity} tensors")))?;
        Ok(Arc::new(Self { ctx, state: Mutex::default(), generation: AtomicU64::new(0), capacity }))
    }

    /// Declares a tensor; it has no memory yet.
    pub fn declare(self: &Arc<Self>, name: &str, ty: Type, shape: [usize; 4]) -> Result<Weight> {
        let mut state = self.state.lock();
        if state.declared == self.capacity {
            return Err(Error::Internal(format!(
                "more than {} tensors declared in one storage",
                self.capacity
            )));
        }
        if ty.row_bytes(shape[0]).is_none() || shape.contains(&0) {
            return Err(Error::shape("weight", format!("{name}: {ty} cannot hold the shape {shape:?}")));
        }
        let count = shape.iter().try_fold(8usize, |n, &d| n.checked_mul(d));
        if count.is_none_or(|n| n > isize::MAX as usize) {
            return Err(Error::shape("weight", format!("{name}: {shape:?} is too large")));
        }
        let [a, b, c, d] = shape.map(|n| n as i64);
        // SAFETY: the context has room for `capacity` tensors and fewer are declared; the type and the shape
        // were checked above (whole blocks, no overflow).
        let tensor = NonNull::new(unsafe { sys::ggml_new_tensor_4d(self.ctx.as_ptr(), ty.0, a, b, c, d) })
            .ok_or_else(|| Error::Memory(format!("tensor {name}")))?;
        let short: String = name.chars().rev().take(120).collect::<Vec<_>>().into_iter().rev().collect();
        if let Ok(c_name) = CString::new(short) {
            // SAFETY: live tensor and NUL-terminated name; ggml truncates it to its own limit.
            unsafe { sys::ggml_set_name(tensor.as_ptr(), c_name.as_ptr()) };
        }
        state.declared += 1;
        let name: Arc<str> = name.into();
        state.names.push((tensor.as_ptr() as usize, name.clone()));
        Ok(Weight { storage: self.clone(), tensor, name, shape, ty, access: Arc::default() })
    }

    /// Gives memory on `device` to every declared tensor that has none.
    ///
    /// No graph that uses the storage may run meanwhile.
    pub fn allocate(&self, device: &Device) -> Result<()> {
        let mut state = self.state.lock();
        // SAFETY: live context and backend; the call skips tensors that have memory and returns NULL when none
        // is left to allocate or memory is short, told apart below.
        let buffer = unsafe { sys::ggml_backend_alloc_ctx_tensors(self.ctx.as_ptr(), device.raw()) };
        match NonNull::new(buffer) {
            Some(buffer) => {
                // SAFETY: `buffer` is live; the usage lets schedulers keep work beside the weights.
                unsafe {
                    sys::ggml_backend_buffer_set_usage(
                        buffer.as_ptr(),
                        sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS,
                    );
                }
                state.buffers.push(buffer);
            }
            None if self.all_placed() => {}
            None => return Err(Error::Memory(format!("weights on {}", device.name()))),
        }
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Lets `weight` point into mapped memory at `offset`: nothing is copied. CPU only.
    ///
    /// `mapping` is kept alive by the storage. The bytes must hold the tensor's rows.
    pub fn map(
        &self,
        weight: &Weight,
        mapping: &Arc<dyn AsRef<[u8]> + Send + Sync>,
        offset: usize,
    ) -> Result<()> {
        let bytes: &[u8] = (**mapping).as_ref();
        let size = weight.bytes();
        if offset.checked_add(size).is_none_or(|end| end > bytes.len()) {
            return Err(Error::shape(
                "mapped weight",
                format!("{}: beyond the end of its file", weight.name),
            ));
        }
        let mut state = self.state.lock();
        let start = bytes[offset..].as_ptr();
        // ggml wants the base of a buffer aligned to 32 bytes; the tensor itself may lie anywhere in it.
        let base = (start as usize) & !31;
        let span = start as usize - base + size;
        // SAFETY: the tensor's bytes [start, start + size) lie inside `bytes`, which `mappings` keeps alive as long
        // as the buffer; ggml only reads weights, and through tensors only, so that the up to 31 bytes between
        // `base` and `start` are never touched. The tensor is live and has no memory yet (checked), and its
        // address lies inside the buffer.
        unsafe {
            let tensor = weight.tensor.as_ptr();
            if !(*tensor).data.is_null() {
                return Err(Error::Internal(format!("{} has memory already", weight.name)));
            }
            let buffer = NonNull::new(sys::ggml_backend_cpu_buffer_from_ptr(base as *mut _, span))
                .ok_or_else(|| Error::Memory("mapped weights".into()))?;
            sys::ggml_backend_buffer_set_usage(buffer.as_ptr(), sys::GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            state.buffers.push(buffer);
            (*tensor).buffer = buffer.as_ptr();
            (*tensor).data = start as *mut _;
        }
        state.mapped.insert(weight.tensor.as_ptr() as usize);
        state.mappings.push(mapping.clone());
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Takes the memory of all tensors away; they can be given memory again.
    ///
    /// No graph that uses the storage may run meanwhile; graphs built before must be built anew, which
    /// [`Storage::generation`] tells.
    pub fn release(&self) {
        let mut state = self.state.lock();
        self.for_each_tensor(|tensor| {
            // SAFETY: `tensor` is a live tensor of this context; the lock is held.
            unsafe {
                (*tensor).data = std::ptr::null_mut();
                (*tensor).buffer = std::ptr::null_mut();
            }
            true
        });
        free_buffers(&mut state);
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Full names of all tensors by the address of their description.
    pub(super) fn names(&self) -> Vec<(usize, String)> {
        self.state.lock().names.iter().map(|(at, name)| (*at, name.to_string())).collect()
    }

    /// Grows with every change of where the tensors lie.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Whether every declared tensor has memory.
    pub fn is_placed(&self) -> bool {
        let _state = self.state.lock();
        self.all_placed()
    }

    /// Bytes of all declared tensors.
    pub fn bytes(&self) -> usize {
        let _state = self.state.lock();
        let mut sum = 0;
        self.for_each_tensor(|tensor| {
            // SAFETY: `tensor` is a live tensor of this context.
            sum += unsafe { sys::ggml_nbytes(tensor) };
            true
        });
        sum
    }

    fn all_placed(&self) -> bool {
        let mut placed = true;
        self.for_each_tensor(|tensor| {
            // SAFETY: `tensor` is a live tensor of this context.
            placed = unsafe { !(*tensor).data.is_null() };
            placed
        });
        placed
    }

    /// Calls `f` for the tensors in turn until it says false.
    fn for_each_tensor(&self, mut f: impl FnMut(*mut sys::ggml_tensor) -> bool) {
        // SAFETY: iterates the context's own list; callers hold the lock.
        unsafe {
            let mut tensor = sys::ggml_get_first_tensor(self.ctx.as_ptr());
            while !tensor.is_null() && f(tensor) {
                tensor = sys::ggml_get_next_tensor(self.ctx.as_ptr(), tensor);
            }
        }
    }
}

fn free_buffers(state: &mut State) {
    for buffer in state.buffers.drain(..) {
        // SAFETY: the buffer was created by this storage and is freed once.
        unsafe { sys::ggml_backend_buffer_free(buffer.as_ptr()) };
    }
    state.mappings.clear();
    state.mapped.clear();
}

impl Drop for Storage {
    fn drop(&mut self) {
        free_buffers(&mut self.state.lock());
        // SAFETY: the last owner frees the context once; tensors are inside it.
        unsafe { sys::ggml_free(self.ctx.as_ptr()) };
    }
}

impl Weight {
    /// Full name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Extent of each axis, fastest first.
    pub fn shape(&self) -> [usize; 4] {
        self.shape
    }

    /// Element type.
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        // SAFETY: the tensor lives as long as `storage`.
        unsafe { sys::ggml_nbytes(self.tensor.as_ptr()) }
    }

    /// The storage this tensor belongs to.
    pub fn storage(&self) -> &Arc<Storage> {
        &self.storage
    }

    /// Writes `bytes` at `offset` bytes into the tensor.
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check_range("write", offset, bytes.len())?;
        let _guard = self.access.write();
        // SAFETY: the range lies inside the tensor and the tensor has memory, both checked.
        unsafe {
            sys::ggml_backend_tensor_set(self.tensor.as_ptr(), bytes.as_ptr().cast(), offset, bytes.len());
        }
        Ok(())
    }

    /// Reads `bytes.len()` bytes from `offset`.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check_range("read", offset, bytes.len())?;
        let _guard = self.access.read();
        // SAFETY: the range lies inside the tensor and the tensor has memory, both checked.
        unsafe {
            sys::ggml_backend_tensor_get(
                self.tensor.as_ptr(),
                bytes.as_mut_ptr().cast(),
                offset,
                bytes.len(),
            );
        }
        Ok(())
    }

    /// Lets `fill` write the tensor's own memory, so that loading needs no second copy; `None` when the
    /// memory is not the host's or is a mapped file (use [`Weight::write`]).
    /// Distinct tensors may be filled from distinct threads; no graph that uses the storage may run meanwhile.
    pub fn fill_in_place<R>(&self, fill: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let size = self.bytes();
        let _guard = self.access.write();
        // SAFETY: the tensor is live. When its buffer is host memory, [data, data + size) is that buffer's
        // memory; a mapped (read-only) tensor is excluded. `access` keeps other readers and writers out.
        unsafe {
            let tensor = self.tensor.as_ptr();
            if (*tensor).data.is_null() || !sys::ggml_backend_buffer_is_host((*tensor).buffer) {
                return None;
            }
            if self.is_mapped() {
                return None;
            }
            Some(fill(std::slice::from_raw_parts_mut((*tensor).data.cast::<u8>(), size)))
        }
    }

    /// Whether the data lie in a mapped file.
    pub fn is_mapped(&self) -> bool {
        self.storage.state.lock().mapped.contains(&(self.tensor.as_ptr() as usize))
    }

    fn check_range(&self, op: &'static str, offset: usize, len: usize) -> Result<()> {
        // SAFETY: the tensor lives as long as `storage`.
        let placed = unsafe { !(*self.tensor.as_ptr()).data.is_null() };
        if !placed || offset.checked_add(len).is_none_or(|end| end > self.bytes()) {
            let size = self.bytes();
            return Err(Error::shape(
                op,
                format!("{}: {len} bytes at {offset} of {size} (has memory: {placed})", self.name),
            ));
        }
        Ok(())
    }

    pub(super) fn raw(&self) -> NonNull<sys::ggml_tensor> {
        self.tensor
    }
}

impl std::fmt::Debug for Weight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?} {}", self.name, self.shape, self.ty)
    }
}

fn sys_tensor_overhead() -> usize {
    // SAFETY: a constant of the library.
    unsafe { sys::ggml_tensor_overhead() }
}

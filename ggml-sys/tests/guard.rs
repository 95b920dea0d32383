//! ggml's aborts become errors.

use ggml_sys::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A context for tensors without data.
fn context(bytes: usize) -> *mut ggml_context {
    // SAFETY: ggml allocates the memory itself.
    unsafe { ggml_init(ggml_init_params { mem_size: bytes, mem_buffer: ptr::null_mut(), no_alloc: true }) }
}

/// What a failed `GGML_ASSERT` does.
fn abort() {
    // SAFETY: the strings are constants, and the format takes no arguments.
    unsafe { ggml_abort(c"file.c".as_ptr(), 7, c"reason".as_ptr()) }
}

#[test]
fn the_bindings_fit_the_library() {
    check().unwrap();
}

#[test]
fn a_bad_shape_is_an_error_and_ggml_works_on() {
    let ctx = context(1 << 16);
    // SAFETY: `ctx` lives until the end of the test.
    unsafe {
        let a = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 2);
        let b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 5, 3);
        let error = guard(|| ggml_mul_mat(ctx, a, b)).unwrap_err();
        assert!(error.contains("ggml_can_mul_mat"), "{error}");

        let b = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 4, 3);
        let product = guard(|| ggml_mul_mat(ctx, a, b)).unwrap();
        assert_eq!((*product).ne, [2, 3, 1, 1]);
        ggml_free(ctx);
    }
}

#[test]
fn a_full_context_is_an_error() {
    let ctx = context(1024);
    // SAFETY: `ctx` lives until the end of the test.
    unsafe {
        let error = guard(|| {
            for _ in 0..100 {
                ggml_new_tensor_1d(ctx, GGML_TYPE_F32, 1);
            }
        });
        assert!(error.is_err());
        ggml_free(ctx);
    }
}

#[test]
fn values_inside_are_dropped_and_guards_nest() {
    struct Count<'a>(&'a AtomicUsize);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = AtomicUsize::new(0);
    let outer = guard(|| {
        let inner = guard(|| {
            let _count = Count(&drops);
            abort();
        });
        assert_eq!(inner, Err("file.c:7: reason".to_owned()));
        42
    });
    assert_eq!(outer, Ok(42));
    assert_eq!(drops.load(Ordering::Relaxed), 1);
}

#[test]
fn panics_pass_through_and_leave_the_guard_intact() {
    let panic = catch_unwind(AssertUnwindSafe(|| guard(|| panic!("of our own")))).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"of our own"));
    assert!(guard(abort).is_err());
}

#[test]
fn threads_have_guards_of_their_own() {
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    assert!(guard(abort).is_err());
                }
            });
        }
    });
}

//! One call at a time, and knowing when none is left.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::thread::ThreadId;

/// A value that calls use one after the other.
pub(super) struct Exclusive<T> {
    value: Mutex<T>,
    calls: Mutex<Calls>,
    left: Condvar,
}

/// Who is inside.
#[derive(Default)]
struct Calls {
    /// Calls that have entered, running or waiting.
    entered: usize,
    /// Thread of the running one.
    running: Option<ThreadId>,
}

impl<T> Exclusive<T> {
    /// Wraps a value.
    pub(super) fn new(value: T) -> Self {
        Self { value: Mutex::new(value), calls: Mutex::default(), left: Condvar::new() }
    }

    /// Runs `call` when all that entered before have left. A call from inside a call is refused, since it would wait
    /// for itself.
    pub(super) fn run<R>(&self, call: impl FnOnce(&mut T) -> Result<R>) -> Result<R> {
        let _entered = Entered::new(self)?;
        let mut value = self.value.lock();
        let _running = Running::new(self);
        call(&mut value)
    }

    /// Waits until every call that has entered has left; returns at once inside a call, which cannot wait for itself.
    pub(super) fn wait_idle(&self) {
        let mut calls = self.calls.lock();
        while calls.entered > 0 && calls.running != Some(std::thread::current().id()) {
            self.left.wait(&mut calls);
        }
    }
}

/// Counts a call in, and out again even when it panics.
struct Entered<'a, T>(&'a Exclusive<T>);

impl<'a, T> Entered<'a, T> {
    fn new(of: &'a Exclusive<T>) -> Result<Self> {
        let mut calls = of.calls.lock();
        if calls.running == Some(std::thread::current().id()) {
            return Err(Error::invalid("a callback called its own context again while that is working"));
        }
        calls.entered += 1;
        Ok(Self(of))
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.0.calls.lock().entered -= 1;
        self.0.left.notify_all();
    }
}

/// Marks the present thread as the running one, until it leaves or panics.
struct Running<'a, T>(&'a Exclusive<T>);

impl<'a, T> Running<'a, T> {
    fn new(of: &'a Exclusive<T>) -> Self {
        of.calls.lock().running = Some(std::thread::current().id());
        Self(of)
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.0.calls.lock().running = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    #[test]
    fn calls_of_many_threads_do_not_overlap() {
        let counter = Exclusive::new(0u32);
        let inside = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        counter
                            .run(|n| {
                                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                                *n += 1;
                                inside.fetch_sub(1, Ordering::SeqCst);
                                Ok(())
                            })
                            .unwrap();
                    }
                });
            }
        });
        assert_eq!(counter.run(|n| Ok(*n)).unwrap(), 200);
    }

    #[test]
    fn a_call_inside_a_call_is_refused() {
        let value = Exclusive::new(());
        value
            .run(|()| {
                assert!(value.run(|()| Ok(())).is_err());
                value.wait_idle();
                Ok(())
            })
            .unwrap();
        assert!(value.run(|()| Ok(())).is_ok());
    }

    #[test]
    fn a_panic_leaves_it_usable() {
        let value = Exclusive::new(1);
        let panicked = catch_unwind(AssertUnwindSafe(|| value.run(|_| -> Result<()> { panic!("inside") })));
        assert!(panicked.is_err());
        value.wait_idle();
        assert_eq!(value.run(|n| Ok(*n)).unwrap(), 1);
    }

    #[test]
    fn waiting_lasts_until_running_and_queued_calls_have_left() {
        let value = Exclusive::new(());
        let (started, done) = (Barrier::new(2), AtomicUsize::new(0));
        let both_entered = || {
            while value.calls.lock().entered < 2 {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                value
                    .run(|()| {
                        started.wait();
                        both_entered();
                        std::thread::sleep(Duration::from_millis(50));
                        done.fetch_add(1, Ordering::SeqCst);
                        Ok(())
                    })
                    .unwrap();
            });
            started.wait();
            scope.spawn(|| value.run(|()| Ok(done.fetch_add(1, Ordering::SeqCst))).unwrap());
            both_entered();
            value.wait_idle();
            assert_eq!(done.load(Ordering::SeqCst), 2);
        });
    }
}

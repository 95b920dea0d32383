//! Stopping a call from another thread, a callback or a signal handler.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a request to stop asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelMode {
    /// Stop as soon as possible, return nothing.
    All,
    /// Finish the picture being sampled, skip the rest of the batch.
    NewLatents,
    /// Take back what has not been acted on.
    Reset,
}

/// Counts requests to stop. Lock free, so that a signal handler may use it.
///
/// A request counts for every call that has entered the library by then and has not returned, however early in the
/// call it comes; a request made while no call is running has nothing to stop and does not touch the next one.
/// Counting, instead of a flag that each call clears on entry, is what keeps a request from getting lost.
#[derive(Debug, Default)]
pub struct CancelFlag {
    all: AtomicU64,
    all_taken_back: AtomicU64,
    new_latents: AtomicU64,
    new_latents_taken_back: AtomicU64,
}

impl CancelFlag {
    /// Makes a request.
    pub fn request(&self, mode: CancelMode) {
        match mode {
            CancelMode::All => {
                self.all.fetch_add(1, Ordering::SeqCst);
            }
            CancelMode::NewLatents => {
                self.new_latents.fetch_add(1, Ordering::SeqCst);
            }
            CancelMode::Reset => {
                self.all_taken_back.fetch_max(self.all.load(Ordering::SeqCst), Ordering::SeqCst);
                let new_latents = self.new_latents.load(Ordering::SeqCst);
                self.new_latents_taken_back.fetch_max(new_latents, Ordering::SeqCst);
            }
        }
    }

    /// The view of a call that enters now.
    pub fn enter(self: &Arc<Self>) -> CancelToken {
        CancelToken {
            all: self.all.load(Ordering::SeqCst),
            new_latents: self.new_latents.load(Ordering::SeqCst),
            flag: Arc::clone(self),
        }
    }
}

/// What one call sees of the requests to stop.
#[derive(Clone, Debug)]
pub struct CancelToken {
    flag: Arc<CancelFlag>,
    all: u64,
    new_latents: u64,
}

impl CancelToken {
    /// A token that nobody can cancel.
    pub fn none() -> Self {
        Arc::new(CancelFlag::default()).enter()
    }

    /// Whether the call shall stop at once.
    pub fn stop(&self) -> bool {
        let seen = self.all.max(self.flag.all_taken_back.load(Ordering::SeqCst));
        self.flag.all.load(Ordering::SeqCst) > seen
    }

    /// Whether no further picture of the batch shall be started.
    pub fn skip_rest(&self) -> bool {
        let seen = self.new_latents.max(self.flag.new_latents_taken_back.load(Ordering::SeqCst));
        self.stop() || self.flag.new_latents.load(Ordering::SeqCst) > seen
    }

    /// [`Error::Cancelled`] when the call shall stop; ask between graphs and wherever time passes.
    pub fn check(&self) -> Result<()> {
        if self.stop() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_stops_the_running_call_and_not_the_next() {
        let flag = Arc::new(CancelFlag::default());
        flag.request(CancelMode::All);
        let call = flag.enter();
        assert!(call.check().is_ok());
        flag.request(CancelMode::All);
        assert!(call.stop() && call.skip_rest() && call.check().is_err());
        assert!(!flag.enter().stop());
    }

    #[test]
    fn modes_and_taking_back() {
        let flag = Arc::new(CancelFlag::default());
        let call = flag.enter();
        flag.request(CancelMode::NewLatents);
        assert!(call.skip_rest() && !call.stop());
        flag.request(CancelMode::Reset);
        assert!(!call.skip_rest());
        flag.request(CancelMode::All);
        flag.request(CancelMode::Reset);
        assert!(!call.stop());
        flag.request(CancelMode::All);
        assert!(call.stop());
    }
}

//! The threads that run one kernel together: a spin barrier, a job counter and shared scratch memory.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Alignment in bytes of every piece of scratch memory.
pub const ALIGN: usize = 64;

/// Spin barrier with a job counter, for use inside one node.
///
/// One object serves one team at a time and may be reused for any number of kernels one after the other,
/// whatever their thread counts, as long as all threads of a kernel have left it before the next begins.
#[derive(Debug, Default)]
pub struct Barrier {
    arrived: AtomicUsize,
    phase: AtomicU32,
    jobs: AtomicUsize,
}

impl Barrier {
    /// A barrier nobody waits at.
    pub const fn new() -> Self {
        Self { arrived: AtomicUsize::new(0), phase: AtomicU32::new(0), jobs: AtomicUsize::new(0) }
    }

    /// Waits for all `nth` threads; the job counter is zero afterwards.
    fn wait(&self, nth: usize) {
        if nth <= 1 {
            self.jobs.store(0, Ordering::Relaxed);
            return;
        }
        let phase = self.phase.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == nth {
            self.jobs.store(0, Ordering::Relaxed);
            self.arrived.store(0, Ordering::Relaxed);
            self.phase.store(phase.wrapping_add(1), Ordering::Release);
            return;
        }
        let mut spins = 0u32;
        while self.phase.load(Ordering::Acquire) == phase {
            std::hint::spin_loop();
            spins += 1;
            // More threads than cores: let the one that is awaited run.
            if spins.is_multiple_of(1 << 12) {
                std::thread::yield_now();
            }
        }
    }
}

/// One thread's view of the team that runs a kernel.
///
/// All `nth` threads call the kernel with the same arguments, the same barrier and the same scratch memory
/// and differ only in `ith`.
#[derive(Clone, Copy, Debug)]
pub struct Team<'a> {
    /// Index of this thread, below `nth`.
    pub ith: usize,
    /// Number of threads; all of them enter the kernel.
    pub nth: usize,
    /// Shared by the team.
    pub barrier: &'a Barrier,
    /// Shared by the team, at least the kernel's `scratch_bytes(nth)` long; any alignment, any content.
    pub scratch: *mut u8,
    /// Bytes at `scratch`.
    pub scratch_len: usize,
}

impl Team<'_> {
    /// Waits for the whole team and resets the job counter.
    pub(super) fn wait(&self) {
        self.barrier.wait(self.nth);
    }

    /// Next job of the current phase, handed out to one thread only.
    pub(super) fn next_job(&self) -> usize {
        self.barrier.jobs.fetch_add(1, Ordering::Relaxed)
    }

    /// This thread's part of `count` things, in contiguous shares that differ by at most one.
    pub(super) fn share(&self, count: usize) -> std::ops::Range<usize> {
        self.ith * count / self.nth..(self.ith + 1) * count / self.nth
    }

    /// Scratch memory cut into `shared` bytes for all and `own` bytes for this thread, both 64-aligned.
    ///
    /// `None` when the caller's scratch is too short.
    pub(super) fn carve(&self, shared: usize, own: usize) -> Option<(*mut u8, *mut u8)> {
        if self.nth == 0 || self.ith >= self.nth || self.scratch_len < carved_bytes(shared, own, self.nth) {
            return None;
        }
        let base = self.scratch.wrapping_add(self.scratch.align_offset(ALIGN));
        let mine = base.wrapping_add(round_up(shared, ALIGN) + self.ith * round_up(own, ALIGN));
        Some((base, mine))
    }
}

/// Scratch length that [`Team::carve`] needs, alignment loss included.
pub(super) fn carved_bytes(shared: usize, own: usize, nth: usize) -> usize {
    round_up(shared, ALIGN) + nth * round_up(own, ALIGN) + ALIGN
}

/// `n` rounded up to a multiple of `to`.
pub(super) const fn round_up(n: usize, to: usize) -> usize {
    n.div_ceil(to) * to
}

/// Runs `body` as a team of `nth` threads with fresh scratch memory; for tests and benches.
#[doc(hidden)]
pub fn run_team(nth: usize, scratch_bytes: usize, body: impl Fn(&Team) + Sync) {
    let mut scratch = vec![0u8; scratch_bytes];
    run_team_in(nth, &mut scratch, body);
}

/// Runs `body` as a team of `nth` threads in the scratch memory given.
#[doc(hidden)]
pub fn run_team_in(nth: usize, scratch: &mut [u8], body: impl Fn(&Team) + Sync) {
    let barrier = Barrier::new();
    let (address, scratch_len) = (scratch.as_mut_ptr() as usize, scratch.len());
    let enter = |ith: usize| {
        let scratch = address as *mut u8;
        body(&Team { ith, nth, barrier: &barrier, scratch, scratch_len });
    };
    std::thread::scope(|scope| {
        for ith in 1..nth {
            let enter = &enter;
            scope.spawn(move || enter(ith));
        }
        enter(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_passes_before_the_last_arrives() {
        let total = AtomicUsize::new(0);
        run_team(3, 64, |team| {
            for round in 1..=200 {
                total.fetch_add(1, Ordering::Relaxed);
                team.wait();
                assert_eq!(total.load(Ordering::Relaxed), 3 * round);
                team.wait();
            }
        });
    }

    #[test]
    fn shares_cover_everything_once() {
        let seen: Vec<AtomicUsize> = (0..17).map(|_| AtomicUsize::new(0)).collect();
        run_team(4, 64, |team| {
            for i in team.share(17) {
                seen[i].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(seen.iter().all(|n| n.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn short_scratch_is_refused() {
        run_team(1, 100, |team| assert!(team.carve(64, 64).is_none()));
        run_team(1, carved_bytes(64, 64, 1), |team| assert!(team.carve(64, 64).is_some()));
    }
}

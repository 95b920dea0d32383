//! The threads of a conversion: each takes the next piece, reads, converts and writes it at its place.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::Conversion;
use super::piece::{Piece, Scratch, pieces, process};
use super::plan::Work;
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::files::Writer;

/// Bytes of memory that all threads together work with; one piece alone may need more.
const IN_FLIGHT: u64 = 1 << 30;
/// Least seconds between two reports of progress.
const INTERVAL: f32 = 0.1;

struct Shared<'a> {
    works: &'a [Work],
    pieces: Vec<Piece>,
    writer: &'a Writer,
    cancel: &'a CancelToken,
    next: AtomicUsize,
    written: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<Error>>,
    memory: Budget,
}

/// Converts everything. Progress is reported on the calling thread, which works too.
pub fn run(works: &[Work], writer: &Writer, how: &Conversion<'_>) -> Result<()> {
    let pieces = pieces(works)?;
    let total = (0..works.len()).map(|i| writer.nbytes(i)).sum();
    let threads = how.threads.clamp(1, pieces.len().max(1));
    let shared = Shared {
        works,
        pieces,
        writer,
        cancel: how.cancel,
        next: AtomicUsize::new(0),
        written: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        failure: Mutex::new(None),
        memory: Budget::default(),
    };
    let mut progress = Progress::new(how, total);
    std::thread::scope(|scope| {
        // a thread that cannot be had only makes the others do more
        for _ in 1..threads {
            let worker = std::thread::Builder::new().name("convert".into());
            worker.spawn_scoped(scope, || shared.work(|_| {})).ok();
        }
        shared.work(|written| progress.tell(written));
    });
    if let Some(error) = shared.failure.into_inner() {
        return Err(error);
    }
    progress.finish();
    Ok(())
}

impl Shared<'_> {
    fn work(&self, mut tell: impl FnMut(u64)) {
        let mut scratch = Scratch::default();
        while !self.stop.load(Ordering::Relaxed) {
            let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::Relaxed)) else { break };
            let result = self.cancel.check().and_then(|()| self.one(piece, &mut scratch));
            match result {
                Ok(bytes) => tell(self.written.fetch_add(bytes, Ordering::Relaxed) + bytes),
                Err(error) => {
                    self.failure.lock().get_or_insert(error);
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        }
    }

    fn one(&self, piece: &Piece, scratch: &mut Scratch) -> Result<u64> {
        let work = self.works.get(piece.work).ok_or_else(|| {
            Error::Internal(format!("piece of a tensor {} that does not exist", piece.work))
        })?;
        let _share = self.memory.take(piece.memory);
        let bytes = process(work, piece, self.writer, scratch)?;
        if piece.memory > IN_FLIGHT / 16 {
            *scratch = Scratch::default();
        }
        Ok(bytes)
    }
}

/// Memory in use; who wants more than is left waits, unless nobody uses any.
#[derive(Default)]
struct Budget {
    used: Mutex<u64>,
    freed: Condvar,
}

impl Budget {
    fn take(&self, bytes: u64) -> Share<'_> {
        let mut used = self.used.lock();
        while *used > 0 && used.saturating_add(bytes) > IN_FLIGHT {
            self.freed.wait(&mut used);
        }
        *used += bytes;
        Share { budget: self, bytes }
    }
}

struct Share<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        *self.budget.used.lock() -= self.bytes;
        self.budget.freed.notify_all();
    }
}

/// Progress in MiB written.
struct Progress<'a> {
    how: &'a Conversion<'a>,
    total: u64,
    start: Instant,
    last: Option<Instant>,
}

impl<'a> Progress<'a> {
    fn new(how: &'a Conversion<'a>, total: u64) -> Self {
        Self { how, total, start: Instant::now(), last: None }
    }

    fn tell(&mut self, written: u64) {
        if written < self.total && self.last.is_none_or(|at| at.elapsed().as_secs_f32() >= INTERVAL) {
            self.last = Some(Instant::now());
            self.report(written);
        }
    }

    fn finish(&self) {
        self.report(self.total);
    }

    fn report(&self, written: u64) {
        let mebibytes = |bytes: u64| i32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(i32::MAX).max(1);
        let (step, steps) = (mebibytes(written), mebibytes(self.total));
        let step = if written < self.total { step.min(steps - 1) } else { steps };
        self.how.report.progress(step, steps, self.start.elapsed().as_secs_f32() / step.max(1) as f32);
    }
}

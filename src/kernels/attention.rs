//! Attention `softmax(scale * q k^T + mask) v` without the matrix of scores.
//!
//! K and V of some heads are packed by all threads; then each job takes up to 128 queries of one head and walks over
//! blocks of 256 keys with a running maximum and sum, so memory grows with the number of keys alone. The order of
//! sums depends on shapes only.

use super::amx::Tiles;
use super::attention_job::{Job, KEYS, Own, QUERIES};
use super::block::{SIDE, STEP};
use super::cpu::{CpuPath, cpu_path};
use super::isa::{Format, Isa, Precision};
use super::matmul_pack::Weights;
use super::pack_map::{self, group_rows};
use super::team::{Team, carved_bytes, round_up};
use super::weight::{self, WeightType};

/// Values per head at most.
pub(super) const MAX_HEAD: usize = 1024;
/// Bytes of packed keys and values at a time, more only when one head needs more.
const PACKED: usize = 16 << 20;

/// Shape of an attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionShape {
    /// Values per head of q and k.
    pub head: usize,
    /// Values per head of v and of the output.
    pub value: usize,
    /// Heads of q.
    pub heads: usize,
    /// Heads of k and v; divides `heads`, each serving that many consecutive heads of q.
    pub kv_heads: usize,
    /// Tokens of q.
    pub queries: usize,
    /// Tokens of k and v.
    pub keys: usize,
    /// Sequences in the batch.
    pub batch: usize,
    /// Factor of the scores, before the mask is added.
    pub scale: f32,
}

/// An operand `[head, tokens, heads, batch]` with values contiguous along the first axis.
#[derive(Clone, Copy, Debug)]
pub struct Heads {
    /// First value.
    pub data: *const u8,
    /// f32, f16 or bf16.
    pub kind: WeightType,
    /// Bytes from one token, head and sequence to the next.
    pub strides: [usize; 3],
}

impl Heads {
    /// Address of a token's values.
    pub(super) fn at(&self, token: usize, head: usize, sequence: usize) -> *const u8 {
        let [t, h, s] = self.strides;
        self.data.wrapping_add(token * t + head * h + sequence * s)
    }
}

/// Operands of one attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionArgs {
    /// Queries.
    pub q: Heads,
    /// Keys.
    pub k: Heads,
    /// Values.
    pub v: Heads,
    /// `[keys, queries, heads, batch]`, a stride of 0 where an axis is shared; added to the scaled scores.
    pub mask: Option<Heads>,
    /// `[value, heads, queries, batch]`, contiguous.
    pub y: *mut f32,
}

/// Plan of an attention; see the [module](self) text.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    pub(super) shape: AttentionShape,
    pub(super) isa: Isa,
    pub(super) format: Format,
}

impl Attention {
    /// An attention on the best path of this machine, `None` when ggml's node is to be used.
    pub fn new(shape: AttentionShape, precision: Precision) -> Option<Self> {
        Self::on(cpu_path()?, shape, precision)
    }

    /// As [`Attention::new`] on a path of the caller's choice.
    pub fn on(path: CpuPath, shape: AttentionShape, precision: Precision) -> Option<Self> {
        let isa = Isa::new(path)?;
        let s = &shape;
        let counts = [s.head, s.value, s.heads, s.kv_heads, s.queries, s.keys, s.batch];
        let fits = counts.iter().all(|&n| n > 0)
            && s.head.max(s.value) <= MAX_HEAD
            && s.heads.is_multiple_of(s.kv_heads)
            && s.scale.is_finite();
        fits.then_some(Self { shape, isa, format: Format::choose(isa, precision, false) })
    }

    /// Bytes of scratch memory that [`Attention::run`] needs with `nth` threads.
    pub fn scratch_bytes(&self, nth: usize) -> usize {
        carved_bytes(self.heads_per_round() * self.head_bytes(), Own::bytes(self), nth)
    }

    /// Steps over the values of a head.
    pub(super) fn head_steps(&self) -> usize {
        self.shape.head.div_ceil(STEP)
    }

    /// Bytes from one row of packed V to the next: an odd number of cache lines.
    pub(super) fn value_row(&self) -> usize {
        (round_up(self.shape.value, SIDE) / 16 + 1) * 64
    }

    /// Panels of 32 keys.
    fn panels(&self) -> usize {
        self.shape.keys.div_ceil(SIDE)
    }

    fn key_bytes(&self) -> usize {
        self.panels() * self.head_steps() * self.format.b_step()
    }

    /// Bytes of 32 tokens of packed V.
    pub(super) fn value_step(&self) -> usize {
        group_rows(self.format) * self.value_row()
    }

    fn head_bytes(&self) -> usize {
        self.key_bytes() + self.panels() * self.value_step()
    }

    fn heads_per_round(&self) -> usize {
        (PACKED / self.head_bytes()).clamp(1, self.shape.kv_heads * self.shape.batch)
    }

    /// Computes the attention as thread `team.ith` of `team.nth`; false (and nothing written) when the scratch
    /// memory is too short or an operand is of a type in blocks.
    ///
    /// # Safety
    /// The pointers in `args` are valid for the shapes of the plan, y overlaps no operand, and all threads of the
    /// team call this with the same plan, arguments, barrier and scratch.
    pub unsafe fn run(&self, args: &AttentionArgs, team: &Team) -> bool {
        let blocks = [Some(args.q), Some(args.k), Some(args.v), args.mask];
        if blocks.iter().flatten().any(|heads| heads.kind.block() != 1) {
            return false;
        }
        let per_round = self.heads_per_round();
        let Some((packed, own)) = team.carve(per_round * self.head_bytes(), Own::bytes(self)) else {
            return false;
        };
        // SAFETY: an `Isa::Amx` proves the right to use AMX.
        let _tiles = (self.isa == Isa::Amx).then(|| unsafe { Tiles::configure() });
        let all = self.shape.kv_heads * self.shape.batch;
        for first in (0..all).step_by(per_round) {
            let count = (all - first).min(per_round);
            team.wait();
            for unit in team.share(count * self.panels()) {
                let (local, panel) = (unit / self.panels(), unit % self.panels());
                // SAFETY: `packed` holds `per_round` heads; each panel is packed by one thread.
                unsafe { self.pack(args, first + local, panel, packed.add(local * self.head_bytes())) };
            }
            team.wait();
            // SAFETY: the heads of the round are packed; jobs are disjoint in y.
            unsafe { self.jobs(args, first, count, packed, own, team) };
        }
        true
    }

    /// Packs 32 tokens of k and v of one head.
    ///
    /// # Safety
    /// As [`Attention::run`]; `dst` holds the head.
    unsafe fn pack(&self, args: &AttentionArgs, index: usize, panel: usize, dst: *mut u8) {
        let (sequence, head) = (index / self.shape.kv_heads, index % self.shape.kv_heads);
        let token = panel * SIDE;
        let count = (self.shape.keys - token).min(SIDE);
        let mut rows = [[0f32; MAX_HEAD]; 2];
        // SAFETY: tokens below `keys` exist; the panel's steps lie in `dst`.
        unsafe {
            let keys = Weights {
                weight: args.k.kind,
                rows: args.k.at(token, head, sequence),
                stride: args.k.strides[0],
                count,
            };
            let out = dst.add(panel * self.head_steps() * self.format.b_step());
            keys.pack(self.isa, self.format, 0, self.shape.head, out);
            let out = dst.add(self.key_bytes() + panel * self.value_step());
            for pair in 0..SIDE / 2 {
                let mut pointers = [std::ptr::null::<f32>(); 2];
                for (i, row) in rows.iter_mut().enumerate() {
                    if 2 * pair + i < count {
                        let source = args.v.at(token + 2 * pair + i, head, sequence);
                        weight::to_f32(self.isa, args.v.kind, source, 0, self.shape.value, row.as_mut_ptr());
                        pointers[i] = row.as_ptr();
                    }
                }
                let (width, stride) = (self.shape.value, self.value_row());
                pack_map::pair(self.isa, self.format, pointers, width, out, stride, pair);
            }
        }
    }

    /// # Safety
    /// As [`Attention::run`]; `count` heads from `first` are packed at `packed`, `own` is this thread's.
    unsafe fn jobs(
        &self,
        args: &AttentionArgs,
        first: usize,
        count: usize,
        packed: *const u8,
        own: *mut u8,
        team: &Team,
    ) {
        let shape = &self.shape;
        let sharing = shape.heads / shape.kv_heads;
        let mut block = QUERIES;
        while block > SIDE && count * sharing * shape.queries.div_ceil(block) < 4 * team.nth {
            block /= 2;
        }
        let blocks = shape.queries.div_ceil(block);
        loop {
            let index = team.next_job();
            if index >= count * sharing * blocks {
                return;
            }
            let (local, start) = (index / blocks, index % blocks * block);
            let kv = first + local / sharing;
            let keys = packed.wrapping_add(local / sharing * self.head_bytes());
            let job = Job {
                plan: self,
                args,
                keys,
                values: keys.wrapping_add(self.key_bytes()),
                head: kv % shape.kv_heads * sharing + local % sharing,
                sequence: kv / shape.kv_heads,
                start,
                count: (shape.queries - start).min(block),
            };
            // SAFETY: the job's operands are packed and its part of y is its own.
            unsafe { job.run(&Own::cut(self, own)) };
        }
    }
}

const _: () = assert!(KEYS.is_multiple_of(STEP) && QUERIES.is_multiple_of(SIDE));

//! Sums in a fixed order: f32 lanes over blocks, f64 between blocks.

/// Lanes of a sum.
const LANES: usize = 64;
/// Values summed in f32 before they go to f64.
const BLOCK: usize = 4096;

/// Sum of `f` over the values.
#[inline(always)]
fn sum_of(values: &[f32], f: impl Fn(f32) -> f32) -> f64 {
    let mut total = 0f64;
    for block in values.chunks(BLOCK) {
        let mut lanes = [0f32; LANES];
        let (groups, rest) = block.as_chunks::<LANES>();
        for group in groups {
            for i in 0..LANES {
                lanes[i] += f(group[i]);
            }
        }
        for (lane, &v) in lanes.iter_mut().zip(rest) {
            *lane += f(v);
        }
        total += f64::from(fold(lanes));
    }
    total
}

/// All lanes added, halves first so that it stays vector code.
#[inline(always)]
fn fold(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// Sum of the values.
#[inline(always)]
pub(super) fn total(values: &[f32]) -> f64 {
    sum_of(values, |v| v)
}

/// Mean of the values.
#[inline(always)]
pub(super) fn mean(values: &[f32]) -> f32 {
    (total(values) / values.len() as f64) as f32
}

/// Sum of the squared distances to `center`.
#[inline(always)]
pub(super) fn squares(values: &[f32], center: f32) -> f64 {
    sum_of(values, |v| (v - center) * (v - center))
}

//! Elements that do not lie in order: transposed and expanded tensors of torch checkpoints.
#![forbid(unsafe_code)]

/// Elements from the first to the last one, both included; `None` when the numbers do not fit.
/// Both slices go by axis in the same order. A tensor without elements spans none.
pub(super) fn span(shape: &[usize], strides: &[usize]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().zip(strides).try_fold(1u64, |span, (&extent, &stride)| {
        span.checked_add((extent as u64 - 1).checked_mul(u64::try_from(stride).ok()?)?)
    })
}

/// Whether the elements lie in order; `shape` is fastest axis first.
pub(super) fn is_contiguous(shape: &[usize], strides: &[usize]) -> bool {
    let mut expected = 1u64;
    shape.contains(&0)
        || shape.iter().zip(strides).all(|(&extent, &stride)| {
            let fits = extent == 1 || stride as u64 == expected;
            expected = expected.saturating_mul(extent as u64);
            fits
        })
}

/// Copies elements of `size` bytes, from element `first` of the tensor on, until `out` is full.
/// `data` holds the whole span; `shape` is fastest axis first.
pub(super) fn gather(
    data: &[u8],
    size: usize,
    shape: &[usize],
    strides: &[usize],
    first: usize,
    out: &mut [u8],
) {
    let mut index = vec![0; shape.len()];
    let mut rest = first;
    for (i, &extent) in index.iter_mut().zip(shape) {
        *i = rest % extent;
        rest /= extent;
    }
    let mut at: usize = index.iter().zip(strides).map(|(i, s)| i * s).sum();
    for element in out.chunks_exact_mut(size) {
        element.copy_from_slice(&data[at * size..(at + 1) * size]);
        for axis in 0..shape.len() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
}

//! What CLIP's vision encoder expects.
#![forbid(unsafe_code)]

use super::resize::{Resize, resize};
use crate::error::{Error, Result};
use crate::tensor::HostTensor;

/// Mean and deviation of the training pictures per channel, from the published model.
const MEAN: [f32; 3] = [0.481_454_66, 0.457_827_5, 0.408_210_73];
const DEVIATION: [f32; 3] = [0.268_629_54, 0.261_302_6, 0.275_777_1];

/// Scales [width, height, 3, 1] with values in 0..=1 to cover `size`, cuts out the middle and normalises it.
pub fn clip_preprocess(image: &HostTensor, size: [usize; 2]) -> Result<HostTensor> {
    let from = [image.dim(0), image.dim(1)];
    if image.shape.len() != 4 || image.dim(2) != 3 || image.dim(3) != 1 || image.is_empty() {
        return Err(Error::shape("clip preprocess", format!("{:?}, expected [w, h, 3, 1]", image.shape)));
    }
    if size.contains(&0) {
        return Err(Error::shape("clip preprocess", format!("target {size:?}, expected sizes above 0")));
    }
    let scale = (size[0] as f32 / from[0] as f32).max(size[1] as f32 / from[1] as f32);
    // Truncation in f32 as recorded; where it falls short of the target by one, the target counts.
    let scaled = [0, 1].map(|axis| ((scale * from[axis] as f32) as usize).max(size[axis]));
    let resized = resize(image, scaled, Resize::Nearest, false)?;
    let [left, top] = [0, 1].map(|axis| (scaled[axis] - size[axis]) / 2);
    let mut data = Vec::with_capacity(size[0] * size[1] * 3);
    for c in 0..3 {
        for y in 0..size[1] {
            let row = &resized.data[((c * scaled[1] + y + top) * scaled[0] + left)..][..size[0]];
            data.extend(row.iter().map(|value| (value.clamp(0.0, 1.0) - MEAN[c]) / DEVIATION[c]));
        }
    }
    HostTensor::new([size[0], size[1], 3, 1], data)
}

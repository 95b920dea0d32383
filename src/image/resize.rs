//! Resizing of the two fastest axes of a tensor.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::tensor::HostTensor;

/// How values between samples are made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// The sample at the cell's corner: index `floor(out * in_size / out_size)`.
    Nearest,
    /// The sample nearest to the cell's centre.
    NearestExact,
    /// As nearest; when an axis shrinks, the largest sample of the cell.
    NearestMax,
    /// As nearest; when an axis shrinks, the smallest sample of the cell.
    NearestMin,
    /// As nearest; when an axis shrinks, the mean of the cell.
    NearestAvg,
    /// Triangle filter.
    Bilinear,
    /// Cubic filter with a = -0.75, as in PyTorch.
    Bicubic,
    /// Windowed sinc of radius 3.
    Lanczos,
}

/// Resizes axes 0 and 1 to `size` = [width, height], keeping all others.
///
/// `antialias` widens the filters of [`Resize::Bilinear`], [`Resize::Bicubic`] and [`Resize::Lanczos`] by the factor of
/// shrinking; the others ignore it.
pub fn resize(input: &HostTensor, size: [usize; 2], mode: Resize, antialias: bool) -> Result<HostTensor> {
    let from = [input.dim(0), input.dim(1)];
    if input.shape.len() < 2 || input.is_empty() || size.contains(&0) {
        return Err(Error::shape("resize", format!("{:?} to {size:?}, expected sizes above 0", input.shape)));
    }
    if from == size {
        return Ok(input.clone());
    }
    let mut shape = input.shape.clone();
    shape[..2].copy_from_slice(&size);
    let planes = input.data.chunks_exact(from[0] * from[1]);
    let mut data = Vec::with_capacity(size[0] * size[1] * planes.len());
    match mode {
        Resize::Bilinear | Resize::Bicubic | Resize::Lanczos => {
            let columns = taps(from[0], size[0], mode, antialias);
            let rows = taps(from[1], size[1], mode, antialias);
            planes.for_each(|plane| filter(plane, from[0], &columns, &rows, &mut data));
        }
        _ => planes.for_each(|plane| pick(plane, from, size, mode, &mut data)),
    }
    HostTensor::new(shape, data)
}

/// Samples and their weights for each output position along one axis.
fn taps(from: usize, to: usize, mode: Resize, antialias: bool) -> Vec<Vec<(usize, f64)>> {
    let scale = from as f64 / to as f64;
    let stretch = if antialias { scale.max(1.0) } else { 1.0 };
    let (radius, kernel): (f64, fn(f64) -> f64) = match mode {
        Resize::Bicubic => (2.0, cubic),
        Resize::Lanczos => (3.0, lanczos),
        _ => (1.0, triangle),
    };
    let last = from as i64 - 1;
    (0..to)
        .map(|out| {
            let center = (out as f64 + 0.5) * scale - 0.5;
            let first = (center - radius * stretch).ceil() as i64;
            let end = (center + radius * stretch).floor() as i64;
            let mut list: Vec<(usize, f64)> = (first..=end)
                .map(|i| (i.clamp(0, last) as usize, kernel(((center - i as f64) / stretch).abs())))
                .filter(|(_, weight)| *weight != 0.0)
                .collect();
            let sum: f64 = list.iter().map(|(_, weight)| weight).sum();
            // The plain triangle and cubic filters sum up to 1 by themselves.
            if (antialias || mode == Resize::Lanczos) && sum.abs() > 1e-12 {
                list.iter_mut().for_each(|(_, weight)| *weight /= sum);
            }
            if list.is_empty() {
                list.push((((center + 0.5).floor() as i64).clamp(0, last) as usize, 1.0));
            }
            list
        })
        .collect()
}

fn triangle(x: f64) -> f64 {
    if x < 1.0 { 1.0 - x } else { 0.0 }
}

fn cubic(x: f64) -> f64 {
    const A: f64 = -0.75;
    if x <= 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A
    } else {
        0.0
    }
}

fn lanczos(x: f64) -> f64 {
    let sinc = |x: f64| {
        let p = std::f64::consts::PI * x;
        if x.abs() < 1e-12 { 1.0 } else { p.sin() / p }
    };
    if x >= 3.0 { 0.0 } else { sinc(x) * sinc(x / 3.0) }
}

/// One plane of width `width` through both filters; sums in f64, row by row, as recorded results were made.
fn filter(
    plane: &[f32],
    width: usize,
    columns: &[Vec<(usize, f64)>],
    rows: &[Vec<(usize, f64)>],
    out: &mut Vec<f32>,
) {
    for row in rows {
        for column in columns {
            let mut value = 0.0f64;
            for &(y, weight_y) in row {
                for &(x, weight_x) in column {
                    value += f64::from(plane[y * width + x]) * weight_x * weight_y;
                }
            }
            out.push(value as f32);
        }
    }
}

/// One plane without filters.
fn pick(plane: &[f32], from: [usize; 2], to: [usize; 2], mode: Resize, out: &mut Vec<f32>) {
    let shrinks = from[0] > to[0] || from[1] > to[1];
    let whole_cell = shrinks && !matches!(mode, Resize::Nearest | Resize::NearestExact);
    let corner = |axis: usize, o: usize| o * from[axis] / to[axis];
    // One past the last sample that the cell of `o` touches.
    let end = |axis: usize, o: usize| ((o + 1) * from[axis]).div_ceil(to[axis]).max(corner(axis, o) + 1);
    let centre = |axis: usize, o: usize| {
        let center = (o as f64 + 0.5) * (from[axis] as f64 / to[axis] as f64) - 0.5;
        ((center + 0.5).floor() as i64).clamp(0, from[axis] as i64 - 1) as usize
    };
    for y in 0..to[1] {
        for x in 0..to[0] {
            let value = if whole_cell {
                reduce(plane, from[0], corner(0, x)..end(0, x), corner(1, y)..end(1, y), mode)
            } else if mode == Resize::NearestExact {
                plane[centre(1, y) * from[0] + centre(0, x)]
            } else {
                plane[corner(1, y) * from[0] + corner(0, x)]
            };
            out.push(value);
        }
    }
}

/// Largest, smallest or mean sample of a cell.
fn reduce(
    plane: &[f32],
    width: usize,
    columns: std::ops::Range<usize>,
    rows: std::ops::Range<usize>,
    mode: Resize,
) -> f32 {
    let count = (columns.len() * rows.len()) as f32;
    let cell = rows.flat_map(|y| plane[y * width..][columns.clone()].iter().copied());
    match mode {
        Resize::NearestMax => cell.fold(f32::MIN, f32::max),
        Resize::NearestMin => cell.fold(f32::MAX, f32::min),
        _ => cell.sum::<f32>() / count,
    }
}

//! Canny edge detection: blur, gradient, thinning, two thresholds.
#![forbid(unsafe_code)]

use super::picture::Image;
use super::pixels::to_byte;

/// Thresholds and brightness of [`canny`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CannyOptions {
    /// Share of the strongest edge from which an edge is strong.
    pub high_threshold: f32,
    /// Share of that from which an edge is weak.
    pub low_threshold: f32,
    /// Brightness of weak edges, 0..1, before they are settled.
    pub weak: f32,
    /// Brightness of strong edges, 0..1.
    pub strong: f32,
    /// Dark edges on white.
    pub inverse: bool,
}

/// One channel of floats.
struct Plane {
    width: usize,
    height: usize,
    data: Vec<f32>,
}

/// The edges of a picture, as a picture of the same size and channels, all channels equal.
pub fn canny(image: &Image, options: &CannyOptions) -> Image {
    let blurred = convolve(&grey(image), &gaussian());
    let x = convolve(&blurred, &[[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]);
    let y = convolve(&blurred, &[[1.0, 2.0, 1.0], [0.0, 0.0, 0.0], [-1.0, -2.0, -1.0]]);
    let mut strength: Vec<f32> = x.data.iter().zip(&y.data).map(|(x, y)| (x * x + y * y).sqrt()).collect();
    let strongest = strength.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if strongest != 0.0 && strongest.is_finite() {
        let scale = 1.0 / strongest;
        strength.iter_mut().for_each(|value| *value *= scale);
    }
    let direction: Vec<f32> = x.data.iter().zip(&y.data).map(|(x, y)| y.atan2(*x)).collect();
    let strength = Plane { width: image.width, height: image.height, data: strength };
    let mut edges = thin(&strength, &direction);
    thresholds(&mut edges, options);
    let mut data = Vec::with_capacity(image.data.len());
    for value in &edges.data {
        let byte = to_byte(if options.inverse { 1.0 - value } else { *value });
        data.extend(std::iter::repeat_n(byte, image.channels));
    }
    Image { width: image.width, height: image.height, channels: image.channels, data }
}

/// Brightness by the weights of television; of pictures without colours their first channel.
fn grey(image: &Image) -> Plane {
    let value = |byte: u8| f32::from(byte) / 255.0;
    let data = image
        .data
        .chunks_exact(image.channels)
        .map(|pixel| match pixel {
            [r, g, b, ..] => 0.2989 * value(*r) + 0.5870 * value(*g) + 0.1140 * value(*b),
            _ => value(pixel[0]),
        })
        .collect();
    Plane { width: image.width, height: image.height, data }
}

/// Gauss kernel of deviation 1.4.
fn gaussian() -> [[f32; 5]; 5] {
    let variance = 1.4f32 * 1.4;
    let norm = 1.0 / (2.0 * std::f32::consts::PI * variance);
    let mut kernel = [[0.0; 5]; 5];
    for (y, row) in kernel.iter_mut().enumerate() {
        for (x, value) in row.iter_mut().enumerate() {
            let (dx, dy) = (x as f32 - 2.0, y as f32 - 2.0);
            *value = (-((dy * dy + dx * dx) / (2.0 * variance))).exp() * norm;
        }
    }
    kernel
}

/// Convolution with black beyond the borders.
fn convolve<const N: usize>(input: &Plane, kernel: &[[f32; N]; N]) -> Plane {
    let pad = N / 2;
    let mut data = Vec::with_capacity(input.data.len());
    for y in 0..input.height {
        for x in 0..input.width {
            let mut sum = 0.0;
            for (ky, row) in kernel.iter().enumerate() {
                let Some(iy) = (y + ky).checked_sub(pad).filter(|iy| *iy < input.height) else { continue };
                for (kx, weight) in row.iter().enumerate() {
                    let Some(ix) = (x + kx).checked_sub(pad).filter(|ix| *ix < input.width) else { continue };
                    sum += input.data[iy * input.width + ix] * weight;
                }
            }
            data.push(sum);
        }
    }
    Plane { width: input.width, height: input.height, data }
}

/// Keeps what is strongest among its vertical neighbours.
///
/// The recorded results do not compare along the gradient as the textbook does: all directions up to 157.5 degrees
/// are compared vertically, and of those beyond only the strongest edge of the picture is kept. ControlNet users know
/// these pictures, so it stays.
fn thin(strength: &Plane, direction: &[f32]) -> Plane {
    let (width, height) = (strength.width, strength.height);
    let mut data = vec![0.0; strength.data.len()];
    for y in 1..height.saturating_sub(1) {
        for x in 1..width.saturating_sub(1) {
            let at = y * width + x;
            let mut angle = direction[at] * 180.0 / std::f32::consts::PI;
            if angle < 0.0 {
                angle += 180.0;
            }
            let own = strength.data[at];
            let kept = if angle <= 157.5 {
                own >= strength.data[at + width] && own >= strength.data[at - width]
            } else {
                own >= 1.0
            };
            if kept {
                data[at] = own;
            }
        }
    }
    Plane { width, height, data }
}

/// Sorts edges into strong, weak and none, clears a border of three pixels and settles weak edges by their neighbours,
/// in reading order.
fn thresholds(edges: &mut Plane, options: &CannyOptions) {
    let strongest = edges.data.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let high = strongest * options.high_threshold;
    let low = high * options.low_threshold;
    for value in &mut edges.data {
        if *value >= high {
            *value = options.strong;
        } else if *value >= low {
            *value = options.weak;
        }
    }
    let (width, height) = (edges.width, edges.height);
    for y in 0..height {
        for x in 0..width {
            if x < 3 || x + 3 > width || y < 3 || y + 3 > height {
                edges.data[y * width + x] = 0.0;
            }
        }
    }
    for y in 1..height.saturating_sub(1) {
        for x in 1..width.saturating_sub(1) {
            let at = y * width + x;
            if edges.data[at] == options.weak {
                // The lower neighbour to the right and the lower left one are not asked, as recorded.
                let asked = [at + 1 - width, at + 1, at - width, at + width, at - 1 - width, at - 1];
                let strong = asked.iter().any(|i| edges.data[*i] == options.strong);
                edges.data[at] = if strong { options.strong } else { 0.0 };
            }
        }
    }
}

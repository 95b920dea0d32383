//! A picture of 8-bit pixels.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};

/// Pixels row by row, `channels` bytes each: grey, grey and alpha, RGB or RGBA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Pixels in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Bytes of a pixel, 1..=4.
    pub channels: usize,
    /// `width * height * channels` bytes.
    pub data: Vec<u8>,
}

impl Image {
    /// Widest and highest picture taken.
    pub const MAX_SIDE: usize = 1 << 16;
    /// Most bytes of a picture taken.
    pub const MAX_BYTES: usize = 1 << 31;

    /// Wraps `data`; an error when a size is zero or absurd or the count does not fit.
    pub fn new(width: usize, height: usize, channels: usize, data: Vec<u8>) -> Result<Self> {
        let bytes = Self::byte_count(width, height, channels)?;
        if bytes != data.len() {
            return Err(Error::invalid(format!(
                "an image of {width} x {height} x {channels} takes {bytes} bytes, {} were given",
                data.len()
            )));
        }
        Ok(Self { width, height, channels, data })
    }

    /// Bytes of a picture of that size; an error when a size is zero or absurd.
    pub fn byte_count(width: usize, height: usize, channels: usize) -> Result<usize> {
        if !(1..=Self::MAX_SIDE).contains(&width) || !(1..=Self::MAX_SIDE).contains(&height) {
            return Err(Error::invalid(format!(
                "image size is {width} x {height}, expected 1..={} each way",
                Self::MAX_SIDE
            )));
        }
        if !(1..=4).contains(&channels) {
            return Err(Error::invalid(format!("image has {channels} channels, expected 1 to 4")));
        }
        // At most 2^16 * 2^16 * 4: no overflow in 64 bits.
        let bytes = width as u64 * height as u64 * channels as u64;
        if bytes > Self::MAX_BYTES as u64 {
            return Err(Error::invalid(format!(
                "image of {width} x {height} x {channels} exceeds {} bytes",
                Self::MAX_BYTES
            )));
        }
        Ok(bytes as usize)
    }

    /// A picture with every byte equal to `value`.
    pub fn filled(width: usize, height: usize, channels: usize, value: u8) -> Result<Self> {
        let bytes = Self::byte_count(width, height, channels)?;
        Ok(Self { width, height, channels, data: vec![value; bytes] })
    }

    /// Byte of channel `c` of the pixel in column `x` of row `y`, which must lie inside.
    pub fn at(&self, x: usize, y: usize, c: usize) -> u8 {
        self.data[(y * self.width + x) * self.channels + c]
    }

    /// The same picture with three channels: grey is repeated, alpha dropped.
    pub fn to_rgb(&self) -> Self {
        if self.channels == 3 {
            return self.clone();
        }
        let mut data = Vec::with_capacity(self.width * self.height * 3);
        for pixel in self.data.chunks_exact(self.channels) {
            match pixel {
                [r, g, b, _] => data.extend_from_slice(&[*r, *g, *b]),
                _ => data.extend_from_slice(&[pixel[0]; 3]),
            }
        }
        Self { width: self.width, height: self.height, channels: 3, data }
    }
}

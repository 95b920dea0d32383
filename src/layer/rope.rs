//! Rotary positions (Su et al. 2021): tables over several axes, and their application.
#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::tensor::HostTensor;

/// Which values of a head turn together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pairs {
    /// 2 i and 2 i + 1.
    Neighbours,
    /// i and i + half the head.
    Halves,
}

/// One axis of positions.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeAxis {
    /// Values of a head that turn by this axis.
    pub width: usize,
    /// Base of the frequencies theta^(-2 i / width).
    pub theta: f32,
}

/// Cosines and sines of a sequence, each `[head, 1, L]`, ready to be inputs of a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeTable {
    /// Factors of the values themselves.
    pub cos: HostTensor,
    /// Factors of their partners, the sign included.
    pub sin: HostTensor,
}

impl RopeTable {
    /// The table of tokens whose positions along the axes are `positions[i * axes.len() ..]`.
    ///
    /// `periods` has the same layout: where it is not 0, the axis wraps around after so many positions, and each
    /// frequency becomes the nearest whole number of turns over them, so that the seam does not show.
    pub fn new(axes: &[RopeAxis], pairs: Pairs, positions: &[f32], periods: Option<&[f32]>) -> Result<Self> {
        let half: usize = axes.iter().map(|axis| axis.width / 2).sum();
        let n = axes.len().max(1);
        if !positions.len().is_multiple_of(n) || periods.is_some_and(|p| p.len() != positions.len()) {
            let message = format!("{} positions for {} axes", positions.len(), axes.len());
            return Err(Error::shape("rotary positions", message));
        }
        let length = positions.len() / n;
        let frequencies: Vec<(usize, f32)> = axes
            .iter()
            .enumerate()
            .flat_map(|(a, axis)| {
                (0..axis.width / 2)
                    .map(move |i| (a, 1.0 / axis.theta.powf(2.0 * i as f32 / axis.width as f32)))
            })
            .collect();
        let mut table = Self {
            cos: HostTensor::zeros([2 * half, 1, length]),
            sin: HostTensor::zeros([2 * half, 1, length]),
        };
        for token in 0..length {
            let row = 2 * half * token;
            for (i, &(axis, frequency)) in frequencies.iter().enumerate() {
                let position = positions[token * n + axis];
                let period = periods.map_or(0.0, |p| p[token * n + axis]);
                let (sin, cos) = angle(position, frequency, period).sin_cos();
                let (first, second) = match pairs {
                    Pairs::Neighbours => (row + 2 * i, row + 2 * i + 1),
                    Pairs::Halves => (row + i, row + half + i),
                };
                (table.cos.data[first], table.cos.data[second]) = (cos, cos);
                (table.sin.data[first], table.sin.data[second]) = (-sin, sin);
            }
        }
        Ok(table)
    }
}

fn angle(position: f32, frequency: f32, period: f32) -> f32 {
    if period <= 0.0 {
        return position * frequency;
    }
    let turns = (frequency * period / std::f32::consts::TAU).round();
    position * std::f32::consts::TAU * turns / period
}

/// Turns the pairs of each head: `x` `[D, heads, L, N]`, `cos` and `sin` `[D, 1, L]` as [`RopeTable`] makes them.
pub fn rope<'g>(x: Tensor<'g>, cos: Tensor<'g>, sin: Tensor<'g>, pairs: Pairs) -> Result<Tensor<'g>> {
    let [d, heads, length, n] = x.shape();
    let partners = match pairs {
        Pairs::Neighbours => {
            let pairs = x.reshape([2, d / 2, heads, length * n])?;
            pairs.narrow(0, 1, 1)?.concat(pairs.narrow(0, 0, 1)?, 0)?.reshape([d, heads, length, n])?
        }
        Pairs::Halves => x.narrow(0, d / 2, d / 2)?.concat(x.narrow(0, 0, d / 2)?, 0)?,
    };
    x.mul(cos)?.add(partners.mul(sin)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_period_closes_the_circle() {
        let axes = [RopeAxis { width: 8, theta: 100.0 }];
        let at = |position: f32| {
            RopeTable::new(&axes, Pairs::Neighbours, &[position], Some(&[10.0])).unwrap().cos.data
        };
        for (a, b) in at(0.0).iter().zip(at(10.0)) {
            assert!((a - b).abs() < 1e-5);
        }
    }

    #[test]
    fn axes_lie_side_by_side() {
        let axes = [RopeAxis { width: 2, theta: 10.0 }, RopeAxis { width: 4, theta: 10.0 }];
        let table = RopeTable::new(&axes, Pairs::Neighbours, &[1.0, 2.0], None).unwrap();
        assert_eq!(table.cos.shape, [6, 1, 1]);
        assert!((table.sin.data[1] - 1f32.sin()).abs() < 1e-6);
        assert!((table.sin.data[2] + 2f32.sin()).abs() < 1e-6);
        let halves = RopeTable::new(&axes[..1], Pairs::Halves, &[1.0], None).unwrap();
        assert_eq!(halves.sin.data, [-(1f32.sin()), 1f32.sin()]);
    }
}

//! Rotary positions of text, picture and reference tokens in one sequence.
#![forbid(unsafe_code)]

/// How the positions of a sequence are laid out.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Number of axes: index, row, column and more.
    pub axes: usize,
    /// Axes along which text tokens count up; 0 on the others.
    pub text_axes: &'static [usize],
    /// Text tokens.
    pub text: usize,
    /// Width and height of the latent.
    pub size: [usize; 2],
    /// Width and height of the reference latents.
    pub references: Vec<[usize; 2]>,
    /// Pixels along the sides of a token.
    pub patch: usize,
    /// First row and column of the pictures.
    pub offset: usize,
    /// Index of the picture; references follow.
    pub index: usize,
    /// Whether each reference has an index of its own; otherwise they lie beside each other on one.
    pub increase: bool,
    /// Factor of the references' indices.
    pub index_scale: f32,
    /// Whether columns and rows wrap around.
    pub circular: [bool; 2],
}

impl Layout {
    /// Text at 0, the picture at index 0.
    pub fn new(axes: usize, patch: usize, text: usize, size: [usize; 2], circular: [bool; 2]) -> Self {
        Self {
            axes,
            text_axes: &[],
            text,
            size,
            references: Vec::new(),
            patch,
            offset: 0,
            index: 0,
            increase: false,
            index_scale: 1.0,
            circular,
        }
    }

    /// Positions of all tokens, the axes of a token together, and their periods where an axis wraps around.
    pub fn positions(&self) -> (Vec<f32>, Option<Vec<f32>>) {
        let mut out = Tokens { axes: self.axes, positions: Vec::new(), periods: Vec::new() };
        for i in 0..self.text {
            let at: Vec<f32> =
                (0..self.axes).map(|a| if self.text_axes.contains(&a) { i as f32 } else { 0.0 }).collect();
            out.push(&at, [0; 2]);
        }
        self.picture(&mut out, self.size, self.index as f32, [self.offset; 2]);
        let mut index = self.index + 1;
        let mut reach = [0; 2];
        for &reference in &self.references {
            // Beside each other, a reference moves along the axis on which all of them stay smaller. The
            // distance is in latent pixels, as the recorded library has it, and not in tokens.
            let mut moved = [0; 2];
            if !self.increase {
                let along = usize::from(reference[1] + reach[1] <= reference[0] + reach[0]);
                moved[along] = reach[along];
            }
            let at = [self.offset + moved[0], self.offset + moved[1]];
            self.picture(&mut out, reference, (index as f32 * self.index_scale).trunc(), at);
            index += usize::from(self.increase);
            reach = [0, 1].map(|axis| reach[axis].max(reference[axis] + moved[axis]));
        }
        let wraps = self.circular.contains(&true);
        (out.positions, wraps.then_some(out.periods))
    }

    /// The tokens of a picture of `size` at index `index`, from column and row `at` on.
    fn picture(&self, out: &mut Tokens, size: [usize; 2], index: f32, at: [usize; 2]) {
        let [w, h] = size.map(|side| side.div_ceil(self.patch.max(1)));
        let periods = [if self.circular[0] { w } else { 0 }, if self.circular[1] { h } else { 0 }];
        for row in 0..h {
            for column in 0..w {
                out.push(&[index, (at[1] + row) as f32, (at[0] + column) as f32], periods);
            }
        }
    }
}

struct Tokens {
    axes: usize,
    positions: Vec<f32>,
    periods: Vec<f32>,
}

impl Tokens {
    /// A token at `at`, further axes 0; `periods` of column and row.
    fn push(&mut self, at: &[f32], periods: [usize; 2]) {
        for axis in 0..self.axes {
            self.positions.push(at.get(axis).copied().unwrap_or(0.0));
            self.periods.push(match axis {
                1 => periods[1] as f32,
                2 => periods[0] as f32,
                _ => 0.0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(layout: &Layout) -> Vec<[f32; 3]> {
        layout.positions().0.chunks_exact(3).map(|t| [t[0], t[1], t[2]]).collect()
    }

    #[test]
    fn text_stays_at_zero_and_the_picture_counts() {
        let layout = Layout::new(3, 2, 2, [4, 3], [false; 2]);
        let expected = [[0., 0., 0.], [0., 0., 0.], [0., 0., 0.], [0., 0., 1.], [0., 1., 0.], [0., 1., 1.]];
        assert_eq!(tokens(&layout), expected);
        assert!(layout.positions().1.is_none());
    }

    #[test]
    fn references_lie_beside_each_other_or_behind() {
        let mut layout = Layout::new(3, 2, 0, [2, 2], [false; 2]);
        layout.references = vec![[2, 2], [2, 2], [4, 2]];
        let beside = tokens(&layout);
        assert_eq!(beside[1..3], [[1., 0., 0.], [1., 2., 0.]]);
        layout.increase = true;
        let behind = tokens(&layout);
        assert_eq!(behind[1..], [[1., 0., 0.], [2., 0., 0.], [3., 0., 0.], [3., 0., 1.]]);
    }

    #[test]
    fn wrapping_axes_have_a_period() {
        let layout = Layout::new(3, 2, 1, [4, 2], [true, false]);
        let periods = layout.positions().1.unwrap();
        assert_eq!(periods, [0., 0., 0., 0., 0., 2., 0., 0., 2.]);
    }
}

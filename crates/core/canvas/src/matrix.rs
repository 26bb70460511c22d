//! Matrices that map places in a result to places in a picture.

/// A matrix that maps the place (x, y, 1) to (u, v, w), which is the place (u / w, v / w).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Matrix(pub [[f64; 3]; 3]);

impl Matrix {
    /// Returns the matrix that multiplies places by `scale`, by axis, and then moves them.
    #[must_use]
    pub const fn scaled_and_moved(scale: [f64; 2], by: [f64; 2]) -> Self {
        Self([[scale[0], 0.0, by[0]], [0.0, scale[1], by[1]], [0.0, 0.0, 1.0]])
    }

    /// Returns the matrix that does first `other`, then this one.
    #[must_use]
    pub fn after(&self, other: &Self) -> Self {
        let entry = |row: usize, column: usize| (0..3).map(|at| self.0[row][at] * other.0[at][column]).sum();
        Self(std::array::from_fn(|row| std::array::from_fn(|column| entry(row, column))))
    }

    /// Returns the same mapping, scaled so that the last number is 1 if possible.
    #[must_use]
    pub fn normalised(self) -> Self {
        let last = self.0[2][2];
        if last == 0.0 { self } else { Self(self.0.map(|row| row.map(|factor| factor / last))) }
    }
}

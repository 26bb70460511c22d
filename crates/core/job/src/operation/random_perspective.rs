//! The operation `random_perspective`.

use serde::{Deserialize, Serialize};

use super::{
    Fill, Operation, OperationProblem, PicturePlanner, WarpInterpolation,
    affine::of_factors,
    kind::{check_probability, half},
};
use crate::KeyProblem;

/// Moves the corners inwards by random amounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomPerspective {
    /// The farthest move of a corner, as a share of half the width and height.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub distortion_scale: f32,
    /// Probability.
    #[serde(default = "half")]
    #[schemars(range(min = 0, max = 1))]
    pub p: f32,
    /// How values between pixels are made.
    #[serde(default = "WarpInterpolation::bilinear")]
    pub interpolation: WarpInterpolation,
    /// Colour of what lies beyond the picture.
    #[serde(default)]
    pub fill: Fill,
}

impl Operation for RandomPerspective {
    const NAME: &'static str = "random_perspective";
    const KEYS: &'static [&'static str] = &["distortion_scale", "p", "interpolation", "fill"];
    const EXAMPLE: &'static str = "{ distortion_scale = 0.5, p = 0.5 }";

    fn check(&self) -> Result<(), KeyProblem> {
        if !(0.0..=1.0).contains(&self.distortion_scale) {
            return Err(("distortion_scale", format!("is {}, not in 0..1", self.distortion_scale)));
        }
        check_probability(Self::NAME, self.p)
    }

    fn plan(&self, planner: &mut PicturePlanner<'_>) -> Result<(), OperationProblem> {
        if !planner.happens(self.p) {
            return Ok(());
        }
        let [width, height] = planner.size();
        let reach = |side: u32| (f64::from(self.distortion_scale) * f64::from(side / 2)) as u32 + 1;
        let [across, down] = [reach(width), reach(height)];
        let draw = &mut planner.draw;
        let mut near = |reach: u32| f64::from(draw.below(reach));
        let top_left = [near(across), near(down)];
        let top_right = [f64::from(width - across) + near(across), near(down)];
        let bottom_right = [f64::from(width - across) + near(across), f64::from(height - down) + near(down)];
        let bottom_left = [near(across), f64::from(height - down) + near(down)];
        let [right, bottom] = [f64::from(width - 1), f64::from(height - 1)];
        let corners = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
        let factors = perspective(corners, [top_left, top_right, bottom_right, bottom_left]);
        planner.change(of_factors(factors, [width, height], self.interpolation, Some(self.fill.0)));
        Ok(())
    }
}

/// Returns the factors that map the points `to` to the points `from`. If points coincide, so that no factors do, the
/// undetermined factors are 0.
fn perspective(from: [[f64; 2]; 4], to: [[f64; 2]; 4]) -> [f64; 8] {
    let mut rows = [[0.0; 9]; 8];
    for (at, ([u, v], [x, y])) in from.into_iter().zip(to).enumerate() {
        rows[2 * at] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
        rows[2 * at + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
    }
    solve(rows)
}

/// Solves linear equations by elimination; the last column has the right sides.
fn solve(mut rows: [[f64; 9]; 8]) -> [f64; 8] {
    // Coordinates are whole pixels, so a pivot is either far above this or only a rounding error.
    const LEAST: f64 = 1e-9;
    let mut pivots = [None; 8];
    let mut done = 0;
    for column in 0..8 {
        let largest = (done..8).max_by(|a, b| rows[*a][column].abs().total_cmp(&rows[*b][column].abs()));
        let Some(pivot) = largest.filter(|row| rows[*row][column].abs() > LEAST) else { continue };
        rows.swap(done, pivot);
        let by = rows[done];
        for (at, row) in rows.iter_mut().enumerate() {
            let factor = row[column] / by[column];
            if at != done && factor != 0.0 {
                row.iter_mut().zip(by).for_each(|(value, by)| *value -= factor * by);
            }
        }
        pivots[column] = Some(done);
        done += 1;
    }
    std::array::from_fn(|column| pivots[column].map_or(0.0, |row| rows[row][8] / rows[row][column]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corners_come_from_where_they_were() {
        let corners = [[0.0, 0.0], [499.0, 0.0], [499.0, 374.0], [0.0, 374.0]];
        let moved = [[30.0, 12.0], [401.0, 90.0], [480.0, 371.0], [7.0, 200.0]];
        let [a, b, c, d, e, f, g, h] = perspective(corners, moved);
        for ([u, v], [x, y]) in corners.into_iter().zip(moved) {
            let scale = g * x + h * y + 1.0;
            assert!(((a * x + b * y + c) / scale - u).abs() < 1e-9 && ((d * x + e * y + f) / scale - v).abs() < 1e-9);
        }
        let same = perspective(corners, corners);
        for (factor, expected) in same.into_iter().zip([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]) {
            assert!((factor - expected).abs() < 1e-12, "{same:?}");
        }
    }

    #[test]
    fn corners_that_coincide_give_finite_factors() {
        for moved in [[[0.0; 2]; 4], [[0.0, 0.0], [0.0, 0.0], [5.0, 5.0], [0.0, 5.0]]] {
            let factors = perspective([[0.0, 0.0], [0.0, 0.0], [0.0, 3.0], [0.0, 3.0]], moved);
            assert!(factors.iter().all(|factor| factor.is_finite()), "{factors:?}");
        }
    }
}

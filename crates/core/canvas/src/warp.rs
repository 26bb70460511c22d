//! The change of places of a picture that is rotated, sheared or distorted.

/// How a value between pixels is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// The nearest pixel; of two equally near ones, the one with the even number.
    Nearest,
    /// The four pixels around, weighted by their distance; beyond the border lies `Warp::fill`.
    Bilinear,
}

/// A perspective transform. The pixel of the result whose middle is at (x, y) shows the place ((a x + b y + c) / w, (d
/// x + e y + f) / w) of the picture, with w = g x + h y + 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Warp {
    /// The factors a to h.
    pub factors: [f32; 8],
    /// How a value between pixels is made.
    pub sampling: Sampling,
    /// The colour beyond the border; `None` for black, with which bilinear sampling blends as with pixels of the
    /// picture.
    pub fill: Option<[u8; 3]>,
    /// Width and height of the result.
    pub size: [u32; 2],
}

impl Warp {
    /// Returns the edges of the smallest upright box round a warped box: left, top, right and bottom. `None` if a
    /// corner has no place in the result.
    #[must_use]
    pub fn bounds_of(&self, [left, top, right, bottom]: [f64; 4]) -> Option<[f64; 4]> {
        let [a, b, c, d, e, f, g, h] = self.factors.map(f64::from);
        // The inverse of the matrix of factors, without its determinant.
        let to = [
            [e - f * h, c * h - b, b * f - c * e],
            [f * g - d, a - c * g, c * d - a * f],
            [d * h - e * g, b * g - a * h, a * e - b * d],
        ];
        let mut bounds = [f64::INFINITY, f64::INFINITY, f64::NEG_INFINITY, f64::NEG_INFINITY];
        for [x, y] in [[left, top], [right, top], [right, bottom], [left, bottom]] {
            let [u, v, w] = to.map(|[p, q, r]| p * x + q * y + r);
            let [x, y] = [u / w, v / w];
            if !x.is_finite() || !y.is_finite() {
                return None;
            }
            bounds = [bounds[0].min(x), bounds[1].min(y), bounds[2].max(x), bounds[3].max(y)];
        }
        Some(bounds)
    }
}

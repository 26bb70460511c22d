//! The weights of the samples that each pixel of the result is computed from, along one axis. Antialiased bilinear, as
//! in PIL: the support of the triangle grows with the scale.

/// One axis of a request: `extent` pixels of the picture, starting at `from`, become `pixels` pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// The pixels of the picture that may be read: the first, and one past the last.
    pub readable: (u32, u32),
    /// Start in the picture, in pixels.
    pub from: f64,
    /// Length in the picture, in pixels; positive.
    pub extent: f64,
    /// Number of pixels of the result.
    pub pixels: u32,
    /// Whether the result's first pixel is the picture's last.
    pub reversed: bool,
}

/// The sum of a pixel's weights.
pub(crate) const ONE: u32 = 1 << 14;

/// The weights of samples for each pixel of an axis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps {
    /// The first sample of each pixel.
    starts: Vec<u32>,
    /// The index of each pixel's first weight, and one past the last pixel's last weight.
    ends: Vec<u32>,
    weights: Vec<u32>,
    /// A pixel's weights in quarters, while they are computed.
    quarters: Vec<u32>,
    /// The samples that are read: the first, and one past the last.
    pub(crate) range: (u32, u32),
    /// The weights of each pixel, two per entry, in the order of the result.
    pub(crate) pairs: Vec<[i16; 2]>,
    pub(crate) pairs_per_pixel: usize,
    /// The first sample of each pixel, relative to the plane's first one, in the order of the result.
    pub(crate) firsts: Vec<u32>,
}

impl Taps {
    /// Computes the weights on a plane with `numerator / 8` samples per pixel of the picture, `size` of them in total.
    pub(crate) fn build(&mut self, axis: &Axis, numerator: u32, size: u32) {
        let density = f64::from(numerator) / 8.0;
        let low = (axis.readable.0 * numerator / 8).min(size - 1);
        let high = (axis.readable.1 * numerator).div_ceil(8).clamp(low + 1, size);
        let (from, step) = (axis.from * density, axis.extent * density / f64::from(axis.pixels));
        let radius = step.max(1.0);
        self.clear();
        for pixel in 0..axis.pixels {
            let center = from + (f64::from(pixel) + 0.5) * step;
            // Rounded towards zero, which is down for all that are not below `low`.
            let first = ((center - radius + 0.5) as u32).clamp(low, high - 1);
            let end = ((center + radius + 0.5) as u32).clamp(first + 1, high);
            self.push_triangle(first, end, center, radius);
        }
    }

    fn clear(&mut self) {
        self.starts.clear();
        self.ends.clear();
        self.ends.push(0);
        self.weights.clear();
    }

    /// Adds a pixel's weights: a triangle of a given radius around its centre, on the samples `first..end`.
    fn push_triangle(&mut self, first: u32, end: u32, center: f64, radius: f64) {
        let weight = |sample: u32| (radius - (f64::from(sample) + 0.5 - center).abs()).max(0.0);
        let sum: f64 = (first..end).map(weight).sum();
        if sum <= 0.0 {
            // Rounding has put the pixel's centre beside the readable samples.
            self.push(first, [ONE]);
            return;
        }
        let scale = f64::from(ONE) / sum;
        let (mut running, mut given) = (0.0, 0);
        let rounded = (first..end).map(|sample| {
            // Each weight is the growth of the rounded sum, so that together they are exactly 1.
            running += weight(sample) * scale;
            let weight = (running + 0.5) as u32 - given;
            given += weight;
            weight
        });
        self.push(first, rounded);
    }

    fn push(&mut self, first: u32, weights: impl IntoIterator<Item = u32>) {
        let start = self.weights.len();
        self.weights.extend(weights);
        let zeros = self.weights[start..].iter().take_while(|weight| **weight == 0).count();
        if zeros > 0 {
            self.weights.drain(start..start + zeros);
        }
        while self.weights.len() > start && self.weights.last() == Some(&0) {
            self.weights.pop();
        }
        self.starts.push(first + zeros as u32);
        self.ends.push(self.weights.len() as u32);
    }

    /// Computes the weights on a plane of half the samples, `size` in total, that is first doubled as libjpeg does:
    /// each new sample is 3/4 of the nearest old one and 1/4 of the next nearest.
    pub(crate) fn build_halved(&mut self, whole: &Self, size: u32) {
        self.clear();
        let mut quarters = std::mem::take(&mut self.quarters);
        for (pixel, &first) in whole.starts.iter().enumerate() {
            let weights = &whole.weights[whole.ends[pixel] as usize..whole.ends[pixel + 1] as usize];
            let start = (first.div_ceil(2).max(1) - 1).min(size - 1);
            quarters.clear();
            quarters.resize(weights.len() / 2 + 3, 0);
            for (sample, weight) in (first..).zip(weights) {
                let near = (sample / 2).min(size - 1);
                let next = if sample % 2 == 0 { near.saturating_sub(1) } else { (near + 1).min(size - 1) };
                quarters[(near - start) as usize] += 3 * weight;
                quarters[(next - start) as usize] += weight;
            }
            let (mut running, mut given) = (0, 0);
            let rounded = quarters.iter().map(|weight| {
                running += weight;
                let weight = (running + 2) / 4 - given;
                given += weight;
                weight
            });
            self.push(start, rounded);
        }
        self.quarters = quarters;
    }

    /// Computes the range of samples that are read.
    pub(crate) fn measure(&mut self) {
        let end = |pixel: usize| self.starts[pixel] + self.ends[pixel + 1] - self.ends[pixel];
        let first = self.starts.iter().min().copied().unwrap_or(0);
        let end = (0..self.starts.len()).map(end).max().unwrap_or(0);
        self.range = (first, end);
    }

    /// Arranges the weights for a plane that begins at sample `origin`. Pads the pixels with empty ones to a multiple
    /// of `multiple`.
    pub(crate) fn lay_out(&mut self, origin: u32, reversed: bool, multiple: usize) {
        let pixels = self.starts.len();
        let longest = (0..pixels).map(|pixel| self.ends[pixel + 1] - self.ends[pixel]).max().unwrap_or(1);
        self.pairs_per_pixel = longest.div_ceil(2).max(1) as usize;
        let padded = pixels.next_multiple_of(multiple);
        self.pairs.clear();
        self.pairs.resize(padded * self.pairs_per_pixel, [0; 2]);
        self.firsts.clear();
        self.firsts.resize(padded, 0);
        for pixel in 0..pixels {
            let at = if reversed { pixels - 1 - pixel } else { pixel };
            let weights = &self.weights[self.ends[pixel] as usize..self.ends[pixel + 1] as usize];
            self.firsts[at] = self.starts[pixel] - origin;
            let pairs = &mut self.pairs[at * self.pairs_per_pixel..][..self.pairs_per_pixel];
            for (weight, place) in weights.iter().zip(pairs.as_flattened_mut()) {
                *place = *weight as i16;
            }
        }
    }
}

//! Writes samples as bytes, little-endian.

/// The form of samples in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleForm {
    /// Floats of 32 bits, those of full scale from -1 to 1.
    F32,
    /// Whole numbers of 16 bits: the nearest ones, and those beyond full scale clipped to it.
    I16,
}

/// Writes samples one after the other into a place of exactly their size.
#[derive(Debug)]
pub struct SampleWriter<'o> {
    form: SampleForm,
    out: &'o mut [u8],
}

impl SampleForm {
    /// Returns the bytes of a sample.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::I16 => 2,
        }
    }
}

impl<'o> SampleWriter<'o> {
    /// Begins at the first byte of `out`.
    #[must_use]
    pub const fn new(form: SampleForm, out: &'o mut [u8]) -> Self {
        Self { form, out }
    }

    /// Writes samples.
    ///
    /// # Panics
    /// If there is no room for them.
    pub fn write(&mut self, samples: &[f32]) {
        let (out, rest) = std::mem::take(&mut self.out).split_at_mut(samples.len() * self.form.bytes());
        self.out = rest;
        match self.form {
            SampleForm::F32 => {
                for (place, sample) in out.as_chunks_mut().0.iter_mut().zip(samples) {
                    *place = sample.to_le_bytes();
                }
            }
            SampleForm::I16 => {
                for (place, sample) in out.as_chunks_mut().0.iter_mut().zip(samples) {
                    *place = nearest(*sample).to_le_bytes();
                }
            }
        }
    }

    /// Writes channels side by side: a frame has one sample of each.
    ///
    /// # Panics
    /// If the channels differ in length, or there is no room for them.
    pub fn write_channels(&mut self, channels: &[Vec<f32>]) {
        if let [channel] = channels {
            return self.write(channel);
        }
        let frames = channels.first().map_or(0, Vec::len);
        let mut frame = Vec::with_capacity(channels.len());
        for nth in 0..frames {
            frame.clear();
            frame.extend(channels.iter().map(|channel| channel[nth]));
            self.write(&frame);
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a sample beyond full scale is clipped")]
fn nearest(sample: f32) -> i16 {
    (sample * 32_768.0).round_ties_even() as i16
}

//! From the channels of a file to those of the result.

/// Which channels a sound has after decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelMix {
    /// One: the sum of all, in their order and in `f32`, divided by their number.
    Mean,
    /// One: the first.
    First,
    /// Those of the file.
    Keep,
}

impl ChannelMix {
    /// Returns the number of channels that `channels` channels become.
    #[must_use]
    pub const fn channels(self, channels: u16) -> u16 {
        match self {
            Self::Mean | Self::First => 1,
            Self::Keep => channels,
        }
    }

    /// Mixes frames of `channels` samples in place, and returns the samples that they become.
    pub(crate) fn mix(self, samples: &mut [f32], channels: usize) -> &[f32] {
        let frames = samples.len() / channels;
        match self {
            _ if channels == 1 => {}
            Self::Keep => return samples,
            Self::First => {
                for frame in 0..frames {
                    samples[frame] = samples[frame * channels];
                }
            }
            Self::Mean => {
                #[expect(clippy::cast_precision_loss, reason = "there are at most 65,535 channels")]
                let count = channels as f32;
                for frame in 0..frames {
                    let of_frame = &samples[frame * channels..][..channels];
                    samples[frame] = of_frame.iter().sum::<f32>() / count;
                }
            }
        }
        &samples[..frames]
    }
}

//! The kinds `audio_length` and `audio_rate`: what the head of a sound file says about the value of an `audio` column.

use std::ops::Range;

use spdl_job::{Column, ColumnKind};
use spdl_media::SoundTable;
use spdl_types::DType;

use super::{ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget, audio::AudioDecoder};
use crate::decode::{SampleKey, cause::ValueResult, number::write_integer, record::SampleRecord};

/// Decodes to a whole number.
pub(super) struct AudioFactDecoder {
    dtype: DType,
    audio: AudioDecoder,
    fact: AudioFact,
}

/// What a column has of a sound.
#[derive(Clone, Copy)]
pub(super) enum AudioFact {
    /// The number of frames.
    Length,
    /// The sample rate, in Hz.
    Rate,
}

impl AudioFactDecoder {
    /// Finds the column that is followed, which a valid job has.
    pub(super) fn new(follows: &str, fact: AudioFact, setup: &ColumnSetup<'_>) -> Self {
        let followed = setup.columns.iter().find_map(|column: &Column| match &column.kind {
            ColumnKind::Audio(audio) if column.name == follows => {
                Some(AudioDecoder::new(audio, column.decoded_dtype(), setup))
            }
            _ => None,
        });
        let audio =
            followed.unwrap_or_else(|| panic!("a valid job has an audio column `{follows}` that others follow"));
        Self { dtype: setup.column.decoded_dtype(), audio, fact }
    }
}

impl ColumnDecoder for AudioFactDecoder {
    fn fields(&self) -> Vec<&str> {
        self.audio.fields()
    }

    fn reads_sound_parts(&self) -> bool {
        !self.audio.is_of_clip()
    }

    /// The head is enough.
    fn sound_frames(
        &self,
        _: (&str, &SoundTable<'_>),
        _: (u64, SampleKey),
        _: &SampleRecord<'_>,
    ) -> Option<Range<u64>> {
        Some(0..0)
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let file = content.into_file();
        let file_bytes = file.len() as u64;
        let file = self.audio.sound_file((field, file), (seed, key), (record, resources.limits))?;
        let part = self.audio.part_of((field, &file), record, (seed, key), scratch)?;
        record.note_unread(file_bytes);
        let number = match self.fact {
            AudioFact::Length => i64::try_from(self.audio.rows(&part)).unwrap_or(i64::MAX),
            AudioFact::Rate => i64::from(part.rate),
        };
        write_integer(number, self.dtype, field, || number.to_string(), target.fixed())
    }
}

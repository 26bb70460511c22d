//! The operations on sounds: their keys, checks and draws. Each has a file here, and the table below lists them.
//!
//! Their draws are made in the order of the list, after those of a random segment, but for the speed, of which the segment's place
//! depends. An operation that takes the recordings of a dataset draws for itself, so that the recording is known before the sound is
//! read. What they do with samples and features is in `spdl-sound`.

mod dataset;
mod kind;

use serde::{Deserialize, Serialize};
use spdl_types::Draw;

use super::KeyProblem;
use crate::operation::step::step_ops;
pub use dataset::SoundDataset;
pub use kind::{MaskAxis, SoundOperation, SoundStage, SoundStep};

macro_rules! sound_operations {
    ($($module:ident::$Op:ident,)*) => {
        $(mod $module;)*
        $(pub use self::$module::$Op;)*

        step_ops! {
            /// One step from a decoded sound to the values of the batch. Random ones draw from a generator keyed by (seed, epoch, sample
            /// id).
            SoundOp { $($Op,)* }

            const SCHEMA: [&'static str; 2] = ["SoundOp", "SoundOperation"];
            const ABOUT: &'static str = "One step from a decoded sound to the values of the batch. Random ones draw from a generator keyed by (seed, epoch, sample id).";
            const FORMS: &'static str = "A step: in full as { gain = { decibels = [-6, 6] } }, or short as { gain = [-6, 6] }.";
            const SUCH_AS: &'static str = "{ gain = [-6, 6] }";
        }

        impl SoundOp {
            /// Returns what the operation is done with.
            #[must_use]
            pub const fn stage(&self) -> SoundStage {
                match self { $(Self::$Op(_) => $Op::STAGE,)* }
            }

            /// Returns the key that is wrong, and what is wrong with it.
            fn check(&self) -> Result<(), KeyProblem> {
                match self { $(Self::$Op(op) => op.check(),)* }
            }

            /// Makes the operation's draws. Returns what is done; `None` for nothing.
            #[must_use]
            pub fn draw(&self, draw: &mut Draw) -> Option<SoundStep> {
                match self { $(Self::$Op(op) => op.draw(draw),)* }
            }

            /// Returns the dataset whose recordings it takes, if it takes any.
            #[must_use]
            pub fn dataset(&self) -> Option<&SoundDataset> {
                match self { $(Self::$Op(op) => op.dataset(),)* }
            }

            /// Returns the same dataset, to note which one it is.
            pub(crate) fn dataset_mut(&mut self) -> Option<&mut SoundDataset> {
                match self { $(Self::$Op(op) => op.dataset_mut(),)* }
            }
        }
    };
}

sound_operations! {
    frequency_mask::FrequencyMask,
    gain::Gain,
    noise::Noise,
    reverb::Reverb,
    speed::Speed,
    time_mask::TimeMask,
}

/// A recording that was drawn for an operation on a sample.
#[derive(Clone, Debug)]
pub struct DrawnSound<'o> {
    /// Number of the operation in its list.
    pub operation: usize,
    /// The dataset.
    pub dataset: &'o SoundDataset,
    /// The number of its sample that is taken.
    pub sample: u64,
    /// What is done with it.
    pub step: SoundStep,
    /// What else is drawn comes from here.
    pub draw: Draw,
}

/// The part of a sample that its first operation draws recordings with; the others follow.
const FIRST_PART: u32 = 1 << 20;

impl SoundOp {
    /// Draws a recording for the operation, which is number `operation` of its list, on a sample; `None` if it takes none. The key is that
    /// of all draws: seed, epoch and sample.
    #[must_use]
    pub fn draw_sound(&self, operation: usize, (seed, epoch, id): (u64, u64, u64)) -> Option<DrawnSound<'_>> {
        let dataset = self.dataset()?;
        let mut draw = Draw::of_part(seed, epoch, id, FIRST_PART + operation as u32);
        let sample = dataset.draw(&mut draw);
        let step = self.draw(&mut draw)?;
        Some(DrawnSound { operation, dataset, sample, step, draw })
    }
}

/// Checks a list of operations, of a column with or without features.
pub(crate) fn check_all(ops: &[SoundOp], has_features: bool) -> Result<(), KeyProblem> {
    let wrong = |problem: String| Err(("ops", problem));
    for (number, op) in ops.iter().enumerate() {
        let name = op.name();
        op.check()?;
        let before = number.checked_sub(1).map(|before| &ops[before]);
        match op.stage() {
            SoundStage::Decoding if number > 0 => {
                return wrong(format!(
                    "have `{name}` at place {number}; it is part of decoding, so it has to be the first one"
                ));
            }
            SoundStage::Features if !has_features => {
                return wrong(format!("have `{name}`, which is for `features`; add these, or leave it out"));
            }
            SoundStage::Samples => {
                if let Some(before) = before.filter(|before| before.stage() == SoundStage::Features) {
                    let masks = before.name();
                    return wrong(format!(
                        "have `{name}`, which is for samples, behind `{masks}`, which is for features; put it before"
                    ));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Draws the speed of a sound, in thousandths, if an operation changes it.
#[must_use]
pub fn drawn_speed(ops: &[SoundOp], draw: &mut Draw) -> u32 {
    match ops.first().and_then(|op| if let SoundOp::Speed(speed) = op { speed.draw(draw) } else { None }) {
        Some(SoundStep::Speed(thousandths)) => thousandths,
        _ => 1000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::testing::job_of;

    #[test]
    fn keys_that_do_not_fit_are_named() {
        for (ops, expected) in [
            ("{ gain = [6, -6] }", "`decibels` is [6.0, -6.0]; give a number, or [low, high]"),
            ("{ gain = nan }", "`decibels` is NaN"),
            ("{ gain = { p = 2, decibels = 1 } }", "`gain` has p = 2, not in 0..1"),
            ("{ speed = [] }", "`factors` is empty"),
            ("{ speed = [0.1] }", "`factors` has 0.1, not in 0.25..4"),
            ("{ speed = [1.00001] }", "`factors` has 1.00001; give at most three decimals"),
            ("{ noise = [20, 10] }", "`snr` is [20.0, 10.0]"),
            ("{ gain = 6 }, { speed = [0.9] }", "have `speed` at place 1; it is part of decoding"),
            ("{ time_mask = 10 }", "`ops` have `time_mask`, which is for `features`"),
            ("{ gian = 6 }", "there is no step `gian`; did you mean `gain`?"),
            ("{ gain = { level = 6 } }", "gain has no key `level`"),
            ("{ random_flip = 0.5 }", "there is no step `random_flip`"),
        ] {
            let error = job_of("audio", &format!("rate = 16000\nops = [{ops}]")).unwrap_err().to_string();
            assert!(error.contains(expected), "{ops}: {error}");
        }
        let features = "rate = 16000\nfeatures = { preset = \"kaldi\" }\n";
        for (ops, expected) in [
            ("{ time_mask = 10 }, { gain = 6 }", "have `gain`, which is for samples, behind `time_mask`"),
            ("{ time_mask = 0 }", "`frames` is 0"),
            ("{ frequency_mask = { bands = 8, count = 0 } }", "`count` is 0"),
        ] {
            let error = job_of("audio", &format!("{features}ops = [{ops}]")).unwrap_err().to_string();
            assert!(error.contains(expected), "{ops}: {error}");
        }
        let error = job_of("audio", "dtype = \"i16\"\nops = [{ gain = 6 }]").unwrap_err().to_string();
        assert!(error.contains("`ops` have `gain`, which is for samples of f32"), "{error}");
    }

    #[test]
    fn a_column_with_operations_survives_storage_in_any_form() {
        let keys = "rate = 16000\nfeatures = { preset = \"kaldi\" }\nops = [{ speed = [0.9, 1.1] }, { gain = 6 }, { noise = [10, 30] }, \
                    { time_mask = 100 }, { frequency_mask = { bands = 27, count = 2, value = 0.0 } }]";
        let job = job_of("audio", keys).unwrap();
        let back: crate::Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!(back, job);
        let full = keys.replace("{ gain = 6 }", "{ gain = { decibels = 6, p = 1.0 } }");
        assert_eq!(job_of("audio", &full).unwrap(), job);
    }

    #[test]
    fn draws_are_within_their_ranges_and_a_probability_is_kept() {
        let gain = Gain { decibels: crate::NumberOrRange::Number(3.0), p: 0.5 };
        let mut louder = 0;
        for id in 0..2000 {
            match gain.draw(&mut Draw::new(1, 0, id)) {
                None => {}
                Some(SoundStep::Gain { decibels }) => {
                    assert!((-3.0..=3.0).contains(&decibels), "{decibels}");
                    louder += 1;
                }
                Some(step) => panic!("{step:?}"),
            }
        }
        assert!((900..1100).contains(&louder), "{louder}");
        let ops = [SoundOp::Speed(Speed { factors: vec![0.9, 1.0, 1.1] })];
        let mut speeds = [0; 3];
        for id in 0..3000 {
            speeds[match drawn_speed(&ops, &mut Draw::new(1, 0, id)) {
                900 => 0,
                1000 => 1,
                1100 => 2,
                other => panic!("{other}"),
            }] += 1;
        }
        assert!(speeds.iter().all(|count| (900..1100).contains(count)), "{speeds:?}");
        assert_eq!(drawn_speed(&[SoundOp::Gain(gain)], &mut Draw::new(1, 0, 0)), 1000);
    }
}

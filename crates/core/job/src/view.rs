//! The `[view]` table of a job file.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::KeyProblem;
use spdl_order::view::Expression;
use spdl_types::{Fingerprint, mix::splitmix64};

/// The most parts that a dataset is divided into.
const MAX_FOLDS: u32 = 1 << 16;

/// The samples that a job delivers: those for which every key that is given holds.
///
/// All samples of a record are kept or none, but for `first`, which counts samples. `unique` sees only the records that
/// `where`, `keys`, `fraction` and `folds` leave over, `most_of_each` those that `unique` leaves over, then comes `first`, and `sampling` says
/// how often those come that are left.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ViewFile {
    /// The records for which this is true, such as `width >= 256 and split == 'train'`. Default: all.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// The records whose keys are in this file, one on each line, at most 16 million. Keys that no record has are a
    /// warning; if no record has any of them, that is an error. A relative path starts at the folder of the job file.
    /// Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// The records that a hash of `seed` and key puts into this fraction, above 0 and at most 1: the same ones whatever
    /// else the view says, and a larger fraction holds all of a smaller one. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// The number of parts of about equal size, 2 to 65536, into which a hash of `seed` and key puts the records. It
    /// needs `fold` or `except_fold`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folds: Option<u32>,
    /// The part that is kept, from 0. It needs `folds`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<u32>,
    /// The part that is left out, from 0: with the same `folds` and `seed`, the others are the training data for the
    /// evaluation on `fold`. It needs `folds`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub except_fold: Option<u32>,
    /// Seed of `fraction`, `folds` and `most_of_each`. Default: 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub seed: u64,
    /// Of the records with the same value of this field, or of `key`, the first in the order of the dataset. Records
    /// without a value are all kept. There may be 16 million different values. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
    /// The field, or `key`, by whose values `most_of_each` counts, such as `cls`. There may be 16 million different values. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub each: Option<String>,
    /// Of the records with the same value of `each`, this many, at least 1: those that a hash of `seed` and key draws, of which a larger number
    /// holds all of a smaller one. Records without a value are all kept. It needs `each`. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_of_each: Option<u64>,
    /// This many samples, at least 1, the first in the order of the dataset. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// How many samples each class gives in an epoch. Default: all of its samples, once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampling: Option<SamplingFile>,
    /// The fingerprint of the samples that were found, which `spdl-ctl plan` prints. Default: set when the job is
    /// created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub samples: Option<Fingerprint>,
}

/// How many samples each class gives in an epoch: as many as each other one, unless `weights` or `repeat` say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SamplingFile {
    /// The field whose values are the classes, as `where` calls it, such as `cls` or `json.kind`, or `key`. Every sample has to have a value.
    /// There may be 65536 different ones.
    pub by: String,
    /// The samples that a class of weight 1 gives in an epoch, at least 1. Of a larger class, others come in the next epoch. Default: the mean
    /// of the classes, rounded up, so that an epoch with all classes has about as many samples as there are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// Factors of `samples` by class, which is the name of a class of the dataset or a value: any number from 0 on; 0 leaves a class out.
    /// Default: 1 for each class that is not named.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, f64>,
    /// Whether samples of a class that has too few come several times in an epoch, with other random operations each time. If not, it gives
    /// each once, and `samples` is a limit. Default: true.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub repeat: bool,
}

const fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_yes(value: &bool) -> bool {
    *value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The decisions that are drawn from a record's key, each by a hash of its own.
#[derive(Clone, Copy)]
enum ViewDraw {
    Fraction = 1,
    Fold = 2,
    Each = 3,
}

impl ViewFile {
    /// Checks everything that can be checked without the dataset.
    pub fn check(&self) -> Result<(), KeyProblem> {
        self.filter()?;
        if let Some(fraction) = self.fraction
            && !(fraction > 0.0 && fraction <= 1.0)
        {
            return Err(("fraction", format!("is {fraction}; it must be above 0 and at most 1")));
        }
        match self.folds {
            Some(folds) if !(2..=MAX_FOLDS).contains(&folds) => {
                return Err(("folds", format!("is {folds}, not from 2 to {MAX_FOLDS}")));
            }
            Some(_) if self.fold.is_some() == self.except_fold.is_some() => {
                return Err(("folds", "needs either `fold` or `except_fold`".to_owned()));
            }
            _ => {}
        }
        for (key, fold) in [("fold", self.fold), ("except_fold", self.except_fold)] {
            match (fold, self.folds) {
                (Some(_), None) => return Err((key, "needs `folds`, the number of parts".to_owned())),
                (Some(fold), Some(folds)) if fold >= folds => {
                    return Err((key, format!("is {fold}; with {folds} folds the last is {}", folds - 1)));
                }
                _ => {}
            }
        }
        if self.first == Some(0) {
            return Err(("first", "must be at least 1".to_owned()));
        }
        match (&self.each, self.most_of_each) {
            (Some(_), None) => {
                return Err(("each", "needs `most_of_each`, the number of records of each value".to_owned()));
            }
            (None, Some(_)) => return Err(("most_of_each", "needs `each`, the field whose values count".to_owned())),
            (_, Some(0)) => return Err(("most_of_each", "must be at least 1".to_owned())),
            _ => {}
        }
        for (key, text) in [("keys", &self.keys), ("unique", &self.unique), ("each", &self.each)] {
            if text.as_ref().is_some_and(String::is_empty) {
                return Err((key, "is empty".to_owned()));
            }
        }
        match &self.sampling {
            Some(_) if self.each.is_some() => {
                let problem =
                    "and `each` are both there; `repeat = false` in `sampling` gives at most `samples` of each class";
                Err(("sampling", problem.to_owned()))
            }
            Some(sampling) => sampling.check(),
            None => Ok(()),
        }
    }

    /// Returns the expression of `where`, if there is one.
    ///
    /// # Errors
    /// The key, and what is wrong with it.
    pub fn filter(&self) -> Result<Option<Expression>, KeyProblem> {
        let parsed = self.filter.as_deref().map(Expression::parse).transpose();
        parsed.map_err(|error| ("where", error.to_string()))
    }

    fn draw(&self, key: &str, draw: ViewDraw) -> u64 {
        splitmix64(key_hash(key) ^ splitmix64(self.seed ^ splitmix64(draw as u64)))
    }

    /// Returns the place of the record of this key among those of its value, for `most_of_each`: the lowest are kept.
    #[must_use]
    pub fn place_of_each(&self, key: &str) -> u64 {
        self.draw(key, ViewDraw::Each)
    }

    /// Returns whether the record of this key is one of those that `fraction` and `folds` keep.
    #[must_use]
    pub fn draws(&self, key: &str) -> bool {
        let draw = |draw| self.draw(key, draw);
        // The fraction of the hashes below the bound. A fraction of 1.0 keeps all of them, as no number of 64 bits is
        // above it.
        let in_fraction = self.fraction.is_none_or(|fraction| {
            fraction >= 1.0 || (draw(ViewDraw::Fraction) as f64) < fraction * (u64::MAX as f64 + 1.0)
        });
        in_fraction
            && self.folds.is_none_or(|folds| {
                let fold = ((u128::from(draw(ViewDraw::Fold)) * u128::from(folds)) >> 64) as u32;
                self.fold.is_none_or(|kept| kept == fold) && self.except_fold != Some(fold)
            })
    }
}

impl SamplingFile {
    fn check(&self) -> Result<(), KeyProblem> {
        if self.by.is_empty() {
            return Err(("sampling.by", "is empty; give the field whose values are the classes".to_owned()));
        }
        if self.samples == Some(0) {
            return Err(("sampling.samples", "must be at least 1".to_owned()));
        }
        for (class, weight) in &self.weights {
            if !(weight.is_finite() && *weight >= 0.0) {
                let problem = format!("has {weight} for `{class}`; it must be a number from 0 on");
                return Err(("sampling.weights", problem));
            }
        }
        Ok(())
    }

    /// Returns the samples that a class with this weight and so many samples gives in an epoch, where one of weight 1 gives `usual`. It is at
    /// least 1, unless the weight is 0.
    #[must_use]
    pub fn given(&self, weight: f64, usual: u64, samples: u64) -> u64 {
        if weight == 0.0 {
            return 0;
        }
        let wanted = ((usual as f64 * weight).round() as u64).max(1);
        if self.repeat { wanted } else { wanted.min(samples) }
    }
}

/// Returns the 64 lower bits of the hash of a key.
fn key_hash(key: &str) -> u64 {
    Fingerprint::of(key.as_bytes()).0 as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(by: &str) -> SamplingFile {
        SamplingFile { by: by.to_owned(), samples: None, weights: BTreeMap::new(), repeat: true }
    }

    #[test]
    fn a_class_gives_its_weight_times_the_usual_number_and_at_most_what_it_has_if_nothing_repeats() {
        let (repeats, caps) = (by("cls"), SamplingFile { repeat: false, ..by("cls") });
        assert_eq!([1.0, 0.5, 0.001, 0.0, 2.5].map(|weight| repeats.given(weight, 101, 60)), [101, 51, 1, 0, 253]);
        assert_eq!([1.0, 0.5, 0.001, 0.0, 2.5].map(|weight| caps.given(weight, 101, 60)), [60, 51, 1, 0, 60]);
        assert_eq!(repeats.given(f64::MAX, 2, 1), u64::MAX);
    }

    fn problem(view: ViewFile) -> String {
        let (key, problem) = view.check().unwrap_err();
        format!("`{key}` {problem}")
    }

    #[test]
    fn values_that_mean_nothing_are_refused() {
        let view = ViewFile::default;
        assert_eq!(view().check(), Ok(()));
        for (file, expected) in [
            (ViewFile { fraction: Some(0.0), ..view() }, "`fraction` is 0; it must be above 0 and at most 1"),
            (ViewFile { fraction: Some(f64::NAN), ..view() }, "`fraction` is NaN; it must be above 0 and at most 1"),
            (ViewFile { folds: Some(1), fold: Some(0), ..view() }, "`folds` is 1, not from 2 to 65536"),
            (ViewFile { folds: Some(5), ..view() }, "`folds` needs either `fold` or `except_fold`"),
            (
                ViewFile { folds: Some(5), fold: Some(1), except_fold: Some(2), ..view() },
                "`folds` needs either `fold` or `except_fold`",
            ),
            (ViewFile { fold: Some(1), ..view() }, "`fold` needs `folds`, the number of parts"),
            (
                ViewFile { folds: Some(5), except_fold: Some(5), ..view() },
                "`except_fold` is 5; with 5 folds the last is 4",
            ),
            (ViewFile { first: Some(0), ..view() }, "`first` must be at least 1"),
            (ViewFile { unique: Some(String::new()), ..view() }, "`unique` is empty"),
            (
                ViewFile { each: Some("cls".into()), ..view() },
                "`each` needs `most_of_each`, the number of records of each value",
            ),
            (ViewFile { most_of_each: Some(5), ..view() }, "`most_of_each` needs `each`, the field whose values count"),
            (
                ViewFile { each: Some("cls".into()), most_of_each: Some(0), ..view() },
                "`most_of_each` must be at least 1",
            ),
            (ViewFile { each: Some(String::new()), most_of_each: Some(1), ..view() }, "`each` is empty"),
            (
                ViewFile { each: Some("a".into()), most_of_each: Some(1), sampling: Some(by("cls")), ..view() },
                "`sampling` and `each` are both there; `repeat = false` in `sampling` gives at most `samples` of each class",
            ),
            (
                ViewFile { sampling: Some(by("")), ..view() },
                "`sampling.by` is empty; give the field whose values are the classes",
            ),
            (
                ViewFile { sampling: Some(SamplingFile { samples: Some(0), ..by("cls") }), ..view() },
                "`sampling.samples` must be at least 1",
            ),
            (
                ViewFile {
                    sampling: Some(SamplingFile { weights: [("cat".to_owned(), -1.0)].into(), ..by("cls") }),
                    ..view()
                },
                "`sampling.weights` has -1 for `cat`; it must be a number from 0 on",
            ),
            (
                ViewFile { filter: Some("a >".to_owned()), ..view() },
                "`where` is wrong at character 4, the end: a number, a text in quotes or a name is expected",
            ),
        ] {
            assert_eq!(problem(file), expected);
        }
    }

    #[test]
    fn a_fraction_is_of_the_keys_and_a_larger_one_holds_the_smaller() {
        let keys: Vec<String> = (0..20_000).map(|number| format!("sample-{number}")).collect();
        let drawn = |fraction, seed| -> Vec<&String> {
            let view = ViewFile { fraction: Some(fraction), seed, ..ViewFile::default() };
            keys.iter().filter(|key| view.draws(key)).collect()
        };
        let [tenth, third] = [drawn(0.1, 0), drawn(0.3, 0)];
        assert!((1850..2150).contains(&tenth.len()), "{}", tenth.len());
        assert!(tenth.iter().all(|key| third.contains(key)));
        assert_eq!(drawn(1.0, 0).len(), keys.len());
        let other: Vec<_> = drawn(0.1, 1);
        let both = tenth.iter().filter(|key| other.contains(key)).count();
        assert!((120..280).contains(&both), "another seed draws others: {both}");
    }

    #[test]
    fn the_folds_divide_the_keys_and_are_independent_of_the_fraction() {
        let keys: Vec<String> = (0..10_000).map(|number| format!("{number:06}")).collect();
        let mut all = 0;
        for fold in 0..5 {
            let kept = ViewFile { folds: Some(5), fold: Some(fold), ..ViewFile::default() };
            let rest = ViewFile { folds: Some(5), except_fold: Some(fold), ..ViewFile::default() };
            let count = keys.iter().filter(|key| kept.draws(key)).count();
            assert!((1850..2150).contains(&count), "{count}");
            assert!(keys.iter().all(|key| kept.draws(key) != rest.draws(key)));
            all += count;
            let half = ViewFile { fraction: Some(0.5), ..kept };
            let count = keys.iter().filter(|key| half.draws(key)).count();
            assert!((880..1120).contains(&count), "{count}");
        }
        assert_eq!(all, keys.len());
    }

    #[test]
    fn the_draws_of_a_key_never_change() {
        let view = |fold| ViewFile { folds: Some(7), fold: Some(fold), seed: 3, ..ViewFile::default() };
        let folds: Vec<u32> = ["", "a", "000001", "n01440764_10026"]
            .map(|key| (0..7).find(|fold| view(*fold).draws(key)).unwrap())
            .into();
        assert_eq!(folds, [1, 3, 5, 4]);
        let places = ["", "a", "000001"].map(|key| view(0).place_of_each(key));
        assert_eq!(places, [17_786_968_680_212_173_360, 2_528_969_333_462_573_723, 12_870_215_022_057_711_550]);
    }
}

//! The classes of a view with `sampling`: which sample is of which, and how many each gives in an epoch.

use std::{collections::HashMap, sync::Arc};

use spdl_job::{SamplingFile, nearest_name};
use spdl_order::view::{
    ClassSampling, MAX_SAMPLED, MAX_SAMPLED_CLASSES, MAX_VIEW_BYTES, SampleSet, SampleSetBuilder, SetError, ViewSamples,
};
use spdl_shard::manifest::Manifest;

use super::{block::BlockResult, class_names::class_numbered};
use crate::DatasetError;

/// The most classes that an error names.
const NAMED: usize = 10;

fn wrong<T>(key: &'static str, problem: String) -> Result<T, DatasetError> {
    Err(DatasetError::View { key, problem })
}

/// Notes the class of each sample that a view keeps.
#[derive(Default)]
pub(super) struct ClassTally {
    names: Vec<String>,
    known: HashMap<String, u16>,
    /// The class of each sample so far.
    numbers: Vec<u16>,
    /// For each class of the block at hand its number here.
    of_block: Vec<u16>,
    /// Records without a class, and the first of them.
    without: u64,
    first_without: Option<String>,
}

impl ClassTally {
    /// Begins with another block.
    pub(super) fn begin(&mut self, block: &mut BlockResult) -> Result<(), DatasetError> {
        self.of_block.clear();
        for name in block.classes.drain(..) {
            let number = match self.known.get(&name) {
                Some(number) => *number,
                None if self.names.len() == MAX_SAMPLED_CLASSES => {
                    let problem = format!(
                        "has more than {MAX_SAMPLED_CLASSES} different values; name the field that tells classes"
                    );
                    return wrong("sampling.by", problem);
                }
                None => {
                    let number = self.names.len() as u16;
                    self.names.push(name.clone());
                    self.known.insert(name, number);
                    number
                }
            };
            self.of_block.push(number);
        }
        if let Some(first) = block.without_class.take() {
            self.first_without.get_or_insert(first);
        }
        Ok(())
    }

    /// Notes the class of a sample of the block, by its number in the block.
    pub(super) fn add(&mut self, class: Option<u32>) {
        match class {
            Some(class) => self.numbers.push(self.of_block[class as usize]),
            None => self.without += 1,
        }
    }

    /// Returns the sampling of the samples whose classes were noted.
    pub(super) fn finish(
        self,
        file: &SamplingFile,
        set: SampleSet,
        manifest: &Manifest,
    ) -> Result<ViewSamples, DatasetError> {
        let Self { names, numbers, without, first_without, .. } = self;
        let by = &file.by;
        if without > 0 {
            let first = first_without.map(|first| format!("; the first is {first}")).unwrap_or_default();
            let problem = format!(
                "is `{by}`, and {without} samples have no value of it{first}: leave them out with `where = \"{by} is not null\"`, or give \
                 them one"
            );
            return wrong("sampling.by", problem);
        }
        let mut samples = vec![0_u64; names.len()];
        numbers.iter().for_each(|number| samples[usize::from(*number)] += 1);
        let weights = weights(file, &names, manifest)?;
        let gives = |class: &usize| weights[*class] > 0.0;
        let mut order: Vec<usize> = (0..names.len()).filter(gives).collect();
        if order.is_empty() {
            return wrong("sampling.weights", "is 0 for each class; give one at least more".to_owned());
        }
        // Those of the dataset in their order, then numbers and names.
        let place = |class: &usize| {
            let name = &names[*class];
            (manifest.class_number(name).unwrap_or(u32::MAX), name.parse().unwrap_or(i64::MAX), name.clone())
        };
        order.sort_by_cached_key(place);
        let all: u64 = order.iter().map(|class| samples[*class]).sum();
        let usual = file.samples.unwrap_or_else(|| all.div_ceil(order.len() as u64));
        let given = |class: usize| file.given(weights[class], usual, samples[class]);
        let in_epoch = order.iter().fold(0_u64, |sum, class| sum.saturating_add(given(*class)));
        if in_epoch > MAX_SAMPLED {
            let problem =
                format!("and `weights` give an epoch of {in_epoch} samples; it can have {MAX_SAMPLED}: give fewer");
            return wrong("sampling.samples", problem);
        }
        let mut places = vec![None; names.len()];
        order.iter().zip(0_u16..=u16::MAX).for_each(|(class, place)| places[*class] = Some(place));
        let classes: Vec<(String, u64)> = order.iter().map(|class| (names[*class].clone(), given(*class))).collect();
        let mut kept = SampleSetBuilder::default();
        let mut of_kept = Vec::with_capacity(all as usize);
        for (nth, number) in (0..).zip(&numbers) {
            if let Some(place) = places[usize::from(*number)] {
                kept.keep(set.select(nth)).map_err(too_long)?;
                of_kept.push(place);
            }
        }
        let kept = Arc::new(kept.finish(manifest.samples()).map_err(too_long)?);
        let sampling = ClassSampling::new(by.clone(), kept, classes, of_kept).map_err(too_long)?;
        if sampling.encode().len() > MAX_VIEW_BYTES {
            return Err(too_long(SetError::TooLong));
        }
        Ok(ViewSamples::Sampling(Arc::new(sampling)))
    }
}

fn too_long(error: SetError) -> DatasetError {
    DatasetError::View {
        key: "sampling",
        problem: format!("keeps too many samples: their set, with a class for each, {error}"),
    }
}

/// Returns the weight of each class.
fn weights(file: &SamplingFile, names: &[String], manifest: &Manifest) -> Result<Vec<f64>, DatasetError> {
    let mut weights = vec![1.0; names.len()];
    for (written, weight) in &file.weights {
        let class = names.iter().position(|name| name == written).or_else(|| {
            let class = manifest.class(class_numbered(manifest, written)?);
            names.iter().position(|name| name == class)
        });
        let Some(class) = class else {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            let is_word = written.parse::<f64>().is_err();
            let meant =
                nearest_name(written, &known).filter(|_| is_word).map(|name| format!("; did you mean `{name}`?"));
            let mut sorted = known.clone();
            sorted.sort_unstable();
            let others = sorted.len().saturating_sub(NAMED);
            let rest = if others > 0 { format!(" and {others} more") } else { String::new() };
            sorted.truncate(NAMED);
            let problem = format!(
                "has `{written}`, and no sample has it in `{}`{}: there are {}{rest}",
                file.by,
                meant.unwrap_or_default(),
                sorted.join(", ")
            );
            return wrong("sampling.weights", problem);
        };
        weights[class] = *weight;
    }
    Ok(weights)
}

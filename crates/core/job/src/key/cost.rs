//! What a sample costs a trainer, by which the samples of a global batch are dealt to ranks.

use std::{fmt, num::NonZeroU32};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use spdl_order::{BucketParams, EpochEnd};
use spdl_types::Fingerprint;

use super::{JobFile, PlainKey};

/// Upper limit of a factor: a cost of the longest sequence then fits into 64 bits.
const MAX_FACTOR: u32 = u16::MAX as u32;
/// Upper limits of `bucket`, and of the samples of its global batches: a worker sorts as many at once.
const MAX_BUCKET_BATCHES: u32 = 4096;
const MAX_BUCKET_SAMPLES: u32 = 1 << 20;
/// Upper limit of `scale`.
const MAX_SCALE: u32 = 1_000_000;

/// What a sample costs a trainer: a word, or the keys of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(untagged)]
#[allow(missing_docs, reason = "the types say it")]
pub enum SampleCostFile {
    Name(CostName),
    Table(CostTable),
}

/// What a sample costs a trainer, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub enum CostName {
    /// Its tokens, without padding: what all layers but attention take.
    #[serde(rename = "tokens")]
    Tokens,
    /// The sum of the squares of its documents' tokens: what attention within documents takes.
    #[serde(rename = "tokens^2")]
    TokensSquared,
    /// The pixels of its picture, as it is stored.
    #[serde(rename = "pixels")]
    Pixels,
    /// The length of its sound.
    #[serde(rename = "seconds")]
    Seconds,
}

/// What a sample costs a trainer: `linear` times its size and `quadratic` times the square of its size. The size of a sequence is its
/// tokens, and the squares are those of its documents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostTable {
    /// What the size of a sample is. Default: `tokens`, of jobs with `sequence`; not with `field`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<SizeName>,
    /// The field of the records whose number is the size of a sample, such as `duration`; or `json.duration`, a member of a field with a
    /// JSON document. Default: none; the size is `of` something.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// For `field`: by what its numbers are multiplied before they are rounded to whole ones, 1 to 1000000: 1000 for seconds with a fraction.
    /// Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<u32>,
    /// The cost of a token, a pixel, a millisecond, or 1 of a field, 0 to 65535. A layer of a transformer takes about 12 times its width, in
    /// units of `quadratic = 1`. Default: 0; 1 for other sizes than tokens without `quadratic`.
    #[serde(default)]
    pub linear: u32,
    /// The cost of a pair of these, of tokens of one document, 0 to 65535. Default: 0.
    #[serde(default)]
    pub quadratic: u32,
    /// The number of neighbouring ranks that share their samples among themselves, such as the ranks of a node, at least 1:
    /// samples then stay on the node that reads them without `cost`, and steps are less even. Default: all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<NonZeroU32>,
    /// For other sizes than tokens: the number of global batches, 2 to 4096, whose samples are sorted by size, so that those of one batch are of
    /// like size and take less padding; the batches then come in random order. Default: none; samples come as they are shuffled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<u32>,
    /// The fingerprint of the sizes of all samples, which `spdl-ctl plan` prints. Default: set when the job is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub sizes: Option<Fingerprint>,
}

/// What the size of a sample is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SizeName {
    /// The tokens of a sequence, without padding.
    Tokens,
    /// The pixels of the picture of the first `image` column, as it is stored.
    Pixels,
    /// The milliseconds of the sound of the first `audio` column, as it is stored.
    Seconds,
}

/// By what the samples of a global batch are dealt to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleCost {
    /// The cost of a token, or of what else the size of a sample counts.
    pub linear: u32,
    /// The cost of a pair of tokens of one document, or of what else the size of a sample counts.
    pub quadratic: u32,
    /// The number of neighbouring ranks that share their samples; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<NonZeroU32>,
    /// How samples are measured; `None` if their sizes are the tokens of sequences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredSize>,
}

/// A size of samples that is measured when a job is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MeasuredSize {
    /// What is measured.
    pub of: SizeSource,
    /// Identifies the sizes of all samples of the dataset; `None` before they are measured.
    pub sizes: Option<Fingerprint>,
    /// How samples of like size come in one batch; `None` if they do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bucket: Option<BucketParams>,
}

/// What a size of samples is measured of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SizeSource {
    /// The pixels of pictures.
    Pixels,
    /// The milliseconds of sounds.
    Seconds,
    /// The numbers of a field.
    Field,
}

impl SampleCost {
    /// Returns a cost of sequences of tokens.
    #[must_use]
    pub const fn of_tokens(linear: u32, quadratic: u32) -> Self {
        Self { linear, quadratic, within: None, measured: None }
    }

    /// Returns the cost of a sequence whose documents have these numbers of tokens, or of a sample with a size.
    #[must_use]
    pub fn of(&self, documents: impl IntoIterator<Item = u32>) -> u64 {
        let of_document = |tokens: u64| {
            let linear = u64::from(self.linear) * tokens;
            (u64::from(self.quadratic) * tokens).saturating_mul(tokens).saturating_add(linear)
        };
        documents.into_iter().map(|tokens| of_document(tokens.into())).fold(0, u64::saturating_add)
    }
}

impl SampleCostFile {
    /// Returns the keys of the table that says the same.
    #[must_use]
    pub fn table(&self) -> CostTable {
        let plain = CostTable::default();
        match self {
            Self::Table(table) => table.clone(),
            Self::Name(CostName::Tokens) => CostTable { linear: 1, ..plain },
            Self::Name(CostName::TokensSquared) => CostTable { quadratic: 1, ..plain },
            Self::Name(CostName::Pixels) => CostTable { of: Some(SizeName::Pixels), ..plain },
            Self::Name(CostName::Seconds) => CostTable { of: Some(SizeName::Seconds), ..plain },
        }
    }

    /// Notes the fingerprint of the sizes of all samples. Returns the fingerprint that was noted before.
    pub fn note_sizes(&mut self, sizes: Fingerprint) -> Option<Fingerprint> {
        let table = self.table();
        let noted = table.sizes;
        *self = Self::Table(CostTable { sizes: Some(sizes), ..table });
        noted
    }

    /// Returns whether samples have to be measured, and are not so far.
    #[must_use]
    pub fn is_unmeasured(&self) -> bool {
        self.cost(1, EpochEnd::Drop).measured.is_some_and(|measured| measured.sizes.is_none())
    }

    /// Returns the cost in a job of this global batch and end of epochs.
    #[must_use]
    pub fn cost(&self, global_batch: u32, epoch_end: EpochEnd) -> SampleCost {
        let CostTable { of, field, linear, quadratic, within, bucket, sizes, .. } = self.table();
        let source = match (of, field) {
            (_, Some(_)) => Some(SizeSource::Field),
            (Some(SizeName::Pixels), None) => Some(SizeSource::Pixels),
            (Some(SizeName::Seconds), None) => Some(SizeSource::Seconds),
            (Some(SizeName::Tokens) | None, None) => None,
        };
        let bucket = bucket.map(|batches| BucketParams {
            window: batches.saturating_mul(global_batch),
            batch: global_batch,
            is_continuous: epoch_end == EpochEnd::Continuous,
        });
        let measured = source.map(|of| MeasuredSize { of, sizes, bucket });
        let linear = if measured.is_some() && quadratic == 0 { linear.max(1) } else { linear };
        SampleCost { linear, quadratic, within, measured }
    }
}

impl<'de> Deserialize<'de> for SampleCostFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CostText)
    }
}

struct CostText;

impl<'de> Visitor<'de> for CostText {
    type Value = SampleCostFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "\"tokens\", \"tokens^2\", \"pixels\", \"seconds\", { linear = 12288, quadratic = 1 } or { field = \"length\" }",
        )
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<SampleCostFile, E> {
        match name {
            "tokens" => Ok(SampleCostFile::Name(CostName::Tokens)),
            "tokens^2" => Ok(SampleCostFile::Name(CostName::TokensSquared)),
            "pixels" => Ok(SampleCostFile::Name(CostName::Pixels)),
            "seconds" => Ok(SampleCostFile::Name(CostName::Seconds)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(name), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<SampleCostFile, A::Error> {
        let table = CostTable::deserialize(MapAccessDeserializer::new(table))?;
        let CostTable { of, field, scale, bucket, sizes, .. } = &table;
        let is_measured = field.is_some() || of.is_some_and(|of| of != SizeName::Tokens);
        let problem = match field {
            Some(_) if of.is_some() => {
                "has `of` and `field`, which both say what the size of a sample is; leave one out"
            }
            Some(name) if name.is_empty() => "has `field` = \"\", which cannot be a field",
            None if scale.is_some() => "has `scale` without `field`, whose numbers it is for",
            _ if !is_measured && sizes.is_some() => {
                "has `sizes`, and tokens of sequences are not measured; leave it out"
            }
            _ if !is_measured && bucket.is_some() => {
                "has `bucket`, which is for samples that are not packed: sequences have one length"
            }
            _ if bucket.is_some_and(|batches| !(2..=MAX_BUCKET_BATCHES).contains(&batches)) => {
                return Err(A::Error::custom(format!("has `bucket`, which must be 2 to {MAX_BUCKET_BATCHES}")));
            }
            _ if scale.is_some_and(|scale| !(1..=MAX_SCALE).contains(&scale)) => {
                return Err(A::Error::custom(format!("has `scale`, which must be 1 to {MAX_SCALE}")));
            }
            _ => return Ok(SampleCostFile::Table(table)),
        };
        Err(A::Error::custom(problem))
    }
}

pub(super) struct CostKey;

impl PlainKey for CostKey {
    type Value = Option<SampleCost>;

    fn value(file: &JobFile, _samples: u64) -> Option<SampleCost> {
        file.cost.as_ref().map(|cost| cost.cost(file.global_batch, file.epoch_end()))
    }

    fn check(value: &Option<SampleCost>) -> Result<(), String> {
        let Some(SampleCost { linear, quadratic, measured, .. }) = *value else { return Ok(()) };
        if let Some(BucketParams { window, batch, .. }) = measured.and_then(|measured| measured.bucket) {
            if window > MAX_BUCKET_SAMPLES {
                return Err(format!(
                    "has `bucket` = {}: with {batch} samples each, more than {MAX_BUCKET_SAMPLES} would be sorted at once",
                    window / batch.max(1)
                ));
            }
            if batch == 0 || window < batch {
                return Err("has a bucket without samples".to_owned());
            }
        }
        if linear == 0 && quadratic == 0 {
            return Err("needs `linear` or `quadratic` above 0: otherwise all samples cost the same".to_owned());
        }
        let of = [("linear", linear), ("quadratic", quadratic)].into_iter().find(|(_, factor)| *factor > MAX_FACTOR);
        match of {
            Some((key, factor)) => {
                Err(format!("has `{key}` = {factor}; it must be 0 to {MAX_FACTOR}: divide both factors"))
            }
            None => Ok(()),
        }
    }

    fn shown(value: &Option<SampleCost>) -> String {
        let Some(cost) = value else { return "none".to_owned() };
        match cost.measured.and_then(|measured| measured.sizes) {
            Some(sizes) => format!("{cost} with the sizes {sizes}"),
            None => cost.to_string(),
        }
    }
}

impl fmt::Display for SampleCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { linear, quadratic, within, measured } = self;
        let of = match measured.map(|measured| measured.of) {
            None => "",
            Some(SizeSource::Pixels) => "of = \"pixels\", ",
            Some(SizeSource::Seconds) => "of = \"seconds\", ",
            Some(SizeSource::Field) => "field, ",
        };
        write!(f, "{{ {of}linear = {linear}, quadratic = {quadratic}")?;
        if let Some(BucketParams { window, batch, .. }) = measured.and_then(|measured| measured.bucket) {
            write!(f, ", bucket = {}", window / batch.max(1))?;
        }
        within.iter().try_for_each(|within| write!(f, ", within = {within}"))?;
        f.write_str(" }")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    fn file(cost: &str) -> Result<JobFile, String> {
        let text = format!(
            "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\ncost = {cost}\nsequence = {{ seq_len = 64 }}\n[[column]]\n\
             name = \"tokens\"\nfrom = \"tokens\"\ndecode = \"tokens\"\nvocab = 100"
        );
        let file = JobFile::parse(&text, "job.toml").map_err(|error| error.to_string())?;
        file.check().map_err(|error| error.to_string())?;
        Ok(file)
    }

    fn cost(text: &str) -> SampleCost {
        file(text).unwrap().cost.unwrap().cost(8, EpochEnd::Drop)
    }

    #[test]
    fn a_word_is_short_for_factors() {
        assert_eq!(cost("\"tokens\""), cost("{ linear = 1 }"));
        assert_eq!(cost("\"tokens^2\""), cost("{ quadratic = 1, linear = 0 }"));
        let cost = cost("{ linear = 3, quadratic = 2, within = 8 }");
        assert_eq!(cost.to_string(), "{ linear = 3, quadratic = 2, within = 8 }");
        assert_eq!(cost.of([10, 1]), 3 * 11 + 2 * 101);
    }

    #[test]
    fn the_cost_of_the_longest_sequence_does_not_overflow() {
        let most = SampleCost::of_tokens(MAX_FACTOR, MAX_FACTOR);
        let (length, factor) = (1_u64 << 24, u64::from(MAX_FACTOR));
        assert_eq!(most.of([1 << 24]), factor * length * length + factor * length);
        assert_eq!(most.of([u32::MAX, u32::MAX]), u64::MAX, "of no job");
    }

    #[test]
    fn sizes_that_are_measured_cost_at_least_what_they_are() {
        let read = |text: &str| {
            testing::file(&format!("global_batch = 8\ncost = {text}")).cost.unwrap().cost(8, EpochEnd::Drop)
        };
        let of = |of, linear, quadratic| {
            let measured = Some(MeasuredSize { of, sizes: None, bucket: None });
            SampleCost { linear, quadratic, within: None, measured }
        };
        assert_eq!(read("\"pixels\""), of(SizeSource::Pixels, 1, 0));
        assert_eq!(read("{ of = \"seconds\" }"), read("\"seconds\""));
        assert_eq!(read("{ field = \"n\", quadratic = 2 }"), of(SizeSource::Field, 0, 2));
        assert_eq!(read("{ of = \"tokens\", linear = 3 }"), SampleCost::of_tokens(3, 0));
        assert_eq!(read("\"seconds\"").of([1500]), 1500);
        let mut file = testing::file("global_batch = 8\ncost = \"seconds\"").cost.unwrap();
        assert!(file.is_unmeasured());
        assert_eq!(file.note_sizes(Fingerprint(7)), None);
        assert_eq!(file.note_sizes(Fingerprint(8)), Some(Fingerprint(7)));
        let cost = file.cost(8, EpochEnd::Drop);
        assert!(
            !file.is_unmeasured() && cost.to_string() == "{ of = \"seconds\", linear = 1, quadratic = 0 }",
            "{cost}"
        );
        let back: SampleCost = serde_json::from_slice(&serde_json::to_vec(&cost).unwrap()).unwrap();
        assert_eq!(back, cost);
        assert!(CostKey::shown(&Some(cost)).ends_with(&format!("with the sizes {}", Fingerprint(8))));
    }

    #[test]
    fn what_the_plan_does_not_know_is_refused_with_what_it_knows() {
        for (text, expected) in [
            ("\"frames\"", "\"tokens\", \"tokens^2\", \"pixels\", \"seconds\", { linear = 12288, quadratic = 1 } or"),
            ("7", "\"tokens\", \"tokens^2\", \"pixels\", \"seconds\", { linear = 12288, quadratic = 1 } or"),
            ("{ cubic = 1 }", "cubic"),
            ("{ within = 8 }", "needs `linear` or `quadratic` above 0"),
            ("{ linear = 70000 }", "has `linear` = 70000; it must be 0 to 65535"),
            ("{ linear = 1, within = 0 }", "within"),
            ("{ of = \"pixels\", field = \"n\" }", "has `of` and `field`"),
            ("{ field = \"\" }", "cannot be a field"),
            ("{ linear = 1, scale = 10 }", "has `scale` without `field`"),
            ("{ linear = 1, bucket = 4 }", "has `bucket`, which is for samples that are not packed"),
            ("{ field = \"n\", bucket = 1 }", "has `bucket`, which must be 2 to 4096"),
            ("{ field = \"n\", scale = 0 }", "has `scale`, which must be 1 to 1000000"),
            ("{ linear = 1, sizes = \"00000000000000000000000000000007\" }", "tokens of sequences are not measured"),
            ("\"pixels\"", "samples are sequences of tokens"),
        ] {
            let error = file(text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_cost_of_what_the_columns_do_not_have_is_refused_with_the_way_out() {
        let label = "[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n";
        let audio = "[[column]]\nname = \"sound\"\nfrom = \"wav\"\ndecode = \"audio\"\nrate = 8000\n";
        let check = |cost: &str, rest: &str| {
            let file = testing::file(&format!("global_batch = 8\ncost = {cost}\n{rest}"));
            file.check().map(|_| ()).map_err(|error| error.to_string())
        };
        let fixed = format!("{audio}segment = {{ seconds = 1.0 }}\n");
        for (cost, rest, expected) in [
            ("\"tokens\"", label, "`cost` needs `sequence`"),
            ("\"pixels\"", label, "no column has decode = \"image\""),
            ("\"seconds\"", label, "no column has decode = \"audio\""),
            ("\"seconds\"", &fixed, "column `sound` has a `segment`"),
        ] {
            let error = check(cost, rest).unwrap_err();
            assert!(error.contains(expected), "{cost}: {error}");
        }
        check("\"seconds\"", audio).unwrap();
        let many = testing::file(&format!("global_batch = 4096\ncost = {{ field = \"n\", bucket = 512 }}\n{label}"));
        let error = many.check().unwrap_err().to_string();
        assert!(error.contains("has `bucket` = 512: with 4096 samples each, more than 1048576"), "{error}");
        let in_order = check("{ field = \"n\", bucket = 4 }", &format!("shuffle = false\n{label}")).unwrap_err();
        assert!(in_order.contains("has a `bucket`, and samples come in their order"), "{in_order}");
        check("{ field = \"n\" }", label).unwrap();
        let unmeasured = testing::file(&format!("global_batch = 8\ncost = {{ field = \"n\" }}\n{label}"));
        let error = unmeasured.freeze(&spdl_order::DatasetFacts::new(Fingerprint(7), 100, 1)).unwrap_err().to_string();
        assert!(error.contains("`cost` is not measured: `spdl-ctl job submit` does that"), "{error}");
    }

    #[test]
    fn buckets_are_of_the_batch_of_the_job_and_part_of_its_fingerprint() {
        let cost = |global_batch, epoch_end| {
            let file = testing::file("global_batch = 8\ncost = { of = \"pixels\", bucket = 5 }");
            file.cost.unwrap().cost(global_batch, epoch_end)
        };
        let of_eight = BucketParams { window: 40, batch: 8, is_continuous: false };
        assert_eq!(cost(8, EpochEnd::Pad).measured.unwrap().bucket, Some(of_eight));
        assert_eq!(cost(8, EpochEnd::Drop).to_string(), "{ of = \"pixels\", linear = 1, quadratic = 0, bucket = 5 }");
        let plain = testing::frozen("global_batch = 8", 100);
        let with = |global_batch, epoch_end| crate::Job { cost: Some(cost(global_batch, epoch_end)), ..plain.clone() };
        let jobs = [with(8, EpochEnd::Drop), with(16, EpochEnd::Drop), with(8, EpochEnd::Continuous), plain.clone()];
        let fingerprints: std::collections::BTreeSet<_> = jobs.iter().map(crate::Job::fingerprint).collect();
        assert_eq!(fingerprints.len(), jobs.len(), "other batches are another stream");
        assert_eq!(with(8, EpochEnd::Pad).fingerprint(), jobs[0].fingerprint());
        assert_eq!((jobs[0].bucket(), plain.bucket()), (Some(of_eight), None));
    }

    #[test]
    fn a_job_with_another_cost_has_the_same_samples_and_differs_in_the_key() {
        let plain = testing::frozen("global_batch = 8", 100);
        let cost = Some(SampleCost::of_tokens(1, 0));
        let balanced = crate::Job { cost, ..plain.clone() };
        assert_eq!(balanced.fingerprint(), plain.fingerprint());
        let differences = [("cost", "none".to_owned(), "{ linear = 1, quadratic = 0 }".to_owned())];
        assert_eq!(plain.differences(&balanced), differences);
    }
}

//! What a sample costs a trainer, by which the samples of a global batch are dealt to ranks.

use std::{fmt, num::NonZeroU32};

use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, MapAccess, Visitor, value::MapAccessDeserializer},
};

use super::{JobFile, PlainKey};

/// Upper limit of a factor: a cost of the longest sequence then fits into 64 bits.
const MAX_FACTOR: u32 = u16::MAX as u32;

/// What a sample costs a trainer: a word, or the factors of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
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
}

/// What a sample costs a trainer: `linear` times its tokens and `quadratic` times the sum of the squares of its documents' tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CostTable {
    /// The cost of a token, 0 to 65535. A layer of a transformer takes about 12 times its width, in units of `quadratic = 1`.
    /// Default: 0.
    #[serde(default)]
    pub linear: u32,
    /// The cost of a pair of tokens of one document, 0 to 65535. Default: 0.
    #[serde(default)]
    pub quadratic: u32,
    /// The number of neighbouring ranks that share their samples among themselves, such as the ranks of a node, at least 1:
    /// samples then stay on the node that reads them without `cost`, and steps are less even. Default: all ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<NonZeroU32>,
}

/// By what the samples of a global batch are dealt to ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SampleCost {
    /// The cost of a token.
    pub linear: u32,
    /// The cost of a pair of tokens of one document.
    pub quadratic: u32,
    /// The number of neighbouring ranks that share their samples; `None` for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<NonZeroU32>,
}

impl SampleCost {
    /// Returns the cost of a sequence whose documents have these numbers of tokens.
    #[must_use]
    pub fn of(&self, documents: impl IntoIterator<Item = u32>) -> u64 {
        let of_document = |tokens: u64| {
            let linear = u64::from(self.linear) * tokens;
            (u64::from(self.quadratic) * tokens).saturating_mul(tokens).saturating_add(linear)
        };
        documents.into_iter().map(|tokens| of_document(tokens.into())).fold(0, u64::saturating_add)
    }
}

impl From<SampleCostFile> for SampleCost {
    fn from(file: SampleCostFile) -> Self {
        match file {
            SampleCostFile::Name(CostName::Tokens) => Self { linear: 1, quadratic: 0, within: None },
            SampleCostFile::Name(CostName::TokensSquared) => Self { linear: 0, quadratic: 1, within: None },
            SampleCostFile::Table(CostTable { linear, quadratic, within }) => Self { linear, quadratic, within },
        }
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
        f.write_str("\"tokens\", \"tokens^2\" or { linear = 12288, quadratic = 1 }")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<SampleCostFile, E> {
        match name {
            "tokens" => Ok(SampleCostFile::Name(CostName::Tokens)),
            "tokens^2" => Ok(SampleCostFile::Name(CostName::TokensSquared)),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(name), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<SampleCostFile, A::Error> {
        CostTable::deserialize(MapAccessDeserializer::new(table)).map(SampleCostFile::Table)
    }
}

pub(super) struct CostKey;

impl PlainKey for CostKey {
    type Value = Option<SampleCost>;

    fn value(file: &JobFile, _samples: u64) -> Option<SampleCost> {
        file.cost.map(SampleCost::from)
    }

    fn check(value: &Option<SampleCost>) -> Result<(), String> {
        let Some(SampleCost { linear, quadratic, .. }) = *value else { return Ok(()) };
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
        value.map_or_else(|| "none".to_owned(), |cost| cost.to_string())
    }
}

impl fmt::Display for SampleCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { linear, quadratic, within } = self;
        write!(f, "{{ linear = {linear}, quadratic = {quadratic}")?;
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
        file(text).unwrap().cost.unwrap().into()
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
        let most = SampleCost { linear: MAX_FACTOR, quadratic: MAX_FACTOR, within: None };
        let (length, factor) = (1_u64 << 24, u64::from(MAX_FACTOR));
        assert_eq!(most.of([1 << 24]), factor * length * length + factor * length);
        assert_eq!(most.of([u32::MAX, u32::MAX]), u64::MAX, "of no job");
    }

    #[test]
    fn what_the_plan_does_not_know_is_refused_with_what_it_knows() {
        for (text, expected) in [
            ("\"pixels\"", "\"tokens\", \"tokens^2\" or { linear = 12288, quadratic = 1 }"),
            ("7", "\"tokens\", \"tokens^2\" or { linear = 12288, quadratic = 1 }"),
            ("{ cubic = 1 }", "cubic"),
            ("{ within = 8 }", "needs `linear` or `quadratic` above 0"),
            ("{ linear = 70000 }", "has `linear` = 70000; it must be 0 to 65535"),
            ("{ linear = 1, within = 0 }", "within"),
        ] {
            let error = file(text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert!(error.contains(expected), "{text}: {error}");
        }
        let column = "[[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"";
        let unpacked = testing::file(&format!("global_batch = 8\ncost = \"tokens\"\n{column}"));
        let error = unpacked.check().unwrap_err().to_string();
        assert!(error.contains("`cost` needs `sequence`"), "{error}");
    }

    #[test]
    fn a_job_with_another_cost_has_the_same_samples_and_differs_in_the_key() {
        let plain = testing::frozen("global_batch = 8", 100);
        let cost = Some(SampleCost { linear: 1, quadratic: 0, within: None });
        let balanced = crate::Job { cost, ..plain.clone() };
        assert_eq!(balanced.fingerprint(), plain.fingerprint());
        let differences = [("cost", "none".to_owned(), "{ linear = 1, quadratic = 0 }".to_owned())];
        assert_eq!(plain.differences(&balanced), differences);
    }
}

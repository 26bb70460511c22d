//! The form of a job in messages and in the coordinator's state.
//!
//! A job without a view has the form that it had before there were views. A view follows the order's parameters, whose
//! version is then 2: a program that knows no views refuses such a job by that version, or cannot read it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{BadSamples, Column, EpochEnd, Job, OrderParams};
use crate::Fingerprint;

/// The version of the order's parameters that a view follows.
const VERSION_WITH_VIEW: u32 = 2;

#[derive(Serialize, Deserialize)]
pub(super) struct JobForm {
    name: String,
    dataset: String,
    dataset_fingerprint: Fingerprint,
    samples: u64,
    seed: u64,
    global_batch: u32,
    epochs: u64,
    epoch_end: EpochEnd,
    bad_samples: BadSamples,
    max_bad_fraction: f64,
    order: OrderForm,
    columns: Vec<Column>,
}

struct OrderForm {
    order: OrderParams,
    view: Option<Fingerprint>,
}

/// The form in JSON.
#[derive(Serialize, Deserialize)]
struct NamedOrder {
    version: u32,
    lanes: u32,
    window: u64,
    shuffle: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<Fingerprint>,
}

impl OrderForm {
    fn named(&self) -> NamedOrder {
        let OrderParams { version, lanes, window, shuffle } = self.order;
        let version = if self.view.is_some() { VERSION_WITH_VIEW } else { version };
        NamedOrder { version, lanes, window, shuffle, view: self.view }
    }
}

impl Serialize for OrderForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = self.named();
        if serializer.is_human_readable() {
            return named.serialize(serializer);
        }
        let NamedOrder { version, lanes, window, shuffle, view } = named;
        match view {
            None => (version, lanes, window, shuffle).serialize(serializer),
            Some(view) => (version, lanes, window, shuffle, view).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OrderForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let NamedOrder { version, lanes, window, shuffle, view } = match deserializer.is_human_readable() {
            true => NamedOrder::deserialize(deserializer)?,
            false => deserializer.deserialize_tuple(5, OrderVisitor)?,
        };
        if (version == VERSION_WITH_VIEW) != view.is_some() {
            return Err(D::Error::custom(format!("order version `{version}` does not fit its view")));
        }
        let version = if view.is_some() { crate::order::ORDER_VERSION } else { version };
        Ok(Self { order: OrderParams { version, lanes, window, shuffle }, view })
    }
}

struct OrderVisitor;

impl<'de> serde::de::Visitor<'de> for OrderVisitor {
    type Value = NamedOrder;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the parameters of an order")
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut parts: A) -> Result<NamedOrder, A::Error> {
        fn next<'de, T: Deserialize<'de>, A: serde::de::SeqAccess<'de>>(parts: &mut A) -> Result<T, A::Error> {
            parts.next_element()?.ok_or_else(|| A::Error::custom("the parameters of the order end early"))
        }
        let version = next(&mut parts)?;
        let (lanes, window, shuffle) = (next(&mut parts)?, next(&mut parts)?, next(&mut parts)?);
        let view = if version == VERSION_WITH_VIEW { Some(next(&mut parts)?) } else { None };
        Ok(NamedOrder { version, lanes, window, shuffle, view })
    }
}

impl From<Job> for JobForm {
    fn from(job: Job) -> Self {
        Self {
            name: job.name,
            dataset: job.dataset,
            dataset_fingerprint: job.dataset_fingerprint,
            samples: job.samples,
            seed: job.seed,
            global_batch: job.global_batch,
            epochs: job.epochs,
            epoch_end: job.epoch_end,
            bad_samples: job.bad_samples,
            max_bad_fraction: job.max_bad_fraction,
            order: OrderForm { order: job.order, view: job.view },
            columns: job.columns,
        }
    }
}

impl From<JobForm> for Job {
    fn from(form: JobForm) -> Self {
        Self {
            name: form.name,
            dataset: form.dataset,
            dataset_fingerprint: form.dataset_fingerprint,
            view: form.order.view,
            samples: form.samples,
            seed: form.seed,
            global_batch: form.global_batch,
            epochs: form.epochs,
            epoch_end: form.epoch_end,
            bad_samples: form.bad_samples,
            max_bad_fraction: form.max_bad_fraction,
            order: form.order.order,
            columns: form.columns,
        }
    }
}

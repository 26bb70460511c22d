//! The form of a job in messages and in the coordinator's state.
//!
//! A job without a view and without a mix has the form that it had before there were any. A view follows the order's parameters,
//! whose version is then 2; where samples are mixed, the version is 3, and the view, if there is one, and the mix follow. A
//! program that does not know them refuses such a job by that version, or cannot read it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

use super::{BadSamples, Column, Job, Mix};
use spdl_order::{EpochEnd, OrderParams};
use spdl_types::Fingerprint;

/// The versions of the order's parameters that a view follows, and that a view and a mix follow.
const VERSION_WITH_VIEW: u32 = 2;
const VERSION_WITH_MIX: u32 = 3;

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
    mix: Option<Mix>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mix: Option<Mix>,
}

impl OrderForm {
    fn named(&self) -> NamedOrder {
        let OrderParams { version, lanes, window, shuffle } = self.order;
        let version = version_with(self.view.is_some(), self.mix.is_some()).unwrap_or(version);
        NamedOrder { version, lanes, window, shuffle, view: self.view, mix: self.mix.clone() }
    }
}

impl Serialize for OrderForm {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let named = self.named();
        if serializer.is_human_readable() {
            return named.serialize(serializer);
        }
        let NamedOrder { version, lanes, window, shuffle, view, mix } = named;
        match (view, mix) {
            (None, None) => (version, lanes, window, shuffle).serialize(serializer),
            (Some(view), None) => (version, lanes, window, shuffle, view).serialize(serializer),
            (view, Some(mix)) => (version, lanes, window, shuffle, view, mix).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OrderForm {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let NamedOrder { version, lanes, window, shuffle, view, mix } = match deserializer.is_human_readable() {
            true => NamedOrder::deserialize(deserializer)?,
            false => deserializer.deserialize_tuple(6, OrderVisitor)?,
        };
        let extended = version_with(view.is_some(), mix.is_some());
        if extended != [VERSION_WITH_VIEW, VERSION_WITH_MIX].contains(&version).then_some(version) {
            return Err(D::Error::custom(format!("order version `{version}` does not fit its view and mix")));
        }
        let version = if extended.is_some() { spdl_order::ORDER_VERSION } else { version };
        Ok(Self { order: OrderParams { version, lanes, window, shuffle }, view, mix })
    }
}

/// Returns the version of the order's parameters of a job with a view or a mix; `None` without both.
const fn version_with(view: bool, mix: bool) -> Option<u32> {
    match (view, mix) {
        (_, true) => Some(VERSION_WITH_MIX),
        (true, false) => Some(VERSION_WITH_VIEW),
        (false, false) => None,
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
        let (view, mix) = match version {
            VERSION_WITH_VIEW => (Some(next(&mut parts)?), None),
            VERSION_WITH_MIX => (next(&mut parts)?, Some(next(&mut parts)?)),
            _ => (None, None),
        };
        Ok(NamedOrder { version, lanes, window, shuffle, view, mix })
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
            order: OrderForm { order: job.order, view: job.view, mix: job.mix },
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
            mix: form.order.mix,
            columns: form.columns,
        }
    }
}

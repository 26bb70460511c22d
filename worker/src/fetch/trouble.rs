//! What fails just then and is being tried again: for whoever has to explain why nothing comes.

use std::{collections::HashMap, fmt, sync::Arc, time::Instant};

use object_store::path::Path;
use parking_lot::Mutex;

/// Bytes of a store's words that are kept.
const MAX_CAUSE_BYTES: usize = 300;

/// Objects that requests fail for, of all datasets of a process.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    open: Mutex<HashMap<Object, Trouble>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Object {
    /// URL of the dataset.
    dataset: Arc<str>,
    path: Path,
}

/// An object that requests fail for.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    /// Where it lies in its store.
    pub(crate) path: Path,
    pub(crate) since: Instant,
    failures: u64,
    cause: String,
    /// Requests that are being tried again.
    waiting: usize,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, since, failures, cause, .. } = self;
        let seconds = since.elapsed().as_secs();
        write!(f, "requests for `{path}` have failed for {seconds} s, {failures} in all, the last with: {cause}")
    }
}

/// A request that has failed and is being tried again; the trouble is over when the last of them is dropped.
#[derive(Debug)]
pub(crate) struct Troubled {
    troubles: Arc<Troubles>,
    object: Object,
}

impl Troubles {
    pub(crate) fn enter(self: &Arc<Self>, dataset: &Arc<str>, path: &Path) -> Troubled {
        let object = Object { dataset: dataset.clone(), path: path.clone() };
        let mut open = self.open.lock();
        let trouble = open.entry(object.clone()).or_insert_with(|| Trouble {
            path: path.clone(),
            since: Instant::now(),
            failures: 0,
            cause: String::new(),
            waiting: 0,
        });
        trouble.waiting += 1;
        Troubled { troubles: self.clone(), object }
    }

    /// The oldest trouble with an object of `dataset`, one that is `wanted` before others.
    pub(crate) fn oldest(&self, dataset: &str, wanted: impl Fn(&Path) -> bool) -> Option<Trouble> {
        let open = self.open.lock();
        let of_dataset = open.iter().filter(|(object, _)| &*object.dataset == dataset);
        let oldest = of_dataset.min_by_key(|(object, trouble)| (!wanted(&object.path), trouble.since));
        oldest.map(|(_, trouble)| trouble.clone())
    }

    /// Since when there has been any.
    pub(crate) fn since(&self) -> Option<Instant> {
        self.open.lock().values().map(|trouble| trouble.since).min()
    }
}

impl Troubled {
    /// It failed once more.
    pub(crate) fn note(&self, cause: &str) {
        let mut open = self.troubles.open.lock();
        let trouble = open.get_mut(&self.object).expect("open while somebody is troubled");
        trouble.failures += 1;
        let kept = (0..=cause.len().min(MAX_CAUSE_BYTES)).rev().find(|end| cause.is_char_boundary(*end)).unwrap_or(0);
        cause[..kept].clone_into(&mut trouble.cause);
    }
}

impl Drop for Troubled {
    fn drop(&mut self) {
        let mut open = self.troubles.open.lock();
        let trouble = open.get_mut(&self.object).expect("open while somebody is troubled");
        trouble.waiting -= 1;
        if trouble.waiting == 0 {
            open.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_lasts_from_the_first_failure_to_the_end_of_the_last_request() {
        let troubles = Arc::new(Troubles::default());
        let dataset: Arc<str> = "s3://b/d".into();
        let (one, other) = (Path::from("d/1.tar"), Path::from("d/2.tar"));
        let first = troubles.enter(&dataset, &one);
        first.note("503");
        let second = troubles.enter(&dataset, &one);
        second.note(&"ä".repeat(1000));
        let third = troubles.enter(&dataset, &other);
        third.note("reset");
        let told = troubles.oldest(&dataset, |path| *path == other).unwrap();
        assert!(told.to_string().contains("`d/2.tar`") && told.to_string().contains("reset"), "{told}");
        let told = troubles.oldest(&dataset, |_| false).unwrap();
        assert!(told.to_string().contains("`d/1.tar`") && told.failures == 2 && told.cause.len() == MAX_CAUSE_BYTES);
        assert!(troubles.oldest("s3://b/e", |_| true).is_none());
        drop((first, third));
        assert!(troubles.oldest(&dataset, |_| true).is_some());
        drop(second);
        assert!(troubles.oldest(&dataset, |_| true).is_none() && troubles.since().is_none());
    }
}

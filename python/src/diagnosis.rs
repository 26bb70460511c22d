//! What limits a loader, as Python classes.

use pyo3::prelude::*;
use spdl_insight::{self as insight, Diagnosis, Limit, ResourceChange, Term};

use crate::errors::ErrorKind;

/// The rate that a resource allows a rank.
#[pyclass(frozen, get_all, module = "spdl_cluster._native")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiagnosisTerm {
    limit: &'static str,
    samples_per_s: f64,
}

impl From<Term> for DiagnosisTerm {
    fn from(Term { limit, samples_per_s }: Term) -> Self {
        Self { limit: limit.name(), samples_per_s }
    }
}

/// What a rank would get under a change.
#[pyclass(frozen, get_all, module = "spdl_cluster._native", name = "Prediction")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiagnosisPrediction {
    samples_per_s: f64,
    /// The fraction of its time that the trainer would wait.
    waiting: f64,
}

impl From<insight::Prediction> for DiagnosisPrediction {
    fn from(insight::Prediction { samples_per_s, waiting }: insight::Prediction) -> Self {
        Self { samples_per_s, waiting }
    }
}

/// The diagnosis of a rank.
#[pyclass(frozen, module = "spdl_cluster._native")]
#[derive(Debug)]
pub(crate) struct NativeDiagnosis(Diagnosis);

impl From<Diagnosis> for NativeDiagnosis {
    fn from(found: Diagnosis) -> Self {
        Self(found)
    }
}

#[pymethods]
impl NativeDiagnosis {
    /// The name of the limit; `None` if nothing that was measured explains why no sample came.
    #[getter]
    fn limit(&self) -> Option<&'static str> {
        self.0.limit().map(Limit::name)
    }

    /// The resource that limits next.
    #[getter]
    fn next(&self) -> Option<DiagnosisTerm> {
        self.0.next().map(Into::into)
    }

    #[getter]
    fn verdict(&self) -> String {
        self.0.verdict()
    }

    #[getter]
    fn samples_per_s(&self) -> f64 {
        self.0.samples_per_s()
    }

    #[getter]
    fn waiting(&self) -> f64 {
        self.0.rank.waiting()
    }

    #[getter]
    fn terms(&self) -> Vec<DiagnosisTerm> {
        self.0.terms.iter().copied().map(Into::into).collect()
    }

    /// Predicts the rate and the wait with other resources. All but `cores` and `memory_bytes` are factors.
    #[pyo3(signature = (*, workers, cores, call, requests, ahead, latency, bandwidth, fetched, memory_bytes, network, slots, step))]
    #[allow(clippy::too_many_arguments, reason = "named in Python, and all are optional there")]
    fn what_if(
        &self,
        py: Python<'_>,
        workers: f64,
        cores: f64,
        call: f64,
        requests: f64,
        ahead: f64,
        latency: f64,
        bandwidth: f64,
        fetched: f64,
        memory_bytes: f64,
        network: f64,
        slots: f64,
        step: f64,
    ) -> PyResult<DiagnosisPrediction> {
        let change = ResourceChange {
            workers,
            cores,
            call,
            requests,
            ahead,
            latency,
            bandwidth,
            fetched,
            memory_bytes,
            network,
            slots,
            step,
        };
        let factors = [
            ("workers", workers),
            ("call", call),
            ("requests", requests),
            ("ahead", ahead),
            ("latency", latency),
            ("bandwidth", bandwidth),
            ("fetched", fetched),
            ("network", network),
            ("slots", slots),
            ("step", step),
        ];
        let wrong = factors.into_iter().find(|(_, factor)| !(factor.is_finite() && *factor >= 0.0));
        match wrong {
            Some((name, factor)) => {
                let problem = format!("`{name}` is {factor}, not a factor: a number from 0, 1 for no change");
                Err(ErrorKind::Setting.error(py, &problem, None))
            }
            None if !cores.is_finite() => {
                let problem = format!("`cores` is {cores}, not a number of cores to add or, below 0, to take away");
                Err(ErrorKind::Setting.error(py, &problem, None))
            }
            None if !memory_bytes.is_finite() => {
                let problem =
                    format!("`memory_bytes` is {memory_bytes}, not a number of bytes to add or, below 0, to take away");
                Err(ErrorKind::Setting.error(py, &problem, None))
            }
            None => Ok(self.0.predict(&change).into()),
        }
    }
}

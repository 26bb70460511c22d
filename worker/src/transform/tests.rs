//! Tests that need no numpy: interpreters that cannot call functions, and jobs that may not. The rest is in
//! `tests/python`.

use std::sync::Arc;

use spdl_accounting::StageCounters;
use spdl_job::{Job, JobFile};
use spdl_order::DatasetFacts;
use spdl_types::{Fingerprint, Stage};

use super::*;

fn transforms(settings: Option<TransformSettings>) -> Arc<Transforms> {
    Transforms::new("node-0", settings, Arc::new(StageCounters::new(Stage::Transform)), 1)
}

fn job() -> Job {
    let text = "name = \"train\"\ndataset = \"b\"\nglobal_batch = 8\n\
        [[column]]\nname = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\n\
        [[column]]\nname = \"text\"\nfrom = \"txt\"\ndecode = \"bytes\"\ntransform = \"captions:tokens\"";
    let facts = DatasetFacts::new(Fingerprint(7), 100, 10);
    JobFile::parse(text, "job.toml").unwrap().freeze(&facts).unwrap()
}

fn problem(settings: TransformSettings) -> String {
    transforms(Some(settings)).check().unwrap_err().to_string()
}

#[test]
fn a_job_with_a_function_is_refused_where_none_may_be_called() {
    let transforms = transforms(None);
    transforms.check().unwrap();
    let error = transforms.lease(&job()).unwrap_err().to_string();
    for part in ["column `text` of job `train`", "`captions:tokens`", "--allow-transforms"] {
        assert!(error.contains(part), "{error}");
    }
    let plain = Job { columns: job().columns[..1].to_vec(), ..job() };
    assert!(transforms.lease(&plain).unwrap().is_none());
}

#[test]
fn an_interpreter_that_cannot_do_it_is_named_with_the_reason() {
    let python = |python: &str| TransformSettings { python: python.into(), ..TransformSettings::default() };
    let error = problem(python("/nowhere/python3"));
    assert!(error.contains("`/nowhere/python3`") && error.contains("cannot be started"), "{error}");
    let error = problem(python("true"));
    assert!(error.contains("`true`") && error.contains("it ended with exit status: 0"), "{error}");
    let error = problem(TransformSettings { path: Some(Vec::new()), ..TransformSettings::default() });
    assert!(error.contains("ModuleNotFoundError: No module named 'numpy'"), "{error}");
}

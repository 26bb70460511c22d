//! The processes that decode frames of videos: this interpreter, which loads this module alone.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use pyo3::prelude::*;
use spdl_frames::{FrameChildCommand, frame_child_main};
use spdl_worker::FrameAccess;

/// The program of a process, whose argument is the file of this module. Neither `site` nor the package is imported.
const PROGRAM: &str = "\
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.ExtensionFileLoader('_native', sys.argv[1])
spec = importlib.util.spec_from_file_location('_native', sys.argv[1], loader=loader)
module = importlib.util.module_from_spec(spec)
loader.exec_module(module)
module.frame_child()
";

/// Decodes frames for the process that has started this one, and ends with it.
#[pyfunction]
pub(crate) fn frame_child() {
    std::process::exit(i32::from(frame_child_main() != ExitCode::SUCCESS));
}

/// Returns how processes that decode frames of videos are started.
pub(crate) fn access(py: Python<'_>) -> PyResult<FrameAccess> {
    let sys = py.import("sys")?;
    let python: Option<String> = sys.getattr("executable")?.extract()?;
    let python = python.filter(|python| !python.is_empty()).unwrap_or_else(|| "python3".to_owned());
    let module: PathBuf = py.import("spdl_cluster._native")?.getattr("__file__")?.extract()?;
    let arguments = ["-I".into(), "-S".into(), "-c".into(), PROGRAM.into(), module.into()];
    let command = FrameChildCommand { program: python.into(), arguments: arguments.into() };
    Ok(FrameAccess { command, package_folders: folder_of_pyav(py).into_iter().collect() })
}

/// Returns the folder of packages that has PyAV, if it is installed. It is not imported.
fn folder_of_pyav(py: Python<'_>) -> Option<PathBuf> {
    let find = py.import("importlib.util").and_then(|util| util.call_method1("find_spec", ("av",)));
    // A package that was put into `sys.modules` by hand has no place.
    let origin: PathBuf = find.ok()?.getattr("origin").ok()?.extract().ok()?;
    origin.parent().and_then(Path::parent).map(Path::to_owned)
}

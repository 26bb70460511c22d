//! Converts errors of the Rust crates to the exceptions of `spdl_cluster.errors`.

use pyo3::{
    prelude::*,
    sync::PyOnceLock,
    types::{PyModule, PyType},
};
use spdl_cli::local::LocalError;
use spdl_client::ClientError;
use spdl_control::{client::RankError, messages::Refusal};
use spdl_gpu::DeviceError;

/// The exceptions, by their names in Python.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ErrorKind {
    Setting,
    State,
    Connect,
    Refused,
    Data,
    Device,
    DeviceMemory,
    Timeout,
    Closed,
    Forked,
    System,
    SlotsExhausted,
    PipelineFailure,
    PipelineTimeout,
}

impl ErrorKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Setting => "SettingError",
            Self::State => "StateError",
            Self::Connect => "ConnectError",
            Self::Refused => "RefusedError",
            Self::Data => "DataError",
            Self::Device => "DeviceError",
            Self::DeviceMemory => "DeviceMemoryError",
            Self::Timeout => "LoaderTimeout",
            Self::Closed => "ClosedError",
            Self::Forked => "ForkedError",
            Self::System => "SpdlError",
            Self::SlotsExhausted => "SlotsExhaustedWarning",
            Self::PipelineFailure => "PipelineFailure",
            Self::PipelineTimeout => "PipelineTimeout",
        }
    }

    /// Returns the Python class.
    pub(crate) fn class(self, py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
        static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let module = MODULE.get_or_try_init(py, || py.import("spdl_cluster.errors").map(Bound::unbind))?;
        Ok(module.bind(py).getattr(self.name())?.cast_into()?)
    }

    /// Makes an exception of this kind.
    pub(crate) fn error(self, py: Python<'_>, message: &str, hint: Option<&str>) -> PyErr {
        match self.class(py).and_then(|class| class.call1((message, hint))) {
            Ok(error) => PyErr::from_value(error),
            Err(error) => error,
        }
    }
}

/// Converts a loader's error, with `note` appended to its text.
pub(crate) fn of_client(py: Python<'_>, error: &ClientError, note: &str) -> PyErr {
    let kind = match error {
        ClientError::Setting { .. } => ErrorKind::Setting,
        ClientError::Certificates { .. }
        | ClientError::Rank(RankError::Unreachable { .. })
        | ClientError::Group { .. }
        | ClientError::Undiagnosed { .. }
        | ClientError::ClassesUnknown { .. } => ErrorKind::Connect,
        ClientError::State(_) | ClientError::Rank(RankError::Refused(Refusal::FingerprintDiffers { .. })) => {
            ErrorKind::State
        }
        ClientError::Rank(RankError::Refused(
            Refusal::RankOutOfRange { .. }
            | Refusal::WorldTooLarge { .. }
            | Refusal::StartOutOfRange { .. }
            | Refusal::RunName { .. },
        )) => ErrorKind::Setting,
        ClientError::Rank(RankError::Refused(_) | RankError::SessionDiffers { .. }) => ErrorKind::Refused,
        ClientError::Timeout { .. } => ErrorKind::Timeout,
        ClientError::Rank(RankError::Fault { .. })
        | ClientError::Pipeline { .. }
        | ClientError::Layout(_)
        | ClientError::Column(_) => ErrorKind::Data,
        ClientError::Closed => ErrorKind::Closed,
        _ => ErrorKind::System,
    };
    let hint = match error {
        ClientError::Timeout { .. } => {
            Some("`timeout=` sets how long is waited; `spdl-ctl status` shows every stage of a cluster's workers")
        }
        error => error.hint(),
    };
    kind.error(py, &format!("{error}{note}"), hint)
}

/// Converts an error of a device or of its loader, with `note` appended to its text.
pub(crate) fn of_device(py: Python<'_>, error: &DeviceError, note: &str) -> PyErr {
    let kind = match error {
        DeviceError::Client(error) => return of_client(py, error, note),
        DeviceError::Name { .. }
        | DeviceError::Variable { .. }
        | DeviceError::Option { .. }
        | DeviceError::Column(_) => ErrorKind::Setting,
        error if error.is_out_of_memory() => ErrorKind::DeviceMemory,
        _ => ErrorKind::Device,
    };
    kind.error(py, &format!("{error}{note}"), error.hint())
}

/// Converts an error from opening a loader in this process.
pub(crate) fn of_local(py: Python<'_>, error: &LocalError) -> PyErr {
    let (kind, hint) = match error {
        LocalError::Client(error) => return of_client(py, error, ""),
        LocalError::Job(_) | LocalError::Plan(_) | LocalError::Budget(_) => (ErrorKind::Setting, None),
        LocalError::Store(error) => (ErrorKind::Data, error.hint()),
        _ => (ErrorKind::Data, None),
    };
    kind.error(py, &error.to_string(), hint)
}

//! What stores are: folders on disk and in object stores, opened by their URLs, with their settings, credentials, certificates
//! and errors; whole objects and ranges of them, read in bounded memory; and temporary files.
//!
//! It knows nothing of datasets and their formats: `spdl-shard` does.

mod blocking;
mod cause;
mod error;
mod folder;
mod layer;
mod listed;
mod location;
mod mapped;
mod no_retry;
mod read;
mod settings;
mod stores;
mod temporary;
mod tls;

pub use blocking::{blocking, in_task};
pub use cause::{cause, is_refusal};
pub use error::{ContentError, StoreError};
pub use folder::StoreFolder;
pub use layer::StoreLayer;
pub use listed::ListedObject;
pub use mapped::MappedObject;
pub use no_retry::Busy;
pub use read::{RANGE_BYTES, WholeObject, split};
pub use settings::StoreOptions;
pub use stores::WantsFile;
pub use temporary::{TemporaryError, TemporaryFolder};

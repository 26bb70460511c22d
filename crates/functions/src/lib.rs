//! Users' functions in Rust: a user's own worker registers them, and jobs call them by name.
//!
//! A [`SampleFunction`] is prepared from the arguments of a job and called once for each sample. Its name and its version are part
//! of the job's fingerprint. The worker is the program of a few lines in `examples/own-worker`.
//!
//! ```
//! use spdl_functions::{Draw, FunctionRegistry, FunctionProblem, Returned, SampleFunction, FunctionSetup, Taken};
//!
//! /// Turns pictures upside down, every second one on average.
//! struct UpsideDown;
//!
//! impl SampleFunction for UpsideDown {
//!     const NAME: &'static str = "pictures::upside_down";
//!     const VERSION: u32 = 1;
//!
//!     fn prepare(_: &FunctionSetup) -> Result<Self, FunctionProblem> {
//!         Ok(Self)
//!     }
//!
//!     fn call(&self, taken: &Taken<'_>, returned: &mut Returned<'_>, draw: &mut Draw) -> Result<(), FunctionProblem> {
//!         let picture = taken.value("image")?;
//!         let row = picture.shape()[1..].iter().product::<u32>() as usize;
//!         let mut pixels = picture.elements::<u8>()?.to_vec();
//!         if draw.below(2) == 1 {
//!             pixels = pixels.rchunks(row).flatten().copied().collect();
//!         }
//!         returned.put("image", &pixels)
//!     }
//! }
//!
//! let functions = FunctionRegistry::new().with::<UpsideDown>();
//! assert_eq!(functions.names(), ["pictures::upside_down@1"]);
//! ```

mod element;
mod function;
mod memory;
mod registry;
mod value;

pub use element::ValueElement;
pub use function::{FunctionProblem, FunctionSetup, SampleFunction};
pub use memory::{CallMemory, ValueMemory};
pub use registry::{CallKey, FunctionRegistry, FunctionRegistryError, PreparedFunction};
pub use spdl_types::{DType, Draw, SampleShape};
pub use value::{Returned, Taken, TakenValue, ValueType};
